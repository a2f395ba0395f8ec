//! `stockade seccomp check|compile|dump|explain`: inspects a profile before a workload depends on it.

use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};

use stockade_seccomp::builtin::{Builtin, Group, allow};
use stockade_seccomp::check::{check, check_program};
use stockade_seccomp::disasm::disassemble;
use stockade_seccomp::explain::explain;
use stockade_seccomp::{Arch, Context, Instruction, MAX_BYTES, Profile, Program, Warning, load};

use crate::args::Args;
use crate::confine::seccomp::{in_file, running_kernel};
use crate::error::{Error, Result, Step, nearest};
use crate::file;
use crate::plan::{Bytes, Capability};

/// Runs the tool that the words name, and prints its output.
pub fn main(args: &Args) -> Result<u8> {
    let mut text = Vec::new();
    let code = run(args, &mut text)?;
    super::say(&String::from_utf8_lossy(&text))?;
    Ok(code)
}

fn run(args: &Args, out: &mut dyn Write) -> Result<u8> {
    let output = args.value("output").map(Path::new);
    if args.verb().name == "compile" && output.is_none() {
        let error = Error::new(Step::Usage, "--output <FILE>", "is missing");
        return Err(error.hint("see `stockade seccomp compile --help`"));
    }
    let subject = Subject::read(args)?;
    match (args.verb().name, output) {
        ("check", _) => subject.check(args.is_on("strict"), out),
        ("compile", Some(output)) => subject.compile(output, out),
        ("dump", _) => subject.dump(out),
        _ => subject.explain(args, out),
    }
}

/// The profile or program that the verb inspects.
enum Subject {
    Profile { name: String, profile: Box<Profile>, warnings: Vec<Warning> },
    Program { name: String, program: Program },
}

impl Subject {
    /// Reads the named profile or program.
    fn read(args: &Args) -> Result<Self> {
        let groups = values(args, "allow", |name| name.parse::<Group>().ok(), || names(Group::ALL, Group::name))?;
        let known = || Capability::all().iter().map(ToString::to_string).collect();
        let capabilities = values(args, "cap", |name| name.parse::<Capability>().ok(), known)?;
        let capabilities: Vec<_> = capabilities.iter().map(ToString::to_string).collect();
        let capabilities: Vec<_> = capabilities.iter().map(String::as_str).collect();
        let context =
            Context { arch: Arch::NATIVE, kernel: running_kernel(), capabilities: &capabilities, strict: false };
        let name = word(&args.words[0])?.to_owned();
        if let Ok(builtin) = name.parse::<Builtin>() {
            let profile =
                builtin.profile(!args.is_on("no-network"), &groups, &context).map_err(in_file(Path::new(&name)))?;
            return Ok(Self::Profile { name, profile: Box::new(profile), warnings: Vec::new() });
        }
        if !name.contains('/') && !name.contains('.') {
            let error =
                Error::new(Step::SeccompProfile, &name, "is not a built-in profile; a file needs a slash in its path");
            let known = || Builtin::ALL.iter().map(|builtin| builtin.name());
            return Err(match nearest(&name, known()) {
                Some(near) => error.hint(format!("did you mean {near}?")),
                None => error.hint(format!("known: {}", known().collect::<Vec<_>>().join(", "))),
            });
        }
        let path = PathBuf::from(&name);
        let bytes = file::read(Step::SeccompProfile, &path, MAX_BYTES)?;
        if !bytes.trim_ascii_start().starts_with(b"{") && bytes.len().is_multiple_of(8) && !bytes.is_empty() {
            let program = Program::load_binary(&bytes).map_err(in_file(&path))?;
            return Ok(Self::Program { name, program });
        }
        let (mut profile, warnings) = load(&bytes, args.text("filter")?, &context).map_err(in_file(&path))?;
        allow(&mut profile, &groups, &context).map_err(in_file(&path))?;
        Ok(Self::Profile { name, profile: Box::new(profile), warnings })
    }

    fn check(self, strict: bool, out: &mut dyn Write) -> Result<u8> {
        let (name, what, warnings, program) = match self {
            Self::Profile { name, profile, mut warnings } => {
                warnings.extend(check(&profile));
                // Compiled as well, because a program that is too long is an error.
                let program = Program::compile(&profile).map_err(in_file(Path::new(&name)))?;
                (name, format!("{} rules, ", profile.rules().count()), warnings, program)
            }
            Self::Program { name, program } => (name, String::new(), check_program(&program.instructions), program),
        };
        for warning in &warnings {
            line(out, &format!("{name}: {warning}"))?;
        }
        let found = match warnings.len() {
            0 => "no warnings".to_owned(),
            count => format!("{count} warning{}", if count == 1 { "" } else { "s" }),
        };
        line(out, &format!("{name}: {what}{} instructions; {found}", program.instructions.len()))?;
        Ok(u8::from(strict && !warnings.is_empty()))
    }

