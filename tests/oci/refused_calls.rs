//! A profile may refuse any single call: nothing of ours but the execve is made under the filter of a container.
//!
//! The program makes two calls, so every other refused call must not change anything. A sample of calls runs by default: all
//! those that a start of ours makes, and some of the rest. `STOCKADE_SWEEP=all` sweeps every call and action.

use std::collections::BTreeSet;
use std::process::Stdio;

use serde_json::{Value, json};
use stockade_seccomp::Arch;

use crate::common::bundle::{Bundle, Runtime, ours};
use crate::common::{self, clock::eventually, has_program, skip, text};

/// Prints a word and exits with 0. With an argument it waits instead, by one of two calls.
const PROGRAM: &str = r#"
static long call(long number, long a, long b, long c) {
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
    return result;
}
__attribute__((used)) static void start(long *stack) {
    if (stack[0] > 1)
        for (;;) { call(**(char **)(stack + 2) == 'p' ? 34 : 7, 0, 0, -1); }
    call(1, 1, (long)"ran\n", 4);
    call(231, 0, 0, 0);
    call(60, 0, 0, 0);
    __builtin_trap();
}
__asm__(".globl _start\n_start: mov %rsp,%rdi\nandq $-16,%rsp\ncall start\n");
"#;

/// How a container is started.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Mode {
    Run,
    CreateAndStart,
    /// `exec`, which joins the pid namespace.
    Exec,
}

/// A bundle that runs the program above.
fn bundle(runtime: Runtime, no_new_privs: bool) -> Option<Bundle> {
    if !cfg!(target_arch = "x86_64") || !has_program("gcc") {
        skip("no C compiler for x86_64");
        return None;
    }
    let mut bundle = Bundle::new(runtime, "")?;
    let program = common::compiled("gcc", &["-static", "-nostdlib", "-O1"], PROGRAM).unwrap();
    std::fs::copy(program, bundle.rootfs().join("says")).unwrap();
    bundle.config["process"]["args"] = json!(["/says"]);
    bundle.config["process"]["noNewPrivileges"] = json!(no_new_privs);
    Some(bundle)
}

