//! The objects of the session protocol, `stockade/session/v1`. `docs/protocol.md` describes it for the authors of clients.

pub mod files;
mod user;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use stockade_egress::rule::Rule;

use self::files::{FileOperation, FileStatus};
pub use self::user::User;
use crate::plan::{Bytes, Keep, RunPlan};
use crate::report::{ErrorRecord, Status, Usage};
use crate::session::record::Cause;

/// The value of [`Hello::protocol`].
pub const PROTOCOL: &str = "stockade/session/v1";

/// The id of the command with which the session was made.
pub const OWN: &str = "main";

/// Every object of the protocol, for its schema.
#[cfg(test)]
#[derive(schemars::JsonSchema)]
#[schemars(title = "Session")]
#[serde(untagged)]
#[allow(dead_code)]
pub enum Object {
    /// The first packet, from the session.
    Hello(Hello),
    /// From the client.
    Request(Request),
    /// From the session.
    Reply(Box<Reply>),
}

/// The first packet of a connection, from the session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Hello {
    /// Always [`PROTOCOL`].
    pub protocol: String,
    /// The session's name.
    pub session: String,
    /// The version of the program.
    pub version: String,
}

/// A request of a client.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Request {
    /// Chosen by the client; every reply to it has it too. No two requests that are not answered yet may have the same.
    pub id: u64,
    /// What to do.
    #[serde(flatten)]
    pub operation: Operation,
}

/// What a request asks for.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum Operation {
    /// Run a command. Its streams are the packet's three descriptors, or with `tty` none. Replies: `started`, then `done` with
    /// its report.
    Run(Box<Run>),
    /// Send a signal.
    Signal {
        /// The command's id, or `all`.
        command: String,
        /// The signal's number.
        signal: u8,
    },
    /// Kill a command with its whole tree.
    Kill {
        /// The command's id, or `all`.
        command: String,
    },
    /// Describe the session and its commands. Reply: `done` with `status`.
    Status,
    /// End the session: SIGTERM to its commands, and after the grace SIGKILL. Answered when the session accepted it.
    Stop {
        /// The grace in microseconds; 10 s if absent.
        #[serde(skip_serializing_if = "Option::is_none")]
        grace_us: Option<u64>,
    },
    /// Stop all processes, without a signal that they could notice.
    Pause,
    /// Let them continue.
    Unpause,
    /// Pass on what the session's own command printed. Replies: `started` with two descriptors to read from, for its
    /// standard output and error; `done` when all of it was written to them.
    Logs {
        /// Whether to continue with what it prints from now on, until it ends.
        #[serde(default)]
        follow: bool,
        /// With `follow`: whether what it printed before is left out.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        from_now: bool,
    },
    /// Wait for the end of a command, or of the session. Reply: `done` with the report.
    Wait {
        /// The command's id; the session if absent.
        #[serde(skip_serializing_if = "Option::is_none")]
        command: Option<String>,
    },
    /// Allow hosts, as `--allow-net`, and no longer deny exactly this rule. Reply: `done` when that is in force.
    AllowNet {
        /// A rule.
        #[cfg_attr(test, schemars(with = "String"))]
        rule: Rule,
    },
    /// Deny hosts, as `--deny-net`. Reply: `done` when that is in force and the connections to them are ended.
    DenyNet {
        /// A rule.
        #[cfg_attr(test, schemars(with = "String"))]
        rule: Rule,
    },
    /// Pass on the last thousand lines of the network log. Reply: `done` with one descriptor to read from.
    NetLog {
        /// Whether to continue with the lines that come, until the session ends.
        #[serde(default)]
        follow: bool,
    },
    /// Do nothing. Reply: `done`.
    Ping,
    /// Something with files of the sandbox.
    #[serde(untagged)]
    File(FileOperation),
}

