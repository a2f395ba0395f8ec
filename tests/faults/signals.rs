//! Signals at any moment: a process that is stopped and continued, or gets a signal that it handles or ignores, behaves as
//! without it.

use crate::common::storm::{self, STORMS, times};
use crate::common::{Run, callers, inject};
use serde_json::Value;

/// The confinement in a report, without the values that differ between runs.
fn enforced(report: &Value) -> Value {
    let mut enforced = report["enforced"].clone();
    enforced["cgroup"]["path"] = Value::Null;
    for id in ["host_uid", "host_gid"] {
        enforced[id] = Value::Null;
    }
    enforced
}

#[test]
fn a_storm_of_signals_changes_no_run() {
    let script = inject::confined("", "/tmp", "/home/sandbox");
    for caller in callers() {
        let run = |words: Vec<String>| Run::new(caller).via(words).env("STORM", "../storm");
        let whole = |words| run(words).opts(["--allow-write", "/tmp"]).sh(&script).go().expect(0).expect_status("ok");
        let undisturbed = whole(Vec::new());
        let plain = inject::normal(&storm::calm(&undisturbed.text()));
        let mut sent = 0;
        for signals in STORMS.repeat(times()) {
            let name = format!("{caller:?}, {signals:?}");
            eprintln!("{name}");
            let outcome = whole(storm::words(signals));
            inject::assert_whole(&storm::calm(&outcome.text()), &plain, &name);
            assert!(outcome.text().ends_with("whole\n"), "{name}: {outcome}");
            assert_eq!(enforced(outcome.report()), enforced(undisturbed.report()), "{name}");
            sent += std::fs::read_to_string(outcome.home.join("storm")).unwrap().parse::<usize>().unwrap();
            run(storm::words(signals)).sh("exit 7").go().expect(7).expect_status("nonzero");
            run(storm::words(signals)).sh("kill -KILL $$").go().expect(137).expect_status("signaled");
            let late = run(storm::words(signals)).opts(["--timeout", "200ms"]).sh("echo on; exec sleep 1000");
            late.go().expect(124).expect_status("timeout_wall");
        }
        eprintln!("{sent} signals while it started and ran");
        assert!(sent > 20 * STORMS.len(), "{sent}");
    }
}