fn refusing(call: &str, action: &str) -> Value {
    json!({ "defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{ "names": [call], "action": action }] })
}

/// The exit code and output of the program, and the errors of the runtime.
fn outcome(bundle: &mut Bundle, mode: Mode, call: &str) -> (Option<i32>, String, String) {
    let path = text(bundle.dir.path()).to_owned();
    match mode {
        Mode::Run => {
            let called = bundle.run();
            (called.0.status.code(), called.out(), called.err())
        }
        Mode::CreateAndStart => {
            let created = bundle.create();
            let started = bundle.about("start");
            eventually(|| !matches!(bundle.state()["status"].as_str(), Some("created" | "running")));
            let code = created.0.status.code().filter(|code| *code != 0).or(started.0.status.code());
            let printed = if created.0.status.success() { bundle.printed() } else { String::new() };
            bundle.call(["delete", "--force", &bundle.id]);
            (code, printed, if created.0.status.success() { started.err() } else { created.err() })
        }
        Mode::Exec => {
            bundle.config["process"]["args"] = json!(["/says", if call == "pause" { "nanosleep" } else { "pause" }]);
            let mut command = bundle.command(["run", "--detach", "--bundle", &path, &bundle.id]);
            let out = std::fs::File::create(bundle.dir.join("out")).unwrap();
            let ran = command.stdout(Stdio::null()).stderr(out).status().unwrap();
            bundle.config["process"]["args"] = json!(["/says"]);
            let called = bundle.call(["exec", &bundle.id, "/says"]);
            bundle.call(["delete", "--force", &bundle.id]);
            match ran.success() {
                true => (called.0.status.code(), called.out(), called.err()),
                false => (ran.code(), String::new(), bundle.printed()),
            }
        }
    }
}

/// Whether the outcome follows from the refused call alone.
fn is_expected(mode: Mode, call: &str, action: &str, (code, out, err): &(Option<i32>, String, String)) -> bool {
    let kills = matches!(action, "SCMP_ACT_KILL_PROCESS" | "SCMP_ACT_KILL_THREAD" | "SCMP_ACT_TRAP");
    let named = "the seccomp profile refuses execve";
    match (call, kills) {
        // The program of the container cannot run either.
        ("execve", true) if mode == Mode::Exec => out.is_empty() && err.contains("stopped container"),
        // `start` returns when the program was executed or its process has ended, as runc's does.
        ("execve", true) => out.is_empty() && err.is_empty() && (*code == Some(159) || mode != Mode::Run),
        ("execve", false) => out.is_empty() && err.contains(named) && *code != Some(0),
        ("write", true) => out.is_empty() && (*code == Some(159) || mode == Mode::CreateAndStart),
        ("write", false) => (*code, out.as_str()) == (Some(0), ""),
        ("exit_group", true) => out == "ran\n" && (*code == Some(159) || mode == Mode::CreateAndStart),
        _ => (*code, out.as_str(), err.as_str()) == (Some(0), "ran\n", ""),
    }
}

/// An agent that answers every call of every listener that it gets with "continue".
const AGENT: &str = r#"
import fcntl, os, select, socket, struct, sys, threading
def serve(fd):
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    while not any(events & (select.POLLHUP | select.POLLERR) for _, events in poll.poll()):
        try:
            call = fcntl.ioctl(fd, 0xC0502100, bytes(80))
            fcntl.ioctl(fd, 0xC0182101, struct.pack("QqiI", struct.unpack_from("Q", call)[0], 0, 0, 1))
        except OSError:
            pass
    os.close(fd)
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen()
while True:
    message, fds, *_ = socket.recv_fds(listener.accept()[0], 65536, 1)
    threading.Thread(target=serve, args=fds, daemon=True).start()
"#;

/// Every native call that has a name.
fn all_calls() -> Vec<&'static str> {
    (0..1024).filter_map(|number| Arch::NATIVE.name(number)).collect()
}

/// The calls that a start of ours makes in any process, and every fortieth of the others.
fn sample() -> Vec<&'static str> {
    if std::env::var_os("STOCKADE_SWEEP").is_some_and(|wanted| wanted == "all") {
        return all_calls();
    }
    const OWN: [&str; 34] = [
        "read",
        "write",
        "close",
        "mmap",
        "munmap",
        "brk",
        "fcntl",
        "ioctl",
        "dup2",
        "dup3",
        "getcwd",
        "fchdir",
        "chdir",
        "faccessat2",
        "openat2",
        "setgroups",
        "setresuid",
        "setresgid",
        "getresuid",
        "capset",
        "capget",
        "prctl",
        "prlimit64",
        "setsid",
        "umask",
        "rt_sigaction",
        "rt_sigprocmask",
        "close_range",
        "clone",
        "clone3",
        "sendmsg",
        "recvmsg",
        "exit_group",
        "execve",
    ];
    let own: BTreeSet<_> = OWN.into_iter().collect();
    let others = all_calls().into_iter().filter(|call| !own.contains(call)).step_by(40);
    OWN.into_iter().chain(others).collect()
}

fn sweep(mode: Mode, no_new_privs: bool, actions: &[&str]) {
    ours(|runtime| {
        let Some(mut bundle) = bundle(runtime, no_new_privs) else { return };
        let mut wrong = Vec::new();
        let calls = sample();
        for action in actions {
            for call in &calls {
                bundle.config["linux"]["seccomp"] = refusing(call, action);
                let found = outcome(&mut bundle, mode, call);
                if !is_expected(mode, call, action, &found) {
                    wrong.push((*action, *call, found));
                }
            }
        }
        assert!(wrong.is_empty(), "{mode:?}, no_new_privs {no_new_privs}: {wrong:#?}");
        eprintln!("{mode:?}: {} calls, {} actions", calls.len(), actions.len());
    });
}

const FAILS: [&str; 2] = ["SCMP_ACT_ERRNO", "SCMP_ACT_TRACE"];
const KILLS: [&str; 3] = ["SCMP_ACT_KILL_PROCESS", "SCMP_ACT_KILL_THREAD", "SCMP_ACT_TRAP"];

