//! Valid and invalid profiles: the accepted ones, and the errors for the others.

use std::time::Duration;

use crate::common;
use crate::common::clock::used_by_thread;
use proptest::prelude::*;
use stockade_seccomp::builtin::{Builtin, Group};
use stockade_seccomp::check::check;
use stockade_seccomp::interpret::run;
use stockade_seccomp::{Action, Arch, Call, Context, Instruction, Profile, Program, load, validate};

const LOOSE: Context = Context { arch: Arch::X86_64, kernel: (6, 1), capabilities: &[], strict: false };
const STRICT: Context = Context { strict: true, ..LOOSE };

fn read(text: &str) -> Result<(Profile, Vec<String>), String> {
    let loaded = load(text.as_bytes(), None, &LOOSE).map_err(|error| error.to_string())?;
    Ok((loaded.0, loaded.1.iter().map(ToString::to_string).collect()))
}

#[track_caller]
fn good(text: &str) -> Profile {
    match read(text) {
        Ok((profile, warnings)) => {
            assert_eq!(warnings, Vec::<String>::new());
            profile
        }
        Err(error) => panic!("{text}: {error}"),
    }
}

/// A profile with one entry in `syscalls`.
fn entry(fields: &str) -> String {
    format!(r#"{{"defaultAction": "SCMP_ACT_ERRNO", "syscalls": [{{"names": ["socket"], {fields}}}]}}"#)
}

/// A profile with one condition.
fn condition(fields: &str) -> String {
    entry(&format!(r#""action": "SCMP_ACT_ALLOW", "args": [{{{fields}}}]"#))
}

/// A profile with this text beside `defaultAction`.
fn top(fields: &str) -> String {
    format!(r#"{{"defaultAction": "SCMP_ACT_ERRNO", {fields}}}"#)
}

fn decide(profile: &Profile, name: &str, args: [u64; 3]) -> Action {
    let number = profile.arch.number(name).unwrap_or_else(|| panic!("{name}"));
    let [a, b, c] = args;
    profile.decide(&Call { arch: profile.arch.audit(), number, args: [a, b, c, 0, 0, 0] })
}

#[test]
fn wrong_profiles_are_refused_with_place_value_and_reason() {
    let allow = r#""action": "SCMP_ACT_ALLOW""#;
    let errno = r#""action": "SCMP_ACT_ERRNO""#;
    let names = |list: &str| format!(r#"{{"defaultAction": "SCMP_ACT_ERRNO", "syscalls": [{{{list}, {allow}}}]}}"#);
    #[rustfmt::skip]
    let table: &[(String, &str)] = &[
        ("".into(), "EOF while parsing"),
        ("\u{feff}{}".into(), "expected value at line 1 column 1"),
        ("null".into(), "null: must be an object"),
        ("[]".into(), "an array: must be an object"),
        ("{}".into(), "defaultAction is missing"),
        (r#"{"defaultAction": "SCMP_ACT_ALLOW"} {}"#.into(), "trailing characters"),
        (r#"{"defaultAction": "SCMP_ACT_ALLOW", /* no */ "syscalls": []}"#.into(), "key must be a string"),
        (r#"{"defaultAction": null}"#.into(), "defaultAction is missing"),
        (r#"{"defaultAction": ""}"#.into(), r#"defaultAction: "": is not an action"#),
        (r#"{"defaultAction": "SCMP_ACT_allow"}"#.into(), r#"defaultAction: "SCMP_ACT_allow": is not an action"#),
        (r#"{"defaultAction": 5}"#.into(), "defaultAction: 5: must be a string"),
        (r#"{"defaultAction": "SCMP_ACT_NOTIFY"}"#.into(), "a listener cannot decide every call"),
        (r#"{"defaultAction": "SCMP_ACT_ALLOW", "defaultErrnoRet": 1}"#.into(), "has no error number, but one is given"),
        (top(r#""defaultErrnoRet": 4096"#), "defaultErrnoRet: 4096: must be a whole number from 0 to 4095"),
        (top(r#""defaultErrnoRet": -1"#), "defaultErrnoRet: -1: must be a whole number"),
        (top(r#""defaultErrnoRet": 1.0"#), "defaultErrnoRet: 1.0: must be a whole number"),
        (top(r#""defaultErrnoRet": "1""#), r#"defaultErrnoRet: "1": must be a whole number"#),
        (top(r#""defaultErrnoRet": true"#), "defaultErrnoRet: true: must be a whole number"),
        (top(r#""defaultErrnoRet": 1, "defaultErrnoRet": 2"#), "defaultErrnoRet: duplicate key"),
        (top(r#""unknown": {"a": [1, {"b": 1, "b": 2}]}"#), "unknown.a[1].b: duplicate key"),
        (top(r#""syscalls": {}"#), "syscalls: an object: must be an array"),
        (top(r#""syscalls": [[]]"#), "syscalls[0]: an array: must be an object"),
        (top(r#""syscalls": [{}]"#), "syscalls[0]: action is missing"),
        (top(r#""flags": ["SECCOMP_FILTER_FLAG_LOG", "FAST"]"#), r#"flags[1]: "FAST": is not a flag"#),
        (top(r#""flags": "SECCOMP_FILTER_FLAG_LOG""#), "flags: \"SECCOMP_FILTER_FLAG_LOG\": must be an array"),
        (top(r#""listenerPath": "here""#), r#"listenerPath: "here": must be an absolute path"#),
        (top(r#""listenerMetadata": "x""#), "listenerMetadata is given, but no listenerPath"),
        (top(r#""architectures": ["SCMP_ARCH_X86_64"], "archMap": [{"architecture": "SCMP_ARCH_X86_64"}]"#), "are both given"),
        (top(r#""archMap": [{"architecture": "SCMP_ARCH_X86_64"}, {"architecture": "SCMP_ARCH_X86_64"}]"#), "archMap[1].architecture: \"SCMP_ARCH_X86_64\": already has an entry"),
        (top(r#""archMap": [{}]"#), "archMap[0]: architecture is missing"),
        (names(r#""name": "read", "names": ["write"]"#), r#"syscalls[0].name: "read": conflicts with names"#),
        (names(r#""comment": """#), "syscalls[0]: names is missing"),
        (names(r#""names": "read""#), "syscalls[0].names: \"read\": must be an array"),
        (names(r#""names": ["read", 3]"#), "syscalls[0].names[1]: 3: must be a string"),
        (names(r#""names": ["read"], "names": ["write"]"#), "syscalls[0].names: duplicate key"),
        (entry(&format!(r#"{allow}, "errnoRet": 1"#)), "syscalls[0].action: \"SCMP_ACT_ALLOW\": has no error number"),
        (entry(&format!(r#"{errno}, "errnoRet": 4096"#)), "syscalls[0].errnoRet: 4096"),
        (entry(&format!(r#"{errno}, "errnoRet": 18446744073709551616"#)), "syscalls[0].errnoRet: 1.8446744073709552e19"),
        (entry(&format!(r#"{errno}, "errno": "ENOPE""#)), r#"syscalls[0].errno: "ENOPE": is not a known error name"#),
        (entry(r#""action": "SCMP_ACT_NOTIFY""#), "there is no listenerPath"),
        (condition(r#""index": 6, "op": "SCMP_CMP_EQ""#), "syscalls[0].args[0].index: 6: must be a whole number from 0 to 5"),
        (condition(r#""index": -1, "op": "SCMP_CMP_EQ""#), "syscalls[0].args[0].index: -1"),
        (condition(r#""index": -0, "op": "SCMP_CMP_EQ""#), "syscalls[0].args[0].index: -0.0"),
        (condition(r#""index": 0"#), "syscalls[0].args[0]: op is missing"),
        (condition(r#""index": 0, "op": "EQ""#), r#"syscalls[0].args[0].op: "EQ": is not a comparison operator"#),
        (condition(r#""index": 0, "op": "SCMP_CMP_EQ", "value": "0x10""#), r#"syscalls[0].args[0].value: "0x10": must be a whole number"#),
        (condition(r#""index": 0, "op": "SCMP_CMP_EQ", "value": 0x10"#), "expected `,` or `}`"),
        (condition(r#""index": 0, "op": "SCMP_CMP_EQ", "value": 1e400"#), "syscalls[0].args[0].value: number out of range"),
        (condition(r#""index": 0, "op": "SCMP_CMP_EQ", "value": 18446744073709551616"#), "syscalls[0].args[0].value: 1.8446744073709552e19"),
        (condition(r#""index": 0, "op": "SCMP_CMP_EQ", "value": 01"#), "invalid number"),
        (condition(r#""index": 0, "op": "SCMP_CMP_EQ", "value": NaN"#), "expected value"),
        (entry(&format!(r#"{allow}, "args": {{}}"#)), "syscalls[0].args: an object: must be an array"),
        (entry(&format!(r#"{allow}, "args": [{{"index": 0, "value": 1, "op": "SCMP_CMP_EQ"}}, {{"index": 0, "value": 2, "op": "SCMP_CMP_EQ"}}]"#)), "its conditions exclude each other"),
        (entry(&format!(r#"{allow}, "includes": []"#)), "syscalls[0].includes: an array: must be an object"),
        (entry(&format!(r#"{allow}, "includes": {{"minKernel": "4"}}"#)), r#"syscalls[0].includes.minKernel: "4": must be a kernel version"#),
        (entry(&format!(r#"{allow}, "includes": {{"minKernel": ""}}"#)), "syscalls[0].includes.minKernel"),
        (entry(&format!(r#"{allow}, "excludes": {{"minKernel": "4.8.1-rc"}}"#)), r#"syscalls[0].excludes.minKernel: "4.8.1-rc""#),
        (entry(&format!(r#"{allow}, "excludes": {{"minKernel": 4.8}}"#)), "syscalls[0].excludes.minKernel: 4.8: must be a string"),
        (entry(&format!(r#"{allow}, "includes": {{"caps": "CAP_CHOWN"}}"#)), "syscalls[0].includes.caps: \"CAP_CHOWN\": must be an array"),
        // An entry that does not apply is parsed all the same.
        (entry(&format!(r#"{allow}, "args": [{{"index": 9, "op": "SCMP_CMP_EQ"}}], "includes": {{"arches": ["s390"]}}"#)), "args[0].index: 9"),
        (format!("{}1{}", "[".repeat(200), "]".repeat(200)), "recursion limit exceeded"),
        (format!(r#"{{"x": {}{}}}"#, r#"{"x":"#.repeat(200), "}".repeat(200)), "recursion limit exceeded"),
    ];
    for (text, wanted) in table {
        match read(text) {
            Ok(_) => panic!("{text} is accepted"),
            Err(error) => assert!(error.contains(wanted), "{text}:\n{error}\ndoes not contain {wanted:?}"),
        }
    }
    for bytes in
        [&b"\xff\xfe{\0}\0"[..], b"{\"defaultAction\": \"\xc0\xaf\"}", b"{\"defaultAction\": \"\\ud800\"}", b"{\0}"]
    {
        assert!(load(bytes, None, &LOOSE).is_err());
    }
}

#[test]
fn oddities_are_warnings_and_strictly_errors() {
    let allow = r#""action": "SCMP_ACT_ALLOW""#;
    let twice =
        r#""args": [{"index": 0, "value": 38, "op": "SCMP_CMP_NE"}, {"index": 0, "value": 40, "op": "SCMP_CMP_NE"}]"#;
    let table = [
        (
            top(r#""syscalls": [{"name": "raed", "action": "SCMP_ACT_ALLOW"}]"#),
            "syscalls[0].name: \"raed\" is not a system call",
        ),
        (top(r#""syscalls": [{"names": [], "action": "SCMP_ACT_ALLOW"}]"#), "syscalls[0]: names no system call"),
        (entry(r#""action": "SCMP_ACT_ERRNO", "errnoRet": 0"#), "a refused call returns 0"),
        (
            entry(r#""action": "SCMP_ACT_ERRNO", "errnoRet": 2, "errno": "EPERM""#),
            "errnoRet and errno differ; errno counts",
        ),
        (condition(r#""index": 0, "op": "SCMP_CMP_EQ", "value": 1, "valueTwo": 5"#), "valueTwo has a meaning only for"),
        (condition(r#""index": 0, "op": "SCMP_CMP_MASKED_EQ", "value": 1, "valueTwo": 2"#), "this never holds"),
        (entry(&format!("{allow}, {twice}")), "syscalls[0]: tests one argument more than once"),
        (entry(&format!(r#"{allow}, "includes": {{"caps": ["SYS_ADMIN"]}}"#)), "\"SYS_ADMIN\" is not a capability"),
        (top(r#""architectures": ["SCMP_ARCH_AARCH64"]"#), "architectures: SCMP_ARCH_X86_64 is missing"),
        (
            top(r#""architectures": ["amd64", "SCMP_ARCH_X86_64"]"#),
            "architectures[0]: \"amd64\" is not a known architecture",
        ),
    ];
    for (text, wanted) in table {
        let (_, warnings) = read(&text).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert!(warnings.iter().any(|warning| warning.contains(wanted)), "{text}: {warnings:?} lacks {wanted:?}");
        let strict = load(text.as_bytes(), None, &STRICT);
        assert!(strict.is_err(), "{text} is strictly accepted");
    }
    // A call name of another architecture is valid.
    good(&top(
        r#""syscalls": [{"names": ["socketcall", "arm_fadvise64_64", "s390_pci_mmio_read"], "action": "SCMP_ACT_ALLOW"}]"#,
    ));
}

#[test]
fn conditions_capabilities_and_kernels_decide_which_entries_take_part() {
    let entry = |condition: &str| {
        let text = entry(&format!(r#""action": "SCMP_ACT_ALLOW", {condition}"#));
        move |kernel, capabilities: &[&str]| {
            let context = Context { kernel, capabilities, ..STRICT };
            let (profile, _) = load(text.as_bytes(), None, &context).unwrap_or_else(|error| panic!("{error}"));
            decide(&profile, "socket", [0; 3]) == Action::Allow
        }
    };
    let both = entry(r#""includes": {"caps": ["CAP_CHOWN", "CAP_KILL"], "minKernel": "4.8"}"#);
    assert!(both((4, 8), &["CAP_KILL", "CAP_CHOWN"]) && both((10, 0), &["CAP_KILL", "CAP_CHOWN"]));
    assert!(!both((4, 7), &["CAP_KILL", "CAP_CHOWN"]) && !both((5, 0), &["CAP_KILL"]) && !both((5, 0), &[]));
    let either = entry(r#""excludes": {"caps": ["CAP_CHOWN", "CAP_KILL"], "minKernel": "6.0"}"#);
    assert!(either((5, 19), &[]) && !either((5, 19), &["CAP_KILL"]) && !either((6, 0), &[]));
    assert!(entry(r#""includes": {"arches": ["arm64", "amd64"]}"#)((6, 0), &[]));
    assert!(!entry(r#""includes": {"arches": ["arm64"]}"#)((6, 0), &[]));
    assert!(!entry(r#""excludes": {"arches": ["amd64"]}"#)((6, 0), &[]));
    assert!(entry(
        r#""includes": {"arches": [], "caps": null}, "excludes": {}, "args": null, "comment": "", "errnoRet": null"#
    )((6, 0), &[]));
}

#[test]
fn every_action_is_read_and_compiled() {
    for (name, action) in [
        ("SCMP_ACT_KILL", Action::KillThread),
        ("SCMP_ACT_KILL_PROCESS", Action::KillProcess),
        ("SCMP_ACT_KILL_THREAD", Action::KillThread),
        ("SCMP_ACT_TRAP", Action::Trap),
        ("SCMP_ACT_ERRNO", Action::Errno(1)),
        ("SCMP_ACT_TRACE", Action::Trace(1)),
        ("SCMP_ACT_ALLOW", Action::Allow),
        ("SCMP_ACT_LOG", Action::Log),
        ("SCMP_ACT_NOTIFY", Action::Notify),
    ] {
        let text = format!(
            r#"{{"defaultAction": "SCMP_ACT_KILL_PROCESS", "listenerPath": "/run/seccomp", "listenerMetadata": "x",
                "flags": ["SECCOMP_FILTER_FLAG_LOG"], "syscalls": [{{"name": "socket", "action": "{name}"}}]}}"#
        );
        let profile = good(&text);
        assert_eq!(decide(&profile, "socket", [0; 3]), action);
        let program = Program::compile(&profile).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(program.notifies, action == Action::Notify);
        assert_eq!(program.flags.bits(), 2);
        assert_eq!(program.listener.map(|listener| listener.path).as_deref(), Some("/run/seccomp"));
        let call = Call { arch: Arch::X86_64.audit(), number: 41, args: [0; 6] };
        assert_eq!(run(&program.instructions, &call).0, action);
    }
}

/// The strictest of several matching rules wins, in any order.
#[test]
fn the_strictest_rule_wins() {
    let rules = [
        r#"{"name": "socket", "action": "SCMP_ACT_ALLOW"}"#,
        r#"{"name": "socket", "action": "SCMP_ACT_LOG", "args": [{"index": 0, "value": 9, "op": "SCMP_CMP_LT"}]}"#,
        r#"{"name": "socket", "action": "SCMP_ACT_ERRNO", "errnoRet": 5, "args": [{"index": 0, "value": 3, "op": "SCMP_CMP_EQ"}]}"#,
        r#"{"name": "socket", "action": "SCMP_ACT_ERRNO", "errnoRet": 6, "args": [{"index": 0, "value": 4, "op": "SCMP_CMP_LT"}]}"#,
        r#"{"name": "socket", "action": "SCMP_ACT_KILL", "args": [{"index": 0, "value": 2, "op": "SCMP_CMP_LT"}]}"#,
    ];
    for order in [[0, 1, 2, 3, 4], [4, 2, 3, 1, 0], [1, 0, 4, 2, 3]] {
        let list: Vec<&str> = order.iter().map(|at| rules[*at]).collect();
        let profile = good(&top(&format!(r#""syscalls": [{}]"#, list.join(", "))));
        let got: Vec<Action> = [1, 2, 3, 5, 9].iter().map(|value| decide(&profile, "socket", [*value, 0, 0])).collect();
        // Of two error numbers the first in the file wins.
        assert_eq!(got, [Action::KillThread, Action::Errno(6), Action::Errno(5), Action::Log, Action::Allow]);
    }
}

/// A number above all that a profile names gives ENOSYS where the profile refuses, so that libraries fall back; otherwise its
/// default.
#[test]
fn numbers_above_the_profile_do_not_exist_for_it() {
    for (default, beyond) in [
        ("SCMP_ACT_ERRNO", Action::Errno(38)),
        ("SCMP_ACT_KILL_PROCESS", Action::Errno(38)),
        ("SCMP_ACT_TRAP", Action::Errno(38)),
        ("SCMP_ACT_ALLOW", Action::Allow),
        ("SCMP_ACT_LOG", Action::Log),
        ("SCMP_ACT_TRACE", Action::Trace(1)),
    ] {
        let profile = good(&format!(
            r#"{{"defaultAction": "{default}", "syscalls": [{{"name": "read", "action": "SCMP_ACT_ALLOW"}}]}}"#
        ));
        assert_eq!(decide(&profile, "write", [0; 3]), beyond);
    }
}

#[test]
fn bad_input_costs_little() {
    let rule = r#"{"names": ["socket"], "action": "SCMP_ACT_ALLOW", "args": [{"index": 0, "value": N, "op": "SCMP_CMP_EQ"}, {"index": 1, "value": M, "op": "SCMP_CMP_EQ"}]}"#;
    let many = |count: u64, step: u64| {
        let rules: Vec<String> = (0..count)
            .map(|at| {
                rule.replace('N', &(at * step).to_string()).replace('M', &(at * at * step % 1_000_003).to_string())
            })
            .collect();
        top(&format!(r#""syscalls": [{}]"#, rules.join(",")))
    };
    let wide = |count: u64| {
        let conditions: Vec<String> = (0..count)
            .map(|at| format!(r#"{{"index": {}, "value": {}, "op": "SCMP_CMP_NE"}}"#, at % 6, at << 32 | at))
            .collect();
        top(&format!(
            r#""syscalls": [{{"names": ["process_vm_readv"], "action": "SCMP_ACT_ALLOW", "args": [{}]}}]"#,
            conditions.join(",")
        ))
    };
    let inputs = [
        ("ten thousand rules", many(6_000, 2)),
        ("fifty conditions on each argument", wide(300)),
        ("a hundred thousand conditions", wide(15_000)),
        ("a million bytes of brackets", format!("[{}", "[],".repeat(300_000))),
        (
            "a hundred thousand keys",
            format!("{{{}\"x\": 1}}", (0..60_000).map(|at| format!("\"{at}\": 1,")).collect::<String>()),
        ),
        ("a long string", top(&format!(r#""comment": "{}""#, "x".repeat(1_000_000)))),
        ("too much", " ".repeat(2_000_000)),
        (
            "names",
            top(&format!(
                r#""syscalls": [{{"action": "SCMP_ACT_ALLOW", "names": [{}"read"]}}]"#,
                "\"write\",".repeat(100_000)
            )),
        ),
    ];
    for (what, text) in inputs {
        let start = used_by_thread();
        let outcome =
            read(&text).and_then(|(profile, _)| Program::compile(&profile).map_err(|error| error.to_string()));
        let took = used_by_thread() - start;
        eprintln!("{what}: {took:?} {:?}", outcome.map(|program| program.instructions.len()));
        // The promise is 50 ms; this build is not optimised.
        assert!(took < Duration::from_millis(1500), "{what}: {took:?}");
    }
}

fn seccompiler_text(filter: &str) -> String {
    format!(r#"{{"main": {{"mismatch_action": {{"errno": 1}}, "match_action": "allow", "filter": {filter}}}}}"#)
}

#[test]
fn seccompilers_own_format_means_what_it_means_there() {
    let filter = r#"[
        {"syscall": "read"}, {"syscall": "close", "comment": "always"},
        {"syscall": "fcntl", "args": [{"index": 1, "type": "dword", "op": "eq", "val": 2}]},
        {"syscall": "fcntl", "args": [{"index": 1, "type": "dword", "op": "ge", "val": 1030, "comment": "x"}]},
        {"syscall": "mmap", "args": [{"index": 3, "type": "dword", "op": {"masked_eq": 48}, "val": 32}]},
        {"syscall": "lseek", "args": [{"index": 1, "type": "qword", "op": "lt", "val": 4294967297},
                                      {"index": 2, "type": "dword", "op": "ne", "val": 2}]},
        {"syscall": "munmap", "args": [{"index": 0, "type": "qword", "op": "gt", "val": 8589934591},
                                       {"index": 1, "type": "qword", "op": "le", "val": 4096}]}]"#;
    let text = seccompiler_text(filter);
    let profile = good(&text);
    let ours = Program::compile(&profile).unwrap_or_else(|error| panic!("{error}")).instructions;
    let theirs = seccompiler::compile_from_json(text.as_bytes(), seccompiler::TargetArch::x86_64)
        .unwrap_or_else(|error| panic!("{error}"));
    let theirs: Vec<Instruction> =
        theirs["main"].iter().map(|one| Instruction { code: one.code, jt: one.jt, jf: one.jf, k: one.k }).collect();
    for call in stockade_seccomp::compare::calls(&profile).filter(|call| call.number < 0x4000_0000) {
        assert_eq!(run(&ours, &call).0, run(&theirs, &call).0, "{call:?}");
    }
}

#[test]
fn wrong_filters_of_seccompilers_are_refused() {
    let arg = |fields: &str| seccompiler_text(&format!(r#"[{{"syscall": "fcntl", "args": [{{{fields}}}]}}]"#));
    let table = [
        (seccompiler_text(r#"[{"syscall": "raed"}]"#), r#"main.filter[0].syscall: "raed": is not a system call"#),
        (seccompiler_text(r#"[{"syscal": "read"}]"#), "main.filter[0].syscal: is not a key"),
        (seccompiler_text(r#"[{"syscall": "read", "args": []}]"#), "main.filter[0].args: is empty"),
        (seccompiler_text("{}"), "main.filter: an object: must be an array"),
        (arg(r#""index": 6, "type": "dword", "op": "eq", "val": 1"#), "args[0].index: 6"),
        (arg(r#""index": 0, "type": "word", "op": "eq", "val": 1"#), r#"args[0].type: "word": must be"#),
        (arg(r#""index": 0, "type": "dword", "op": "eq", "val": 4294967296"#), "args[0].val: 4294967296"),
        (arg(r#""index": 0, "type": "dword", "op": "=", "val": 1"#), r#"args[0].op: "=": must be"#),
        (arg(r#""index": 0, "type": "dword", "op": {"masked": 1}, "val": 1"#), "args[0].op.masked: is not a key"),
        (arg(r#""index": 0, "type": "dword", "op": "eq""#), "args[0]: val is missing"),
        (r#"{"a": {"filter": [], "match_action": "allow"}}"#.into(), "a: mismatch_action is missing"),
        (r#"{"a": {"filter": [], "match_action": "allow", "mismatch_action": "allow"}}"#.into(), "are the same"),
        (r#"{"a": {"filter": [], "match_action": {"errno": 4096}, "mismatch_action": "allow"}}"#.into(), "a.match_action.errno: 4096"),
        (r#"{"a": {"filter": [], "match_action": "allow", "mismatch_action": "trap"}, "b": {"filter": 1, "match_action": "allow", "mismatch_action": "trap"}}"#.into(), "has several filters: a, b"),
    ];
    for (text, wanted) in table {
        let error = read(&text).expect_err(&text);
        assert!(error.contains(wanted), "{text}:\n{error}\ndoes not contain {wanted:?}");
    }
    let two = r#"{"a": {"filter": [], "match_action": "allow", "mismatch_action": "trap"}, "b": {"filter": [], "match_action": "allow", "mismatch_action": "log"}}"#;
    let named = |name| load(two.as_bytes(), Some(name), &LOOSE).map(|loaded| loaded.0.default);
    assert_eq!(named("b"), Ok(Action::Log));
    assert!(named("c").expect_err("found").to_string().contains("a, b"));
}

#[test]
fn compiled_programs_are_taken_as_the_kernel_would() {
    let one = |code, jt, jf, k| Instruction { code, jt, jf, k };
    let answer = one(0x06, 0, 0, 0x7fff_0000);
    let good: [&[Instruction]; 4] = [
        &[answer],
        &[one(0x20, 0, 0, 60), answer],
        &[one(0x00, 0, 0, 5), one(0x02, 0, 0, 3), one(0x60, 0, 0, 3), one(0x16, 0, 0, 0)],
        &[one(0x15, 1, 0, 0), answer, answer],
    ];
    for program in good {
        assert_eq!(validate(program), Ok(()));
        let bytes: Vec<u8> = program.iter().flat_map(|one| one.to_bytes()).collect();
        let loaded = Program::load_binary(&bytes).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!((loaded.instructions.as_ref(), loaded.to_binary()), (program, bytes));
    }
    let bad: [(&[Instruction], &str); 12] = [
        (&[], "1 to 4096"),
        (&[one(0x20, 0, 0, 0)], "must return"),
        (&[one(0x20, 0, 0, 64), answer], "outside seccomp_data"),
        (&[one(0x20, 0, 0, 2), answer], "outside seccomp_data"),
        (&[one(0x28, 0, 0, 0), answer], "not an operation"),
        (&[one(0x94, 0, 0, 3), answer], "not an operation"),
        (&[one(0x34, 0, 0, 0), answer], "divides by zero"),
        (&[one(0x64, 0, 0, 32), answer], "shifts"),
        (&[one(0x60, 0, 0, 3), answer], "before it is written"),
        (&[one(0x15, 0, 1, 0), answer], "out of the program"),
        (&[one(0x05, 0, 0, u32::MAX), answer], "out of the program"),
        // Written on only one of two paths.
        (&[one(0x15, 0, 1, 0), one(0x02, 0, 0, 1), one(0x60, 0, 0, 1), answer], "before it is written"),
    ];
    for (program, wanted) in bad {
        let (_, reason) = validate(program).expect_err(wanted);
        assert!(reason.contains(wanted), "{program:?}: {reason}");
    }
    for (bytes, wanted) in
        [(vec![0; 12], "not a multiple of 8"), (vec![6; 8 * 4097], "the longest program"), (vec![], "1 to 4096")]
    {
        let error = Program::load_binary(&bytes).expect_err(wanted).to_string();
        assert!(error.contains(wanted), "{error}");
    }
}

#[test]
fn check_finds_the_ways_around() {
    let found = |text: &str, wanted: &[&str]| {
        let warnings: Vec<String> = check(&good(text)).iter().map(ToString::to_string).collect();
        for wanted in wanted {
            assert!(warnings.iter().any(|warning| warning.contains(wanted)), "{text}: {warnings:#?} lacks {wanted:?}");
        }
        assert_eq!(warnings.len(), wanted.len(), "{text}: {warnings:#?}");
    };
    let base = r#"{"names": ["execve", "exit_group", "read"], "action": "SCMP_ACT_ALLOW"}"#;
    found(&top(&format!(r#""syscalls": [{base}]"#)), &[]);
    found(&top(r#""syscalls": []"#), &["execve is refused", "exit_group is refused"]);
    let with = |rules: &str| top(&format!(r#""syscalls": [{base}, {rules}]"#));
    found(
        &with(r#"{"name": "io_uring_setup", "action": "SCMP_ACT_ALLOW"}"#),
        &["io_uring_setup passes: refused operations"],
    );
    found(
        &with(
            r#"{"name": "clone", "action": "SCMP_ACT_ALLOW", "args": [{"index": 0, "op": "SCMP_CMP_MASKED_EQ", "value": 268435456}]}, {"name": "clone3", "action": "SCMP_ACT_LOG"}"#,
        ),
        &["clone3 passes: its flags"],
    );
    found(
        &with(r#"{"names": ["unshare", "clone"], "action": "SCMP_ACT_ALLOW"}"#),
        &["clone(CLONE_NEWUSER), unshare(CLONE_NEWUSER) pass"],
    );
    found(
        &with(
            r#"{"name": "ioctl", "action": "SCMP_ACT_ALLOW", "args": [{"index": 1, "op": "SCMP_CMP_NE", "value": 21522}]}"#,
        ),
        &["ioctl(TIOCLINUX), ioctl(TIOCSETD) pass"],
    );
    found(&with(r#"{"name": "pidfd_getfd", "action": "SCMP_ACT_ALLOW"}"#), &["pidfd_getfd passes"]);
    found(&with(r#"{"name": "read", "action": "SCMP_ACT_KILL"}"#), &["syscalls[0]: never decides read: stricter"]);
    found(
        &with(
            r#"{"name": "write", "action": "SCMP_ACT_ALLOW", "args": [{"index": 0, "op": "SCMP_CMP_LT", "value": 0}]}"#,
        ),
        &["syscalls[1]: never matches"],
    );
    let denylist = r#"{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{"names": ["pidfd_getfd", "socket"], "action": "SCMP_ACT_ERRNO"}]}"#;
    let warnings: Vec<String> = check(&good(denylist)).iter().map(ToString::to_string).collect();
    assert!(warnings.iter().any(|warning| warning.contains("defaultAction: calls that no rule names are allowed")));
    assert!(
        warnings.iter().any(|warning| warning.contains("io_uring"))
            && !warnings.iter().any(|warning| warning.contains("pidfd_getfd"))
    );
    for builtin in [Builtin::Default, Builtin::Strict] {
        let profile = builtin.profile(true, &[], &STRICT).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(check(&profile), []);
    }
    let nested = Builtin::Default.profile(false, &[Group::Nested], &STRICT).unwrap_or_else(|error| panic!("{error}"));
    assert!(check(&nested).iter().any(|warning| warning.text.contains("CLONE_NEWUSER")));
}

/// The table of system calls equals this machine's headers.
#[test]
fn the_table_of_calls_is_the_kernels() {
    let path = "/usr/include/x86_64-linux-gnu/asm/unistd_64.h";
    let Ok(header) = std::fs::read_to_string(path) else { return common::skip(&format!("no {path}")) };
    let mut count = 0;
    for line in header.lines() {
        let Some((name, number)) = line.strip_prefix("#define __NR_").and_then(|rest| rest.split_once(' ')) else {
            continue;
        };
        assert_eq!(Arch::X86_64.number(name), number.trim().parse().ok(), "{name}");
        count += 1;
    }
    assert!(count > 300, "{path} has only {count} calls");
    for (name, number) in [("socket", libc::SYS_socket), ("openat2", libc::SYS_openat2), ("clone3", libc::SYS_clone3)] {
        assert_eq!(Arch::NATIVE.number(name).map(i64::from), Some(number));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    /// Any file content gives a result and no panic, and an accepted profile compiles to a program that does the same.
    #[test]
    fn mangled_profiles_are_read_or_refused(
        which in 0usize..4,
        cuts in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0u8..4), 1..4),
    ) {
        let inet = include_bytes!("../../profiles/seccomp/debug.json");
        let mut bytes = match which {
            0 => Builtin::Strict.json().as_bytes().to_vec(),
            1 => inet.to_vec(),
            2 => condition(r#""index": 0, "op": "SCMP_CMP_MASKED_EQ", "value": 1, "valueTwo": 2"#).into_bytes(),
            _ => seccompiler_text(r#"[{"syscall": "fcntl", "args": [{"index": 1, "type": "dword", "op": "eq", "val": 2}]}]"#).into_bytes(),
        };
        for (at, byte, kind) in cuts {
            let at = at.index(bytes.len());
            match kind {
                0 => bytes[at] = byte,
                1 => drop(bytes.remove(at)),
                2 => bytes.insert(at, byte),
                _ => bytes.truncate(at),
            }
            if bytes.is_empty() {
                break;
            }
        }
        if let Ok((profile, _)) = load(&bytes, None, &LOOSE) {
            let program = Program::compile(&profile).map_err(|error| TestCaseError::fail(error.to_string()))?;
            prop_assert_eq!(validate(&program.instructions), Ok(()));
        }
    }

    /// Any program gives a result, and an accepted program can be run.
    #[test]
    fn random_programs_are_run_or_refused(
        parts in prop::collection::vec((prop::sample::select(&CODES[..]), 0u8..6, 0u8..6, 0u32..70), 1..24),
        args in any::<[u64; 6]>(),
        number in any::<u32>(),
    ) {
        let program: Vec<Instruction> = parts.into_iter().map(|(code, jt, jf, k)| Instruction { code, jt, jf, k }).collect();
        if validate(&program).is_ok() {
            let (_, steps) = run(&program, &Call { arch: 0xc000_003e, number, args });
            prop_assert!(steps <= program.len());
        }
    }
}

const CODES: [u16; 20] = [
    0x06, 0x16, 0x20, 0x00, 0x01, 0x02, 0x60, 0x61, 0x03, 0x05, 0x15, 0x1d, 0x25, 0x35, 0x45, 0x54, 0x34, 0x64, 0x84,
    0x07,
];
