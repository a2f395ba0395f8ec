//! The profiles that come with stockade, and the groups of calls that can be added to them.
//!
//! The JSON of `profiles/seccomp/` is the source of both. What a plain run uses was compiled by the build script, also with
//! one group; with several, or with capabilities that matter to Docker's profile, the JSON is read and compiled at start.

use std::borrow::Cow;

use super::compiler::bpf::Instruction;
use super::compiler::json::ProfileError;
use super::compiler::model::{Flags, Profile};
use super::compiler::names::Arch;
use super::compiler::oci::{Context, read, read_group};
use super::program::Program;
use crate::plan::Network;

/// A program that the build script compiled.
struct Compiled {
    name: &'static str,
    network: bool,
    /// The one group that is in it; empty for none.
    group: &'static str,
    instructions: &'static [Instruction],
    sha256: &'static str,
}

static COMPILED: &[Compiled] = &include!(concat!(env!("OUT_DIR"), "/seccomp.rs"));

/// SHA-256 of the texts of all profiles and groups: two builds in which a name may mean different things differ in it.
pub const SHA256: &str = include_str!(concat!(env!("OUT_DIR"), "/seccomp.sha256"));

macro_rules! profiles {
    ($(#[$doc:meta])* $name:ident { $($(#[$text:meta])* $variant:ident = $file:literal;)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name { $($(#[$text])* $variant,)+ }
        impl $name {
            /// Every one.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];
            /// Its name on the command line and in policies.
            pub const fn name(self) -> &'static str { match self { $(Self::$variant => $file,)+ } }
            /// Its JSON.
            pub const fn json(self) -> &'static str {
                match self {
                    $(Self::$variant => include_str!(concat!("../../../profiles/seccomp/", $file, ".json")),)+
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
    /// Calls that are refused whatever a profile says, because they lead past another layer.
    Guard {
        /// Programs in memory, where what may be executed is listed.
        MemoryPrograms = "memory-programs";
        /// Files with set-id bits, where files outlive the sandbox.
        SetId = "set-id";
        /// TCP that Landlock does not see, where ports are listed.
        Tcp = "tcp";
        /// A core limit at which a crash starts a helper of the host's.
        CoreLimit = "core-limit";
        /// Limits and scheduling of our own pid 1.
        Init = "init";
    }
}

impl Guard {
    /// The guards of nearly every run. The compiled programs of the built-in profiles contain them.
    pub const STANDING: &'static [Self] = &[Self::CoreLimit, Self::Init];
}

impl Group {
    /// What is given up by adding it, where that is more than the calls themselves.
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
                "files with set-id bits in a writable bind are programs of their owner's on the host, for everybody there",
            ),
            _ => None,
        }
    }
}

impl Builtin {
    /// The profile's rules, with the socket families of a network and the groups added.
    pub fn profile(self, network: Network, groups: &[Group], context: &Context) -> Result<Profile, ProfileError> {
        let (mut profile, _) = read(self.json().as_bytes(), context)?;
        if self.has_network(network) {
            let inet = include_bytes!("../../../profiles/seccomp/inet.json");
            profile.prefer(read_group(inet, "inet", context)?);
        }
        allow(&mut profile, groups, context)?;
        Ok(profile)
    }

    /// The program of the profile and these guards. With the standing guards, at most one group and no capabilities it was
    /// compiled by the build script and costs nothing.
    pub fn program(
        self,
        network: Network,
        groups: &[Group],
        guards: &[Guard],
        context: &Context,
    ) -> Result<Program, ProfileError> {
        let group = match groups {
            [] => Some(""),
            [one] => Some(one.name()),
            _ => None,
        };
        let wanted = |compiled: &&Compiled| {
            compiled.name == self.name()
                && compiled.network == self.has_network(network)
                && group.is_some_and(|group| group == compiled.group)
        };
        let capabilities_matter = matches!(self, Self::Docker) && !context.capabilities.is_empty();
        let is_compiled = !capabilities_matter && context.arch == Arch::NATIVE && guards == Guard::STANDING;
        match COMPILED.iter().find(wanted).filter(|_| is_compiled) {
            Some(compiled) => Ok(Program {
                instructions: Cow::Borrowed(compiled.instructions),
                flags: Flags::default(),
                notifies: false,
                listener: None,
                sha256: Cow::Borrowed(compiled.sha256),
            }),
            None => {
                let mut profile = self.profile(network, groups, context)?;
                refuse(&mut profile, guards, context)?;
                Program::compile(&profile)
            }
        }
    }

    /// Whether it has a variant for runs with a network and this is one.
    fn has_network(self, network: Network) -> bool {
        matches!(self, Self::Default) && network != Network::None
    }
}

/// Refuses what guards refuse, whatever a profile says.
pub fn refuse(profile: &mut Profile, guards: &[Guard], context: &Context) -> Result<(), ProfileError> {
    for guard in guards {
        profile.prefer(read_group(guard.json().as_bytes(), guard.name(), context)?);
    }
    Ok(())
}

/// A program of guards alone, to stand beside that of a profile or of none.
pub fn guarding(guards: &[Guard], context: &Context) -> Result<Program, ProfileError> {
    let (mut profile, _) = read(br#"{ "defaultAction": "SCMP_ACT_ALLOW" }"#, context)?;
    refuse(&mut profile, guards, context)?;
    Program::compile(&profile)
}

/// Adds groups to any profile.
pub fn allow(profile: &mut Profile, groups: &[Group], context: &Context) -> Result<(), ProfileError> {
    for group in groups {
        profile.prefer(read_group(group.json().as_bytes(), group.name(), context)?);
    }
    Ok(())
}
