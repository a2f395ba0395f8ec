//! Which directories of the host no other user can change.

use std::cell::OnceCell;
use std::ffi::CString;
use std::os::fd::{AsRawFd as _, BorrowedFd};

use nix::errno::Errno;
use nix::sys::stat::FileStat;

use crate::sys::file::attribute_length;

/// Why a directory is not trusted.
#[derive(Clone, Copy, Debug)]
pub enum Why {
    /// This user owns it.
    Owner(u32),
    /// This group can write it.
    Group(u32),
    /// Anyone can.
    World,
    /// A program serves its file system, and can claim any owner.
    Served,
    /// It is mounted in a directory that others can write.
    MountedInShared,
    /// The workload of this run can write it.
    Workload,
}

/// What may be followed in a directory.
#[derive(Clone, Copy, Debug)]
pub enum DirectoryTrust {
    /// Anything.
    Trusted,
    /// No link; but the entries of root and the caller cannot be replaced by others.
    Shared(Why),
    /// Nothing.
    Foreign(Why),
}

/// What tells the caller's files from those of others.
#[derive(Debug)]
pub struct Trust {
    /// The caller's user ids.
    caller: [u32; 2],
    /// Whether the ids of other users cannot be told apart here.
    unmapped: OnceCell<bool>,
}

impl Trust {
    /// For files of this process's user.
    pub fn of_caller() -> Self {
        let caller = [nix::unistd::geteuid().as_raw(), nix::unistd::getuid().as_raw()];
        Self { caller, unmapped: OnceCell::new() }
    }

    fn is_trusted(&self, uid: u32) -> bool {
        uid == 0 || self.caller.contains(&uid) || (uid == OVERFLOW && *self.unmapped.get_or_init(overflow_is_unmapped))
    }

    /// Whether a directory is trusted, if all above it are.
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

    /// Whether the group that may write is the caller's own, of the same number, as many systems give each user one. With an
    /// access control list these bits are its mask, and it can name anyone.
    fn is_private(&self, directory: BorrowedFd<'_>, stat: &FileStat) -> bool {
        let listed = || {
            let path = CString::new(format!("/proc/self/fd/{}", directory.as_raw_fd())).expect("digits hold no NUL");
            attribute_length(&path, c"system.posix_acl_access")
        };
        self.caller.contains(&stat.st_gid) && matches!(listed(), Err(Errno::ENODATA | Errno::EOPNOTSUPP))
    }
}

/// What `stat(2)` shows of a user that this user namespace does not know.
const OVERFLOW: u32 = 65_534;

/// Whether this user namespace lacks that id. Then all users that it does not know look the same, root of the host among them,
/// and count as root: nothing else could be trusted there.
fn overflow_is_unmapped() -> bool {
    let covers = |line: &str| {
        let numbers: Vec<u64> = line.split_ascii_whitespace().filter_map(|word| word.parse().ok()).collect();
        matches!(numbers[..], [first, _, count] if (first..first.saturating_add(count)).contains(&OVERFLOW.into()))
    };
    std::fs::read_to_string("/proc/self/uid_map").is_ok_and(|map| !map.lines().any(covers))
}
