//! `--explain-denials` reports each denied operation, the rule that denied it and the option that would allow it, and changes
//! nothing else.

use crate::common;
use crate::common::{Caller, Outcome, Run, TempDir, attack, for_each_caller, host, skip_part, text};
use serde_json::Value;

fn explained(caller: Caller, options: &[&str], program: &str) -> Outcome {
    Run::new(caller).opts(["--explain-denials"]).opts(options.iter().copied()).python(&attack(program)).go()
}

/// The denials of a report, which must all have this layer.
fn denials(outcome: &Outcome, layer: &str) -> Vec<Value> {
    let all = outcome.report()["denials"]
        .as_array()
        .unwrap_or_else(|| panic!("the report has no denials: {outcome}"))
        .clone();
    all.into_iter().filter(|denial| denial["layer"] == layer).collect()
}

#[track_caller]
fn only(outcome: &Outcome, op: &str) -> Value {
    let found: Vec<Value> = denials(outcome, "seccomp").into_iter().filter(|denial| denial["op"] == op).collect();
    assert_eq!(found.len(), 1, "{op}: {outcome}");
    found[0].clone()
}

#[test]
fn a_refused_call_is_reported_with_its_rule_and_a_working_remedy() {
    for_each_caller(|caller| {
        let cases = [
            ("kcmp", "syscall('a', 312, 1, 1, 0, 0, 0)", "1, 1, 0", ["--seccomp-allow", "debug"]),
            ("unshare", "syscall('a', 272, 0x10000000)", "CLONE_NEWUSER", ["--seccomp-allow", "nested"]),
            ("fchmodat", "syscall('a', 268, -100, b'/tmp', 0o4755)", "/tmp, 04755", ["--seccomp-allow", "setuid-bits"]),
            ("mq_unlink", "syscall('a', 241, b'/none')", "", ["--seccomp-allow", "sysv"]),
        ];
        for (op, call, target, way_out) in cases {
            let program = format!("for i in range(3): {call}");
            let outcome = explained(caller, &[], &program).expect(0);
            let denial = only(&outcome, op);
            assert_eq!((&denial["count"], &denial["confidence"]), (&3.into(), &"exact".into()), "{denial}");
            assert_eq!(denial["target"].as_str().unwrap_or_default(), target, "{denial}");
            assert_eq!(denial["comm"], "python3", "{denial}");
            assert!(denial["pid"].as_u64().is_some_and(|pid| pid > 1) && denial["first_us"].is_u64(), "{denial}");
            assert!(denial["rule"].as_str().unwrap().contains("ERRNO"), "{denial}");
            assert!(denial["hint"].as_str().unwrap().starts_with(&way_out.join(" ")), "{denial}");
            assert!(
                outcome.stderr.contains(&format!("seccomp {op}")) && outcome.stderr.contains(way_out[1]),
                "{outcome}"
            );
            let allowed = explained(caller, &way_out, &program).expect(0);
            assert!(denials(&allowed, "seccomp").iter().all(|denial| denial["op"] != op), "{allowed}");
        }
        let socket = "syscall('a', 41, 2, 1, 0)";
        let denial = only(&explained(caller, &["--network", "none"], socket).expect(0), "socket");
        assert_eq!(denial["target"], "AF_INET, SOCK_STREAM, 0", "{denial}");
        assert!(denial["hint"].as_str().unwrap().starts_with("--network loopback or host"), "{denial}");
        assert!(denials(&explained(caller, &[], socket).expect(0), "seccomp").is_empty());
    });
}

#[test]
fn denials_are_recorded_only_on_request() {
    for_each_caller(|caller| {
        let outcome = Run::new(caller).python(&attack("syscall('a', 312, 1, 1, 0, 0, 0)")).go().expect(0);
        assert!(outcome.report()["denials"].is_null() && outcome.report()["denials_unheard"].is_null());
        let nothing = explained(caller, &[], "pass").expect(0);
        assert_eq!(nothing.report()["denials"], serde_json::json!([]));
        assert!(nothing.stderr.contains("no denials were recorded"), "{nothing}");
        assert!(!nothing.stderr.contains("--ro PATH"), "{nothing}");
        let missing = explained(caller, &["--seccomp", "unconfined"], "open('/etc/fstab')").expect(1);
        assert!(missing.stderr.contains("ENOENT") && missing.stderr.contains("--ro PATH adds it"), "{missing}");
        let unfiltered = explained(caller, &["--seccomp", "unconfined"], "pass").expect(0);
        assert_eq!(unfiltered.report()["denials"], serde_json::json!([]));
    });
}

