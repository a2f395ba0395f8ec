//! `stockade cp`: files and trees between the host and a session, and archives.
//!
//! A tree is read by one of [`download`], [`host::walk`] and [`archive::unpack`], and made by one of [`upload`], [`host`] and
//! [`archive`], item by item. Where what lands follows docker cp.

mod archive;
mod content;
mod download;
mod host;
mod item;
mod pipeline;
mod upload;

use std::cell::Cell;
use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::OFlag;

use self::archive::ArchiveSink;
use self::download::Download;
use self::host::{HostSink, Target};
use self::item::{Sink, join};
use self::pipeline::{ask, is};
use self::upload::Upload;
use super::warn;
use crate::args::Args;
use crate::error::{Error, Result, Step};
use crate::plan::Bytes;
use crate::session::client::Client;
use crate::session::protocol::files::{FileOperation, FileStatus, FileType};
use crate::sys::file;
use crate::sys::walk::{Place, to_file, to_place};

/// A copy, and what went on in it.
pub struct Copying {
    /// The session.
    pub session: String,
    /// How many files changed while they were copied.
    changed: Cell<usize>,
}

impl Copying {
    /// A file became shorter after its size was looked at.
    fn check_length(&self, path: &Bytes, copied: u64, size: u64) {
        if copied < size {
            self.changed.set(self.changed.get() + 1);
            warn(&format!("{path} changed while it was copied"));
        }
    }

    /// A file that is not copied.
    fn leave_out(&self, path: &str, kind: FileType) {
        warn(&format!("{path} is {} and was left out", kind.words()));
    }
}

/// One side of a copy.
enum Side {
    Session(String, Vec<u8>),
    Host(Vec<u8>),
    /// `-`
    Stream,
}

impl Side {
    /// As docker reads it: `NAME:PATH`, unless it begins with a slash or a dot.
    fn of(word: &OsStr) -> Self {
        let bytes = word.as_bytes();
        match bytes.iter().position(|byte| *byte == b':') {
            _ if bytes == b"-" => Self::Stream,
            Some(at) if at > 0 && !matches!(bytes[0], b'/' | b'.') && !bytes[..at].contains(&b'/') => {
                let path = &bytes[at + 1..];
                let path = if path.starts_with(b"/") { path.to_vec() } else { [b"/", path].concat() };
                Self::Session(String::from_utf8_lossy(&bytes[..at]).into_owned(), path)
            }
            _ => Self::Host(bytes.to_vec()),
        }
    }
}

/// Copies.
pub fn main(args: &Args) -> Result<u8> {
    let word = |at: usize| args.words.get(at).map_or(Side::Host(Vec::new()), |word| Side::of(word));
    let follow = args.is_on("follow-link");
    let copying = |session: &str| Copying { session: session.to_owned(), changed: Cell::new(0) };
    let copied = match (word(0), word(1)) {
        (Side::Session(name, from), Side::Host(to)) => {
            let copying = copying(&name);
            out(&copying, &from, &to, follow).map(|()| copying)
        }
        (Side::Session(name, from), Side::Stream) => {
            let copying = copying(&name);
            to_stream(&copying, &from, follow).map(|()| copying)
        }
        (Side::Host(from), Side::Session(name, to)) => {
            let copying = copying(&name);
            into(&copying, &from, &to, follow).map(|()| copying)
        }
        (Side::Stream, Side::Session(name, to)) => {
            let copying = copying(&name);
            from_stream(&copying, &to).map(|()| copying)
        }
        _ => {
            let reason = "one of the two must be SESSION:PATH, and the other one a path or -";
            Err(Error::new(Step::Usage, "SRC and DST", reason))
        }
    };
    Ok(u8::from(copied?.changed.get() > 0))
}

/// A path as docker cp reads it.
struct Named<'a> {
    /// Without slashes at the end, and without `/.`
    path: &'a [u8],
    /// Whether it ends with `/.`: the content of a directory, not the directory.
    is_content: bool,
    /// Whether it ends with a slash or `/.`: it must be a directory.
    is_directory: bool,
}

