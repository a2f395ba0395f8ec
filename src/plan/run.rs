//! The plan of `stockade run`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::{Budget, Bytes, Capability, Command, Confinement, hex};

/// Everything one run does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunPlan {
    /// What confines the sandbox.
    #[serde(flatten)]
    pub confinement: Confinement,
    /// What is executed in it.
    pub command: Command,
    /// Which namespaces are new.
    pub namespaces: Namespaces,
    /// The workload's user, inside and on the host.
    pub identity: Identity,
    /// What `/` is.
    pub root: Root,
    /// What is mounted below it, in this order.
    pub mounts: Vec<Mount>,
    /// Whether symlinks in sources on the host are followed also where others than root and the caller could have made them.
    #[serde(default)]
    pub follow: bool,
    /// Limits of the tmpfs that all scratch directories share.
    pub scratch: ScratchLimit,
    /// Capabilities the workload keeps inside its user namespace; empty by default.
    pub capabilities: Vec<Capability>,
    /// What the whole tree may use together, enforced by a cgroup.
    pub budget: Budget,
    /// Whether a pid 1 of ours reaps and forwards signals (`false`: the workload is pid 1).
    pub init: bool,
    /// Where the standard streams go.
    pub stdio: Stdio,
    /// When the run is ended from outside.
    pub deadlines: Deadlines,
    /// Whether denials are listened to and listed in the report.
    pub explain_denials: bool,
    /// Whether the report has the hash of the executed file.
    pub hash_program: bool,
    /// SHA-256 of the resolved policy, [`Self::policy_hash`]; empty in a plan that is run before it is known.
    pub policy_sha256: String,
}

impl RunPlan {
    /// SHA-256 of the plan's JSON without id, argv, hash, and how the run is recorded: equal for equal policies, whatever
    /// they run and whoever records it. Hexadecimal. A start does not wait for it: it is taken while the sandbox is built.
    pub fn policy_hash(&self) -> String {
        let mut policy = self.clone();
        policy.confinement.id.clear();
        policy.command.argv.clear();
        policy.policy_sha256.clear();
        policy.hash_program = false;
        policy.stdio.relay = false;
        hex(&Sha256::digest(serde_json::to_vec(&policy).unwrap_or_default()))
    }
}

/// Which namespaces are made anew. The user, mount and pid namespaces always are.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Namespaces {
    /// Own System V IPC and POSIX message queues, `ipc_namespaces(7)`.
    pub ipc: bool,
    /// Own host and domain name, `uts_namespaces(7)`.
    pub uts: bool,
    /// Own view of the cgroup tree, `cgroup_namespaces(7)`.
    pub cgroup: bool,
    /// Own monotonic and boot clocks starting at zero, `time_namespaces(7)`.
    pub time: bool,
    /// The network.
    pub network: Network,
    /// How many namespaces of each kind the workload may make below its own; 0 forbids them.
    pub nested: u32,
}

/// What the workload can reach, `network_namespaces(7)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Network {
    /// An own network namespace whose only interface is `lo`.
    None,
    /// As `none`; says that sockets on 127.0.0.1 and ::1 are part of what the workload needs.
    Loopback,
    /// The caller's network: no isolation of it at all.
    Host,
}

/// Who the workload is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Identity {
    /// User id inside the sandbox.
    pub uid: u32,
    /// Group id inside the sandbox.
    pub gid: u32,
    /// How inside ids relate to host ids.
    pub mapping: IdMapping,
    /// Login name of `uid`, for the generated passwd file and `USER`.
    pub user: String,
    /// Home directory inside the sandbox.
    pub home: Bytes,
}

/// How ids inside relate to ids on the host, `user_namespaces(7)`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum IdMapping {
    /// One id, chosen at launch: the caller's own when unprivileged; as root, a host id of the run's own that belongs to nobody.
    Single,
    /// One id, mapped to this host user and group (root only, or the caller's own).
    HostUser {
        /// Host user id.
        uid: u32,
        /// Host group id.
        gid: u32,
    },
    /// The caller's subordinate ranges of `subuid(5)` and `subgid(5)`, through `newuidmap(1)` and `newgidmap(1)`.
    Subordinate,
}