/// Every system call with harmless arguments, except those that end or stop the process or wait.
const EVERY_CALL: &str = r#"
import resource, signal
skipped = {335, 336, 15, 22, 23, 34, 35, 57, 58, 60, 61, 62, 128, 130, 186, 200, 202, 219, 231, 247, 270, 271, 281, 435, 441, 449, 454, 455, 456}
skipped |= {56, 59, 322, 74, 75, 162, 234, 297, 7, 232, 0, 45, 47, 3, 33, 292, 436, 12, 9, 10, 11, 25, 28, 105, 106, 113, 114, 117, 119, 16, 14, 13, 131, 158, 37, 38, 222, 230, 129, 424, 434, 218, 273, 334, 1, 20, 44, 46, 277, 306, 326, 40, 275, 276, 278, 112, 109, 104, 161, 155, 80, 81, 153, 302, 160, 95, 157, 317, 446, 444, 445, 203, 141, 142, 143, 144, 145, 146, 314, 315, 461, 462, 463, 464, 465, 466, 467, 468, 469}
for number in range(0, 470):
    if number not in skipped:
        syscall(str(number), number, -1, -1, -1, -1, -1, -1)
"#;

#[test]
fn every_call_gets_the_answer_that_it_gets_without() {
    for_each_caller(|caller| {
        for profile in ["default", "strict", "docker"] {
            let plain = Run::new(caller).opts(["--seccomp", profile]).python(&attack(EVERY_CALL)).go().expect(0);
            let outcome = explained(caller, &["--seccomp", profile], EVERY_CALL).expect(0);
            assert_eq!(outcome.text(), plain.text(), "under {profile}");
            assert!(denials(&outcome, "seccomp").len() > 30, "{outcome}");
        }
    });
}

const KILLED: &str = r#"
import signal, time
if HANDLES: signal.signal(signal.SIGSYS, lambda *_: print("handled", flush=True))
if IN_CHILD and os.fork():
    print("child", os.wait()[1], flush=True)
    os._exit(0)
libc.syscall(ctypes.c_long(0x40000000 | 39))
print("survived", flush=True)
"#;

#[test]
fn a_killed_workload_has_a_status_of_its_own_and_the_call_named() {
    for_each_caller(|caller| {
        let program = |handles, in_child| format!("HANDLES, IN_CHILD = {handles}, {in_child}\n{KILLED}");
        let plain = Run::new(caller).python(&attack(&program("False", "False"))).go().expect(128 + libc::SIGSYS);
        assert_eq!(plain.report()["status"], "seccomp_killed");
        assert!(plain.stderr.contains("--explain-denials shows which"), "{plain}");
        let named = "call 39 of the x32 table";
        for (handles, signal) in [("False", libc::SIGSYS), ("True", libc::SIGKILL)] {
            let outcome = explained(caller, &[], &program(handles, "False")).expect(128 + signal);
            assert_eq!(outcome.report()["status"], "seccomp_killed", "{outcome}");
            assert_eq!(outcome.text(), "", "{outcome}");
            assert!(outcome.stderr.contains(named), "{outcome}");
            let denial = only(&outcome, named);
            assert!(denial["errno"].is_null(), "{denial}");
        }
        let outcome = explained(caller, &[], &program("False", "True")).expect(0);
        assert_eq!(outcome.text(), format!("child {}\n", libc::SIGSYS), "a child was killed");
        only(&outcome, named);
    });
}

/// Children that are killed for a call while a thread, a process with the same handlers, or a tracer keeps SIGSYS from them.
const HELPED: &str = r#"
import mmap, signal, struct, threading, time
def call():
    libc.syscall(ctypes.c_long(0x40000000 | 39))

def thread():
    def flip():
        while True:
            libc.signal(31, ctypes.c_void_p(1))
            libc.signal(31, ctypes.c_void_p(0))
    libc.signal(31, ctypes.c_void_p(0))
    threading.Thread(target=flip, daemon=True).start()
    time.sleep(0.002)
    call()

