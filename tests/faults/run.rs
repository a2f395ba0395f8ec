//! Faults around the supervisor: system calls, memory, descriptors, processes, clocks. The supervisor reports what failed, leaves
//! nothing behind, and never runs a workload that lacks a layer.

use std::collections::HashMap;
use std::os::unix::process::ExitStatusExt as _;
use std::process::Stdio;
use std::thread::sleep;
use std::time::Duration;

use crate::common;
use crate::common::clock::{PATIENCE, eventually};
use crate::common::host::{is_uml, may_trace};
use crate::common::{Caller, Outcome, Run, TempDir, callers, for_each_caller, inject, is_root, skip};
use nix::sys::signal::Signal;

/// A workload that prints how it is confined.
const CONFINED: &str = "grep -E '^(NoNewPrivs|Seccomp|CapEff|CapBnd):' /proc/self/status; readlink /proc/self/ns/net";

/// Fails if the workload ran without a layer, or if the fault was not reported.
#[track_caller]
fn assert_whole_or_named(outcome: &Outcome, fault: &str) {
    let text = outcome.text();
    for (name, value) in [("NoNewPrivs:", "1"), ("Seccomp:", "2"), ("CapEff:", "0000000000000000")] {
        for line in text.lines().filter(|line| line.starts_with(name)) {
            assert!(line.ends_with(value), "{fault}: {line}: {outcome}");
        }
    }
    if let Some(network) = text.lines().find(|line| line.starts_with("net:")) {
        let own = std::fs::read_link("/proc/self/ns/net").unwrap();
        assert_ne!(network, own.to_str().unwrap(), "{fault}: {outcome}");
    }
    match outcome.status.code() {
        Some(125) => assert!(outcome.stderr.contains("stockade: "), "{fault}: {outcome}"),
        // The shell or the program itself may have hit the fault.
        Some(_) => {}
        None => {
            let signal = outcome.status.signal();
            let by_allocation = [Some(libc::SIGABRT), Some(libc::SIGSEGV)].contains(&signal);
            assert!(by_allocation && fault.starts_with("memory"), "{fault}: {outcome}");
        }
    }
}

/// All system calls of a run's supervisor: name, and count among calls of that name.
fn calls(caller: Caller) -> Vec<(String, usize)> {
    let outcome = Run::new(caller).via(["strace", "-o", "../trace"]).cmd(["true"]).go().expect(0);
    let trace = std::fs::read_to_string(outcome.home.join("trace")).unwrap();
    let mut seen = HashMap::<&str, usize>::new();
    let (mut calls, mut begun) = (Vec::new(), false);
    for line in trace.lines().filter(|line| !line.starts_with(['-', '+'])) {
        let Some((name, _)) = line.split_once('(') else { continue };
        let nth = seen.entry(name).or_default();
        *nth += 1;
        // Not tried: process startup, calls that never fail, and memory allocation, where Rust aborts.
        let nothing = [
            "execve",
            "arch_prctl",
            "brk",
            "mmap",
            "mprotect",
            "mremap",
            "getrandom",
            "munmap",
            "madvise",
            "close",
            "exit_group",
            "set_robust_list",
            "rseq",
        ];
        if !nothing.contains(&name) && begun {
            calls.push((name.to_owned(), *nth));
        }
        // The calls before this one check the standard streams; Rust's runtime aborts if they fail.
        begun |= line.starts_with("rt_sigaction(SIGPIPE");
    }
    calls
}

/// As many calls as time allows, always the same ones; all of them with `STOCKADE_SWEEP=all`.
fn some(calls: Vec<(String, usize)>, most: usize) -> Vec<(String, usize)> {
    let all = std::env::var_os("STOCKADE_SWEEP").is_some_and(|wanted| wanted == "all");
    let every = if all { 1 } else { calls.len().div_ceil(most) };
    eprintln!("{} calls, of which every {every}. is tried", calls.len());
    calls.into_iter().step_by(every).collect()
}

