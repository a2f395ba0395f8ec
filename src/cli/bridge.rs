//! The client's side of a command in a session: its streams, the caller's terminal, and signals.

use std::os::fd::{AsFd as _, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use crate::error::{Error, Result, Step};
use crate::launch::pump::Pump;
use crate::launch::signals::Blocked;
use crate::launch::streams::{self, ChildStream, Pumps};
use crate::launch::terminal::{RawMode, follow_size};
use crate::plan::Stdio;
use crate::report::Report;
use crate::session::client::{Client, refusal};
use crate::session::protocol::{Event, Operation, Reply, Run, Size};
use crate::session::record::Cause;
use crate::sys::file::open;
use crate::sys::process::borrow_standard;
use crate::sys::terminal;

/// A user and group that own no file. The command's are not known here, and matter for files that are not relayed.
const NOBODY: (u32, u32) = (65534, 65534);

/// A command in the foreground.
struct Attached<'a> {
    client: Client,
    request: u64,
    signals: SignalFd,
    pumps: Pumps,
    input: bool,
    raw: Option<RawMode>,
    /// The command's id, once it runs.
    command: Option<String>,
    /// Signals that came before it ran.
    early: Vec<u8>,
    interrupted: bool,
    _blocked: &'a Blocked,
}

/// The size of the caller's terminal.
pub fn size() -> Size {
    let found = terminal::size(borrow_standard(0)).or_else(|_| terminal::size(borrow_standard(1)));
    found.map_or(Size { rows: 24, columns: 80 }, |size| Size { rows: size.rows, columns: size.columns })
}

/// Runs a command without its client, and returns its id.
pub fn detached(mut client: Client, run: Run) -> Result<String> {
    let null = || null().map(|null| [null]);
    let fds = [null()?, null()?, null()?].into_iter().flatten().collect();
    let request = client.send(Operation::Run(Box::new(run)), fds)?;
    loop {
        let Some((reply, _)) = client.reply(true)? else { continue };
        if reply.id != Some(request) {
            continue;
        }
        if reply.event == Event::Done {
            let report = report(&client, &reply)?;
            return Err(report.error.as_ref().map_or_else(|| client.wrong("the command ended"), Error::from));
        }
        return Ok(refusal(reply)?.command.unwrap_or_default());
    }
}

/// Runs a command between the caller's streams. Returns its report, and why the session ends, if it does. It reads standard input if
/// `input` says so.
pub fn attached(mut client: Client, run: Run, input: bool, signals: &Blocked) -> Result<(Report, Option<Cause>)> {
    let is_terminal = run.tty.is_some();
    // Landlock knows no file that the caller has opened since the session began, so the command could not open it anew.
    let stdio = Stdio { stdin: input, tty: is_terminal, output_limit: None, relay: true };
    // What the session counts must pass through it, and it writes to pipes alone.
    let counted = run.output_limit.is_some() || run.idle_us.is_some();
    let (ends, _, pumps) = streams::prepare(&stdio, counted, NOBODY)?;
    let fds = match is_terminal {
        true => Vec::new(),
        false => ends.into_iter().map(passed).collect::<Result<_>>()?,
    };
    let failed = |errno| Error::errno(Step::Supervise, "signals", errno);
    let source =
        SignalFd::with_flags(&signals.taken, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK).map_err(failed)?;
    let request = client.send(Operation::Run(Box::new(run)), fds)?;
    let mut attached = Attached {
        client,
        request,
        signals: source,
        pumps,
        input,
        raw: None,
        command: None,
        early: Vec::new(),
        interrupted: false,
        _blocked: signals,
    };
    let ended = attached.watch().and_then(|ended| attached.drain().map(|()| ended));
    attached.pumps.restore();
    drop(attached.raw.take());
    let (report, session_ends) = ended?;
    match attached.pumps.failure().filter(|_| report.error.is_none()) {
        Some(lost) => Err(lost),
        None => Ok((report, session_ends)),
    }
}

