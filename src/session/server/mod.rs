//! The supervisor of a session: one poll loop over signals, clients, commands and times. It waits for no client.

mod commands;
mod connection;
mod end;
mod files;
mod log;
mod network;
mod order;
mod requests;

use std::collections::BTreeMap;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::{Duration, Instant, SystemTime};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use self::commands::{Asked, Command, Commands, id};
use self::connection::Connection;
use self::end::Ending;
use self::files::{Files, FilesReady};
use self::log::{Log, Reader};
use self::network::Network;
pub use self::network::Recorders;
use super::place::Held;
use super::protocol::{Event, Hello, PROTOCOL, Reply};
use super::record::{Cause, Record, SCHEMA};
use crate::error::{Error, Result, Step};
use crate::launch::signals::Blocked;
use crate::plan::RunPlan;
use crate::report::{Report, timestamp};
use crate::run::Warnings;
use crate::run::sandbox::{Ready, Sandbox};

/// More clients wait until one disconnects.
const MOST_CONNECTIONS: usize = 128;
/// How many requests of a client are read before the next one's.
const REQUESTS_A_TURN: usize = 16;

/// How long a session stays.
#[derive(Debug, Default)]
pub struct Terms {
    /// It ends after this time.
    pub lifetime: Option<Duration>,
    /// It ends when no command ran and no request came for this time.
    pub idle_stop: Option<Duration>,
    /// It ends when the other end of this pipe or socket is closed.
    pub lease: Option<OwnedFd>,
}

/// A session.
pub struct Server<'a> {
    held: &'a Held,
    plan: RunPlan,
    sandbox: Sandbox,
    listener: OwnedFd,
    signals: SignalFd,
    connections: BTreeMap<u64, Connection>,
    last_connection: u64,
    /// No client is accepted before this time: there was no descriptor for it.
    deaf_until: Option<Instant>,
    commands: Commands,
    files: Files,
    log: Option<Log>,
    readers: Vec<Reader>,
    waiters: Vec<(Asked, Option<u64>)>,
    network: Network<'a>,
    created: SystemTime,
    ends_at: Option<Instant>,
    idle_stop: Option<Duration>,
    lease: Option<OwnedFd>,
    last_used: Instant,
    paused: bool,
    dead: bool,
    ending: Option<Ending>,
    own_report: Option<Report>,
}

/// What a turn of the loop has to do.
#[derive(Default)]
struct Turn {
    signal: bool,
    lapsed: bool,
    dead: bool,
    client: bool,
    connections: Vec<(u64, PollFlags)>,
    log: bool,
    room: bool,
    gateway: bool,
    commands: Vec<(u64, Ready)>,
    files: FilesReady,
}

