//! Faults and deaths in every call while a session serves files: of its supervisor, its init, its file server, and `stockade cp`.

use std::collections::HashMap;

use super::cp::listing;
use super::faults::calls;
use super::*;
use crate::common::host::may_trace;

/// Requests of every kind. Each is answered, unless the session ends.
const REQUESTS: &str = r#"
session = Session(sys.argv[1])
try:
    session.ask("remove", path="/tmp/f", recursive=True)
    for op, fields in [
        ("make_dir", dict(path="/tmp/f/d", parents=True)),
        ("open", dict(path="/tmp/f/a", access="write", create=True)),
        ("symlink", dict(path="/tmp/f/l", target="a")),
        ("hard_link", dict(path="/tmp/f/a", to="/tmp/f/h")),
        ("set_attributes", dict(path="/tmp/f/a", mode=0o600, modified_ns=1)),
        ("stat", dict(path="/tmp/f/a")),
        ("list", dict(path="/tmp/f")),
        ("rename", dict(path="/tmp/f/a", to="/tmp/f/b")),
        ("remove", dict(path="/tmp/f", recursive=True)),
    ]:
        session.send(op, **fields)
        reply, fds = session.receive()
        assert reply["event"] in ("done", "error"), reply
        assert len(fds) == (op == "open" and reply["event"] == "done"), reply
    print("answered")
except (EOFError, BrokenPipeError, ConnectionResetError):
    print("over")
"#;

/// Traces the session's supervisor and init, and with them the next file server, while a client asks.
fn asked_under_trace(session: &Session, options: &[&str]) -> Outcome {
    let traced = [session.supervisor(), session.init()];
    let mut strace = Command::new("strace");
    strace.args(["-qq", "-f"]).args(options).args(traced.iter().flat_map(|pid| ["-p".to_owned(), pid.to_string()]));
    let mut strace = strace.stderr(Stdio::null()).spawn().unwrap();
    // A fault may be the death of either.
    let is_traced = |pid: &i32| match std::fs::read_to_string(format!("/proc/{pid}/status")) {
        Ok(status) => !status.contains("TracerPid:\t0\n"),
        Err(_) => true,
    };
    assert!(eventually(|| traced.iter().all(is_traced)));
    let asked = files::client(session, REQUESTS);
    strace.kill().unwrap();
    strace.wait().unwrap();
    asked
}

/// Ends the file server, so that the next request starts one.
fn without_server(session: &Session) {
    if let Some((pid, _)) = files::server(session) {
        let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL);
        assert!(eventually(|| files::server(session).is_none()));
    }
}

/// How often each process of a trace made each call. The file server is not counted.
fn calls_of_others(trace: &str) -> HashMap<String, usize> {
    let mut processes = HashMap::<&str, HashMap<&str, usize>>::new();
    let mut servers = Vec::new();
    for line in trace.lines() {
        let Some((pid, rest)) = line.split_once(' ') else { continue };
        let Some((name, rest)) = rest.trim_start().split_once('(') else { continue };
        *processes.entry(pid).or_default().entry(name).or_default() += 1;
        servers.extend(rest.starts_with("PR_SET_NAME, \"stockade-files\"").then_some(pid));
    }
    assert_eq!(servers.len(), 1, "{trace}");
    let mut most = HashMap::new();
    for (name, count) in processes.into_iter().filter(|(pid, _)| !servers.contains(pid)).flat_map(|(_, calls)| calls) {
        let known = most.entry(name.to_owned()).or_insert(0);
        *known = count.max(*known);
    }
    most
}

#[test]
fn a_fault_in_a_call_of_the_file_server_fails_requests_alone() {
    if may_trace() && crate::common::is_root() {
        for_each_caller(faults_in_requests); // the tracer is root
    }
}

