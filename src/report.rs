//! What happened: the report of one run, `stockade/report/v1`.
//!
//! Every name carries its unit, `null` means not measured, and `enforced` holds what was read back from the kernel, never
//! what was asked for.

use std::time::SystemTime;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::error::{Cause, Error, Step};
use crate::plan::{self, Bytes, ContainerPlan, RunPlan, hex};

/// The value of [`Report::schema`].
pub const SCHEMA: &str = "stockade/report/v1";

/// The report of one run, written when its whole tree is dead, or when it could not start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Report {
    /// Always [`SCHEMA`].
    pub schema: String,
    /// Name of the sandbox.
    pub id: String,
    /// Wall-clock time at which the run began, RFC 3339 in UTC.
    pub started_at: String,
    /// Wall-clock time at which its tree was dead, RFC 3339 in UTC.
    pub finished_at: String,
    /// What was to be executed; `null` when the command line itself could not be read.
    pub command: Option<Command>,
    /// How it ended.
    pub status: Status,
    /// The exit code that `stockade run` itself returns; 255 when it is not known.
    pub exit_code: u8,
    /// Number of the signal that ended the workload.
    pub signal: Option<i32>,
    /// Whether that left a core dump.
    pub core_dumped: bool,
    /// What went wrong, when it could not start or could not be supervised.
    pub error: Option<ErrorRecord>,
    /// Where the time went.
    pub timings_us: Timings,
    /// What was used.
    pub usage: Usage,
    /// What was printed; `null` when the streams were passed through uncounted.
    pub output: Option<Output>,
    /// What the workload could reach.
    pub network: Option<NetworkRecord>,
    /// What the workload was refused; `null` when nobody was listening.
    pub denials: Option<Vec<Denial>>,
    /// The layers whose denials could not be listened to, though that was asked for; `null` when it was not.
    pub denials_unheard: Option<Vec<Unheard>>,
    /// What was verified to confine it; `null` when it never ran.
    pub enforced: Option<Enforced>,
    /// SHA-256 of the resolved policy, hexadecimal; `null` when there was none.
    pub policy_sha256: Option<String>,
    /// What ran it.
    pub runtime: Runtime,
}

impl Report {
    /// The report of a run that never ran: `subject` is `None` when it did not even come to a plan.
    pub fn not_started(id: &str, subject: Option<Subject<'_>>, started: SystemTime, error: &Error) -> Self {
        let status = Status::SetupError;
        Self { status, exit_code: error.exit_code(), error: Some(error.into()), ..Self::blank(id, subject, started) }
    }

    /// A report that says nothing yet but what was to be run, and when; it is finished now.
    pub fn blank(id: &str, subject: Option<Subject<'_>>, started: SystemTime) -> Self {
        Self {
            schema: SCHEMA.into(),
            id: id.into(),
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

/// What a report is about.
#[derive(Debug)]
pub struct Subject<'a> {
    command: &'a plan::Command,
    policy_sha256: String,
}

impl<'a> From<&'a RunPlan> for Subject<'a> {
    fn from(plan: &'a RunPlan) -> Self {
        let policy_sha256 = match plan.policy_sha256.as_str() {
            "" => plan.policy_hash(),
            known => known.to_owned(),
        };
        Self { command: &plan.command, policy_sha256 }
    }
}

impl<'a> From<&'a ContainerPlan> for Subject<'a> {
    fn from(plan: &'a ContainerPlan) -> Self {
        Self { command: &plan.process.command, policy_sha256: plan.policy_hash() }
    }
}

/// RFC 3339 in UTC, to the microsecond.
pub fn timestamp(time: SystemTime) -> String {
    humantime::format_rfc3339_micros(time).to_string()
}

impl Command {
    /// A planned command, before anything is known about its executable.
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

/// What was executed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Command {
    /// The words.
    pub argv: Vec<Bytes>,
    /// SHA-256 over the words, each followed by a NUL byte, hexadecimal.
    pub argv_sha256: String,
    /// Working directory inside.
    pub cwd: Bytes,
    /// SHA-256 of the executed file, hexadecimal; `null` when not asked for.
    pub exe_sha256: Option<String>,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Exit code 0.
    Ok,
    /// Another exit code.
    Nonzero,
    /// By a signal of its own or its tree's making.
    Signaled,
    /// The wall-clock deadline passed.
    TimeoutWall,
    /// The CPU time was used up.
    TimeoutCpu,
    /// No output for too long.
    TimeoutIdle,
    /// The kernel killed it for want of memory.
    Oom,
    /// It failed at the limit on processes.
    PidsLimit,
    /// It printed more than it may.
    OutputLimit,
    /// A seccomp filter killed it.
    SeccompKilled,
    /// It never ran.
    SetupError,
    /// The person in front of it, or whoever signalled the supervisor, ended it.
    KilledByUser,
    /// The supervisor could not do its work.
    InternalError,
    /// Somebody else waited for it: a container whose engine knows.
    Unknown,
}

