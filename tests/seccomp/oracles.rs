//! Independent compilers for our rules.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use crate::compiled::compiled;
use stockade_seccomp::{Action, Format, Instruction, Operator, Profile, Program};

/// The compiled libseccomp program of `libseccomp.c`; or the reason why it does not compile.
pub(crate) fn libseccomp_tool() -> Result<PathBuf, String> {
    compiled("cc", &["-O2", "-lseccomp"], include_str!("libseccomp.c"))
}

/// The rules in the format of `libseccomp.c`. Rules with the default's action are left out, because libseccomp refuses them.
pub(crate) fn libseccomp_rules(profile: &Profile, optimize: u32) -> String {
    let mut text = format!("default {}\noptimize {optimize}\n", libseccomp_action(profile.default));
    for rule in profile.rules().filter(|rule| rule.action != profile.default) {
        for number in &rule.numbers {
            text += &format!("rule {} {number}", libseccomp_action(rule.action));
            for condition in &rule.conditions {
                let (letter, a, b) = match condition.operator {
                    Operator::NotEqual => ('n', condition.value, 0),
                    Operator::Less => ('l', condition.value, 0),
                    Operator::LessOrEqual => ('L', condition.value, 0),
                    Operator::Equal => ('e', condition.value, 0),
                    Operator::GreaterOrEqual => ('G', condition.value, 0),
                    Operator::Greater => ('g', condition.value, 0),
                    Operator::MaskedEqual(mask) => ('&', mask, condition.value),
                };
                text += &format!(" {} {letter} {a} {b}", condition.argument);
            }
            text.push('\n');
        }
    }
    text
}

fn libseccomp_action(action: Action) -> u32 {
    action.encode()
}

/// The program that libseccomp compiles from the rules, or its error.
pub(crate) fn libseccomp(tool: &PathBuf, rules: &str) -> Result<Vec<Instruction>, String> {
    let output = run(Command::new(tool), rules)?;
    Ok(output.stdout.as_chunks::<8>().0.iter().map(|chunk| Instruction::from_bytes(*chunk)).collect())
}

/// The nanoseconds that libseccomp takes for that, for each round.
#[allow(dead_code)]
pub(crate) fn libseccomp_times(tool: &PathBuf, rules: &str, rounds: usize) -> Result<Vec<f64>, String> {
    let mut command = Command::new(tool);
    command.args(["-b", &rounds.to_string()]);
    let output = run(command, rules)?;
    Ok(String::from_utf8_lossy(&output.stderr).lines().filter_map(|line| line.parse().ok()).collect())
}

fn run(mut command: Command, rules: &str) -> Result<Output, String> {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| error.to_string())?;
    let mut stdin = child.stdin.take().ok_or("no stdin")?;
    stdin.write_all(rules.as_bytes()).map_err(|error| error.to_string())?;
    drop(stdin);
    let output = child.wait_with_output().map_err(|error| error.to_string())?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    Ok(output)
}

/// The program that seccompiler compiles from the rules, if it can express them: it has one action for all rules. Our guard
/// against other call tables is put in front.
pub(crate) fn seccompiler(profile: &Profile) -> Option<Vec<Instruction>> {
    let profile = Profile { format: Format::Seccompiler, beyond: profile.default, ..profile.clone() };
    Some(Program::compile(&profile).ok()?.instructions.into_owned())
}
