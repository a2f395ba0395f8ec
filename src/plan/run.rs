//! The plan of `stockade run`.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use stockade_egress::name::Name;
use stockade_egress::proxy::Proxy;
use stockade_egress::rule::Rules;

use super::{Budget, Bytes, Capability, Command, Confinement, hex};

/// The complete plan of one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RunPlan {
    /// The confinement of the sandbox.
    #[serde(flatten)]
    pub confinement: Confinement,
    /// The program to execute.
    pub command: Command,
    /// The new namespaces.
    pub namespaces: Namespaces,
    /// The workload's user, in the sandbox and on the host.
    pub identity: Identity,
    /// The root.
    pub root: Root,
    /// The mounts below the root, in order.
    pub mounts: Vec<Mount>,
    /// Whether symlinks in mount sources are followed even if users other than root and the caller could have made them.
    #[serde(default)]
    pub follow: bool,
    /// Limits of the tmpfs that all scratch directories share.
    pub scratch: ScratchLimit,
    /// Capabilities that the workload keeps in its user namespace; empty by default.
    pub capabilities: Vec<Capability>,
    /// Limits of the whole process tree, enforced by a cgroup.
    pub budget: Budget,
    /// Whether pid 1 is an init that reaps zombies and forwards signals; otherwise the workload is pid 1.
    pub init: bool,
    /// The standard streams.
    pub stdio: Stdio,
    /// Time limits, after which the supervisor ends the run.
    pub deadlines: Deadlines,
    /// The hosts that may be reached, with the network `egress`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub egress: Option<Egress>,
    /// Whether denials are recorded and listed in the report.
    pub explain_denials: bool,
    /// Whether the report has the hash of the executed file.
    pub hash_program: bool,
    /// What the caller calls the run.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// SHA-256 of the resolved policy, [`Self::policy_hash`]; empty as long as it has not been computed.
    pub policy_sha256: String,
}

impl RunPlan {
    /// SHA-256 of the plan's JSON, hexadecimal. Excludes id, labels, argv, hash and how the run is recorded, so that it is equal for
    /// equal policies. It is computed while the sandbox is built, so that it does not delay the start.
    pub fn policy_hash(&self) -> String {
        let mut policy = self.clone();
        policy.confinement.id.clear();
        policy.command.argv.clear();
        policy.policy_sha256.clear();
        policy.labels.clear();
        policy.hash_program = false;
        policy.stdio.relay = false;
        hex(&Sha256::digest(serde_json::to_vec(&policy).unwrap_or_default()))
    }
}

/// The new namespaces.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Namespaces {
    /// Whether user, mount and pid namespace are new. They always are, unless the host can make none and `namespaces` may be
    /// degraded; then no other is either.
    #[serde(default = "yes")]
    pub own: bool,
    /// Its own System V IPC and POSIX message queues, `ipc_namespaces(7)`.
    pub ipc: bool,
    /// Its own host and domain name, `uts_namespaces(7)`.
    pub uts: bool,
    /// Its own view of the cgroup tree, `cgroup_namespaces(7)`.
    pub cgroup: bool,
    /// Its own monotonic and boot clocks, which start at zero, `time_namespaces(7)`.
    pub time: bool,
    /// The network.
    pub network: Network,
    /// How many nested namespaces of each kind the workload may create; 0 forbids them.
    pub nested: u32,
}

/// The workload's network access, `network_namespaces(7)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Network {
    /// A new network namespace, in which no socket of IPv4 or IPv6 can be made.
    None,
    /// A new network namespace whose only interface is `lo`: the workload's processes reach each other on 127.0.0.1 and ::1.
    Loopback,
    /// A new network namespace as with `loopback`, in which names of allowed hosts lead to the gateway.
    Egress,
    /// The caller's network, without isolation.
    Host,
}

impl Network {
    /// Its name in policies and reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Loopback => "loopback",
            Self::Egress => "egress",
            Self::Host => "host",
        }
    }
}

/// A port of the host that leads to one of the sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Published {
    /// Where the host listens.
    #[cfg_attr(test, schemars(with = "String"))]
    pub listen: SocketAddr,
    /// The TCP port of the sandbox's 127.0.0.1.
    pub port: u16,
}

/// Network access by name: which hosts may be reached, and how much.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Egress {
    /// What is allowed and denied.
    #[serde(flatten)]
    #[cfg_attr(test, schemars(with = "std::collections::BTreeMap<String, Vec<String>>"))]
    pub rules: Rules,
    /// Ports of the host that lead into the sandbox.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub publish: Vec<Published>,
    /// Names with given addresses.
    pub hosts: Vec<HostAddress>,
    /// The name server for all others; with `None` those of the host.
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub dns: Option<SocketAddr>,
    /// The proxy that every connection to a host goes through. Its password is not written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub upstream_proxy: Option<Proxy>,
    /// Connections at a time.
    pub connections: u32,
    /// Bytes per second, both directions together.
    pub rate_bytes: Option<u64>,
    /// Bytes in all, both directions together, after which the run is ended.
    pub budget_bytes: Option<u64>,
    /// Time to resolve a name and connect.
    pub connect_timeout_us: u64,
    /// Time without a byte after which a connection is ended.
    pub idle_timeout_us: u64,
}

impl Egress {
    /// Connections at a time, if a policy says nothing.
    pub const CONNECTIONS: u64 = 256;
}

/// A name with a given address.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct HostAddress {
    /// The name.
    #[cfg_attr(test, schemars(with = "String"))]
    pub name: Name,
    /// Its address.
    pub address: IpAddr,
}

