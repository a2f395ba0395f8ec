//! The plan: everything a run will do, as plain data.
//!
//! Both doors produce a [`Plan`] and execution reads nothing else. It is complete (nothing is looked up again from flags
//! or files), serialisable, and made without a system call. What the host turns it into is [`crate::sandbox`]'s business.

pub mod container;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::is_deceptive;

macro_rules! kernel_names {
    ($(#[$doc:meta])* $name:ident { $($variant:ident = $number:expr, $text:literal;)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, ::serde::Serialize, ::serde::Deserialize, ::schemars::JsonSchema)]
        #[allow(missing_docs)]
        pub enum $name { $(#[serde(rename = $text)] $variant,)+ }
        impl $name {
            /// Every one, in the kernel's order.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];
            /// The kernel's number.
            pub const fn number(self) -> u32 { match self { $(Self::$variant => $number as u32,)+ } }
            /// The name people write.
            pub const fn name(self) -> &'static str { match self { $(Self::$variant => $text,)+ } }
        }
        impl std::str::FromStr for $name {
            type Err = ();
            fn from_str(text: &str) -> Result<Self, ()> {
                Self::ALL.iter().copied().find(|item| item.name() == text).ok_or(())
            }
        }
    };
}
use kernel_names;

/// Bytes that came from argv, the environment or a path: any byte but NUL, not necessarily UTF-8.
///
/// In JSON it is a plain string when it is UTF-8, and `{"hex": "…"}` when it is not, so that no two values look alike.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Bytes(Vec<u8>);

impl Bytes {
    /// The bytes themselves.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// As a path.
    pub fn as_path(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.0))
    }
}

impl<T: AsRef<OsStr> + ?Sized> From<&T> for Bytes {
    fn from(text: &T) -> Self {
        Self(text.as_ref().as_bytes().to_vec())
    }
}

impl From<Vec<u8>> for Bytes {
    fn from(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }
}

/// Printable on a terminal whatever the bytes are: control characters and non-UTF-8 are escaped.
impl std::fmt::Display for Bytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for chunk in self.0.utf8_chunks() {
            for c in chunk.valid().chars() {
                if is_deceptive(c) { write!(f, "{}", c.escape_default())? } else { write!(f, "{c}")? }
            }
            for byte in chunk.invalid() {
                write!(f, "\\x{byte:02x}")?;
            }
        }
        Ok(())
    }
}

impl std::fmt::Debug for Bytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "\"{self}\"")
    }
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
enum BytesRepr {
    Text(String),
    Hex { hex: String },
}

impl Serialize for Bytes {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match std::str::from_utf8(&self.0) {
            Ok(text) => serializer.serialize_str(text),
            Err(_) => BytesRepr::Hex { hex: hex(&self.0) }.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let bytes = match BytesRepr::deserialize(deserializer)? {
            BytesRepr::Text(text) => text.into_bytes(),
            BytesRepr::Hex { hex } => unhex(&hex).ok_or_else(|| serde::de::Error::custom("not hexadecimal"))?,
        };
        if bytes.contains(&0) {
            return Err(serde::de::Error::custom("contains a NUL byte"));
        }
        Ok(Self(bytes))
    }
}

impl JsonSchema for Bytes {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Bytes".into()
    }
    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        BytesRepr::json_schema(generator)
    }
}

/// Lower-case hexadecimal, as in the report's hashes.
pub fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The bytes of hexadecimal text; `None` if it is not that.
pub fn unhex(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(2) || !text.is_ascii() {
        return None;
    }
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).ok()).collect()
}

