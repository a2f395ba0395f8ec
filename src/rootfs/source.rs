//! Host files that are bound into the sandbox: resolved once ([`super::host`]), identified, and cloned as detached mounts.
//!
//! With privilege the parent clones the mount through the descriptor that it resolved. Without privilege only the child can
//! clone it, in its own mount namespace, where the parent's descriptor is useless. The child opens the link-free path that the
//! parent found, with the same restrictions, and accepts only the file that the parent saw.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::stat::{FileStat, SFlag, fstat};
use nix::sys::statfs::{PROC_SUPER_MAGIC, fstatfs};

use super::host::{Again, Found};
use crate::error::Step;
use crate::failure::{Applied, During};
use crate::sys::{
    file,
    mount::{self, Attributes},
};

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
    /// The file found at this path. With `privileged`, clones its mount with everything below it.
    pub fn of(path: &Path, found: Found, privileged: bool) -> Result<Self, Errno> {
        let Found { file, stat, again } = found;
        let tree = privileged.then(|| mount::clone_tree(file.as_fd(), c"", true)).transpose()?;
        Ok(Self { path: text(path)?, again, stat, recursive: true, tree })
    }

    /// The file at this path of a container's configuration. Links are followed everywhere, because the engine is trusted.
    pub fn following(path: &Path, privileged: bool, recursive: bool) -> Result<Self, Errno> {
        let path = text(path)?;
        let file = file::open(path.as_c_str(), OFlag::O_PATH)?;
        let tree = privileged.then(|| mount::clone_tree(file.as_fd(), c"", recursive)).transpose()?;
        Ok(Self { again: Again::following(path.clone()), path, stat: fstat(&file)?, recursive, tree })
    }

    /// Its `fstat(2)` result.
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

    /// The requested path, for error messages.
    pub fn path(&self) -> &CStr {
        &self.path
    }

    /// Parent half, with privilege: sets attributes of the cloned mount. The child may lack the privilege for that.
    pub fn set_attributes(&self, change: Attributes<'_>) -> Result<(), Errno> {
        self.tree.as_ref().map_or(Ok(()), |tree| mount::set_attributes(tree, change))
    }

    /// Parent half, after the clone: closes the inherited mount. Closing the last copy takes time, and so happens in the child.
    pub fn drop_parent_copies(&mut self) {
        self.tree = None;
    }

    /// Child half: opens the file again, if its path still leads to the same file.
    pub fn find(&self) -> Result<OwnedFd, Errno> {
        let opened = self.again.open()?;
        let now = fstat(&opened)?;
        let same = (now.st_dev, now.st_ino, now.st_mode, now.st_rdev)
            == (self.stat.st_dev, self.stat.st_ino, self.stat.st_mode, self.stat.st_rdev);
        if same { Ok(opened) } else { Err(Errno::ESTALE) }
    }

    /// Child half: the detached mount with these changes. A mount that the parent cloned already has them.
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
    /// Cloned by the parent.
    Prepared(BorrowedFd<'a>),
    /// Cloned by the child.
    Own(OwnedFd),
}

impl Detached<'_> {
    /// As an owned descriptor.
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

/// The part of cloning a source that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Opening the source.
    Open,
    /// Cloning its mount.
    Clone,
    /// Changing the clone's attributes.
    Change,
}

/// A failure with its part. For a mount of the plan, the part becomes a step of its own.
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

pub fn text(path: &Path) -> Result<CString, Errno> {
    match CString::new(path.as_os_str().as_bytes()) {
        Ok(text) if text.is_empty() => Err(Errno::ENOENT),
        Ok(text) => Ok(text),
        Err(_) => Err(Errno::EINVAL),
    }
}

/// No mount event reaches the host.
pub const SLAVE: Attributes<'static> =
    Attributes { set: 0, clear: 0, propagation: libc::MS_SLAVE, recursive: true, idmap: None };

/// The attributes of every bind mount, recursive, with private propagation.
pub fn bind_attributes(attributes: u64) -> Attributes<'static> {
    Attributes { set: attributes, propagation: libc::MS_PRIVATE, recursive: true, ..Attributes::default() }
}
