//! System call filters, `seccomp(2)`.

use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use nix::errno::Errno;

use super::{Result, check, check_fd};

/// What our own execve has in the last register, which the call does not use: a filter that observes calls lets it pass, because nobody
/// reads the listener yet. A workload that does the same is not observed either, and gains nothing else.
pub const UNOBSERVED: u32 = 0x5354_4b44;

/// Whether the kernel supports this filter action (`SECCOMP_RET_*`, without data). `EOPNOTSUPP` if it does not.
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
    // SAFETY: struct seccomp_notif_sizes consists of three 16-bit numbers, for which a live local has room.
    check(unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_GET_NOTIF_SIZES, none, sizes.as_mut_ptr()) })?;
    Ok(sizes)
}

/// Installs a classic BPF filter on this thread and its future children, with the flags of `seccomp(2)`. Requires
/// `no_new_privs` or CAP_SYS_ADMIN. At most 4,096 instructions.
pub fn set_filter(program: &[libc::sock_filter], flags: u32) -> Result<()> {
    attach(program, flags.into()).map(drop)
}

/// As [`set_filter`], for a program that notifies a listener. Returns the listener, close-on-exec.
pub fn set_filter_with_listener(program: &[libc::sock_filter], flags: u32) -> Result<OwnedFd> {
    let fd = attach(program, libc::c_ulong::from(flags) | libc::SECCOMP_FILTER_FLAG_NEW_LISTENER)?;
    // SAFETY: with this flag the kernel has just created this descriptor for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

/// Takes the listener with this number from a pidfd's process, `pidfd_getfd(2)`. The caller must be permitted to trace that process.
pub fn take_listener(pidfd: BorrowedFd<'_>, number: RawFd) -> Result<OwnedFd> {
    // SAFETY: plain numbers.
    check_fd(unsafe { libc::syscall(libc::SYS_pidfd_getfd, pidfd.as_raw_fd(), number, 0) })
}

fn attach(program: &[libc::sock_filter], flags: libc::c_ulong) -> Result<libc::c_long> {
    let Ok(len) = u16::try_from(program.len()) else { return Err(Errno::EINVAL) };
    let program = libc::sock_fprog { len, filter: program.as_ptr().cast_mut() };
    // SAFETY: `program` has the given length and outlives the call, and the kernel only reads it.
    check(unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const program) })
}

/// A call that waits for its listener, `struct seccomp_notif`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Notification {
    /// The id for the response.
    pub id: u64,
    /// The calling thread in the listener's pid namespace; 0 if it is not visible there.
    pub pid: u32,
    flags: u32,
    /// The system call's number.
    pub number: u32,
    /// `AUDIT_ARCH_*` of the entry point.
    pub arch: u32,
    instruction_pointer: u64,
    /// The arguments.
    pub args: [u64; 6],
}

#[repr(C)]
struct Answer {
    id: u64,
    value: i64,
    error: i32,
    flags: u32,
}

/// `SECCOMP_IOCTL_NOTIF_RECV`, `SECCOMP_IOCTL_NOTIF_SEND` and `SECCOMP_IOCTL_NOTIF_ID_VALID`.
const RECEIVE: libc::Ioctl = 0xC050_2100_u32 as libc::Ioctl;
const SEND: libc::Ioctl = 0xC018_2101_u32 as libc::Ioctl;
const ID_VALID: libc::Ioctl = 0x4008_2102;
/// `SECCOMP_USER_NOTIF_FLAG_CONTINUE`.
const CONTINUE: u32 = 1;

/// Receives one waiting call, when the listener is readable. `ENOENT`: the caller is gone.
pub fn receive(listener: BorrowedFd<'_>) -> Result<Notification> {
    let mut notification = Notification::default(); // the kernel requires zeroes
    // SAFETY: the request contains the size of `notification`, a live local of plain numbers.
    check(unsafe { libc::ioctl(listener.as_raw_fd(), RECEIVE, &raw mut notification) }.into())?;
    Ok(notification)
}

/// Lets a call continue: the kernel makes it, with the registers of [`Notification`]. Only for what a filter has allowed by these
/// registers. What the caller's memory says may have changed since it was read. `ENOENT`: the caller is gone.
pub fn let_continue(listener: BorrowedFd<'_>, id: u64) -> Result<()> {
    answer(listener, Answer { id, value: 0, error: 0, flags: CONTINUE })
}

/// Lets a call fail with this error number. `ENOENT`: the caller is gone.
pub fn refuse(listener: BorrowedFd<'_>, id: u64, errno: i32) -> Result<()> {
    answer(listener, Answer { id, value: 0, error: -errno, flags: 0 })
}

fn answer(listener: BorrowedFd<'_>, answer: Answer) -> Result<()> {
    // SAFETY: the request contains the size of `answer`, a live local that the kernel only reads.
    check(unsafe { libc::ioctl(listener.as_raw_fd(), SEND, &raw const answer) }.into()).map(drop)
}

/// Whether the caller is still waiting. Then everything that was read from it since belongs to it.
pub fn is_waiting(listener: BorrowedFd<'_>, id: u64) -> bool {
    // SAFETY: the kernel reads the id, a live local.
    unsafe { libc::ioctl(listener.as_raw_fd(), ID_VALID, &raw const id) == 0 }
}
