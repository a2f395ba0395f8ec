//! The plan: everything a run or a container will do, as plain data.
//!
//! Each door makes its own plan, [`RunPlan`] or [`ContainerPlan`], around the [`Confinement`] that both share, and execution
//! reads nothing else. A plan is complete (nothing is looked up again from flags or files), serialisable, and made without a
//! system call. [`crate::sandbox`] carries it out.

mod budget;
mod bytes;
mod capability;
pub mod container;
mod names;
mod run;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::budget::{Budget, CgroupFile, HugetlbMax, IoMax};
pub use self::bytes::{Bytes, hex, unhex};
pub use self::capability::Capability;
pub use self::container::ContainerPlan;
use self::names::kernel_names;
pub use self::names::{Facility, RlimitResource};
pub use self::run::{
    Deadlines, IdMapping, Identity, Keep, Mount, MountKind, Namespaces, Network, OutputLimit, Root, RunPlan,
    ScratchLimit, Stdio,
};

/// What confines a sandbox, whichever door it was made by and whatever runs in it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Confinement {
    /// Name of the sandbox: `[A-Za-z0-9_.+-]{1,64}`, no leading `-`, not `.` or `..`; a container's may be longer.
    pub id: String,
    /// Paths below `/` that are covered by an empty read-only file or directory where they exist.
    pub masked_paths: Vec<Bytes>,
    /// Paths below `/` that are made read-only where they exist.
    pub readonly_paths: Vec<Bytes>,
    /// `sethostname(2)` in the new UTS namespace; at most 64 bytes.
    pub hostname: Option<Bytes>,
    /// Path and port rules on top of what the mounts allow; `None` leaves Landlock out.
    pub landlock: Option<Landlock>,
    /// Which system calls may be made; `None` filters none but what `guards` refuse.
    pub seccomp: Option<Seccomp>,
    /// Names of sets of calls that are refused whatever the profile says, because they lead past another layer.
    pub guards: Vec<String>,
    /// Facilities that may be missing on this host without the start being refused.
    pub allow_degraded: Vec<Facility>,
}

/// One process tree in a sandbox: its program and surroundings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Command {
    /// At least one word; the first is looked up in the sandbox's PATH unless it contains a slash.
    pub argv: Vec<Bytes>,
    /// `NAME=value` strings, complete: nothing is inherited beside them.
    pub env: Vec<Bytes>,
    /// Absolute path inside the sandbox.
    pub cwd: Bytes,
    /// File mode creation mask, `umask(2)`.
    pub umask: u32,
    /// Resource limits of `setrlimit(2)`.
    pub rlimits: Vec<Rlimit>,
    /// `/proc/PID/oom_score_adj`, -1000 to 1000; `None` leaves the caller's.
    pub oom_score_adj: Option<i16>,
}

/// Where the seccomp filter comes from, and what is added to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Seccomp {
    /// The profile.
    pub profile: SeccompProfile,
    /// SHA-256 of what that is, hexadecimal: of the file, which must still be the same when the plan is carried out; or of
    /// everything that comes with stockade.
    pub sha256: String,
    /// Names of groups of calls that are allowed on top of it.
    pub allow: Vec<String>,
    /// Whether a profile with anything to warn about is refused.
    pub strict: bool,
}

/// A seccomp profile, by where it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SeccompProfile {
    /// One that comes with stockade, by name.
    Builtin(String),
    /// A file in OCI's or seccompiler's JSON, by host path.
    File(Bytes),
    /// A file of compiled BPF, by host path.
    Binary(Bytes),
    /// The profile itself, in OCI's JSON.
    Inline(String),
}

/// What `landlock(7)` allows. Everything the kernel's ABI can deny is denied unless a rule here, or one derived from the
/// plan's mounts, allows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Landlock {
    /// The run is refused where the kernel's ABI is lower, unless `landlock` may be degraded.
    pub minimum_abi: u32,
    /// What may be read; `None` is everything in the sandbox. /proc and /dev always may.
    pub read: Option<Vec<PathRule>>,
    /// What may be written; `None` is every writable mount.
    pub write: Option<Vec<PathRule>>,
    /// What may be executed; `None` is everything on a mount that allows it.
    pub execute: Option<Vec<PathRule>>,
    /// TCP ports that may be connected to; `None` is any, unless the network is `none`.
    pub connect_tcp: Option<Vec<u16>>,
    /// TCP ports that may be bound; `None` is any, unless the network is `none`.
    pub bind_tcp: Option<Vec<u16>>,
}

/// A file, or a directory with all below it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PathRule {
    /// Absolute path inside the sandbox.
    pub path: Bytes,
    /// Left out when it does not exist; otherwise that is an error.
    pub optional: bool,
}

/// A resource limit, `setrlimit(2)`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Rlimit {
    /// Which one.
    pub resource: RlimitResource,
    /// What is enforced; `None` is unlimited.
    pub soft: Option<u64>,
    /// What the workload may raise it to; `None` is unlimited.
    pub hard: Option<u64>,
    /// Lowered to the caller's own hard limit where that is smaller (defaults), instead of an error (what was asked for).
    pub clamp: bool,
}