/// The workload's user.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Identity {
    /// User id inside the sandbox.
    pub uid: u32,
    /// Group id inside the sandbox.
    pub gid: u32,
    /// How ids in the sandbox map to host ids.
    pub mapping: IdMapping,
    /// Login name of `uid`, for the generated passwd file and `USER`.
    pub user: String,
    /// Home directory inside the sandbox.
    pub home: Bytes,
}

/// How ids in the sandbox map to host ids, `user_namespaces(7)`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum IdMapping {
    /// One id, chosen at launch: an unprivileged caller's own id; for root a host id that no user or other run has.
    Single,
    /// One id, mapped to this host user and group (root only, or the caller's own).
    HostUser {
        /// Host user id.
        uid: u32,
        /// Host group id.
        gid: u32,
    },
    /// The caller's subordinate ranges of `subuid(5)` and `subgid(5)`, written by `newuidmap(1)` and `newgidmap(1)`.
    Subordinate,
}

/// The root of the sandbox.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Root {
    /// A small read-only tmpfs, filled by the plan's mounts: the synthetic view of the host.
    Synthetic,
    /// This host directory, read-only. Missing mount points are provided without changing it.
    Directory(Bytes),
}

/// A mount below `/`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Mount {
    /// Absolute path inside the sandbox, without `.`, `..` or empty components.
    pub destination: Bytes,
    /// Its kind.
    pub kind: MountKind,
    /// Whether writes are refused, `MOUNT_ATTR_RDONLY`.
    pub read_only: bool,
    /// Whether executing files is refused, `MOUNT_ATTR_NOEXEC`.
    pub noexec: bool,
    /// Whether it is skipped if its source does not exist on this host.
    pub optional: bool,
}

impl Mount {
    /// Whether it keeps a part of another one of these read-only, such as a policy in the workspace.
    pub fn keeps_part_of(&self, all: &[Mount]) -> bool {
        let MountKind::Bind { source } = &self.kind else { return false };
        let is_part_of = |whole: &Mount| match &whole.kind {
            MountKind::Bind { source: tree } if !whole.read_only && whole.destination != self.destination => {
                let below = self.destination.as_path().strip_prefix(whole.destination.as_path());
                below.is_ok_and(|below| tree.as_path().join(below) == source.as_path())
            }
            _ => false,
        };
        self.read_only && all.iter().any(is_part_of)
    }
}

/// The kinds of mount. Every mount is `nosuid`. Every mount except the device nodes of `dev` is `nodev`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum MountKind {
    /// A host file or directory, with all mounts below it.
    Bind {
        /// Absolute host path. Symlinks in it are followed if no other user could have made them, or always with `follow`.
        source: Bytes,
    },
    /// The host's file at the same path, if every user of the host may read it: a symlink and a small file are copied, any
    /// other file is bound.
    AsHost,
    /// A new tmpfs.
    Tmpfs {
        /// Upper bound of its contents.
        size_bytes: u64,
        /// Upper bound of its number of files.
        nr_inodes: u64,
        /// Mode of its root directory.
        mode: u32,
    },
    /// A directory on the run's scratch tmpfs. All scratch directories share its limits.
    Scratch {
        /// Mode of the directory.
        mode: u32,
    },
    /// A new procfs of the new pid namespace.
    Proc {
        /// Whether it shows only processes, and no host information (`subset=pid`).
        pid_only: bool,
    },
    /// The caller's sysfs, read-only.
    Sysfs,
    /// The sandbox's own cgroups, read-only, where programs look for their limits. Nothing if the run has no cgroup.
    Cgroup,
    /// A tmpfs with the harmless device nodes, `pts`, `shm`, `fd` and the standard streams.
    Dev {
        /// Additional device nodes, by host path.
        devices: Vec<Bytes>,
    },
    /// POSIX message queues of the new IPC namespace.
    Mqueue,
    /// A generated read-only file (only below a synthetic root).
    File {
        /// Its content.
        content: Bytes,
        /// Its permission bits.
        mode: u32,
    },
    /// A generated symlink (only below a synthetic root).
    Symlink {
        /// Its target.
        target: Bytes,
    },
}

/// The limits of the scratch tmpfs that all [`MountKind::Scratch`] directories share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ScratchLimit {
    /// Upper bound of its contents.
    pub size_bytes: u64,
    /// Upper bound of its number of files.
    pub nr_inodes: u64,
}

/// Of a plan that was written before this could be otherwise.
fn yes() -> bool {
    true
}

/// The standard streams.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Stdio {
    /// Whether the workload reads the caller's standard input; otherwise its input is empty.
    pub stdin: bool,
    /// Whether the workload gets a new terminal, bridged to the caller's.
    pub tty: bool,
    /// Limit on standard output, and on standard error; `None` passes them through uncounted.
    pub output_limit: Option<OutputLimit>,
    /// Whether the workload gets a pipe instead of a stream's file, because the report is written to that file too.
    #[serde(default)]
    pub relay: bool,
}

/// A limit on the output of each stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct OutputLimit {
    /// The limit in bytes.
    pub bytes: u64,
    /// Which part is kept, and what happens at the limit.
    pub keep: Keep,
}

/// Which part is kept of an output that exceeds its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Keep {
    /// The beginning. The rest is read and dropped.
    Head,
    /// The end. It is written when the stream ends.
    Tail,
    /// The beginning. The run is ended at the limit.
    Kill,
}

/// Time limits in microseconds, after which the supervisor ends the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Deadlines {
    /// Wall-clock time since the workload began.
    pub wall_us: Option<u64>,
    /// CPU time of the whole tree.
    pub cpu_us: Option<u64>,
    /// Time without output.
    pub idle_us: Option<u64>,
    /// Time between the first signal and SIGKILL.
    pub kill_after_us: u64,
}
