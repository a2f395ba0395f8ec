//! Descriptors that the caller passed to this program by number.

use std::os::fd::{OwnedFd, RawFd};

use super::{Result, check, check_fd};

/// Keeps a descriptor open in the next program.
pub fn keep(number: RawFd) -> Result<()> {
    // SAFETY: fcntl takes any number; F_SETFD changes nothing in memory.
    check(unsafe { libc::fcntl(number, libc::F_SETFD, 0) }.into()).map(drop)
}

/// A close-on-exec duplicate of an inherited descriptor, above the standard streams. `EBADF` if it is not open. Must be called
/// before we open other descriptors, because a number does not show who opened it.
pub fn duplicate(number: RawFd) -> Result<OwnedFd> {
    // SAFETY: fcntl takes any number and only reads it; F_DUPFD_CLOEXEC returns a new descriptor.
    check_fd(i64::from(unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 3) }))
}
