//! The plan of a container, made from its configuration.

mod cgroup;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

pub use self::cgroup::{CgroupView, ContainerCgroup, DeviceRule, Resources};
use super::{Bytes, Capability, Command, Confinement, hex};

/// The supported version of the runtime specification.
pub const OCI_VERSION: &str = "1.3.0";

/// The complete plan of a container.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ContainerPlan {
    /// Its confinement.
    pub confinement: Confinement,
    /// Its first process, or the one that `exec` adds.
    pub process: Process,
    /// The namespaces that are created.
    pub new: Vec<NamespaceKind>,
    /// The namespaces that are entered instead, by path.
    pub joined: Vec<Joined>,
    /// User ids of a new user namespace.
    pub uid_map: Vec<IdRange>,
    /// Group ids of a new user namespace.
    pub gid_map: Vec<IdRange>,
    /// Clock offsets of a new time namespace, for `/proc/PID/timens_offsets`.
    pub time_offsets: Vec<ClockOffset>,
    /// The host directory that becomes `/`. Missing mount points are created in it. `None` keeps the root of the mount
    /// namespace that is entered.
    pub root: Option<Bytes>,
    /// Mount propagation between the root and the host, `MS_*`; 0 for the default.
    pub root_propagation: u64,
    /// Whether `/` refuses writes.
    pub read_only: bool,
    /// Whether the old root stays mounted below the new one, for a root on which pivot_root(2) fails.
    pub no_pivot: bool,
    /// The mounts below the root, in order.
    pub mounts: Vec<ContainerMount>,
    /// Device nodes in `/dev`.
    pub devices: Vec<Device>,
    /// `setdomainname(2)`.
    pub domainname: Option<Bytes>,
    /// Kernel parameters of the container's own namespaces: path below `/proc/sys`, and value.
    pub sysctl: Vec<Sysctl>,
    /// `personality(2)`.
    pub personality: Option<u32>,
    /// `set_mempolicy(2)`: mode with its flags, and nodes.
    pub memory_policy: Option<(i32, Vec<u32>)>,
    /// SELinux label of every file system that is mounted for it.
    pub mount_label: Option<String>,
    /// Network devices that are moved into its network namespace.
    pub net_devices: Vec<NetDevice>,
    /// Its share of caches and memory bandwidth.
    pub intel_rdt: Option<IntelRdt>,
    /// Whether it gets a new session keyring.
    pub new_keyring: bool,
    /// Its cgroups and their limits.
    pub cgroup: ContainerCgroup,
    /// Programs that run at the stages of its lifecycle.
    pub hooks: Hooks,
    /// Whether its processes keep the supplementary groups of the runtime's caller instead of `process.groups`.
    #[serde(default)]
    pub keep_groups: bool,
}

impl ContainerPlan {
    /// SHA-256 of the plan's JSON without id and argv, hexadecimal. It is equal for configurations that differ only in the
    /// program.
    pub fn policy_hash(&self) -> String {
        let mut policy = self.clone();
        policy.confinement.id.clear();
        policy.process.command.argv.clear();
        hex(&Sha256::digest(serde_json::to_vec(&policy).unwrap_or_default()))
    }

    /// Whether it creates a namespace of this kind.
    pub fn makes(&self, kind: NamespaceKind) -> bool {
        self.new.contains(&kind)
    }

    /// Whether it enters a namespace of this kind by path.
    pub fn joins(&self, kind: NamespaceKind) -> bool {
        self.joined.iter().any(|join| join.kind == kind)
    }

    /// Whether its namespace of this kind differs from the runtime's: a new one, or one that it enters.
    pub fn has_own(&self, kind: NamespaceKind) -> bool {
        self.makes(kind) || self.joins(kind)
    }

    /// The kinds of all namespaces that it creates or enters.
    pub fn namespaces(&self) -> impl Iterator<Item = NamespaceKind> + '_ {
        self.new.iter().copied().chain(self.joined.iter().map(|join| join.kind))
    }
}