fn with_fault(caller: Caller, call: &(String, usize), fault: &str) -> Run {
    let inject = format!("inject={}:{fault}:when={}", call.0, call.1);
    // timeout kills strace, not the traced supervisor; the run ends with strace.
    Run::new(caller).via(["timeout", "-s", "KILL", "20", "strace", "-o", "/dev/null", "-e", &inject])
}

#[test]
fn any_failing_call_leaves_no_layer_out() {
    if !may_trace() {
        return;
    }
    let errors = ["ENOMEM", "EMFILE", "EPERM", "EINTR", "ENOSPC", "EAGAIN", "EIO"];
    for caller in callers() {
        for (number, call) in some(calls(caller), 50).into_iter().enumerate() {
            let fault = format!("error={}", errors[number % errors.len()]);
            let name = format!("{} {} {fault}", call.0, call.1);
            eprintln!("{name}"); // the message of a leak does not contain it
            let mut run = with_fault(caller, &call, &fault).opts(["--timeout", "10s"]).sh(CONFINED).spawn();
            run.expect_killed(); // `stockade gc` removes the rest
            assert_whole_or_named(&run.finish(), &name);
        }
    }
}

/// Fails unless the run reached its end or reports what failed.
#[track_caller]
fn assert_ended(outcome: &Outcome, fault: &str) {
    match outcome.code() {
        0 => assert!(outcome.text().ends_with("whole\n"), "{fault}: {outcome}"),
        125..=127 => assert!(outcome.stderr.starts_with("stockade: "), "{fault}: {outcome}"),
        _ => panic!("{fault}: {outcome}"),
    }
}

/// The same for the calls of all three processes until execve. A workload that runs in spite of the fault is confined in every
/// way as without it.
#[test]
fn failing_calls_of_the_sandbox_leave_it_complete_or_absent() {
    if !inject::may_inject() {
        return;
    }
    let script = inject::confined("", "/tmp", "/home/sandbox");
    let run = |caller, what: &[&str]| {
        let words = if what.is_empty() { Vec::new() } else { inject::words(what) };
        Run::new(caller).via(words).opts(["--timeout", "10s", "--allow-write", "/tmp"]).sh(&script)
    };
    for caller in callers() {
        let plain = inject::normal(&run(caller, &[]).go().expect(0).text());
        assert!(plain.iter().any(|line| line == "touched /tmp"), "{plain:#?}");
        assert!(!plain.iter().any(|line| line == "touched /home/sandbox"), "Landlock: {plain:#?}");
        let outcome = run(caller, &["../calls"]).go().expect(0);
        inject::assert_whole(&outcome.text(), &plain, "none, only traced");
        let calls = inject::listed(&outcome.home.join("calls"));
        assert!(calls.len() > 400, "{}", calls.len());
        for ([process, number, nth], error) in inject::some(calls, 60) {
            let name = format!("process {process}, call {number}, time {nth}: {error}");
            eprintln!("{name}");
            let mut run = run(caller, &[&process, &number, &nth, error]).spawn();
            run.expect_killed();
            let outcome = run.finish();
            inject::assert_whole(&outcome.text(), &plain, &name);
            assert_ended(&outcome, &name);
        }
    }
}

#[test]
fn a_network_is_created_without_another_thread() {
    if !inject::may_inject() {
        return;
    }
    let script = format!("{CONFINED}; grep -c 127.0.0.1 /proc/net/fib_trie");
    for_each_caller(|caller| {
        for (process, call) in
            [("1", inject::CLONE3), ("2", inject::UNSHARE), ("2", inject::IOCTL), ("1", inject::SETNS)]
        {
            let fault = inject::words(&[process, call, "1", "EAGAIN"]);
            let outcome = Run::new(caller).via(fault).sh(&script).go().expect(0);
            assert_whole_or_named(&outcome, call);
            assert!(outcome.text().lines().last().is_some_and(|count| count != "0"), "lo is up: {outcome}");
        }
    });
}

