//! Programs of the built-in profiles that need no compilation at start.
//!
//! The build script compiled the programs of a plain run, with no group or with one. With several groups, or with capabilities
//! that matter to Docker's profile, the JSON is parsed and compiled at start.

use std::borrow::Cow;

use stockade_seccomp::builtin::{Builtin, Group, Guard, refuse};
use stockade_seccomp::{Arch, Context, Error, Flags, Instruction, Program};

use crate::plan::Network;

/// A program from the build script.
struct Compiled {
    name: &'static str,
    network: bool,
    /// The group in the program; empty for none.
    group: &'static str,
    instructions: &'static [Instruction],
    sha256: &'static str,
}

static COMPILED: &[Compiled] = &include!(concat!(env!("OUT_DIR"), "/seccomp.rs"));

/// SHA-256 of the texts of all profiles and groups. It differs between builds in which a name may mean different rules.
pub const SHA256: &str = include_str!(concat!(env!("OUT_DIR"), "/seccomp.sha256"));

/// The program of a profile with these groups and guards. With the standing guards, at most one group and no capabilities, it
/// was compiled by the build script and costs nothing.
pub fn program(
    builtin: Builtin,
    network: Network,
    groups: &[Group],
    guards: &[Guard],
    context: &Context,
) -> Result<Program, Error> {
    let network = network != Network::None;
    let group = match groups {
        [] => Some(""),
        [one] => Some(one.name()),
        _ => None,
    };
    let wanted = |compiled: &&Compiled| {
        compiled.name == builtin.name()
            && compiled.network == (network && builtin.has_network_variant())
            && group.is_some_and(|group| group == compiled.group)
    };
    let capabilities_matter = matches!(builtin, Builtin::Docker) && !context.capabilities.is_empty();
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
            let mut profile = builtin.profile(network, groups, context)?;
            refuse(&mut profile, guards, context)?;
            Program::compile(&profile)
        }
    }
}
