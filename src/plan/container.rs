//! The plan of a container: what its configuration says.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::{Bytes, Capability, Command, Confinement, hex};

/// The version of the runtime specification that is spoken.
pub const OCI_VERSION: &str = "1.3.0";

/// Everything a container is and does.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ContainerPlan {
    /// What confines it.
    pub confinement: Confinement,
    /// Its first process, or the one that `exec` adds.
    pub process: Process,
    /// Which namespaces are made anew.
    pub new: Vec<NamespaceKind>,
    /// Which namespaces are entered instead, by path.
    pub joined: Vec<Joined>,
    /// User ids of a new user namespace.
    pub uid_map: Vec<IdRange>,
    /// Group ids of a new user namespace.
    pub gid_map: Vec<IdRange>,
    /// Offsets of the clocks of a new time namespace, as `/proc/PID/timens_offsets` takes them.
    pub time_offsets: Vec<ClockOffset>,
    /// The host directory that becomes `/`, as it is: mount points that it lacks are created in it. `None` leaves the root of
    /// the mount namespace that is entered.
    pub root: Option<Bytes>,
    /// How mount events cross between the root and the host, `MS_*`; 0 for the default.
    pub root_propagation: u64,
    /// Whether `/` refuses writes.
    pub read_only: bool,
    /// Whether the old root stays below the new one, as on a root that cannot be pivoted from.
    pub no_pivot: bool,
    /// What is mounted below the root, in this order.
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
    /// Whether it gets a session keyring of its own.
    pub new_keyring: bool,
    /// Where its cgroups are, and what is in force there.
    pub cgroup: ContainerCgroup,
    /// Programs that run at the stages of its life.
    pub hooks: Hooks,
}

impl ContainerPlan {
    /// SHA-256 of the plan's JSON without id and argv, hexadecimal: equal for equal configurations, whatever they run.
    pub fn policy_hash(&self) -> String {
        let mut policy = self.clone();
        policy.confinement.id.clear();
        policy.process.command.argv.clear();
        hex(&Sha256::digest(serde_json::to_vec(&policy).unwrap_or_default()))
    }

    /// Whether it has a new namespace of this kind.
    pub fn makes(&self, kind: NamespaceKind) -> bool {
        self.new.contains(&kind)
    }

    /// Whether it enters a namespace of this kind by path.
    pub fn joins(&self, kind: NamespaceKind) -> bool {
        self.joined.iter().any(|join| join.kind == kind)
    }

    /// Whether it is in another namespace of this kind than the runtime: a new one, or one that it enters.
    pub fn has_own(&self, kind: NamespaceKind) -> bool {
        self.makes(kind) || self.joins(kind)
    }

    /// The kinds of all of these.
    pub fn namespaces(&self) -> impl Iterator<Item = NamespaceKind> + '_ {
        self.new.iter().copied().chain(self.joined.iter().map(|join| join.kind))
    }
}

/// A process of a container, as `config.json` and `exec --process` describe it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Process {
    /// What it executes.
    pub command: Command,
    /// User id inside.
    pub uid: u32,
    /// Group id inside.
    pub gid: u32,
    /// Supplementary groups, exactly.
    pub groups: Vec<u32>,
    /// The five sets of capabilities.
    pub capabilities: CapabilitySets,
    /// Whether execve can no longer grant privileges.
    pub no_new_privs: bool,
    /// AppArmor profile on execve.
    pub apparmor_profile: Option<String>,
    /// SELinux label on execve.
    pub selinux_label: Option<String>,
    /// `sched_setattr(2)`.
    pub scheduler: Option<Scheduler>,
    /// `ioprio_set(2)`: class and level.
    pub io_priority: Option<(u32, u32)>,
    /// The CPUs that what `exec` executes may run on, `sched_setaffinity(2)`; not for the container's first process.
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

/// A namespace that is entered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Joined {
    /// Its kind.
    pub kind: NamespaceKind,
    /// A file that refers to it, on the host.
    pub path: Bytes,
}

/// A line of an id map, `user_namespaces(7)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct IdRange {
    /// First id inside.
    pub inside: u32,
    /// First id on the host.
    pub outside: u32,
    /// How many.
    pub count: u32,
}