impl<'a> Named<'a> {
    fn of(path: &'a [u8]) -> Self {
        let is_content = path.ends_with(b"/.") || matches!(path, b"." | b"/");
        let mut rest = if path.ends_with(b"/.") { &path[..path.len() - 1] } else { path };
        let is_directory = is_content || rest.ends_with(b"/");
        while rest.len() > 1 && rest.ends_with(b"/") {
            rest = &rest[..rest.len() - 1];
        }
        Self { path: rest, is_content, is_directory }
    }

    /// The last name, which a copy gets in a directory. `None` for a path that ends with none.
    fn name(&self) -> Option<&'a [u8]> {
        let name = self.path.rsplit(|byte| *byte == b'/').next()?;
        (!matches!(name, b"" | b"." | b"..")).then_some(name)
    }

    fn error(&self, errno: Errno) -> Error {
        Error::errno(Step::Copy, host::text(&self.path.to_vec().into()), errno)
    }
}

/// What is at a path of the session. `None` if there is nothing.
fn found(client: &mut Client, path: &[u8], follow: bool) -> Result<Option<FileStatus>> {
    let stat = FileOperation::Stat { path: path.to_vec().into(), no_follow: !follow };
    match ask(client, stat) {
        Err(error) if is(&error, Errno::ENOENT) => Ok(None),
        answer => Ok(answer?.0.file),
    }
}

/// A tree of the session, to be read.
fn source(client: &mut Client, from: &Named<'_>, follow: bool) -> Result<FileStatus> {
    let status = found(client, from.path, follow || from.is_directory)?;
    let status = status.ok_or_else(|| from.error(Errno::ENOENT))?;
    match status.r#type {
        FileType::Directory => Ok(status),
        _ if from.is_directory => Err(from.error(Errno::ENOTDIR)),
        _ => Ok(status),
    }
}

