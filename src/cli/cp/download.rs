//! A tree of a session, file by file. The next files are asked for while one is written.

use std::collections::VecDeque;
use std::fs::File;

use nix::errno::Errno;
use nix::sys::stat::fstat;

use super::item::{Content, Item, Kind, Linked, join};
use super::pipeline::{Pipeline, is};
use crate::error::{Error, Result, Step};
use crate::plan::Bytes;
use crate::session::client::Client;
use crate::session::protocol::files::{Access, FileOperation, FileStatus, FileType, Open};

/// The walk through a tree.
pub struct Download {
    pipeline: Pipeline<()>,
    /// The root of the tree in the session.
    root: Vec<u8>,
    /// Whether the root is opened if it is a link.
    follows_root: bool,
    /// What is returned next, in this order.
    slots: VecDeque<Slot>,
    /// Directories to go on with, the next one last. A page of one is read at a time, so this grows with the depth alone.
    stack: Vec<Todo>,
    /// Of the present page.
    entries: VecDeque<(Vec<u8>, FileStatus)>,
    /// Whether a page is on its way: what follows it is not known.
    is_listing: bool,
    linked: Linked,
}

enum Slot {
    Ready(Item<'static>),
    /// A file that was asked for.
    Opening(Vec<u8>, FileStatus),
    /// A page of this directory that was asked for.
    Listing(Vec<u8>, FileStatus),
}

enum Todo {
    /// A directory, and where its next page is; `None` for the first one.
    Page(Vec<u8>, FileStatus, Option<String>),
    Leave(Vec<u8>, FileStatus),
}

impl Download {
    /// Of this file or directory, which was described so.
    pub fn new(client: Client, root: &[u8], follows_root: bool, status: FileStatus) -> Self {
        Self {
            pipeline: Pipeline::new(client),
            root: root.to_vec(),
            follows_root,
            slots: VecDeque::new(),
            stack: Vec::new(),
            entries: VecDeque::from([(Vec::new(), status)]),
            is_listing: false,
            linked: Linked::default(),
        }
    }

    /// The next item. Files that were removed meanwhile are left out.
    pub fn next(&mut self) -> Result<Option<Item<'static>>> {
        loop {
            self.fill()?;
            match self.slots.pop_front() {
                None => return Ok(None),
                Some(Slot::Ready(item)) => return Ok(Some(item)),
                Some(Slot::Opening(path, status)) => {
                    let Some(((), answer)) = self.pipeline.receive()? else { return Ok(None) };
                    let (reply, file) = match answer {
                        Err(error) if is(&error, Errno::ENOENT) && !path.is_empty() => continue,
                        answer => answer?,
                    };
                    // The file may have been replaced since it was listed.
                    let status = reply.file.unwrap_or(status);
                    let Some(file) = file else { continue };
                    let found =
                        fstat(&file).map_err(|errno| Error::errno(Step::Copy, self.at(&path).to_string(), errno))?;
                    let content = Content::Open(File::from(file), status.size_bytes);
                    let kind = self.linked.kind(&found, &path, content);
                    return Ok(Some(item(path, &status, kind)));
                }
                Some(Slot::Listing(path, status)) => {
                    let Some(((), answer)) = self.pipeline.receive()? else { return Ok(None) };
                    self.is_listing = false;
                    let (reply, _) = match answer {
                        Err(error) if is(&error, Errno::ENOENT) => {
                            self.stack.push(Todo::Leave(path, status));
                            continue;
                        }
                        answer => answer?,
                    };
                    let entries = reply.entries.unwrap_or_default().into_iter();
                    let named = entries.filter_map(|entry| Some((join(&path, entry.name.as_ref()?.as_bytes()), entry)));
                    self.entries = named.collect();
                    self.stack.push(match reply.next {
                        Some(next) => Todo::Page(path, status, Some(next)),
                        None => Todo::Leave(path, status),
                    });
                }
            }
        }
    }

    /// Asks for as much as is known to follow.
    fn fill(&mut self) -> Result<()> {
        while !self.is_listing && !self.pipeline.is_full() {
            if let Some((path, status)) = self.entries.pop_front() {
                self.add(path, status)?;
                continue;
            }
            match self.stack.pop() {
                None => return Ok(()),
                Some(Todo::Leave(path, status)) => self.slots.push_back(Slot::Ready(item(path, &status, Kind::Leave))),
                Some(Todo::Page(path, status, from)) => {
                    if from.is_none() {
                        self.slots.push_back(Slot::Ready(item(path.clone(), &status, Kind::Enter)));
                    }
                    let list = FileOperation::List { path: self.at(&path), from, limit: None };
                    self.pipeline.send(list, ())?;
                    self.is_listing = true;
                    self.slots.push_back(Slot::Listing(path, status));
                }
            }
        }
        Ok(())
    }

    fn add(&mut self, path: Vec<u8>, status: FileStatus) -> Result<()> {
        let slot = match status.r#type {
            FileType::Directory => {
                self.stack.push(Todo::Page(path, status, None));
                return Ok(());
            }
            FileType::File => {
                let no_follow = !(path.is_empty() && self.follows_root);
                let open = Open { path: self.at(&path), access: Access::Read, no_follow, ..Open::default() };
                self.pipeline.send(FileOperation::Open(open), ())?;
                Slot::Opening(path, status)
            }
            FileType::Symlink => {
                let target = status.target.as_ref().map(|target| target.as_bytes().to_vec()).unwrap_or_default();
                Slot::Ready(item(path, &status, Kind::Link(target)))
            }
            other => Slot::Ready(item(path, &status, Kind::Special(other))),
        };
        self.slots.push_back(slot);
        Ok(())
    }

    fn at(&self, path: &[u8]) -> Bytes {
        below(&self.root, path)
    }
}

/// The path in the session of something in a tree.
pub fn below(root: &[u8], path: &[u8]) -> Bytes {
    let path = match (root, path) {
        (root, b"") => root.to_vec(),
        (b"/", path) => [b"/", path].concat(),
        (root, path) => join(root, path),
    };
    path.into()
}

fn item<'a>(path: Vec<u8>, status: &FileStatus, kind: Kind<'a>) -> Item<'a> {
    Item { path, mode: status.mode, modified_ns: status.modified_ns, owner: (status.uid, status.gid), kind }
}
