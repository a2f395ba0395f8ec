//! A partial policy: what one file says, or what the flags say. Everything in it is optional.
//!
//! This is the reference of the file format too: the JSON Schema in `profiles/` is generated from these types, and
//! `docs/policy.md` follows their order.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;

use super::budget::BudgetSettings;
use super::mount::MountRequest;
use super::path::{DevicePath, HostPath, SandboxPath};
use super::rules::{BindPort, LandlockAbi, LandlockMode, Port, RulePath, SeccompChoice, SeccompGroup};
use super::ulimit::Ulimit;
use super::value::{
    Amount, CapabilityName, Count, Deadline, Duration, EnvName, EnvPattern, EnvValue, Hostname, Id, Limit, OomScoreAdj,
    Size, Umask, UserMap, UserName, Version,
};
use crate::plan::{Facility, Keep, Network, RlimitResource};

/// A policy file, version 1.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "Stockade policy", rename = "Policy")]
pub struct Settings {
    /// Always 1.
    #[schemars(with = "u8", range(min = 1, max = 1))]
    pub version: Version,
    /// The policy this one adds to: the name of a built-in one, or a path relative to this file (with a slash in it, or
    /// ending in `.toml`). Every policy adds to `default`, also without this line.
    pub extends: Option<String>,

    /// `/` is this host directory, read-only, instead of the view of the host.
    pub rootfs: Option<HostPath>,
    /// Host directory the workload works in: read-write at `/workspace`, which is then the working directory.
    pub workspace: Option<HostPath>,
    /// Whether a run without a workspace is refused.
    pub require_workspace: Option<bool>,
    /// What is mounted, beside the view and the workspace. Adds to the mounts of the policies below; replaces those with
    /// the same destination.
    #[serde(default)]
    pub mounts: Vec<MountRequest>,
    /// Whether symlinks in the host paths of mounts are followed also where others than root and the caller could have made
    /// them.
    pub follow: Option<bool>,
    /// Whether `/sys` is the host's sysfs, read-only.
    pub sysfs: Option<bool>,
    /// How much `/proc` shows: `full`, less what is masked, or `pids`: processes and nothing of the machine.
    pub proc: Option<ProcView>,
    /// Host device nodes to provide beside the harmless ones. Adds.
    #[serde(default)]
    pub devices: Vec<DevicePath>,
    /// Paths inside that are covered by an empty file or directory. Adds.
    #[serde(default)]
    pub masked_paths: Vec<SandboxPath>,
    /// Paths inside that are made read-only. Adds.
    #[serde(default)]
    pub readonly_paths: Vec<SandboxPath>,

    /// Working directory inside.
    pub cwd: Option<SandboxPath>,
    /// File mode creation mask.
    pub umask: Option<Umask>,
    /// The environment.
    #[serde(default)]
    pub env: EnvSettings,
    /// Who the workload is.
    #[serde(default)]
    pub user: UserSettings,
    /// Capabilities inside the sandbox's user namespace.
    #[serde(default)]
    pub capabilities: CapabilitySettings,

    /// Which system calls the workload may make.
    #[serde(default)]
    pub seccomp: SeccompSettings,
    /// Which paths and ports it may use, of those that it sees.
    #[serde(default)]
    pub landlock: LandlockSettings,

    /// Host name inside.
    pub hostname: Option<Hostname>,
    /// What can be reached.
    pub network: Option<Network>,
    /// Whether the monotonic and boot clocks start at zero.
    pub time_namespace: Option<bool>,
    /// Whether an init reaps zombies and forwards signals as pid 1; otherwise the workload is pid 1.
    pub init: Option<bool>,
    /// The kernel's preference to kill the workload when memory is short.
    pub oom_score_adj: Option<OomScoreAdj>,

    /// Resource limits for each process, by their `ulimit` names.
    #[serde(default)]
    pub ulimits: BTreeMap<RlimitResource, Ulimit>,
    /// What the whole tree may use together.
    #[serde(default)]
    pub budget: BudgetSettings,
    /// The tmpfs that `/tmp`, the home directory and `/dev/shm` share.
    #[serde(default)]
    pub scratch: ScratchSettings,
    /// When the run is ended.
    #[serde(default)]
    pub deadlines: DeadlineSettings,
    /// Standard input, and what becomes of the output.
    #[serde(default)]
    pub stdio: StdioSettings,
    /// Whether the report lists what the workload was refused.
    pub explain_denials: Option<bool>,
    /// File to which a line about the run is appended, also when it is refused; made when it is not there.
    pub audit: Option<HostPath>,
    /// Whether that line is on the disk before `stockade` exits.
    pub audit_sync: Option<bool>,
    /// Protections that may be missing on this host without the run being refused. Adds.
    #[serde(default)]
    pub allow_degraded: Vec<Facility>,
}