/// A process of a container, as `config.json` and `exec --process` describe it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Process {
    /// The program that it executes.
    pub command: Command,
    /// User id inside.
    pub uid: u32,
    /// Group id inside.
    pub gid: u32,
    /// All of its supplementary groups.
    pub groups: Vec<u32>,
    /// The five sets of capabilities.
    pub capabilities: CapabilitySets,
    /// Whether execve can no longer grant privileges.
    pub no_new_privs: bool,
    /// AppArmor profile from execve on.
    pub apparmor_profile: Option<String>,
    /// SELinux label from execve on.
    pub selinux_label: Option<String>,
    /// `sched_setattr(2)`.
    pub scheduler: Option<Scheduler>,
    /// `ioprio_set(2)`: class and level.
    pub io_priority: Option<(u32, u32)>,
    /// The CPUs that a program of `exec` may run on, `sched_setaffinity(2)`; not for the container's first process.
    pub cpu_affinity: Option<Vec<u32>>,
    /// The CPUs that `exec` itself runs on until it is in the container's cgroups.
    pub initial_cpu_affinity: Option<Vec<u32>>,
    /// Whether it has a terminal.
    pub terminal: bool,
    /// The terminal's size in lines and columns, if the configuration gives one.
    pub console_size: Option<(u16, u16)>,
}

super::kernel_names! {
    /// A kind of namespace, `namespaces(7)`, by its name in configurations.
    NamespaceKind {
        User = libc::CLONE_NEWUSER, "user";
        Mount = libc::CLONE_NEWNS, "mount";
        Pid = libc::CLONE_NEWPID, "pid";
        Network = libc::CLONE_NEWNET, "network";
        Ipc = libc::CLONE_NEWIPC, "ipc";
        Uts = libc::CLONE_NEWUTS, "uts";
        Cgroup = libc::CLONE_NEWCGROUP, "cgroup";
        Time = 0x80, "time";
    }
}

impl NamespaceKind {
    /// The file in `/proc/PID/ns`.
    pub fn file_name(self) -> &'static str {
        match self {
            Self::Mount => "mnt",
            Self::Network => "net",
            other => other.name(),
        }
    }
}

/// A namespace that is entered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Joined {
    /// Its kind.
    pub kind: NamespaceKind,
    /// A file that refers to it, on the host.
    pub path: Bytes,
}

/// A line of an id map, `user_namespaces(7)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct IdRange {
    /// First id inside.
    pub inside: u32,
    /// First id on the host.
    pub outside: u32,
    /// Number of ids.
    pub count: u32,
}

impl IdRange {
    /// The host's number of an id inside. Without a map both are the same.
    pub fn host_id(map: &[Self], id: u32) -> Option<u32> {
        let within = |range: &Self| Some(range.outside + id.checked_sub(range.inside).filter(|at| *at < range.count)?);
        if map.is_empty() { Some(id) } else { map.iter().find_map(within) }
    }
}

/// An offset of a clock, `time_namespaces(7)`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ClockOffset {
    /// `monotonic` or `boottime`.
    pub clock: String,
    /// Whole seconds.
    pub secs: i64,
    /// Nanoseconds to add.
    pub nanosecs: u32,
}

/// A device node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Device {
    /// Absolute path inside.
    pub path: Bytes,
    /// `S_IFCHR`, `S_IFBLK` or `S_IFIFO`.
    pub kind: u32,
    /// Major number; 0 for a FIFO.
    pub major: u32,
    /// Minor number; 0 for a FIFO.
    pub minor: u32,
    /// Permission bits.
    pub mode: u32,
    /// Owner, inside.
    pub uid: u32,
    /// Group, inside.
    pub gid: u32,
}

/// The five sets of `capabilities(7)`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[allow(missing_docs)]
pub struct CapabilitySets {
    pub bounding: Vec<Capability>,
    pub effective: Vec<Capability>,
    pub inheritable: Vec<Capability>,
    pub permitted: Vec<Capability>,
    pub ambient: Vec<Capability>,
}

/// A kernel parameter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Sysctl {
    /// With slashes: `net/ipv4/ip_forward`.
    pub path: String,
    /// Its value.
    pub value: String,
}

