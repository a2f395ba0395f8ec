//! Processes and their attributes: pidfds, waiting, `prctl(2)`, keyrings, signals, `execve(2)`.

use std::ffi::{CStr, CString};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use super::seccomp::UNOBSERVED;
use super::{Result, check};

/// Whether this process is the host's root, and not only root of a user namespace, as under rootless engines. There `/run`,
/// cgroups and devices belong to another user, `user_namespaces(7)`.
pub fn is_hosts_root() -> bool {
    let map = super::file::read_text("/proc/self/uid_map").unwrap_or_default();
    nix::unistd::geteuid().is_root() && (map.is_empty() || map.split_whitespace().eq(["0", "0", "4294967295"]))
}

/// Opens a pidfd, `pidfd_open(2)`. The caller must know that the id still belongs to the intended process.
pub fn pidfd_open(pid: Pid) -> Result<OwnedFd> {
    // SAFETY: plain numbers.
    super::check_fd(unsafe { libc::syscall(libc::SYS_pidfd_open, pid.as_raw(), 0) })
}

/// Sends a signal to a pidfd's process, `pidfd_send_signal(2)`.
pub fn pidfd_send_signal(pidfd: BorrowedFd<'_>, signal: libc::c_int) -> Result<()> {
    let no_info: *const libc::siginfo_t = std::ptr::null();
    // SAFETY: with a null siginfo the kernel fills it as for kill(2).
    check(unsafe { libc::syscall(libc::SYS_pidfd_send_signal, pidfd.as_raw_fd(), signal, no_info, 0) }).map(drop)
}

/// Kills and reaps a child that is not reaped yet.
pub fn end_child(pidfd: BorrowedFd<'_>, pid: Pid) {
    kill(pidfd, pid);
    let _ = wait4(pid);
}

/// Kills a sibling that is not reaped yet, and waits until it has ended.
pub fn end_sibling(pidfd: BorrowedFd<'_>, pid: Pid) {
    kill(pidfd, pid);
    let mut ended = [PollFd::new(pidfd, PollFlags::POLLIN)];
    while poll(&mut ended, PollTimeout::NONE) == Err(Errno::EINTR) {}
}

/// If a filter around us refuses pidfd_send_signal, kill(2) serves: the unreaped process still owns its id.
fn kill(pidfd: BorrowedFd<'_>, pid: Pid) {
    if pidfd_send_signal(pidfd, libc::SIGKILL).is_err() {
        let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL);
    }
}

/// Reaps all children that have ended.
pub fn reap_ended() {
    while matches!(waitpid(None, Some(WaitPidFlag::WNOHANG)), Ok(status) if status != WaitStatus::StillAlive) {}
}

/// Reaps an ended child and returns the resource usage of the child and its reaped children, `wait4(2)`.
///
/// The status is as `wait(2)` encodes it.
pub fn wait4(pid: Pid) -> Result<(libc::c_int, libc::rusage)> {
    let mut status = 0;
    // SAFETY: all-zero is a valid rusage.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    loop {
        // SAFETY: both pointers are to live locals.
        match check(unsafe { libc::wait4(pid.as_raw(), &raw mut status, 0, &raw mut usage) }.into()) {
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno),
            Ok(_) => return Ok((status, usage)),
        }
    }
}

/// Ends this process at once, without destructors and flushing. Under a filter that refuses even that, an undefined
/// instruction ends it: the C library would repeat the call for ever.
pub fn exit(code: libc::c_int) -> ! {
    for call in [libc::SYS_exit_group, libc::SYS_exit] {
        // SAFETY: accesses none of our memory, and returns only if a filter refuses it.
        unsafe { libc::syscall(call, code) };
    }
    super::shared::die()
}

/// A NULL-terminated array of C strings, as `execve(2)` takes it.
#[derive(Debug)]
pub struct CStringArray {
    strings: Vec<CString>,
    pointers: Vec<*const libc::c_char>,
}

impl From<Vec<CString>> for CStringArray {
    fn from(strings: Vec<CString>) -> Self {
        let pointers = strings.iter().map(|text| text.as_ptr()).chain([std::ptr::null()]).collect();
        Self { strings, pointers }
    }
}

impl CStringArray {
    /// A copy with one more string.
    pub fn with(&self, last: CString) -> Self {
        self.strings.iter().cloned().chain([last]).collect::<Vec<_>>().into()
    }

    /// The strings.
    pub fn strings(&self) -> &[CString] {
        &self.strings
    }

    /// The pointer for system calls.
    pub(super) fn as_ptr(&self) -> *const *const libc::c_char {
        self.pointers.as_ptr()
    }
}

