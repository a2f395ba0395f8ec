//! The life of a session: its own command, its end, and the sudden death of everything.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::*;
use crate::common::skip_part;

#[test]
fn the_own_command_is_logged_and_its_end_is_the_sessions() {
    let script = "echo out; echo err >&2; while ! test -e /tmp/go; do sleep 0.02; done; echo last; exit 7";
    for_each_session(&["--", "sh", "-c", script], |session| {
        // The session is ready when the command runs. It prints a moment later.
        let logs = || session.verb(&["logs"]);
        let is_shown = |shown: &Outcome| (shown.out.as_str(), shown.err.as_str()) == ("out\n", "err\n");
        assert!(eventually(|| is_shown(&logs())), "{:?}", logs());
        let follow = session
            .command(&["logs", "-f", &session.name])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let wait = session.command(&["wait", &session.name]).stdout(Stdio::piped()).spawn().unwrap();
        session.sh("touch /tmp/go"); // the end of the session may end it too
        outcome(wait.wait_with_output().unwrap()).is(0, "7\n");
        outcome(follow.wait_with_output().unwrap()).is(0, "out\nlast\n");
        session.verb(&["wait"]).is(0, "7\n");
        let row = session.row().unwrap();
        assert_eq!((&row["state"], &row["exit_code"], &row["cause"]), (&"ended".into(), &7.into(), &"command".into()));
        assert_eq!(session.inspect()["end"]["report"]["exit_code"], 7);
        let again = session.make(&[]);
        assert!(again.code == Some(125) && again.err.contains("has ended and was not removed"), "{again:?}");
        session.verb(&["rm"]).is(0, "");
        assert!(session.row().is_none() && !session.place().exists());
    });
}

#[test]
fn attach_prints_what_comes_and_passes_signals_on() {
    let script = "trap 'exit 7' USR1; trap '' INT; echo before; while :; do echo tick; sleep 0.02; done";
    for_each_session(&["--", "sh", "-c", script], |session| {
        assert!(eventually(|| session.verb(&["logs"]).out.contains("tick\n")));
        let attach = || {
            let mut command = session.command(&["attach", &session.name]);
            let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
            let mut first = [0; 5];
            std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut first).unwrap();
            assert_eq!(&first, b"tick\n", "what was printed before is left out");
            child
        };
        let signal = |child: &Child, signal| kill(Pid::from_raw(child.id() as i32), signal).unwrap();
        let mut child = attach();
        signal(&child, Signal::SIGINT); // passed on, and ignored
        std::thread::sleep(Duration::from_millis(200));
        assert!(child.try_wait().unwrap().is_none());
        signal(&child, Signal::SIGINT);
        assert_eq!(outcome(child.wait_with_output().unwrap()).code, Some(0));
        session.sh("echo alive").is(0, "alive\n");
        let child = attach();
        signal(&child, Signal::SIGUSR1);
        assert_eq!(outcome(child.wait_with_output().unwrap()).code, Some(7));
    });
    for_each_session(&[], |session| assert!(session.verb(&["attach"]).err.contains("without a command")));
}

#[test]
fn a_session_that_cannot_start_says_why_and_leaves_nothing() {
    for_each_caller(|caller| {
        let session = Session::planned(caller);
        let missing = session.make(&["--", "no-such-command"]);
        assert!(missing.code == Some(127) && missing.err.contains("no-such-command"), "{missing:?}");
        for (words, named) in [
            (&["--timeout", "x"][..], "--timeout"),
            (&["-t"], "--tty"),
            (&["--no-init"], "init"),
            (&["--report", "fd:2"], "--report"),
            (&["-v", "/no/such/source:/x"], "/no/such/source"),
        ] {
            let refused = session.make(words);
            assert!(refused.code == Some(125) && refused.out.is_empty() && refused.err.contains(named), "{refused:?}");
        }
        assert!(!session.place().exists() && session.row().is_none());
    });
}

#[test]
fn stop_is_polite_and_then_not() {
    let script = "trap 'echo bye; exit 9' TERM; echo ready; while :; do sleep 0.02; done";
    for_each_session(&["--", "sh", "-c", script], |session| {
        assert!(eventually(|| session.verb(&["logs"]).out == "ready\n"));
        session.verb(&["stop"]).is(0, "");
        session.verb(&["wait"]).is(0, "9\n");
        assert_eq!(session.inspect()["end"]["cause"], "stopped");
    });
    for_each_session(&["--", "sh", "-c", "trap '' TERM; echo ready; while :; do sleep 1; done"], |session| {
        assert!(eventually(|| session.verb(&["logs"]).out == "ready\n"));
        let clock = Clock::start();
        session.verb(&["stop", "-t", "200ms"]).is(0, "");
        assert!(!clock.is_past(Duration::from_secs(5)));
        session.verb(&["wait"]).is(0, "137\n");
    });
}