/// A scheduling policy, `sched_setattr(2)`, in the kernel's numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[allow(missing_docs)]
pub struct Scheduler {
    pub policy: u32,
    pub flags: u64,
    pub nice: i32,
    pub priority: u32,
    pub runtime: u64,
    pub deadline: u64,
    pub period: u64,
}

/// A network device that is moved into a container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct NetDevice {
    /// Its name on the host.
    pub host: String,
    /// Its name inside; `%d` in it is a number that the kernel chooses.
    pub name: String,
}

/// A group of `resctrl`, `Documentation/filesystems/resctrl.rst`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct IntelRdt {
    /// The group's name, `/` for the default group; `None` for a new group of the container.
    pub clos_id: Option<String>,
    /// Lines of `schemata` that are written to a new group; an existing group must already have them.
    pub schemas: Vec<String>,
    /// Lines of `schemata` that are written to any group.
    pub schemata: Vec<String>,
    /// Whether a monitoring group is created for the container in this group.
    pub monitored: bool,
}

/// A mount exactly as the configuration describes it, without defaults.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ContainerMount {
    /// Absolute path inside, without `.`, `..` or empty components.
    pub destination: Bytes,
    /// The source.
    pub source: MountSource,
    /// Attributes to set, `MOUNT_ATTR_*`.
    pub set: u64,
    /// Attributes to clear.
    pub clear: u64,
    /// As `set`, for all mounts below too.
    pub set_below: u64,
    /// As `clear`, for all mounts below too.
    pub clear_below: u64,
    /// Changes of propagation, in order: `MS_*`, and `MS_REC` for all mounts below too.
    pub propagation: Vec<u64>,
    /// Whether a tmpfs begins with a copy of the directory that it covers.
    pub copy_up: bool,
    /// Ids of an idmapped mount. If they are empty and `idmap` is set, the ids of the container apply.
    pub uid_map: Vec<IdRange>,
    /// See `uid_map`.
    pub gid_map: Vec<IdRange>,
    /// Whether it is idmapped.
    pub idmap: bool,
    /// Whether the mounts below are idmapped too.
    pub idmap_below: bool,
}

/// The source of a [`ContainerMount`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum MountSource {
    /// A host file or directory.
    Bind {
        /// Absolute host path.
        source: Bytes,
        /// Whether the mounts below it are bound too.
        recursive: bool,
    },
    /// A new instance of a file system.
    FileSystem {
        /// Its type.
        kind: String,
        /// Its `source` option.
        source: Option<Bytes>,
        /// Its other options: `name` or `name=value`.
        options: Vec<Bytes>,
    },
    /// Changes the attributes of an existing mount.
    Remount {
        /// Options of the file system to change as well: `name` or `name=value`.
        options: Vec<Bytes>,
    },
    /// The container's own cgroups.
    #[default]
    Cgroup,
}

/// Programs that run at the stages of a container's lifecycle.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[allow(missing_docs)]
pub struct Hooks {
    pub prestart: Vec<Hook>,
    pub create_runtime: Vec<Hook>,
    pub create_container: Vec<Hook>,
    pub start_container: Vec<Hook>,
    pub poststart: Vec<Hook>,
    pub poststop: Vec<Hook>,
    /// Files for their output.
    #[serde(default)]
    pub files: HookFiles,
}

/// Files of the host to which the output of hooks is appended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct HookFiles {
    /// For standard output; `null` discards it.
    pub stdout: Option<Bytes>,
    /// For standard error; `null` keeps its end for the error message.
    pub stderr: Option<Bytes>,
}

/// A program that runs at a stage of a container's lifecycle.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Hook {
    /// Absolute path.
    pub path: Bytes,
    /// Its arguments, beginning with its name; if empty, the path is the only argument.
    pub args: Vec<Bytes>,
    /// Its whole environment; `null` for that of the runtime or, at `startContainer`, of the container's process.
    pub env: Option<Vec<Bytes>>,
    /// Seconds after which it is killed.
    pub timeout_s: Option<u64>,
}
