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

    /// That of this process so far, `getrusage(2)`; zero if the call is refused.
    pub fn own() -> Self {
        let micros = |time: TimeVal| u64::try_from(time.num_microseconds()).unwrap_or(0);
        getrusage(UsageWho::RUSAGE_SELF).map_or(Self::default(), |usage| Self {
            user_us: micros(usage.user_time()),
            system_us: micros(usage.system_time()),
        })
    }
}

/// The monotonic clock of the host, in nanoseconds. Init is in the host's time namespace.
pub fn monotonic_ns() -> u64 {
    clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(0, |now| Duration::from(now).as_nanos() as u64)
}
