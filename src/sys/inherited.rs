//! Descriptors that the caller handed to this program by number.

use std::os::fd::{OwnedFd, RawFd};

use super::{Result, check_fd};

/// A close-on-exec duplicate of an inherited descriptor, above the standard streams; `EBADF` when it is not open. Before any
/// other descriptor of ours is: a number alone cannot tell whose it is.
pub fn duplicate(number: RawFd) -> Result<OwnedFd> {
    // SAFETY: fcntl takes any number and only reads it; F_DUPFD_CLOEXEC returns a new descriptor.
    check_fd(i64::from(unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 3) }))
}
