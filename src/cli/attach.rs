//! `stockade attach`: what a session's own command prints from now on, and the caller's signals for it.

use std::os::fd::AsFd as _;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use super::ending::{Ending, Limits};
use super::print_text;
use super::session::name;
use crate::args::Args;
use crate::error::{Error, Result, Step};
use crate::launch::pump::Pump;
use crate::launch::signals::Blocked;
use crate::launch::standard::unblocking;
use crate::report::Report;
use crate::session::client::{Client, refusal};
use crate::session::place::Home;
use crate::session::protocol::{Event, OWN, Operation};
use crate::session::record::{Cause, Record};

struct Attached {
    client: Client,
    signals: SignalFd,
    logs: u64,
    wait: u64,
    pumps: Vec<Pump>,
    /// The command's report, and why the session ends.
    ended: Option<(Report, Option<Cause>)>,
    interrupted: bool,
}

/// Prints until the command ends, and returns its exit code; or 0 if the caller leaves before.
pub fn main(args: &Args) -> Result<u8> {
    let name = name(args);
    let mut client = Client::connect(&name)?;
    let ending = Ending::new(args, limits(&name));
    let blocked = Blocked::block()?;
    let failed = |errno| Error::errno(Step::Supervise, "signals", errno);
    let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
    let signals = SignalFd::with_flags(&blocked.taken, flags).map_err(failed)?;
    let logs = client.send(Operation::Logs { follow: true, from_now: true }, Vec::new())?;
    let wait = client.send(Operation::Wait { command: Some(OWN.to_owned()) }, Vec::new())?;
    let mut attached = Attached { client, signals, logs, wait, pumps: Vec::new(), ended: None, interrupted: false };
    loop {
        attached.take_replies()?;
        if attached.take_signals()? {
            return Ok(0);
        }
        for pump in &mut attached.pumps {
            pump.take_if_ready();
            pump.give();
        }
        if let Some((report, session_ends)) = attached.ended.as_ref().filter(|_| attached.has_everything()) {
            // The end of the session's own command is the session's.
            let by_session = session_ends.filter(|cause| *cause != Cause::Command);
            print_text(&ending.with_session(by_session).messages(report));
            return match attached.pumps.iter().find_map(|pump| pump.lost) {
                Some(errno) => Err(Error::errno(Step::Output, "standard output", errno)),
                None => Ok(report.exit_code),
            };
        }
        attached.sleep()?;
    }
}

/// The limits that the session's plan sets for its own command.
fn limits(name: &str) -> Limits {
    let place = Home::open().ok().flatten().and_then(|home| home.place(name).ok());
    let record = place.and_then(|place| Record::of(&place).ok().flatten());
    record.map(|record| Limits::from(&record.plan)).unwrap_or_default()
}

impl Attached {
    fn has_everything(&self) -> bool {
        !self.pumps.is_empty() && self.pumps.iter().all(Pump::is_done)
    }

    fn take_replies(&mut self) -> Result<()> {
        while self.ended.is_none() {
            let Some((reply, fds)) = self.client.reply(false)? else { return Ok(()) };
            if reply.id == Some(self.wait) {
                let reply = refusal(reply)?;
                let json = reply.report.as_ref().map_or("", |report| report.get());
                let report: Report =
                    serde_json::from_str(json).map_err(|error| self.client.wrong(&error.to_string()))?;
                self.ended = Some((report, reply.session_ends));
            } else if reply.id == Some(self.logs) && refusal(reply)?.event == Event::Started {
                for (fd, number) in fds.into_iter().zip([1, 2]) {
                    self.pumps.push(Pump::new(fd, unblocking(number)?, None));
                }
            }
        }
        Ok(())
    }

    /// Passes signals on. Returns whether the caller leaves: its terminal is gone, or it interrupts for the second time.
    fn take_signals(&mut self) -> Result<bool> {
        let failed = |errno| Error::errno(Step::Supervise, "signals", errno);
        while let Some(info) = self.signals.read_signal().map_err(failed)? {
            match info.ssi_signo as libc::c_int {
                libc::SIGHUP => return Ok(true),
                libc::SIGINT if std::mem::replace(&mut self.interrupted, true) => return Ok(true),
                libc::SIGWINCH | libc::SIGALRM | libc::SIGTSTP => {}
                signal => {
                    let operation = Operation::Signal { command: OWN.to_owned(), signal: signal as u8 };
                    self.client.send(operation, Vec::new())?;
                }
            }
        }
        Ok(false)
    }

    fn sleep(&self) -> Result<()> {
        let mut polled = vec![PollFd::new(self.signals.as_fd(), PollFlags::POLLIN)];
        if self.ended.is_none() {
            polled.push(PollFd::new(self.client.as_fd(), PollFlags::POLLIN));
        }
        polled.extend(self.pumps.iter().flat_map(|pump| pump.interests().into_iter().flatten()));
        match poll(&mut polled, PollTimeout::NONE) {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(errno) => Err(Error::errno(Step::Supervise, "poll", errno)),
        }
    }
}
