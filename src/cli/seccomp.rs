//! `stockade seccomp check|compile|dump|explain`: inspects a profile before a workload depends on it.

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};

use clap::{Arg, ArgAction, ArgMatches, Command, ValueHint};
use stockade_seccomp::builtin::{Builtin, Group, allow};
use stockade_seccomp::check::{check, check_program};
use stockade_seccomp::disasm::disassemble;
use stockade_seccomp::explain::explain;
use stockade_seccomp::{Arch, Context, Instruction, MAX_BYTES, Profile, Program, Warning, load};

use crate::confine::seccomp::{in_file, running_kernel};
use crate::error::{Error, Result, Step};
use crate::file;
use crate::plan::{Bytes, Capability};
use crate::policy;

/// The grammar of the verb. clap parses it: a run does not use it, so its parsing time does not matter.
pub fn command() -> Command {
    let profile = || {
        let help = "A profile: default, strict, docker, or a file of JSON (with a slash in it or .json)";
        Arg::new("profile").value_name("NAME|FILE").required(true).value_hint(ValueHint::FilePath).help(help)
    };
    let with = |command: Command| {
        command
            .arg(many("allow", "GROUP", "Allow this group of calls too, as --seccomp-allow of run does"))
            .arg(many("cap", "CAP", "Assume that the workload keeps this capability: rules can depend on it"))
            .arg(one("filter", "NAME", "The filter of a seccompiler file that has several"))
            .arg(flag("network", "Assume that the run has a network"))
    };
    Command::new("seccomp")
        .about("Check, compile and explain seccomp profiles")
        .subcommand_required(true)
        .subcommand(with(
            Command::new("check")
                .about("Print the errors and dangerous rules of a profile")
                .arg(profile())
                .arg(flag("strict", "Exit with 1 if there is any warning")),
        ))
        .subcommand(with(
            Command::new("compile")
                .about("Compile a profile to BPF, for --seccomp-bpf")
                .arg(profile())
                .arg(one("output", "FILE", "Write the program to FILE").short('o').required(true)),
        ))
        .subcommand(with(
            Command::new("dump")
                .about("Print the BPF program of a profile, or a compiled program, as text")
                .arg(profile()),
        ))
        .subcommand(with(
            Command::new("explain")
                .about("Print the rule that decides a system call")
                .arg(profile())
                .arg(Arg::new("syscall").value_name("SYSCALL").required(true).help("Its name or number"))
                .arg(
                    Arg::new("args")
                        .value_name("ARG")
                        .num_args(0..=6)
                        .allow_negative_numbers(true)
                        .help("Its arguments as numbers; without arguments, all rules for the call are shown"),
                ),
        ))
}

fn one(long: &'static str, value: &'static str, help: &'static str) -> Arg {
    Arg::new(long).long(long).value_name(value).help(help)
}

fn many(long: &'static str, value: &'static str, help: &'static str) -> Arg {
    one(long, value, help).action(ArgAction::Append)
}

fn flag(long: &'static str, help: &'static str) -> Arg {
    Arg::new(long).long(long).action(ArgAction::SetTrue).help(help)
}

/// Runs `stockade seccomp` with the words that follow it.
pub fn main(words: &[OsString]) -> Result<u8> {
    let name = [OsString::from("stockade seccomp")];
    match command().bin_name("stockade seccomp").try_get_matches_from(name.iter().chain(words)) {
        Ok(matches) => {
            let mut text = Vec::new();
            let code = run(&matches, &mut text)?;
            super::say(&String::from_utf8_lossy(&text))?;
            Ok(code)
        }
        Err(error) if !error.use_stderr() => super::say(&error.to_string()),
        Err(error) => {
            let text = error.to_string();
            let text = text.strip_prefix("error: ").unwrap_or(&text).trim_end();
            let (reason, usage) = text.split_once("\n\nUsage: ").unwrap_or((text, "stockade seccomp --help"));
            let usage = usage.lines().next().unwrap_or_default();
            Err(Error::new(Step::Usage, "", reason.replace('\n', " ")).hint(usage))
        }
    }
}

