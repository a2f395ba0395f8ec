//! The end of a command, and of the session.

use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::Server;
use super::commands::{Asked, id, raw};
use super::connection::Connection;
use crate::error::{Error, Result, Step};
use crate::report::{ErrorRecord, Report, Status};
use crate::session::protocol::Reply;
use crate::session::record::{Cause, End, Record};

/// How long the end waits for commands that were killed.
const LAST_WAIT: Duration = Duration::from_secs(5);
/// How long the end waits for clients to read what they asked for.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// A session that is about to end.
pub struct Ending {
    cause: Cause,
    /// When what is left is killed, and then when it is not waited for any more.
    due: Instant,
    killed: bool,
}

impl Server<'_> {
    /// A command is over: remembers it, and tells those who wait for it.
    pub(super) fn end_command(&mut self, number: u64) {
        let Some((asked, report)) = self.commands.end(number, &self.sandbox) else { return };
        self.last_used = Instant::now();
        self.tell_waiters(asked, Some(number), &report);
        if number == 0 {
            self.own_report = Some(report);
            self.begin_end(Cause::Command, Duration::from_micros(self.plan.deadlines.kill_after_us));
        }
    }

    /// Sends a report to who asked for the command, and to who waits for it; `None` is the session.
    fn tell_waiters(&mut self, asked: Option<Asked>, ended: Option<u64>, report: &Report) {
        let (waiting, others) = self.waiters.drain(..).partition(|(_, awaited)| *awaited == ended);
        self.waiters = others;
        let waiting: Vec<(Asked, Option<u64>)> = waiting;
        let session_ends = self.ending.as_ref().map(|ending| ending.cause);
        for asked in asked.into_iter().chain(waiting.into_iter().map(|(asked, _)| asked)) {
            let reply = Reply { command: ended.map(id), report: Some(raw(report)), session_ends, ..Reply::default() };
            self.tell(Some(asked), reply, Vec::new());
        }
    }

    /// Asks every command to end. After the grace they are killed. The first cause stays.
    pub(super) fn begin_end(&mut self, cause: Cause, grace: Duration) {
        let due = Instant::now() + grace;
        if let Some(ending) = &mut self.ending {
            if !ending.killed {
                ending.due = ending.due.min(due);
            }
            return;
        }
        self.ending = Some(Ending { cause, due, killed: false });
        if std::mem::take(&mut self.paused) {
            let _ = self.sandbox.freeze(false); // otherwise they would not notice
        }
        self.commands.running.values_mut().for_each(|command| command.running.signal(libc::SIGTERM));
    }

    /// Whether nothing is left to wait for.
    pub(super) fn is_over(&self) -> bool {
        let Some(ending) = &self.ending else { return false };
        self.commands.running.is_empty() || (ending.killed && ending.due <= Instant::now())
    }

    /// The next time at which the session does something by itself.
    pub(super) fn next_time(&self) -> Option<Instant> {
        match &self.ending {
            Some(ending) => Some(ending.due),
            None => [self.ends_at, self.idle_at()].into_iter().flatten().min(),
        }
    }

    /// When the session ends because nobody uses it.
    fn idle_at(&self) -> Option<Instant> {
        self.idle_stop.filter(|_| self.commands.running.is_empty()).map(|time| self.last_used + time)
    }

    pub(super) fn check_times(&mut self, now: Instant) {
        let grace = Duration::from_micros(self.plan.deadlines.kill_after_us);
        let is_due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        if is_due(self.ends_at) {
            self.begin_end(Cause::Lifetime, grace);
        } else if is_due(self.idle_at()) {
            self.begin_end(Cause::Idle, grace);
        }
        if let Some(ending) = self.ending.as_mut().filter(|ending| !ending.killed && ending.due <= now) {
            (ending.killed, ending.due) = (true, now + LAST_WAIT);
            self.commands.running.values_mut().for_each(|command| command.running.kill());
        }
    }

    /// A signal that ends a program ends the session politely; a second one at once.
    pub(super) fn take_signals(&mut self) -> Result<()> {
        let failed = |errno| Error::errno(Step::Supervise, "signals", errno);
        while let Some(info) = self.signals.read_signal().map_err(failed)? {
            if matches!(info.ssi_signo as libc::c_int, libc::SIGTERM | libc::SIGINT | libc::SIGHUP | libc::SIGQUIT) {
                let grace = Duration::from_micros(self.plan.deadlines.kill_after_us);
                let again = self.ending.is_some();
                self.begin_end(Cause::Stopped, if again { Duration::ZERO } else { grace });
            }
        }
        Ok(())
    }

    /// Ends the sandbox, records the end, and tells the clients that wait for it.
    pub(super) fn finish(mut self) -> Report {
        for number in self.commands.running.keys().copied().collect::<Vec<_>>() {
            if let Some(command) = self.commands.running.get_mut(&number) {
                command.running.lose();
            }
            self.end_command(number);
        }
        self.lose_files();
        let output = self.end_log();
        let cause = self.ending.as_ref().map_or(Cause::Failed, |ending| ending.cause);
        let mut report = self.own_report.clone().unwrap_or_else(|| {
            let report = Report::blank(&self.plan.confinement.id, Some((&self.plan).into()), self.created);
            let (status, exit_code) = match cause {
                Cause::Failed => (Status::InternalError, 125),
                _ => (Status::Ok, 0),
            };
            Report { status, exit_code, usage: self.sandbox.usage(), ..report }
        });
        self.add_network(cause, &mut report);
        self.record_end(End { cause, report: report.clone(), output });
        self.held.close();
        self.tell_waiters(None, None, &report);
        self.say_last_words();
        let _ = self.sandbox.end();
        report
    }

    /// Whoever asks from now on reads the record. It is worth more than the output, which may have taken the last room.
    fn record_end(&self, end: End) {
        let mut record = Record { end: Some(end), ..self.record() };
        let Err(error) = self.held.write_record(&record.json()) else { return };
        if let Some(output) = record.end.as_mut().and_then(|end| end.output.as_mut()) {
            self.held.remove_output();
            output.lost = Some(ErrorRecord::from(&error).reason);
            let _ = self.held.write_record(&record.json());
        }
    }

    fn say_last_words(&mut self) {
        let until = Instant::now() + LAST_WORDS;
        loop {
            self.pass_on_log();
            self.connections.values_mut().for_each(Connection::flush);
            let readers = &self.readers;
            self.connections.retain(|number, connection| {
                let reads = readers.iter().any(|reader| reader.connection == *number);
                connection.is_open() && (reads || !connection.is_flushed())
            });
            let left = until.saturating_duration_since(Instant::now());
            if self.connections.is_empty() || left.is_zero() {
                return;
            }
            let unflushed = self.connections.values().filter(|one| !one.is_flushed());
            let mut polled: Vec<_> = unflushed.map(|one| PollFd::new(one.as_fd(), PollFlags::POLLOUT)).collect();
            polled.extend(self.log.iter().flat_map(|log| self.readers.iter().flat_map(|reader| log.waiting(reader))));
            let left = PollTimeout::try_from(left.as_millis() as i32 + 1).unwrap_or(PollTimeout::ZERO);
            if !matches!(poll(&mut polled, left), Ok(_) | Err(Errno::EINTR)) {
                return;
            }
        }
    }
}