#[test]
fn a_network_that_cannot_be_created_is_reported() {
    if !inject::may_inject() {
        return;
    }
    for_each_caller(|caller| {
        for (call, said) in [(inject::UNSHARE, "network namespace"), (inject::IOCTL, "loopback")] {
            let fault = inject::words(&["2", call, "1", "ENOSPC", "1", call, "1", "ENOSPC"]);
            let outcome = Run::new(caller).via(fault).cmd(["true"]).go().expect(125);
            assert!(outcome.stderr.contains(said) && outcome.stderr.contains("ENOSPC"), "{outcome}");
        }
    });
}

#[test]
fn a_network_that_was_not_entered_in_time_is_not_reported() {
    if !inject::may_inject() {
        return;
    }
    for_each_caller(|caller| {
        let held = inject::words(&["1", inject::SETNS, "1", "HOLD"]);
        let outcome = Run::new(caller).via(held).opts(["--timeout", "1s"]).cmd(["true"]).go().expect(124);
        let verified = outcome.report()["enforced"]["namespaces"].as_array().unwrap();
        assert!(verified.contains(&"mnt".into()) && !verified.contains(&"net".into()), "{outcome}");
    });
}

/// However long the verification takes, and whatever its result is.
#[test]
fn nothing_runs_before_the_supervisor_has_looked_at_its_namespaces() {
    if !may_trace() {
        return;
    }
    for_each_caller(|caller| {
        let outcome = Run::new(caller).via(["strace", "-o", "../trace"]).cmd(["true"]).go().expect(0);
        let trace = std::fs::read_to_string(outcome.home.join("trace")).unwrap();
        let before = trace.split_once("\"ns/user\"").unwrap().0;
        let (call, _) = before.lines().last().unwrap().split_once('(').unwrap();
        let call = (call.to_owned(), before.lines().filter(|line| line.starts_with(&format!("{call}("))).count());
        let late = "delay_enter=1000000";
        with_fault(caller, &call, late).cmd(["echo", "ran"]).go().expect(0);
        let outcome = with_fault(caller, &call, &format!("error=EIO:{late}")).cmd(["echo", "ran"]).go().expect(125);
        assert!(outcome.stderr.contains("user namespace") && outcome.text().is_empty(), "{outcome}");
    });
}

/// The same as for a full disk. A terminal that hung up gives the same errno, but is not an error.
#[test]
fn output_that_a_broken_disk_loses_is_an_error() {
    if !may_trace() {
        return;
    }
    for_each_caller(|caller| {
        let dir = TempDir::new(caller);
        let file = dir.file("out", "");
        let opened = std::fs::OpenOptions::new().append(true).open(&file).unwrap();
        let broken = ["strace", "-o", "/dev/null", "-P", file.to_str().unwrap(), "-e", "inject=write:error=EIO"];
        let run = Run::new(caller).via(broken).opts(["--output-limit", "1M"]);
        let outcome = run.streams(Stdio::null(), opened, Stdio::piped()).sh("echo lost").go().expect(125);
        assert!(outcome.stderr.contains("standard output") && outcome.stderr.contains("EIO"), "{outcome}");
    });
}

/// The kernel may kill the child before the supervisor verifies it; then the verification is not at fault.
#[test]
fn a_budget_too_small_to_start_in_is_reported_however_late_it_is_noticed() {
    if !may_trace() {
        return;
    }
    if !is_root() {
        return skip("not root");
    }
    let memory = ["-m", "64K"];
    let late = ["strace", "-o", "/dev/null", "-e", "inject=newfstatat,openat:delay_enter=5000"];
    let outcome = Run::new(Caller::Root).via(late).opts(memory).cmd(["true"]).go().expect(125);
    assert!(outcome.stderr.contains("memory budget: is too small"), "{outcome}");
}