/// Executes another program. Returns only on failure.
///
/// Its last register, which the call does not use, says that a listener need not see it: nobody reads the listener yet.
pub fn execve(path: &CStr, argv: &CStringArray, env: &CStringArray) -> Errno {
    let (path, argv, env) = (path.as_ptr(), argv.pointers.as_ptr(), env.pointers.as_ptr());
    let (none, unobserved): (libc::c_long, libc::c_long) = (0, UNOBSERVED.into());
    // SAFETY: path is NUL-terminated; both arrays are NULL-terminated and point into strings they own.
    unsafe { libc::syscall(libc::SYS_execve, path, argv, env, none, none, unobserved) };
    Errno::last()
}

/// Sets close-on-exec on every descriptor from `first` on, `close_range(2)`.
pub fn cloexec_from(first: RawFd) -> Result<()> {
    let flags = libc::CLOSE_RANGE_CLOEXEC;
    // SAFETY: closes nothing now; plain numbers.
    check(unsafe { libc::syscall(libc::SYS_close_range, first, libc::c_uint::MAX, flags) }).map(drop)
}

/// Closes every descriptor from `first` on, except `kept`.
///
/// Only for a process that never returns to code that owns one of the others.
pub fn close_but(mut first: RawFd, kept: &mut [RawFd]) -> Result<()> {
    kept.sort_unstable();
    for fd in kept {
        if first < *fd {
            close_range(first, *fd - 1)?;
        }
        first = first.max(*fd + 1);
    }
    close_range(first, RawFd::MAX)
}

fn close_range(first: RawFd, last: RawFd) -> Result<()> {
    // SAFETY: the caller (a child between clone3 and its end) uses none of them again.
    check(unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) }).map(drop)
}

/// Closes every descriptor from `first` on.
///
/// Only for a process that never returns to code that owns one of them.
pub fn close_from(first: RawFd) -> Result<()> {
    close_range(first, RawFd::MAX)
}

/// `dup2(2)` onto a descriptor number. The result stays open across execve.
pub fn dup_onto(from: BorrowedFd<'_>, to: RawFd) -> Result<()> {
    if from.as_raw_fd() == to {
        // SAFETY: plain numbers; clears close-on-exec, which dup2 onto the same number would not.
        return check(unsafe { libc::fcntl(to, libc::F_SETFD, 0) }.into()).map(drop);
    }
    // SAFETY: plain numbers; in a child no code owns the old descriptor `to`.
    check(unsafe { libc::dup2(from.as_raw_fd(), to) }.into()).map(drop)
}

/// Makes a descriptor refer to another open file, close-on-exec. Its previous file is closed.
pub fn replace(by: BorrowedFd<'_>, fd: BorrowedFd<'_>) -> Result<()> {
    // SAFETY: both are open. The number stays open, and its owner closes it as before.
    check(unsafe { libc::dup3(by.as_raw_fd(), fd.as_raw_fd(), libc::O_CLOEXEC) }.into()).map(drop)
}

/// `prctl(2)` with an option that takes plain numbers.
pub(super) fn prctl(option: libc::c_int, a: u64, b: u64) -> Result<libc::c_int> {
    // SAFETY: only used with options whose arguments are plain numbers.
    check(unsafe { libc::prctl(option, a, b, 0u64, 0u64) }.into()).map(|value| value as libc::c_int)
}

/// Sets the signal that this process receives when its parent dies, `PR_SET_PDEATHSIG`.
pub fn set_parent_death_signal(signal: libc::c_int) -> Result<()> {
    prctl(libc::PR_SET_PDEATHSIG, signal as u64, 0).map(drop)
}

/// Sets the name of this thread in `ps`, `PR_SET_NAME`.
pub fn set_name(name: &CStr) -> Result<()> {
    // SAFETY: the kernel reads at most 16 bytes of a NUL-terminated string.
    check(unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr(), 0u64, 0u64, 0u64) }.into()).map(drop)
}

/// Sets whether this process's own user can read and trace it and owns its files in /proc, `PR_SET_DUMPABLE`.
pub fn set_dumpable(dumpable: bool) -> Result<()> {
    prctl(libc::PR_SET_DUMPABLE, dumpable.into(), 0).map(drop)
}

/// From now on no execve grants privileges, `PR_SET_NO_NEW_PRIVS`.
pub fn set_no_new_privs() -> Result<()> {
    prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0).map(drop)
}

/// `PR_GET_NO_NEW_PRIVS`.
pub fn no_new_privs() -> Result<bool> {
    prctl(libc::PR_GET_NO_NEW_PRIVS, 0, 0).map(|value| value == 1)
}

/// Replaces the session keyring with a new, empty, anonymous one, `keyctl(2)`.
pub fn join_new_session_keyring() -> Result<()> {
    let anonymous: *const libc::c_char = std::ptr::null();
    // SAFETY: a null name requests an anonymous keyring.
    check(unsafe { libc::syscall(libc::SYS_keyctl, libc::KEYCTL_JOIN_SESSION_KEYRING, anonymous) }).map(drop)
}