/// An offset of a clock, `time_namespaces(7)`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClockOffset {
    /// `monotonic` or `boottime`.
    pub clock: String,
    /// Whole seconds.
    pub secs: i64,
    /// Nanoseconds beside them.
    pub nanosecs: u32,
}

/// A device node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Device {
    /// Absolute path inside.
    pub path: Bytes,
    /// `S_IFCHR`, `S_IFBLK` or `S_IFIFO`.
    pub kind: u32,
    /// Its numbers; 0 for a FIFO.
    pub major: u32,
    /// See `major`.
    pub minor: u32,
    /// Permission bits.
    pub mode: u32,
    /// Owner, inside.
    pub uid: u32,
    /// Group, inside.
    pub gid: u32,
}

/// The five sets of `capabilities(7)`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[allow(missing_docs)]
pub struct CapabilitySets {
    pub bounding: Vec<Capability>,
    pub effective: Vec<Capability>,
    pub inheritable: Vec<Capability>,
    pub permitted: Vec<Capability>,
    pub ambient: Vec<Capability>,
}

/// A kernel parameter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Sysctl {
    /// With slashes: `net/ipv4/ip_forward`.
    pub path: String,
    /// What is written.
    pub value: String,
}

/// A scheduling policy, `sched_setattr(2)`, in the kernel's numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NetDevice {
    /// Its name on the host.
    pub host: String,
    /// Its name inside; `%d` in it is a number that the kernel chooses.
    pub name: String,
}

/// A group of `resctrl`, `Documentation/filesystems/resctrl.rst`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct IntelRdt {
    /// The group's name, `/` for the one that all processes are in; `None` for one of the container's own.
    pub clos_id: Option<String>,
    /// Lines for its `schemata` that an existing group must have already, and a new one gets.
    pub schemas: Vec<String>,
    /// Lines for its `schemata` that are written in any case.
    pub schemata: Vec<String>,
    /// Whether the container gets a monitoring group of its own in it.
    pub monitored: bool,
}

/// A mount exactly as the configuration describes it: nothing is implied.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ContainerMount {
    /// Absolute path inside, without `.`, `..` or empty components.
    pub destination: Bytes,
    /// What is mounted.
    pub source: MountSource,
    /// Attributes that are switched on, `MOUNT_ATTR_*`.
    pub set: u64,
    /// Attributes that are switched off.
    pub clear: u64,
    /// As `set`, for all mounts below too.
    pub set_below: u64,
    /// As `clear`, for all mounts below too.
    pub clear_below: u64,
    /// Changes of propagation, one after the other: `MS_*`, and `MS_REC` for all mounts below too.
    pub propagation: Vec<u64>,
    /// Whether a tmpfs begins with a copy of what it covers.
    pub copy_up: bool,
    /// Ids of an idmapped mount; empty for none, unless `idmap` says that it takes those of the container.
    pub uid_map: Vec<IdRange>,
    /// See `uid_map`.
    pub gid_map: Vec<IdRange>,
    /// Whether it is idmapped.
    pub idmap: bool,
    /// Whether the mounts below are idmapped too.
    pub idmap_below: bool,
}

/// What a [`ContainerMount`] mounts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MountSource {
    /// A host file or directory.
    Bind {
        /// Absolute host path.
        source: Bytes,
        /// With all that is mounted below it.
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
    /// What is mounted there already gets other attributes.
    Remount {
        /// Options of the file system itself that change too: `name` or `name=value`.
        options: Vec<Bytes>,
    },
    /// The container's own cgroups.
    #[default]
    Cgroup,
}

/// The cgroups of a container.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ContainerCgroup {
    /// `cgroupsPath` as it is written.
    pub path: String,
    /// Whether systemd makes it.
    pub systemd: bool,
    /// Properties for systemd, from annotations: name and value in its own notation.
    pub systemd_properties: Vec<(String, String)>,
    /// Whether there are none at all.
    pub disabled: bool,
    /// What is in force.
    pub resources: Resources,
}

/// The container's cgroups as a mount shows them.
#[derive(Clone, Debug, Default)]
pub struct CgroupView {
    /// The directories: with an empty name the one of cgroup v2, otherwise one for each hierarchy of v1 under its name.
    pub directories: Vec<(String, PathBuf)>,
    /// Other names of hierarchies that have several controllers.
    pub links: Vec<(String, String)>,
    /// Whether the container has a cgroup namespace of its own.
    pub own_namespace: bool,
}

