//! Host files that are bound into the sandbox: resolved once ([`super::host`]), identified, and cloned as detached mounts.
//!
//! With privilege the parent clones the mount of the descriptor that it resolved. Without, only the child can, in its own mount
//! namespace, where the parent's descriptor is of no use: it opens the path without links that was found, in the same manner,
//! and accepts nothing but the very file that the parent saw.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat};
use nix::sys::statfs::{PROC_SUPER_MAGIC, fstatfs};

use super::host::{Again, Found};
use crate::error::Step;
use crate::layers::{Applied, During};
use crate::sys::mount::{self, Attributes};

/// A host file or directory to bind.
#[derive(Debug)]
pub struct Source {
    path: CString,
    again: Again,
    stat: FileStat,
    recursive: bool,
    tree: Option<OwnedFd>,
}

impl Source {
    /// What was found at this path. With `privileged`, also clones the mount with everything below it.
    pub fn of(path: &Path, found: Found, privileged: bool) -> Result<Self, Errno> {
        let Found { file, stat, again } = found;
        let tree = privileged.then(|| mount::clone_tree(file.as_fd(), c"", true)).transpose()?;
        Ok(Self { path: text(path)?, again, stat, recursive: true, tree })
    }

    /// What is at this path of a container's configuration, wherever its links lead: the engine is trusted.
    pub fn following(path: &Path, privileged: bool, recursive: bool) -> Result<Self, Errno> {
        let path = text(path)?;
        let file = open(path.as_c_str(), OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty())?;
        let tree = privileged.then(|| mount::clone_tree(file.as_fd(), c"", recursive)).transpose()?;
        Ok(Self { again: Again::following(path.clone()), path, stat: fstat(&file)?, recursive, tree })
    }

    /// What `fstat(2)` said of it.
    pub fn stat(&self) -> &FileStat {
        &self.stat
    }

    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.is(SFlag::S_IFDIR)
    }

    /// Whether it is a character device.
    pub fn is_char_device(&self) -> bool {
        self.is(SFlag::S_IFCHR)
    }

    fn is(&self, kind: SFlag) -> bool {
        SFlag::from_bits_truncate(self.stat.st_mode) & SFlag::S_IFMT == kind
    }

    /// Whether it is on a procfs.
    pub fn is_proc(&self) -> bool {
        let found = self.tree.as_ref().map_or_else(|| self.find().and_then(fstatfs), fstatfs);
        found.is_ok_and(|found| found.filesystem_type() == PROC_SUPER_MAGIC)
    }

    /// The path that was asked for, to name it by.
    pub fn path(&self) -> &CStr {
        &self.path
    }

    /// The parent half's last step when privileged: sets the mount's attributes where the child could not.
    pub fn set_attributes(&self, change: Attributes<'_>) -> Result<(), Errno> {
        self.tree.as_ref().map_or(Ok(()), |tree| mount::set_attributes(tree, change))
    }

    /// The parent half, once the child has a copy of it: closing the last one is work, and left to it.
    pub fn drop_parent_copies(&mut self) {
        self.tree = None;
    }

    /// Child half: opens it again, if its path still leads to the very same file.
    pub fn find(&self) -> Result<OwnedFd, Errno> {
        let opened = self.again.open()?;
        let now = fstat(&opened)?;
        let same = (now.st_dev, now.st_ino, now.st_mode, now.st_rdev)
            == (self.stat.st_dev, self.stat.st_ino, self.stat.st_mode, self.stat.st_rdev);
        if same { Ok(opened) } else { Err(Errno::ESTALE) }
    }

    /// Child half: the detached mount with these changes. Where the parent cloned it, it has them.
    pub fn tree(&self, changes: &[Attributes<'_>]) -> Result<Detached<'_>, SourceError> {
        if let Some(tree) = &self.tree {
            return Ok(Detached::Prepared(tree.as_fd()));
        }
        let opened = self.find().map_err(|errno| SourceError { part: Part::Open, errno })?;
        let tree = mount::clone_tree(opened.as_fd(), c"", self.recursive);
        let tree = tree.map_err(|errno| SourceError { part: Part::Clone, errno })?;
        for change in changes {
            mount::set_attributes(&tree, *change).map_err(|errno| SourceError { part: Part::Change, errno })?;
        }
        Ok(Detached::Own(tree))
    }
}

/// A detached mount.
#[derive(Debug)]
pub enum Detached<'a> {
    /// The parent's.
    Prepared(BorrowedFd<'a>),
    /// The child's own.
    Own(OwnedFd),
}

impl Detached<'_> {
    /// A descriptor of its own.
    pub fn into_owned(self) -> Result<OwnedFd, Errno> {
        match self {
            Self::Prepared(tree) => tree.try_clone_to_owned().map_err(|_| Errno::EMFILE),
            Self::Own(tree) => Ok(tree),
        }
    }
}

impl AsFd for Detached<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Prepared(tree) => *tree,
            Self::Own(tree) => tree.as_fd(),
        }
    }
}

/// Which part of making a mount of a source failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Opening the source.
    Open,
    /// Cloning its mount.
    Clone,
    /// Changing the clone's attributes.
    Change,
}

/// A failure with its part, which becomes a step of its own where it is about one of the plan's mounts.
#[derive(Clone, Copy, Debug)]
pub struct SourceError {
    part: Part,
    errno: Errno,
}

impl From<SourceError> for Errno {
    fn from(error: SourceError) -> Self {
        error.errno
    }
}

impl<T> During<T> for Result<T, SourceError> {
    fn during(self, step: Step, index: usize) -> Applied<T> {
        self.or_else(|SourceError { part, errno }| {
            let step = match (step, part) {
                (Step::Mount, Part::Open) => Step::Source,
                (Step::Mount, Part::Clone) => Step::MountClone,
                (Step::Mount, Part::Change) => Step::MountAttributes,
                (step, _) => step,
            };
            Err(errno).during(step, index)
        })
    }
}

fn text(path: &Path) -> Result<CString, Errno> {
    match CString::new(path.as_os_str().as_bytes()) {
        Ok(text) if text.is_empty() => Err(Errno::ENOENT),
        Ok(text) => Ok(text),
        Err(_) => Err(Errno::EINVAL),
    }
}

/// What every bind mount gets: these attributes on it and all below it, and no mount events from outside.
pub fn bind_attributes(attributes: u64) -> Attributes<'static> {
    Attributes { set: attributes, propagation: libc::MS_PRIVATE, recursive: true, ..Attributes::default() }
}
