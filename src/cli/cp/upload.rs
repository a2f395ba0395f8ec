//! Makes a tree in a session. Files are written as their descriptors arrive, while the next ones are asked for.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};

use nix::errno::Errno;
use nix::sys::stat::futimens;

use super::Copying;
use super::content::{copy, copy_file, copy_with_holes};
use super::download::below;
use super::host::{self, time};
use super::item::{Content, Item, Kind, Sink};
use super::pipeline::{Answer, Pipeline, ask, is};
use crate::error::{Error, Result};
use crate::plan::Bytes;
use crate::session::client::Client;
use crate::session::protocol::Reply;
use crate::session::protocol::files::{Access, FileOperation, FileType, Open};

/// Files up to this size are read into memory from a stream.
const MOST_IN_MEMORY: u64 = 1 << 20;

/// The writer of a tree.
pub struct Upload<'a> {
    copying: &'a Copying,
    pipeline: Pipeline<Then>,
    /// For what is asked while other answers are on their way.
    aside: Client,
    root: Vec<u8>,
    /// Whether the root is a directory that was there before, which keeps its attributes.
    keeps_root: bool,
    /// Whether missing directories are made.
    parents: bool,
}

/// What to do with an answer.
enum Then {
    Nothing,
    Write(NewFile<'static>),
    /// The link or the directory may be where another file is.
    Replace(FileOperation),
    /// A hard link. If it cannot be made, the file is.
    Link(FileOperation, Option<NewFile<'static>>),
}

struct NewFile<'c> {
    path: Bytes,
    mode: u32,
    modified_ns: i64,
    content: Content<'c>,
}

impl<'a> Upload<'a> {
    /// At this place in the session.
    pub fn new(copying: &'a Copying, client: Client, root: &[u8], keeps_root: bool) -> Result<Self> {
        let aside = Client::connect(&copying.session)?;
        Ok(Self { copying, pipeline: Pipeline::new(client), aside, root: root.to_vec(), keeps_root, parents: false })
    }

    /// Missing directories are made, as an archive need not have them.
    pub fn with_parents(self) -> Self {
        Self { parents: true, ..self }
    }

    fn open(&self, path: &Bytes, mode: u32) -> FileOperation {
        FileOperation::Open(Open {
            path: path.clone(),
            access: Access::Write,
            create: true,
            exclusive: true,
            parents: self.parents,
            mode: Some(mode),
            ..Open::default()
        })
    }

    fn send(&mut self, operation: FileOperation, then: Then) -> Result<()> {
        while self.pipeline.is_full() {
            self.take_answer()?;
        }
        self.pipeline.send(operation, then)
    }

    /// Returns whether there was one.
    fn take_answer(&mut self) -> Result<bool> {
        let Some((then, answer)) = self.pipeline.receive()? else { return Ok(false) };
        match then {
            Then::Nothing => drop(answer?),
            Then::Write(file) => self.write(file, answer)?,
            Then::Replace(operation) => match answer {
                Err(error) if is(&error, Errno::EEXIST) => self.replace(operation, &error).map(drop)?,
                answer => drop(answer?),
            },
            Then::Link(operation, new) => {
                let linked = match answer {
                    Err(error) if is(&error, Errno::EEXIST) => self.replace(operation, &error).map(drop),
                    answer => answer.map(drop),
                };
                match (linked, new) {
                    (Err(_), Some(new)) => {
                        let open = self.open(&new.path, new.mode);
                        let opened = ask(&mut self.aside, open);
                        self.write(new, opened)?;
                    }
                    (linked, _) => linked?,
                }
            }
        }
        Ok(true)
    }

    fn write(&mut self, new: NewFile<'_>, answer: Answer) -> Result<()> {
        let file = match answer {
            Err(error) if is(&error, Errno::EEXIST) => self.replace(self.open(&new.path, new.mode), &error)?,
            answer => answer?.1,
        };
        let Some(file) = file else { return Err(self.aside.wrong("gave no descriptor")) };
        let mut file = File::from(file);
        let failed = |error: &std::io::Error| Error::io(crate::error::Step::SessionFile, new.path.to_string(), error);
        match new.content {
            Content::Bytes(bytes) => file.write_all(&bytes).map_err(|error| failed(&error))?,
            Content::Open(mut from, size) => {
                let copied = copy_file(&mut from, &mut file, size).map_err(|error| failed(&error))?;
                self.copying.check_length(&new.path, copied, size);
            }
            Content::Stream(from, size) => {
                let copied = copy(from, &mut file, size).map_err(|error| failed(&error))?;
                self.copying.check_length(&new.path, copied, size);
            }
            Content::Sparse(from, size) => {
                let copied = copy_with_holes(from, &mut file, size).map_err(|error| failed(&error))?;
                self.copying.check_length(&new.path, copied, size);
            }
        }
        let modified = time(new.modified_ns);
        match futimens(file.as_fd(), &modified, &modified) {
            // The sandbox's user has another id on the host.
            Err(Errno::EPERM) => {
                let set = attributes(new.path, None, new.modified_ns);
                ask(&mut self.aside, set).map(drop)
            }
            set => set.map_err(|errno| failed(&errno.into())),
        }
    }