/// Runs the parsed verb and writes its output.
pub fn run(matches: &ArgMatches, out: &mut dyn Write) -> Result<u8> {
    let Some((verb, matches)) = matches.subcommand() else {
        return Err(Error::new(Step::Usage, "seccomp", "name one of check, compile, dump and explain"));
    };
    let subject = Subject::read(matches)?;
    match verb {
        "check" => subject.check(matches.get_flag("strict"), out),
        "compile" => subject.compile(Path::new(text(matches, "output").unwrap_or_default()), out),
        "dump" => subject.dump(out),
        _ => subject.explain(matches, out),
    }
}

/// The profile or program that the verb inspects.
enum Subject {
    Profile { name: String, profile: Box<Profile>, warnings: Vec<Warning> },
    Program { name: String, program: Program },
}

impl Subject {
    /// Reads the named profile or program.
    fn read(matches: &ArgMatches) -> Result<Self> {
        let groups = values(matches, "allow", |name| name.parse::<Group>().ok(), || names(Group::ALL, Group::name))?;
        let known = || Capability::all().iter().map(ToString::to_string).collect();
        let capabilities = values(matches, "cap", |name| name.parse::<Capability>().ok(), known)?;
        let capabilities: Vec<_> = capabilities.iter().map(ToString::to_string).collect();
        let capabilities: Vec<_> = capabilities.iter().map(String::as_str).collect();
        let context =
            Context { arch: Arch::NATIVE, kernel: running_kernel(), capabilities: &capabilities, strict: false };
        let name = text(matches, "profile").unwrap_or_default().to_owned();
        if let Ok(builtin) = name.parse::<Builtin>() {
            let profile =
                builtin.profile(matches.get_flag("network"), &groups, &context).map_err(in_file(Path::new(&name)))?;
            return Ok(Self::Profile { name, profile: Box::new(profile), warnings: Vec::new() });
        }
        if !name.contains('/') && !name.contains('.') {
            let error =
                Error::new(Step::SeccompProfile, &name, "is not a built-in profile; a file needs a slash in its path");
            let known = || Builtin::ALL.iter().map(|builtin| builtin.name());
            return Err(match policy::nearest(&name, known()) {
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
        let (mut profile, warnings) = load(&bytes, text(matches, "filter"), &context).map_err(in_file(&path))?;
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

    fn explain(self, matches: &ArgMatches, out: &mut dyn Write) -> Result<u8> {
        let Self::Profile { profile, .. } = self else { return Err(no_profile()) };
        let name = text(matches, "syscall").unwrap_or_default();
        let number = name.parse().ok().or_else(|| profile.arch.number(name)).ok_or_else(|| {
            let error = Error::new(Step::Usage, name, "is not a system call of this architecture");
            let known = profile.arch.all().map(|one| one.0);
            match policy::nearest(name, known) {
                Some(near) => error.hint(format!("did you mean {near}?")),
                None => error,
            }
        })?;
        let words = matches.get_many::<String>("args").into_iter().flatten();
        let given: Vec<u64> = words
            .map(|word| {
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

fn text<'m>(matches: &'m ArgMatches, name: &str) -> Option<&'m str> {
    matches.get_one::<String>(name).map(String::as_str)
}

fn names<T: Copy>(all: &[T], name: impl Fn(T) -> &'static str) -> Vec<String> {
    all.iter().map(|one| name(*one).to_owned()).collect()
}

/// Parses the values of an option. The error for an unknown one suggests the nearest known name.
fn values<T>(
    matches: &ArgMatches,
    option: &str,
    parse: impl Fn(&str) -> Option<T>,
    known: impl Fn() -> Vec<String>,
) -> Result<Vec<T>> {
    let words = matches.get_many::<String>(option).into_iter().flatten();
    let wrong = |word: &String| {
        let error = Error::new(Step::Usage, format!("--{option}"), format!("{word:?} is unknown"));
        match policy::nearest(word, known().iter().map(String::as_str)) {
            Some(near) => error.hint(format!("did you mean {near}?")),
            None => error.hint(format!("known: {}", known().join(", "))),
        }
    };
    words.map(|word| parse(word).ok_or_else(|| wrong(word))).collect()
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