def sharer():
    memory = mmap.mmap(-1, 1 << 20, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    at = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    memory[2048:2056] = struct.pack("Q", 1) # SIG_IGN; SIG_DFL follows at 2560
    def set_handler(where):
        return (b"\xb8" + struct.pack("I", 13) + b"\xbf" + struct.pack("I", 31) + b"\x48\xbe" + struct.pack("Q", at + where)
            + b"\x31\xd2\x41\xba" + struct.pack("I", 8) + b"\x0f\x05")
    code = set_handler(2048) + set_handler(2560)
    memory[:len(code) + 5] = code + b"\xe9" + struct.pack("i", -len(code) - 5)
    shared = libc.clone(ctypes.c_void_p(at), ctypes.c_void_p(at + (1 << 20) - 64), 0x100 | 0x800, None)
    time.sleep(0.002)
    call()
    time.sleep(1)
    os.kill(shared, 9)

def traced():
    libc.ptrace(0, 0, None, None)
    os.kill(os.getpid(), signal.SIGSTOP)
    call()

lived = 0
for i in range(TIMES):
    child = os.fork()
    if child == 0:
        globals()[HOW]()
        os._exit(7)
    while True:
        status = os.waitpid(child, os.WUNTRACED)[1]
        if not os.WIFSTOPPED(status):
            break
        libc.ptrace(7, child, None, None)
    lived += os.WIFEXITED(status)
print("lived", lived)
"#;

#[test]
fn nothing_keeps_a_process_from_being_killed_for_a_call() {
    if host::is_uml() {
        return common::skip("a User-Mode kernel takes minutes for so many threads");
    }
    for_each_caller(|caller| {
        for (how, times) in [("thread", 150), ("sharer", 50), ("traced", 1)] {
            let program = format!("HOW, TIMES = '{how}', {times}\n{HELPED}");
            let outcome = explained(caller, &["--seccomp-allow", "debug"], &program).expect(0);
            assert_eq!(outcome.text(), "lived 0\n", "{how}: {outcome}");
            assert_eq!(only(&outcome, "call 39 of the x32 table")["count"], times, "{how}: {outcome}");
        }
    });
}

#[test]
fn custom_profiles_are_explained_too() {
    for_each_caller(|caller| {
        let dir = TempDir::new(caller);
        let profile = dir.file(
            "own.json",
            r#"{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [
                {"names": ["getpriority"], "action": "SCMP_ACT_ERRNO", "errnoRet": 77},
                {"names": ["sched_yield"], "action": "SCMP_ACT_KILL_PROCESS"},
                {"names": ["faccessat", "faccessat2", "write"], "action": "SCMP_ACT_ERRNO", "errnoRet": 5,
                 "args": [{"index": 0, "value": 4000000000, "op": "SCMP_CMP_GT"}]}]}"#,
        );
        let call = "syscall('a', 140, 0, 0)";
        let outcome = explained(caller, &["--seccomp", text(&profile)], call).expect(0);
        assert_eq!(outcome.value("a"), "EBADFD", "77");
        let denial = only(&outcome, "getpriority");
        assert_eq!((&denial["errno"], &denial["rule"]), (&77.into(), &"syscalls[0]: ERRNO(77)".into()), "{denial}");
        let killed = explained(caller, &["--seccomp", text(&profile)], "os.sched_yield()").expect(128 + libc::SIGSYS);
        assert_eq!(killed.report()["status"], "seccomp_killed");
        only(&killed, "sched_yield");

        let compiled = dir.join("own.bpf");
        let made = std::process::Command::new(env!("CARGO_BIN_EXE_stockade"))
            .args(["seccomp", "compile", text(&profile), "-o", text(&compiled)])
            .status();
        assert!(made.is_ok_and(|status| status.success()));
        common::set_mode(&compiled, 0o644);
        let outcome = explained(caller, &["--seccomp-bpf", text(&compiled)], call).expect(0);
        assert_eq!(outcome.value("a"), "EBADFD");
        let denial = only(&outcome, "getpriority");
        assert_eq!(
            (&denial["errno"], &denial["rule"]),
            (&77.into(), &Value::Null),
            "the rules of a custom profile are unknown: {denial}"
        );
    });
}

#[test]
fn a_flood_is_counted_in_bounded_space_and_ends_on_time() {
    for_each_caller(|caller| {
        let program = "for i in range(3000): libc.syscall(ctypes.c_long(161), b'/%d' % i)";
        let outcome = explained(caller, &[], program).expect(0);
        let listed = denials(&outcome, "seccomp");
        assert!((100..=300).contains(&listed.len()), "{} are listed", listed.len());
        let count: u64 =
            listed.iter().filter(|denial| denial["op"] == "chroot").filter_map(|d| d["count"].as_u64()).sum();
        assert_eq!(count, 3000);
        assert!(outcome.stderr.lines().count() < 40, "{outcome}");

        let endless = "while True: libc.syscall(ctypes.c_long(161), b'/')";
        let outcome = Run::new(caller)
            .opts(["--explain-denials", "--timeout", "500ms", "--kill-after", "100ms"])
            .python(&attack(endless))
            .go();
        assert_eq!(outcome.report()["status"], "timeout_wall", "{outcome}");
    });
}

