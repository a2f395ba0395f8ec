//! Compiles rules with the seccompiler crate.

use std::collections::BTreeMap;

use ::seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule, TargetArch,
};

use crate::action::Action;
use crate::bpf::{Instruction, MAX_INSTRUCTIONS, RETURN};
use crate::error::Error;
use crate::model::{Condition, Operator, Stage};
use crate::names::{Arch, Width};
use crate::ranges;

/// The seccompiler crate's program for the rules, which have one action. It checks the architecture, but not for the x32 table.
pub fn compile(stage: &Stage, default: Action, arch: Arch) -> Result<Vec<Instruction>, Error> {
    let matched = stage.rules.first().map(|rule| rule.action);
    if stage.rules.iter().any(|rule| Some(rule.action) != matched) {
        return Err(Error::SeveralActions);
    }
    // A number with an empty list of rules matches with all arguments.
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    let mut always = Vec::new();
    for rule in &stage.rules {
        let alternatives = alternatives(&rule.conditions)?;
        for number in rule.numbers.iter().map(|number| i64::from(*number)) {
            match alternatives.as_slice() {
                [] => {} // no call can match
                [all] if all.is_empty() => always.push(number),
                some => {
                    let list = rules.entry(number).or_default();
                    for conditions in some {
                        list.push(SeccompRule::new(conditions.clone())?);
                    }
                }
            }
        }
    }
    rules.extend(always.into_iter().map(|number| (number, Vec::new())));
    let Some(matched) = matched.filter(|_| !rules.is_empty()) else {
        return Ok(vec![Instruction { code: RETURN, jt: 0, jf: 0, k: default.encode() }]);
    };
    let target = match arch {
        Arch::X86_64 => TargetArch::x86_64,
        Arch::Aarch64 => TargetArch::aarch64,
    };
    let filter = SeccompFilter::new(rules, action(default), action(matched), target)?;
    let program: BpfProgram = filter.try_into()?;
    Ok(program.iter().map(|one| Instruction { code: one.code, jt: one.jt, jf: one.jf, k: one.k }).collect())
}

/// Conditions in the crate's form: alternative lists of conditions. No list if nothing satisfies the conditions, one empty list
/// if everything does.
fn alternatives(conditions: &[Condition]) -> Result<Vec<Vec<SeccompCondition>>, Error> {
    let (modes, others) = conditions.iter().copied().partition::<Vec<Condition>, _>(|one| one.width == Width::Mode);
    let mut all = Vec::new();
    for condition in &others {
        let possible = match condition.operator {
            Operator::MaskedEqual(mask) => mask & condition.width.mask(),
            _ => condition.width.mask(),
        };
        // A value that the argument cannot have decides the comparison, whatever the argument is.
        if condition.datum() & !possible == 0 {
            all.push(translate(condition)?);
        } else if !condition.holds(&[0; 6]) {
            return Ok(Vec::new());
        }
    }
    // The crate compares 32 or 64 bits. The 16 bits of a mode are compared under masks; a range becomes blocks of a power of
    // two.
    let Some(tests) = ranges::of(&modes) else { return Ok(Vec::new()) };
    let mut alternatives = vec![all];
    for test in &tests {
        let (argument, blocks) = test.blocks();
        // Each condition needs at least one instruction. A hostile file must not use more memory than a program of maximal
        // length.
        let length = alternatives.len() * blocks.len() * (alternatives[0].len() + 1);
        if length > MAX_INSTRUCTIONS {
            return Err(Error::TooLong { length, most: Vec::new() });
        }
        let mut longer = Vec::new();
        for (before, (mask, value)) in
            alternatives.iter().flat_map(|list| blocks.iter().map(move |block| (list, *block)))
        {
            let operator = SeccompCmpOp::MaskedEq(mask);
            let block = SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value)?;
            longer.push(before.iter().cloned().chain([block]).collect());
        }
        alternatives = longer;
    }
    Ok(alternatives)
}

fn translate(condition: &Condition) -> Result<SeccompCondition, Error> {
    let length = if condition.width == Width::Whole { SeccompCmpArgLen::Qword } else { SeccompCmpArgLen::Dword };
    let operator = match condition.operator {
        Operator::Equal => SeccompCmpOp::Eq,
        Operator::NotEqual => SeccompCmpOp::Ne,
        Operator::Less => SeccompCmpOp::Lt,
        Operator::LessOrEqual => SeccompCmpOp::Le,
        Operator::Greater => SeccompCmpOp::Gt,
        Operator::GreaterOrEqual => SeccompCmpOp::Ge,
        Operator::MaskedEqual(mask) => SeccompCmpOp::MaskedEq(mask),
    };
    Ok(SeccompCondition::new(condition.argument, length, operator, condition.datum())?)
}

