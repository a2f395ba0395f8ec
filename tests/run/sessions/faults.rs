//! Faults and deaths in every call of a session: of the program that makes it, of its supervisor, of its init, and of a client.
//! What is left is a session that works and confines as before, or none, and an error that names what failed.

use std::collections::HashMap;

use super::*;
use crate::common::clock::PATIENCE;
use crate::common::host::may_trace;

/// Prints how it is confined.
const CONFINED: &str = "grep -E '^(NoNewPrivs|Seccomp|CapEff|CapBnd):' /proc/self/status";
const WHOLE: &str = "CapEff:\t0000000000000000\nCapBnd:\t0000000000000000\nNoNewPrivs:\t1\nSeccomp:\t2\n";

/// Calls that are not tried: the start of a program, calls that cannot fail, and memory, without which Rust aborts.
const NOT_TRIED: [&str; 24] = [
    "execve",
    "restart_syscall",
    "arch_prctl",
    "brk",
    "mmap",
    "mprotect",
    "mremap",
    "getrandom",
    "munmap",
    "madvise",
    "exit_group",
    "exit",
    "set_robust_list",
    "rseq",
    "set_tid_address",
    "clone3",
    "close",
    "getuid",
    "geteuid",
    "getpid",
    "gettid",
    "getppid",
    "umask",
    "vfork",
];

/// The calls in a trace: name, and count among calls of that name in one process. Every `every`th, or all with
/// `STOCKADE_SWEEP=all`.
pub(super) fn calls(trace: &str, most: usize) -> Vec<(String, usize)> {
    let mut seen = HashMap::<(&str, &str), usize>::new();
    let mut found = Vec::new();
    for line in trace.lines() {
        let Some((pid, rest)) = line.split_once(' ') else { continue };
        let Some((name, _)) = rest.trim_start().split_once('(') else { continue };
        let is_named = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        if !is_named || name.starts_with("syscall_0x") || NOT_TRIED.contains(&name) {
            continue; // strace injects into calls that it knows by name alone
        }
        let nth = seen.entry((pid, name)).or_default();
        *nth += 1;
        let call = (name.to_owned(), *nth);
        if !found.contains(&call) {
            found.push(call);
        }
    }
    let all = std::env::var_os("STOCKADE_SWEEP").is_some_and(|wanted| wanted == "all");
    let every = if all { 1 } else { found.len().div_ceil(most) };
    eprintln!("{} calls, of which every {every}. is tried", found.len());
    found.into_iter().step_by(every).collect()
}

impl Session {
    /// The outcome of a command line that strace, as the same user, traces. It writes to files: strace has its streams open as
    /// long as it traces the session.
    pub(super) fn traced(&self, options: &[&str], words: &[&str]) -> Outcome {
        let mut command = self.caller.command("strace");
        command.args(["-D", "-qq"]).args(options).arg(&self.binary).args(words).env_clear();
        let plain = self.command(words);
        command.envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?)))).current_dir(self.home.path());
        let [out, err] = ["out", "err"].map(|name| self.home.join(name));
        command.stdin(Stdio::null()).stdout(std::fs::File::create(&out).unwrap());
        let status = command.stderr(std::fs::File::create(&err).unwrap()).status().unwrap();
        let read = |path| std::fs::read(path).unwrap();
        outcome(Output { status, stdout: read(out), stderr: read(err) })
    }

    /// Fails unless nothing is left.
    #[track_caller]
    pub(super) fn is_gone(&self, fault: &str) {
        let clock = Clock::start();
        let title = format!("stockade: init {}$", self.name);
        while self.processes(&title) > 0 || self.place().exists() {
            assert!(!clock.is_past(PATIENCE), "{fault}: {} inits, {:?}", self.processes(&title), self.ask(&["ps"]));
            self.verb(&["rm", "-f"]); // again and again: the fault may hit the first
            self.ask(&["gc"]);
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

#[test]
fn a_fault_in_a_call_leaves_a_whole_session_or_none() {
    if may_trace() {
        for_each_caller(faults_in_a_start);
    }
}

fn faults_in_a_start(caller: Caller) {
    let session = Session::planned(caller);
    let trace = session.home.join("trace");
    let made = session.traced(&["-f", "-o", trace.to_str().unwrap()], &["run", "-d", "--name", &session.name]);
    made.is(0, &format!("{}\n", session.name));
    session.sh(CONFINED).is(0, WHOLE);
    session.is_gone("none");
    let errors = ["ENOMEM", "EMFILE", "EPERM", "ENOSPC", "EAGAIN", "EIO"];
    for (at, (name, nth)) in calls(&std::fs::read_to_string(&trace).unwrap(), 30).into_iter().enumerate() {
        let kind =
            if at % 2 == 0 { "signal=KILL".to_owned() } else { format!("error={}", errors[at / 2 % errors.len()]) };
        let fault = format!("inject={name}:{kind}:when={nth}");
        let session = Session::planned(caller);
        let made = session.traced(&["-f", "-o", "/dev/null", "-e", &fault], &["run", "-d", "--name", &session.name]);
        match made.code {
            Some(0) => {
                // The fault may hit the programs of the command too: strace traces all that the session starts.
                let ran = session.sh(CONFINED);
                assert!(ran.out.lines().all(|line| WHOLE.lines().any(|whole| whole == line)), "{fault}: {ran:?}");
                assert!(ran.code != Some(125) || ran.err.contains("stockade: "), "{fault}: {ran:?}");
            }
            // The message itself may have been hit.
            Some(125) => assert!(made.err.contains("stockade: ") || name == "write", "{fault}: {made:?}"),
            None | Some(137) => {} // it was killed itself
            _ => panic!("{fault}: {made:?}"),
        }
        session.is_gone(&fault);
    }
}

#[test]
fn a_client_that_dies_in_any_call_leaves_no_command_behind() {
    if may_trace() {
        for_each_session(&[], deaths_of_a_client);
    }
}

fn deaths_of_a_client(session: &Session) {
    let (trace, name) = (session.home.join("trace"), session.name.as_str());
    let traced = session.traced(&["-f", "-o", trace.to_str().unwrap()], &["exec", name, "sh", "-c", "sleep 0.1"]);
    traced.is(0, "");
    let marker = format!("8{}", std::process::id());
    let script = format!("sleep {marker} & sleep {marker}");
    for (call, nth) in calls(&std::fs::read_to_string(&trace).unwrap(), 30) {
        let fault = format!("inject={call}:signal=KILL:when={nth}");
        let options = ["-o", "/dev/null", "-e", &fault];
        let died = session.traced(&options, &["exec", "--timeout", "300ms", name, "sh", "-c", &script]);
        assert!(matches!(died.code, None | Some(124 | 137)), "{fault}: {died:?}");
        session.sh("echo alive").is(0, "alive\n");
        assert!(eventually(|| session.inspect()["running"] == serde_json::json!([])), "{fault}");
    }
    session.has_processes(&session.sh(PROCESSES).out);
    assert!(eventually(|| session.processes(&format!("^sleep {marker}$")) == 0));
}