#[test]
fn an_interrupted_call_is_recorded_once() {
    for_each_caller(|caller| {
        let program = r#"
import signal
signal.signal(signal.SIGALRM, lambda *_: None)
signal.siginterrupt(signal.SIGALRM, False)
signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
answers = set()
for i in range(2000):
    answers.add((libc.syscall(ctypes.c_long(161), b"/"), ctypes.get_errno()))
signal.setitimer(signal.ITIMER_REAL, 0)
print(answers)
"#;
        let outcome = explained(caller, &[], program).expect(0);
        assert_eq!(outcome.text(), "{(-1, 1)}\n");
        assert_eq!(only(&outcome, "chroot")["count"], 2000);
    });
}

#[test]
fn a_filter_of_the_workload_does_not_bypass_the_listener() {
    let program = r#"
import struct
def filter_of(*instructions):
    code = b"".join(struct.pack("=HBBI", *one) for one in instructions)
    buffer = ctypes.create_string_buffer(code)
    program = ctypes.create_string_buffer(struct.pack("=HxxxxxxQ", len(instructions), ctypes.addressof(buffer)))
    return buffer, program
# chroot asks a listener, all else is allowed
keep, program = filter_of((0x20, 0, 0, 0), (0x15, 0, 1, 161), (0x06, 0, 0, 0x7fc00000), (0x06, 0, 0, 0x7fff0000))
syscall("listen", 317, 1, 8, program)
syscall("ask", 317, 1, 0, program)
syscall("chroot", 161, b"/")
keep, program = filter_of((0x06, 0, 0, 0x7fff0000))
syscall("allow", 317, 1, 0, program)
syscall("chroot_again", 161, b"/")
"#;
    for_each_caller(|caller| {
        let outcome = explained(caller, &["--seccomp", "docker"], program).expect(0);
        assert_eq!(outcome.value("listen"), "EBUSY", "{outcome}");
        assert_eq!((outcome.value("ask").as_str(), outcome.value("allow").as_str()), ("OK", "OK"), "{outcome}");
        for name in ["chroot", "chroot_again"] {
            assert!(["EPERM", "ENOSYS"].contains(&outcome.value(name).as_str()), "{outcome}");
        }
    });
}

#[test]
fn a_program_is_looked_for_and_failed_with_as_without() {
    for_each_caller(|caller| {
        let dir = TempDir::new(caller);
        let profile = dir.file(
            "own.json",
            r#"{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [
                {"names": ["faccessat", "faccessat2", "access", "write", "sendmsg"], "action": "SCMP_ACT_ERRNO"}]}"#,
        );
        let script = dir.file("script", "#!/no/such/interpreter\n");
        common::set_mode(&script, 0o755);
        for options in [&[][..], &["--explain-denials"]] {
            let run = |command: &str| {
                let options = [options, &["--seccomp", text(&profile), "--ro", text(dir.path())]].concat();
                Run::new(caller).opts(options).cmd([command]).go()
            };
            run("true").expect(0);
            run("no-such-command").expect(127);
            assert!(run(text(&script)).expect(126).stderr.contains("interpreter"));
            assert!(run(text(&profile)).expect(126).stderr.contains("executable"));
        }
    });
}

#[test]
fn unsupported_explanations_are_reported_before_the_run() {
    for_each_caller(|caller| {
        let dir = TempDir::new(caller);
        let profile = dir.file(
            "own.json",
            r#"{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{"names": ["execve"], "action": "SCMP_ACT_ERRNO"}]}"#,
        );
        let cases: [(&[&str], &str); 3] = [
            (&["--seccomp", text(&profile)], "execve"),
            (&["--no-init"], "--no-init"),
            (&["--time-namespace"], "time namespace"),
        ];
        for (options, reason) in cases {
            let outcome = explained(caller, options, "pass").expect(125);
            assert!(outcome.stderr.contains(reason), "{outcome}");
        }
    });
}

