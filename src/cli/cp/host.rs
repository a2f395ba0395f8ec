//! Trees of the host. A tree is made below a directory that was opened, descriptor by descriptor: no link is followed, so that
//! neither what came from the sandbox nor a workload that can write there leads elsewhere.

use std::ffi::{CStr, CString, OsStr};
use std::fs::File;
use std::io::Write as _;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat, readlinkat};
use nix::sys::stat::{FileStat, Mode, UtimensatFlags, fchmod, fstat, fstatat, futimens, mkdirat, utimensat};
use nix::sys::time::TimeSpec;
use nix::unistd::{UnlinkatFlags, linkat, symlinkat, unlinkat};

use super::Copying;
use super::content::{copy, copy_file, copy_with_holes};
use super::item::{Content, Item, Kind, Linked, Sink, join};
use crate::error::{Error, Result, Step};
use crate::session::protocol::files::FileType;
use crate::sys::directory;
use crate::sys::mount::{BENEATH, NO_MAGICLINKS, NO_SYMLINKS, open_beneath};

const SAFELY: u64 = BENEATH | NO_SYMLINKS | NO_MAGICLINKS;

/// Where a tree is made: a name in an open directory, which may be that of a directory that exists.
pub struct Target {
    /// The directory.
    pub directory: OwnedFd,
    /// The name of the root in it.
    pub name: CString,
    /// The root, if it is a directory that exists. It keeps its attributes.
    pub root: Option<OwnedFd>,
}

/// The writer of a tree.
pub struct HostSink<'a> {
    copying: &'a Copying,
    target: Target,
    keeps_root: bool,
    /// The last directory in which something was made.
    recent: Option<(Vec<u8>, OwnedFd)>,
}

impl<'a> HostSink<'a> {
    /// At this place.
    pub fn new(copying: &'a Copying, target: Target) -> Self {
        Self { copying, keeps_root: target.root.is_some(), target, recent: None }
    }

    /// Does something with the place of an item: its directory, and its name there.
    fn at<T>(&mut self, path: &[u8], act: impl FnOnce(&OwnedFd, &CStr) -> nix::Result<T>) -> Result<T> {
        let failed = |errno| Error::errno(Step::Copy, shown(&self.target, path), errno);
        if path.is_empty() {
            return act(&self.target.directory, &self.target.name).map_err(failed);
        }
        let (parent, name) = match path.iter().rposition(|byte| *byte == b'/') {
            Some(at) => (&path[..at], &path[at + 1..]),
            None => (&[][..], path),
        };
        let name = CString::new(name).map_err(|_| failed(Errno::EINVAL))?;
        let root = self.target.root.as_ref().ok_or_else(|| failed(Errno::ENOTDIR))?;
        if parent.is_empty() {
            return act(root, &name).map_err(failed);
        }
        if self.recent.as_ref().is_none_or(|(recent, _)| recent != parent) {
            let opened = open_directory(root, parent, libc::O_PATH).map_err(failed)?;
            self.recent = Some((parent.to_vec(), opened));
        }
        match &self.recent {
            Some((_, parent)) => act(parent, &name).map_err(failed),
            None => Err(failed(Errno::ENOTDIR)),
        }
    }

    fn enter(&mut self, path: &[u8]) -> Result<()> {
        if path.is_empty() && self.keeps_root {
            return Ok(());
        }
        let opened = self.at(path, |parent, name| {
            match mkdirat(parent, name, Mode::S_IRWXU) {
                Err(Errno::EEXIST) => {}
                made => made?,
            }
            // What is there may be a link.
            open_beneath(parent, name, libc::O_PATH | libc::O_DIRECTORY | libc::O_NOFOLLOW, SAFELY)
        })?;
        if path.is_empty() {
            self.target.root = Some(opened);
        }
        Ok(())
    }

    fn leave(&mut self, path: &[u8], mode: u32, modified_ns: i64) -> Result<()> {
        if path.is_empty() && self.keeps_root {
            return Ok(());
        }
        self.at(path, |parent, name| {
            let directory = open_beneath(parent, name, libc::O_RDONLY | libc::O_DIRECTORY | libc::O_NOFOLLOW, SAFELY)?;
            fchmod(&directory, permissions(mode))?;
            futimens(directory.as_fd(), &time(modified_ns), &time(modified_ns))
        })
    }

