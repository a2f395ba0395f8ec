//! The plan: a complete description of a run or a container, as plain data.
//!
//! Each command line makes its own plan, [`RunPlan`] or [`ContainerPlan`]; both contain a [`Confinement`]. Execution reads
//! only the plan. A plan is complete (flags and files are not read again), serialisable, and made without a system call.
//! [`crate::run`] executes it.

mod budget;
mod bytes;
mod capability;
pub mod container;
mod names;
mod run;
mod signal;

use serde::{Deserialize, Serialize};

pub use self::budget::{Budget, CgroupFile, HugetlbMax, IoMax};
pub use self::bytes::{Bytes, hex, unhex};
pub use self::capability::Capability;
pub use self::container::ContainerPlan;
use self::names::kernel_names;
pub use self::names::{Facility, RlimitResource};
pub use self::run::{
    Deadlines, Egress, HostAddress, IdMapping, Identity, Keep, Mount, MountKind, Namespaces, Network, OutputLimit,
    Published, Root, RunPlan, ScratchLimit, Stdio,
};
pub use self::signal::signal_number;

/// The confinement of a sandbox or container.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Confinement {
    /// Name of the sandbox: `[A-Za-z0-9_.+-]{1,64}`, no leading `-`, not `.` or `..`; a container's may be longer.
    pub id: String,
    /// Paths below `/` that are covered by an empty read-only file or directory if they exist.
    pub masked_paths: Vec<Bytes>,
    /// Paths below `/` that are made read-only if they exist.
    pub readonly_paths: Vec<Bytes>,
    /// `sethostname(2)` in the new UTS namespace; at most 64 bytes.
    pub hostname: Option<Bytes>,
    /// Path and port rules in addition to the mounts; `None` does not use Landlock.
    pub landlock: Option<Landlock>,
    /// The system call filter; with `None` only `guards` filter system calls.
    pub seccomp: Option<Seccomp>,
    /// Names of sets of calls that are denied regardless of the profile, because they would bypass another layer.
    pub guards: Vec<String>,
    /// Facilities that this host may lack; otherwise the start is refused.
    pub allow_degraded: Vec<Facility>,
}

/// The program to execute, and its environment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Command {
    /// At least one word, except for a session without a command of its own. The first is looked up in the sandbox's PATH unless it contains a slash.
    pub argv: Vec<Bytes>,
    /// `NAME=value` strings. No other variable is inherited.
    pub env: Vec<Bytes>,
    /// Absolute path inside the sandbox.
    pub cwd: Bytes,
    /// File mode creation mask, `umask(2)`.
    pub umask: u32,
    /// Resource limits of `setrlimit(2)`.
    pub rlimits: Vec<Rlimit>,
    /// `/proc/PID/oom_score_adj`, -1000 to 1000; `None` keeps the caller's.
    pub oom_score_adj: Option<i16>,
}

/// The seccomp filter: a profile and additions to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Seccomp {
    /// The profile.
    pub profile: SeccompProfile,
    /// SHA-256, hexadecimal: of the profile's file, which must be unchanged when the plan is executed, or of all built-in
    /// profiles.
    pub sha256: String,
    /// Names of groups of calls that are allowed in addition to the profile.
    pub allow: Vec<String>,
    /// Whether a profile that has warnings is refused.
    pub strict: bool,
}

/// A seccomp profile, by its origin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum SeccompProfile {
    /// A built-in profile, by name.
    Builtin(String),
    /// A file in OCI or seccompiler JSON, by host path.
    File(Bytes),
    /// A file of compiled BPF, by host path.
    Binary(Bytes),
    /// The profile itself, in OCI JSON.
    Inline(String),
    /// Compiled BPF in base64.
    Encoded(String),
}

/// Landlock rules, `landlock(7)`. Everything that the kernel's ABI can deny is denied unless a rule here, or one derived from
/// the plan's mounts, allows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Landlock {
    /// The run is refused if the kernel's ABI is older, unless `landlock` may be degraded.
    pub minimum_abi: u32,
    /// Paths that may be read; `None` is everything in the sandbox. /proc and /dev may always be read.
    pub read: Option<Vec<PathRule>>,
    /// Paths that may be written; `None` is every writable mount.
    pub write: Option<Vec<PathRule>>,
    /// Paths that may be executed; `None` is everything on mounts that are not noexec.
    pub execute: Option<Vec<PathRule>>,
    /// TCP ports that may be connected to; `None` is any, unless the network is `none`.
    pub connect_tcp: Option<Vec<u16>>,
    /// TCP ports that may be bound; `None` is any, unless the network is `none`.
    pub bind_tcp: Option<Vec<u16>>,
}

impl Landlock {
    /// Whether ports are listed, even none.
    pub fn lists_ports(&self) -> bool {
        self.connect_tcp.is_some() || self.bind_tcp.is_some()
    }
}

/// A file, or a directory and everything below it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PathRule {
    /// Absolute path inside the sandbox.
    pub path: Bytes,
    /// Whether the rule is skipped if the path does not exist; otherwise that is an error.
    pub optional: bool,
}

/// A resource limit, `setrlimit(2)`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Rlimit {
    /// The resource.
    pub resource: RlimitResource,
    /// The limit in force; `None` is unlimited.
    pub soft: Option<u64>,
    /// The value that the workload may raise it to; `None` is unlimited.
    pub hard: Option<u64>,
    /// Whether it is lowered to the caller's hard limit if that is smaller, as for defaults; otherwise that is an error, as
    /// for requested limits.
    pub clamp: bool,
}
