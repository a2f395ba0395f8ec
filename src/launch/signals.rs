//! The signals that a supervising process takes itself.

use nix::sys::signal::{SigSet, SigmaskHow, Signal, sigprocmask};

use crate::error::{Error, Result, Step};
use crate::sys::process;

/// Signals that the supervisor handles itself. Most are forwarded to the workload.
pub const TAKEN: [Signal; 9] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGALRM,
    Signal::SIGWINCH,
    Signal::SIGTSTP, // a stopped supervisor would miss deadlines
];

/// The supervisor's signals, blocked. They stay blocked after a run: a signal must not end the caller before the report is
/// written.
#[derive(Debug)]
pub struct Blocked {
    /// The signals that are blocked.
    pub taken: SigSet,
    before: SigSet,
}

impl Blocked {
    /// Blocks the signals in the calling thread, except those that are ignored, as under nohup(1).
    pub fn block() -> Result<Self> {
        let taken = TAKEN.into_iter().filter(|signal| !process::is_ignored(*signal as libc::c_int)).collect::<SigSet>();
        let mut before = SigSet::empty();
        sigprocmask(SigmaskHow::SIG_BLOCK, Some(&taken), Some(&mut before))
            .map_err(|errno| Error::errno(Step::Supervise, "signal mask", errno))?;
        Ok(Self { taken, before })
    }

    /// Restores the signal mask. Pending signals are delivered now.
    pub fn let_through(&self) {
        let _ = sigprocmask(SigmaskHow::SIG_SETMASK, Some(&self.before), None);
    }
}
