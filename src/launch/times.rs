//! The CPU time of a process, and the clock by which init says when the workload began and ended.

use std::time::Duration;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::{TimeVal, TimeValLike as _};
use nix::time::{ClockId, clock_gettime};

/// CPU time, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTime {
    /// In user mode.
    pub user_us: u64,
    /// In the kernel.
    pub system_us: u64,
}

impl CpuTime {
    /// User and system time together.
    pub fn total_us(self) -> u64 {
        self.user_us.saturating_add(self.system_us)
    }

    /// Both.
    pub fn plus(self, other: Self) -> Self {
        let (user_us, system_us) = (self.user_us + other.user_us, self.system_us + other.system_us);
        Self { user_us, system_us }
    }

    /// Without a part of it.
    pub fn minus(self, part: Self) -> Self {
        let user_us = self.user_us.saturating_sub(part.user_us);
        Self { user_us, system_us: self.system_us.saturating_sub(part.system_us) }
    }

    /// That of this process so far, `getrusage(2)`; zero if the call is refused.
    pub fn own() -> Self {
        let micros = |time: TimeVal| u64::try_from(time.num_microseconds()).unwrap_or(0);
        getrusage(UsageWho::RUSAGE_SELF).map_or(Self::default(), |usage| Self {
            user_us: micros(usage.user_time()),
            system_us: micros(usage.system_time()),
        })
    }
}

/// What the reaped processes of a tree have used, `getrusage(2)`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reaped {
    /// CPU time.
    pub cpu: CpuTime,
    /// Page faults without input or output.
    pub minor_faults: u64,
    /// Page faults with input or output.
    pub major_faults: u64,
    /// Context switches because a process waited.
    pub voluntary_switches: u64,
    /// Other context switches.
    pub involuntary_switches: u64,
}

impl Reaped {
    /// That of this process's children so far; zeros if the call is refused.
    pub fn children() -> Self {
        getrusage(UsageWho::RUSAGE_CHILDREN).map_or(Self::default(), |usage| Self::from(usage.as_ref()))
    }

    /// For a message.
    pub fn numbers(self) -> [u64; 6] {
        let CpuTime { user_us, system_us } = self.cpu;
        [user_us, system_us, self.minor_faults, self.major_faults, self.voluntary_switches, self.involuntary_switches]
    }

    /// From a message.
    pub fn of(
        [user_us, system_us, minor_faults, major_faults, voluntary_switches, involuntary_switches]: [u64; 6],
    ) -> Self {
        let cpu = CpuTime { user_us, system_us };
        Self { cpu, minor_faults, major_faults, voluntary_switches, involuntary_switches }
    }
}

impl From<&libc::rusage> for Reaped {
    fn from(usage: &libc::rusage) -> Self {
        let micros = |time: libc::timeval| time.tv_sec as u64 * 1_000_000 + time.tv_usec as u64;
        let count = |value: libc::c_long| u64::try_from(value).unwrap_or(0);
        Self {
            cpu: CpuTime { user_us: micros(usage.ru_utime), system_us: micros(usage.ru_stime) },
            minor_faults: count(usage.ru_minflt),
            major_faults: count(usage.ru_majflt),
            voluntary_switches: count(usage.ru_nvcsw),
            involuntary_switches: count(usage.ru_nivcsw),
        }
    }
}

/// The monotonic clock of the host, in nanoseconds. Init is in the host's time namespace.
pub fn monotonic_ns() -> u64 {
    clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(0, |now| Duration::from(now).as_nanos() as u64)
}