/// What a cgroup enforces, in the words of the runtime specification; both versions of cgroups are made from these.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[allow(missing_docs)]
pub struct Resources {
    pub memory_limit: Option<i64>,
    pub memory_reservation: Option<i64>,
    pub memory_swap: Option<i64>,
    pub memory_kernel_tcp: Option<i64>,
    pub memory_swappiness: Option<u64>,
    pub disable_oom_killer: bool,
    pub check_before_update: bool,
    pub cpu_shares: Option<u64>,
    pub cpu_quota: Option<i64>,
    pub cpu_period: Option<u64>,
    pub cpu_burst: Option<u64>,
    pub cpu_realtime_runtime: Option<i64>,
    pub cpu_realtime_period: Option<u64>,
    pub cpu_idle: Option<i64>,
    pub cpus: Option<String>,
    pub mems: Option<String>,
    pub pids: Option<i64>,
    pub block_weight: Option<u16>,
    pub block_leaf_weight: Option<u16>,
    /// `MAJOR:MINOR`, weight and leaf weight.
    pub block_weights: Vec<(String, Option<u16>, Option<u16>)>,
    /// Which of read or write, bytes or operations (`rbps`, `wbps`, `riops`, `wiops`), `MAJOR:MINOR`, and the rate.
    pub block_throttles: Vec<(String, String, u64)>,
    /// Page size as in the kernel's file names, and bytes.
    pub hugepages: Vec<(String, u64)>,
    pub network_class: Option<u32>,
    /// Interface and priority.
    pub network_priorities: Vec<(String, u32)>,
    /// Device, handles and objects.
    pub rdma: Vec<(String, Option<u32>, Option<u32>)>,
    /// Files of cgroup v2, and their contents.
    pub unified: Vec<(String, String)>,
    /// Rules about device nodes, in order: the last that matches decides. `None` leaves devices as they are.
    pub devices: Option<Vec<DeviceRule>>,
}

impl Resources {
    /// Takes over what another says; the rest stays.
    pub fn take(&mut self, other: &Self) {
        macro_rules! options {
            ($($field:ident)*) => { $(if other.$field.is_some() { self.$field = other.$field.clone(); })* };
        }
        macro_rules! lists {
            ($($field:ident)*) => { $(for item in &other.$field {
                self.$field.retain(|known| known.0 != item.0 || known.1 != item.1 && stringify!($field) == "block_throttles");
                self.$field.push(item.clone());
            })* };
        }
        options! {
            memory_limit memory_reservation memory_swap memory_kernel_tcp memory_swappiness cpu_shares cpu_quota cpu_period
            cpu_burst cpu_realtime_runtime cpu_realtime_period cpu_idle cpus mems pids block_weight block_leaf_weight
            network_class
        }
        lists! { block_weights block_throttles hugepages network_priorities rdma unified }
        self.disable_oom_killer |= other.disable_oom_killer;
        if other.devices.as_ref().is_some_and(|rules| !rules.is_empty()) {
            self.devices.clone_from(&other.devices);
        }
    }
}

/// A rule about device nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DeviceRule {
    /// Whether it allows.
    pub allow: bool,
    /// `a`, `b` or `c`.
    pub kind: char,
    /// `None` for all.
    pub major: Option<u32>,
    /// `None` for all.
    pub minor: Option<u32>,
    /// Of `r`, `w` and `m`.
    pub access: String,
}

/// Programs that run at the stages of a container's life.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[allow(missing_docs)]
pub struct Hooks {
    pub prestart: Vec<Hook>,
    pub create_runtime: Vec<Hook>,
    pub create_container: Vec<Hook>,
    pub start_container: Vec<Hook>,
    pub poststart: Vec<Hook>,
    pub poststop: Vec<Hook>,
}

/// One such program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Hook {
    /// Absolute path.
    pub path: Bytes,
    /// Its arguments, the first of which is its name; empty for the path alone.
    pub args: Vec<Bytes>,
    /// Its whole environment.
    pub env: Vec<Bytes>,
    /// Seconds after which it is killed.
    pub timeout_s: Option<u64>,
}
