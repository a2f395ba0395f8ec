//! Scheduling attributes and other settings that survive execve: `sched_setattr(2)`, `ioprio_set(2)`, `personality(2)`.

use nix::time::{ClockId, ClockNanosleepFlags, clock_nanosleep};

use super::{Result, check};

/// `struct sched_attr` up to its deadline part, `sched_setattr(2)`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// Filled in by [`set`].
    pub size: u32,
    /// `SCHED_*`.
    pub policy: u32,
    /// `SCHED_FLAG_*`.
    pub flags: u64,
    /// For `SCHED_OTHER` and `SCHED_BATCH`.
    pub nice: i32,
    /// For `SCHED_FIFO` and `SCHED_RR`.
    pub priority: u32,
    /// For `SCHED_DEADLINE`, nanoseconds.
    pub runtime: u64,
    /// For `SCHED_DEADLINE`, nanoseconds.
    pub deadline: u64,
    /// For `SCHED_DEADLINE`, nanoseconds.
    pub period: u64,
}

/// Sets the scheduling policy of a process; 0 means the caller.
pub fn set(pid: libc::pid_t, attributes: Attributes) -> Result<()> {
    let attributes = Attributes { size: size_of::<Attributes>() as u32, ..attributes };
    // SAFETY: the structure contains its own size, and the kernel only reads it.
    check(unsafe { libc::syscall(libc::SYS_sched_setattr, pid, &raw const attributes, 0) }).map(drop)
}

/// The scheduling policy and nice value of this process.
pub fn policy_and_nice() -> Result<(u32, i32)> {
    const PRIO_PROCESS: libc::c_int = 0;
    // SAFETY: plain numbers.
    let policy = check(unsafe { libc::syscall(libc::SYS_sched_getscheduler, 0) })?;
    // SAFETY: plain numbers. The kernel itself returns 20 minus the nice value, which is never negative.
    let rank = check(unsafe { libc::syscall(libc::SYS_getpriority, PRIO_PROCESS, 0) })?;
    Ok((policy as u32 & !(libc::SCHED_RESET_ON_FORK as u32), 20 - rank as i32))
}

/// This process's I/O class.
pub fn io_class() -> Result<u32> {
    const WHO_PROCESS: libc::c_int = 1;
    const CLASS_SHIFT: u32 = 13;
    // SAFETY: plain numbers.
    check(unsafe { libc::syscall(libc::SYS_ioprio_get, WHO_PROCESS, 0) }).map(|value| value as u32 >> CLASS_SHIFT)
}

/// This process's execution domain.
pub fn personality() -> Result<u32> {
    const ASK: libc::c_ulong = 0xffff_ffff;
    // SAFETY: a plain number, which requests the current value.
    check(unsafe { libc::syscall(libc::SYS_personality, ASK) }).map(|value| value as u32)
}

/// Sets this process's I/O class and level.
pub fn set_io_priority(class: u32, level: u32) -> Result<()> {
    const WHO_PROCESS: libc::c_int = 1;
    const CLASS_SHIFT: u32 = 13;
    // SAFETY: plain numbers.
    check(unsafe { libc::syscall(libc::SYS_ioprio_set, WHO_PROCESS, 0, class << CLASS_SHIFT | level) }).map(drop)
}

/// Sets this process's execution domain.
pub fn set_personality(domain: u32) -> Result<()> {
    // SAFETY: plain number.
    check(unsafe { libc::syscall(libc::SYS_personality, libc::c_ulong::from(domain)) }).map(drop)
}

/// Restricts this process to these CPUs.
pub fn set_affinity(cpus: &[u32]) -> Result<()> {
    let mut mask = [0u8; 8192];
    for &cpu in cpus {
        let byte = mask.get_mut(cpu as usize / 8).ok_or(nix::errno::Errno::EINVAL)?;
        *byte |= 1 << (cpu % 8);
    }
    // SAFETY: the kernel reads a mask of the given length, a live local.
    check(unsafe { libc::syscall(libc::SYS_sched_setaffinity, 0, mask.len(), mask.as_ptr()) }).map(drop)
}

/// Lets this process use every CPU that its cgroup allows.
pub fn use_every_cpu() -> Result<()> {
    let mask = [u8::MAX; 8192];
    // SAFETY: the kernel reads a mask of the given length, a live local.
    check(unsafe { libc::syscall(libc::SYS_sched_setaffinity, 0, mask.len(), mask.as_ptr()) }).map(drop)
}

/// Sleeps for about this long, or until a signal. For polling loops: if the kernel refuses to sleep, the loop polls again at
/// once, where `std::thread::sleep` would panic.
pub fn pause(time: std::time::Duration) {
    let _ = clock_nanosleep(ClockId::CLOCK_MONOTONIC, ClockNanosleepFlags::empty(), &time.into());
}

/// Sets the NUMA policy of this process, `set_mempolicy(2)`: `MPOL_*` with flags, and the nodes.
pub fn set_memory_policy(mode: libc::c_int, nodes: &[u32]) -> Result<()> {
    let mut mask = [0u8; 128];
    for &node in nodes {
        let byte = mask.get_mut(node as usize / 8).ok_or(nix::errno::Errno::EINVAL)?;
        *byte |= 1 << (node % 8);
    }
    let (pointer, bits) = if nodes.is_empty() { (std::ptr::null(), 0) } else { (mask.as_ptr(), mask.len() * 8) };
    // SAFETY: the kernel reads a mask of the given length, a live local, or none.
    check(unsafe { libc::syscall(libc::SYS_set_mempolicy, mode, pointer, bits) }).map(drop)
}