/// An [`Error`] as data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ErrorRecord {
    /// Where in the sequence.
    pub step: Step,
    /// On what.
    pub object: String,
    /// The kernel's error number, when it said no.
    pub errno: Option<i32>,
    /// Why, for people.
    pub reason: String,
    /// The way out.
    pub hint: Option<String>,
}

impl From<&Error> for ErrorRecord {
    fn from(error: &Error) -> Self {
        let (errno, reason) = match &error.cause {
            Cause::Errno(errno) => (Some(*errno as i32), errno.desc().to_owned()),
            Cause::Reason(reason) => (None, reason.clone()),
        };
        Self { step: error.step, object: error.object.clone(), errno, reason, hint: error.hint.clone() }
    }
}

impl From<&ErrorRecord> for Error {
    fn from(record: &ErrorRecord) -> Self {
        let cause = match record.errno {
            Some(errno) => Cause::Errno(nix::errno::Errno::from_raw(errno)),
            None => Cause::Reason(record.reason.clone()),
        };
        Self { step: record.step, object: record.object.clone(), cause, hint: record.hint.clone() }
    }
}

/// Where the time went, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Timings {
    /// From the start of the run to the new namespaces.
    pub setup: Option<u64>,
    /// From there to the workload's execve.
    pub exec_wait: Option<u64>,
    /// From there to the workload's end.
    pub run: Option<u64>,
    /// From there to the death of its tree.
    pub teardown: Option<u64>,
}

/// What was used by the whole tree.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Usage {
    /// Wall-clock time of the workload in microseconds.
    pub wall_us: Option<u64>,
    /// CPU time.
    pub cpu: Cpu,
    /// Memory.
    pub memory: Memory,
    /// Processes and threads.
    pub pids: Pids,
    /// Block input and output, summed over devices.
    pub io: Io,
    /// Time stalled for want of a resource, `psi(4)`.
    pub psi: Psi,
    /// Counters of `getrusage(2)` for the workload and the children it waited for.
    pub rusage: Rusage,
    /// Scratch space.
    pub disk: Disk,
}

/// CPU time, in microseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Cpu {
    /// In user mode.
    pub user_us: Option<u64>,
    /// In the kernel.
    pub system_us: Option<u64>,
    /// Both.
    pub total_us: Option<u64>,
    /// Held back by `cpu.max`.
    pub throttled_us: Option<u64>,
    /// Periods in which it was held back.
    pub throttled_periods: Option<u64>,
    /// Where the figures come from: `cgroup2`, `cgroup1` or `rusage`.
    pub source: Option<String>,
}

/// Memory, in bytes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Memory {
    /// In use when it was looked at: at the end, or by `--stats`.
    pub current_bytes: Option<u64>,
    /// Most ever used at once.
    pub peak_bytes: Option<u64>,
    /// The limit, as read back.
    pub limit_bytes: Option<u64>,
    /// Most swap ever used at once.
    pub swap_peak_bytes: Option<u64>,
    /// Processes killed for want of memory.
    pub oom_kills: Option<u64>,
    /// Times it was slowed down at `memory.high`.
    pub high_events: Option<u64>,
    /// Times the limit was hit.
    pub max_events: Option<u64>,
    /// Where the figures come from.
    pub source: Option<String>,
}

/// Processes and threads.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Pids {
    /// Alive when it was looked at: at the end, or by `--stats`.
    pub current: Option<u64>,
    /// Most ever alive at once.
    pub peak: Option<u64>,
    /// The limit, as read back.
    pub limit: Option<u64>,
    /// Forks refused by the limit.
    pub max_events: Option<u64>,
}

/// Block input and output.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[allow(missing_docs)]
pub struct Io {
    pub read_bytes: Option<u64>,
    pub write_bytes: Option<u64>,
    pub reads: Option<u64>,
    pub writes: Option<u64>,
}

/// Time in which some task waited for a resource, in microseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[allow(missing_docs)]
pub struct Psi {
    pub cpu_some_us: Option<u64>,
    pub memory_some_us: Option<u64>,
    pub memory_full_us: Option<u64>,
    pub io_some_us: Option<u64>,
    pub io_full_us: Option<u64>,
}

/// Counters of `getrusage(2)`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[allow(missing_docs)]
pub struct Rusage {
    pub minor_faults: Option<u64>,
    pub major_faults: Option<u64>,
    pub ctx_voluntary: Option<u64>,
    pub ctx_involuntary: Option<u64>,
}