#[test]
fn a_limit_on_processes_that_is_reached_for_a_moment_does_not_end_a_run() {
    if !inject::may_inject() {
        return;
    }
    for (process, call) in [("0", inject::CLONE3), ("1", inject::CLONE)] {
        let full = |times: usize| {
            let all: Vec<String> = (1..=times).map(|nth| nth.to_string()).collect();
            let faults: Vec<&str> = all.iter().flat_map(|nth| [process, call, nth, "EAGAIN"]).collect();
            Run::new(Caller::Root).via(inject::words(&faults)).cmd(["true"]).go()
        };
        full(2).expect(0);
        let outcome = full(7).expect(125);
        assert!(outcome.stderr.contains("a limit on processes was reached"), "{outcome}");
    }
}

/// A supervisor of root that cannot read its capabilities would give the workload the caller's own id on the host. An ordinary
/// user's does not look: it gives that id in any case.
#[test]
fn a_supervisor_that_cannot_see_its_capabilities_does_not_start() {
    if !inject::may_inject() {
        return;
    }
    if !is_root() {
        return skip("not root");
    }
    let run = Run::new(Caller::Root).via(inject::words(&["0", inject::CAPGET, "1", "EPERM"]));
    let outcome = run.cmd(["true"]).go().expect(125);
    assert!(outcome.stderr.contains("choosing the user ids: this process's capabilities"), "{outcome}");
}

/// The second failure is in the handling of the first. `stockade gc` removes anything left by then.
#[test]
fn any_failing_call_of_the_clean_up_is_reported_and_gc_removes_the_rest() {
    if !inject::may_inject() {
        return;
    }
    let script = inject::confined("", "/tmp", "/home/sandbox");
    for caller in callers() {
        let go = |what: &[&str]| {
            let words = if what.is_empty() { Vec::new() } else { inject::words(what) };
            let opts = ["--timeout", "10s", "--allow-write", "/tmp"];
            let mut run = Run::new(caller).via(words).opts(opts).sh(&script).spawn();
            run.expect_killed();
            run.finish()
        };
        let plain = inject::normal(&go(&[]).expect(0).text());
        let listed = |first: &[&str]| {
            let what: Vec<&str> = std::iter::once("../calls").chain(first.iter().copied()).collect();
            inject::listed(&go(&what).home.join("calls"))
        };
        for ([process, number, nth], error) in inject::some(listed(&[]), 10) {
            let first = [process.as_str(), &number, &nth, error];
            for ([process, number, nth], error) in inject::few(listed(&first), 4) {
                let name = format!("first {first:?}, then process {process}, call {number}, time {nth}: {error}");
                eprintln!("{name}");
                let what: Vec<&str> = first.into_iter().chain([process.as_str(), &number, &nth, error]).collect();
                let outcome = go(&what);
                inject::assert_whole(&outcome.text(), &plain, &name);
                // The failing call was the write of the error message; or the first call did not occur this time.
                if number != inject::WRITE || !outcome.stderr.is_empty() || outcome.code() != 125 {
                    assert_ended(&outcome, &name);
                }
            }
        }
    }
}

/// The process is killed from outside, in any of its calls.
#[test]
fn a_process_of_the_sandbox_that_is_killed_in_any_call_is_named_and_leaves_nothing() {
    if !inject::may_inject() {
        return;
    }
    let script = inject::confined("", "/tmp", "/home/sandbox");
    for caller in callers() {
        let run = |what: &[&str]| {
            let words = if what.is_empty() { Vec::new() } else { inject::words(what) };
            Run::new(caller).via(words).opts(["--timeout", "10s", "--allow-write", "/tmp"]).sh(&script).go()
        };
        let plain = inject::normal(&run(&[]).expect(0).text());
        let mut calls = inject::listed(&run(&["../calls"]).expect(0).home.join("calls"));
        calls.retain(|call| call[0] != "0");
        let mut missed = 0;
        for ([process, number, nth], _) in inject::some(calls, 40) {
            let name = format!("process {process}, killed in call {number}, time {nth}");
            eprintln!("{name}");
            let outcome = run(&[&process, &number, &nth, "KILL"]);
            inject::assert_whole(&outcome.text(), &plain, &name);
            if outcome.stderr.contains(inject::NOT_MADE) {
                // How many calls close the descriptors depends on their numbers, which a busy machine changes.
                missed += 1;
                assert!(missed < 4, "{name}: {outcome}");
            } else if process == "3" && number == inject::EXECVE {
                // Everything was set up and verified: this looks the same as a workload that is killed at once.
                outcome.expect(137).expect_status("signaled");
            } else {
                assert!(outcome.code() == 125 && outcome.stderr.starts_with("stockade: "), "{name}: {outcome}");
            }
        }
    }
}