/// Opens the sandbox of a session, and serves its clients until it ends. `ready` is called when the session's own command
/// runs, or at once if it has none; an error before that is the session's. Returns the report of its own command, or without
/// one of its sandbox.
pub fn serve(
    held: &Held,
    plan: RunPlan,
    terms: Terms,
    signals: &Blocked,
    recorders: Recorders<'_>,
    warn: impl FnOnce(Warnings<'_>),
    ready: impl FnOnce() -> Result<()>,
) -> Result<Report> {
    let mut server = Server::open(held, plan, terms, signals, recorders, warn)?;
    server.start(ready)?;
    server.run();
    Ok(server.finish())
}

impl<'a> Server<'a> {
    fn open(
        held: &'a Held,
        plan: RunPlan,
        terms: Terms,
        signals: &Blocked,
        recorders: Recorders<'a>,
        warn: impl FnOnce(Warnings<'_>),
    ) -> Result<Self> {
        let failed = |errno| Error::errno(Step::Supervise, "signals", errno);
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        let signal_source = SignalFd::with_flags(&signals.taken, flags).map_err(failed)?;
        let listener = held.listen()?;
        let sandbox = Sandbox::open(&plan, recorders.net_log, warn)?;
        let now = Instant::now();
        Ok(Self {
            held,
            plan,
            sandbox,
            listener,
            signals: signal_source,
            connections: BTreeMap::new(),
            last_connection: 0,
            deaf_until: None,
            commands: Commands::default(),
            files: Files::default(),
            log: None,
            readers: Vec::new(),
            waiters: Vec::new(),
            network: Network::new(recorders.audit),
            created: SystemTime::now(),
            ends_at: terms.lifetime.map(|lifetime| now + lifetime),
            idle_stop: terms.idle_stop,
            lease: terms.lease,
            last_used: now,
            paused: false,
            dead: false,
            ending: None,
            own_report: None,
        })
    }

    /// Starts the session's own command, and waits until it runs. Then the session is ready.
    fn start(&mut self, ready: impl FnOnce() -> Result<()>) -> Result<()> {
        if !self.plan.command.argv.is_empty() {
            let failed = |errno| Error::errno(Step::Streams, "pipe", errno);
            let (log, [out, error]) = Log::new().map_err(failed)?;
            self.log = Some(log);
            let running = self.sandbox.begin(&id(0), self.plan.clone(), [order::null()?, out, error], None)?;
            self.commands.running.insert(0, Command::new(running, &self.plan, false));
            while self.commands.running.get_mut(&0).is_some_and(|own| own.started().is_none()) {
                self.turn()?;
            }
            if let Some(record) = self.own_report.as_ref().and_then(|report| report.error.as_ref()) {
                return Err(Error::from(record));
            }
        }
        self.held.write_record(&self.record().json())?;
        ready()
    }

    /// The record as long as it runs.
    fn record(&self) -> Record {
        Record {
            schema: SCHEMA.to_owned(),
            name: self.held.place.name.clone(),
            pid: nix::unistd::getpid().as_raw(),
            created_at: timestamp(self.created),
            plan: self.plan.clone(),
            end: None,
        }
    }

    fn run(&mut self) {
        while !self.is_over() {
            if self.turn().is_err() {
                self.begin_end(Cause::Failed, Duration::ZERO);
                return;
            }
        }
    }

    /// Waits for something to do, and does it.
    fn turn(&mut self) -> Result<()> {
        let turn = self.wait()?;
        let now = Instant::now();
        if turn.signal {
            self.take_signals()?;
        }
        if turn.lapsed {
            self.lease = None;
            self.begin_end(Cause::Stopped, Duration::ZERO);
        }
        if turn.dead {
            self.dead = true;
            self.commands.running.values_mut().for_each(|command| command.running.lose());
            self.lose_files();
            self.begin_end(Cause::Failed, Duration::ZERO);
        }
        if turn.client {
            self.accept(now);
        }
        for (number, flags) in turn.connections {
            self.attend(number, flags);
        }
        if let Some(log) = self.log.as_mut().filter(|_| turn.log) {
            log.read();
        }
        if turn.room {
            self.sandbox.flush();
        }
        if turn.gateway {
            self.hear_gateway();
        }
        for (number, ready) in turn.commands {
            self.advance(number, ready);
        }
        self.advance_files(turn.files, now);
        self.pass_on_log();
        self.part();
        self.check_times(now);
        Ok(())
    }

    fn wait(&self) -> Result<Turn> {
        let now = Instant::now();
        let readable = |fd| PollFd::new(fd, PollFlags::POLLIN);
        let mut polled = vec![readable(self.signals.as_fd())];
        let accepting = self.connections.len() < MOST_CONNECTIONS && self.deaf_until.is_none_or(|until| until <= now);
        let listening = if accepting { PollFlags::POLLIN } else { PollFlags::empty() };
        polled.push(PollFd::new(self.listener.as_fd(), listening));
        if !self.dead {
            polled.push(readable(self.sandbox.pidfd()));
        }
        let lease = polled.len();
        polled.extend(self.lease.iter().map(|lease| readable(lease.as_fd())));
        let connections = polled.len();
        polled.extend(self.connections.values().map(|one| PollFd::new(one.as_fd(), one.interests())));
        let log = polled.len();
        polled.extend(self.log.iter().flat_map(Log::interests));
        let room = polled.len();
        polled.extend(self.sandbox.room());
        let gateway = polled.len();
        polled.extend(self.sandbox.gateway());
        let readers = polled.len();
        if let Some(log) = &self.log {
            polled.extend(self.readers.iter().flat_map(|reader| log.waiting(reader)));
        }
        let files = self.files.interests(&mut polled);
        let mut commands = Vec::new();
        for (number, command) in &self.commands.running {
            let from = polled.len();
            let places = command.running.interests(&mut polled);
            commands.push((*number, from..polled.len(), command.running.due(), places));
        }
        loop {
            let due = commands.iter().filter_map(|(_, _, due, _)| *due).chain(self.files.due()).min();
            match poll(&mut polled, self.timeout(due)) {
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(Error::errno(Step::Supervise, "poll", errno)),
                Ok(_) => break,
            }
        }
        let now = Instant::now();
        let is_ready = |fd: &PollFd<'_>| fd.any().unwrap_or(true);
        let flags = |fd: &PollFd<'_>| fd.revents().unwrap_or(PollFlags::POLLERR);
        let numbers = self.connections.keys().copied();
        Ok(Turn {
            signal: is_ready(&polled[0]),
            client: accepting && is_ready(&polled[1]),
            dead: !self.dead && is_ready(&polled[2]),
            lapsed: polled[lease..connections].iter().any(is_ready),
            connections: numbers
                .zip(polled[connections..log].iter().map(flags))
                .filter(|(_, flags)| !flags.is_empty())
                .collect(),
            log: polled[log..room].iter().any(is_ready),
            room: polled[room..gateway].iter().any(is_ready),
            gateway: polled[gateway..readers].iter().any(is_ready),
            files: files.map(|places| places.ready(&polled)).unwrap_or_default(),
            commands: commands
                .into_iter()
                .filter(|(_, range, due, _)| {
                    polled[range.clone()].iter().any(is_ready) || due.is_some_and(|due| due <= now)
                })
                .map(|(number, _, _, places)| (number, places.ready(&polled)))
                .collect(),
        })
    }

    /// The time until the next thing that happens by itself.
    fn timeout(&self, commands: Option<Instant>) -> PollTimeout {
        let deaf = self.deaf_until.filter(|until| *until > Instant::now());
        let Some(nearest) = [commands, deaf, self.next_time()].into_iter().flatten().min() else {
            return PollTimeout::NONE;
        };
        let left = nearest.saturating_duration_since(Instant::now());
        let milliseconds = left.as_micros().div_ceil(1000).min(3_600_000); // an hour; poll takes an int
        PollTimeout::try_from(milliseconds as i32).unwrap_or(PollTimeout::ZERO)
    }

    fn accept(&mut self, now: Instant) {
        self.deaf_until = None;
        match Connection::accept(self.listener.as_fd()) {
            Ok(None) | Err(Errno::EAGAIN | Errno::ECONNABORTED | Errno::EINTR) => {}
            // The client stays in the queue, which polls readable.
            Err(_) => self.deaf_until = Some(now + Duration::from_millis(100)),
            Ok(Some(mut connection)) => {
                let hello = Hello {
                    protocol: PROTOCOL.to_owned(),
                    session: self.held.place.name.clone(),
                    version: env!("CARGO_PKG_VERSION").to_owned(),
                };
                connection.say(&hello, Vec::new());
                self.last_connection += 1;
                self.connections.insert(self.last_connection, connection);
            }
        }
    }

    /// Reads requests of a client and answers them, and sends what waits for it.
    fn attend(&mut self, number: u64, flags: PollFlags) {
        let mut buffer = Vec::new();
        for _ in 0..REQUESTS_A_TURN {
            let Some(connection) = self.connections.get_mut(&number) else { return };
            connection.flush();
            match connection.receive(&mut buffer) {
                None if flags.intersects(PollFlags::POLLHUP | PollFlags::POLLERR) => return connection.hang_up(),
                None => return,
                Some(packet) => self.answer(number, packet),
            }
        }
    }

    /// Lets a command take a step, and tells its start and its end.
    fn advance(&mut self, number: u64, ready: Ready) {
        let Some(command) = self.commands.running.get_mut(&number) else { return };
        command.running.turn(ready);
        if command.running.is_lost() {
            self.sandbox.kill();
        }
        if let (false, Some(pid)) = (command.announced, command.started()) {
            let terminal = command.running.terminal();
            // A terminal may arrive after the start.
            if !command.tty || terminal.is_some() {
                command.announced = true;
                let asked = command.asked;
                let reply =
                    Reply { event: Event::Started, command: Some(id(number)), pid: Some(pid), ..Reply::default() };
                self.tell(asked, reply, terminal.into_iter().collect());
            }
        }
        if self.commands.running.get(&number).is_some_and(|command| command.running.is_over()) {
            self.end_command(number);
        }
    }

    /// Sends a reply, if somebody still waits for it.
    fn tell(&mut self, asked: Option<Asked>, reply: Reply, fds: Vec<OwnedFd>) {
        let Some(asked) = asked else { return };
        if let Some(connection) = self.connections.get_mut(&asked.connection) {
            connection.say(&Reply { id: Some(asked.request), ..reply }, fds);
        }
    }

    /// Forgets the clients that are gone, and kills their foreground commands.
    fn part(&mut self) {
        let gone: Vec<u64> =
            self.connections.iter().filter(|(_, one)| !one.is_open()).map(|(number, _)| *number).collect();
        for number in gone {
            self.connections.remove(&number);
            self.deaf_until = None;
            self.files.part(number);
            self.readers.retain(|reader| reader.connection != number);
            self.waiters.retain(|(asked, _)| asked.connection != number);
            let of_client = |command: &&mut Command| command.asked.is_some_and(|asked| asked.connection == number);
            for command in self.commands.running.values_mut().filter(of_client) {
                command.asked = None;
                if !command.background {
                    command.running.kill();
                }
            }
        }
    }
}