/// In the sample one action of each kind; in the sweep all of them.
fn some(actions: &[&'static str]) -> Vec<&'static str> {
    let all = std::env::var_os("STOCKADE_SWEEP").is_some_and(|wanted| wanted == "all");
    actions.iter().copied().take(if all { actions.len() } else { 1 }).collect()
}

#[test]
fn a_container_runs_whatever_call_its_profile_refuses() {
    sweep(Mode::Run, false, &some(&FAILS));
}

#[test]
fn a_container_runs_whatever_call_its_profile_kills() {
    sweep(Mode::Run, false, &some(&KILLS));
}

#[test]
fn a_container_without_new_privileges_runs_whatever_call_its_profile_refuses() {
    sweep(Mode::Run, true, &some(&[FAILS.as_slice(), &KILLS].concat()));
}

#[test]
fn a_container_starts_whatever_call_its_profile_kills() {
    sweep(Mode::CreateAndStart, false, &some(&[KILLS.as_slice(), &FAILS].concat()));
    if std::env::var_os("STOCKADE_SWEEP").is_some() {
        sweep(Mode::CreateAndStart, true, &some(&[KILLS.as_slice(), &FAILS].concat()));
    }
}

#[test]
fn exec_runs_whatever_call_the_profile_kills() {
    sweep(Mode::Exec, false, &some(&[KILLS.as_slice(), &FAILS].concat()));
}

#[test]
fn exec_without_new_privileges_runs_whatever_call_the_profile_refuses() {
    sweep(Mode::Exec, true, &some(&[FAILS.as_slice(), &KILLS].concat()));
}

/// With a listener, the program itself may be the first to make a call that its agent decides.
#[test]
fn a_container_runs_whatever_call_its_profile_sends_to_an_agent() {
    ours(|runtime| {
        for no_new_privs in [false, true] {
            let Some(mut bundle) = bundle(runtime, no_new_privs) else { return };
            let path = bundle.dir.join("agent.sock");
            bundle.dir.file("agent.py", AGENT);
            let mut agent = std::process::Command::new(common::PYTHON);
            let mut agent = agent.arg(bundle.dir.join("agent.py")).arg(&path).stdin(Stdio::null()).spawn().unwrap();
            assert!(eventually(|| path.exists()));
            let mut wrong = Vec::new();
            for mode in [Mode::Run, Mode::CreateAndStart, Mode::Exec] {
                for call in sample() {
                    bundle.config["linux"]["seccomp"] = refusing(call, "SCMP_ACT_NOTIFY");
                    bundle.config["linux"]["seccomp"]["listenerPath"] = json!(path);
                    let found = outcome(&mut bundle, mode, call);
                    bundle.config["process"]["args"] = json!(["/says"]);
                    let expected = match call {
                        "write" => found.2.contains("SCMP_ACT_NOTIFY cannot be used for the write syscall"),
                        _ => (found.0, found.1.as_str(), found.2.as_str()) == (Some(0), "ran\n", ""),
                    };
                    if !expected {
                        wrong.push((mode, call, found));
                    }
                }
            }
            agent.kill().unwrap();
            agent.wait().unwrap();
            assert!(wrong.is_empty(), "no_new_privs {no_new_privs}: {wrong:#?}");
        }
    });
}

/// An early filter sends the calls of `startContainer` hooks to the agent. One that is installed last has no listener yet.
#[test]
fn calls_reach_the_agent_of_an_early_or_a_late_filter_and_those_of_hooks_an_early_one() {
    ours(|runtime| {
        let Some(mut bundle) = bundle(runtime, true) else { return };
        let path = bundle.dir.join("agent.sock");
        bundle.dir.file("agent.py", AGENT);
        let mut agent = std::process::Command::new(common::PYTHON);
        let mut agent = agent.arg(bundle.dir.join("agent.py")).arg(&path).stdin(Stdio::null()).spawn().unwrap();
        assert!(eventually(|| path.exists()));
        bundle.mount("/tmp", "tmpfs", "tmpfs", &[]);
        // A filter that is installed last, because it refuses a call of the runtime's.
        bundle.config["process"]["args"] = json!(["/bin/busybox", "mkdir", "/tmp/made"]);
        bundle.config["linux"]["seccomp"] = refusing("mkdir", "SCMP_ACT_NOTIFY");
        bundle.config["linux"]["seccomp"]["listenerPath"] = json!(path);
        let other = json!({ "names": ["munmap"], "action": "SCMP_ACT_ERRNO" });
        bundle.config["linux"]["seccomp"]["syscalls"].as_array_mut().unwrap().push(other);
        bundle.run().expect(0);
        bundle.config["process"]["args"] = json!(["/says"]);
        bundle.config["hooks"]["startContainer"] =
            json!([{ "path": "/bin/busybox", "args": ["busybox", "mkdir", "/tmp/made"] }]);
        bundle.config["linux"]["seccomp"] = refusing("mkdir", "SCMP_ACT_NOTIFY");
        bundle.config["linux"]["seccomp"]["listenerPath"] = json!(path);
        assert_eq!(bundle.run().expect(0).out(), "ran\n");
        let other = json!({ "names": ["wait4"], "action": "SCMP_ACT_ERRNO" });
        bundle.config["linux"]["seccomp"]["syscalls"].as_array_mut().unwrap().push(other);
        bundle.run().expect(1).expect_error("Function not implemented");
        agent.kill().unwrap();
        agent.wait().unwrap();
    });
}