#[test]
fn kill_ends_a_command_or_the_session() {
    for_each_session(&[], |session| {
        let id = session.exec(&["-d", &session.name, "sleep", "5432"]).out;
        assert_eq!(id, "c1\n");
        let child = session.background(&[&session.name, "sleep", "5432"]);
        assert!(eventually(|| session.inspect()["running"].as_array().is_some_and(|all| all.len() == 2)));
        session.ask(&["kill", "--command", "c1", &session.name]).is(0, "");
        assert!(eventually(|| session.inspect()["running"].as_array().is_some_and(|all| all.len() == 1)));
        session.ask(&["kill", "-s", "TERM", "--command", "all", &session.name]).is(0, "");
        assert_eq!(outcome(child.wait_with_output().unwrap()).code, Some(143));
        session.verb(&["kill"]).is(0, "");
        assert_eq!(session.row().unwrap()["state"], "ended");
    });
}

#[test]
fn a_paused_session_stands_still() {
    for_each_session(&["--", "sh", "-c", "while :; do echo x; sleep 0.01; done"], |session| {
        let paused = session.verb(&["pause"]);
        if paused.code != Some(0) {
            // Only root can be sure of a cgroup. For others the refusal is what there is to see.
            assert!(paused.err.contains("cannot be paused without cgroup v2"), "{paused:?}");
            if session.caller == Caller::Root {
                skip_part("pausing", "no cgroup here can freeze");
            }
            return;
        }
        assert_eq!(session.row().unwrap()["state"], "paused");
        let refused = session.sh("true");
        assert!(refused.code == Some(125) && refused.err.contains("is paused"), "{refused:?}");
        let count = || session.verb(&["logs"]).out.len();
        let before = count();
        std::thread::sleep(Duration::from_millis(300));
        assert_eq!(count(), before);
        session.verb(&["unpause"]).is(0, "");
        assert!(eventually(|| count() > before));
        session.verb(&["pause"]).is(0, "");
        session.verb(&["stop", "-t", "1s"]).is(0, "");
    });
}

#[test]
fn a_session_ends_by_itself_when_it_was_told_to() {
    for_each_session(&["--lifetime", "400ms", "--rm"], |session| {
        assert!(eventually(|| session.row().is_none() && !session.place().exists()));
    });
    for_each_session(&["--idle-stop", "500ms"], |session| {
        session.sh("sleep 1; echo used").is(0, "used\n");
        assert!(eventually(|| session.row().is_some_and(|row| row["cause"] == "idle")), "{:?}", session.row());
    });
}

/// A command that its session ends says so, in `exec` and in `attach`.
#[test]
fn the_end_of_a_session_is_said_to_its_commands() {
    for_each_session(&["--lifetime", "1500ms", "--", "sleep", "60"], |session| {
        let attached = session.command(&["attach", &session.name]).stderr(Stdio::piped()).spawn().unwrap();
        let said = session.exec(&[&session.name, "sleep", "60"]);
        assert!(said.err.contains("the lifetime of the session is over (run -d --lifetime); "), "{said:?}");
        let said = outcome(attached.wait_with_output().unwrap());
        assert!(said.err.contains("the lifetime of the session is over (run -d --lifetime); "), "{said:?}");
    });
    for_each_session(&["--timeout", "2s", "--", "sleep", "60"], |session| {
        let said = session.verb(&["attach"]);
        assert!(said.err.contains("time limit of 2s reached (--timeout); "), "{said:?}");
    });
}

#[test]
fn a_client_that_is_killed_takes_its_command_along() {
    for_each_session(&[], |session| {
        let marker = format!("6{}", std::process::id());
        let mut child =
            session.background(&[&session.name, "sh", "-c", &format!("setsid sleep {marker} & sleep {marker}")]);
        let sleeping = format!("^sleep {marker}");
        assert!(eventually(|| session.processes(&sleeping) == 2));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(eventually(|| session.processes(&sleeping) == 0), "nothing of it is left");
        session.exec(&["-d", &session.name, "sleep", &marker]).is(0, "c2\n");
        assert!(eventually(|| session.processes(&sleeping) == 1));
        session.sh("echo alive").is(0, "alive\n");
        assert_eq!(session.processes(&sleeping), 1, "a detached command lives on without its client");
    });
}

