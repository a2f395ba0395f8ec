//! Sources on the host: each path is resolved once, by descriptor, and nothing is followed that another user could have put there.
//!
//! A directory is *trusted* when root or the caller owns it and no other user can write it, and all directories above it are
//! trusted. In a trusted directory, links, `..` and mounts are followed. In a *shared* one (trusted but for being writable by
//! others, with the sticky bit, as `/tmp`) no link is followed; what is below an own subdirectory of it is trusted again,
//! because others cannot replace that. Below any other directory the rest of the path is opened with one `openat2(2)` that
//! follows no link, takes no `..` and crosses no mount. Links of the kernel's own (`/proc/self/fd/N`) are never followed.
//!
//! A directory that is bound writable is not trusted either. That is known when all sources are resolved: until then it is
//! noted where a path took a link, a `..` or a mount, and [`Resolver::check`] compares the directories on the way there, by
//! mount and inode, with the writable ones.

mod alias;
mod trust;
mod walk;
mod way;

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

/// How the rest of a path below an untrusted directory is opened.
const PLAIN: u64 = NO_SYMLINKS | NO_MAGICLINKS | BENEATH | NO_XDEV;

/// Resolves the sources of one run.
#[derive(Debug)]
pub struct Resolver {
    /// Whether links are followed wherever they are.
    follow: bool,
    trust: Trust,
    ways: Vec<Way>,
    writable: Vec<Location>,
}

/// Whether a path may end at a link.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Last {
    /// It ends where the link leads.
    Followed,
    /// It ends at the link.
    Itself,
}

/// A file that was found.
#[derive(Debug)]
pub struct Found {
    /// The file (`O_PATH`).
    pub file: OwnedFd,
    /// What it is.
    pub stat: FileStat,
    /// How to open it once more.
    pub again: Again,
}

/// How a process in another mount namespace opens the same file: by a path without links.
#[derive(Debug)]
pub struct Again {
    path: CString,
    resolve: u64,
    /// What of the path is below a directory that is not trusted.
    rest: Option<CString>,
}

/// Why a path leads nowhere.
#[derive(Debug)]
pub enum Fault {
    /// The kernel says so.
    Errno(Errno),
    /// It is not followed.
    Refused(Error),
}

impl From<Errno> for Fault {
    fn from(errno: Errno) -> Self {
        Self::Errno(errno)
    }
}

impl Fault {
    /// As the error of this step.
    pub fn error(self, step: Step, object: impl Into<String>) -> Error {
        match self {
            Self::Errno(errno) => Error::errno(step, object, errno),
            Self::Refused(error) => error,
        }
    }

    /// Whether there is nothing at that path.
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::Errno(Errno::ENOENT | Errno::ENOTDIR))
    }
}

impl Resolver {
    /// For the sources of one run of this process; `follow` is the word of the caller to follow links wherever they are.
    pub fn new(follow: bool) -> Self {
        Self { follow, trust: Trust::of_caller(), ways: Vec::new(), writable: Vec::new() }
    }

    /// Finds the file at an absolute path. `destination` is where it is to be inside.
    pub fn resolve(&mut self, path: &Path, destination: &Path, last: Last) -> std::result::Result<Found, Fault> {
        let text = c_string(path.as_os_str().as_bytes())?;
        let no_follow = if last == Last::Itself { libc::O_NOFOLLOW } else { 0 };
        // No link, no `..`, no mount: nothing on the way can lead out of a directory that another user writes.
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

    /// Finds a device node whose number is then compared with a known one: what is mounted on the way cannot change what it is, and
    /// `/dev` is nearly always a mount.
    pub fn resolve_known(&mut self, path: &Path) -> std::result::Result<Found, Fault> {
        let (text, resolve) = (c_string(path.as_os_str().as_bytes())?, NO_SYMLINKS | NO_MAGICLINKS);
        match mount::open_beneath(AT_FDCWD, &text, libc::O_PATH, resolve) {
            Ok(file) => Found::new(file, Again { path: text, resolve, rest: None }),
            Err(Errno::ELOOP) => self.resolve(path, path, Last::Followed),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Notes that the workload can write this source and what is below it.
    pub fn is_writable(&mut self, source: &Found) -> std::result::Result<(), Errno> {
        self.writable.push(Location::of(&source.file, &source.stat, source.path())?);
        Ok(())
    }

    /// Refuses sources whose way took a link, a `..` or a mount below what the workload of this run can write. To be called when
    /// all are resolved.
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

    /// The target of what was found, if that is a link.
    pub fn link_target(&self) -> Option<std::result::Result<OsString, Errno>> {
        (kind(&self.stat) == SFlag::S_IFLNK).then(|| readlinkat(&self.file, c""))
    }

    /// Where it is, without links.
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
    /// By this path, with all its links.
    pub fn following(path: CString) -> Self {
        Self { path, resolve: 0, rest: None }
    }

    /// Opens what is there now (`O_PATH`). The child's half too: it allocates nothing.
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
