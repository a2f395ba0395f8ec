//! Every command on a container in every state: exit code, message and the state afterwards. The words of a message are runc's,
//! which engines search for, and a message of ours begins with them.

use super::common::bundle::{Bundle, Runtime, for_each_runtime, ours};
use super::common::text;

/// The states, in the order of the columns below.
const STATES: [&str; 5] = ["missing", "created", "running", "paused", "stopped"];

/// The result of a command.
#[derive(Clone, Copy, Debug)]
enum To {
    /// It succeeds, and the container has this status; "missing" if it is gone.
    Be(&'static str),
    /// It fails with these words, and the status is unchanged.
    Fail(&'static str),
}
use To::{Be, Fail};

const MISSING: To = Fail("container does not exist");
const EXISTS: To = Fail("container with given ID already exists");
const STOPPED: To = Fail("container not running");

/// A command's words after the program's name, and its result in each state. `ID` stands for the container, `BUNDLE` for
/// its bundle.
type Row = (&'static [&'static str], [To; 5]);

#[rustfmt::skip]
const ROWS: &[Row] = &[
    (&["create", "--bundle", "BUNDLE", "ID"], [Be("created"), EXISTS, EXISTS, EXISTS, EXISTS]),
    (&["run", "--detach", "--bundle", "BUNDLE", "ID"], [Be("running"), EXISTS, EXISTS, EXISTS, EXISTS]),
    (&["start", "ID"], [MISSING, Be("running"), Fail("cannot start an already running container"),
        Fail("cannot start a container in the paused state"), Fail("cannot start a container that has stopped")]),
    (&["state", "ID"], [MISSING, Be("created"), Be("running"), Be("paused"), Be("stopped")]),
    (&["ps", "--format", "json", "ID"], [MISSING, Be("created"), Be("running"), Be("paused"), Be("stopped")]),
    (&["kill", "ID", "0"], [MISSING, Be("created"), Be("running"), Be("paused"), STOPPED]),
    (&["kill", "ID", "WINCH"], [MISSING, Be("created"), Be("running"), Be("paused"), STOPPED]),
    (&["kill", "ID"], [MISSING, Be("stopped"), Be("running"), Be("paused"), STOPPED]),
    (&["kill", "ID", "KILL"], [MISSING, Be("stopped"), Be("stopped"), Be("stopped"), STOPPED]),
    (&["kill", "--all", "ID", "KILL"], [MISSING, Be("stopped"), Be("stopped"), Be("stopped"), Be("stopped")]),
    (&["kill", "ID", "NONSENSE"], [MISSING, Fail("unknown signal"), Fail("unknown signal"), Fail("unknown signal"),
        Fail("unknown signal")]),
    (&["exec", "ID", "true"], [MISSING, Be("created"), Be("running"), Fail("cannot exec in a paused container"),
        Fail("cannot exec in a stopped container")]),
    (&["exec", "ID", "nonsense"], [MISSING, Fail("executable file not found in $PATH"),
        Fail("executable file not found in $PATH"), Fail("cannot exec in a paused container"),
        Fail("cannot exec in a stopped container")]),
    (&["exec", "ID", "/etc/passwd"], [MISSING, Fail("ermission denied"), Fail("ermission denied"),
        Fail("cannot exec in a paused container"), Fail("cannot exec in a stopped container")]),
    (&["exec", "ID"], [MISSING, Fail("process args cannot be empty"), Fail("process args cannot be empty"),
        Fail("cannot exec in a paused container"), Fail("cannot exec in a stopped container")]),
    (&["pause", "ID"], [MISSING, Be("paused"), Be("paused"), STOPPED, STOPPED]),
    (&["resume", "ID"], [MISSING, Fail("container not paused"), Fail("container not paused"), Be("running"),
        Fail("container not")]),
    (&["update", "--pids-limit", "40", "ID"], [MISSING, Be("created"), Be("running"), Be("paused"), STOPPED]),
    (&["events", "--stats", "ID"], [MISSING, Be("created"), Be("running"), Be("paused"), Fail("not running")]),
    (&["delete", "ID"], [MISSING, Be("missing"), Fail("cannot delete container"), Fail("cannot delete container"),
        Be("missing")]),
    (&["delete", "--force", "ID"], [Be("missing"), Be("missing"), Be("missing"), Be("missing"), Be("missing")]),
];

/// Whether crun has another result: its words for errors are its own, and the following commands.
fn is_other_with_crun(words: &[&str], state: &str) -> bool {
    match (words[0], state) {
        ("events", _) => true,                                  // it has no such command
        ("pause", "created" | "paused") => true,                // succeeds and does nothing
        ("resume", "created" | "running") => true,              // succeeds and does nothing
        ("update", "stopped") | ("ps", "stopped") => true,      // succeeds; dies of SIGSEGV
        ("kill", "created") if words == ["kill", "ID"] => true, // its waiting process ignores the signal
        ("kill", "created" | "running" | "paused") if words.contains(&"NONSENSE") => true, // sends signal 0
        ("kill", "paused") if words == ["kill", "ID", "KILL"] => true, // dies only when resumed
        _ => false,
    }
}

fn status(bundle: &Bundle) -> String {
    bundle.state()["status"].as_str().unwrap_or("missing").to_owned()
}

/// A container in this state.
fn container(runtime: Runtime, state: &str) -> Option<Bundle> {
    let bundle = Bundle::new(runtime, "exec sleep 1000")?;
    if state != "missing" {
        bundle.create().expect(0);
    }
    if matches!(state, "running" | "paused" | "stopped") {
        bundle.about("start").expect(0);
    }
    match state {
        "paused" => drop(bundle.about("pause").expect(0)),
        "stopped" => {
            bundle.call(["kill", &bundle.id, "KILL"]).expect(0);
            bundle.wait_for("stopped");
        }
        _ => {}
    }
    assert_eq!(status(&bundle), state);
    Some(bundle)
}

/// Runs a command without a pipe, which a container would keep open, and returns its exit code and standard error.
fn call(bundle: &Bundle, words: &[&str]) -> (Option<i32>, String) {
    let word = |word: &&str| match *word {
        "ID" => bundle.id.clone(),
        "BUNDLE" => text(bundle.dir.path()).to_owned(),
        other => other.to_owned(),
    };
    let err = bundle.dir.join("err");
    let mut command = bundle.command(words.iter().map(word).collect::<Vec<_>>());
    let out = std::fs::File::create(bundle.dir.join("said")).unwrap();
    let ended = command.stdout(out).stderr(std::fs::File::create(&err).unwrap()).status().unwrap();
    (ended.code(), std::fs::read_to_string(err).unwrap())
}

#[test]
fn every_command_in_every_state() {
    for_each_runtime(|runtime| {
        for (column, state) in STATES.into_iter().enumerate() {
            let mut kept = None;
            for (words, results) in ROWS {
                if runtime == Runtime::Crun && is_other_with_crun(words, state) {
                    continue;
                }
                let Some(bundle) = kept.take().or_else(|| container(runtime, state)) else { return };
                let (code, err) = call(&bundle, words);
                let about = format!("{runtime:?} {words:?} {state}: {code:?} {err}");
                match results[column] {
                    Be(expected) => {
                        assert_eq!(code, Some(0), "{about}");
                        let is_so = || status(&bundle) == expected;
                        assert!(super::common::clock::eventually(is_so), "{about}: is {}", status(&bundle));
                        if expected == state {
                            kept = Some(bundle);
                        }
                    }
                    Fail(expected) => {
                        let failure = if words[0] == "exec" { 255 } else { 1 };
                        if runtime == Runtime::Crun {
                            assert!(code.is_some_and(|code| code > 0), "{about}");
                        } else {
                            assert_eq!(code, Some(failure), "{about}");
                            assert!(err.contains("level=error") && err.contains(expected), "{about}");
                        }
                        assert_eq!(status(&bundle), state, "{about}");
                        kept = Some(bundle);
                    }
                }
            }
        }
    });
}

#[test]
fn a_message_about_the_state_begins_with_the_words_that_engines_expect() {
    ours(|runtime| {
        let Some(bundle) = container(runtime, "stopped") else { return };
        let begins = |words: &[&str], expected: &str| {
            let (_, err) = call(&bundle, words);
            let (_, message) = err.split_once("level=error msg=\"").unwrap_or_else(|| panic!("{err}"));
            assert!(message.starts_with(expected), "{words:?}: {message}");
        };
        begins(&["kill", "ID"], "container not running: ");
        begins(&["start", "ID"], "cannot start a container that has stopped");
        begins(&["exec", "ID", "true"], "cannot exec in a stopped container");
        begins(&["create", "--bundle", "BUNDLE", "ID"], "container with given ID already exists");
        begins(&["state", "nothing"], "container does not exist");
    });
}

#[test]
fn a_signal_for_all_reaches_every_process() {
    for_each_runtime(|runtime| {
        let script = "sh -c 'trap \"echo inner\" USR1; echo ready; while :; do sleep 0.1; done' & \
            trap 'echo outer' USR1; while :; do sleep 0.1; done";
        let Some(bundle) = Bundle::new(runtime, script) else { return };
        bundle.create().expect(0);
        bundle.about("start").expect(0);
        bundle.wait_for_output("ready");
        bundle.call(["kill", "--all", &bundle.id, "USR1"]).expect(0);
        bundle.wait_for_output("inner");
        bundle.wait_for_output("outer");
    });
}
