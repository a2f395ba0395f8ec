//! Interrupts a blocking system call that has no timeout of its own, `setitimer(2)`.

use nix::errno::Errno;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, SigmaskHow, Signal, sigaction, sigprocmask};

use super::Result;

/// While this exists, every blocking call of this process is interrupted once a second (`EINTR`).
#[derive(Debug)]
pub struct Alarm(());

impl Alarm {
    /// Takes over SIGALRM, even if it was blocked or ignored.
    pub fn every_second() -> Result<Self> {
        extern "C" fn interrupt(_: libc::c_int) {}
        let handler = SigHandler::Handler(interrupt);
        // SAFETY: the handler does nothing.
        unsafe { sigaction(Signal::SIGALRM, &SigAction::new(handler, SaFlags::empty(), SigSet::empty())) }?;
        sigprocmask(SigmaskHow::SIG_UNBLOCK, Some(&SigSet::from(Signal::SIGALRM)), None)?;
        set(1).map(|()| Self(()))
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        let _ = set(0);
    }
}

fn set(seconds: i64) -> Result<()> {
    let every = libc::timeval { tv_sec: seconds, tv_usec: 0 };
    let timer = libc::itimerval { it_interval: every, it_value: every };
    // SAFETY: the new timer is a live local; a null pointer for the old one is allowed.
    Errno::result(unsafe { libc::setitimer(libc::ITIMER_REAL, &raw const timer, std::ptr::null_mut()) }).map(drop)
}
