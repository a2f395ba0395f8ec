//! Creates processes: `clone3(2)` with a copy of the caller's memory, `clone(2)` sharing the caller's memory.

use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::unistd::Pid;

use super::stack::Stack;
use super::thread::clone_running;
use super::{Result, check};

/// The side of a [`clone3`].
#[derive(Debug)]
pub enum Cloned {
    /// The new process.
    Child,
    /// The caller, with the new process's id and pidfd.
    Parent {
        /// The id in the caller's pid namespace.
        pid: Pid,
        /// Always refers to this process, even after its id is reused.
        pidfd: OwnedFd,
    },
}

/// `CLONE_PARENT`: the child is the caller's sibling.
pub const SIBLING: u64 = libc::CLONE_PARENT as u64;

/// `CLONE_INTO_CGROUP`, which does not fit libc's type for it.
const INTO_CGROUP: u64 = 0x2_0000_0000;

/// Creates a child process with a copy of this process's memory, as `fork(2)` does, in new namespaces (`CLONE_NEW*` flags). If
/// requested, the child is in the given cgroup from its first instruction on.
///
/// If the caller has other threads, the child may only do async-signal-safe work: no allocation, no locks.
pub fn clone3(flags: u64, cgroup: Option<BorrowedFd<'_>>) -> Result<Cloned> {
    let mut pidfd: RawFd = -1;
    // SAFETY: all-zero is a valid clone_args.
    let mut args: libc::clone_args = unsafe { std::mem::zeroed() };
    args.flags = flags | libc::CLONE_PIDFD as u64;
    args.pidfd = (&raw mut pidfd) as u64;
    // A sibling gets the caller's own exit signal, and the kernel accepts no other.
    args.exit_signal = if flags & SIBLING == 0 { libc::SIGCHLD as u64 } else { 0 };
    if let Some(cgroup) = cgroup {
        args.flags |= INTO_CGROUP;
        args.cgroup = cgroup.as_raw_fd() as u64;
    }
    // SAFETY: without CLONE_VM the child runs on a copy of this stack, so returning twice is as sound as fork; `args` has
    // the size given, and the kernel writes `pidfd` before it returns.
    let clone = || check(unsafe { libc::syscall(libc::SYS_clone3, &raw mut args, size_of::<libc::clone_args>()) });
    let pid = match with_patience(clone) {
        // Filters of containers refuse clone3, because they cannot read its flags.
        Err(Errno::ENOSYS) if cgroup.is_none() => return by_clone(flags),
        pid => pid?,
    };
    if pid == 0 {
        return Ok(Cloned::Child);
    }
    // SAFETY: the kernel has just created this descriptor for us.
    let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
    Ok(Cloned::Parent { pid: Pid::from_raw(pid as i32), pidfd })
}

/// Whether clone3 itself exists and is allowed. Filters of containers pretend that it does not exist.
pub fn has_clone3() -> bool {
    let nothing: *const libc::clone_args = std::ptr::null();
    // SAFETY: with a size of zero the kernel reads nothing and creates no process.
    check(unsafe { libc::syscall(libc::SYS_clone3, nothing, 0usize) }) != Err(Errno::ENOSYS)
}

/// Tries for 63 ms: often the limit on processes is reached for a moment only, because others have just ended.
fn with_patience<T>(mut clone: impl FnMut() -> Result<T>) -> Result<T> {
    for wait_ms in [1, 2, 4, 8, 16, 32] {
        match clone() {
            Err(Errno::EAGAIN) => std::thread::sleep(Duration::from_millis(wait_ms)),
            cloned => return cloned,
        }
    }
    clone()
}

/// The flags of [`sibling`].
pub const SIBLING_FLAGS: u64 = SIBLING | libc::CLONE_PIDFD as u64;

/// Creates a sibling with a copy of this process's memory, as [`clone3`] does, with the older `clone(2)`, which container
/// filters allow.
pub fn sibling() -> Result<Cloned> {
    by_clone(SIBLING)
}

