//! Stacks for processes and threads that share this process's memory, `mmap(2)`.

use std::ptr::NonNull;

use nix::errno::Errno;

use super::{Result, check};

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

    /// Its end, from which it grows down.
    pub(super) fn top(&self) -> *mut libc::c_void {
        // SAFETY: the end of the mapping.
        unsafe { self.lowest.as_ptr().byte_add(STACK_SIZE) }
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
