//! The generated entries of the root: small files and symlinks.

use std::ffi::{CStr, CString};
use std::os::fd::BorrowedFd;

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;
use nix::unistd::symlinkat;

/// A generated content.
#[derive(Debug)]
pub enum Content {
    /// A file.
    File(Vec<u8>, Mode),
    /// A symlink.
    Symlink(CString),
}

impl Content {
    /// Creates the entry.
    pub fn create(&self, parent: BorrowedFd<'_>, name: &CStr) -> Result<(), Errno> {
        let (mut content, mode) = match self {
            Self::Symlink(target) => return symlinkat(target.as_c_str(), parent, name),
            Self::File(content, mode) => (&content[..], *mode),
        };
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let file = openat(parent, name, flags, mode)?;
        while !content.is_empty() {
            let written = nix::unistd::write(&file, content)?;
            content = &content[written..];
        }
        Ok(())
    }
}