/// A command to run. What is absent is as the session was made with.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Run {
    /// The command and its arguments. Strings that are not UTF-8 are `{"hex": "…"}`, here and below.
    pub argv: Vec<Bytes>,
    /// The whole environment, as `NAME=value`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub env: Option<Vec<Bytes>>,
    /// Variables to add or replace, as `NAME=value`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub add_env: Vec<Bytes>,
    /// The working directory: an absolute path in the sandbox.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<Bytes>,
    /// The user that it runs as: `UID[:GID]`, ids that the sandbox maps, or the name of the sandbox's user, `root` or `nobody`.
    /// HOME, USER and LOGNAME are then that user's unless they are set here.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub user: Option<User>,
    /// The file mode creation mask.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub umask: Option<u32>,
    /// A terminal of its own, whose master side comes with `started`. The client passes on its bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tty: Option<Size>,
    /// Wall-clock time after which it is ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_us: Option<u64>,
    /// Time between the first signal and SIGKILL.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kill_after_us: Option<u64>,
    /// CPU time of its tree after which it is ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_us: Option<u64>,
    /// Time without output after which it is ended; not with `tty`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_us: Option<u64>,
    /// Memory limit of its tree, below that of the session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// Limit on its processes and threads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pids: Option<u64>,
    /// Its share of the CPUs, in microseconds of CPU time per 100 ms of wall time: 100,000 is one CPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_quota_us: Option<u64>,
    /// Limit on the output of each stream; not with `tty`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_limit: Option<Limit>,
    /// Whether the report lists what it was denied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub explain_denials: Option<bool>,
    /// Whether the report has the hash of the executed file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hash_program: Option<bool>,
    /// Whether it lives on when the client disconnects.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub background: bool,
}

/// The size of a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[allow(missing_docs)]
pub struct Size {
    pub rows: u16,
    pub columns: u16,
}

/// A limit on output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Limit {
    /// The limit of each stream in bytes.
    pub bytes: u64,
    /// Which part is kept.
    pub keep: Keep,
}

/// A reply of the session. A request has any number of events, the last of which is `done` or `error`.
#[derive(Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Reply {
    /// The request's; `null` if it could not be read.
    pub id: Option<u64>,
    /// What happened.
    pub event: Event,
    /// With `started` and `done` of `run`: the command's id, such as `c1`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// With `started` of `run`: the host process id of the command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<i32>,
    /// With `done` of `run` and `wait`: the report, `stockade/report/v1`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(with = "Option<crate::report::Report>"))]
    pub report: Option<Box<RawValue>>,
    /// With `done` of `run` and `wait`, if the session is ending: why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_ends: Option<Cause>,
    /// With `done` of `status`: the session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(with = "Option<SessionStatus>"))]
    pub status: Option<Box<RawValue>>,
    /// With `done` of `open` and `stat`: the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<FileStatus>,
    /// With `done` of `list`: entries of the directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entries: Option<Vec<FileStatus>>,
    /// With `done` of `list`: where to go on, if there may be more entries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// With `done` of `remove`: a part is left, for which the request must be repeated.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub more: bool,
    /// With `error`: why the request was refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorRecord>,
    /// With `error`: the exit code of a program that ends because of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<u8>,
}

/// The kinds of reply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// The command runs, verified; or the descriptors of `logs` are here.
    Started,
    /// The request is done. Last.
    #[default]
    Done,
    /// The request was refused. Last.
    Error,
}

/// A session and its commands.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SessionStatus {
    /// Its name.
    pub name: String,
    /// Host process id of its supervisor.
    pub pid: i32,
    /// When it was made, RFC 3339 in UTC.
    pub created_at: String,
    /// Whether its processes are paused.
    pub paused: bool,
    /// Whether it is about to end.
    pub ending: bool,
    /// Its plan; the command is the one with which it was made, without words if there is none.
    pub plan: RunPlan,
    /// Resource usage of the whole sandbox.
    pub usage: Usage,
    /// The commands that run.
    pub running: Vec<CommandStatus>,
    /// The commands that ended: the last hundred, the last one last.
    pub ended: Vec<CommandStatus>,
}

/// A command of a session.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct CommandStatus {
    /// Its id.
    pub command: String,
    /// Host process id; `null` before it was verified.
    pub pid: Option<i32>,
    /// Its user id in the sandbox; `null` before it was verified, and if it may have changed it.
    pub uid: Option<u32>,
    /// Its group id in the sandbox, likewise.
    pub gid: Option<u32>,
    /// Its words.
    pub argv: Vec<Bytes>,
    /// When it was requested, RFC 3339 in UTC.
    pub started_at: String,
    /// When it had ended with all of its processes; `null` while it runs, as the following.
    pub finished_at: Option<String>,
    /// How it ended.
    pub status: Option<Status>,
    /// Its exit code.
    pub exit_code: Option<u8>,
    /// Its CPU time.
    pub cpu_us: Option<u64>,
    /// Its greatest memory usage.
    pub memory_peak_bytes: Option<u64>,
}