/// Runs so short that they end before the supervisor waits: each returns its own status, and nothing accumulates.
#[test]
fn many_runs_one_after_the_other_end_right_and_nothing_grows() {
    let many = if sweeps_all() { 5000 } else { 75 };
    for_each_caller(|caller| {
        let keys = || {
            let text = std::fs::read_to_string("/proc/key-users").unwrap_or_default();
            let own = text.lines().find_map(|line| line.trim().strip_prefix(&format!("{}:", caller.ids().0)));
            own.and_then(|own| own.split_whitespace().nth(1)?.split('/').next()?.parse::<usize>().ok()).unwrap_or(0)
        };
        let before = keys();
        for index in 0..many {
            let (script, code, status) = match index % 4 {
                0 => ("exit 0", 0, "ok"),
                1 => ("exit 7", 7, "nonzero"),
                2 => ("kill -KILL $$", 137, "signaled"),
                _ => ("kill -TERM $$", 143, "signaled"),
            };
            Run::new(caller).sh(script).go().expect(code).expect_status(status);
        }
        // The kernel collects keyrings some time later.
        assert!(eventually(|| keys() <= before + many / 3), "{before} keys have become {}", keys());
    });
}

#[test]
fn a_hundred_at_once_end_on_time() {
    let many = if sweeps_all() { 1000 } else { 100 };
    for_each_caller(|caller| {
        let start = |index| {
            let script = format!("sleep 1; exit {}", index % 100);
            Run::new(caller).sh(&script).spawn()
        };
        let runs: Vec<_> = (0..many).map(start).collect();
        for (index, run) in runs.into_iter().enumerate() {
            run.finish().expect(index as i32 % 100);
        }
    });
}

fn sweeps_all() -> bool {
    std::env::var_os("STOCKADE_SWEEP").is_some_and(|wanted| wanted == "all")
}

#[test]
fn the_program_may_be_replaced_while_it_runs() {
    for_each_caller(|caller| {
        let place = common::TempDir::new(caller);
        let own = place.file("stockade", std::fs::read(env!("CARGO_BIN_EXE_stockade")).unwrap());
        common::set_mode(&own, 0o755);
        let report = place.join("report.json");
        let mut command = caller.command(&own);
        command.args(["run", "--report"]).arg(&report).args(["--", "sh", "-c", "echo on; read -r line; exit 9"]);
        command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped()).current_dir("/");
        let mut run = common::leaks::spawn(&mut command);
        let mut said = [0; 2];
        std::io::Read::read_exact(run.stdout.as_mut().unwrap(), &mut said).unwrap();
        let other = place.file("other", "another version");
        std::fs::rename(&other, &own).unwrap();
        drop(run.stdin.take());
        let status = run.wait().unwrap();
        common::leaks::forget(&run);
        assert_eq!(status.code(), Some(9), "{status}");
        let report: serde_json::Value = serde_json::from_slice(&std::fs::read(&report).unwrap()).unwrap();
        assert_eq!(report["status"], "nonzero");
    });
}