    fn compile(self, output: &Path, out: &mut dyn Write) -> Result<u8> {
        let Self::Profile { name, profile, warnings } = self else { return Err(no_profile()) };
        let program = Program::compile(&profile).map_err(in_file(Path::new(&name)))?;
        if program.notifies || program.flags.bits() != 0 {
            let reason = "has flags or a listener, which a compiled program cannot carry";
            return Err(Error::new(Step::SeccompProfile, name, reason));
        }
        std::fs::write(output, program.to_binary())
            .map_err(|error| Error::io(Step::Output, output.to_string_lossy(), &error))?;
        for warning in &warnings {
            line(out, &format!("{name}: {warning}"))?;
        }
        let (count, output) = (program.instructions.len(), Bytes::from(output));
        line(out, &format!("{output}: {count} instructions, sha256 {}", program.sha256))?;
        Ok(0)
    }

    fn dump(self, out: &mut dyn Write) -> Result<u8> {
        let program: Vec<Instruction> = match self {
            Self::Program { program, .. } => program.instructions.into_owned(),
            Self::Profile { name, profile, .. } => {
                Program::compile(&profile).map_err(in_file(Path::new(&name)))?.instructions.into_owned()
            }
        };
        line(out, disassemble(&program, Arch::NATIVE).trim_end())?;
        Ok(0)
    }

    fn explain(self, args: &Args, out: &mut dyn Write) -> Result<u8> {
        let Self::Profile { profile, .. } = self else { return Err(no_profile()) };
        let name = word(&args.words[1])?;
        let number = name.parse().ok().or_else(|| profile.arch.number(name)).ok_or_else(|| {
            let error = Error::new(Step::Usage, name, "is not a system call of this architecture");
            let known = profile.arch.all().map(|one| one.0);
            match nearest(name, known) {
                Some(near) => error.hint(format!("did you mean {near}?")),
                None => error,
            }
        })?;
        let given: Vec<u64> = args.words[2..]
            .iter()
            .map(|given| {
                let word = word(given)?;
                number_of(word).ok_or_else(|| Error::new(Step::Usage, word, "is not a number such as 16, 0x10 or -1"))
            })
            .collect::<Result<_>>()?;
        let mut args = [0; 6];
        args[..given.len()].copy_from_slice(&given);
        line(out, explain(&profile, number, (!given.is_empty()).then_some(args)).trim_end())?;
        Ok(0)
    }
}

fn no_profile() -> Error {
    Error::new(Step::Usage, "", "a compiled program does not contain its rules")
        .hint("name the JSON profile, or use `stockade seccomp dump`")
}

fn word(word: &OsStr) -> Result<&str> {
    word.to_str().ok_or_else(|| Error::new(Step::Usage, Bytes::from(word).to_string(), "is not UTF-8"))
}

fn names<T: Copy>(all: &[T], name: impl Fn(T) -> &'static str) -> Vec<String> {
    all.iter().map(|one| name(*one).to_owned()).collect()
}

/// Parses the values of an option. The error for an unknown one suggests the nearest known name.
fn values<T>(
    args: &Args,
    option: &str,
    parse: impl Fn(&str) -> Option<T>,
    known: impl Fn() -> Vec<String>,
) -> Result<Vec<T>> {
    let wrong = |word: &str| {
        let error = Error::new(Step::Usage, format!("--{option}"), format!("{word:?} is unknown"));
        match nearest(word, known().iter().map(String::as_str)) {
            Some(near) => error.hint(format!("did you mean {near}?")),
            None => error.hint(format!("known: {}", known().join(", "))),
        }
    };
    args.all(option).map(word).map(|word| word.and_then(|word| parse(word).ok_or_else(|| wrong(word)))).collect()
}

/// Parses a register value: decimal, hexadecimal, octal, or negative.
fn number_of(word: &str) -> Option<u64> {
    if let Some(rest) = word.strip_prefix('-') {
        return Some(number_of(rest)?.wrapping_neg()).filter(|_| !rest.starts_with('-'));
    }
    let (digits, radix) = match word.as_bytes() {
        [b'0', b'x' | b'X', ..] => (&word[2..], 16),
        [b'0', b'o' | b'O', ..] => (&word[2..], 8),
        [b'0', _, ..] => (&word[1..], 8),
        _ => (word, 10),
    };
    u64::from_str_radix(digits, radix).ok().filter(|_| !digits.starts_with('+'))
}

fn line(out: &mut dyn Write, text: &str) -> Result<()> {
    let wrong = |error: std::io::Error| Error::new(Step::Output, "", error.to_string());
    writeln!(out, "{}", crate::error::printable(text)).map_err(wrong)
}