/// Sets whether this process adopts the orphans among its descendants, `PR_SET_CHILD_SUBREAPER`.
pub fn adopt_orphans(adopt: bool) -> Result<()> {
    prctl(libc::PR_SET_CHILD_SUBREAPER, adopt.into(), 0).map(drop)
}

/// A write to a pipe without a reader fails instead of killing this process.
pub fn ignore_broken_pipes() {
    // SAFETY: SIG_IGN installs no handler.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
}

/// Undoes [`ignore_broken_pipes`].
pub fn default_broken_pipes() -> Result<()> {
    // SAFETY: SIG_DFL installs no handler.
    let before = unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    if before == libc::SIG_ERR { Err(Errno::last()) } else { Ok(()) }
}

/// Resets all signal dispositions to the default and unblocks all signals.
pub fn reset_signals() -> Result<()> {
    for signal in 1..=64 {
        let default = [0u64; 4]; // the kernel's struct sigaction: SIG_DFL, no flags, no restorer, an empty mask
        let old: *mut u64 = std::ptr::null_mut();
        // SAFETY: SIG_DFL installs no handler. The raw call also resets the two signals that glibc reserves.
        match check(unsafe { libc::syscall(libc::SYS_rt_sigaction, signal, default.as_ptr(), old, 8) }) {
            Err(Errno::EINVAL) => {} // SIGKILL and SIGSTOP, whose disposition never changes
            reset => drop(reset?),
        }
    }
    let empty: u64 = 0;
    let old: *mut u64 = std::ptr::null_mut();
    // SAFETY: the kernel's set is 8 bytes; the raw call also unblocks the two signals that glibc reserves.
    check(unsafe { libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, &raw const empty, old, 8) }).map(drop)
}

/// Blocks all signals.
pub fn block_signals() -> Result<()> {
    let full: u64 = u64::MAX;
    let old: *mut u64 = std::ptr::null_mut();
    // SAFETY: the kernel's set is 8 bytes.
    check(unsafe { libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, &raw const full, old, 8) }).map(drop)
}

/// Sets a resource limit of this or another process, `prlimit(2)`.
pub fn set_rlimit(pid: Option<Pid>, resource: u32, soft: u64, hard: u64) -> Result<()> {
    let limit = libc::rlimit64 { rlim_cur: soft, rlim_max: hard };
    let old: *mut libc::rlimit64 = std::ptr::null_mut();
    // SAFETY: the new limit is a live local; the old one is not requested.
    check(unsafe { libc::syscall(libc::SYS_prlimit64, pid.map_or(0, Pid::as_raw), resource, &raw const limit, old) })
        .map(drop)
}

/// This process's soft and hard limit.
pub fn rlimit(resource: u32) -> Result<(u64, u64)> {
    let mut limit = libc::rlimit64 { rlim_cur: 0, rlim_max: 0 };
    let new: *const libc::rlimit64 = std::ptr::null();
    // SAFETY: the old limit is a live local; no new one is set.
    check(unsafe { libc::syscall(libc::SYS_prlimit64, 0, resource, new, &raw mut limit) })?;
    Ok((limit.rlim_cur, limit.rlim_max))
}

/// Waits for a blocked signal and consumes it, `sigwaitinfo(2)`.
pub fn wait_signal() -> Result<libc::c_int> {
    let full: u64 = u64::MAX;
    let (info, timeout): (*mut libc::siginfo_t, *const libc::timespec) = (std::ptr::null_mut(), std::ptr::null());
    // SAFETY: the kernel's set is 8 bytes; neither information nor a timeout is passed.
    check(unsafe { libc::syscall(libc::SYS_rt_sigtimedwait, &raw const full, info, timeout, 8) })
        .map(|signal| signal as libc::c_int)
}

/// A child's event, from [`peek_child`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChildEvent {
    /// It has ended and is a zombie until [`reap`]ed. The status is as `wait(2)` encodes it.
    Ended(Pid, libc::c_int),
    /// It requested to be traced by this process, and is stopped.
    Traced(Pid),
}

