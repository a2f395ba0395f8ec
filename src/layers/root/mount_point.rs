//! Mount points: where below `/` a mount goes, and who makes the directory or file that it covers.
//!
//! Nothing is ever created on the host. On file systems of our own (the synthetic root, scratch, tmpfs) the child creates
//! what is missing; in a root directory of the host, missing mount points come from a skeleton that is overlaid on it; and
//! inside a bind mount they must exist.

use std::collections::HashSet;
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::{Mode, SFlag, mkdirat, mknodat};

use crate::error::{Error, Result, Step};
use crate::sys::mount::{IN_ROOT, NO_MAGICLINKS, open_beneath};

/// What a mount point has to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// A directory.
    Directory,
    /// A regular file.
    File,
    /// Nothing: the entry itself is put there.
    Absent,
}

/// A mount point, prepared for the child. All paths are relative to the new root.
#[derive(Debug)]
pub struct MountPointPlan {
    /// Directories to create on the way, outermost first.
    pub directories: Vec<Entry>,
    /// The mount point.
    pub path: CString,
    /// The same, for creating it.
    pub entry: Entry,
    /// What to create there, if anything.
    pub create: Option<Shape>,
}

/// Something to create, by where and as what: the way there may lead through a symlink of somebody's, which has to be resolved
/// within the new root first.
#[derive(Debug, PartialEq, Eq)]
pub struct Entry {
    /// The directory; empty for the root itself.
    parent: CString,
    name: CString,
}

impl Entry {
    fn new(path: &Path) -> Result<Self> {
        let name = relative(Path::new(path.file_name().unwrap_or_default()))?;
        Ok(Self { parent: relative(path.parent().unwrap_or(path))?, name })
    }

    /// Child half: creates it, given its directory and its name there.
    pub fn create(
        &self,
        root: BorrowedFd<'_>,
        make: impl FnOnce(BorrowedFd<'_>, &CStr) -> std::result::Result<(), Errno>,
    ) -> std::result::Result<(), Errno> {
        if self.parent.is_empty() {
            return make(root, &self.name);
        }
        let parent = open_beneath(root, &self.parent, libc::O_PATH | libc::O_DIRECTORY, IN_ROOT | NO_MAGICLINKS)?;
        make(parent.as_fd(), &self.name)
    }
}

/// Whose the file system is that a mount point lies on.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum MountOwner {
    /// The sandbox's: nothing but our own entries is on it.
    Sandbox,
    /// The host's.
    Host,
}

impl MountPointPlan {
    /// Child half: creates what is to be created, on file systems of ours.
    pub fn create(&self, root: BorrowedFd<'_>) -> std::result::Result<(), Errno> {
        let directory =
            |parent: BorrowedFd<'_>, name: &CStr| make_directory(parent, name, Mode::from_bits_truncate(0o755));
        for entry in &self.directories {
            entry.create(root, directory)?;
        }
        let file = |parent: BorrowedFd<'_>, name: &CStr| {
            mknodat(parent, name, SFlag::S_IFREG, Mode::from_bits_truncate(0o444), 0)
        };
        match self.create {
            Some(Shape::Directory) => self.entry.create(root, directory),
            Some(Shape::File) => self.entry.create(root, file),
            Some(Shape::Absent) | None => Ok(()),
        }
    }
}

/// Creates a directory on a file system of ours; that it is there already is fine.
pub fn make_directory(dir: BorrowedFd<'_>, path: &CStr, mode: Mode) -> std::result::Result<(), Errno> {
    match mkdirat(dir, path, mode) {
        Ok(()) | Err(Errno::EEXIST) => Ok(()),
        Err(errno) => Err(errno),
    }
}

/// Plans mount points one after the other, in the order in which the mounts will be made.
pub struct MountPoints<'a> {
    rootfs: Option<&'a OwnedFd>,
    owners: Vec<(PathBuf, MountOwner)>,
    symlinks: HashSet<PathBuf>,
    made: HashSet<PathBuf>,
    /// Mount points that the host's root directory lacks: what the skeleton has to hold.
    pub skeleton: Vec<(CString, Shape)>,
}

impl<'a> MountPoints<'a> {
    /// Starts with a root of our own, or with this directory of the host.
    pub fn new(rootfs: Option<&'a OwnedFd>) -> Self {
        let owner = if rootfs.is_some() { MountOwner::Host } else { MountOwner::Sandbox };
        Self {
            rootfs,
            owners: vec![(PathBuf::from("/"), owner)],
            symlinks: HashSet::new(),
            made: HashSet::new(),
            skeleton: Vec::new(),
        }
    }

