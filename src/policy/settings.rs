//! A partial policy: the settings of one file, or of the flags. Every setting is optional.
//!
//! The types define the file format: the JSON Schema in `profiles/` is generated from them, and `docs/policy.md` follows
//! their order.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::budget::BudgetSettings;
use super::label::{LabelName, LabelValue};
use super::mount::MountRequest;
use super::network::NetworkSettings;
use super::path::{DevicePath, HostPath, SandboxPath};
use super::rules::{BindPort, LandlockAbi, LandlockMode, Port, RulePath, SeccompChoice, SeccompGroup, Toolchain};
use super::ulimit::Ulimit;
use super::value::{
    Amount, CapabilityName, Count, Deadline, Duration, EnvName, EnvPattern, EnvValue, Hostname, Id, Limit, OomScoreAdj,
    Size, Umask, UserMap, UserName, Version,
};
use crate::plan::{Facility, Keep, RlimitResource};

/// A policy file, version 1.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, schemars(title = "Stockade policy", rename = "Policy"))]
pub struct Settings {
    /// Always 1.
    #[cfg_attr(test, schemars(with = "u8", range(min = 1, max = 1)))]
    pub version: Version,
    /// The policy that this one extends: the name of a built-in one, or a path relative to this file (with a slash in it, or
    /// ending in `.toml`). Every policy extends `default`, even without this key.
    pub extends: Option<String>,

    /// Host directory that becomes `/`, read-only, instead of the view of the host.
    pub rootfs: Option<HostPath>,
    /// Host directory that is mounted read-write at `/workspace`, which becomes the working directory.
    pub workspace: Option<HostPath>,
    /// Whether a run without a workspace is refused.
    pub require_workspace: Option<bool>,
    /// Mounts in addition to the view and the workspace. Adds to the mounts of the policies below; replaces those with the
    /// same destination.
    #[serde(default)]
    pub mounts: Vec<MountRequest>,
    /// Whether symlinks in the host paths of mounts are followed even if users other than root and the caller could have
    /// made them.
    pub follow: Option<bool>,
    /// Whether `/sys` is the host's sysfs, read-only.
    pub sysfs: Option<bool>,
    /// What `/proc` shows: `full` is everything that is not masked, `pids` is processes only.
    pub proc: Option<ProcView>,
    /// Interpreters and compilers to show, wherever the caller's `PATH` has them: their trees, read-only. Adds.
    #[serde(default)]
    pub toolchains: Vec<Toolchain>,
    /// Device nodes of the host to provide in addition to the harmless ones. Adds.
    #[serde(default)]
    pub devices: Vec<DevicePath>,
    /// Paths in the sandbox that are covered by an empty file or directory. Adds.
    #[serde(default)]
    pub masked_paths: Vec<SandboxPath>,
    /// Paths in the sandbox that are made read-only. Adds.
    #[serde(default)]
    pub readonly_paths: Vec<SandboxPath>,

    /// Working directory in the sandbox.
    pub cwd: Option<SandboxPath>,
    /// File mode creation mask.
    pub umask: Option<Umask>,
    /// The environment.
    #[serde(default)]
    pub env: EnvSettings,
    /// The user of the workload.
    #[serde(default)]
    pub user: UserSettings,
    /// Capabilities inside the sandbox's user namespace.
    #[serde(default)]
    pub capabilities: CapabilitySettings,

    /// The system calls that the workload may make.
    #[serde(default)]
    pub seccomp: SeccompSettings,
    /// The paths and ports that the workload may use, out of those that it can see.
    #[serde(default)]
    pub landlock: LandlockSettings,

    /// Labels for the report, the audit log and lists of sandboxes; they change nothing of the run. Adds.
    #[serde(default)]
    #[cfg_attr(test, schemars(with = "BTreeMap<String, LabelValue>"))]
    pub labels: BTreeMap<LabelName, LabelValue>,

    /// Host name in the sandbox.
    pub hostname: Option<Hostname>,
    /// Network access.
    #[serde(default)]
    pub network: NetworkSettings,
    /// Whether the monotonic and boot clocks start at zero.
    pub time_namespace: Option<bool>,
    /// Whether pid 1 is an init that reaps zombies and forwards signals; otherwise the workload is pid 1.
    pub init: Option<bool>,
    /// How strongly the kernel prefers to kill the workload when memory is short.
    pub oom_score_adj: Option<OomScoreAdj>,

