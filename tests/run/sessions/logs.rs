//! What the own command printed, after the end of its session.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::*;

/// Waits for `/tmp/go`.
const WAIT: &str = "while ! test -e /tmp/go; do sleep 0.02; done";

fn prints(outcome: &Outcome, out: &str, err: &str) {
    assert_eq!((outcome.code, outcome.out.as_str(), outcome.err.as_str()), (Some(0), out, err), "{outcome:?}");
}

#[test]
fn the_output_stays_until_the_record_is_removed() {
    for_each_session(&["--", "sh", "-c", "echo hello; echo oops >&2; exit 3"], |session| {
        session.verb(&["wait"]).is(0, "3\n");
        for words in [&["logs"][..], &["logs", "-f"]] {
            prints(&session.verb(words), "hello\n", "oops\n");
        }
        let output = &session.inspect()["end"]["output"];
        assert_eq!(
            (&output["stdout"]["kept_bytes"], &output["stderr"]["kept_bytes"]),
            (&6.into(), &5.into()),
            "{output}"
        );
        session.verb(&["attach"]).refuses("the session has ended");
        session.verb(&["rm"]).is(0, "");
        assert!(!session.place().exists());
        session.verb(&["logs"]).refuses("there is no session of this name");
    });
    for_each_session(&["--rm", "--", "sh", "-c", "echo hello"], |session| {
        assert!(eventually(|| !session.place().exists()));
    });
    for_each_session(&[], |session| {
        session.verb(&["stop"]).is(0, "");
        session.verb(&["logs"]).refuses("was made without a command");
    });
}

/// Also what it printed last, and of much no more than the last MiB.
#[test]
fn the_output_is_kept_however_the_session_ends() {
    let script = "head -c 3000000 /dev/zero; trap 'echo bye' TERM; touch /tmp/ready; while :; do sleep 0.02; done";
    let ready = |session: &Session| assert!(eventually(|| session.sh("test -e /tmp/ready").code == Some(0)));
    let own = &["--", "sh", "-c", script][..];
    let check = |session: &Session, causes: &[&str], last: &str| {
        session.verb(&["wait"]);
        assert!(causes.iter().any(|cause| session.inspect()["end"]["cause"] == *cause));
        let kept = session.verb(&["logs"]);
        assert!(kept.code == Some(0) && kept.out.len() == 1 << 20 && kept.out.ends_with(last), "{}", kept.err);
        let stream = &session.inspect()["end"]["output"]["stdout"];
        let dropped = 3_000_000 + last.len() - (1 << 20) - usize::from(last == "\0");
        assert_eq!((&stream["kept_bytes"], &stream["dropped_bytes"]), (&(1 << 20).into(), &dropped.into()));
    };
    for_each_session(own, |session| {
        ready(session);
        session.verb(&["stop", "-t", "200ms"]).is(0, "");
        check(session, &["stopped"], "bye\n");
    });
    for_each_session(&[&["--timeout", "1500ms", "--kill-after", "100ms"], own].concat(), |session| {
        check(session, &["command"], "bye\n");
    });
    for_each_session(own, |session| {
        ready(session);
        kill(Pid::from_raw(session.init()), Signal::SIGKILL).unwrap();
        // Which of the two deaths is seen first is open.
        check(session, &["failed", "command"], "\0");
    });
}

#[test]
fn output_that_cannot_be_kept_does_not_disturb_the_end() {
    for_each_caller(|caller| {
        let session = Session::planned(caller);
        let script = "head -c 900000 /dev/zero; exit 4";
        let mut command = session.caller.command("prlimit");
        let made = command.arg("--fsize=100000").arg(&session.binary).args(["run", "-d", "--name", &session.name]);
        made.args(["--", "sh", "-c", script]).env_clear().env("PATH", PATH);
        made.env("XDG_RUNTIME_DIR", session.home.join("run")).current_dir(session.home.path());
        outcome(made.output().unwrap()).is(0, &format!("{}\n", session.name));
        session.verb(&["wait"]).is(0, "4\n");
        session.verb(&["logs"]).refuses("what its command printed could not be kept: File too large");
        assert_eq!(session.inspect()["end"]["output"]["lost"], "File too large");
        session.verb(&["rm"]).is(0, "");
    });
}

#[test]
fn a_supervisor_that_is_killed_loses_the_output_and_logs_says_so() {
    for_each_session(&["--", "sh", "-c", "echo hello; sleep 1000"], |session| {
        assert!(eventually(|| session.verb(&["logs"]).out == "hello\n"));
        kill(Pid::from_raw(session.supervisor()), Signal::SIGKILL).unwrap();
        let shown = session.verb(&["logs"]);
        let lost = shown.err.contains("its supervisor was killed, and what its command printed is lost with it");
        // Another test's `ps` removes what is left of dead sessions of root.
        assert!(
            lost && shown.err.contains("stockade gc") || shown.err.contains("no session of this name"),
            "{shown:?}"
        );
        assert_eq!(shown.code, Some(125));
    });
}

/// A follower gets all of it although the session ends before it has read. One that does not read is told what it missed.
#[test]
fn a_follower_has_everything_or_is_told() {
    let script = format!("{WAIT}; head -c 900000 /dev/zero");
    for_each_session(&["--", "sh", "-c", &script], |session| {
        let follow = || {
            let mut command = session.command(&["logs", "-f", &session.name]);
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        };
        let (reader, sleeper) = (follow(), follow());
        // Both are connected, before anything is printed.
        std::thread::sleep(Duration::from_millis(300));
        session.sh("touch /tmp/go");
        let read = outcome(reader.wait_with_output().unwrap());
        assert_eq!((read.code, read.out.len()), (Some(0), 900_000), "{}", read.err);
        session.verb(&["wait"]).is(0, "0\n");
        let late = outcome(sleeper.wait_with_output().unwrap());
        assert!(late.out.len() < 900_000);
        late.refuses("the session ended before it had passed on all");
        assert_eq!(session.verb(&["logs"]).out.len(), 900_000);
    });
}
