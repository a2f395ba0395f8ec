//! The kernel's names and numbers: resources, and what a run may go without.

macro_rules! kernel_names {
    ($(#[$doc:meta])* $name:ident { $($variant:ident = $number:expr, $text:literal;)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, ::serde::Serialize, ::serde::Deserialize)]
        #[cfg_attr(test, derive(schemars::JsonSchema))]
        #[allow(missing_docs)]
        pub enum $name { $(#[serde(rename = $text)] $variant,)+ }
        impl $name {
            /// Every one, in the kernel's order.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];
            /// The kernel's number.
            pub const fn number(self) -> u32 { match self { $(Self::$variant => $number as u32,)+ } }
            /// The name in flags and files.
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
pub(super) use kernel_names;

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
        Udp = 12, "udp";
        HostId = 13, "host-id";
        Idmap = 14, "idmap";
        Proc = 15, "proc";
        OuterProc = 16, "outer-proc";
        Hostname = 17, "hostname";
        Namespaces = 18, "namespaces";
    }
}

impl Facility {
    /// The facilities that are controllers of cgroup v2, by the kernel's names.
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