/// Asks for a command, and leaves.
const LEAVER: &str = r#"
session = Session(sys.argv[1])
null = os.open("/dev/null", os.O_RDWR)
session.send("run", (null, null, null), argv=["sleep", "1000"])
session.socket.close()
"#;

/// Here strace delays init, so that the command is killed before it is cloned. Linux 6.14 and later kill whatever is cloned into
/// a cgroup that was killed once, so strace also refuses `cgroup.kill`, as before Linux 5.14.
#[test]
fn a_client_that_leaves_before_its_command_starts_takes_it_along() {
    if !crate::common::host::may_trace() || !crate::common::is_root() {
        return;
    }
    let session = Session::new(Caller::Root, &[]);
    let late = ["-e", "inject=clone,clone3,vfork:delay_enter=300ms"];
    let refused = ["-P", "cgroup.kill", "-e", "inject=openat:error=ENOENT"];
    for traced in [vec![(session.init(), &late[..])], vec![(session.init(), &late), (session.supervisor(), &refused)]] {
        let tracers: Vec<_> = traced.iter().map(|(pid, options)| traced_by(*pid, options)).collect();
        let before = session.inspect()["ended"].as_array().map_or(0, Vec::len);
        super::files::client(&session, LEAVER).is(0, "");
        let clock = Clock::start();
        let ended = loop {
            assert!(!clock.is_past(Duration::from_secs(10)), "it runs: {traced:?}");
            match session.inspect()["ended"].as_array() {
                Some(ended) if ended.len() > before => break ended[before].clone(),
                _ => std::thread::sleep(Duration::from_millis(20)),
            }
        };
        assert!(ended["status"] == "killed_by_user" && ended["exit_code"] == 137, "{traced:?}: {ended}");
        for mut tracer in tracers {
            tracer.kill().unwrap();
            tracer.wait().unwrap();
        }
        session.sh("echo alive").is(0, "alive\n");
    }
}

/// Traces a process with strace from now on.
fn traced_by(pid: i32, options: &[&str]) -> std::process::Child {
    let mut strace = Command::new("strace");
    strace.args(["-qq", "-o", "/dev/null", "-p", &pid.to_string()]).args(options);
    let strace = strace.spawn().unwrap();
    let status = || std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    assert!(eventually(|| !status().contains("TracerPid:\t0\n")));
    strace
}

#[test]
fn verbs_act_on_each_session_that_is_named() {
    for_each_session(&[], |session| {
        let other = unique();
        session.ask(&["run", "-d", "--name", &other]).is(0, &format!("{other}\n"));
        let all = |verb| session.ask(&[verb, "no-such-session", &session.name, &other]);
        let stopped = all("stop");
        assert!(stopped.code == Some(125) && stopped.err.contains("no-such-session"), "{stopped:?}");
        session.ask(&["wait", &session.name, &other]).is(0, "0\n0\n");
        assert!(session.ask(&["ps", "-aq"]).out.contains(&other));
        assert_eq!(all("rm").code, Some(125));
        let left = session.ask(&["ps", "-aq"]).out;
        assert!(!left.contains(&other) && !left.contains(&session.name), "{left}");
    });
}

#[test]
fn a_supervisor_that_is_killed_takes_everything_along_and_frees_the_name() {
    for_each_session(&[], |session| {
        let marker = format!("7{}", std::process::id());
        let child = session.background(&[&session.name, "sleep", &marker]);
        let sleeping = format!("^sleep {marker}");
        assert!(eventually(|| session.processes(&sleeping) == 1));
        kill(Pid::from_raw(session.supervisor()), Signal::SIGKILL).unwrap();
        let ended = outcome(child.wait_with_output().unwrap());
        assert!(ended.code == Some(125) && ended.err.contains("the session ended"), "{ended:?}");
        assert!(eventually(|| session.processes(&sleeping) == 0));
        let waited = session.verb(&["wait"]);
        // Another test's `ps` removes what is left of dead sessions of root.
        let is_known = waited.err.contains("was killed") || waited.err.contains("no session of this name");
        assert!(waited.code == Some(125) && is_known, "{waited:?}");
        session.make(&[]).is(0, &format!("{}\n", session.name));
        session.sh("echo again").is(0, "again\n");
        kill(Pid::from_raw(session.supervisor()), Signal::SIGKILL).unwrap();
        assert!(eventually(|| session.ask(&["gc"]).out.contains(&format!("removed session {}", session.name))
            || !session.place().exists()));
        assert!(session.row().is_none());
    });
}

