//! A page that two processes share. In it the kernel reports the end of the watching thread: `mmap(2)`, `set_robust_list(2)`.
//!
//! For each thread the kernel keeps a list of words that contain the thread's id. When the thread ends in any way, the kernel
//! puts [`OWNER_DIED`] into them. Robust mutexes between processes use this. It also lets a process that can make no system
//! call notice the end of another.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use super::{Result, check};

/// The kernel's replacement for the id of a thread that has ended, `FUTEX_OWNER_DIED`.
pub const OWNER_DIED: u32 = 0x4000_0000;

/// An id that no thread has: the greatest possible id is 2²², `include/linux/threads.h`.
pub const NO_THREAD: u32 = 0x3fff_ffff;

/// How many bytes of a file are mapped.
pub const LENGTH: usize = 4096;

/// The shared page.
#[derive(Debug)]
#[repr(C)]
struct Page {
    /// `struct robust_list_head`. It is in this page so that it exists as long as the words, even when memory of the ending
    /// thread is released. The fields: the first entry, the distance from an entry to its word, and the entry that is being
    /// added.
    head: [AtomicUsize; 3],
    /// The only entry, `struct robust_list`: a pointer to the next one.
    entry: AtomicUsize,
    words: Words,
}

/// The words of both sides. Initially 0.
#[derive(Debug)]
#[repr(C)]
pub struct Words {
    /// The word of the watching side; see [`Shared::watch`].
    pub watcher: AtomicU32,
    /// The word of the watched side.
    pub watched: AtomicU32,
    /// More of the watched side's: the number of a descriptor, and a failure.
    pub descriptor: AtomicU32,
    /// See `descriptor`.
    pub failure: AtomicU64,
}

/// A mapping of such a page. Children inherit it; an executed program does not.
#[derive(Debug)]
pub struct Shared {
    page: NonNull<Page>,
}

impl Shared {
    /// Maps the first [`LENGTH`] bytes of a file or, without a file, a new page that children will share.
    pub fn map(file: Option<BorrowedFd<'_>>) -> Result<Self> {
        let anonymous = if file.is_none() { libc::MAP_ANONYMOUS } else { 0 };
        let fd = file.map_or(-1, |file| file.as_raw_fd());
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses touches no memory that is in use.
        let page = unsafe { libc::mmap(std::ptr::null_mut(), LENGTH, access, libc::MAP_SHARED | anonymous, fd, 0) };
        check(page as libc::c_long)?; // MAP_FAILED is -1
        NonNull::new(page.cast()).map(|page| Self { page }).ok_or(nix::errno::Errno::ENOMEM)
    }

    fn page(&self) -> &Page {
        // SAFETY: the mapping is aligned, longer than a `Page` and lives as long as `self`. Any bytes are valid atomics, and
        // other processes only write atomically.
        unsafe { self.page.as_ref() }
    }

    /// The words of both sides.
    pub fn words(&self) -> &Words {
        &self.page().words
    }

    /// Stores this thread's id in the watcher's word, and makes the kernel replace it with [`OWNER_DIED`] when this thread
    /// ends. A thread can watch only one page at a time, and must not use robust mutexes of the C library.
    pub fn watch(&self) -> Result<()> {
        let Page { head, entry, words } = self.page();
        words.watcher.store(nix::unistd::gettid().as_raw().unsigned_abs(), Ordering::SeqCst);
        let [first, offset, adding] = head;
        let distance = (&raw const words.watcher).addr().wrapping_sub((&raw const *entry).addr());
        entry.store((&raw const *head).addr(), Ordering::SeqCst); // the last one leads back
        offset.store(distance, Ordering::SeqCst);
        adding.store(0, Ordering::SeqCst);
        first.store((&raw const *entry).addr(), Ordering::SeqCst);
        set_robust_list(head.as_ptr())
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // No other code in this process has a robust list, because there are no mutexes between processes.
        let _ = set_robust_list(std::ptr::null());
        // SAFETY: the mapping is ours. The kernel no longer refers to it and, since `self` is dropped, neither does `words`.
        unsafe { libc::munmap(self.page.as_ptr().cast(), LENGTH) };
    }
}

