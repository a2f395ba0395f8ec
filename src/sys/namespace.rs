//! Entering namespaces that exist, `setns(2)`, and what is set inside them.

use std::os::fd::{AsRawFd, BorrowedFd};

use super::{Result, check};

/// Enters a namespace by its descriptor, or several of a process by its pidfd: the `CLONE_NEW*` flags say which.
pub fn enter(fd: BorrowedFd<'_>, flags: libc::c_int) -> Result<()> {
    // SAFETY: plain numbers.
    check(unsafe { libc::setns(fd.as_raw_fd(), flags) }.into()).map(drop)
}

/// The `CLONE_NEW*` flag of the kind of namespace that a descriptor refers to, `NS_GET_NSTYPE`.
pub fn kind(fd: BorrowedFd<'_>) -> Result<libc::c_int> {
    const NS_GET_NSTYPE: libc::Ioctl = 0xb703;
    // SAFETY: takes no argument.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), NS_GET_NSTYPE) }.into()).map(|kind| kind as libc::c_int)
}

/// Puts this process into new namespaces (`CLONE_NEW*` flags), `unshare(2)`.
pub fn unshare(flags: libc::c_int) -> Result<()> {
    // SAFETY: the caller has no threads with which it would share less than it thinks.
    check(unsafe { libc::unshare(flags) }.into()).map(drop)
}

/// The NIS domain name of this UTS namespace, `setdomainname(2)`.
pub fn set_domain_name(name: &[u8]) -> Result<()> {
    // SAFETY: the kernel reads as many bytes as the slice has.
    check(unsafe { libc::setdomainname(name.as_ptr().cast(), name.len()) }.into()).map(drop)
}