/// How much `/proc` shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ProcView {
    /// Everything that is not masked.
    Full,
    /// Processes, and nothing of the machine.
    Pids,
}

/// The environment of the workload: nothing but this.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EnvSettings {
    /// Variables with their values. Adds.
    #[serde(default)]
    #[schemars(with = "BTreeMap<String, EnvValue>")]
    pub set: BTreeMap<EnvName, EnvValue>,
    /// Variables passed on from the caller when it has them; `LC_*` means all that begin so. Adds.
    #[serde(default)]
    pub pass: Vec<EnvPattern>,
    /// Whether the caller's whole environment is passed on, except what makes programs load code.
    pub keep: Option<bool>,
}

/// Who the workload is.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UserSettings {
    /// Login name inside.
    pub name: Option<UserName>,
    /// User id inside.
    pub uid: Option<Id>,
    /// Group id inside.
    pub gid: Option<Id>,
    /// Home directory inside, on scratch space.
    pub home: Option<SandboxPath>,
    /// How ids inside relate to ids on the host.
    pub map: Option<UserMap>,
}

/// Capabilities inside the sandbox's user namespace.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CapabilitySettings {
    /// Kept. Adds to what the policies below keep.
    #[serde(default)]
    pub add: Vec<CapabilityName>,
    /// Dropped from what the policies below keep, before anything is added here.
    #[serde(default)]
    pub drop: Vec<CapabilityName>,
}

/// Which system calls the workload may make.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SeccompSettings {
    /// The profile: `default`, `strict`, `docker`, `unconfined`, or a path relative to this file (with a slash in it, or
    /// ending in `.json`, or in `.bpf` when it is compiled).
    pub profile: Option<SeccompChoice>,
    /// Groups of calls that are allowed on top of it. Adds.
    #[serde(default)]
    pub allow: Vec<SeccompGroup>,
    /// Whether a profile with anything to warn about is refused.
    pub strict: Option<bool>,
}

/// Which paths and ports the workload may use, of those that it sees. A list that is not given allows everything; an
/// empty one nothing.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LandlockSettings {
    /// What becomes of a run where the kernel has too little of it. `off` also drops the lists of the policies below.
    pub mode: Option<LandlockMode>,
    /// The least ABI that the kernel must have.
    pub minimum_abi: Option<LandlockAbi>,
    /// What may be read. Adds.
    pub read: Option<Vec<RulePath>>,
    /// What may be written, below writable mounts. Adds.
    pub write: Option<Vec<RulePath>>,
    /// What may be executed. Adds. With it, nothing on a writable mount may be.
    pub execute: Option<Vec<RulePath>>,
    /// TCP ports that may be connected to. Adds.
    pub connect: Option<Vec<Port>>,
    /// TCP ports that may be bound. Adds.
    pub bind: Option<Vec<BindPort>>,
}

/// The tmpfs that all scratch directories share.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ScratchSettings {
    /// Most that it can hold.
    pub size: Option<Amount>,
    /// Most files that it can hold.
    pub inodes: Option<Count>,
}

/// When the run is ended.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DeadlineSettings {
    /// Wall-clock time.
    pub timeout: Option<Limit<Deadline>>,
    /// CPU time of the whole tree.
    pub cpu_time: Option<Limit<Deadline>>,
    /// Time without output.
    pub idle_timeout: Option<Limit<Deadline>>,
    /// From the polite signal to SIGKILL.
    pub kill_after: Option<Duration>,
}

/// Standard input, and what becomes of the output.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StdioSettings {
    /// Whether the workload reads the caller's standard input.
    pub stdin: Option<bool>,
    /// Whether the workload gets a terminal of its own.
    pub tty: Option<bool>,
    /// Most that is passed on of standard output, and of standard error.
    pub output_limit: Option<Limit<Size>>,
    /// What is kept of a longer output; `head` when nothing is said.
    pub output_keep: Option<Keep>,
}