    fn file(&mut self, path: &[u8], content: Content<'_>, mode: u32, modified_ns: i64) -> Result<()> {
        let made = self.at(path, |parent, name| {
            let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
            in_place(parent, name, || openat(parent, name, flags, Mode::S_IRUSR | Mode::S_IWUSR))
        })?;
        let mut made = File::from(made);
        let object = shown(&self.target, path);
        let failed = |error: &std::io::Error| Error::io(Step::Copy, &object, error);
        let (copied, size) = match content {
            Content::Open(mut from, size) => {
                (copy_file(&mut from, &mut made, size).map_err(|error| failed(&error))?, size)
            }
            Content::Stream(from, size) => (copy(from, &mut made, size).map_err(|error| failed(&error))?, size),
            Content::Sparse(from, size) => {
                (copy_with_holes(from, &mut made, size).map_err(|error| failed(&error))?, size)
            }
            Content::Bytes(bytes) => {
                made.write_all(&bytes).map_err(|error| failed(&error))?;
                (bytes.len() as u64, bytes.len() as u64)
            }
        };
        self.copying.check_length(&path.to_vec().into(), copied, size);
        let set = fchmod(&made, permissions(mode));
        let set = set.and_then(|()| futimens(made.as_fd(), &time(modified_ns), &time(modified_ns)));
        set.map_err(|errno| Error::errno(Step::Copy, object, errno))
    }

    /// Another name for a file that was made. What has that name by now is linked, whatever it is.
    fn hard_link(&mut self, path: &[u8], first: &[u8]) -> Result<()> {
        let (directory, of) = self.at(first, |parent, name| {
            let again = parent.try_clone().map_err(|error| crate::error::errno_of(&error))?;
            Ok((again, name.to_owned()))
        })?;
        self.at(path, |parent, name| {
            in_place(parent, name, || linkat(&directory, of.as_c_str(), parent, name, AtFlags::empty()))
        })
    }

    fn link(&mut self, path: &[u8], target: &[u8], modified_ns: i64) -> Result<()> {
        self.at(path, |parent, name| {
            in_place(parent, name, || symlinkat(OsStr::from_bytes(target), parent, name))?;
            let modified = time(modified_ns);
            utimensat(parent, name, &modified, &modified, UtimensatFlags::NoFollowSymlink)
        })
    }
}

impl Sink for HostSink<'_> {
    fn take(&mut self, item: Item<'_>) -> Result<()> {
        match item.kind {
            Kind::Enter => self.enter(&item.path),
            Kind::Leave => self.leave(&item.path, item.mode, item.modified_ns),
            Kind::File(content) => self.file(&item.path, content, item.mode, item.modified_ns),
            Kind::HardLink(first, content) => match (self.hard_link(&item.path, &first), content) {
                // Not every file system has them.
                (Err(_), Some(content)) => self.file(&item.path, content, item.mode, item.modified_ns),
                (linked, _) => linked,
            },
            Kind::Link(target) => self.link(&item.path, &target, item.modified_ns),
            Kind::Special(kind) => {
                self.copying.leave_out(&text(&item.path.into()), kind);
                Ok(())
            }
        }
    }

    fn finish(&mut self) -> Result<()> {
        Ok(())
    }
}

/// Makes a file. One that has the name is removed first, unless it is a directory: what it leads to is not written to.
fn in_place<T>(parent: &OwnedFd, name: &CStr, make: impl Fn() -> nix::Result<T>) -> nix::Result<T> {
    match make() {
        Err(Errno::EEXIST) => {
            unlinkat(parent, name, UnlinkatFlags::NoRemoveDir)?;
            make()
        }
        made => made,
    }
}

/// Never a set-user-id or set-group-id bit: on the host it would mean the caller's rights.
fn permissions(mode: u32) -> Mode {
    Mode::from_bits_truncate(mode & 0o1777)
}

fn open_directory(root: &OwnedFd, path: &[u8], flags: i32) -> nix::Result<OwnedFd> {
    let path = CString::new(path).map_err(|_| Errno::EINVAL)?;
    open_beneath(root, &path, flags | libc::O_DIRECTORY | libc::O_NOFOLLOW, SAFELY)
}

fn shown(target: &Target, path: &[u8]) -> String {
    let name = target.name.as_bytes();
    text(&if path.is_empty() { name.to_vec() } else { join(name, path) }.into())
}