/// In a pid namespace with nearly no free process ids; since Linux 6.14 each namespace has a limit of its own.
#[test]
fn no_process_numbers_left_is_named() {
    let release = nix::sys::utsname::uname().unwrap().release().to_string_lossy().into_owned();
    let version: Vec<u32> = release.split(['.', '-']).take(2).filter_map(|number| number.parse().ok()).collect();
    if !is_root() || version < vec![6, 14] {
        return skip("kernel.pid_max is the whole host's before Linux 6.14, and takes root");
    }
    let program = "import os, signal, subprocess, sys\n\
        open('/proc/sys/kernel/pid_max', 'w').write('310')\n\
        others = []\n\
        while True:\n\
        \x20   try: pid = os.fork()\n\
        \x20   except OSError: break\n\
        \x20   if not pid:\n\
        \x20       signal.pause()\n\
        \x20   others.append(pid)\n\
        for free in range(1, 6):\n\
        \x20   pid = others.pop()\n\
        \x20   os.kill(pid, 9); os.waitpid(pid, 0)\n\
        \x20   pid = os.fork()\n\
        \x20   if not pid:\n\
        \x20       os.dup2(1, 2)\n\
        \x20       os.execv(sys.argv[1], [sys.argv[1], 'run', '--', '/bin/sh', '-c', sys.argv[2]])\n\
        \x20   print('free', free, 'status', os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)\n";
    let own = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", common::PYTHON, "-IS", "-c", program];
    let mut command = std::process::Command::new(own[0]);
    command.args(&own[1..]).arg(env!("CARGO_BIN_EXE_stockade")).arg("grep NoNewPrivs /proc/self/status");
    let output = common::output(&mut command);
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let of =
        |free| said.split(&format!("free {free} ")).nth(1).and_then(|rest| rest.lines().next()).unwrap_or_default();
    assert_eq!(of(1), "status 125", "{said}");
    assert!(said.starts_with("stockade: "), "{said}");
    assert!(said.contains("NoNewPrivs:\t1"), "with enough process ids it runs: {said}");
    assert!((1..6).all(|free| ["status 125", "status 0", "status 2"].contains(&of(free))), "{said}");
}

/// The limit is the host's, so only a virtual machine may change it; root is exempt from it.
#[test]
fn no_open_files_left_on_the_host_is_named() {
    let is_guest = std::fs::read_to_string("/proc/cmdline").is_ok_and(|line| line.contains("stockade.")) || is_uml();
    if !is_guest || !is_root() {
        return skip("setting fs.file-max takes a virtual machine");
    }
    let (most, used) = ("/proc/sys/fs/file-max", "/proc/sys/fs/file-nr");
    let before = std::fs::read_to_string(most).unwrap();
    for left in (0..96).step_by(8) {
        let used = std::fs::read_to_string(used).unwrap();
        let used: u64 = used.split_whitespace().next().unwrap().parse().unwrap();
        // The kernel counts in batches, so the remainder is approximate.
        std::fs::write(most, (used + left).to_string()).unwrap();
        let run = Run::new(Caller::Unprivileged).without_report().sh(CONFINED).with_orphans().spawn();
        sleep(Duration::from_millis(500));
        std::fs::write(most, &before).unwrap();
        let outcome = run.finish();
        // The dynamic loader may hit the limit first.
        if outcome.status.code() != Some(127) || outcome.stderr.contains("stockade") {
            assert_whole_or_named(&outcome, &format!("{left} files"));
        }
    }
}

#[test]
fn a_supervisor_killed_in_any_call_leaves_nothing() {
    if !may_trace() {
        return;
    }
    for caller in callers() {
        for call in some(calls(caller), 50) {
            eprintln!("{} {}", call.0, call.1);
            let mut run =
                with_fault(caller, &call, "signal=KILL").sh("sleep 1000").opts(["--timeout", "100ms"]).spawn();
            run.expect_killed();
            run.finish();
        }
    }
}

#[test]
fn too_few_descriptors_memory_or_processes_are_named() {
    for_each_caller(|caller| {
        let mut limits: Vec<String> = (3..24).step_by(2).map(|number| format!("--nofile={number}")).collect();
        limits.extend((1..14).step_by(2).map(|number| format!("--as={}", number << 20)));
        limits.extend((1..4).map(|number| format!("--nproc={number}")));
        limits.extend([0, 1, 4096].map(|number| format!("--fsize={number}")));
        for limit in limits {
            let name = if limit.starts_with("--as") { format!("memory {limit}") } else { limit.clone() };
            eprintln!("{name}");
            // A limit too small to load a program is reported by the dynamic loader, not by us.
            let outcome =
                Run::new(caller).without_report().via(["prlimit", &limit, "--"]).sh(CONFINED).with_orphans().go();
            assert_whole_or_named(&outcome, &name);
        }
    });
}

