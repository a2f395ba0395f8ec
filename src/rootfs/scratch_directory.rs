//! The scratch space of a run without a mount namespace: a directory of the host, which is removed after the run.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, Flock, FlockArg, OFlag, openat, renameat};
use nix::sys::stat::{FchmodatFlags, Mode, fchmodat, fstat, mkdirat};
use nix::unistd::{Gid, Uid, UnlinkatFlags, fchown, geteuid, mkdtemp, unlinkat};

use super::source::text;
use crate::error::{Error, Result, Step};
use crate::sys::file::open;

const DIRECTORY: OFlag = OFlag::O_RDONLY.union(OFlag::O_DIRECTORY).union(OFlag::O_NOFOLLOW).union(OFlag::O_CLOEXEC);
const ALL: Mode = Mode::S_IRWXU;

/// A directory that no Landlock rule allows, with those in it that are the workload's. It is removed when this is dropped.
#[derive(Debug)]
pub struct ScratchDirectory {
    path: PathBuf,
    /// Locked as long as a process of the run has it open.
    directory: Flock<OwnedFd>,
}

const PREFIX: &str = "stockade-scratch-";

/// Directories in which it can be, in this order, after that of `TMPDIR`.
const PLACES: [&str; 3] = ["/tmp", "/var/tmp", "/dev/shm"];

impl ScratchDirectory {
    /// Creates it where no tree that the workload is shown contains it.
    pub fn new(is_shown: impl Fn(&Path) -> bool) -> Result<Self> {
        let mut last = Error::new(Step::Scratch, "scratch directory", "every place for it is shown to the workload");
        for place in places() {
            if is_shown(&place) {
                continue;
            }
            match Self::at(&place) {
                Ok(made) => return Ok(made),
                Err(errno) => {
                    last = Error::errno(Step::Scratch, format!("scratch directory in {}", place.display()), errno)
                }
            }
        }
        Err(last.hint("TMPDIR names a directory for it"))
    }

    fn at(place: &Path) -> std::result::Result<Self, Errno> {
        let path = mkdtemp(&place.join(format!("{PREFIX}XXXXXX")))?;
        let directory = lock(open(&path, DIRECTORY)?)?;
        Ok(Self { path, directory })
    }

    /// Those that killed supervisors of this user have left, where this process would create its own. None of their processes
    /// is alive. Root's workloads have ids of their own, which own theirs.
    pub fn left(is_workloads: impl Fn(u32) -> bool) -> Vec<Self> {
        let entries = places().flat_map(|place| std::fs::read_dir(place).into_iter().flatten().flatten());
        let named = entries.filter(|entry| entry.file_name().as_bytes().starts_with(PREFIX.as_bytes()));
        let left = named.filter_map(|entry| {
            let directory = open(&entry.path(), DIRECTORY).ok()?;
            let own = geteuid();
            let owner = fstat(&directory).ok()?.st_uid;
            let ours = owner == own.as_raw() || own.is_root() && is_workloads(owner);
            let directory = lock(directory).ok().filter(|_| ours)?;
            Some(Self { path: entry.path(), directory })
        });
        left.collect()
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its descriptor.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }

    /// Creates a directory of the workload in it.
    pub fn make(&self, name: &str) -> Result<OwnedFd> {
        let failed = |errno| Error::errno(Step::Scratch, self.path.join(name).display().to_string(), errno);
        mkdirat(self.fd(), name, ALL).map_err(failed)?;
        openat(self.fd(), name, DIRECTORY, Mode::empty()).map_err(failed)
    }

    /// Gives it, and these directories in it, to the workload.
    pub fn give_to<'a>(&'a self, made: impl Iterator<Item = BorrowedFd<'a>>, uid: u32, gid: u32) -> Result<()> {
        let failed = |errno| Error::errno(Step::Scratch, self.path.display().to_string(), errno);
        made.chain([self.fd()])
            .try_for_each(|directory| fchown(directory, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid))))
            .map_err(failed)
    }

    /// Removes it. No process of the workload may be left.
    pub fn remove(&self) -> Result<()> {
        let failed = |errno| Error::errno(Step::Scratch, self.path.display().to_string(), errno);
        let mut number = 0;
        while flatten(self.fd(), &mut number).map_err(failed)? {}
        match std::fs::remove_dir(&self.path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(Error::io(Step::Scratch, self.path.display().to_string(), &error))
            }
            _ => Ok(()),
        }
    }
}