/// Everything one run does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Plan {
    /// Name of the sandbox: `[A-Za-z0-9_.+-]{1,64}`, no leading `-`, not `.` or `..`.
    pub id: String,
    /// What is executed, and in which surroundings.
    pub command: Command,
    /// Which namespaces are new.
    pub namespaces: Namespaces,
    /// Who the workload is, inside and on the host.
    pub identity: Identity,
    /// What `/` is.
    pub root: Root,
    /// What is mounted below it, in this order.
    pub mounts: Vec<Mount>,
    /// Limits of the tmpfs that all scratch directories share.
    pub scratch: ScratchLimit,
    /// Paths below `/` that are covered by an empty read-only file or directory where they exist.
    pub masked_paths: Vec<Bytes>,
    /// Paths below `/` that are made read-only where they exist.
    pub readonly_paths: Vec<Bytes>,
    /// `sethostname(2)` in the new UTS namespace; at most 64 bytes.
    pub hostname: Option<Bytes>,
    /// Path and port rules on top of what the mounts allow; `None` leaves Landlock out.
    pub landlock: Option<Landlock>,
    /// Which system calls the workload may make; `None` filters none but what `guards` refuse.
    pub seccomp: Option<Seccomp>,
    /// Names of sets of calls that are refused whatever the profile says, because they lead past another layer.
    pub guards: Vec<String>,
    /// Capabilities the workload keeps inside its user namespace; empty by default.
    pub capabilities: Vec<Capability>,
    /// Resource limits of `setrlimit(2)`.
    pub rlimits: Vec<Rlimit>,
    /// What the whole tree may use together, enforced by a cgroup.
    pub budget: Budget,
    /// `/proc/PID/oom_score_adj`, -1000 to 1000; `None` leaves the caller's.
    pub oom_score_adj: Option<i16>,
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
    /// Facilities that may be missing on this host without the run being refused.
    pub allow_degraded: Vec<Facility>,
    /// SHA-256 of the resolved policy (every setting but the command), hexadecimal.
    pub policy_sha256: String,
    /// What only the configuration of a container says; `None` for a direct run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<Box<container::Container>>,
}

/// The program and its surroundings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Command {
    /// At least one word; the first is looked up in the sandbox's PATH unless it contains a slash.
    pub argv: Vec<Bytes>,
    /// `NAME=value` strings, complete: nothing is inherited beside them.
    pub env: Vec<Bytes>,
    /// Absolute path inside the sandbox.
    pub cwd: Bytes,
    /// File mode creation mask, `umask(2)`.
    pub umask: u32,
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
    /// This host directory as it is, the root of a container: mount points that it lacks are created in it.
    Bundle(Bytes),
    /// What is `/` in the mount namespace that is entered.
    Joined,
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
        /// Absolute host path; symlinks are followed on the host.
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
    /// As a container's configuration describes it.
    Given(Box<container::GivenMount>),
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

kernel_names! {
    /// The resources of `setrlimit(2)`, by their `ulimit` names.
    RlimitResource {
        Cpu = libc::RLIMIT_CPU, "cpu";
        Fsize = libc::RLIMIT_FSIZE, "fsize";
        Data = libc::RLIMIT_DATA, "data";
        Stack = libc::RLIMIT_STACK, "stack";
        Core = libc::RLIMIT_CORE, "core";
        Rss = libc::RLIMIT_RSS, "rss";
        Nproc = libc::RLIMIT_NPROC, "nproc";
        Nofile = libc::RLIMIT_NOFILE, "nofile";
        Memlock = libc::RLIMIT_MEMLOCK, "memlock";
        As = libc::RLIMIT_AS, "as";
        Locks = libc::RLIMIT_LOCKS, "locks";
        Sigpending = libc::RLIMIT_SIGPENDING, "sigpending";
        Msgqueue = libc::RLIMIT_MSGQUEUE, "msgqueue";
        Nice = libc::RLIMIT_NICE, "nice";
        Rtprio = libc::RLIMIT_RTPRIO, "rtprio";
        Rttime = libc::RLIMIT_RTTIME, "rttime";
    }
}