/// The scratch tmpfs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Disk {
    /// Bytes in use when the workload ended.
    pub scratch_used_bytes: Option<u64>,
    /// The limit.
    pub scratch_limit_bytes: Option<u64>,
    /// Files in use when the workload ended.
    pub inodes_used: Option<u64>,
}

/// The value of [`Sample::schema`].
pub const SAMPLE_SCHEMA: &str = "stockade/sample/v1";

/// A look at a run while it lasts: one line of `--stats`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Sample {
    /// Always [`SAMPLE_SCHEMA`].
    pub schema: String,
    /// Name of the sandbox.
    pub id: String,
    /// Microseconds since the workload began.
    pub elapsed_us: u64,
    /// What was used so far.
    pub usage: Usage,
}

/// What was printed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[allow(missing_docs)]
pub struct Output {
    pub stdout: Stream,
    pub stderr: Stream,
}

/// One output stream.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Stream {
    /// Bytes the workload wrote.
    pub bytes: u64,
    /// Bytes that were passed on.
    pub kept: u64,
    /// Whether some were not.
    pub truncated: bool,
    /// SHA-256 of what was passed on, hexadecimal.
    pub sha256: String,
}

/// What the workload could reach.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NetworkRecord {
    /// As planned and verified: `none`, `loopback` or `host`.
    pub mode: crate::plan::Network,
}

/// Something the workload was refused.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Denial {
    /// Which layer refused: `seccomp` or `landlock`.
    pub layer: String,
    /// What it tried: a syscall or an access right.
    pub op: String,
    /// On what.
    pub target: Option<String>,
    /// The rule that decided.
    pub rule: Option<String>,
    /// The error number it got; `null` when it was killed for it, or that is not known.
    pub errno: Option<i32>,
    /// Process id on the host of who tried it first.
    pub pid: Option<u32>,
    /// That process's name, `comm` in `proc(5)`.
    pub comm: Option<Bytes>,
    /// How often.
    pub count: u64,
    /// When first, in microseconds since the workload began.
    pub first_us: Option<u64>,
    /// What would allow it.
    pub hint: Option<String>,
    /// How sure this is: `exact` or `inferred`.
    pub confidence: String,
}

/// A layer that refuses things and does not tell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Unheard {
    /// Which.
    pub layer: String,
    /// Why not, on this host.
    pub why: String,
}

/// What was read back from the kernel about the workload's confinement.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Enforced {
    /// Namespaces that differ from the supervisor's.
    pub namespaces: Vec<String>,
    /// The Landlock ABI in force; `null` when none is.
    pub landlock_abi: Option<u32>,
    /// The access rights it denies wherever no rule allows them.
    pub landlock_rights: Vec<String>,
    /// The access rights that this program would handle, and this kernel cannot.
    pub landlock_missing: Vec<String>,
    /// The seccomp filter in force; `null` when none is.
    pub seccomp: Option<Seccomp>,
    /// The cgroup that bounds it; `null` when there is none.
    pub cgroup: Option<Cgroup>,
    /// Capabilities in any of its five sets.
    pub caps: Vec<String>,
    /// Whether execve can grant privileges no more.
    pub no_new_privs: bool,
    /// Host user id it runs as.
    pub host_uid: Option<u32>,
    /// Host group id it runs as.
    pub host_gid: Option<u32>,
    /// Supplementary groups, as host ids: a caller without privilege or a subordinate range cannot drop its own.
    pub supplementary_groups: Vec<u32>,
    /// What was allowed to be missing, and is.
    pub degraded: Vec<Degraded>,
}

/// A seccomp filter in force.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Seccomp {
    /// Name or file of the profile; `unconfined` where only guards are in force.
    pub profile: String,
    /// SHA-256 of the compiled program, hexadecimal.
    pub sha256: String,
    /// What is refused whatever the profile says, because it leads past another layer.
    pub guards: Vec<String>,
}

/// A cgroup in force.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Cgroup {
    /// Its directory; on hosts with cgroup v1, that of the memory controller.
    pub path: String,
    /// The controllers that bound it.
    pub controllers: Vec<String>,
}

/// A protection that was asked for, could not be had, and was allowed to be missing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Degraded {
    /// Its name, as given to `--allow-degraded`.
    pub what: String,
    /// What was asked for.
    pub wanted: String,
    /// What is in force instead.
    pub got: String,
    /// Why, on this host.
    pub why: String,
}

/// What ran it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[allow(missing_docs)]
pub struct Runtime {
    pub name: String,
    pub version: String,
    pub kernel: String,
}