/// Enables the kernel's auditing, only in a virtual machine.
const AUDIT_ON: &str = r#"
import socket, struct
audit = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 9)
status = struct.pack("=11I", 1, 1, *[0] * 9)
audit.send(struct.pack("=IHHII", 16 + len(status), 1001, 5, 1, 0) + status)
audit.recv(4096)
"#;

#[test]
fn what_landlock_denies_is_told_where_the_kernel_tells() {
    for_each_caller(|caller| {
        let program = r#"
import socket
for i in range(2): attempt("read", lambda: open("/usr/share/misc/none"))
attempt("list", lambda: os.listdir("/usr/share"))
attempt("lib", lambda: os.listdir("/usr/lib"))
s = socket.socket()
attempt("connect", lambda: s.connect(("127.0.0.1", 9)))
"#;
        let options =
            ["--network", "loopback", "--allow-connect", "80", "--allow-read", "/usr/lib", "--allow-read", "/usr/bin"];
        let options =
            [&options[..], &["--allow-read", "/lib", "--allow-read", "/etc", "--allow-read", "/usr/local:optional"]]
                .concat();
        // An older kernel cannot restrict ports, which this test does not need.
        let old: &[&str] = if host::landlock_abi().0 < 4 { &["--allow-degraded", "landlock"] } else { &[] };
        let options = [&options[..], old].concat();
        if caller == Caller::Root && host::is_uml() {
            assert_eq!(common::python_outside(caller, AUDIT_ON).0, 0);
        }
        let outcome = explained(caller, &options, program).expect(0);
        assert_eq!((outcome.value("list").as_str(), outcome.value("lib").as_str()), ("EACCES", "OK"), "{outcome}");
        let unheard = &outcome.report()["denials_unheard"];
        if caller == Caller::Unprivileged {
            assert!(unheard[0]["why"].as_str().is_some_and(|why| why.contains("only the host's root")), "{outcome}");
            assert!(outcome.stderr.contains("denials by landlock could not be recorded"), "{outcome}");
            return;
        }
        if unheard != &serde_json::json!([]) {
            return skip_part("Landlock's", unheard[0]["why"].as_str().unwrap());
        }
        let told = denials(&outcome, "landlock");
        let about = |op: &str, target: &str| {
            let found = told.iter().find(|denial| denial["op"] == op && denial["target"] == target);
            found.unwrap_or_else(|| panic!("{op} {target}: {outcome}")).clone()
        };
        let denial = about("fs.read_dir", "/usr/share");
        assert_eq!((&denial["count"], &denial["errno"]), (&1.into(), &libc::EACCES.into()), "{denial}");
        assert_eq!(denial["hint"], "--allow-read /usr/share would allow it");
        let denial = about("net.connect_tcp", "9");
        assert_eq!(denial["hint"], "--allow-connect 9 would allow it");
        let wider = [&options[..], &["--allow-read", "/usr/share", "--allow-connect", "9"]].concat();
        let outcome = explained(caller, &wider, program).expect(0);
        assert_eq!(denials(&outcome, "landlock"), [] as [Value; 0], "a hint did not help: {outcome}");
    });
}

/// A workload can make invalid calls without end; the list of them is bounded.
#[test]
fn made_up_calls_are_counted_together_beyond_a_bound() {
    for_each_caller(|caller| {
        let program = "for i in range(3000): syscall('a', 1000 + i, 0)";
        let outcome = explained(caller, &[], program).expect(0);
        let all = denials(&outcome, "seccomp");
        assert!(all.len() <= 514, "{} are listed", all.len());
        let others = only(&outcome, "others");
        assert_eq!((&others["rule"], &others["hint"]), (&Value::Null, &Value::Null));
        let count: u64 = all.iter().map(|denial| denial["count"].as_u64().unwrap()).sum();
        assert!(count >= 3000, "{count}");
    });
}

#[test]
fn a_death_without_a_listener_is_reported_as_unexplained() {
    for_each_caller(|caller| {
        let dir = TempDir::new(caller);
        for action in ["SCMP_ACT_TRAP", "SCMP_ACT_KILL_THREAD"] {
            let profile = format!(
                r#"{{ "defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{{ "names": ["getppid"], "action": "{action}" }}] }}"#
            );
            let file = dir.file("profile.json", profile);
            let run = explained(caller, &["--seccomp", text(&file)], "import os; os.getppid()");
            let run = run.expect(128 + nix::libc::SIGSYS).expect_status("seccomp_killed");
            assert!(run.stderr.contains("TRAP or KILL_THREAD") && !run.stderr.contains("shows which"), "{run}");
        }
    });
}
