//! System call filters, `seccomp(2)`.

use super::{Result, check};

/// Whether the kernel knows this filter action (`SECCOMP_RET_*`, without data). `EOPNOTSUPP` if it does not.
pub fn action_available(action: u32) -> Result<()> {
    let none: libc::c_uint = 0;
    // SAFETY: the kernel reads the action, a live local.
    check(unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_GET_ACTION_AVAIL, none, &raw const action) })
        .map(drop)
}

/// Sizes in bytes of the kernel's user-notification structures: notification, response, system call data.
pub fn notification_sizes() -> Result<[u16; 3]> {
    let mut sizes = [0u16; 3];
    let none: libc::c_uint = 0;
    // SAFETY: struct seccomp_notif_sizes is three 16-bit numbers, which a live local has room for.
    check(unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_GET_NOTIF_SIZES, none, sizes.as_mut_ptr()) })?;
    Ok(sizes)
}

/// Adds a classic BPF filter to this thread and all it will start, with the flags of `seccomp(2)`. Needs `no_new_privs` or
/// CAP_SYS_ADMIN. At most 4,096 instructions.
pub fn set_filter(program: &[libc::sock_filter], flags: u32) -> Result<()> {
    let Ok(len) = u16::try_from(program.len()) else { return Err(nix::errno::Errno::EINVAL) };
    let program = libc::sock_fprog { len, filter: program.as_ptr().cast_mut() };
    // SAFETY: `program` has the length given and outlives the call, and the kernel only reads it.
    check(unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const program) })
        .map(drop)
}