    /// Resource limits for each process, by their `ulimit` names.
    #[serde(default)]
    pub ulimits: BTreeMap<RlimitResource, Ulimit>,
    /// Limits of the whole process tree.
    #[serde(default)]
    pub budget: BudgetSettings,
    /// The tmpfs that `/tmp`, the home directory and `/dev/shm` share.
    #[serde(default)]
    pub scratch: ScratchSettings,
    /// Time limits, after which the run is ended.
    #[serde(default)]
    pub deadlines: DeadlineSettings,
    /// Standard input and output.
    #[serde(default)]
    pub stdio: StdioSettings,
    /// Whether the report lists what the workload was denied.
    pub explain_denials: Option<bool>,
    /// File to which a line about the run is appended, also if the run is refused. Created if it does not exist.
    pub audit: Option<HostPath>,
    /// Whether that line is synced to the disk before `stockade` exits.
    pub audit_sync: Option<bool>,
    /// Protections that this host may lack; otherwise the run is refused. Adds.
    #[serde(default)]
    pub allow_degraded: Vec<Facility>,
}

/// What `/proc` shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ProcView {
    /// Everything that is not masked.
    Full,
    /// Processes only.
    Pids,
}

/// The environment of the workload, which inherits no other variable.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct EnvSettings {
    /// Variables with their values. Adds.
    #[serde(default)]
    #[cfg_attr(test, schemars(with = "BTreeMap<String, EnvValue>"))]
    pub set: BTreeMap<EnvName, EnvValue>,
    /// Variables passed from the caller, if it has them; `LC_*` matches all that begin with `LC_`. Adds.
    #[serde(default)]
    pub pass: Vec<EnvPattern>,
    /// Whether the caller's whole environment is passed, except variables that make programs load code.
    pub keep: Option<bool>,
}

/// The user of the workload.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct UserSettings {
    /// Login name in the sandbox.
    pub name: Option<UserName>,
    /// User id in the sandbox.
    pub uid: Option<Id>,
    /// Group id in the sandbox.
    pub gid: Option<Id>,
    /// Home directory in the sandbox, on scratch space.
    pub home: Option<SandboxPath>,
    /// How ids in the sandbox map to ids on the host.
    pub map: Option<UserMap>,
}

/// Capabilities inside the sandbox's user namespace.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct CapabilitySettings {
    /// Capabilities to keep. Adds to those that the policies below keep.
    #[serde(default)]
    pub add: Vec<CapabilityName>,
    /// Capabilities of the policies below to drop, before `add` applies.
    #[serde(default)]
    pub drop: Vec<CapabilityName>,
}

/// The system calls that the workload may make.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct SeccompSettings {
    /// The profile: `default`, `strict`, `docker`, `unconfined`, or a path relative to this file (with a slash in it, or
    /// ending in `.json`, or in `.bpf` for a compiled program).
    pub profile: Option<SeccompChoice>,
    /// Groups of calls that are allowed in addition to the profile. Adds.
    #[serde(default)]
    pub allow: Vec<SeccompGroup>,
    /// Whether a profile that has warnings is refused.
    pub strict: Option<bool>,
}

/// The paths and ports that the workload may use, out of those that it can see. Without a list everything is allowed; an
/// empty list allows nothing.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct LandlockSettings {
    /// What happens to a run if the kernel's Landlock is too old or missing. `off` also drops the lists of the policies
    /// below.
    pub mode: Option<LandlockMode>,
    /// The oldest ABI that is accepted.
    pub minimum_abi: Option<LandlockAbi>,
    /// Paths that may be read. Adds.
    pub read: Option<Vec<RulePath>>,
    /// Paths that may be written, on writable mounts. Adds.
    pub write: Option<Vec<RulePath>>,
    /// Paths that may be executed. Adds. With this list, files on writable mounts cannot be executed.
    pub execute: Option<Vec<RulePath>>,
    /// TCP ports that may be connected to. Adds.
    pub connect: Option<Vec<Port>>,
    /// TCP ports that may be bound. Adds.
    pub bind: Option<Vec<BindPort>>,
}

/// The tmpfs that all scratch directories share.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ScratchSettings {
    /// Its size limit.
    pub size: Option<Amount>,
    /// Its limit on files.
    pub inodes: Option<Count>,
}

/// Time limits, after which the run is ended.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct DeadlineSettings {
    /// Wall-clock time.
    pub timeout: Option<Limit<Deadline>>,
    /// CPU time of the whole tree.
    pub cpu_time: Option<Limit<Deadline>>,
    /// Time without output.
    pub idle_timeout: Option<Limit<Deadline>>,
    /// Time between the first signal and SIGKILL.
    pub kill_after: Option<Duration>,
}

/// Standard input and output.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct StdioSettings {
    /// Whether the workload reads the caller's standard input.
    pub stdin: Option<bool>,
    /// Whether the workload gets a terminal of its own.
    pub tty: Option<bool>,
    /// Limit on standard output, and on standard error.
    pub output_limit: Option<Limit<Size>>,
    /// Which part of a longer output is kept; `head` by default.
    pub output_keep: Option<Keep>,
}