    /// Plans the mount point of `shape` at this absolute path; what will be mounted there is `owner`'s.
    pub fn add(&mut self, destination: &Path, shape: Shape, owner: MountOwner) -> Result<MountPointPlan> {
        let unfit = |reason: String| Error::new(Step::MountPoint, destination.display().to_string(), reason);
        if let Some(link) = destination.ancestors().skip(1).find(|path| self.symlinks.contains(*path)) {
            return Err(unfit(format!("lies below {}, which is a symlink in the sandbox", link.display())));
        }
        let (below, below_owner) = self.covering(destination);
        let entry = Entry::new(destination)?;
        let mut place = MountPointPlan { directories: Vec::new(), path: relative(destination)?, entry, create: None };
        if below_owner == MountOwner::Sandbox {
            let outermost_first: Vec<_> = destination.ancestors().skip(1).take_while(|path| *path != below).collect();
            for directory in outermost_first.into_iter().rev() {
                if self.made.insert(directory.to_owned()) {
                    place.directories.push(Entry::new(directory)?);
                }
            }
            if self.made.insert(destination.to_owned()) {
                place.create = Some(shape);
            }
        } else if shape == Shape::Absent {
            return Err(unfit("generated entries need a synthetic root".into()));
        } else if let (Some(rootfs), true) = (self.rootfs, below == Path::new("/")) {
            self.complete(rootfs, destination, shape)?;
        }
        if shape == Shape::Absent && owner == MountOwner::Host {
            self.symlinks.insert(destination.to_owned());
        }
        self.owners.push((destination.to_owned(), owner));
        Ok(place)
    }

    /// The innermost mount so far that the path lies on.
    fn covering(&self, destination: &Path) -> (PathBuf, MountOwner) {
        let parent = destination.parent().unwrap_or(destination);
        let (below, owner) = self
            .owners
            .iter()
            .filter(|(mounted, _)| parent.starts_with(mounted))
            .max_by_key(|(mounted, _)| mounted.as_os_str().len())
            .expect("the root covers every path");
        (below.clone(), *owner)
    }

    /// Notes what the host's root directory lacks of this mount point.
    fn complete(&mut self, rootfs: &OwnedFd, destination: &Path, shape: Shape) -> Result<()> {
        let failed = |errno| Error::errno(Step::MountPoint, destination.display().to_string(), errno);
        let path = relative(destination)?;
        match open_beneath(rootfs, &path, libc::O_PATH, IN_ROOT | NO_MAGICLINKS) {
            Ok(_) => return Ok(()),
            Err(Errno::ENOENT) => {}
            Err(Errno::EACCES) => {
                return Err(failed(Errno::EACCES).hint("--rootfs takes a directory that you can enter"));
            }
            Err(errno) => return Err(failed(errno)),
        }
        // A skeleton directory merges with a directory, but would replace a symlink: then say so instead.
        let outermost_first: Vec<_> =
            destination.ancestors().skip(1).take_while(|path| *path != Path::new("/")).collect();
        for directory in outermost_first.into_iter().rev() {
            let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
            match openat(rootfs.as_fd(), relative(directory)?.as_c_str(), flags, Mode::empty()) {
                Ok(_) | Err(Errno::ENOENT) => {}
                Err(Errno::ENOTDIR | Errno::ELOOP) => {
                    return Err(failed(Errno::ENOENT).hint(format!(
                        "{} is not a directory in the root; create the mount point there",
                        directory.display()
                    )));
                }
                Err(errno) => return Err(failed(errno)),
            }
            if self.made.insert(directory.to_owned()) {
                self.skeleton.push((relative(directory)?, Shape::Directory));
            }
        }
        if self.made.insert(destination.to_owned()) {
            self.skeleton.push((path, shape));
        }
        Ok(())
    }
}

/// The path without its leading slash, as the child hands it to the kernel.
pub fn relative(path: &Path) -> Result<CString> {
    let bytes = path.as_os_str().as_bytes();
    let start = bytes.iter().position(|byte| *byte != b'/').unwrap_or(bytes.len());
    CString::new(&bytes[start..])
        .map_err(|_| Error::new(Step::MountPoint, path.display().to_string(), "contains a NUL byte"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_created_once_and_only_on_file_systems_of_ours() {
        let mut places = MountPoints::new(None);
        let etc = places.add(Path::new("/etc/ssl/certs"), Shape::Directory, MountOwner::Host).unwrap();
        assert_eq!(etc.directories, ["/etc", "/etc/ssl"].map(|path| Entry::new(Path::new(path)).unwrap()));
        assert_eq!(etc.create, Some(Shape::Directory));
        let hosts = places.add(Path::new("/etc/hosts"), Shape::Absent, MountOwner::Sandbox).unwrap();
        assert!(hosts.directories.is_empty());
        let inner = places.add(Path::new("/etc/ssl/certs/x"), Shape::Directory, MountOwner::Sandbox).unwrap();
        assert_eq!(inner.create, None, "inside a bind of the host nothing is created");
        let deeper = places.add(Path::new("/etc/ssl/certs/x/y"), Shape::Directory, MountOwner::Sandbox).unwrap();
        assert_eq!(deeper.create, Some(Shape::Directory));
    }

    #[test]
    fn nothing_is_put_below_a_symlink() {
        let mut places = MountPoints::new(None);
        places.add(Path::new("/bin"), Shape::Absent, MountOwner::Host).unwrap();
        let error = places.add(Path::new("/bin/tool"), Shape::File, MountOwner::Host).unwrap_err();
        assert!(error.to_string().contains("/bin, which is a symlink"), "{error}");
    }
}