/// What `/` is inside.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Root {
    /// A small read-only tmpfs, filled by the plan's mounts: the synthetic view of the host.
    Synthetic,
    /// This host directory, read-only. Mount points that it lacks are supplied without touching it.
    Directory(Bytes),
}

/// One thing below `/`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Mount {
    /// Absolute path inside the sandbox, without `.`, `..` or empty components.
    pub destination: Bytes,
    /// What is put there.
    pub kind: MountKind,
    /// Refuses writes, `MOUNT_ATTR_RDONLY`.
    pub read_only: bool,
    /// Refuses to execute files, `MOUNT_ATTR_NOEXEC`.
    pub noexec: bool,
    /// Left out when its source does not exist on this host.
    pub optional: bool,
}

/// What is put at a mount's destination. Every mount is `nosuid`; all but `dev`'s nodes are `nodev`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MountKind {
    /// A host file or directory with all that is mounted below it.
    Bind {
        /// Absolute host path. Symlinks in it are followed where no other user could have made them, or everywhere with `follow`.
        source: Bytes,
    },
    /// What the host has at the same path: a symlink is copied as such, anything else is bound.
    AsHost,
    /// An own tmpfs.
    Tmpfs {
        /// Upper bound of its contents.
        size_bytes: u64,
        /// Upper bound of its number of files.
        nr_inodes: u64,
        /// Mode of its root directory.
        mode: u32,
    },
    /// A directory on the run's one scratch tmpfs, whose limits all of these share.
    Scratch {
        /// Mode of the directory.
        mode: u32,
    },
    /// A fresh procfs of the new pid namespace.
    Proc {
        /// Whether only processes are shown, and nothing of the host (`subset=pid`).
        pid_only: bool,
    },
    /// The caller's sysfs, read-only.
    Sysfs,
    /// A fresh devtmpfs stand-in: a tmpfs with the harmless nodes, `pts`, `shm`, `fd` and the standard streams.
    Dev {
        /// Further host device nodes, by host path.
        devices: Vec<Bytes>,
    },
    /// POSIX message queues of the new IPC namespace.
    Mqueue,
    /// A generated read-only file (only below a synthetic root).
    File {
        /// What it holds.
        content: Bytes,
        /// Its permission bits.
        mode: u32,
    },
    /// A generated symlink (only below a synthetic root).
    Symlink {
        /// What it points to.
        target: Bytes,
    },
}

/// The size of the one scratch tmpfs that all [`MountKind::Scratch`] directories share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ScratchLimit {
    /// Upper bound of its contents.
    pub size_bytes: u64,
    /// Upper bound of its number of files.
    pub nr_inodes: u64,
}

/// Where the standard streams go.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Stdio {
    /// Whether the workload reads the caller's standard input (otherwise it is empty).
    pub stdin: bool,
    /// Whether the workload gets a terminal of its own, bridged to the caller's.
    pub tty: bool,
    /// Bound on each of standard output and standard error; `None` passes them through uncounted.
    pub output_limit: Option<OutputLimit>,
    /// Whether the workload gets a pipe where a stream is a file, because something else is written to that file too.
    #[serde(default)]
    pub relay: bool,
}

/// A bound on what the workload may print, for each of the two streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OutputLimit {
    /// How much is kept.
    pub bytes: u64,
    /// Which part is kept, and what happens to the rest.
    pub keep: Keep,
}

/// What is kept of an output that is longer than its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Keep {
    /// The beginning; the rest is read and dropped.
    Head,
    /// The end; it is written when the stream ends.
    Tail,
    /// The beginning; the run is ended when it is exceeded.
    Kill,
}

/// When the run is ended from outside. All in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Deadlines {
    /// Wall-clock time since the workload began.
    pub wall_us: Option<u64>,
    /// CPU time of the whole tree.
    pub cpu_us: Option<u64>,
    /// Time without any byte of output.
    pub idle_us: Option<u64>,
    /// From the polite signal to SIGKILL.
    pub kill_after_us: u64,
}
