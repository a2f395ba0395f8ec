//! A command of a session: limits and denials of its own.

use super::*;
use crate::common::{is_root, skip};

/// The refusal where commands have no cgroups of v2, or these no controllers.
const NO_LIMITS: [&str; 2] = ["cannot create a cgroup of v2", "does not have the controller"];

#[test]
fn limits_of_a_command_are_its_own() {
    if !is_root() {
        return skip("only root is sure of a cgroup");
    }
    let session = Session::new(Caller::Root, &[]);
    let name = session.name.as_str();
    let grow = "import sys\nbytearray(100_000_000)\nprint('grown')";
    let bounded = session.exec(&["-m", "64M", name, PYTHON, "-c", grow]);
    if NO_LIMITS.iter().any(|reason| bounded.err.contains(reason)) && bounded.code == Some(125) {
        return skip("no cgroup here has a memory controller of v2");
    }
    assert_eq!(bounded.code, Some(137), "{bounded:?}");
    assert!(
        bounded.err.contains("memory limit of 64M reached (--memory); the kernel killed 1 process\n"),
        "{bounded:?}"
    );
    session.exec(&[name, PYTHON, "-c", grow]).is(0, "grown\n");
    let fork = "import os, time\nmade = 0\ntry:\n for _ in range(20):\n  if os.fork() == 0: time.sleep(60)\n  made += 1\nexcept OSError: \
                pass\nprint(made)";
    session.exec(&["--pids-limit", "8", name, PYTHON, "-c", fork]).is(0, "7\n");
    session.exec(&[name, PYTHON, "-c", fork]).is(0, "20\n");
    let path = session.home.join("report.json");
    let report = format!("--report={}", path.display());
    let spin = "import time\nend = time.monotonic() + 0.6\nwhile time.monotonic() < end: pass";
    session.exec(&["--cpus", "0.2", &report, name, PYTHON, "-c", spin]).is(0, "");
    let report: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let cpu = report["usage"]["cpu"]["total_us"].as_u64().unwrap();
    assert!(cpu < 400_000, "{cpu} us of processor time in 600 ms");
}

/// Without a cgroup, the signal must not stop our process beside the command instead of it.
#[test]
fn a_command_can_be_stopped_and_continued() {
    let script = "(while :; do echo x; sleep 0.01; done) & while :; do echo x; sleep 0.01; done";
    for_each_session(&["--", "sh", "-c", script], |session| {
        let count = || session.verb(&["logs"]).out.len();
        assert!(eventually(|| count() > 0));
        for _ in 0..2 {
            session.verb(&["kill", "-s", "STOP"]).is(0, "");
            std::thread::sleep(Duration::from_millis(50));
            let stopped = count();
            session.sh("sleep 0.2; echo alive").is(0, "alive\n");
            assert_eq!(count(), stopped);
            session.verb(&["kill", "-s", "CONT"]).is(0, "");
            assert!(eventually(|| count() > stopped));
        }
        session.verb(&["kill", "-s", "STOP"]).is(0, "");
        session.verb(&["stop", "-t", "100ms"]).is(0, "");
        assert_eq!(session.row().unwrap()["state"], "ended");
    });
}

#[test]
fn denials_of_a_command_are_explained() {
    for_each_session(&[], |session| {
        let script = "mount -t tmpfs x /mnt 2>/dev/null; echo ran";
        let path = session.home.dir("reports").join("report.json");
        let report = format!("--report={}", path.display());
        let explained = session.exec(&["--explain-denials", &report, &session.name, "sh", "-c", script]);
        explained.is(0, "ran\n");
        assert!(explained.err.contains("mount"), "{explained:?}");
        let report: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        assert!(report["denials"].as_array().is_some_and(|all| !all.is_empty()), "{report}");
        session.sh("echo alive").is(0, "alive\n");
    });
}