/// Finds a child that has ended or is in a ptrace stop, without blocking and without reaping it.
pub fn peek_child() -> Result<Option<ChildEvent>> {
    loop {
        // SAFETY: all-zero is a valid siginfo, and its pid stays zero if there is no event.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        let flags = libc::WEXITED | libc::WSTOPPED | libc::WNOHANG | libc::__WALL | libc::WNOWAIT;
        // SAFETY: `info` is a live local.
        check(unsafe { libc::waitid(libc::P_ALL, 0, &raw mut info, flags) }.into())?;
        // SAFETY: waitid fills the child fields, or leaves them zero.
        let (pid, code) = unsafe { (Pid::from_raw(info.si_pid()), info.si_status()) };
        return Ok(match info.si_code {
            _ if pid.as_raw() == 0 => None,
            libc::CLD_EXITED => Some(ChildEvent::Ended(pid, (code & 0xff) << 8)),
            libc::CLD_KILLED => Some(ChildEvent::Ended(pid, code & 0x7f)),
            libc::CLD_DUMPED => Some(ChildEvent::Ended(pid, code & 0x7f | 0x80)),
            libc::CLD_TRAPPED => Some(ChildEvent::Traced(pid)),
            _ => {
                consume_stop(pid); // it hides the end of another child
                continue;
            }
        });
    }
}

/// Consumes a job-control stop, so that it is not reported again.
fn consume_stop(pid: Pid) {
    let info: *mut libc::siginfo_t = std::ptr::null_mut();
    // SAFETY: no information is requested.
    unsafe {
        libc::waitid(libc::P_PID, pid.as_raw() as libc::id_t, info, libc::WSTOPPED | libc::WNOHANG | libc::__WALL)
    };
}

/// Reaps one ended child.
pub fn reap(pid: Pid) -> Result<()> {
    let info: *mut libc::siginfo_t = std::ptr::null_mut();
    let flags = libc::WEXITED | libc::WNOHANG | libc::__WALL;
    // SAFETY: no information is requested.
    check(unsafe { libc::waitid(libc::P_PID, pid.as_raw() as libc::id_t, info, flags) }.into()).map(drop)
}

/// The resource usage of an ended child that is not reaped yet, and of its reaped children, `waitid(2)`. The C library leaves this
/// argument out.
pub fn usage_of_ended(pid: Pid) -> Result<libc::rusage> {
    let info: *mut libc::siginfo_t = std::ptr::null_mut();
    let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT | libc::__WALL;
    // SAFETY: all-zero is a valid rusage.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: no information is requested, and `usage` is a live local.
    check(unsafe { libc::syscall(libc::SYS_waitid, libc::P_PID, pid.as_raw(), info, flags, &raw mut usage) })?;
    Ok(usage)
}

/// Detaches a tracee, which continues untraced, `PTRACE_DETACH`.
pub fn detach_tracee(pid: Pid) -> Result<()> {
    let none: *mut libc::c_void = std::ptr::null_mut();
    // SAFETY: PTRACE_DETACH takes no pointers.
    check(unsafe { libc::ptrace(libc::PTRACE_DETACH, pid.as_raw(), none, none) }).map(drop)
}

/// Sends a signal to a process that this one has not reaped, `kill(2)`.
pub fn send_signal(pid: Pid, signal: libc::c_int) -> Result<()> {
    // SAFETY: plain numbers.
    check(unsafe { libc::kill(pid.as_raw(), signal) }.into()).map(drop)
}

/// Sends a signal to every process in a group, `kill(2)`.
pub fn kill_group(group: Pid, signal: libc::c_int) -> Result<()> {
    // SAFETY: plain numbers.
    check(unsafe { libc::kill(-group.as_raw(), signal) }.into()).map(drop)
}

/// Creates a cgroup namespace with this process's cgroup as its root, `unshare(CLONE_NEWCGROUP)`.
pub fn unshare_cgroup() -> Result<()> {
    // SAFETY: only changes how cgroup paths are shown to this process.
    check(unsafe { libc::unshare(libc::CLONE_NEWCGROUP) }.into()).map(drop)
}

/// Creates the time namespace that later children enter, `unshare(CLONE_NEWTIME)`.
pub fn unshare_time() -> Result<()> {
    // SAFETY: only changes the time namespace of later children.
    check(unsafe { libc::unshare(libc::CLONE_NEWTIME) }.into()).map(drop)
}

/// Whether this process ignores a signal, `sigaction(2)`.
pub fn is_ignored(signal: libc::c_int) -> bool {
    // SAFETY: all-zero is a valid sigaction, which the kernel overwrites; nothing is changed.
    unsafe {
        let mut current: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &raw mut current) == 0 && current.sa_sigaction == libc::SIG_IGN
    }
}

/// Sets SIGCHLD to its default disposition. If the caller's ignored it, no child could be waited for.
pub fn default_child_signal() {
    // SAFETY: SIG_DFL installs no handler.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
}

/// Descriptor 0, 1 or 2, which stays open until the process ends.
pub fn borrow_standard(number: RawFd) -> BorrowedFd<'static> {
    assert!((0..=2).contains(&number));
    // SAFETY: closed standard descriptors are opened as /dev/null at start, and no code closes them.
    unsafe { BorrowedFd::borrow_raw(number) }
}