kernel_names! {
    /// The capabilities of `capabilities(7)`.
    Capability {
        Chown = 0, "CAP_CHOWN";
        DacOverride = 1, "CAP_DAC_OVERRIDE";
        DacReadSearch = 2, "CAP_DAC_READ_SEARCH";
        Fowner = 3, "CAP_FOWNER";
        Fsetid = 4, "CAP_FSETID";
        Kill = 5, "CAP_KILL";
        Setgid = 6, "CAP_SETGID";
        Setuid = 7, "CAP_SETUID";
        Setpcap = 8, "CAP_SETPCAP";
        LinuxImmutable = 9, "CAP_LINUX_IMMUTABLE";
        NetBindService = 10, "CAP_NET_BIND_SERVICE";
        NetBroadcast = 11, "CAP_NET_BROADCAST";
        NetAdmin = 12, "CAP_NET_ADMIN";
        NetRaw = 13, "CAP_NET_RAW";
        IpcLock = 14, "CAP_IPC_LOCK";
        IpcOwner = 15, "CAP_IPC_OWNER";
        SysModule = 16, "CAP_SYS_MODULE";
        SysRawio = 17, "CAP_SYS_RAWIO";
        SysChroot = 18, "CAP_SYS_CHROOT";
        SysPtrace = 19, "CAP_SYS_PTRACE";
        SysPacct = 20, "CAP_SYS_PACCT";
        SysAdmin = 21, "CAP_SYS_ADMIN";
        SysBoot = 22, "CAP_SYS_BOOT";
        SysNice = 23, "CAP_SYS_NICE";
        SysResource = 24, "CAP_SYS_RESOURCE";
        SysTime = 25, "CAP_SYS_TIME";
        SysTtyConfig = 26, "CAP_SYS_TTY_CONFIG";
        Mknod = 27, "CAP_MKNOD";
        Lease = 28, "CAP_LEASE";
        AuditWrite = 29, "CAP_AUDIT_WRITE";
        AuditControl = 30, "CAP_AUDIT_CONTROL";
        Setfcap = 31, "CAP_SETFCAP";
        MacOverride = 32, "CAP_MAC_OVERRIDE";
        MacAdmin = 33, "CAP_MAC_ADMIN";
        Syslog = 34, "CAP_SYSLOG";
        WakeAlarm = 35, "CAP_WAKE_ALARM";
        BlockSuspend = 36, "CAP_BLOCK_SUSPEND";
        AuditRead = 37, "CAP_AUDIT_READ";
        Perfmon = 38, "CAP_PERFMON";
        Bpf = 39, "CAP_BPF";
        CheckpointRestore = 40, "CAP_CHECKPOINT_RESTORE";
    }
}

/// What the whole tree may use together, by the files of cgroup v2 that say so; what is left out is unlimited.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Budget {
    /// `memory.max`, with `memory.oom.group` set: the tree dies as a whole.
    pub memory_bytes: Option<u64>,
    /// `memory.high`: from here on it is slowed down.
    pub memory_high_bytes: Option<u64>,
    /// `memory.swap.max`.
    pub swap_bytes: Option<u64>,
    /// `cpu.max`, in microseconds of CPU time per 100 ms of wall time (100,000 is one whole CPU).
    pub cpu_quota_us: Option<u64>,
    /// `cpu.weight`, 1 to 10,000; a cgroup that says nothing has 100.
    pub cpu_weight: Option<u64>,
    /// `cpuset.cpus`, a list such as `0-3,7`.
    pub cpuset_cpus: Option<String>,
    /// `cpuset.mems`, a list of NUMA nodes.
    pub cpuset_mems: Option<String>,
    /// `pids.max`: processes and threads.
    pub pids: Option<u64>,
    /// `io.max`, for each device.
    pub io_max: Vec<IoMax>,
    /// `io.weight`, 1 to 10,000; a cgroup that says nothing has 100.
    pub io_weight: Option<u64>,
    /// `hugetlb.SIZE.max`.
    pub hugetlb: Vec<HugetlbMax>,
    /// Other files of a controller, as `CONTROLLER.FILE`.
    pub files: Vec<CgroupFile>,
    /// Controllers whose limits apply where they can be had cheaply, and are reported as degraded where they cannot: the
    /// limits of a default, which nobody asked for.
    pub if_possible: Vec<Facility>,
}

/// Bounds on the traffic with one block device; what is left out is unlimited.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct IoMax {
    /// A whole block device: its host path, or `MAJOR:MINOR`.
    pub device: Bytes,
    /// Bytes read per second.
    pub rbps: Option<u64>,
    /// Bytes written per second.
    pub wbps: Option<u64>,
    /// Reads per second.
    pub riops: Option<u64>,
    /// Writes per second.
    pub wiops: Option<u64>,
}

/// A bound on huge pages of one size.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HugetlbMax {
    /// The size as in the name of the kernel's file: `2MB`, `1GB`.
    pub page_size: String,
    /// Bytes in such pages.
    pub max_bytes: u64,
}

