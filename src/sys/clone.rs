//! New processes: `clone3(2)` with a copy of the caller's memory, `clone(2)` in the caller's own.

use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;

use nix::unistd::Pid;

use super::{Result, check};

/// Which side of a [`clone3`] this is.
#[derive(Debug)]
pub enum Cloned {
    /// The new process.
    Child,
    /// The old one, with the new one's id and pidfd.
    Parent {
        /// In the caller's pid namespace.
        pid: Pid,
        /// Refers to that very process, for ever.
        pidfd: OwnedFd,
    },
}

/// `CLONE_PARENT`: the child is the caller's sibling.
pub const SIBLING: u64 = libc::CLONE_PARENT as u64;

/// `CLONE_INTO_CGROUP`, which libc has in a type too small for it.
const INTO_CGROUP: u64 = 0x2_0000_0000;

/// Makes a child process with a copy of this one's memory, as `fork(2)` does, in new namespaces (`CLONE_NEW*` flags) and,
/// if asked for, in a cgroup from its first instruction on.
///
/// In the child only async-signal-safe work is sound if the caller has other threads: no allocation, no locks.
pub fn clone3(flags: u64, cgroup: Option<BorrowedFd<'_>>) -> Result<Cloned> {
    let mut pidfd: RawFd = -1;
    // SAFETY: all-zero is a valid clone_args.
    let mut args: libc::clone_args = unsafe { std::mem::zeroed() };
    args.flags = flags | libc::CLONE_PIDFD as u64;
    args.pidfd = (&raw mut pidfd) as u64;
    // A sibling takes the caller's own, and the kernel insists on that.
    args.exit_signal = if flags & SIBLING == 0 { libc::SIGCHLD as u64 } else { 0 };
    if let Some(cgroup) = cgroup {
        args.flags |= INTO_CGROUP;
        args.cgroup = cgroup.as_raw_fd() as u64;
    }
    // SAFETY: without CLONE_VM the child runs on a copy of this stack, so returning twice is as sound as fork; `args` has
    // the size given, and the kernel writes `pidfd` before it returns.
    let pid = check(unsafe { libc::syscall(libc::SYS_clone3, &raw mut args, size_of::<libc::clone_args>()) })?;
    if pid == 0 {
        return Ok(Cloned::Child);
    }
    // SAFETY: the kernel has just made this descriptor for us.
    let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
    Ok(Cloned::Parent { pid: Pid::from_raw(pid as i32), pidfd })
}

/// The flags of [`sibling`].
pub const SIBLING_FLAGS: u64 = SIBLING | libc::CLONE_PIDFD as u64;

/// Makes a sibling with a copy of this process's memory, as [`clone3`] does, by the older `clone(2)`, which filters of
/// containers let through.
pub fn sibling() -> Result<Cloned> {
    let mut pidfd: RawFd = -1;
    // SAFETY: as for clone3: without CLONE_VM the child runs on a copy of this stack. On both architectures the third argument
    // is where the kernel writes the pidfd.
    let pid = check(unsafe { libc::syscall(libc::SYS_clone, SIBLING_FLAGS, 0, &raw mut pidfd, 0, 0) })?;
    if pid == 0 {
        return Ok(Cloned::Child);
    }
    // SAFETY: the kernel has just made this descriptor for us.
    let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
    Ok(Cloned::Parent { pid: Pid::from_raw(pid as i32), pidfd })
}

/// Memory for the stack of a child or thread that shares this process's memory, with a page below it that nobody may touch.
#[derive(Debug)]
pub struct Stack {
    lowest: NonNull<libc::c_void>,
}

/// More than execve's own path needs many times over.
const STACK_SIZE: usize = 256 << 10;
const GUARD_SIZE: usize = 64 << 10; // the largest page there is

impl Stack {
    /// Maps one. It costs a page only where it is used.
    pub fn new() -> Result<Self> {
        let (anywhere, flags) = (std::ptr::null_mut(), libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_STACK);
        // SAFETY: a new anonymous mapping at a place of the kernel's choice.
        let lowest = unsafe { libc::mmap(anywhere, STACK_SIZE, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
        if lowest == libc::MAP_FAILED {
            return Err(nix::errno::Errno::last());
        }
        // SAFETY: the start of our own mapping, which nobody uses yet.
        check(unsafe { libc::mprotect(lowest, GUARD_SIZE, libc::PROT_NONE) }.into())?;
        NonNull::new(lowest).map(|lowest| Self { lowest }).ok_or(nix::errno::Errno::ENOMEM)
    }

    /// Its lowest byte above the guard, and its size from there.
    pub(super) fn usable(&self) -> (*mut libc::c_void, usize) {
        // SAFETY: within the mapping.
        (unsafe { self.lowest.as_ptr().byte_add(GUARD_SIZE) }, STACK_SIZE - GUARD_SIZE)
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        // SAFETY: our own mapping, on which nobody runs: neither `spawn_sharing` nor a thread gives it back while it does.
        unsafe { libc::munmap(self.lowest.as_ptr(), STACK_SIZE) };
    }
}

/// Makes a child process that runs `child` in this process's own memory while this one waits, as `vfork(2)` does: until it
/// executes a program or returns its exit code. Nothing is copied and no page is faulted in twice.
///
/// With `files` it shares this process's descriptor table as well, until it executes a program: what it opens stays open
/// here.
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
    let pid = unsafe {
        libc::clone(
            enter::<F>,
            stack.lowest.as_ptr().byte_add(STACK_SIZE),
            sharing | libc::CLONE_PIDFD | libc::SIGCHLD,
            (&raw mut child).cast(),
            &raw mut pidfd,
        )
    };
    if pid == -1 {
        let errno = nix::errno::Errno::last();
        drop(ManuallyDrop::into_inner(child));
        return Err(errno);
    }
    // SAFETY: the kernel has just made this descriptor for us.
    Ok((Pid::from_raw(pid), unsafe { OwnedFd::from_raw_fd(pidfd) }))
}