impl Drop for ScratchDirectory {
    fn drop(&mut self) {
        let _ = self.remove(); // an earlier call has reported why it cannot
    }
}

fn places() -> impl Iterator<Item = PathBuf> {
    let asked = std::env::var_os("TMPDIR").map(PathBuf::from).filter(|path| path.is_absolute());
    asked.into_iter().chain(PLACES.map(PathBuf::from)).filter_map(|place| place.canonicalize().ok())
}

fn lock(directory: OwnedFd) -> std::result::Result<Flock<OwnedFd>, Errno> {
    Flock::lock(directory, FlockArg::LockExclusiveNonblock).map_err(|(_, errno)| errno)
}

/// Removes the files of every directory in `top`, and moves the directories in those to `top`. So the depth of what a workload
/// left does not matter. Returns whether there was any.
fn flatten(top: BorrowedFd<'_>, number: &mut u64) -> std::result::Result<bool, Errno> {
    let names = names(top)?;
    for name in &names {
        if remove_file(top, name)? {
            continue;
        }
        allow_all(top, name)?;
        let directory = openat(top, name.as_c_str(), DIRECTORY, Mode::empty())?;
        for name in self::names(directory.as_fd())? {
            if remove_file(directory.as_fd(), &name)? {
                continue;
            }
            allow_all(directory.as_fd(), &name)?; // moving a directory changes its `..`
            loop {
                *number += 1;
                let to = text(Path::new(&number.to_string()))?;
                match renameat(&directory, name.as_c_str(), top, to.as_c_str()) {
                    Err(Errno::EEXIST | Errno::ENOTEMPTY | Errno::ENOTDIR) => {} // another entry of that name
                    moved => break moved?,
                }
            }
        }
        unlinkat(top, name.as_c_str(), UnlinkatFlags::RemoveDir)?;
    }
    Ok(!names.is_empty())
}

/// Lets the owner list and change this directory, which is not followed if it is a link.
fn allow_all(parent: BorrowedFd<'_>, name: &CStr) -> std::result::Result<(), Errno> {
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let found = openat(parent, name, flags, Mode::empty())?;
    let itself = format!("/proc/self/fd/{}", found.as_raw_fd());
    fchmodat(AT_FDCWD, itself.as_str(), ALL, FchmodatFlags::FollowSymlink)
}

/// Whether the entry was not a directory, and is removed.
fn remove_file(directory: BorrowedFd<'_>, name: &CStr) -> std::result::Result<bool, Errno> {
    match unlinkat(directory, name, UnlinkatFlags::NoRemoveDir) {
        Ok(()) => Ok(true),
        Err(Errno::EISDIR | Errno::EPERM) => Ok(false),
        Err(errno) => Err(errno),
    }
}

fn names(directory: BorrowedFd<'_>) -> std::result::Result<Vec<CString>, Errno> {
    let mut listing = Dir::from_fd(openat(directory, c".", DIRECTORY, Mode::empty())?)?;
    let names = listing.iter().map(|entry| Ok(entry?.file_name().to_owned()));
    let others = |name: &std::result::Result<CString, Errno>| {
        !matches!(name.as_ref().map(|name| name.to_bytes()), Ok(b"." | b".."))
    };
    names.filter(others).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_is_left_in_it_is_removed() {
        let scratch = ScratchDirectory::new(|_| false).unwrap();
        let path = scratch.path().to_owned();
        let mut below = scratch.make("tmp").unwrap();
        std::os::unix::fs::symlink("/", path.join("tmp/link")).unwrap();
        std::fs::write(path.join("1"), "x").unwrap(); // a name that is used for moving
        for depth in 0..3000 {
            mkdirat(&below, "d", ALL).unwrap();
            let next = openat(&below, "d", DIRECTORY, Mode::empty()).unwrap();
            if depth % 2 == 0 {
                fchmodat(&below, "d", Mode::empty(), FchmodatFlags::FollowSymlink).unwrap();
            }
            below = next;
        }
        drop(below);
        scratch.remove().unwrap();
        assert!(!path.exists());
        scratch.remove().unwrap();
    }

    #[test]
    fn it_is_not_where_the_workload_sees() {
        let scratch = ScratchDirectory::new(|path| path.starts_with("/tmp")).unwrap();
        assert!(!scratch.path().starts_with("/tmp"), "{scratch:?}");
        assert!(ScratchDirectory::new(|_| true).unwrap_err().hint.unwrap().contains("TMPDIR"));
    }
}