/// The format does not contain `USER_NOTIF`, so no rule has it.
fn action(action: Action) -> SeccompAction {
    match action {
        Action::KillProcess | Action::Notify => SeccompAction::KillProcess,
        Action::KillThread => SeccompAction::KillThread,
        Action::Trap => SeccompAction::Trap,
        Action::Errno(number) => SeccompAction::Errno(number.into()),
        Action::Trace(message) => SeccompAction::Trace(message.into()),
        Action::Log => SeccompAction::Log,
        Action::Allow => SeccompAction::Allow,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builtin::{Group, Guard, allow, refuse};
    use crate::compare::difference;
    use crate::interpret::run;
    use crate::{Call, Context, Profile, Program, X32_BIT, load};

    const CONTEXT: Context = Context { arch: Arch::X86_64, kernel: (6, 1), capabilities: &[], strict: false };

    /// A file with one filter.
    fn file(mismatch: &str, matched: &str, rules: &str) -> Profile {
        let text =
            format!(r#"{{"f": {{"mismatch_action": {mismatch}, "match_action": {matched}, "filter": [{rules}]}}}}"#);
        load(text.as_bytes(), None, &CONTEXT).unwrap_or_else(|error| panic!("{text}: {error}")).0
    }

    fn rule(call: &str, args: &str) -> String {
        format!(r#"{{"syscall": "{call}", "args": [{args}]}}"#)
    }

    fn arg(index: u8, kind: &str, op: &str, value: u64) -> String {
        format!(r#"{{"index": {index}, "type": "{kind}", "op": {op}, "val": {value}}}"#)
    }

    /// The program. Checks that it implements the rules.
    fn compiled(profile: &Profile) -> Program {
        let program = Program::compile(profile).unwrap_or_else(|error| panic!("{profile:#?}: {error}"));
        assert_eq!(crate::validate(&program.instructions), Ok(()));
        assert_eq!(difference(profile, &program.instructions), None, "{profile:#?}");
        program
    }

    fn decided(program: &Program, name: &str, args: [u64; 3]) -> Action {
        let number = Arch::X86_64.number(name).unwrap();
        let [a, b, c] = args;
        run(&program.instructions, &Call { arch: Arch::X86_64.audit(), number, args: [a, b, c, 0, 0, 0] }).0
    }

    #[test]
    fn the_crate_compiles_these_files() {
        let profile = file("\"trap\"", "\"allow\"", r#"{"syscall": "read"}, {"syscall": "write"}"#);
        let program = compiled(&profile);
        let theirs = compile(&profile.stages[0], profile.default, profile.arch).unwrap();
        assert!(program.instructions.ends_with(&theirs), "its program is the end of ours");
        // The crate compares the numbers one after the other; our own compiler would use a tree.
        assert!(theirs.windows(2).any(|two| two[0].k == 0 && two[0].code == 0x15), "{theirs:?}");
    }

    #[test]
    fn calls_of_another_table_die_whatever_a_file_says() {
        for rules in ["", r#"{"syscall": "mkdir"}"#] {
            let program = compiled(&file("\"allow\"", "\"trap\"", rules));
            let native = Call { arch: Arch::X86_64.audit(), number: 39, args: [0; 6] };
            assert_eq!(run(&program.instructions, &native).0, Action::Allow);
            for call in [
                Call { number: 39 | X32_BIT, ..native },
                Call { number: 512 | X32_BIT, ..native },
                Call { arch: 0x4000_0003, ..native },
            ] {
                assert_eq!(run(&program.instructions, &call).0, Action::KillProcess, "{rules}: {call:?}");
            }
        }
    }

    #[test]
    fn groups_and_guards_stand_above_the_crates_program() {
        for (mismatch, matched) in [("\"allow\"", "{\"errno\": 1}"), ("{\"errno\": 1}", "\"allow\"")] {
            let calls =
                ["ptrace", "msgget", "io_setup", "splice", "unshare", "chmod", "socket", "prlimit64", "memfd_create"];
            let rules: Vec<String> = calls.iter().map(|call| format!(r#"{{"syscall": "{call}"}}"#)).collect();
            let plain = file(mismatch, matched, &rules.join(","));
            for group in Group::ALL {
                let mut profile = plain.clone();
                allow(&mut profile, &[*group], &CONTEXT).unwrap();
                compiled(&profile);
            }
            for guard in Guard::ALL {
                let mut profile = plain.clone();
                refuse(&mut profile, &[*guard], &CONTEXT).unwrap();
                compiled(&profile);
            }
            let mut profile = plain;
            allow(&mut profile, Group::ALL, &CONTEXT).unwrap();
            refuse(&mut profile, Guard::ALL, &CONTEXT).unwrap();
            let program = compiled(&profile);
            assert_eq!(decided(&program, "ptrace", [0; 3]), Action::Allow);
        }
    }

    #[test]
    fn bits_that_the_kernel_does_not_read_change_nothing() {
        let high = 1 << 32;
        for (op, refused, let_through) in [
            ("\"eq\"", vec![0o4755], vec![0o4754, 0]),
            ("\"ne\"", vec![0o4754, 0, 0xffff], vec![0o4755]),
            ("\"lt\"", vec![0, 0o4754], vec![0o4755, 0xffff]),
            ("\"le\"", vec![0, 0o4755], vec![0o4756, 0xffff]),
            ("\"gt\"", vec![0o4756, 0xffff], vec![0, 0o4755]),
            ("\"ge\"", vec![0o4755, 0xffff], vec![0, 0o4754]),
            ("{\"masked_eq\": 2048}", vec![0o4755, 0o4000], vec![0o755]),
        ] {
            for (call, at, bits) in [("chmod", 1, 1 << 16), ("fcntl", 1, high)] {
                for kind in ["dword", "qword"] {
                    let program = compiled(&file("\"allow\"", "\"trap\"", &rule(call, &arg(at, kind, op, 0o4755))));
                    for value in refused.iter().flat_map(|value| [*value, value | bits, value | high]) {
                        assert_eq!(
                            decided(&program, call, [0, value, 0]),
                            Action::Trap,
                            "{call} {kind} {op} {value:o}"
                        );
                    }
                    for value in let_through.iter().flat_map(|value| [*value, value | bits, value | high]) {
                        assert_eq!(
                            decided(&program, call, [0, value, 0]),
                            Action::Allow,
                            "{call} {kind} {op} {value:o}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn a_value_that_an_argument_cannot_have_decides_the_comparison() {
        let beyond = 0x1_2345_6789;
        for (op, matches) in [("eq", false), ("ne", true), ("lt", true), ("le", true), ("gt", false), ("ge", false)] {
            let op = format!("\"{op}\"");
            for call in ["fcntl", "chmod"] {
                let program = compiled(&file("\"allow\"", "\"trap\"", &rule(call, &arg(1, "qword", &op, beyond))));
                let action = if matches { Action::Trap } else { Action::Allow };
                assert_eq!(decided(&program, call, [0, 7, 0]), action, "{call} {op}");
            }
        }
        let masked = rule("fcntl", &arg(1, "qword", &format!("{{\"masked_eq\": {}}}", u64::MAX), beyond));
        compiled(&file("\"allow\"", "\"trap\"", &masked));
    }

    #[test]
    fn rules_with_and_without_arguments_are_alternatives() {
        let one = rule("fcntl", &arg(1, "dword", "\"eq\"", 2));
        for rules in [format!(r#"{one}, {{"syscall": "fcntl"}}"#), format!(r#"{{"syscall": "fcntl"}}, {one}"#)] {
            let program = compiled(&file("\"allow\"", "\"trap\"", &rules));
            assert_eq!(decided(&program, "fcntl", [0, 3, 0]), Action::Trap);
        }
    }

    #[test]
    fn a_rule_with_many_conditions_is_compiled_as_it_is_written() {
        for kind in ["dword", "qword"] {
            let args: Vec<String> = (0..70).map(|n| arg(n as u8 % 3, kind, "\"ne\"", n)).collect();
            let rules = format!("{}, {}", rule("lseek", &args.join(",")), rule("read", &arg(2, "qword", "\"gt\"", 5)));
            compiled(&file("\"trap\"", "\"allow\"", &rules));
        }
    }

    #[test]
    fn programs_that_are_too_long_are_refused_by_name() {
        let error = |profile: &Profile| Program::compile(profile).expect_err("compiled").to_string();
        let reads: Vec<String> = (0..1500).map(|n| rule("read", &arg(2, "qword", "\"eq\"", n))).collect();
        let text = error(&file("\"trap\"", "\"allow\"", &reads.join(",")));
        assert!(text.starts_with("seccompiler: ") && text.contains("4096"), "{text}");
        // Blocks of a mode times other conditions: refused before they are generated.
        let many: Vec<String> = (0..8000)
            .map(|n| if n % 2 == 0 { arg(1, "dword", "\"ne\"", n) } else { arg(2, "qword", "\"ne\"", n) })
            .collect();
        let text = error(&file(
            "\"trap\"",
            "\"allow\"",
            &rule("mkdirat", &many.join(",").replace(r#""index": 1"#, r#""index": 0"#)),
        ));
        assert!(text.contains("4096"), "{text}");
        let text = error(&file("\"trap\"", "\"allow\"", &rule("mkdir", &many.join(","))));
        assert!(text.contains("4096 the kernel takes"), "{text}");
    }

    #[test]
    fn rules_with_different_actions_are_refused() {
        let mut profile = file("\"trap\"", "\"allow\"", r#"{"syscall": "read"}, {"syscall": "write"}"#);
        profile.stages[0].rules[1].action = Action::Log;
        assert_eq!(Program::compile(&profile), Err(Error::SeveralActions));
    }
}
