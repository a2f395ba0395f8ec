//! The system calls that the workload may make, `seccomp(2)`.
//!
//! The crate stockade-seccomp turns profiles into programs. The build script has compiled the built-in profiles (`compiled`).
//! The parent prepares a program before the workload exists; the child only installs it (`install`). `listen` receives refused
//! calls for `--explain-denials`, and the calls that `observe` shows it.

mod arguments;
pub mod compiled;
pub mod install;
pub mod listen;
mod memory;
pub mod observe;
mod remedy;

use std::borrow::Cow;
use std::path::Path;

use sha2::{Digest as _, Sha256};
use stockade_seccomp::builtin::{self, Builtin, Group, Guard};
use stockade_seccomp::{Context, Error as ProfileError, MAX_BYTES, Profile, Program, Warning, check, load, oci};

use crate::error::{Error, Result, Step};
use crate::file;
use crate::plan::{Network, hex};

/// The source of a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source<'a> {
    /// A built-in profile.
    Builtin(Builtin),
    /// A file with a profile in JSON, in the format of OCI and Docker or of seccompiler.
    File(&'a Path),
    /// A compiled program, `--seccomp-bpf`.
    Binary(&'a Path),
    /// A profile's JSON itself.
    Text(&'a str),
    /// A compiled program in base64, crun's annotation.
    Encoded(&'a str),
}

impl Source<'_> {
    fn name(self) -> Cow<'static, str> {
        match self {
            Self::Builtin(builtin) => builtin.name().into(),
            Self::File(path) | Self::Binary(path) => path.to_string_lossy().into_owned().into(),
            Self::Text(_) => "linux.seccomp".into(),
            Self::Encoded(_) => "annotation run.oci.seccomp_bpf_data".into(),
        }
    }
}

/// The requested filter of a run.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The profile.
    pub source: Source<'a>,
    /// SHA-256 that the file must have, in hexadecimal.
    pub sha256: &'a str,
    /// The network mode, which determines the socket families of the built-in default.
    pub network: Network,
    /// Groups that are added to the profile.
    pub groups: &'a [Group],
    /// Calls that are refused under every profile, except in a compiled program.
    pub guards: &'a [Guard],
    /// Whether warnings about a profile are errors.
    pub strict: bool,
}

/// The program of a run, and warnings about its profile.
pub fn prepare(request: &Request<'_>, context: &Context<'_>) -> Result<(Program, Vec<Warning>)> {
    match request.source {
        Source::Builtin(builtin) => {
            let program = compiled::program(builtin, request.network, request.groups, request.guards, context);
            program.map(|program| (program, Vec::new())).map_err(|error| named(builtin.name(), error))
        }
        Source::File(_) | Source::Text(_) => {
            let (profile, warnings) = rules(request, context)?;
            let program = Program::compile(&profile).map_err(|error| named(&request.source.name(), error))?;
            Ok((program, warnings))
        }
        Source::Encoded(text) => {
            let program = Program::load_base64(text).map_err(|error| named(&request.source.name(), error))?;
            Ok((program, Vec::new()))
        }
        Source::Binary(path) => {
            let program = Program::load_binary(&read_planned(path, request.sha256)?).map_err(in_file(path))?;
            if !request.groups.is_empty() {
                let reason = "is already compiled, so no group can be added";
                return Err(Error::new(Step::SeccompProfile, path.to_string_lossy(), reason));
            }
            let warnings = check::check_program(&program.instructions);
            match warnings.first().filter(|_| request.strict) {
                Some(warning) => Err(Error::new(Step::SeccompProfile, path.to_string_lossy(), &warning.text)),
                None => Ok((program, warnings)),
            }
        }
    }
}

/// The complete rules of a run. A compiled program has no readable rules.
fn rules(request: &Request<'_>, context: &Context<'_>) -> Result<(Profile, Vec<Warning>)> {
    let wrong = |error| named(&request.source.name(), error);
    let (mut profile, warnings) = match request.source {
        Source::Builtin(builtin) => {
            (builtin.profile(request.network != Network::None, request.groups, context).map_err(wrong)?, Vec::new())
        }
        // Not readable, and never explained.
        Source::Encoded(_) => return Err(wrong(ProfileError::Size("is already compiled".to_owned()))),
        Source::Text(text) => oci::read(text.as_bytes(), context).map_err(|error| wrong(error.into()))?,
        Source::File(path) | Source::Binary(path) => {
            let (mut profile, warnings) = load(&read_planned(path, request.sha256)?, None, context).map_err(wrong)?;
            builtin::allow(&mut profile, request.groups, context).map_err(wrong)?;
            (profile, warnings)
        }
    };
    builtin::refuse(&mut profile, request.guards, context).map_err(wrong)?;
    Ok((profile, warnings))
}

/// Reads a file that must not have changed since the plan was made: the report identifies the policy by its hash.
fn read_planned(path: &Path, sha256: &str) -> Result<Vec<u8>> {
    let bytes = file::read(Step::SeccompProfile, path, MAX_BYTES)?;
    if hex(&Sha256::digest(&bytes)) == sha256 {
        return Ok(bytes);
    }
    Err(Error::new(Step::SeccompProfile, path.to_string_lossy(), "has changed since the plan was made"))
}

/// Converts an error in a profile's file.
pub fn in_file(path: &Path) -> impl Fn(ProfileError) -> Error + '_ {
    move |error| named(&path.to_string_lossy(), error)
}

fn named(profile: &str, error: ProfileError) -> Error {
    let (place, reason) = error.place_and_reason();
    let place = if place.is_empty() { place } else { format!(": {place}") };
    Error::new(Step::SeccompProfile, format!("{profile}{place}"), reason)
}

/// The running kernel's version, for `minKernel`. 0.0 if it cannot be read, which disables rules with a minimum.
pub fn running_kernel() -> (u32, u32) {
    let release = crate::sys::file::read_text("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map_while(|part| part.parse().ok());
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}
