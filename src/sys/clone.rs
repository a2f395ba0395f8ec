//! Creates processes: `clone3(2)` with a copy of the caller's memory, `clone(2)` sharing the caller's memory.

use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;
use std::time::Duration;

use nix::errno::Errno;
use nix::unistd::Pid;

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
    let pid = with_patience(clone)?;
    if pid == 0 {
        return Ok(Cloned::Child);
    }
    // SAFETY: the kernel has just created this descriptor for us.
    let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
    Ok(Cloned::Parent { pid: Pid::from_raw(pid as i32), pidfd })
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
    let mut pidfd: RawFd = -1;
    // SAFETY: as for clone3: without CLONE_VM the child runs on a copy of this stack. On both architectures the third argument
    // is where the kernel writes the pidfd.
    let pid = check(unsafe { libc::syscall(libc::SYS_clone, SIBLING_FLAGS, 0, &raw mut pidfd, 0, 0) })?;
    if pid == 0 {
        return Ok(Cloned::Child);
    }
    // SAFETY: the kernel has just created this descriptor for us.
    let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
    Ok(Cloned::Parent { pid: Pid::from_raw(pid as i32), pidfd })
}

/// Stack memory for a child or thread that shares this process's memory, with an inaccessible guard below it.
#[derive(Debug)]
pub struct Stack {
    lowest: NonNull<libc::c_void>,
}

/// Many times what the path to execve needs.
const STACK_SIZE: usize = 256 << 10;
const GUARD_SIZE: usize = 64 << 10; // the largest page size

impl Stack {
    /// Maps a stack. Only touched pages cost memory.
    pub fn new() -> Result<Self> {
        let (anywhere, flags) = (std::ptr::null_mut(), libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_STACK);
        // SAFETY: a new anonymous mapping at an address that the kernel chooses.
        let lowest = unsafe { libc::mmap(anywhere, STACK_SIZE, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
        if lowest == libc::MAP_FAILED {
            return Err(Errno::last());
        }
        // SAFETY: the start of our own new mapping, which is not in use yet.
        check(unsafe { libc::mprotect(lowest, GUARD_SIZE, libc::PROT_NONE) }.into())?;
        NonNull::new(lowest).map(|lowest| Self { lowest }).ok_or(Errno::ENOMEM)
    }

    /// Its lowest byte above the guard, and its size from there on.
    pub(super) fn usable(&self) -> (*mut libc::c_void, usize) {
        // SAFETY: within the mapping.
        (unsafe { self.lowest.as_ptr().byte_add(GUARD_SIZE) }, STACK_SIZE - GUARD_SIZE)
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        // SAFETY: our own mapping, which is not in use: `spawn_sharing` and the thread return it only afterwards.
        unsafe { libc::munmap(self.lowest.as_ptr(), STACK_SIZE) };
    }
}

/// Creates a child process that runs `child` in this process's own memory while this process waits, as `vfork(2)` does. The
/// wait ends when the child executes a program or returns its exit code. No memory is copied.
///
/// With `files` it also shares this process's descriptor table until it executes a program. Descriptors that it opens stay open
/// in this process.
pub fn spawn_sharing<F>(stack: &mut Stack, files: bool, child: F) -> Result<(Pid, OwnedFd)>
where
    F: FnOnce() -> libc::c_int,
{
    extern "C" fn enter<F: FnOnce() -> libc::c_int>(child: *mut libc::c_void) -> libc::c_int {
        // SAFETY: the pointer that `spawn_sharing` passed: a live closure that its owner will not drop or call.
        let child = unsafe { ManuallyDrop::take(&mut *child.cast::<ManuallyDrop<F>>()) };
        child()
    }
    let mut child = ManuallyDrop::new(child);
    let mut pidfd: RawFd = -1;
    let sharing = libc::CLONE_VM | libc::CLONE_VFORK | if files { libc::CLONE_FILES } else { 0 };
    // SAFETY: the child runs on a stack of its own, which is exclusively ours and outlives it because of CLONE_VFORK. So does
    // the closure, and `pidfd`, which the kernel writes before it returns. Thread-local storage is this thread's, which waits.
    let clone = || unsafe {
        let top = stack.lowest.as_ptr().byte_add(STACK_SIZE);
        let flags = sharing | libc::CLONE_PIDFD | libc::SIGCHLD;
        check(libc::clone(enter::<F>, top, flags, (&raw mut child).cast(), &raw mut pidfd).into())
    };
    match with_patience(clone) {
        // SAFETY: the kernel has just created this descriptor for us.
        Ok(pid) => Ok((Pid::from_raw(pid as i32), unsafe { OwnedFd::from_raw_fd(pidfd) })),
        Err(errno) => {
            drop(ManuallyDrop::into_inner(child));
            Err(errno)
        }
    }
}
