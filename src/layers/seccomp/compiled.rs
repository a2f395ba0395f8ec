//! The programs of the built-in profiles that a start does not have to compile.
//!
//! What a plain run uses was compiled by the build script, also with one group; with several, or with capabilities that matter
//! to Docker's profile, the JSON is read and compiled at start.

use std::borrow::Cow;

use stockade_seccomp::builtin::{Builtin, Group, Guard, refuse};
use stockade_seccomp::{Arch, Context, Error, Flags, Instruction, Program};

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

/// The program of a profile with these groups and guards. With the standing guards, at most one group and no capabilities it
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
