//! A page that two processes share, and in which the kernel says when the one that watches is gone: `mmap(2)`,
//! `set_robust_list(2)`.
//!
//! The kernel keeps, for each thread, a list of words that hold its id; when the thread ends, however that comes about, it
//! puts [`OWNER_DIED`] in their place. Mutexes between processes are made of that, and it is how a process that can make no
//! system call any more hears of the end of another.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use super::{Result, check};

/// What the kernel puts in the place of a thread's id when that thread has ended, `FUTEX_OWNER_DIED`.
pub const OWNER_DIED: u32 = 0x4000_0000;

/// No thread has this id: the greatest there can be is 2²², `include/linux/threads.h`.
pub const NO_THREAD: u32 = 0x3fff_ffff;

/// How many bytes of a file are mapped.
pub const LENGTH: usize = 4096;

/// The page.
#[derive(Debug)]
#[repr(C)]
struct Page {
    /// `struct robust_list_head`, in here so that it is there as long as the words are, whatever memory is taken from the
    /// thread when it ends: the first entry, how far from an entry its word is, and the entry that is being added.
    head: [AtomicUsize; 3],
    /// The only entry, `struct robust_list`: the next one.
    entry: AtomicUsize,
    words: Words,
}

/// The words. Both are 0 in the beginning.
#[derive(Debug)]
#[repr(C)]
pub struct Words {
    /// Of the one that watches; see [`Shared::watch`].
    pub watcher: AtomicU32,
    /// Of the one that is watched.
    pub watched: AtomicU32,
}

/// A mapping of such a page. A child has it too; a program that is executed does not.
#[derive(Debug)]
pub struct Shared {
    page: NonNull<Page>,
}

impl Shared {
    /// The first page of a file, which has [`LENGTH`] bytes; without one, a new page that children will share.
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
        // SAFETY: the mapping is aligned, longer than a `Page` and lives as long as `self`; any bytes are valid atomics, and
        // what other processes write there they write atomically.
        unsafe { self.page.as_ref() }
    }

    /// The words.
    pub fn words(&self) -> &Words {
        &self.page().words
    }

    /// Puts this thread's id into the watcher's word, and makes the kernel replace it by [`OWNER_DIED`] when this thread
    /// ends. A thread watches one page at a time, and nothing that has robust mutexes of the C library's.
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
        // Nobody else here has such a list: there are no mutexes between processes.
        let _ = set_robust_list(std::ptr::null());
        // SAFETY: the mapping is ours, and nothing refers to it any more: neither the kernel nor, as this drops, `words`.
        unsafe { libc::munmap(self.page.as_ptr().cast(), LENGTH) };
    }
}

fn set_robust_list(head: *const AtomicUsize) -> Result<()> {
    // SAFETY: the head and all it leads to stay mapped until `Shared` takes the list back; it is read when the thread ends.
    check(unsafe { libc::syscall(libc::SYS_set_robust_list, head, size_of::<[usize; 3]>()) }).map(drop)
}

/// Ends this process without a system call, which a filter might refuse: by an instruction that does not exist. It works for
/// the first process of a pid namespace as well.
pub fn die() -> ! {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: never comes back.
    unsafe {
        std::arch::asm!("ud2", options(noreturn))
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: never comes back.
    unsafe {
        std::arch::asm!("udf #0", options(noreturn))
    }
}

#[cfg(test)]
mod tests {
    use super::super::clone::{Cloned, clone3};
    use super::super::process;
    use super::*;

    /// What is in the watcher's word when a process that did this has been killed.
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
    fn the_end_of_who_watches_is_in_its_word() {
        let shared = Shared::map(None).unwrap();
        assert_eq!(shared.words().watcher.load(Ordering::SeqCst), 0);
        assert_eq!(left(&shared, || shared.watch().unwrap()), OWNER_DIED);
        // A word with anything else in it stays as it is.
        let answer = || {
            shared.watch().unwrap();
            shared.words().watcher.store(NO_THREAD, Ordering::SeqCst);
        };
        assert_eq!(left(&shared, answer), NO_THREAD);
        // And one that is not watched any more.
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
    fn what_dies_has_died_of_it() {
        let pid = match clone3(0, None).unwrap() {
            Cloned::Child => {
                let _ = process::set_dumpable(false); // no core
                die()
            }
            Cloned::Parent { pid, .. } => pid,
        };
        assert!(libc::WIFSIGNALED(process::wait4(pid).unwrap().0));
    }
}