fn faults_in_requests(caller: Caller) {
    let mut session = Session::new(caller, &[]);
    let trace = session.home.join("trace");
    asked_under_trace(&session, &["-o", trace.to_str().unwrap()]).is(0, "answered\n");
    let trace = std::fs::read_to_string(&trace).unwrap();
    let of_others = calls_of_others(&trace);
    let errors = ["ENOMEM", "EPERM", "EAGAIN"];
    for (at, (name, nth)) in calls(&trace, 4).into_iter().enumerate() {
        let kind =
            if at % 2 == 0 { "signal=KILL".to_owned() } else { format!("error={}", errors[at / 2 % errors.len()]) };
        let fault = format!("inject={name}:{kind}:when={nth}");
        without_server(&session);
        let clock = Clock::start();
        let asked = asked_under_trace(&session, &["-o", "/dev/null", "-e", &fault]);
        assert!(!clock.is_past(Duration::from_secs(60)), "{fault}");
        if asked.out == "answered\n" && session.sh("echo alive").out == "alive\n" {
            assert!(eventually(|| files::client(&session, REQUESTS).out == "answered\n"), "{fault}");
            let Some((_, status)) = files::server(&session) else {
                assert_eq!(name, "prctl", "{fault}: no file server"); // its name could not be set, by which it is found
                session = Session::new(caller, &[]);
                continue;
            };
            assert!(status.contains("NoNewPrivs:\t1\n") && status.contains("Seccomp:\t2\n"), "{fault}: {status}");
            assert!(status.contains("CapPrm:\t0000000000000000\n"), "{fault}: {status}");
            continue;
        }
        // Only what hits the supervisor, init or a keeper ends the session. They may be woken more often than in the first trace.
        assert!(of_others.get(&name).is_some_and(|count| 2 * count >= nth), "{fault}: {asked:?}, {:?}", session.row());
        assert!(!asked.err.contains("AssertionError"), "{fault}: {asked:?}");
        session.is_gone(&fault);
        session = Session::new(caller, &[]);
    }
}

/// A copy is killed in a call, or the call fails. It says so, or the trees are equal.
#[test]
fn a_fault_in_a_call_of_a_copy_is_told_and_leaves_a_session_that_copies() {
    if may_trace() {
        for_each_session(&[], faults_in_copies);
    }
}

fn faults_in_copies(session: &Session) {
    let made = session.caller.command("sh").args(["-c", SMALL_TREE]).current_dir(session.home.path()).status().unwrap();
    assert!(made.success());
    let expected = listing(&session.home.join("tree"));
    session.cp(&["tree", &session.at("/tmp/kept")]).is(0, "");
    let trace = session.home.join("trace");
    let directions = [["tree", &session.at("/tmp/new")], [&session.at("/tmp/kept"), "new"]];
    for (words, is_into) in directions.into_iter().zip([true, false]) {
        let words = [&["cp"], &words[..]].concat();
        let clean = || {
            let _ = std::fs::remove_dir_all(session.home.join("new"));
            session.sh("rm -rf /tmp/new").is(0, "");
        };
        let copied = || match is_into {
            true => session.sh(&format!("cd /tmp/new && {}", super::cp::LISTING)).out,
            false => listing(&session.home.join("new")),
        };
        session.traced(&["-f", "-o", trace.to_str().unwrap()], &words).is(0, "");
        assert_eq!(copied(), expected);
        let errors = ["ENOMEM", "EIO", "EPERM", "ENOSPC", "EINTR"];
        for (at, (call, nth)) in calls(&std::fs::read_to_string(&trace).unwrap(), 3).into_iter().enumerate() {
            let kind =
                if at % 2 == 0 { "signal=KILL".to_owned() } else { format!("error={}", errors[at / 2 % errors.len()]) };
            let fault = format!("inject={call}:{kind}:when={nth}");
            clean();
            let hit = session.traced(&["-f", "-o", "/dev/null", "-e", &fault], &words);
            match hit.code {
                Some(0) => assert_eq!(copied(), expected, "{fault}: {hit:?}"),
                Some(1 | 125) => assert!(hit.err.contains("stockade: ") || call == "write", "{fault}: {hit:?}"),
                None | Some(137) => {}
                _ => panic!("{fault}: {hit:?}"),
            }
            session.cp(&[&session.at("/tmp/kept/a"), "-"]).code.filter(|code| *code == 0).expect(&fault);
        }
        clean();
    }
    let open = || std::fs::read_dir(format!("/proc/{}/fd", session.supervisor())).unwrap().count();
    assert!(eventually(|| open() < 24), "{} descriptors", open());
}

/// A file with a hole, two names, a link, a mode and times, in two directories.
const SMALL_TREE: &str = "umask 022; mkdir -p tree/d; cd tree; echo content >a; ln a d/b; ln -s a l; truncate -s 1M h; \
                          printf x >>h; chmod 640 a; chmod 750 d; touch -hd '2001-02-03 04:05:06.789' a l d";
