//! Time limits of tests. A machine that others use takes the processor away for seconds: that is no failure of what is tested.

use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long a test waits for what comes at once, unless it never comes. Less than nextest gives a test.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// Waits until it is so; false if it never is.
pub fn eventually(mut is_so: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        if Instant::now() > deadline {
            return false;
        }
        sleep(Duration::from_millis(5));
    }
    true
}

/// A clock for promises about time. How late the test itself wakes up shows how late everything else is: several processes,
/// one after the other, each as late as the test.
#[derive(Debug)]
pub struct Clock {
    started: Instant,
    late: Duration,
}

impl Clock {
    /// Begins to count.
    pub fn start() -> Self {
        Self { started: Instant::now(), late: Duration::ZERO }
    }

    /// Sleeps, and counts what this took too long.
    pub fn sleep(&mut self, time: Duration) {
        let before = Instant::now();
        sleep(time);
        self.late += before.elapsed().saturating_sub(time);
    }

    /// Since it was started.
    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// What has to be granted beyond a limit.
    pub fn allowance(&self) -> Duration {
        self.late * 4
    }

    /// Whether this time has passed, and what has to be granted beyond it.
    pub fn is_past(&self, limit: Duration) -> bool {
        self.elapsed() > limit + self.allowance()
    }
}

/// The processor time of the programs that this process has waited for: what they took, whoever else was busy.
pub fn used_by_children() -> Duration {
    use nix::sys::resource::{UsageWho, getrusage};
    use nix::sys::time::TimeValLike as _;
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).expect("a process knows what its children used");
    Duration::from_micros((usage.user_time() + usage.system_time()).num_microseconds() as u64)
}

/// The processor time of this thread.
pub fn used_by_thread() -> Duration {
    nix::time::clock_gettime(nix::time::ClockId::CLOCK_THREAD_CPUTIME_ID).expect("a thread has a clock").into()
}
