//! What a client asks for, and the answers.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant, SystemTime};

use stockade_egress::change::Change;

use super::commands::{Asked, Command, number, raw};
use super::{Server, order};
use crate::error::{Error, Result, Step};
use crate::report::{ErrorRecord, Report, timestamp};
use crate::session::protocol::{Event, OWN, Operation, Reply, Run, SessionStatus};
use crate::session::read;
use crate::session::record::Cause;
use crate::session::wire::Packet;
use crate::sys::terminal;

/// More commands at a time are refused.
const MOST_COMMANDS: usize = 256;
/// More waits and readers of one session are refused.
const MOST_WAITING: usize = 1024;

/// The grace of `stop`, as docker's.
const GRACE: Duration = Duration::from_secs(10);

impl Server<'_> {
    /// Answers a packet of a client.
    pub(super) fn answer(&mut self, connection: u64, packet: std::result::Result<Packet, &'static str>) {
        let wrong = |reason: &str| (None, Error::new(Step::SessionRequest, "packet", reason));
        let read = packet.map_err(wrong).and_then(|packet| Ok((read::request(&packet.json)?, packet.fds)));
        let (id, error) = match read {
            Err(refused) => refused,
            Ok((request, fds)) => {
                let asked = Asked { connection, request: request.id };
                match self.perform(asked, request.operation, fds) {
                    Ok(()) => return,
                    Err(error) => (Some(request.id), error),
                }
            }
        };
        let reply = Reply {
            id,
            event: Event::Error,
            error: Some(ErrorRecord::from(&error)),
            exit_code: Some(error.exit_code()),
            ..Reply::default()
        };
        if let Some(connection) = self.connections.get_mut(&connection) {
            connection.say(&reply, Vec::new());
        }
    }

    fn perform(&mut self, asked: Asked, operation: Operation, fds: Vec<OwnedFd>) -> Result<()> {
        if !fds.is_empty() && !matches!(operation, Operation::Run(_)) {
            return Err(refused("descriptors", "this operation takes none"));
        }
        // Who only looks does not use it: `ps` must not keep it alive.
        if !matches!(operation, Operation::Status | Operation::Wait { .. }) {
            self.last_used = Instant::now();
        }
        let mut reply = Reply::default();
        match operation {
            Operation::Run(run) => return self.run_command(asked, *run, fds),
            Operation::Logs { follow, from_now } => return self.read_log(asked, follow, from_now),
            Operation::Wait { command } => return self.wait_for(asked, command),
            Operation::File(operation) => return self.ask_files(asked, operation),
            Operation::AllowNet { rule } => return self.change_rules(asked, &Change::Allow(rule)),
            Operation::DenyNet { rule } => return self.change_rules(asked, &Change::Deny(rule)),
            Operation::NetLog { follow } => return self.read_net_log(asked, follow),
            Operation::Signal { command, signal } => {
                self.each(&command, |command| command.running.signal(signal.into()))?;
            }
            Operation::Kill { command } => self.each(&command, |command| command.running.kill())?,
            Operation::Status => reply.status = Some(raw(&self.status())),
            Operation::Stop { grace_us } => {
                self.begin_end(Cause::Stopped, grace_us.map_or(GRACE, Duration::from_micros));
            }
            Operation::Pause => self.freeze(true)?,
            Operation::Unpause => self.freeze(false)?,
            Operation::Ping => {}
        }
        self.tell(Some(asked), reply, Vec::new());
        Ok(())
    }

    fn run_command(&mut self, asked: Asked, run: Run, fds: Vec<OwnedFd>) -> Result<()> {
        if self.ending.is_some() {
            return Err(refused("session", "is ending"));
        }
        if self.paused {
            return Err(refused("session", "is paused").hint("unpause it"));
        }
        if self.commands.running.len() >= MOST_COMMANDS {
            return Err(refused("session", format!("runs {MOST_COMMANDS} commands already")));
        }
        let (tty, background) = (run.tty, run.background);
        let streams = order::streams(fds, tty.is_some())?;
        let plan = order::plan(&self.plan, run)?;
        let number = self.commands.next();
        let size = tty.map(|size| terminal::Size { rows: size.rows, columns: size.columns });
        match self.sandbox.begin(&super::id(number), plan.clone(), streams, size) {
            Ok(running) => {
                let mut command = Command::new(running, &plan, tty.is_some());
                (command.asked, command.background) = (Some(asked), background);
                self.commands.running.insert(number, command);
            }
            // It could not be started: that is its result, as for a run.
            Err(error) => {
                let id = &plan.confinement.id;
                let report = Report::not_started(id, Some((&plan).into()), SystemTime::now(), &error);
                let reply = Reply { command: Some(super::id(number)), report: Some(raw(&report)), ..Reply::default() };
                self.tell(Some(asked), reply, Vec::new());
            }
        }
        Ok(())
    }

    fn read_log(&mut self, asked: Asked, follow: bool, from_now: bool) -> Result<()> {
        let Some(log) = &self.log else {
            return Err(refused("session", "was made without a command, so it has no log"));
        };
        if self.readers.len() >= MOST_WAITING {
            return Err(refused("session", "has too many readers of its log"));
        }
        let failed = |errno| Error::errno(Step::SessionRequest, "pipe", errno);
        let (reader, ends) = log.reader(asked.connection, asked.request, follow, from_now).map_err(failed)?;
        self.readers.push(reader);
        self.tell(Some(asked), Reply { event: Event::Started, ..Reply::default() }, ends.into());
        Ok(())
    }

    fn wait_for(&mut self, asked: Asked, command: Option<String>) -> Result<()> {
        if self.waiters.len() >= MOST_WAITING {
            return Err(refused("session", "has too many waiting clients"));
        }
        let Some(id) = command else {
            self.waiters.push((asked, None));
            return Ok(());
        };
        let number = number(&id).ok_or_else(|| unknown(&id))?;
        if self.commands.running.contains_key(&number) {
            self.waiters.push((asked, Some(number)));
            return Ok(());
        }
        let report = self.commands.report_of(number).ok_or_else(|| unknown(&id))?;
        self.tell(Some(asked), Reply { command: Some(id), report: Some(report), ..Reply::default() }, Vec::new());
        Ok(())
    }

    /// Does something with a command that runs, or with all.
    fn each(&mut self, id: &str, act: impl Fn(&mut Command)) -> Result<()> {
        if id == "all" {
            self.commands.running.values_mut().for_each(act);
            return Ok(());
        }
        if id == OWN && self.log.is_none() {
            let error = refused("session", "was made without a command of its own");
            return Err(error.hint("name one with --command, or all of them: --command all"));
        }
        let command = number(id).and_then(|number| self.commands.running.get_mut(&number));
        command.map(act).ok_or_else(|| unknown(id))
    }

    fn freeze(&mut self, frozen: bool) -> Result<()> {
        if frozen && self.ending.is_some() {
            return Err(refused("session", "is ending"));
        }
        if frozen != self.paused {
            let each = "`stockade kill -s STOP --command all` stops its commands, -s CONT continues them";
            self.sandbox.freeze(frozen).map_err(|error| error.hint(each))?;
            self.paused = frozen;
        }
        Ok(())
    }

    fn status(&self) -> SessionStatus {
        let (running, ended) = self.commands.statuses();
        SessionStatus {
            name: self.held.place.name.clone(),
            pid: nix::unistd::getpid().as_raw(),
            created_at: timestamp(self.created),
            paused: self.paused,
            ending: self.ending.is_some(),
            plan: self.plan.clone(),
            usage: self.sandbox.usage(),
            running,
            ended,
        }
    }
}

pub(super) fn refused(object: &str, reason: impl Into<String>) -> Error {
    Error::new(Step::SessionRequest, object, reason)
}

fn unknown(id: &str) -> Error {
    refused("command", format!("{id:?} is neither a running command nor one of the last that ended"))
}