impl Attached<'_> {
    /// Bridges until the command is over.
    fn watch(&mut self) -> Result<(Report, Option<Cause>)> {
        loop {
            self.wait(true)?;
            self.take_signals()?;
            while let Some((reply, fds)) = self.client.reply(false)? {
                if reply.id != Some(self.request) {
                    continue; // of a signal; one that came too late is not an error
                }
                match reply.event {
                    Event::Started => self.start(reply, fds)?,
                    Event::Done => return Ok((report(&self.client, &reply)?, reply.session_ends)),
                    Event::Error => {
                        return refusal(reply).and_then(|_| Err(self.client.wrong("an error without a reason")));
                    }
                }
            }
            self.pump();
        }
    }

    fn start(&mut self, reply: Reply, fds: Vec<OwnedFd>) -> Result<()> {
        if let Some(master) = fds.into_iter().next() {
            self.pumps.attach_terminal(master)?;
            if self.input {
                self.raw = RawMode::enter();
            }
        }
        self.command = reply.command;
        for signal in std::mem::take(&mut self.early) {
            self.send(signal)?;
        }
        Ok(())
    }

    fn wait(&self, alive: bool) -> Result<()> {
        let mut polled = vec![PollFd::new(self.signals.as_fd(), PollFlags::POLLIN)];
        if alive {
            polled.push(PollFd::new(self.client.as_fd(), PollFlags::POLLIN));
        }
        let input = self.pumps.input.as_ref().filter(|_| alive);
        for pump in [input, self.pumps.output.as_ref(), self.pumps.error.as_ref()].into_iter().flatten() {
            polled.extend(pump.interests().into_iter().flatten());
        }
        match poll(&mut polled, PollTimeout::NONE) {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(errno) => Err(Error::errno(Step::Supervise, "poll", errno)),
        }
    }

    fn take_signals(&mut self) -> Result<()> {
        let failed = |errno| Error::errno(Step::Supervise, "signals", errno);
        while let Some(info) = self.signals.read_signal().map_err(failed)? {
            match info.ssi_signo as libc::c_int {
                libc::SIGWINCH => {
                    if let Some(master) =
                        self.pumps.output.as_ref().filter(|_| self.pumps.terminal).and_then(Pump::source_fd)
                    {
                        follow_size(master);
                    }
                }
                libc::SIGINT if std::mem::replace(&mut self.interrupted, true) => self.send(libc::SIGKILL as u8)?,
                signal => self.send(signal as u8)?,
            }
        }
        Ok(())
    }

    /// Passes a signal on.
    fn send(&mut self, signal: u8) -> Result<()> {
        let Some(command) = self.command.clone() else {
            self.early.push(signal);
            return Ok(());
        };
        let operation = match i32::from(signal) {
            libc::SIGKILL => Operation::Kill { command },
            _ => Operation::Signal { command, signal },
        };
        self.client.send(operation, Vec::new()).map(drop)
    }

    /// Moves what can be moved now. Returns whether output came.
    fn pump(&mut self) -> bool {
        let mut came = false;
        for pump in self.pumps.outputs() {
            came |= pump.take();
            pump.give();
        }
        if let Some(input) = &mut self.pumps.input {
            input.take_if_ready();
            input.give();
        }
        came
    }

    /// Passes on the last output. All of it is in the pipes: every process of the command is dead. Another command may have
    /// got such a pipe from it, so their end is not waited for.
    fn drain(&mut self) -> Result<()> {
        loop {
            let came = self.pump();
            let is_waiting = |pump: &mut Pump| !pump.is_done() && pump.interests()[1].is_some();
            if !came && !self.pumps.outputs().any(is_waiting) {
                return Ok(());
            }
            if !came {
                self.wait(false)?;
                let failed = |errno| Error::errno(Step::Supervise, "signals", errno);
                if self.signals.read_signal().map_err(failed)?.is_some() {
                    return Ok(()); // a reader that does not read is not waited for against the caller's will
                }
            }
        }
    }
}

fn report(client: &Client, reply: &Reply) -> Result<Report> {
    let json = reply.report.as_ref().map(|report| report.get()).unwrap_or_default();
    serde_json::from_str(json).map_err(|error| client.wrong(&format!("its report is damaged: {error}")))
}

/// A stream as it is passed to the session.
fn passed(stream: ChildStream) -> Result<OwnedFd> {
    match stream {
        ChildStream::Null => null(),
        ChildStream::Own(fd) => Ok(fd),
        ChildStream::Inherited(fd) => {
            fd.try_clone_to_owned().map_err(|error| Error::io(Step::Streams, "standard stream", &error))
        }
    }
}

fn null() -> Result<OwnedFd> {
    open("/dev/null", OFlag::O_RDWR).map_err(|errno| Error::errno(Step::Streams, "/dev/null", errno))
}
