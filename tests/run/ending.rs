//! What is said on standard error about the end of a run: which limit was reached, and a summary on request. Nothing else is.

use std::process::Stdio;
use std::time::Duration;

use crate::common::{Caller, PYTHON, Run, TempDir, for_each_caller, is_root, skip, text};

/// The lines of standard error that are ours.
fn said(stderr: &str) -> Vec<&str> {
    stderr.lines().filter(|line| line.starts_with("stockade: ") && !line.contains("warning: ")).collect()
}

#[test]
fn a_reached_limit_is_named_with_its_value_and_option() {
    let cases: [(&[&str], &str, i32, &str); 6] = [
        (
            &["--timeout", "200ms", "--kill-after", "50ms"],
            "trap '' TERM; sleep 100",
            124,
            "stockade: time limit of 200ms reached (--timeout); killed",
        ),
        (
            &["--timeout", "200ms"],
            "exec sleep 100",
            124,
            "stockade: time limit of 200ms reached (--timeout); ended by SIGTERM",
        ),
        (
            &["--timeout", "200ms"],
            "trap 'exit 0' TERM; sleep 100 & wait",
            124,
            "stockade: time limit of 200ms reached (--timeout); it exited when it was asked to end",
        ),
        (
            &["--idle-timeout", "200ms"],
            "exec sleep 100",
            124,
            "stockade: no output for 200ms (--idle-timeout); ended by SIGTERM",
        ),
        (
            &["--output-limit", "1K,kill"],
            "exec yes",
            137,
            "stockade: output limit of 1K reached (--output-limit); killed",
        ),
        (
            &["--output-limit", "10"],
            "echo 0123456789abcdef",
            0,
            "stockade: only the first 10 of 17 bytes of standard output were passed on (--output-limit)",
        ),
    ];
    for_each_caller(|caller| {
        for (options, script, code, line) in cases {
            let run = || Run::new(caller).without_report().opts(options.iter().copied()).sh(script);
            let outcome = run().go().expect(code);
            assert_eq!(said(&outcome.stderr), [line], "{outcome}");
            assert!(!outcome.text().contains("stockade"), "{outcome}");
            let quiet = run().opts(["--quiet"]).go().expect(code);
            assert_eq!(said(&quiet.stderr), [""; 0], "{quiet}");
        }
        let spin = "while :; do :; done";
        let outcome = Run::new(caller).without_report().opts(["--cpu-time", "100ms"]).sh(spin).go().expect(124);
        let lines = said(&outcome.stderr);
        assert!(
            lines.len() == 1 && lines[0].starts_with("stockade: CPU time limit of 100ms reached (--cpu-time)"),
            "{outcome}"
        );
    });
}

#[test]
fn a_reader_that_stalls_does_not_hold_up_the_end() {
    for_each_caller(|caller| {
        let (reader, writer) = std::io::pipe().unwrap();
        let options = ["--timeout", "300ms", "--kill-after", "100ms"];
        let run = Run::new(caller).opts(options).streams(Stdio::null(), writer.try_clone().unwrap(), writer).sh("yes");
        let outcome = run.go().expect(124);
        assert!(outcome.wall < Duration::from_secs(4) + outcome.allowance, "{outcome}");
        drop(reader);
    });
}

/// Only what stockade knows is said: an exit code of 137 or 124 of the command's own proves nothing.
#[test]
fn an_end_of_its_own_is_not_commented() {
    for_each_caller(|caller| {
        for script in ["exit 124", "kill -9 $$", "exit 137", "kill -XCPU $$", "true"] {
            let options = ["--timeout", "50s", "--output-limit", "1M", "--pids-limit", "20"];
            let outcome =
                Run::new(caller).without_report().opts(options).opts(["--allow-degraded", "pids"]).sh(script).go();
            assert_eq!(said(&outcome.stderr), [""; 0], "{outcome}");
        }
    });
}

#[test]
fn reached_limits_of_memory_and_processes_are_named() {
    if !is_root() || Run::new(Caller::Root).opts(["-m", "64M", "--require-budget"]).cmd(["true"]).go().code() != 0 {
        return skip("no cgroup has a memory controller");
    }
    let root = || Run::new(Caller::Root).without_report().opts(["-m", "64M", "--pids-limit", "20"]);
    let outcome = root().cmd([PYTHON, "-c", "bytearray(500_000_000)"]).go().expect(137);
    assert_eq!(
        said(&outcome.stderr),
        ["stockade: memory limit of 64M reached (--memory); the kernel killed 1 process"]
    );
    let forks = "import os, time\nfor _ in range(30):\n    try:\n        if not os.fork(): time.sleep(2); os._exit(0)\n    except OSError: pass";
    let outcome = root().cmd([PYTHON, "-c", forks]).go().expect(0);
    let lines = said(&outcome.stderr);
    assert!(
        lines.len() == 1 && lines[0].starts_with("stockade: limit of 20 processes reached (--pids-limit); "),
        "{outcome}"
    );
    assert!(lines[0].ends_with("forks refused"), "{outcome}");
}

#[test]
fn a_quiet_run_prints_errors_alone() {
    for_each_caller(|caller| {
        let workspace = TempDir::new(caller);
        let options = ["--workspace", text(workspace.path()), "--seccomp-allow", "setuid-bits"];
        let run = || Run::new(caller).without_report().opts(options).cmd(["true"]);
        let warned = run().go().expect(0);
        assert!(warned.stderr.contains("warning: "), "{warned}");
        assert_eq!(run().opts(["-q"]).go().expect(0).stderr, "");
        let error = Run::new(caller).without_report().opts(["-q"]).cmd(["no-such-command"]).go().expect(127);
        assert!(error.stderr.contains("no-such-command"), "{error}");
    });
}

#[test]
fn a_summary_has_five_lines_and_says_what_was_not_measured() {
    for_each_caller(|caller| {
        let outcome = Run::new(caller).opts(["--summary", "--quiet"]).sh("echo out; exit 3").go().expect(3);
        assert_eq!(outcome.text(), "out\n");
        let lines: Vec<&str> = outcome.stderr.lines().collect();
        let names: Vec<&str> = lines.iter().filter_map(|line| line.split_whitespace().next()).collect();
        assert_eq!(names, ["stockade:", "status", "wall", "cpu", "memory", "denials"], "{outcome}");
        assert!(lines[1].ends_with("nonzero, exit code 3") && lines[5].contains("not recorded"), "{outcome}");
        let measured = !outcome.report()["usage"]["memory"]["peak_bytes"].is_null();
        assert_eq!(lines[4].contains("not measured"), !measured, "{outcome}");
        let counted = Run::new(caller).opts(["--summary", "--explain-denials"]).cmd(["true"]).go().expect(0);
        assert!(counted.stderr.lines().any(|line| line.trim() == "denials  0 in all"), "{counted}");
    });
}