/// A path for messages.
pub fn text(path: &crate::plan::Bytes) -> String {
    path.to_string()
}

/// A time since 1970.
pub fn time(ns: i64) -> TimeSpec {
    TimeSpec::new(ns.div_euclid(1_000_000_000), ns.rem_euclid(1_000_000_000) as _)
}

/// A directory on the way through a tree.
struct Level {
    path: Vec<u8>,
    directory: OwnedFd,
    stat: FileStat,
    names: Vec<CString>,
}

/// Gives the files of a tree to a sink: a name in an open directory, or what it points to.
pub fn walk(directory: &OwnedFd, name: &CStr, follow: bool, sink: &mut dyn Sink) -> Result<()> {
    let (mut levels, mut linked) = (Vec::<Level>::new(), Linked::default());
    visit(directory, name, follow, Vec::new(), &mut levels, &mut linked, sink)?;
    while let Some(level) = levels.last_mut() {
        match level.names.pop() {
            Some(name) => {
                let path = join(&level.path, name.to_bytes());
                let parent = level
                    .directory
                    .try_clone()
                    .map_err(|error| Error::io(Step::Copy, text(&path.clone().into()), &error))?;
                visit(&parent, &name, false, path, &mut levels, &mut linked, sink)?;
            }
            None => {
                let level = levels.pop();
                if let Some(level) = level {
                    sink.take(item(level.path, &level.stat, Kind::Leave))?;
                }
            }
        }
    }
    Ok(())
}

fn visit(
    parent: &OwnedFd,
    name: &CStr,
    follow: bool,
    path: Vec<u8>,
    levels: &mut Vec<Level>,
    linked: &mut Linked,
    sink: &mut dyn Sink,
) -> Result<()> {
    let object = if path.is_empty() { name.to_bytes().to_vec() } else { path.clone() };
    let failed = |errno| Error::errno(Step::Copy, text(&object.clone().into()), errno);
    let how = if follow { AtFlags::empty() } else { AtFlags::AT_SYMLINK_NOFOLLOW };
    let found = fstatat(parent, name, how).map_err(failed)?;
    let nofollow = if follow { OFlag::empty() } else { OFlag::O_NOFOLLOW };
    let open = |flags| {
        openat(parent, name, flags | nofollow | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK | OFlag::O_NOCTTY, Mode::empty())
    };
    match FileType::of(found.st_mode) {
        FileType::Directory => {
            let directory = open(OFlag::O_RDONLY | OFlag::O_DIRECTORY).map_err(failed)?;
            let stat = fstat(&directory).map_err(failed)?;
            let names = names(&directory).map_err(failed)?;
            sink.take(item(path.clone(), &stat, Kind::Enter))?;
            levels.push(Level { path, directory, stat, names });
            Ok(())
        }
        FileType::File => {
            let file = open(OFlag::O_RDONLY).map_err(failed)?;
            let stat = fstat(&file).map_err(failed)?;
            match FileType::of(stat.st_mode) {
                FileType::File => {
                    let content = Content::Open(File::from(file), stat.st_size as u64);
                    let kind = linked.kind(&stat, &path, content);
                    sink.take(item(path, &stat, kind))
                }
                other => sink.take(item(path, &stat, Kind::Special(other))), // replaced meanwhile
            }
        }
        FileType::Symlink => {
            let target = readlinkat(parent, name).map_err(failed)?;
            sink.take(item(path, &found, Kind::Link(target.as_bytes().to_vec())))
        }
        other => sink.take(item(path, &found, Kind::Special(other))),
    }
}

fn names(directory: &OwnedFd) -> nix::Result<Vec<CString>> {
    let (mut names, mut buffer) = (Vec::new(), vec![0; 32 << 10]);
    loop {
        let length = directory::read(directory, &mut buffer)?;
        if length == 0 {
            return Ok(names);
        }
        names.extend(directory::entries(&buffer[..length]).map(|entry| entry.name.to_owned()));
    }
}

fn item<'a>(path: Vec<u8>, stat: &FileStat, kind: Kind<'a>) -> Item<'a> {
    let modified_ns = stat.st_mtime.saturating_mul(1_000_000_000).saturating_add(stat.st_mtime_nsec);
    Item { path, mode: stat.st_mode & 0o7777, modified_ns, owner: (stat.st_uid, stat.st_gid), kind }
}