/// A file of a cgroup, and what is written to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CgroupFile {
    /// Its name, which begins with that of its controller.
    pub name: String,
    /// What it has to hold.
    pub value: String,
}

impl CgroupFile {
    /// The controller it belongs to; `None` if it is none that a budget can be made of.
    pub fn controller(&self) -> Option<Facility> {
        let facility = self.name.split_once('.')?.0.parse().ok()?;
        Facility::CONTROLLERS.contains(&facility).then_some(facility)
    }
}

impl Budget {
    /// Whether nothing is limited, so that no cgroup is needed.
    pub fn is_empty(&self) -> bool {
        self.controllers().is_empty()
    }

    /// The limits that need a controller, for people.
    pub fn describe(&self, controller: Facility) -> String {
        let number = |name: &str, value: Option<u64>| value.map(|value| format!("{name} {value}"));
        let list = |name: &str, value: &Option<String>| value.as_ref().map(|value| format!("{name} {value}"));
        let mut limits: Vec<String> = match controller {
            Facility::Memory => vec![
                number("memory.max", self.memory_bytes),
                number("memory.high", self.memory_high_bytes),
                number("memory.swap.max", self.swap_bytes),
            ],
            Facility::Cpu => {
                vec![number("us of CPU per 100 ms:", self.cpu_quota_us), number("cpu.weight", self.cpu_weight)]
            }
            Facility::Cpuset => vec![list("cpuset.cpus", &self.cpuset_cpus), list("cpuset.mems", &self.cpuset_mems)],
            Facility::Pids => vec![number("pids.max", self.pids)],
            Facility::Io => {
                let devices = self.io_max.iter().map(|io| Some(format!("io.max of {}", io.device)));
                devices.chain([number("io.weight", self.io_weight)]).collect()
            }
            Facility::Hugetlb => self.hugetlb.iter().map(|one| number(&one.page_size, Some(one.max_bytes))).collect(),
            _ => Vec::new(),
        }
        .into_iter()
        .flatten()
        .collect();
        let files = self.files.iter().filter(|file| file.controller() == Some(controller));
        limits.extend(files.map(|file| format!("{} {}", file.name, file.value)));
        limits.join(", ")
    }

    /// The controllers that its limits need, in the order of [`Facility`].
    pub fn controllers(&self) -> Vec<Facility> {
        let memory = [self.memory_bytes, self.memory_high_bytes, self.swap_bytes].iter().any(Option::is_some);
        let named = [
            (Facility::Cpu, self.cpu_quota_us.is_some() || self.cpu_weight.is_some()),
            (Facility::Memory, memory),
            (Facility::Pids, self.pids.is_some()),
            (Facility::Io, !self.io_max.is_empty() || self.io_weight.is_some()),
            (Facility::Cpuset, self.cpuset_cpus.is_some() || self.cpuset_mems.is_some()),
            (Facility::Hugetlb, !self.hugetlb.is_empty()),
        ];
        let named = named.into_iter().filter(|(_, limited)| *limited).map(|(controller, _)| controller);
        let mut controllers: Vec<_> = named.chain(self.files.iter().filter_map(CgroupFile::controller)).collect();
        controllers.sort();
        controllers.dedup();
        controllers
    }
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

kernel_names! {
    /// Something a run may be allowed to go without, by `--allow-degraded NAME`.
    Facility {
        Cpu = 0, "cpu";
        Memory = 1, "memory";
        Pids = 2, "pids";
        Keyring = 3, "keyring";
        NamespaceLimits = 4, "namespace-limits";
        Landlock = 5, "landlock";
        Io = 6, "io";
        Cpuset = 7, "cpuset";
        Hugetlb = 8, "hugetlb";
        Rdma = 9, "rdma";
        Misc = 10, "misc";
        Dmem = 11, "dmem";
    }
}

impl Facility {
    /// Those that are controllers of cgroup v2, by the kernel's names.
    pub const CONTROLLERS: [Self; 9] = [
        Self::Cpu,
        Self::Memory,
        Self::Pids,
        Self::Io,
        Self::Cpuset,
        Self::Hugetlb,
        Self::Rdma,
        Self::Misc,
        Self::Dmem,
    ];
}
