//! Landlock, `landlock(7)`.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use super::{Result, check, check_fd};

const VERSION: libc::c_uint = 1; // LANDLOCK_CREATE_RULESET_VERSION

/// The ABI the kernel offers, from 1 on. `ENOSYS`: the kernel has no Landlock; `EOPNOTSUPP`: it was not enabled at boot.
pub fn abi() -> Result<u32> {
    let no_rules: *const libc::c_void = std::ptr::null();
    // SAFETY: with this flag the kernel takes no structure.
    check(unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, no_rules, 0usize, VERSION) }).map(|abi| abi as u32)
}

/// A ruleset that handles these file system rights, and so denies them wherever no rule is added that allows them.
pub fn create_ruleset(handled_access_fs: u64) -> Result<OwnedFd> {
    // ABI 1's structure is this one field; later kernels take the shorter structure.
    // SAFETY: the structure is a live local of the size given.
    check_fd(unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            &raw const handled_access_fs,
            size_of_val(&handled_access_fs),
            0 as libc::c_uint,
        )
    })
}

/// Enforces a ruleset on this thread and all it will start. Needs `no_new_privs`.
pub fn restrict_self(ruleset: impl AsFd) -> Result<()> {
    // SAFETY: an open descriptor and a plain number.
    check(unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset.as_fd().as_raw_fd(), 0 as libc::c_uint) })
        .map(drop)
}
