//! Which system calls the workload may make, `seccomp(2)`.
//!
//! ```text
//! profile (a name, or a file of JSON)          compiler/oci.rs, compiler/seccompiler.rs, builtin.rs
//!    → Profile: rules by number                 compiler/model.rs, which is also what they mean
//!    → Program: classic BPF                     compiler/compile.rs; or a file of BPF: program.rs
//! ```
//!
//! The parent does all of this before the workload exists; the child only hands the instructions to the kernel. The
//! modules below `compiler` know nothing of the rest of the crate, because the build script compiles the built-in profiles
//! with them. `interpret` and `compare` hold a program against its profile; `check`, `explain` and `disasm` are for people.
//!
//! Whatever a profile says, calls of another architecture and of the x32 table kill the process. In particular `int 0x80`
//! and 32-bit programs do not work under a profile that lists `SCMP_ARCH_X86`: its rules are numbers of another table, and
//! multiplexers such as `socketcall(2)` cannot be filtered there at all.

mod arguments;
pub mod builtin;
pub mod check;
pub mod compare;
pub mod compiler;
pub mod disasm;
pub mod explain;
pub mod interpret;
pub mod program;

pub mod install;
pub mod listen;

use std::borrow::Cow;
use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use sha2::{Digest as _, Sha256};

use crate::error::{Error, Result, Step};
use crate::plan::{Network, hex};
use builtin::{Builtin, Group, Guard};
use compiler::json::{MAX_BYTES, ProfileError, parse};
use compiler::model::Profile;
use compiler::oci::{Context, Warning};
use program::Program;

/// Where a filter comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source<'a> {
    /// A profile that comes with stockade.
    Builtin(Builtin),
    /// A profile's JSON, in the format of OCI and Docker or of seccompiler.
    File(&'a Path),
    /// A compiled program, `--seccomp-bpf`.
    Binary(&'a Path),
    /// A profile's JSON itself.
    Text(&'a str),
}

impl Source<'_> {
    fn name(self) -> Cow<'static, str> {
        match self {
            Self::Builtin(builtin) => builtin.name().into(),
            Self::File(path) | Self::Binary(path) => path.to_string_lossy().into_owned().into(),
            Self::Text(_) => "linux.seccomp".into(),
        }
    }
}

/// What a run wants filtered.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The profile.
    pub source: Source<'a>,
    /// SHA-256 that its file must have, in hexadecimal.
    pub sha256: &'a str,
    /// Decides which socket families the built-in default has.
    pub network: Network,
    /// Added to the profile.
    pub groups: &'a [Group],
    /// Refused whatever the profile says; not in a program that came compiled.
    pub guards: &'a [Guard],
    /// Refuse profiles with anything to warn about.
    pub strict: bool,
}

/// The program for a run, and what there is to warn about.
pub fn prepare(request: &Request<'_>, context: &Context<'_>) -> Result<(Program, Vec<Warning>)> {
    match request.source {
        Source::Builtin(builtin) => {
            let program = builtin.program(request.network, request.groups, request.guards, context);
            program.map(|program| (program, Vec::new())).map_err(|error| named(builtin.name(), error))
        }
        Source::File(_) | Source::Text(_) => {
            let (profile, warnings) = rules(request, context)?;
            let program = Program::compile(&profile).map_err(|error| named(&request.source.name(), error))?;
            Ok((program, warnings))
        }
        Source::Binary(path) => {
            let program = Program::load_binary(&read_planned(path, request.sha256)?).map_err(in_file(path))?;
            if !request.groups.is_empty() {
                let reason = "is compiled already: no group can be added to it";
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

/// The rules of a run, complete. A program that came compiled has none that could be read.
fn rules(request: &Request<'_>, context: &Context<'_>) -> Result<(Profile, Vec<Warning>)> {
    let wrong = |error| named(&request.source.name(), error);
    let (mut profile, warnings) = match request.source {
        Source::Builtin(builtin) => {
            (builtin.profile(request.network, request.groups, context).map_err(wrong)?, Vec::new())
        }
        Source::Text(text) => compiler::oci::read(text.as_bytes(), context).map_err(wrong)?,
        Source::File(path) | Source::Binary(path) => {
            let (mut profile, warnings) = load(&read_planned(path, request.sha256)?, None, context).map_err(wrong)?;
            builtin::allow(&mut profile, request.groups, context).map_err(wrong)?;
            (profile, warnings)
        }
    };
    builtin::refuse(&mut profile, request.guards, context).map_err(wrong)?;
    Ok((profile, warnings))
}

/// Reads a profile in either format. `filter` names one of several in a file of seccompiler's.
pub fn load(
    bytes: &[u8],
    filter: Option<&str>,
    context: &Context,
) -> std::result::Result<(Profile, Vec<Warning>), ProfileError> {
    let json = parse(bytes)?;
    if compiler::seccompiler::is_it(&json) {
        return Ok((compiler::seccompiler::read_tree(&json, filter, context)?, Vec::new()));
    }
    match filter {
        Some(name) => Err(ProfileError::whole(format!("is an OCI profile; it has no filter {name:?}"))),
        None => compiler::oci::read_tree(&json, context),
    }
}

/// The bytes of a file that must still be what it was when the plan was made: the report names the policy by a hash of it.
fn read_planned(path: &Path, sha256: &str) -> Result<Vec<u8>> {
    let bytes = read_file(path, MAX_BYTES)?;
    if hex(&Sha256::digest(&bytes)) == sha256 {
        return Ok(bytes);
    }
    Err(Error::new(Step::SeccompProfile, path.to_string_lossy(), "is not what it was when the plan was made"))
}

/// A regular file's bytes, at most so many: a profile is no pipe that never ends.
pub fn read_file(path: &Path, most: usize) -> Result<Vec<u8>> {
    let wrong = |error: std::io::Error| Error::io(Step::SeccompProfile, path.to_string_lossy(), &error);
    let refuse = |reason: String| Err(Error::new(Step::SeccompProfile, path.to_string_lossy(), reason));
    // Not to wait for the writer of a FIFO.
    let file = std::fs::OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path).map_err(wrong)?;
    if !file.metadata().map_err(wrong)?.is_file() {
        return refuse("is no regular file".to_owned());
    }
    let mut bytes = Vec::new();
    file.take(most as u64 + 1).read_to_end(&mut bytes).map_err(wrong)?;
    if bytes.len() > most { refuse(format!("has more than {most} bytes")) } else { Ok(bytes) }
}

/// An error in a file as the crate's own.
pub fn in_file(path: &Path) -> impl Fn(ProfileError) -> Error + '_ {
    move |error| named(&path.to_string_lossy(), error)
}

fn named(profile: &str, error: ProfileError) -> Error {
    let message = error.message();
    let place = if error.path.is_empty() { String::new() } else { format!(": {}", error.path) };
    Error::new(Step::SeccompProfile, format!("{profile}{place}"), message)
}

/// The version of the running kernel, for `minKernel`; 0.0 when it cannot be read, which leaves those rules out.
pub fn running_kernel() -> (u32, u32) {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map_while(|part| part.parse().ok());
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}
