//! The report of one run, `stockade/report/v1`.
//!
//! Every name carries its unit. `null` means not measured. `enforced` holds only what was read back from the kernel, not what
//! was requested.

mod enforced;
mod usage;

use std::collections::BTreeMap;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use stockade_egress::record::Totals;

pub use self::enforced::{Bound, BoundBy, Cgroup, Degraded, Enforced, Seccomp};
pub use self::usage::{Cpu, Disk, Io, Memory, Pids, Psi, Rusage, SAMPLE_SCHEMA, Sample, Usage};
use crate::error::{Cause, Error, Step};
use crate::plan::{self, Bytes, ContainerPlan, RunPlan, hex};

/// The value of [`Report::schema`].
pub const SCHEMA: &str = "stockade/report/v1";

/// The report of one run, written when all of its processes have ended, or when it could not start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Report {
    /// Always [`SCHEMA`].
    pub schema: String,
    /// Name of the sandbox.
    pub id: String,
    /// What the caller calls the run, by `--label`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Wall-clock time at which the run began, RFC 3339 in UTC.
    pub started_at: String,
    /// Wall-clock time at which all of its processes had ended, RFC 3339 in UTC.
    pub finished_at: String,
    /// The command; `null` if the command line could not be parsed.
    pub command: Option<Command>,
    /// How it ended.
    pub status: Status,
    /// The exit code of `stockade run`; 255 if it is unknown.
    pub exit_code: u8,
    /// Number of the signal that ended the workload.
    pub signal: Option<i32>,
    /// Whether the workload dumped core.
    pub core_dumped: bool,
    /// The error, if the run could not start or could not be supervised.
    pub error: Option<ErrorRecord>,
    /// Duration of each phase.
    pub timings_us: Timings,
    /// Resource usage.
    pub usage: Usage,
    /// Output of the workload; `null` if the streams were passed through uncounted.
    pub output: Option<Output>,
    /// Network access of the workload.
    pub network: Option<NetworkRecord>,
    /// What the workload was denied; `null` if denials were not recorded.
    pub denials: Option<Vec<Denial>>,
    /// The layers whose denials could not be recorded; `null` if denials were not requested.
    pub denials_unheard: Option<Vec<Unheard>>,
    /// The verified confinement; `null` if the workload never ran.
    pub enforced: Option<Enforced>,
    /// SHA-256 of the resolved policy, hexadecimal; `null` if there was none.
    pub policy_sha256: Option<String>,
    /// The program that ran it.
    pub runtime: Runtime,
}

impl Report {
    /// The report of a run that did not start. `subject` is `None` if there was no plan yet.
    pub fn not_started(id: &str, subject: Option<Subject<'_>>, started: SystemTime, error: &Error) -> Self {
        let status = Status::SetupError;
        Self { status, exit_code: error.exit_code(), error: Some(error.into()), ..Self::blank(id, subject, started) }
    }

    /// A report with only the command and the times; `finished_at` is now.
    pub fn blank(id: &str, subject: Option<Subject<'_>>, started: SystemTime) -> Self {
        Self {
            schema: SCHEMA.into(),
            id: id.into(),
            labels: subject.as_ref().map(|subject| subject.labels.clone()).unwrap_or_default(),
            started_at: timestamp(started),
            finished_at: timestamp(SystemTime::now()),
            command: subject.as_ref().map(|subject| Command::of(subject.command)),
            status: Status::InternalError,
            exit_code: 125,
            signal: None,
            core_dumped: false,
            error: None,
            timings_us: Timings::default(),
            usage: Usage::default(),
            output: None,
            network: None,
            denials: None,
            denials_unheard: None,
            enforced: None,
            policy_sha256: subject.map(|subject| subject.policy_sha256),
            runtime: Runtime::this(),
        }
    }
}

/// The command and policy that a report is about.
#[derive(Debug)]
pub struct Subject<'a> {
    command: &'a plan::Command,
    policy_sha256: String,
    labels: BTreeMap<String, String>,
}

impl<'a> From<&'a RunPlan> for Subject<'a> {
    fn from(plan: &'a RunPlan) -> Self {
        let policy_sha256 = match plan.policy_sha256.as_str() {
            "" => plan.policy_hash(),
            known => known.to_owned(),
        };
        Self { command: &plan.command, policy_sha256, labels: plan.labels.clone() }
    }
}

impl<'a> From<&'a ContainerPlan> for Subject<'a> {
    fn from(plan: &'a ContainerPlan) -> Self {
        Self { command: &plan.process.command, policy_sha256: plan.policy_hash(), labels: BTreeMap::new() }
    }
}

/// RFC 3339 in UTC, to the microsecond.
pub fn timestamp(time: SystemTime) -> String {
    humantime::format_rfc3339_micros(time).to_string()
}

impl Command {
    /// A planned command, without the hash of its executable.
    pub fn of(command: &plan::Command) -> Self {
        let argv = command.argv.clone();
        let argv_sha256 = argv_sha256(argv.iter().map(Bytes::as_bytes));
        Self { argv_sha256, argv, cwd: command.cwd.clone(), exe_sha256: None }
    }
}

/// SHA-256 over the words of a command, each followed by a NUL byte, hexadecimal.
pub fn argv_sha256<'a>(argv: impl Iterator<Item = &'a [u8]>) -> String {
    let hash = argv.fold(Sha256::new(), |hash, word| hash.chain_update(word).chain_update([0]));
    hex(&hash.finalize())
}