#[test]
fn a_stopped_supervisor_that_is_killed_leaves_nothing() {
    for_each_caller(|caller| {
        let mut run = Run::new(caller).sh("echo on; sleep 1000").spawn();
        run.wait_for("on");
        run.signal(Signal::SIGSTOP);
        sleep(Duration::from_millis(50));
        run.kill_supervisor();
        run.finish();
    });
}

#[test]
fn a_stopped_supervisor_ends_what_is_overdue_when_it_goes_on() {
    for_each_caller(|caller| {
        let run = Run::new(caller).opts(["--timeout", "300ms"]).sh("echo on; sleep 1000").spawn();
        run.wait_for("on");
        run.signal(Signal::SIGSTOP);
        sleep(Duration::from_millis(600));
        run.signal(Signal::SIGCONT);
        let outcome = run.finish().expect(124).expect_status("timeout_wall");
        assert!(outcome.wall < PATIENCE, "{outcome}");
    });
}

#[test]
fn a_thousand_interrupts_are_one_end() {
    for_each_caller(|caller| {
        let run = Run::new(caller).sh("trap '' INT; echo on; while :; do sleep 0.05; done").spawn();
        run.wait_for("on");
        for _ in 0..1000 {
            run.signal(Signal::SIGINT);
            sleep(Duration::from_millis(1)); // otherwise the kernel merges them
        }
        run.finish().expect(128 + Signal::SIGKILL as i32).expect_status("killed_by_user");
    });
}

#[test]
fn a_deadline_holds_though_every_processor_is_busy_on_time() {
    for_each_caller(|caller| {
        let busy = "echo on; for i in 1 2 3 4 5 6 7 8; do (while :; do :; done) & done; wait";
        let outcome = Run::new(caller).opts(["--timeout", "500ms"]).via(["nice", "-n", "19"]).sh(busy).go();
        assert!(outcome.wall < Duration::from_secs(4) + outcome.allowance, "{outcome}");
        outcome.expect(124).expect_status("timeout_wall");
    });
}

/// The wall clock is set during runs. Only in a virtual machine, which has its own clock.
#[test]
fn a_clock_that_jumps_changes_no_deadline_and_no_duration() {
    let is_guest = std::fs::read_to_string("/proc/cmdline").is_ok_and(|line| line.contains("stockade.")) || is_uml();
    if !is_guest || !is_root() {
        return skip("setting the clock takes a virtual machine");
    }
    let shift = |seconds: i64| {
        use nix::time::{ClockId, clock_gettime, clock_settime};
        let now = clock_gettime(ClockId::CLOCK_REALTIME).unwrap();
        clock_settime(ClockId::CLOCK_REALTIME, nix::sys::time::TimeSpec::new(now.tv_sec() + seconds, now.tv_nsec()))
            .unwrap();
    };
    for seconds in [3600, -3600, 10 * 365 * 86400, -86400] {
        let overdue = Run::new(Caller::Root).opts(["--timeout", "1s"]).sh("echo on; sleep 1000").spawn();
        let ends = Run::new(Caller::Root).opts(["--timeout", "30s"]).sh("echo on; sleep 1").spawn();
        overdue.wait_for("on");
        ends.wait_for("on");
        shift(seconds);
        let (overdue, ends) = (overdue.finish(), ends.finish());
        shift(-seconds);
        let overdue = overdue.expect(124).expect_status("timeout_wall");
        assert!(overdue.wall < PATIENCE, "{seconds}: {overdue}");
        let ends = ends.expect(0);
        let wall = ends.report()["usage"]["wall_us"].as_u64().unwrap();
        assert!((900_000..PATIENCE.as_micros() as u64).contains(&wall), "{seconds}: {wall} µs: {ends}");
    }
}
