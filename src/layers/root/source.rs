//! Host files that are bound into the sandbox: looked up once, identified, and cloned as detached mounts.
//!
//! With privilege the parent clones the mount by its path, and identifies that. Without, only the child can, in its own mount namespace, where the
//! parent's descriptor is of no use: it opens the path again and accepts nothing but the very file the parent saw.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, open, openat};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat};

use crate::sys::mount::{self, Attributes};

/// A host file or directory to bind.
#[derive(Debug)]
pub struct Source {
    path: CString,
    stat: FileStat,
    recursive: bool,
    tree: Option<OwnedFd>,
}

impl Source {
    /// Finds and identifies a host path. With `privileged`, also clones the mount with everything below it.
    pub fn open(path: &Path, privileged: bool) -> Result<Self, Errno> {
        Self::open_tree(path, privileged, true)
    }

    /// As [`Self::open`], with or without what is mounted below it.
    pub fn open_tree(path: &Path, privileged: bool, recursive: bool) -> Result<Self, Errno> {
        let path = CString::new(path.as_os_str().as_bytes()).map_err(|_| Errno::EINVAL)?;
        if path.is_empty() {
            return Err(Errno::ENOENT);
        }
        if privileged {
            let tree = mount::clone_tree(AT_FDCWD, &path, recursive)?;
            return Ok(Self { path, stat: fstat(&tree)?, recursive, tree: Some(tree) });
        }
        let stat = fstat(open(path.as_c_str(), OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty())?)?;
        Ok(Self { path, stat, recursive, tree: None })
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

    /// Where it was opened.
    pub fn path(&self) -> &CStr {
        &self.path
    }

    /// The parent half's last step when privileged: sets the mount's attributes where the child could not.
    pub fn set_attributes(&self, change: Attributes<'_>) -> Result<(), Errno> {
        self.tree.as_ref().map_or(Ok(()), |tree| mount::set_attributes(tree, change))
    }

    /// The parent half, once the child has a copy of it: closing the last one is work, and left to it.
    pub fn let_go(&mut self) {
        self.tree = None;
    }

    /// Child half: opens it again by its path, if that still leads to the very same file.
    pub fn find(&self) -> Result<OwnedFd, Errno> {
        let opened = openat(AT_FDCWD, self.path.as_c_str(), OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty())?;
        let now = fstat(&opened)?;
        let same = (now.st_dev, now.st_ino, now.st_mode, now.st_rdev)
            == (self.stat.st_dev, self.stat.st_ino, self.stat.st_mode, self.stat.st_rdev);
        if same { Ok(opened) } else { Err(Errno::ESTALE) }
    }

    /// Child half: attaches it at `target` with these attributes.
    pub fn attach(&self, attributes: u64, target: impl AsFd) -> Result<(), Errno> {
        self.detached(attributes, |tree| mount::attach(tree, target))
    }

    /// Child half: the detached mount, private, with these attributes, for `then` to attach.
    pub fn detached<T>(&self, attributes: u64, then: impl FnOnce(&OwnedFd) -> Result<T, Errno>) -> Result<T, Errno> {
        self.changed(&[bind_attributes(attributes)], then)
    }

    /// Child half: the detached mount with these changes, for `then` to attach.
    pub fn changed<T>(
        &self,
        changes: &[Attributes<'_>],
        then: impl FnOnce(&OwnedFd) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        if let Some(tree) = &self.tree {
            return then(tree); // its attributes were set by the parent
        }
        let opened = self.find()?;
        let tree = mount::clone_tree(opened.as_fd(), c"", self.recursive)?;
        for change in changes {
            mount::set_attributes(&tree, *change)?;
        }
        then(&tree)
    }
}

/// What every bind mount gets: these attributes on it and all below it, and no mount events from outside.
pub fn bind_attributes(attributes: u64) -> Attributes<'static> {
    Attributes { set: attributes, propagation: libc::MS_PRIVATE, recursive: true, ..Attributes::default() }
}
