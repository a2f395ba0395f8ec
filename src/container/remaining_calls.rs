//! When the filter is installed: early, if the profile allows the few calls that remain; otherwise last.
//!
//! An early filter protects more: the process is completely confined before another process can see it, and the runtime
//! verifies everything at once. A profile that refuses one of these calls would break the start. Then the filter is installed
//! as the last step before execve, and the process polls shared memory afterwards ([`super::filter_handshake`]).

use crate::confine::seccomp::install::{KnownCall, PreparedSeccomp};
use crate::plan::ContainerPlan;
use crate::sys::clone::SIBLING_FLAGS;

/// Waiting for "go" and for `start`, reporting "ready" or a failure, freeing memory and descriptors.
const ALWAYS: &[KnownCall] = &[
    KnownCall(libc::SYS_read, &[]),
    KnownCall(libc::SYS_write, &[]),
    KnownCall(libc::SYS_close, &[]),
    KnownCall(libc::SYS_fcntl, &[(1, libc::F_GETFD as u64)]), // with debug assertions, before close(2)
    KnownCall(libc::SYS_munmap, &[]),
    KnownCall(libc::SYS_mmap, &[]),
    KnownCall(libc::SYS_exit_group, &[]),
];

/// Giving up `CAP_SYS_ADMIN`, which installing a filter requires without `no_new_privs`.
const LOWERING: &[KnownCall] = &[KnownCall(libc::SYS_capset, &[])];

/// Sending the listener.
const LISTENING: &[KnownCall] = &[KnownCall(libc::SYS_sendmsg, &[])];

/// Creating the process in a joined pid namespace, reporting it, starting its session.
const JOINING: &[KnownCall] = &[
    KnownCall(libc::SYS_clone, &[(0, SIBLING_FLAGS)]),
    KnownCall(libc::SYS_sendmsg, &[]),
    KnownCall(libc::SYS_setsid, &[]),
];
const LIMITING: &[KnownCall] = &[KnownCall(libc::SYS_prlimit64, &[(0, 0)])];
const TAKING_TERMINAL: &[KnownCall] = &[KnownCall(libc::SYS_ioctl, &[(0, 0), (1, libc::TIOCSCTTY as u64), (2, 0)])];

/// `startContainer` hooks. The standard library creates their processes.
const HOOKS: &[KnownCall] = &[
    #[cfg(target_arch = "x86_64")]
    KnownCall(libc::SYS_fork, &[]),
    #[cfg(target_arch = "x86_64")]
    KnownCall(libc::SYS_dup2, &[]),
    #[cfg(target_arch = "x86_64")]
    KnownCall(libc::SYS_poll, &[]),
    #[cfg(target_arch = "x86_64")]
    KnownCall(libc::SYS_open, &[]),
    KnownCall(libc::SYS_clone, &[(0, (libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD) as u64)]),
    KnownCall(libc::SYS_clone, &[(0, libc::SIGCHLD as u64)]),
    KnownCall(libc::SYS_dup3, &[]),
    KnownCall(libc::SYS_execve, &[]),
    KnownCall(libc::SYS_fcntl, &[]),
    KnownCall(libc::SYS_fstat, &[]),
    KnownCall(libc::SYS_fstatfs, &[]),
    KnownCall(libc::SYS_getpid, &[]),
    KnownCall(libc::SYS_gettid, &[]),
    KnownCall(libc::SYS_kill, &[]),
    KnownCall(libc::SYS_lseek, &[]),
    KnownCall(libc::SYS_memfd_create, &[]),
    KnownCall(libc::SYS_openat, &[]),
    KnownCall(libc::SYS_openat2, &[]),
    KnownCall(libc::SYS_pidfd_open, &[]),
    KnownCall(libc::SYS_pipe2, &[]),
    KnownCall(libc::SYS_ppoll, &[]),
    KnownCall(libc::SYS_prctl, &[]),
    KnownCall(libc::SYS_rt_sigaction, &[]),
    KnownCall(libc::SYS_rt_sigprocmask, &[]),
    KnownCall(libc::SYS_setpgid, &[]),
    KnownCall(libc::SYS_wait4, &[]),
    KnownCall(libc::SYS_waitid, &[]),
];

/// Whether the filter can be installed early. `joins` means that an intermediate process confines itself and creates the
/// container's process afterwards; `limits`, that the container's process sets resource limits.
pub fn are_allowed(seccomp: &PreparedSeccomp, plan: &ContainerPlan, joins: bool, limits: bool) -> bool {
    let hooks = !plan.hooks.start_container.is_empty();
    if hooks && plan.process.no_new_privs && plan.confinement.landlock.is_some() {
        return false; // Landlock comes before an early filter, and must not restrict hooks
    }
    let parts = [
        (true, ALWAYS),
        (!plan.process.no_new_privs, LOWERING),
        (seccomp.listens(), LISTENING),
        (joins, JOINING),
        (joins && limits, LIMITING),
        (joins && plan.process.terminal, TAKING_TERMINAL),
        (hooks, HOOKS),
    ];
    seccomp.lets_through(parts.into_iter().filter(|(needed, _)| *needed).flat_map(|(_, calls)| calls))
}
