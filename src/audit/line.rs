//! The content of a line: facts about one run in about a kilobyte, without text that the workload or another user chose.

use std::collections::BTreeMap;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use stockade_egress::change::Change;

use crate::error::Step;
use crate::report::{Report, Status};

/// The value of [`Line::schema`].
pub const SCHEMA: &str = "stockade/audit/v1";

/// An invalid sandbox name is cut to this many characters.
const MAX_ID: usize = 64;

/// A change is cut to this many characters: a rule can have thousands of ports.
const MAX_CHANGE: usize = 1024;

/// One line of the audit log. Every name carries its unit; `null` means unknown.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(title = "AuditLine"))]
pub struct Line {
    /// Always [`SCHEMA`]; first in the line.
    pub schema: String,
    /// Wall-clock time at which the run began, RFC 3339 in UTC.
    pub started_at: String,
    /// Wall-clock time at which it was over, RFC 3339 in UTC.
    pub finished_at: String,
    /// Name of the sandbox.
    pub id: String,
    /// What the caller calls the run, by `--label`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// The caller: the real user id of the supervisor.
    pub uid: u32,
    /// SHA-256 over the words of the command, each followed by a NUL byte, hexadecimal; `null` if there were none.
    pub argv_sha256: Option<String>,
    /// SHA-256 of the executed file, hexadecimal (of a script, not its interpreter); `null` if no file was executed, or if it
    /// could not be read or has changed since.
    pub exe_sha256: Option<String>,
    /// SHA-256 of the resolved policy, hexadecimal; `null` if there was none.
    pub policy_sha256: Option<String>,
    /// How it ended; `setup_error` if it was refused.
    pub status: Status,
    /// The exit code of `stockade run`.
    pub exit_code: u8,
    /// Number of the signal that ended the workload.
    pub signal: Option<i32>,
    /// Whether a deadline ended it.
    pub timed_out: bool,
    /// The error, if it was refused or could not be supervised.
    pub error: Option<ErrorCode>,
    /// Resource usage.
    pub usage: Totals,
    /// Amount of output; `null` if the streams were passed through uncounted.
    pub output: Option<Printed>,
    /// Number of denials; `null` if denials were not recorded.
    pub denials: Option<u64>,
    /// Connections and names that were refused to the workload; `null` without rules for hosts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub net_refusals: Option<u64>,
    /// The change of a session's rules for hosts that this line is about, such as `allow api.example.com`. It was about to be made
    /// at that time. Absent from the line of a run or session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub net_change: Option<String>,
    /// Version of stockade.
    pub version: String,
    /// Bytes between the last complete line and this one, newlines included: the rest of lines whose writers died.
    pub torn_bytes: u64,
    /// SHA-256 of all bytes from the beginning of the last complete line up to this one, newlines included, hexadecimal;
    /// `null` at the beginning of the file.
    pub prev_sha256: Option<String>,
}

/// An error without its text, which may contain text that others chose.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ErrorCode {
    /// The step that failed.
    pub step: Step,
    /// The kernel's error number, if a system call failed.
    pub errno: Option<i32>,
}

/// Resource usage of the whole process tree.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[allow(missing_docs)]
pub struct Totals {
    pub wall_us: Option<u64>,
    pub cpu_us: Option<u64>,
    pub memory_peak_bytes: Option<u64>,
    pub oom_kills: Option<u64>,
    pub pids_peak: Option<u64>,
    pub io_read_bytes: Option<u64>,
    pub io_write_bytes: Option<u64>,
}

/// Amount of output.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[allow(missing_docs)]
pub struct Printed {
    pub stdout_bytes: u64,
    pub stderr_bytes: u64,
}

impl Line {
    /// The line of a run, not yet chained to the line before it.
    pub fn of(report: &Report) -> Self {
        let (usage, command) = (&report.usage, report.command.as_ref());
        Self {
            schema: SCHEMA.to_owned(),
            started_at: report.started_at.clone(),
            finished_at: report.finished_at.clone(),
            id: report.id.chars().take(MAX_ID).collect(),
            labels: report.labels.clone(),
            uid: nix::unistd::getuid().as_raw(),
            argv_sha256: command.map(|command| command.argv_sha256.clone()),
            exe_sha256: command.and_then(|command| command.exe_sha256.clone()),
            policy_sha256: report.policy_sha256.clone(),
            status: report.status,
            exit_code: report.exit_code,
            signal: report.signal,
            timed_out: matches!(report.status, Status::TimeoutWall | Status::TimeoutCpu | Status::TimeoutIdle),
            error: report.error.as_ref().map(|error| ErrorCode { step: error.step, errno: error.errno }),
            usage: Totals {
                wall_us: usage.wall_us,
                cpu_us: usage.cpu.total_us,
                memory_peak_bytes: usage.memory.peak_bytes,
                oom_kills: usage.memory.oom_kills,
                pids_peak: usage.pids.peak,
                io_read_bytes: usage.io.read_bytes,
                io_write_bytes: usage.io.write_bytes,
            },
            output: report
                .output
                .as_ref()
                .map(|output| Printed { stdout_bytes: output.stdout.bytes, stderr_bytes: output.stderr.bytes }),
            denials: report
                .denials
                .as_ref()
                .map(|denials| denials.iter().fold(0, |sum: u64, denial| sum.saturating_add(denial.count))),
            net_refusals: report
                .network
                .as_ref()
                .and_then(|network| network.egress.as_ref())
                .map(|egress| egress.refused),
            net_change: None,
            version: report.runtime.version.clone(),
            torn_bytes: 0,
            prev_sha256: None,
        }
    }

    /// The line of a change of a session's rules for hosts.
    pub fn of_change(id: &str, change: &Change) -> Self {
        let (word, rule) = match change {
            Change::Allow(rule) => ("allow", rule),
            Change::Deny(rule) => ("deny", rule),
        };
        let shown: String = format!("{word} {rule}").chars().take(MAX_CHANGE).collect();
        Self { status: Status::Ok, net_change: Some(shown), ..Self::of(&Report::blank(id, None, SystemTime::now())) }
    }

    /// Parses a line with its newline; `None` if it is not a complete line.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let json = bytes.strip_suffix(b"\n")?;
        serde_json::from_slice(json).ok().filter(|line: &Self| line.schema == SCHEMA)
    }
}
