//! Memory that runs out in a session.

use super::*;
use crate::common::{is_root, skip};

#[test]
fn a_command_that_uses_up_the_memory_of_its_session_dies_alone() {
    if !is_root() {
        return skip("only root is sure of a memory limit");
    }
    let session = Session::new(Caller::Root, &["-m", "96M"]);
    let other = session.background(&[&session.name, "sh", "-c", "mkfifo /tmp/go; read word < /tmp/go; exit 5"]);
    assert!(eventually(|| session.inspect()["running"].as_array().is_some_and(|all| all.len() == 1)));
    let path = session.home.dir("reports").join("report.json");
    let report = format!("--report={}", path.display());
    for (program, status) in [
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "signaled"),
        ("bytearray(500_000_000)", "oom"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "signaled"),
    ] {
        let killed = session.exec(&[&report, &session.name, PYTHON, "-c", program]);
        assert_eq!(killed.code, Some(137), "{killed:?}");
        let report: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        assert_eq!(report["status"], status, "{report}");
    }
    session.sh("echo > /tmp/go; echo alive").is(0, "alive\n");
    assert_eq!(outcome(other.wait_with_output().unwrap()).code, Some(5));
    // Faults of others, while what was killed is being freed, may end these others, but never the session.
    let faulting = ["sh", "-c", "while :; do sleep 0.02; done"];
    let others = [0; 3].map(|_| session.background(&[&[session.name.as_str()][..], &faulting].concat()));
    for _ in 0..3 {
        assert_eq!(session.exec(&[&session.name, PYTHON, "-c", "bytearray(500_000_000)"]).code, Some(137));
    }
    session.sh("echo alive").is(0, "alive\n");
    session.verb(&["kill"]).is(0, "");
    for other in others {
        other.wait_with_output().unwrap();
    }
}

/// Otherwise the kernel could end the session for the memory of a command that it has killed and not yet freed.
#[test]
fn the_kernel_takes_a_command_before_init_when_memory_runs_out() {
    let own = std::fs::read_to_string("/proc/self/oom_score_adj").unwrap().trim().parse::<i32>().unwrap().max(0);
    if own > 800 {
        return skip("the caller's own OOM score leaves no room");
    }
    let numbers = |text: &str| -> [i32; 2] {
        let numbers: Vec<i32> = text.lines().map(|line| line.parse().unwrap()).collect();
        numbers.try_into().unwrap()
    };
    let scores = "cat /proc/1/oom_score_adj /proc/self/oom_score_adj";
    // While init starts a command, it has the command's score.
    for_each_session(&[], |session| {
        let are_right = || {
            let [init, command] = numbers(&session.sh(scores).out);
            init >= own && command == init + 200
        };
        assert!(eventually(are_right), "{:?}", session.sh(scores));
    });
    for_each_session(&["--oom-score-adj", "900"], |session| {
        let are_right = || {
            let [init, command] = numbers(&session.sh(scores).out);
            init >= own && init <= own.max(500) && command == 900
        };
        assert!(eventually(are_right), "{:?}", session.sh(scores));
    });
}
