//! What a supervising loop waits for besides its commands: signals and the next deadline.

use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::SigSet;
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};

use crate::error::{Error, Result, Step};

/// Sources of signals and deadlines. Created before there is a process to watch.
#[derive(Debug)]
pub struct Watches {
    signals: SignalFd,
    timer: TimerFd,
    armed: Option<Instant>,
}

impl Watches {
    /// For these signals, which are blocked.
    pub fn new(signals: &SigSet) -> Result<Self> {
        let failed = |errno| Error::errno(Step::Supervise, "signals and timer", errno);
        Ok(Self {
            signals: SignalFd::with_flags(signals, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK).map_err(failed)?,
            timer: TimerFd::new(ClockId::CLOCK_MONOTONIC, TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK)
                .map_err(failed)?,
            armed: None,
        })
    }

    /// What to poll for: signals, then the deadline.
    pub fn interests(&self) -> [PollFd<'_>; 2] {
        [PollFd::new(self.signals.as_fd(), PollFlags::POLLIN), PollFd::new(self.timer.as_fd(), PollFlags::POLLIN)]
    }

    /// Arms the timer for the nearest deadline, if that changed.
    pub fn arm(&mut self, nearest: Option<Instant>) -> Result<()> {
        if nearest == self.armed {
            return Ok(());
        }
        self.armed = nearest;
        let failed = |errno| Error::errno(Step::Supervise, "timer", errno);
        let Some(nearest) = nearest else { return self.timer.unset().map_err(failed) };
        let left = nearest.saturating_duration_since(Instant::now()).max(Duration::from_nanos(1)); // zero would disarm the timer
        let expiration = Expiration::OneShot(TimeSpec::from_duration(left));
        self.timer.set(expiration, TimerSetTimeFlags::empty()).map_err(failed)
    }

    /// The next pending signal.
    pub fn signal(&self) -> Result<Option<libc::c_int>> {
        let info = self.signals.read_signal().map_err(|errno| Error::errno(Step::Supervise, "signals", errno))?;
        Ok(info.map(|info| info.ssi_signo as libc::c_int))
    }
}

/// Waits until one of these is ready, without a time limit: deadlines are events too.
pub fn wait(polled: &mut [PollFd<'_>]) -> Result<()> {
    loop {
        match poll(polled, PollTimeout::NONE) {
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(Error::errno(Step::Supervise, "poll", errno)),
            Ok(_) => return Ok(()),
        }
    }
}