/// Holds a lease for the command line that it starts.
const HOLDER: &str = "import os, subprocess, sys, time\nend, held = os.pipe()\n\
    subprocess.Popen([*sys.argv[1:], f'--lease=fd:{end}', '--', 'sleep', os.environ['MARKER']], pass_fds=[end])\n\
    time.sleep(600)";

#[test]
fn a_holder_of_a_lease_that_is_killed_takes_the_sandbox_along() {
    for_each_caller(|caller| {
        let session = Session::planned(caller);
        let marker = format!("8{}", std::process::id());
        let sleeping = format!("^sleep {marker}");
        // If the lease does nothing, they end all the same, after the test.
        for words in
            [&["run", "-d", "--rm", "--lifetime", "3m", "--name", &session.name][..], &["run", "--timeout", "3m"]]
        {
            let mut command = session.caller.command(PYTHON);
            command.args(["-c", HOLDER]).arg(&session.binary).args(words).env("MARKER", &marker).env("PATH", PATH);
            command.env("XDG_RUNTIME_DIR", session.home.join("run")).stdout(Stdio::null());
            let mut holder = command.spawn().unwrap();
            assert!(eventually(|| session.processes(&sleeping) == 1), "{words:?}");
            assert_eq!(session.row().is_some(), words.contains(&"-d"));
            holder.kill().unwrap();
            holder.wait().unwrap();
            assert!(eventually(|| session.processes(&sleeping) == 0), "{words:?}");
            assert!(eventually(|| session.row().is_none() && !session.place().exists()));
        }
        for (lease, named) in [("fd:1", "above the standard streams"), ("3", "takes fd:N"), ("fd:77", "Bad file")] {
            for made in [session.make(&["--lease", lease]), session.ask(&["run", "--lease", lease, "--", "true"])] {
                assert!(made.code == Some(125) && made.err.contains(named), "{made:?}");
            }
        }
    });
}

#[test]
fn top_shows_a_session_with_its_commands_as_ps_does() {
    if !crate::common::is_root() {
        return crate::common::skip("only root is sure of a cgroup");
    }
    let session = Session::new(Caller::Root, &["--pids-limit", "40"]);
    for _ in 0..2 {
        session.exec(&["-d", &session.name, "sleep", "1000"]);
    }
    let row = || {
        let frame: Value = serde_json::from_str(&session.ask(&["top", "--once", "--json"]).out).unwrap();
        frame["sandboxes"].as_array().unwrap().iter().find(|row| row["id"] == session.name.as_str()).cloned()
    };
    assert!(eventually(|| row().is_some_and(|row| row["pids"].as_u64() >= Some(3))), "{:?}", row());
    let (row, listed) = (row().unwrap(), session.row().unwrap());
    assert_eq!((&row["kind"], &row["commands"]), (&"session".into(), &2.into()), "{row}");
    for same in ["pid", "commands", "command"] {
        assert_eq!(row[same], listed[same], "{same}");
    }
    let table = session.ask(&["top", "--once"]).out;
    let line = table.lines().find(|line| line.starts_with(&session.name)).unwrap();
    assert_eq!(line.split_ascii_whitespace().nth(7), Some("2"), "{table}");
}

#[test]
fn a_record_or_lock_that_cannot_be_read_hides_no_other_session() {
    for_each_session(&[], |session| {
        for planted in ["record.json", "lock"] {
            let damaged = session.place().with_file_name(unique());
            let mut made = session.caller.command("mkdir");
            assert!(
                made.args(["-p", "-m", "700"]).arg(&damaged).arg(damaged.join(planted)).status().unwrap().success()
            );
            let rows = session.ask(&["ps", "--json"]);
            let state = session.row().unwrap()["state"].clone();
            std::fs::remove_dir_all(&damaged).unwrap();
            assert!(rows.code == Some(0) && rows.out.contains("\"state\":\"damaged\""), "{rows:?}");
            assert_eq!(state, "running");
        }
    });
}
