//! Other people's compilers, given our rules.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use crate::compiled::compiled;
use stockade_seccomp::{Action, Instruction, Operator, Profile, Rule, Width};

/// The libseccomp program of `libseccomp.c`, compiled; or why it cannot be.
pub(crate) fn libseccomp_tool() -> Result<PathBuf, String> {
    compiled("cc", &["-O2", "-lseccomp"], include_str!("libseccomp.c"))
}

/// The rules as `libseccomp.c` reads them. A rule with the default's action says nothing, and libseccomp refuses it.
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

/// What libseccomp makes of the rules, or what it says against them.
pub(crate) fn libseccomp(tool: &PathBuf, rules: &str) -> Result<Vec<Instruction>, String> {
    let output = run(Command::new(tool), rules)?;
    Ok(output.stdout.as_chunks::<8>().0.iter().map(|chunk| Instruction::from_bytes(*chunk)).collect())
}

/// How many nanoseconds libseccomp takes for that, each time.
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

/// What seccompiler makes of the rules, when it can express them: one action for all of them.
pub(crate) fn seccompiler(profile: &Profile) -> Option<Vec<Instruction>> {
    use seccompiler::{BpfProgram, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule};
    let matched = profile.rules().next()?.action;
    if profile.rules().any(|rule| rule.action != matched) || matched == profile.default {
        return None;
    }
    // A rule without arguments beside one with them is dropped there; said once, it is enough.
    let always: Vec<u32> =
        profile.rules().filter(|rule| rule.conditions.is_empty()).flat_map(|rule| rule.numbers.clone()).collect();
    let mut rules = std::collections::BTreeMap::<i64, Vec<SeccompRule>>::new();
    for Rule { numbers, conditions, .. } in profile.rules() {
        for number in numbers {
            let list = rules.entry(i64::from(*number)).or_default();
            if always.contains(number) {
                continue;
            }
            let mut converted = Vec::new();
            for condition in conditions {
                let length = match condition.width {
                    Width::Whole => SeccompCmpArgLen::Qword,
                    Width::Int if condition.value <= u64::from(u32::MAX) => SeccompCmpArgLen::Dword,
                    _ => return None,
                };
                let operator = match condition.operator {
                    Operator::Equal => SeccompCmpOp::Eq,
                    Operator::NotEqual => SeccompCmpOp::Ne,
                    Operator::Less => SeccompCmpOp::Lt,
                    Operator::LessOrEqual => SeccompCmpOp::Le,
                    Operator::Greater => SeccompCmpOp::Gt,
                    Operator::GreaterOrEqual => SeccompCmpOp::Ge,
                    Operator::MaskedEqual(mask) if condition.value & !mask != 0 => return None,
                    Operator::MaskedEqual(mask) => SeccompCmpOp::MaskedEq(mask),
                };
                converted.push(SeccompCondition::new(condition.argument, length, operator, condition.value).ok()?);
            }
            list.push(SeccompRule::new(converted).ok()?);
        }
    }
    let filter =
        SeccompFilter::new(rules, convert(profile.default)?, convert(matched)?, seccompiler::TargetArch::x86_64)
            .ok()?;
    let program: BpfProgram = filter.try_into().ok()?;
    Some(program.iter().map(|one| Instruction { code: one.code, jt: one.jt, jf: one.jf, k: one.k }).collect())
}

fn convert(action: Action) -> Option<seccompiler::SeccompAction> {
    use seccompiler::SeccompAction;
    Some(match action {
        Action::KillProcess => SeccompAction::KillProcess,
        Action::KillThread => SeccompAction::KillThread,
        Action::Trap => SeccompAction::Trap,
        Action::Errno(number) => SeccompAction::Errno(number.into()),
        Action::Notify => return None,
        Action::Trace(message) => SeccompAction::Trace(message.into()),
        Action::Log => SeccompAction::Log,
        Action::Allow => SeccompAction::Allow,
    })
}
