//! The commands of a session: those that run, and the last ones that ended.

use std::collections::{BTreeMap, VecDeque};
use std::time::SystemTime;

use serde_json::value::{RawValue, to_raw_value};

use crate::plan::{Bytes, RunPlan};
use crate::report::{Report, timestamp};
use crate::run::sandbox::{Running, Sandbox};
use crate::session::protocol::{CommandStatus, OWN};

/// How many ended commands are remembered.
const REMEMBERED: usize = 100;

/// A request of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The connection.
    pub connection: u64,
    /// The request's id.
    pub request: u64,
}

/// A command that runs.
pub struct Command {
    /// It.
    pub running: Running,
    /// Who is told of its start and its end; `None` for the session's own, and if the client is gone.
    pub asked: Option<Asked>,
    /// Whether it lives on without its client.
    pub background: bool,
    /// Whether it has a terminal.
    pub tty: bool,
    /// Whether its start was told.
    pub announced: bool,
    pid: Option<i32>,
    argv: Vec<Bytes>,
    started_at: String,
}

/// A command that ended.
pub struct Ended {
    status: CommandStatus,
    /// Its report.
    pub report: Box<RawValue>,
}

/// All commands, by number. The session's own has number 0.
#[derive(Default)]
pub struct Commands {
    /// Those that run.
    pub running: BTreeMap<u64, Command>,
    ended: VecDeque<(u64, Ended)>,
    last: u64,
}

impl Command {
    /// A command that was just begun.
    pub fn new(running: Running, plan: &RunPlan, tty: bool) -> Self {
        let argv = plan.command.argv.clone();
        let started_at = timestamp(SystemTime::now());
        Self { running, asked: None, background: false, tty, announced: false, pid: None, argv, started_at }
    }

    /// Its host process id, once it is verified.
    pub fn started(&mut self) -> Option<i32> {
        self.pid = self.pid.or_else(|| self.running.started());
        self.pid
    }
}

impl Commands {
    /// The number of the next command.
    pub fn next(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// Takes a command that is over out of those that run, and remembers it. Returns who asked for it, and its report.
    pub fn end(&mut self, number: u64, sandbox: &Sandbox) -> Option<(Option<Asked>, Report)> {
        let command = self.running.remove(&number)?;
        let (asked, running_status) = (command.asked, status(number, &command));
        let report = command.running.report(sandbox);
        let status = CommandStatus {
            finished_at: Some(report.finished_at.clone()),
            status: Some(report.status),
            exit_code: Some(report.exit_code),
            cpu_us: report.usage.cpu.total_us,
            memory_peak_bytes: report.usage.memory.peak_bytes,
            ..running_status
        };
        if self.ended.len() == REMEMBERED {
            self.ended.pop_front();
        }
        self.ended.push_back((number, Ended { status, report: raw(&report) }));
        Some((asked, report))
    }

    /// The report of a command that ended and is remembered.
    pub fn report_of(&self, number: u64) -> Option<Box<RawValue>> {
        self.ended.iter().find(|(known, _)| *known == number).map(|(_, ended)| ended.report.clone())
    }

    /// Those that run, and those that ended.
    pub fn statuses(&self) -> (Vec<CommandStatus>, Vec<CommandStatus>) {
        let running = self.running.iter().map(|(number, command)| status(*number, command));
        (running.collect(), self.ended.iter().map(|(_, ended)| ended.status.clone()).collect())
    }
}

fn status(number: u64, command: &Command) -> CommandStatus {
    let user = command.running.user();
    CommandStatus {
        command: id(number),
        pid: command.pid,
        uid: user.map(|(uid, _)| uid),
        gid: user.map(|(_, gid)| gid),
        argv: command.argv.clone(),
        started_at: command.started_at.clone(),
        finished_at: None,
        status: None,
        exit_code: None,
        cpu_us: None,
        memory_peak_bytes: None,
    }
}

/// A value as JSON that is not changed any more.
pub fn raw(value: &impl serde::Serialize) -> Box<RawValue> {
    to_raw_value(value).unwrap_or_else(|_| RawValue::NULL.to_owned())
}

/// The id of a command.
pub fn id(number: u64) -> String {
    if number == 0 { OWN.to_owned() } else { format!("c{number}") }
}

/// The number of a command with this id.
pub fn number(id: &str) -> Option<u64> {
    match id.strip_prefix('c') {
        None => (id == OWN).then_some(0),
        Some(digits) => {
            let number = digits.parse().ok().filter(|number| *number > 0)?;
            (self::id(number) == id).then_some(number)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_has_one_id() {
        for number in [0, 1, 10, u64::MAX] {
            assert_eq!(super::number(&id(number)), Some(number));
        }
        for wrong in ["", "c", "c0", "c01", "c+1", "C1", "1", "main ", "all", "c18446744073709551616"] {
            assert_eq!(number(wrong), None, "{wrong}");
        }
    }
}
