//! Mount points: where a mount goes, and how the directory or file that it covers comes to exist.
//!
//! Nothing is ever created on the host. On the sandbox's own file systems (the synthetic root, scratch, tmpfs) the child
//! creates missing mount points. In a root directory of the host, missing mount points come from a skeleton that is overlaid on
//! it. Inside a bind mount they must exist.

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

/// The kind of a mount point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// A directory.
    Directory,
    /// A regular file.
    File,
    /// It must not exist: a generated entry is created there.
    Absent,
}

/// A mount point, prepared for the child. All paths are relative to the new root.
#[derive(Debug)]
pub struct MountPointPlan {
    /// Parent directories to create, outermost first.
    pub directories: Vec<Entry>,
    /// The mount point.
    pub path: CString,
    /// The mount point as an entry to create.
    pub entry: Entry,
    /// What to create as the mount point, if it does not exist.
    pub create: Option<Shape>,
}

/// An entry to create, as parent directory and name. The parent may be reached through a foreign symlink, so it is first
/// resolved within the new root.
#[derive(Debug, PartialEq, Eq)]
pub struct Entry {
    /// The parent directory; empty for the root.
    parent: CString,
    name: CString,
}

impl Entry {
    fn new(path: &Path) -> Result<Self> {
        let name = relative(Path::new(path.file_name().unwrap_or_default()))?;
        Ok(Self { parent: relative(path.parent().unwrap_or(path))?, name })
    }

    /// Child half: calls `make` with the parent directory and the name.
    pub fn create<'a>(
        &'a self,
        root: BorrowedFd<'_>,
        last: &mut LastParent<'a>,
        make: impl FnOnce(BorrowedFd<'_>, &CStr) -> std::result::Result<(), Errno>,
    ) -> std::result::Result<(), Errno> {
        if self.parent.is_empty() {
            return make(root, &self.name);
        }
        last.forget_unless(&self.parent);
        let (_, parent) = match &mut last.0 {
            Some(same) => same,
            none => {
                let (flags, resolve) = (libc::O_PATH | libc::O_DIRECTORY, IN_ROOT | NO_MAGICLINKS);
                none.insert((&self.parent, open_beneath(root, &self.parent, flags, resolve)?))
            }
        };
        make(parent.as_fd(), &self.name)
    }
}

/// The open directory of the last entry, for the next one: most entries lie in `/etc`. A mount elsewhere may cover it, so it is
/// kept only as long as entries and mount points lie in it.
#[derive(Debug, Default)]
pub struct LastParent<'a>(Option<(&'a CStr, OwnedFd)>);

impl LastParent<'_> {
    fn forget_unless(&mut self, parent: &CStr) {
        self.0.take_if(|(last, _)| *last != parent);
    }
}

/// The owner of the file system on which a mount point lies.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum MountOwner {
    /// The sandbox: only our own entries exist there.
    Sandbox,
    /// The host.
    Host,
}

impl MountPointPlan {
    /// Child half: creates the planned entries on the sandbox's own file systems.
    pub fn create<'a>(&'a self, root: BorrowedFd<'_>, last: &mut LastParent<'a>) -> std::result::Result<(), Errno> {
        let directory =
            |parent: BorrowedFd<'_>, name: &CStr| make_directory(parent, name, Mode::from_bits_truncate(0o755));
        for entry in &self.directories {
            entry.create(root, last, directory)?;
        }
        let file = |parent: BorrowedFd<'_>, name: &CStr| {
            mknodat(parent, name, SFlag::S_IFREG, Mode::from_bits_truncate(0o444), 0)
        };
        match self.create {
            Some(Shape::Directory) => self.entry.create(root, last, directory)?,
            Some(Shape::File) => self.entry.create(root, last, file)?,
            Some(Shape::Absent) | None => {}
        }
        last.forget_unless(&self.entry.parent);
        Ok(())
    }
}

/// Creates a directory on a file system of the sandbox. An existing one is fine.
pub fn make_directory(dir: BorrowedFd<'_>, path: &CStr, mode: Mode) -> std::result::Result<(), Errno> {
    match mkdirat(dir, path, mode) {
        Ok(()) | Err(Errno::EEXIST) => Ok(()),
        Err(errno) => Err(errno),
    }
}

/// Plans mount points in the order in which the mounts will be attached.
pub struct MountPoints<'a> {
    rootfs: Option<&'a OwnedFd>,
    owners: Vec<(PathBuf, MountOwner)>,
    symlinks: HashSet<PathBuf>,
    made: HashSet<PathBuf>,
    /// Mount points that the host's root directory lacks. The skeleton must contain them.
    pub skeleton: Vec<(CString, Shape)>,
}

impl<'a> MountPoints<'a> {
    /// Starts with a synthetic root, or with this directory of the host.
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

    /// Plans the mount point of `shape` at this absolute path. `owner` owns the file system that will be mounted there.
    pub fn add(&mut self, destination: &Path, shape: Shape, owner: MountOwner) -> Result<MountPointPlan> {
        let unfit = |reason: String| Error::new(Step::MountPoint, destination.display().to_string(), reason);
        if let Some(link) = destination.ancestors().skip(1).find(|path| self.symlinks.contains(*path)) {
            let reason = format!("lies below {}, which is a symlink in the sandbox", link.display());
            return Err(unfit(reason).hint("name the path that the symlink leads to"));
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

    /// The innermost planned mount that contains the path.
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

    /// Adds the parts of this mount point that the host's root directory lacks.
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
        // A skeleton directory merges with a directory but would hide a symlink. That is an error instead.
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

/// The path without leading slashes, as the child passes it to the kernel.
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
    fn missing_entries_are_created_once_and_only_on_own_file_systems() {
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
    fn no_mount_point_lies_below_a_symlink() {
        let mut places = MountPoints::new(None);
        places.add(Path::new("/bin"), Shape::Absent, MountOwner::Host).unwrap();
        let error = places.add(Path::new("/bin/tool"), Shape::File, MountOwner::Host).unwrap_err();
        assert!(error.to_string().contains("/bin, which is a symlink"), "{error}");
    }
}
