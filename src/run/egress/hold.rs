//! The supervisor's hold on the gateway: its events, and its end.

use std::io::{ErrorKind, Read as _};
use std::net::Shutdown;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags};
use nix::unistd::Pid;
use stockade_egress::gateway::told;
use stockade_egress::record::Totals;

use super::changing::Changing;
use crate::error::{Error, Result, Step};
use crate::failure::Failure;
use crate::launch::failures::{FAILURE_LENGTH, parse_failure};
use crate::launch::steps::step;
use crate::sys::process;

/// The announcement of a failure, which a record of it follows.
pub const FAILED: u8 = b'f';

/// How long the gateway may take to be ready, and in all to hand over its totals.
const READY: Duration = Duration::from_secs(10);
const LAST: Duration = Duration::from_secs(5);

/// The longest totals that are read.
const LONGEST: usize = 4 << 20;

/// What the supervisor must act on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The budget is used up.
    Budget,
    /// A line could not be written to the log.
    LogFailed,
    /// A change of the rules is in force.
    Changed,
    /// The gateway has died.
    Died,
}

/// The running gateway. It ends when this is dropped.
#[derive(Debug)]
pub struct Gateway {
    pid: Pid,
    pidfd: OwnedFd,
    control: UnixStream,
    /// Why it serves no more.
    ended: Option<Error>,
    /// What it counts in, for those who look.
    _counters: OwnedFd,
    /// How it gets what is made while it runs, if it is for a session or has published ports.
    pub changing: Option<Changing>,
}

impl Gateway {
    /// The process, which has just been created.
    pub fn new(pid: Pid, pidfd: OwnedFd, control: UnixStream, changing: Option<Changing>, counters: OwnedFd) -> Self {
        Self { pid, pidfd, control, ended: None, _counters: counters, changing }
    }

    /// Waits until it is confined.
    pub fn ready(&mut self) -> Result<()> {
        let failed = |error: std::io::Error| Error::io(Step::Egress, "gateway", &error);
        self.control.set_read_timeout(Some(READY)).map_err(failed)?;
        let mut said = [0; 1 + FAILURE_LENGTH];
        self.control.read_exact(&mut said[..1]).map_err(failed)?;
        if said[0] == told::READY {
            step("gateway", || "confined");
            return self.control.set_nonblocking(true).map_err(failed);
        }
        self.control.read_exact(&mut said[1..]).map_err(failed)?;
        Err(match parse_failure(&said[1..]) {
            Some(Failure { step, errno, .. }) => Error::errno(step, "gateway", errno),
            None => Error::new(Step::Egress, "gateway", "died while it confined itself"),
        })
    }

    /// What it waits for.
    pub fn interest(&self) -> Option<PollFd<'_>> {
        self.ended.is_none().then(|| PollFd::new(self.control.as_fd(), PollFlags::POLLIN))
    }

    /// The next event, if there is one.
    pub fn event(&mut self) -> Option<Event> {
        if self.ended.is_some() {
            return None;
        }
        let mut said = [0; 1];
        match self.control.read(&mut said) {
            Ok(1) if said[0] == told::SOCKETS => {
                self.changing.iter_mut().for_each(Changing::refill);
                return self.event();
            }
            Ok(1) if said[0] == told::BUDGET => return Some(Event::Budget),
            Ok(1) if said[0] == told::LOG => return Some(Event::LogFailed),
            Ok(1) if said[0] == told::CHANGED => return Some(Event::Changed),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => return None,
            _ => {}
        }
        let reason = "died: no connection was possible any more";
        self.ended = Some(Error::new(Step::Egress, "gateway", reason));
        Some(Event::Died)
    }

    /// Lets it end, and takes its totals.
    pub fn finish(mut self) -> Result<Totals> {
        if let Some(error) = self.ended.take() {
            return Err(error);
        }
        let failed = |error: std::io::Error| Error::io(Step::Egress, "totals of the gateway", &error);
        let _ = self.control.shutdown(Shutdown::Write);
        self.control.set_nonblocking(false).map_err(failed)?;
        let until = Instant::now() + LAST;
        let mut said = Vec::new();
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || said.len() > LONGEST {
                return Err(Error::new(Step::Egress, "gateway", "did not hand over its totals in time"));
            }
            self.control.set_read_timeout(Some(left)).map_err(failed)?;
            let mut part = [0; 16 << 10];
            match self.control.read(&mut part) {
                Ok(0) => break,
                Ok(length) => said.extend_from_slice(&part[..length]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {} // the time is over
                Err(error) => return Err(failed(error)),
            }
        }
        let begin = said.iter().position(|byte| *byte == told::TOTALS);
        let totals = begin.and_then(|at| serde_json::from_slice(&said[at + 1..]).ok());
        totals.ok_or_else(|| Error::new(Step::Egress, "gateway", "died before it handed over its totals"))
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        process::end_child(self.pidfd.as_fd(), self.pid);
    }
}
