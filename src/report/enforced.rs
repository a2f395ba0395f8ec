//! The confinement in force, as read back from the kernel.

use serde::{Deserialize, Serialize};

/// The workload's confinement, as read back from the kernel.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Enforced {
    /// Namespaces that differ from the supervisor's.
    pub namespaces: Vec<String>,
    /// The Landlock ABI in force; `null` if Landlock is not used.
    pub landlock_abi: Option<u32>,
    /// The access rights that Landlock denies unless a rule allows them.
    pub landlock_rights: Vec<String>,
    /// The access rights that this program supports and this kernel does not.
    pub landlock_missing: Vec<String>,
    /// The seccomp filter in force; `null` if there is none.
    pub seccomp: Option<Seccomp>,
    /// The cgroup with its limits; `null` if there is none.
    pub cgroup: Option<Cgroup>,
    /// The limits of the budget, and what enforces each; empty for a container, whose limits are all its cgroup's.
    pub budget: Vec<Bound>,
    /// Capabilities in any of its five sets.
    pub caps: Vec<String>,
    /// Whether execve can no longer grant privileges.
    pub no_new_privs: bool,
    /// Its user id inside: the one that its user id on the host is mapped to. `null` for a container, and if a workload with
    /// capabilities may have changed it.
    pub uid: Option<u32>,
    /// Its group id inside, likewise.
    pub gid: Option<u32>,
    /// Its user id on the host.
    pub host_uid: Option<u32>,
    /// Its group id on the host.
    pub host_gid: Option<u32>,
    /// Supplementary groups, as host ids. A caller without privilege or a subordinate range cannot drop its own.
    pub supplementary_groups: Vec<u32>,
    /// The protections that were allowed to be missing, and are missing.
    pub degraded: Vec<Degraded>,
}

/// A seccomp filter in force.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Seccomp {
    /// Name or file of the profile; `unconfined` where only guards are in force.
    pub profile: String,
    /// SHA-256 of the compiled program, hexadecimal.
    pub sha256: String,
    /// Sets of calls that are denied regardless of the profile, because they would bypass another layer.
    pub guards: Vec<String>,
}

/// A cgroup in force.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Cgroup {
    /// Its directory; with cgroup v1 that of the memory controller.
    pub path: String,
    /// The controllers that enforce limits.
    pub controllers: Vec<String>,
}

/// A limit of the budget.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Bound {
    /// The controller that it needs: `memory`, `pids`, `cpu`, `cpuset`, `io` or `hugetlb`.
    pub what: String,
    /// What enforces it.
    pub by: BoundBy,
    /// The limit in force; `null` if there is none.
    pub limit: Option<String>,
}

/// What enforces a limit of the budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum BoundBy {
    /// The cgroup: it counts all processes together.
    Cgroup,
    /// Limits of each process, read back from the workload.
    Rlimit,
    /// Nothing.
    None,
}

/// A requested protection that this host cannot enforce, and that was allowed to be missing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Degraded {
    /// Its name, as given to `--allow-degraded`.
    pub what: String,
    /// The requested protection.
    pub wanted: String,
    /// The protection in force instead.
    pub got: String,
    /// The reason, on this host.
    pub why: String,
}
