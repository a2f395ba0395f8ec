//! Sources on the host. Each path is resolved once, by descriptor. No link is followed that another user could have placed.
//!
//! A directory is *trusted* if root or the caller owns it, no other user can write it, and all directories above it are
//! trusted. In a trusted directory, links, `..` and mounts are followed. A *shared* directory is writable by others but
//! otherwise trusted, and has the sticky bit, as `/tmp`. In it no link is followed. The caller's own subdirectory of it is
//! trusted again, because others cannot replace it. Below any other directory the rest of the path is opened with one
//! `openat2(2)` that follows no link, accepts no `..` and crosses no mount. The kernel's magic links (`/proc/self/fd/N`) are
//! never followed.
//!
//! A directory that is bound writable is not trusted either. The writable directories are known only after all sources are
//! resolved. Until then each link, `..` and mount on a path is recorded, and [`Resolver::check`] compares the directories above
//! them with the writable ones, by mount and inode.

mod alias;
mod trust;
mod walk;
mod way;

use std::collections::HashSet;
use std::ffi::{CString, OsStr, OsString};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, readlinkat};
use nix::sys::stat::{FileStat, SFlag, fstat};

use self::alias::{Location, Mounts};
use self::trust::{Trust, Why};
use self::walk::Walk;
use self::way::{Way, loops};
use crate::error::{Error, Result, Step};
use crate::sys::mount::{self, BENEATH, NO_MAGICLINKS, NO_SYMLINKS, NO_XDEV};

/// Flags for opening the rest of a path below an untrusted directory.
const PLAIN: u64 = NO_SYMLINKS | NO_MAGICLINKS | BENEATH | NO_XDEV;

/// Resolves the sources of one run.
#[derive(Debug)]
pub struct Resolver {
    /// Whether links are followed everywhere.
    follow: bool,
    trust: Trust,
    ways: Vec<Way>,
    writable: Vec<Location>,
    /// The names in `/etc`, once they were needed.
    etc: Option<HashSet<OsString>>,
}

/// How a path that ends at a link is resolved.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Last {
    /// To the link's target.
    Followed,
    /// To the link itself.
    Itself,
}

/// A resolved file.
#[derive(Debug)]
pub struct Found {
    /// The file (`O_PATH`).
    pub file: OwnedFd,
    /// Its status.
    pub stat: FileStat,
    /// How to open it again.
    pub again: Again,
}

/// How a process in another mount namespace opens the same file: by a path without links.
#[derive(Debug)]
pub struct Again {
    path: CString,
    resolve: u64,
    /// The part of the path below a directory that is not trusted.
    rest: Option<CString>,
}

/// Why a path was not resolved.
#[derive(Debug)]
pub enum Fault {
    /// The kernel's error.
    Errno(Errno),
    /// The path is refused.
    Refused(Error),
}

impl From<Errno> for Fault {
    fn from(errno: Errno) -> Self {
        Self::Errno(errno)
    }
}

impl Fault {
    /// Converts it to an error of this step.
    pub fn error(self, step: Step, object: impl Into<String>) -> Error {
        match self {
            Self::Errno(errno) => Error::errno(step, object, errno),
            Self::Refused(error) => error,
        }
    }

    /// Whether nothing exists at that path.
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::Errno(Errno::ENOENT | Errno::ENOTDIR))
    }
}

impl Resolver {
    /// For the sources of one run of this process. With `follow`, which the caller requests, links are followed everywhere.
    pub fn new(follow: bool) -> Self {
        Self { follow, trust: Trust::of_caller(), ways: Vec::new(), writable: Vec::new(), etc: None }
    }

    /// Resolves an absolute path. `destination` is its place in the sandbox.
    pub fn resolve(&mut self, path: &Path, destination: &Path, last: Last) -> std::result::Result<Found, Fault> {
        let text = c_string(path.as_os_str().as_bytes())?;
        let no_follow = if last == Last::Itself { libc::O_NOFOLLOW } else { 0 };
        // Without links, `..` and mounts, the path cannot lead out of a directory that another user writes.
        let straight = match (self.follow, components(path.as_os_str().as_bytes()).any(|name| name == b"..")) {
            (true, _) => Some(NO_MAGICLINKS),
            (false, false) => Some(NO_SYMLINKS | NO_MAGICLINKS | NO_XDEV),
            (false, true) => None,
        };
        if let Some(resolve) = straight {
            match mount::open_beneath(AT_FDCWD, &text, libc::O_PATH | no_follow, resolve) {
                Ok(file) => return Found::new(file, Again { path: text, resolve, rest: None }),
                Err(Errno::ELOOP | Errno::EXDEV) if !self.follow => {}
                Err(Errno::ELOOP) => return Err(Fault::Refused(loops(path))),
                Err(errno) => return Err(errno.into()),
            }
        }
        let (found, way) = Walk::new(&self.trust, path, destination).run(last)?;
        if !way.redirections.is_empty() {
            self.ways.push(way);
        }
        Ok(found)
    }