/// Maps counters at the beginning of a file, zero at first, for as long as this process runs. Children share them.
pub fn counters<const N: usize>(file: BorrowedFd<'_>) -> Result<&'static [AtomicU64; N]> {
    const { assert!(N * size_of::<AtomicU64>() <= LENGTH) };
    nix::unistd::ftruncate(file, LENGTH as libc::off_t)?;
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping at an address that the kernel chooses touches no memory that is in use.
    let page = unsafe { libc::mmap(std::ptr::null_mut(), LENGTH, access, libc::MAP_SHARED, file.as_raw_fd(), 0) };
    check(page as libc::c_long)?; // MAP_FAILED is -1
    // SAFETY: the mapping is a page, which holds them, and is never unmapped. Any bytes are valid atomics.
    Ok(unsafe { &*page.cast::<[AtomicU64; N]>() })
}

fn set_robust_list(head: *const AtomicUsize) -> Result<()> {
    // SAFETY: the list stays mapped until `Shared` resets it. The kernel reads it when the thread ends.
    check(unsafe { libc::syscall(libc::SYS_set_robust_list, head, size_of::<[usize; 3]>()) }).map(drop)
}

/// Ends this process without a system call, which a filter might refuse: by an undefined instruction. This also works for pid 1
/// of a pid namespace.
pub fn die() -> ! {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: never returns.
    unsafe {
        std::arch::asm!("ud2", options(noreturn))
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: never returns.
    unsafe {
        std::arch::asm!("udf #0", options(noreturn))
    }
}

#[cfg(test)]
mod tests {
    use super::super::clone::{Cloned, clone3};
    use super::super::process;
    use super::*;

    /// The watcher's word after a process that ran `act` was killed.
    fn left(shared: &Shared, act: impl Fn()) -> u32 {
        let (pid, pidfd) = match clone3(0, None).unwrap() {
            Cloned::Child => {
                act();
                shared.words().watched.store(1, Ordering::SeqCst);
                loop {
                    std::hint::spin_loop();
                }
            }
            Cloned::Parent { pid, pidfd } => (pid, pidfd),
        };
        while shared.words().watched.swap(0, Ordering::SeqCst) == 0 {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        let during = shared.words().watcher.load(Ordering::SeqCst);
        assert!(during == pid.as_raw().unsigned_abs() || during == NO_THREAD);
        process::pidfd_send_signal(std::os::fd::AsFd::as_fd(&pidfd), libc::SIGKILL).unwrap();
        process::wait4(pid).unwrap();
        shared.words().watcher.load(Ordering::SeqCst)
    }

    #[test]
    fn the_end_of_the_watcher_is_in_its_word() {
        let shared = Shared::map(None).unwrap();
        assert_eq!(shared.words().watcher.load(Ordering::SeqCst), 0);
        assert_eq!(left(&shared, || shared.watch().unwrap()), OWNER_DIED);
        // A word with any other value stays unchanged.
        let answer = || {
            shared.watch().unwrap();
            shared.words().watcher.store(NO_THREAD, Ordering::SeqCst);
        };
        assert_eq!(left(&shared, answer), NO_THREAD);
        // So does a word that is no longer watched.
        let file = tempfile();
        let other = || Shared::map(Some(std::os::fd::AsFd::as_fd(&file))).unwrap().watch().unwrap();
        let before = Shared::map(Some(std::os::fd::AsFd::as_fd(&file))).unwrap();
        assert_eq!(before.words().watched.load(Ordering::SeqCst), 0);
        assert_eq!(left(&shared, other), NO_THREAD);
        assert_ne!(before.words().watcher.load(Ordering::SeqCst), OWNER_DIED);
    }

    fn tempfile() -> std::os::fd::OwnedFd {
        let file = super::super::image::memory_file(c"shared").unwrap();
        nix::unistd::ftruncate(&file, LENGTH as i64).unwrap();
        file
    }

    #[test]
    fn die_ends_the_process_by_its_signal() {
        let pid = match clone3(0, None).unwrap() {
            Cloned::Child => {
                let _ = process::set_dumpable(false); // no core dump
                die()
            }
            Cloned::Parent { pid, .. } => pid,
        };
        assert!(libc::WIFSIGNALED(process::wait4(pid).unwrap().0));
    }
}
