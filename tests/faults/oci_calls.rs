//! System calls of commands about a container fail: the command reports it, or the container is confined as without the fault;
//! and `delete --force` removes everything.

use std::time::{Duration, Instant};

use crate::common::bundle::{Bundle, ours};
use crate::common::confined::{Before, by, confined, plainly, prepare, quietly, said_in};
use crate::common::{inject, leaks, text};

/// Checks that the state after a faulty command is valid and that everything can be deleted.
fn expect_known(bundle: &Bundle, fault: &str) {
    let state = bundle.about("state");
    let known = state.0.status.success() || state.err().contains("does not exist");
    assert!(known, "{fault}: its state is invalid: {}", state.err());
    // Leftovers need a record, or nothing would ever remove them.
    let left = bundle.left();
    assert!(state.0.status.success() || left == (vec![], vec![], false), "{fault}: left without a record: {left:?}");
    bundle.call(["delete", "--force", &bundle.id]).expect(0);
    bundle.expect_nothing_left(fault);
}

/// The container has stopped, because its waiting process was killed; or it lives, because the command ended before the call that
/// kills.
fn expect_stopped_or_spared(bundle: &Bundle, fault: &str) {
    let deadline = Instant::now() + Duration::from_secs(2);
    while bundle.state()["status"] != "stopped" {
        if Instant::now() > deadline {
            let state = bundle.state();
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", state["pid"])).unwrap_or_default();
            let lives = stat.rsplit(')').next().is_some_and(|rest| rest.starts_with(' ') && !rest.starts_with(" Z"));
            assert!(state["status"] == "created" && lives, "{fault}: {state}: {stat}");
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Makes calls of a command fail. If the command succeeds all the same, `holds` checks that it did what it reports.
fn sweep(bundle: &Bundle, before: Before, words: &[&str], most: usize, plain: &[String], holds: &dyn Fn(&str) -> bool) {
    prepare(bundle, before);
    let list = bundle.dir.join("calls");
    by(bundle, &inject::words(&[text(&list)]), words).expect(0);
    assert!(holds("none, only traced"), "{words:?}");
    let calls = inject::listed(&list);
    assert!(calls.len() > 20, "{words:?}: {}", calls.len());
    for ([process, number, nth], error) in inject::some(calls, most) {
        let fault = format!("{}, process {process}, call {number}, time {nth}: {error}", words[0]);
        eprintln!("{fault}");
        prepare(bundle, before);
        let called = by(bundle, &inject::words(&[&process, &number, &nth, error]), words);
        let complaint = called.err();
        match called.0.status.code() {
            Some(0) => assert!(holds(&fault), "{fault}: it reports success without having done it: {complaint}"),
            // nix panics if unlocking fails, which happens only at the very end.
            _ if complaint.contains("Failed to remove flock") => {}
            Some(_) => {
                assert!(
                    !complaint.is_empty() && !complaint.contains("panicked"),
                    "{fault}: {:?}: {complaint}",
                    called.0.status
                );
                inject::assert_whole(&called.out(), plain, &fault);
            }
            None => panic!("{fault}: {:?}: {complaint}", called.0.status),
        }
        expect_known(bundle, &fault);
    }
}

/// Whether a created container starts, and is confined as without the fault.
fn starts(bundle: &Bundle, fault: &str, plain: &[String]) -> bool {
    if !quietly(bundle, &["start", &bundle.id]) {
        // Its first process died of the fault after `create` had ended, and `state` shows that.
        return fault.contains("process 1, call 0,") && bundle.state()["status"] == "stopped";
    }
    let said = said_in(bundle, "said");
    inject::assert_whole(&said, plain, fault);
    said.ends_with("whole\n")
}

/// Runs a sweep if system calls can be made to fail here.
fn with(body: impl Fn(&Bundle, &[String])) {
    if !inject::may_inject() {
        return;
    }
    ours(|_| {
        leaks::adopt_orphans();
        let Some(bundle) = confined() else { return };
        let plain = plainly(&bundle);
        body(&bundle, &plain);
    });
}

#[test]
fn failing_calls_of_run_leave_no_layer_out() {
    with(|bundle, plain| {
        let holds = |fault: &str| {
            let said = said_in(bundle, "said");
            inject::assert_whole(&said, plain, fault);
            said.ends_with("whole\n") && bundle.state()["status"] == "running"
        };
        let words = ["run", "--detach", "--bundle", text(bundle.dir.path()), &bundle.id];
        sweep(bundle, Before::Nothing, &words, 90, plain, &holds);
    });
}

#[test]
fn failing_calls_of_exec_leave_no_layer_out() {
    with(|bundle, _| {
        let script = inject::confined("busybox", "/scratch", "/mounted");
        prepare(bundle, Before::Running);
        let plain = inject::normal(&bundle.call(["exec", &bundle.id, "sh", "-c", &script]).expect(0).out());
        let holds = |fault: &str| {
            let said = said_in(bundle, "said");
            inject::assert_whole(&said, &plain, fault);
            said.ends_with("whole\n")
        };
        sweep(bundle, Before::Running, &["exec", &bundle.id, "sh", "-c", &script], 60, &plain, &holds);
    });
}

/// The end of a process before it executed the program does not look like the end of the program.
#[test]
fn a_process_that_cannot_wait_or_is_killed_is_not_taken_for_the_program() {
    with(|bundle, _| {
        let words = ["exec", &bundle.id, "sh", "-c", "exit 7"];
        prepare(bundle, Before::Running);
        let list = bundle.dir.join("calls");
        by(bundle, &inject::words(&[text(&list)]), &words).expect(7);
        let own = inject::listed(&list).into_iter().filter(|[process, ..]| process != "0");
        let (waits, others): (Vec<_>, Vec<_>) = own
            .partition(|[_, number, _]| [inject::READ, inject::RECVFROM, inject::RECVMSG].contains(&number.as_str()));
        assert!(waits.len() > 1 && others.len() > 20, "{waits:?} {others:?}");
        let waits = waits.into_iter().map(|call| (call, "EPERM"));
        let killed = inject::few(others, 12).into_iter().map(|(call, _)| (call, "KILL"));
        for ([process, number, nth], fault) in waits.chain(killed) {
            prepare(bundle, Before::Running);
            let called = by(bundle, &inject::words(&[&process, &number, &nth, fault]), &words);
            let complaint = called.err();
            let fault = format!("process {process}, call {number}, time {nth}: {fault}");
            match called.0.status.code() {
                Some(7) if !fault.ends_with("KILL") => {}
                code => assert!(code == Some(255) && complaint.contains("error"), "{fault}: {code:?}: {complaint}"),
            }
            expect_known(bundle, &fault);
        }
    });
}

#[test]
fn failing_calls_of_create_and_start_leave_no_layer_out() {
    with(|bundle, plain| {
        let starts = |fault: &str| starts(bundle, fault, plain);
        let words = ["create", "--bundle", text(bundle.dir.path()), &bundle.id];
        sweep(bundle, Before::Nothing, &words, 30, plain, &starts);
        let started = |fault: &str| {
            let said = said_in(bundle, "out");
            inject::assert_whole(&said, plain, fault);
            said.ends_with("whole\n")
        };
        sweep(bundle, Before::Created, &["start", &bundle.id], 15, plain, &started);
    });
}

#[test]
fn failing_calls_of_other_commands_are_reported_or_harmless() {
    with(|bundle, plain| {
        let id = bundle.id.as_str();
        let is = |status: &'static str| move |_: &str| bundle.state()["status"] == status;
        let said = |word: &'static str| {
            move |_: &str| std::fs::read_to_string(bundle.dir.join("said")).unwrap().contains(word)
        };
        let ends = |_: &str| {
            bundle.wait_for("stopped");
            true
        };
        let gone = |_: &str| bundle.left() == (vec![], vec![], false);
        let limited = |_: &str| {
            let files = bundle.cgroups().into_iter().map(|group| group.join("pids.max"));
            files.filter_map(|file| std::fs::read_to_string(file).ok()).any(|text| text.trim() == "60")
        };
        sweep(bundle, Before::Running, &["pause", id], 8, plain, &is("paused"));
        sweep(bundle, Before::Paused, &["resume", id], 8, plain, &is("running"));
        sweep(bundle, Before::Running, &["update", "--pids-limit", "60", id], 12, plain, &limited);
        sweep(bundle, Before::Running, &["kill", id, "KILL"], 8, plain, &ends);
        sweep(bundle, Before::Stopped, &["delete", id], 15, plain, &gone);
        sweep(bundle, Before::Running, &["delete", "--force", id], 15, plain, &gone);
        sweep(bundle, Before::Running, &["state", id], 6, plain, &said("\"running\""));
        sweep(bundle, Before::Running, &["ps", id], 6, plain, &said("sleep"));
        sweep(bundle, Before::Running, &["list"], 6, plain, &said("CREATED"));
        sweep(bundle, Before::Running, &["events", "--stats", id], 6, plain, &said("\"stats\""));
    });
}

/// A locked directory without a record: its owner will write one in a moment.
#[test]
fn a_command_without_a_timeout_reads_the_state_at_once() {
    with(|bundle, _| {
        prepare(bundle, Before::Nothing);
        let directory = bundle.dir.join("state").join(&bundle.id);
        std::fs::create_dir_all(&directory).unwrap();
        let held = std::fs::File::open(&directory).unwrap();
        held.lock().unwrap();
        let called = by(bundle, &inject::words(&["0", inject::CLOCK_NANOSLEEP, "1", "ENOMEM"]), &["state", &bundle.id]);
        assert!(called.expect(0).out().contains("creating"));
        drop(held);
        std::fs::remove_dir(&directory).unwrap();
    });
}

/// The second failure is in the handling of the first.
#[test]
fn any_failing_call_of_the_clean_up_leaves_a_known_state_that_can_be_deleted() {
    with(|bundle, plain| {
        let words = ["create", "--bundle", text(bundle.dir.path()), &bundle.id];
        let list = bundle.dir.join("calls");
        let listed = |fault: &[&str]| {
            prepare(bundle, Before::Nothing);
            let what: Vec<&str> = std::iter::once(text(&list)).chain(fault.iter().copied()).collect();
            let code = by(bundle, &inject::words(&what), &words).0.status.code();
            assert!(matches!(code, Some(0 | 1)), "{fault:?}: {code:?}");
            inject::listed(&list)
        };
        for ([process, number, nth], error) in inject::some(listed(&[]), 10) {
            let first = [process.as_str(), &number, &nth, error];
            for ([process, number, nth], error) in inject::few(listed(&first), 5) {
                let fault = format!("first {first:?}, then process {process}, call {number}, time {nth}: {error}");
                eprintln!("{fault}");
                prepare(bundle, Before::Nothing);
                let what: Vec<&str> = first.into_iter().chain([process.as_str(), &number, &nth, error]).collect();
                let called = by(bundle, &inject::words(&what), &words);
                let complaint = called.err();
                match called.0.status.code() {
                    Some(0) => assert!(starts(bundle, &fault, plain), "{fault}: it cannot be started: {complaint}"),
                    _ if complaint.contains("Failed to remove flock") => {}
                    Some(1) if number == inject::WRITE && complaint.is_empty() => {} // this was the write of the error message
                    Some(1) => {
                        assert!(!complaint.is_empty() && !complaint.contains("panicked"), "{fault}: {complaint}")
                    }
                    code => panic!("{fault}: {code:?}: {complaint}"),
                }
                expect_known(bundle, &fault);
            }
        }
    });
}

/// The process is killed from outside, in any of its calls: `create` and `run` report it and leave nothing.
#[test]
fn a_process_that_is_killed_while_it_makes_a_container_is_named_and_nothing_is_left() {
    with(|bundle, plain| {
        let path = text(bundle.dir.path());
        for words in [&["create", "--bundle", path, &bundle.id][..], &["run", "--detach", "--bundle", path, &bundle.id]]
        {
            let list = bundle.dir.join("calls");
            prepare(bundle, Before::Nothing);
            by(bundle, &inject::words(&[text(&list)]), words).expect(0);
            let mut calls = inject::listed(&list);
            calls.retain(|call| call[0] != "0"); // other tests kill `create` itself
            assert!(calls.len() > 100, "{}", calls.len());
            let (mut named, mut late) = (0, 0);
            for ([process, number, nth], _) in inject::some(calls, 40) {
                let fault = format!("{}, process {process}, killed in call {number}, time {nth}", words[0]);
                eprintln!("{fault}");
                prepare(bundle, Before::Nothing);
                let called = by(bundle, &inject::words(&[&process, &number, &nth, "KILL"]), words);
                inject::assert_whole(&called.out(), plain, &fault);
                match called.0.status.code() {
                    // The container was complete before.
                    Some(0) => {
                        late += 1;
                        expect_stopped_or_spared(bundle, &fault);
                    }
                    Some(1) => {
                        named += 1;
                        assert!(
                            called.err().len() > 20 && !called.err().contains("panicked"),
                            "{fault}: {}",
                            called.err()
                        );
                        bundle.expect_nothing_left(&fault);
                    }
                    code => panic!("{fault}: {code:?}: {}", called.err()),
                }
                expect_known(bundle, &fault);
            }
            eprintln!("{named} were reported, {late} came too late");
            assert!(named > late, "{named}, {late}");
        }
    });
}