    /// Whether `/etc` lacks this path. Most of the names that a view asks for do not exist, and one listing costs less than a
    /// lookup of each.
    pub fn is_missing_in_etc(&mut self, path: &Path) -> bool {
        let first = path.strip_prefix("/etc").ok().and_then(|rest| rest.components().next());
        let Some(name) = first else { return false };
        let list = || std::fs::read_dir("/etc").and_then(|names| names.map(|name| Ok(name?.file_name())).collect());
        let names: &HashSet<OsString> = self.etc.get_or_insert_with(|| list().unwrap_or_default());
        !names.is_empty() && !names.contains(name.as_os_str())
    }

    /// Resolves a device node, whose number the caller then compares with a known one. A mount on the path cannot change that
    /// number, and `/dev` is nearly always a mount.
    pub fn resolve_known(&mut self, path: &Path) -> std::result::Result<Found, Fault> {
        let (text, resolve) = (c_string(path.as_os_str().as_bytes())?, NO_SYMLINKS | NO_MAGICLINKS);
        match mount::open_beneath(AT_FDCWD, &text, libc::O_PATH, resolve) {
            Ok(file) => Found::new(file, Again { path: text, resolve, rest: None }),
            Err(Errno::ELOOP) => self.resolve(path, path, Last::Followed),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Records that the workload can write this source and everything below it.
    pub fn is_writable(&mut self, source: &Found) -> std::result::Result<(), Errno> {
        self.writable.push(Location::of(&source.file, &source.stat, source.path())?);
        Ok(())
    }

    /// Refuses sources whose path contains a link, a `..` or a mount below a directory that the workload can write. Must be
    /// called after all sources are resolved.
    pub fn check(&self) -> Result<()> {
        let mounts = Mounts::default();
        let writable = |location: &&Location| self.writable.iter().any(|other| location.is_within(other, &mounts));
        for way in &self.ways {
            for (before, redirection) in &way.redirections {
                if let Some(directory) = way.visited[..*before].iter().find(writable) {
                    return Err(way.refuse(redirection, &directory.path, Why::Workload));
                }
            }
        }
        Ok(())
    }
}

impl Found {
    fn new(file: OwnedFd, again: Again) -> std::result::Result<Self, Fault> {
        let stat = fstat(&file)?;
        Ok(Self { file, stat, again })
    }

    /// The target of the resolved file, if that is a link.
    pub fn link_target(&self) -> Option<std::result::Result<OsString, Errno>> {
        (kind(&self.stat) == SFlag::S_IFLNK).then(|| readlinkat(&self.file, c""))
    }

    /// Its path without links.
    pub fn path(&self) -> PathBuf {
        if self.again.resolve & NO_SYMLINKS == 0 {
            let link = format!("/proc/self/fd/{}", self.file.as_raw_fd());
            return std::fs::read_link(link).unwrap_or_default();
        }
        let mut path = PathBuf::new();
        for bytes in [Some(&self.again.path), self.again.rest.as_ref()].into_iter().flatten() {
            path.push(Path::new(OsStr::from_bytes(bytes.as_bytes())).components().as_path());
        }
        path
    }
}

impl Again {
    /// A path with all its links.
    pub fn following(path: CString) -> Self {
        Self { path, resolve: 0, rest: None }
    }

    /// Opens the file (`O_PATH`). Used by the child too, so it does not allocate.
    pub fn open(&self) -> std::result::Result<OwnedFd, Errno> {
        let start = mount::open_beneath(AT_FDCWD, &self.path, libc::O_PATH, self.resolve)?;
        match &self.rest {
            None => Ok(start),
            Some(rest) => mount::open_beneath(start, rest, libc::O_PATH, PLAIN),
        }
    }
}

fn components(path: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> {
    path.split(|byte| *byte == b'/').filter(|name| !matches!(*name, b"" | b"."))
}

fn kind(stat: &FileStat) -> SFlag {
    SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT
}

fn c_string(bytes: &[u8]) -> std::result::Result<CString, Errno> {
    CString::new(bytes).map_err(|_| Errno::EINVAL)
}
