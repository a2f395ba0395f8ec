//! Determines which directories of the host other users can change.

use std::cell::OnceCell;
use std::ffi::CString;
use std::os::fd::{AsRawFd as _, BorrowedFd};

use nix::errno::Errno;
use nix::sys::stat::FileStat;

use crate::sys::{file, file::attribute_length};

/// Why a directory is not trusted.
#[derive(Clone, Copy, Debug)]
pub enum Why {
    /// This user owns it.
    Owner(u32),
    /// This group can write it.
    Group(u32),
    /// Every user can write it.
    World,
    /// Its file system is served by a program (FUSE), which can claim any owner.
    Served,
    /// It is mounted in a directory that others can write.
    MountedInShared,
    /// The workload of this run can write it.
    Workload,
}

/// How far a directory is trusted.
#[derive(Clone, Copy, Debug)]
pub enum DirectoryTrust {
    /// Links, `..` and mounts are followed.
    Trusted,
    /// No link is followed. Other users cannot replace entries of root and the caller.
    Shared(Why),
    /// Nothing is followed.
    Foreign(Why),
}

/// Distinguishes the caller's files from those of other users.
#[derive(Debug)]
pub struct Trust {
    /// The caller's user ids.
    caller: [u32; 2],
    /// Whether the ids of other users cannot be distinguished in this user namespace.
    unmapped: OnceCell<bool>,
}

impl Trust {
    /// For the user of this process.
    pub fn of_caller() -> Self {
        let caller = [nix::unistd::geteuid().as_raw(), nix::unistd::getuid().as_raw()];
        Self { caller, unmapped: OnceCell::new() }
    }

    fn is_trusted(&self, uid: u32) -> bool {
        uid == 0 || self.caller.contains(&uid) || (uid == OVERFLOW && *self.unmapped.get_or_init(overflow_is_unmapped))
    }

    /// Classifies a directory, if all directories above it are trusted.
    pub fn classify(&self, directory: BorrowedFd<'_>, stat: &FileStat) -> DirectoryTrust {
        let why = if !self.is_trusted(stat.st_uid) {
            return DirectoryTrust::Foreign(Why::Owner(stat.st_uid));
        } else if stat.st_mode & libc::S_IWOTH != 0 {
            Why::World
        } else if stat.st_mode & libc::S_IWGRP != 0 && !self.is_private(directory, stat) {
            Why::Group(stat.st_gid)
        } else {
            return DirectoryTrust::Trusted;
        };
        if stat.st_mode & libc::S_ISVTX != 0 { DirectoryTrust::Shared(why) } else { DirectoryTrust::Foreign(why) }
    }

    /// Whether the writing group is the caller's private group, with the number of the user id, as many systems create one per
    /// user. With an access control list the group bits are its mask, and the list may name other users.
    fn is_private(&self, directory: BorrowedFd<'_>, stat: &FileStat) -> bool {
        let listed = || {
            let path = CString::new(format!("/proc/self/fd/{}", directory.as_raw_fd())).expect("digits hold no NUL");
            attribute_length(&path, c"system.posix_acl_access")
        };
        self.caller.contains(&stat.st_gid) && matches!(listed(), Err(Errno::ENODATA | Errno::EOPNOTSUPP))
    }
}

/// The id that `stat(2)` shows for users without a mapping in this user namespace.
const OVERFLOW: u32 = 65_534;

/// Whether this user namespace lacks that id. Then all unmapped users look alike, the host's root among them. They count as
/// root, because otherwise no directory could be trusted.
fn overflow_is_unmapped() -> bool {
    let covers = |line: &str| {
        let numbers: Vec<u64> = line.split_ascii_whitespace().filter_map(|word| word.parse().ok()).collect();
        matches!(numbers[..], [first, _, count] if (first..first.saturating_add(count)).contains(&OVERFLOW.into()))
    };
    file::read_text("/proc/self/uid_map").is_ok_and(|map| !map.lines().any(covers))
}
