//! Time limits of tests. Other users of the machine may take the processor for seconds, which is not a failure of the tested
//! program.

use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long a test waits for an event that should come at once. Less than nextest's limit for a test.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// Waits until the condition holds; false after [`PATIENCE`].
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

/// A clock for promises about time. The test's own late wake-ups measure the load: several processes run one after the other, and
/// each may be as late as the test.
#[derive(Debug)]
pub struct Clock {
    started: Instant,
    late: Duration,
}

impl Clock {
    /// Starts the clock.
    pub fn start() -> Self {
        Self { started: Instant::now(), late: Duration::ZERO }
    }

    /// Sleeps, and adds up how much too long it took.
    pub fn sleep(&mut self, time: Duration) {
        let before = Instant::now();
        sleep(time);
        self.late += before.elapsed().saturating_sub(time);
    }

    /// The time since the start.
    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// The time to allow beyond a limit.
    pub fn allowance(&self) -> Duration {
        self.late * 4
    }

    /// Whether this time has passed, including the allowance.
    pub fn is_past(&self, limit: Duration) -> bool {
        self.elapsed() > limit + self.allowance()
    }
}

/// The processor time of all children that this process has waited for. It does not depend on other load.
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
