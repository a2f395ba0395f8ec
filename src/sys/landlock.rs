//! Landlock, `landlock(7)`.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use super::{Result, check, check_fd};

const VERSION: libc::c_uint = 1; // LANDLOCK_CREATE_RULESET_VERSION

/// The kernel's ABI, from 1 on. `ENOSYS`: the kernel has no Landlock. `EOPNOTSUPP`: it was not enabled at boot.
pub fn abi() -> Result<u32> {
    let no_rules: *const libc::c_void = std::ptr::null();
    // SAFETY: with this flag the kernel reads no structure.
    check(unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, no_rules, 0usize, VERSION) }).map(|abi| abi as u32)
}

/// A ruleset that handles these file system rights, and so denies them unless a rule allows them.
pub fn create_ruleset(handled_access_fs: u64) -> Result<OwnedFd> {
    // The structure of ABI 1 has only this field. Later kernels accept the shorter structure.
    // SAFETY: the structure is a live local of the given size.
    check_fd(unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            &raw const handled_access_fs,
            size_of_val(&handled_access_fs),
            0 as libc::c_uint,
        )
    })
}

/// `struct landlock_path_beneath_attr`.
#[repr(C, packed)]
struct PathBeneath {
    allowed_access: u64,
    parent_fd: i32,
}

/// Allows these file system rights on a file, or on a directory and everything below it, `landlock_add_rule(2)`.
pub fn allow_beneath(ruleset: impl AsFd, file: impl AsFd, allowed_access: u64) -> Result<()> {
    const PATH_BENEATH: libc::c_int = 1; // LANDLOCK_RULE_PATH_BENEATH
    let rule = PathBeneath { allowed_access, parent_fd: file.as_fd().as_raw_fd() };
    let (ruleset, rule) = (ruleset.as_fd().as_raw_fd(), &raw const rule);
    // SAFETY: two open descriptors, and a live local with the layout of this rule type.
    check(unsafe { libc::syscall(libc::SYS_landlock_add_rule, ruleset, PATH_BENEATH, rule, 0 as libc::c_uint) })
        .map(drop)
}

/// `LANDLOCK_RESTRICT_SELF_LOG_SAME_EXEC_OFF` and `LANDLOCK_RESTRICT_SELF_LOG_NEW_EXEC_ON`: denials are logged only for
/// programs that are executed from now on. Since ABI 7.
pub const LOG_NEW_PROGRAMS: u32 = 1 | 2;

/// Enforces a ruleset on this thread and its future children. Requires `no_new_privs`.
pub fn restrict_self(ruleset: impl AsFd, flags: u32) -> Result<()> {
    // SAFETY: an open descriptor and a plain number.
    check(unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset.as_fd().as_raw_fd(), flags) }).map(drop)
}