impl Runtime {
    /// This program on this kernel.
    pub fn this() -> Self {
        let kernel = nix::sys::utsname::uname().map(|name| name.release().to_string_lossy().into_owned());
        let (name, version) = (env!("CARGO_PKG_NAME").into(), env!("CARGO_PKG_VERSION").into());
        Self { name, version, kernel: kernel.unwrap_or_default() }
    }
}

/// The executed command.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Command {
    /// Its words.
    pub argv: Vec<Bytes>,
    /// SHA-256 over the words, each followed by a NUL byte, hexadecimal.
    pub argv_sha256: String,
    /// Working directory in the sandbox.
    pub cwd: Bytes,
    /// SHA-256 of the executed file, hexadecimal; `null` if it was not requested.
    pub exe_sha256: Option<String>,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Exit code 0.
    Ok,
    /// A nonzero exit code.
    Nonzero,
    /// A signal that the workload or another process of its tree sent.
    Signaled,
    /// The wall-clock deadline passed.
    TimeoutWall,
    /// The CPU time limit was reached.
    TimeoutCpu,
    /// There was no output for longer than the limit.
    TimeoutIdle,
    /// The kernel killed it because it was out of memory.
    Oom,
    /// It failed because it reached the limit on processes.
    PidsLimit,
    /// It exceeded its output limit.
    OutputLimit,
    /// It used up its budget of network traffic.
    NetBudget,
    /// A seccomp filter killed it.
    SeccompKilled,
    /// It never ran.
    SetupError,
    /// The user ended it at the terminal or by a signal to the supervisor.
    KilledByUser,
    /// The supervisor failed.
    InternalError,
    /// Unknown: the engine waited for the container's process, not stockade.
    Unknown,
}

/// An [`Error`] as data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ErrorRecord {
    /// The step that failed.
    pub step: Step,
    /// The file, setting or other object that it failed on.
    pub object: String,
    /// The kernel's error number, if a system call failed.
    pub errno: Option<i32>,
    /// The reason, as text.
    pub reason: String,
    /// The option of the command line that it comes from, with its value, if the object does not name it.
    #[serde(default)]
    pub option: Option<String>,
    /// How to fix it.
    pub hint: Option<String>,
}

impl From<&Error> for ErrorRecord {
    fn from(error: &Error) -> Self {
        let (errno, reason) = match &error.cause {
            Cause::Errno(errno) => (Some(*errno as i32), errno.desc().to_owned()),
            Cause::Reason(reason) => (None, reason.clone()),
        };
        let (option, hint) = (error.option.clone(), error.hint.clone());
        Self { step: error.step, object: error.object.clone(), errno, reason, option, hint }
    }
}

impl From<&ErrorRecord> for Error {
    fn from(record: &ErrorRecord) -> Self {
        let cause = match record.errno {
            Some(errno) => Cause::Errno(nix::errno::Errno::from_raw(errno)),
            None => Cause::Reason(record.reason.clone()),
        };
        let (option, hint) = (record.option.clone(), record.hint.clone());
        Self { step: record.step, object: record.object.clone(), cause, option, hint }
    }
}

/// Duration of each phase, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Timings {
    /// From the start of the run to the new namespaces.
    pub setup: Option<u64>,
    /// From the new namespaces to the workload's execve.
    pub exec_wait: Option<u64>,
    /// From the execve to the workload's end.
    pub run: Option<u64>,
    /// From the workload's end to the end of all its processes.
    pub teardown: Option<u64>,
}

/// Output of the workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[allow(missing_docs)]
pub struct Output {
    pub stdout: Stream,
    pub stderr: Stream,
}

/// One output stream.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Stream {
    /// Bytes that the workload wrote.
    pub bytes: u64,
    /// Bytes that were passed on.
    pub kept: u64,
    /// Whether fewer bytes were passed on than written.
    pub truncated: bool,
    /// SHA-256 of the bytes that were passed on, hexadecimal.
    pub sha256: String,
}

/// Network access of the workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct NetworkRecord {
    /// As planned and verified: `none`, `loopback`, `egress` or `host`.
    pub mode: crate::plan::Network,
    /// The traffic with allowed hosts, and what was refused; absent for other modes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub egress: Option<Totals>,
}

/// An operation that the workload was denied.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Denial {
    /// The layer that denied it: `seccomp`, `landlock`, `network`, `mount` (read-only or noexec), `mode` (of a file, or its owner) or
    /// `view` (the host has it, and the sandbox does not).
    pub layer: String,
    /// The operation: a system call or an access right.
    pub op: String,
    /// The object of the operation.
    pub target: Option<String>,
    /// The rule that decided.
    pub rule: Option<String>,
    /// The error number that it returned; `null` if the process was killed, or if it is unknown.
    pub errno: Option<i32>,
    /// Host process id of the first process that tried it.
    pub pid: Option<u32>,
    /// That process's name, `comm` in `proc(5)`.
    pub comm: Option<Bytes>,
    /// How often it was denied.
    pub count: u64,
    /// Time of the first denial, in microseconds since the workload began.
    pub first_us: Option<u64>,
    /// The setting that would allow it.
    pub hint: Option<String>,
    /// Certainty: `exact` or `inferred`.
    pub confidence: String,
}

/// A layer whose denials could not be recorded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Unheard {
    /// The layer.
    pub layer: String,
    /// The reason, on this host.
    pub why: String,
}

/// The program and kernel that ran it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[allow(missing_docs)]
pub struct Runtime {
    pub name: String,
    pub version: String,
    pub kernel: String,
}