/// As [`clone3`] without a cgroup, with `clone(2)`, whose flags have the exit signal in their lowest byte.
fn by_clone(flags: u64) -> Result<Cloned> {
    let mut pidfd: RawFd = -1;
    let exit_signal = if flags & SIBLING == 0 { libc::SIGCHLD as u64 } else { 0 };
    let flags = flags | libc::CLONE_PIDFD as u64 | exit_signal;
    // SAFETY: as for clone3: without CLONE_VM the child runs on a copy of this stack. On both architectures the third argument
    // is where the kernel writes the pidfd.
    let clone = || check(unsafe { libc::syscall(libc::SYS_clone, flags, 0, &raw mut pidfd, 0, 0) });
    let pid = with_patience(clone)?;
    if pid == 0 {
        return Ok(Cloned::Child);
    }
    // SAFETY: the kernel has just created this descriptor for us.
    let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
    Ok(Cloned::Parent { pid: Pid::from_raw(pid as i32), pidfd })
}

/// Creates a child process that runs `child` in this process's own memory while this process waits, as `vfork(2)` does. The
/// wait ends when the child executes a program or returns its exit code. No memory is copied.
///
/// With `files` it also shares this process's descriptor table until it executes a program. Descriptors that it opens stay open
/// in this process. If requested, the child is in the given cgroup from its first instruction on.
pub fn spawn_sharing<F>(
    stack: &mut Stack,
    files: bool,
    cgroup: Option<BorrowedFd<'_>>,
    child: F,
) -> Result<(Pid, OwnedFd)>
where
    F: FnOnce() -> libc::c_int,
{
    extern "C" fn enter<F: FnOnce() -> libc::c_int>(child: *mut libc::c_void) -> libc::c_int {
        // SAFETY: the pointer that `spawn_sharing` passed: a live closure that its owner will not drop or call.
        let child = unsafe { ManuallyDrop::take(&mut *child.cast::<ManuallyDrop<F>>()) };
        child()
    }
    extern "C" fn enter_and_end<F: FnOnce() -> libc::c_int>(child: *mut libc::c_void) {
        super::process::exit(enter::<F>(child))
    }
    let mut child = ManuallyDrop::new(child);
    let argument = (&raw mut child).cast();
    let mut pidfd: RawFd = -1;
    let sharing = libc::CLONE_VM | libc::CLONE_VFORK | if files { libc::CLONE_FILES } else { 0 };
    let cloned = match cgroup {
        // SAFETY: the child runs on a stack of its own, which is exclusively ours and outlives it because of CLONE_VFORK. So does
        // the closure, and `pidfd`, which the kernel writes before it returns. Thread-local storage is this thread's, which waits.
        None => with_patience(|| unsafe {
            let flags = sharing | libc::CLONE_PIDFD | libc::SIGCHLD;
            check(libc::clone(enter::<F>, stack.top(), flags, argument, &raw mut pidfd).into())
        }),
        // clone(2) cannot place it in a cgroup, and is what filters around us allow.
        Some(cgroup) => {
            let (bottom, size) = stack.usable();
            // SAFETY: all-zero is a valid clone_args.
            let mut args: libc::clone_args = unsafe { std::mem::zeroed() };
            args.flags = (sharing | libc::CLONE_PIDFD) as u64 | INTO_CGROUP;
            args.pidfd = (&raw mut pidfd) as u64;
            args.exit_signal = libc::SIGCHLD as u64;
            args.stack = bottom.expose_provenance() as u64;
            args.stack_size = size as u64;
            args.cgroup = cgroup.as_raw_fd() as u64;
            // SAFETY: as above.
            with_patience(|| match unsafe { clone_running(&args, enter_and_end::<F>, argument) } {
                pid @ 0.. => Ok(pid as libc::c_long),
                error => Err(Errno::from_raw(-error as i32)),
            })
        }
    };
    match cloned {
        // SAFETY: the kernel has just created this descriptor for us.
        Ok(pid) => Ok((Pid::from_raw(pid as i32), unsafe { OwnedFd::from_raw_fd(pidfd) })),
        Err(errno) => {
            drop(ManuallyDrop::into_inner(child));
            Err(errno)
        }
    }
}