    /// Removes what is in the way, unless that is a directory, and asks again.
    fn replace(&mut self, operation: FileOperation, error: &Error) -> Result<Option<OwnedFd>> {
        let path = match &operation {
            FileOperation::Open(open) => &open.path,
            FileOperation::Symlink { path, .. } | FileOperation::HardLink { to: path, .. } => path,
            _ => return Err(error.clone()),
        };
        let (found, _) = ask(&mut self.aside, FileOperation::Stat { path: path.clone(), no_follow: true })?;
        if found.file.is_some_and(|file| file.r#type == FileType::Directory) {
            let reason = "is a directory, and not replaced by another file";
            return Err(Error::new(crate::error::Step::SessionFile, path.to_string(), reason));
        }
        match ask(&mut self.aside, FileOperation::Remove { path: path.clone(), recursive: false }) {
            // A file that is a mount, or in a directory that cannot be written to, is overwritten.
            Err(_) if matches!(operation, FileOperation::Open(_)) => {
                let path = path.clone();
                let open = Open { path, access: Access::Write, truncate: true, no_follow: true, ..Open::default() };
                ask(&mut self.aside, FileOperation::Open(open)).map(|(_, file)| file)
            }
            removed => removed.and_then(|_| ask(&mut self.aside, operation)).map(|(_, file)| file),
        }
    }

    fn drain(&mut self) -> Result<()> {
        while self.take_answer()? {}
        Ok(())
    }
}

impl Sink for Upload<'_> {
    fn take(&mut self, item: Item<'_>) -> Result<()> {
        let path = below(&self.root, &item.path);
        let is_kept = item.path.is_empty() && self.keeps_root;
        match item.kind {
            Kind::Enter if is_kept => Ok(()),
            Kind::Enter => {
                // Until its content is there, its owner can write to it. With `parents` it may exist.
                let mode = Some(item.mode & 0o1777 | 0o700);
                if item.path.is_empty() {
                    // What is below must not be made if this cannot.
                    return ask(&mut self.aside, FileOperation::MakeDir { path, mode, parents: self.parents })
                        .map(drop);
                }
                self.send(FileOperation::MakeDir { path, mode, parents: true }, Then::Nothing)
            }
            Kind::Leave if is_kept => Ok(()),
            Kind::Leave => self.send(attributes(path, Some(item.mode & 0o1777), item.modified_ns), Then::Nothing),
            Kind::Link(target) => {
                let link = FileOperation::Symlink { path: path.clone(), target: target.into() };
                self.send(link.clone(), Then::Replace(link))?;
                self.send(attributes(path, None, item.modified_ns), Then::Nothing)
            }
            Kind::HardLink(first, content) => {
                let link = FileOperation::HardLink { path: below(&self.root, &first), to: path.clone() };
                let (mode, modified_ns) = (item.mode & 0o1777, item.modified_ns);
                let new = match content {
                    Some(Content::Open(file, size)) => {
                        Some(NewFile { path, mode, modified_ns, content: Content::Open(file, size) })
                    }
                    _ => None,
                };
                self.send(link.clone(), Then::Link(link, new))
            }
            Kind::Special(kind) => {
                self.copying.leave_out(&host::text(&path), kind);
                Ok(())
            }
            Kind::File(content) => {
                let (mode, modified_ns) = (item.mode & 0o1777, item.modified_ns);
                let content = match content {
                    Content::Open(file, size) => Content::Open(file, size),
                    Content::Bytes(bytes) => Content::Bytes(bytes),
                    Content::Stream(from, size) if size <= MOST_IN_MEMORY => {
                        let mut bytes = Vec::new();
                        let failed = |error| Error::io(crate::error::Step::Copy, "archive", &error);
                        from.take(size).read_to_end(&mut bytes).map_err(failed)?;
                        self.copying.check_length(&path, bytes.len() as u64, size);
                        Content::Bytes(bytes)
                    }
                    Content::Stream(..) | Content::Sparse(..) => {
                        // The stream goes on only after this file.
                        self.drain()?;
                        let open = self.open(&path, mode);
                        let file = match ask(&mut self.aside, open.clone()) {
                            Err(error) if is(&error, Errno::EEXIST) => self.replace(open, &error)?,
                            answer => answer?.1,
                        };
                        return self.write(NewFile { path, mode, modified_ns, content }, Ok((Reply::default(), file)));
                    }
                };
                let new = NewFile { path: path.clone(), mode, modified_ns, content };
                self.send(self.open(&path, mode), Then::Write(new))
            }
        }
    }

    fn finish(&mut self) -> Result<()> {
        self.drain()
    }
}

fn attributes(path: Bytes, mode: Option<u32>, modified_ns: i64) -> FileOperation {
    FileOperation::SetAttributes { path, mode, modified_ns: Some(modified_ns), accessed_ns: None }
}
