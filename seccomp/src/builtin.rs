//! The built-in profiles, and the groups of calls that can be added to them.
//!
//! Both are read from the JSON files in `profiles/seccomp/`.

use crate::Error;
use crate::model::Profile;
use crate::oci::{Context, read, read_group};
use crate::program::{Program, sha256};

macro_rules! profiles {
    ($(#[$doc:meta])* $name:ident { $($(#[$text:meta])* $variant:ident = $file:literal;)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name { $($(#[$text])* $variant,)+ }
        impl $name {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];
            /// Its name on the command line and in policies.
            pub const fn name(self) -> &'static str { match self { $(Self::$variant => $file,)+ } }
            /// Its JSON.
            pub const fn json(self) -> &'static str {
                match self {
                    $(Self::$variant => include_str!(concat!("../../profiles/seccomp/", $file, ".json")),)+
                }
            }
        }
        impl std::str::FromStr for $name {
            type Err = ();
            fn from_str(text: &str) -> Result<Self, ()> {
                Self::ALL.iter().copied().find(|one| one.name() == text).ok_or(())
            }
        }
    };
}

profiles! {
    /// A built-in profile.
    Builtin {
        /// What runtimes, shells, build and package tools use.
        Default = "default";
        /// Computation on files it is given.
        Strict = "strict";
        /// What Docker's default means.
        Docker = "docker";
    }
}

profiles! {
    /// Calls that can be added to a profile, `--seccomp-allow`.
    Group {
        /// Tracing own processes.
        Debug = "debug";
        /// System V IPC and POSIX message queues.
        Sysv = "sysv";
        /// The kernel's asynchronous input and output.
        Aio = "aio";
        /// Copying between descriptors in the kernel.
        Splice = "splice";
        /// Sandboxes inside the sandbox.
        Nested = "nested";
        /// Files with set-user-id and set-group-id bits.
        SetuidBits = "setuid-bits";
        /// Raw and ICMP sockets.
        Nettools = "nettools";
    }
}

profiles! {
    /// Calls that are refused under every profile, because they bypass another layer.
    Guard {
        /// Executing memory, if the executable paths are listed.
        MemoryPrograms = "memory-programs";
        /// Files with set-id bits, if files outlive the sandbox.
        SetId = "set-id";
        /// TCP that Landlock does not control, if ports are listed.
        Tcp = "tcp";
        /// Sockets other than TCP on the host's network, if ports are listed.
        TcpAlone = "tcp-alone";
        /// A core limit at which a crash starts a program of the host.
        CoreLimit = "core-limit";
        /// Limits and scheduling of our own pid 1.
        Init = "init";
        /// What namespaces would keep apart, where there are none.
        NoNamespaces = "no-namespaces";
        /// Every socket, where there is no network namespace.
        NoNetwork = "no-network";
        /// Attributes of files outside the view, where only Landlock hides them.
        Attributes = "attributes";
    }
}

impl Guard {
    /// The guards of nearly every run. The compiled built-in programs contain them.
    pub const STANDING: &'static [Self] = &[Self::CoreLimit, Self::Init];
}

impl Group {
    /// The risk of adding the group, if it is more than the calls themselves.
    pub const fn warning(self) -> Option<&'static str> {
        match self {
            Self::Nested => Some(
                "user namespaces and mounts open most of the kernel code that the sandbox hides: \
                 a bug there is a way out",
            ),
            Self::Splice => {
                Some("splice is the way to write to read-only files through several kernel bugs of recent years")
            }
            Self::SetuidBits => Some(
                "a file with set-id bits in a writable bind runs with its owner's ids on the host, for every user there",
            ),
            _ => None,
        }
    }
}

impl Builtin {
    /// The rules of the profile, with the groups and, in a run with a network, the network's socket families.
    pub fn profile(self, network: bool, groups: &[Group], context: &Context) -> Result<Profile, Error> {
        let (mut profile, _) = read(self.json().as_bytes(), context)?;
        if network && self.has_network_variant() {
            profile.prefer(read_group(INET.as_bytes(), "inet", context)?);
        }
        allow(&mut profile, groups, context)?;
        Ok(profile)
    }

    /// Whether a run with a network gets other rules.
    pub const fn has_network_variant(self) -> bool {
        matches!(self, Self::Default)
    }
}

/// The socket families of a network.
const INET: &str = include_str!("../../profiles/seccomp/inet.json");

/// SHA-256 of the texts of all profiles, groups and guards. It differs between builds in which a name may mean different rules.
pub fn sha256_of_all() -> String {
    let mut all = vec![("inet", INET)];
    all.extend(Builtin::ALL.iter().map(|one| (one.name(), one.json())));
    all.extend(Group::ALL.iter().map(|one| (one.name(), one.json())));
    all.extend(Guard::ALL.iter().map(|one| (one.name(), one.json())));
    all.sort_unstable();
    sha256(all.iter().flat_map(|(_, text)| [(text.len() as u64).to_be_bytes().to_vec(), text.as_bytes().to_vec()]))
}

/// Adds guards to a profile: it then refuses their calls.
pub fn refuse(profile: &mut Profile, guards: &[Guard], context: &Context) -> Result<(), Error> {
    for guard in guards {
        profile.prefer(read_group(guard.json().as_bytes(), guard.name(), context)?);
    }
    Ok(())
}

/// A program of guards alone, used beside a profile's program or without one.
pub fn guarding(guards: &[Guard], context: &Context) -> Result<Program, Error> {
    let (mut profile, _) = read(br#"{ "defaultAction": "SCMP_ACT_ALLOW" }"#, context)?;
    refuse(&mut profile, guards, context)?;
    Program::compile(&profile)
}

/// Adds groups to any profile.
pub fn allow(profile: &mut Profile, groups: &[Group], context: &Context) -> Result<(), Error> {
    for group in groups {
        profile.prefer(read_group(group.json().as_bytes(), group.name(), context)?);
    }
    Ok(())
}
