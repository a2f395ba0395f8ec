//! Enters existing namespaces, `setns(2)`, and changes settings in them.

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use super::{Result, check, check_fd};

/// Enters a namespace by its descriptor, or several namespaces of a process by its pidfd. The `CLONE_NEW*` flags select them.
pub fn enter(fd: BorrowedFd<'_>, flags: libc::c_int) -> Result<()> {
    // SAFETY: plain numbers.
    check(unsafe { libc::setns(fd.as_raw_fd(), flags) }.into()).map(drop)
}

/// The `CLONE_NEW*` flag of a namespace's kind, `NS_GET_NSTYPE`.
pub fn kind(fd: BorrowedFd<'_>) -> Result<libc::c_int> {
    const NS_GET_NSTYPE: libc::Ioctl = 0xb703;
    // SAFETY: takes no argument.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), NS_GET_NSTYPE) }.into()).map(|kind| kind as libc::c_int)
}

/// The user namespace that owns a namespace, `NS_GET_USERNS`.
pub fn owner(fd: BorrowedFd<'_>) -> Result<OwnedFd> {
    const NS_GET_USERNS: libc::Ioctl = 0xb701;
    // SAFETY: takes no argument and returns a new descriptor.
    check_fd(unsafe { libc::ioctl(fd.as_raw_fd(), NS_GET_USERNS) }.into())
}

/// Whether a process is in a pid namespace, or in one below it: `NS_GET_PID_IN_PIDNS`. `ENOTTY` before Linux 6.11.
pub fn has_process(pid_namespace: BorrowedFd<'_>, pid: libc::pid_t) -> Result<bool> {
    // SAFETY: takes a plain number.
    match check(unsafe { libc::ioctl(pid_namespace.as_raw_fd(), libc::NS_GET_PID_IN_PIDNS, pid) }.into()) {
        Err(nix::errno::Errno::ESRCH) => Ok(false),
        found => found.map(|_| true),
    }
}

/// Moves this process into new namespaces (`CLONE_NEW*` flags), `unshare(2)`.
pub fn unshare(flags: libc::c_int) -> Result<()> {
    // SAFETY: this process has no other threads that would keep sharing what it unshares.
    check(unsafe { libc::unshare(flags) }.into()).map(drop)
}

/// Sets the NIS domain name of this UTS namespace, `setdomainname(2)`.
pub fn set_domain_name(name: &[u8]) -> Result<()> {
    // SAFETY: the kernel reads exactly the slice.
    check(unsafe { libc::setdomainname(name.as_ptr().cast(), name.len()) }.into()).map(drop)
}