fn out(copying: &Copying, from: &[u8], to: &[u8], follow: bool) -> Result<()> {
    let mut client = Client::connect(&copying.session)?;
    let (from, to) = (Named::of(from), Named::of(to));
    let status = source(&mut client, &from, follow)?;
    let target = target(&to, &from, status.r#type == FileType::Directory)?;
    let mut sink = HostSink::new(copying, target);
    pass(Download::new(client, from.path, follow, status), &mut sink)
}

fn to_stream(copying: &Copying, from: &[u8], follow: bool) -> Result<()> {
    let mut client = Client::connect(&copying.session)?;
    let from = Named::of(from);
    let status = source(&mut client, &from, follow)?;
    let name = from.name().filter(|_| !from.is_content).unwrap_or(b".");
    let mut sink = ArchiveSink::new(copying, std::io::stdout().lock(), name);
    pass(Download::new(client, from.path, follow, status), &mut sink)
}

fn pass(mut from: Download, sink: &mut dyn Sink) -> Result<()> {
    while let Some(item) = from.next()? {
        sink.take(item)?;
    }
    sink.finish()
}

/// Where on the host a tree is made.
fn target(to: &Named<'_>, from: &Named<'_>, is_directory: bool) -> Result<Target> {
    let path = Path::new(OsStr::from_bytes(to.path));
    let failed = |errno| to.error(errno);
    let name = |name: &[u8]| CString::new(name).map_err(|_| failed(Errno::EINVAL));
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY;
    match open_by_path(path, flags) {
        Ok(directory) if is_directory && from.is_content => {
            let root = Some(
                directory
                    .try_clone()
                    .map_err(|error| Error::io(Step::Copy, host::text(&to.path.to_vec().into()), &error))?,
            );
            Ok(Target { directory, name: name(to.path)?, root })
        }
        Ok(directory) => match from.name() {
            Some(last) => Ok(Target { directory, name: name(last)?, root: None }),
            None => Err(from.error(Errno::EINVAL)),
        },
        Err(Errno::ENOTDIR) if is_directory || to.is_directory => Err(failed(Errno::ENOTDIR)),
        Err(Errno::ENOENT) if to.is_directory && !is_directory => Err(failed(Errno::ENOENT)),
        Err(Errno::ENOENT | Errno::ENOTDIR) => {
            let Place { directory, name: last, .. } = to_place(path).map_err(failed)?;
            Ok(Target { directory, name: name(last.as_bytes())?, root: None })
        }
        Err(errno) => Err(failed(errno)),
    }
}

/// Opens a file of the host. A link that another user could have made is not followed.
fn open_by_path(path: &Path, flags: OFlag) -> nix::Result<std::os::fd::OwnedFd> {
    if path.file_name().is_none() {
        return file::open(path, flags); // `/`, `.` or a path that ends with `..`
    }
    let place = to_file(path)?;
    nix::fcntl::openat(
        &place.directory,
        place.name.as_os_str(),
        flags | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW,
        nix::sys::stat::Mode::empty(),
    )
}

fn into(copying: &Copying, from: &[u8], to: &[u8], follow: bool) -> Result<()> {
    let (from, to) = (Named::of(from), Named::of(to));
    let path = Path::new(OsStr::from_bytes(from.path));
    let failed = |errno| from.error(errno);
    let (directory, name) = match path.file_name() {
        Some(_) => {
            let place = if follow || from.is_directory { to_file(path) } else { to_place(path) }.map_err(failed)?;
            (place.directory, place.name)
        }
        None => (file::open(path, OFlag::O_RDONLY | OFlag::O_DIRECTORY).map_err(failed)?, ".".into()),
    };
    let found_here = nix::sys::stat::fstatat(&directory, name.as_os_str(), nix::fcntl::AtFlags::AT_SYMLINK_NOFOLLOW);
    let is_directory = FileType::of(found_here.map_err(failed)?.st_mode) == FileType::Directory;
    if from.is_directory && !is_directory {
        return Err(failed(Errno::ENOTDIR));
    }
    let mut client = Client::connect(&copying.session)?;
    let there = found(&mut client, to.path, true)?.map(|status| status.r#type);
    let (root, keeps_root) = match there {
        Some(FileType::Directory) if is_directory && from.is_content => (to.path.to_vec(), true),
        Some(FileType::Directory) => {
            let name = from.name().map(<[u8]>::to_vec).unwrap_or_else(|| own_name(path));
            let root = if to.path == b"/" { [b"/", name.as_slice()].concat() } else { join(to.path, &name) };
            let there = found(&mut client, &root, false)?.map(|status| status.r#type);
            match there {
                Some(FileType::Directory) if is_directory => (root, true),
                Some(_) if is_directory => return Err(Named::of(&root).error(Errno::ENOTDIR)),
                _ => (root, false),
            }
        }
        Some(_) if is_directory || to.is_directory => return Err(to.error(Errno::ENOTDIR)),
        None if to.is_directory && !is_directory => return Err(to.error(Errno::ENOENT)),
        _ => (to.path.to_vec(), false),
    };
    let mut sink = Upload::new(copying, client, &root, keeps_root)?;
    let name = CString::new(name.as_bytes()).map_err(|_| failed(Errno::EINVAL))?;
    host::walk(&directory, &name, false, &mut sink)?;
    sink.finish()
}

/// The name of a directory that was given as `.` or `..`.
fn own_name(path: &Path) -> Vec<u8> {
    let path = std::fs::canonicalize(path).unwrap_or_default();
    path.file_name().map(|name| name.as_bytes().to_vec()).unwrap_or_default()
}

fn from_stream(copying: &Copying, to: &[u8]) -> Result<()> {
    let mut client = Client::connect(&copying.session)?;
    let to = Named::of(to);
    match found(&mut client, to.path, true)?.map(|status| status.r#type) {
        Some(FileType::Directory) => {}
        Some(_) => return Err(to.error(Errno::ENOTDIR)),
        None => return Err(to.error(Errno::ENOENT)),
    }
    let mut sink = Upload::new(copying, client, to.path, true)?.with_parents();
    archive::unpack(copying, std::io::BufReader::with_capacity(256 << 10, std::io::stdin().lock()), &mut sink)?;
    sink.finish()
}
