//! Sessions: sandboxes that stay, and the commands in them.

#[path = "sessions/commands.rs"]
mod commands;
#[path = "sessions/cp.rs"]
mod cp;
#[path = "sessions/faults.rs"]
mod faults;
#[path = "sessions/faults_files.rs"]
mod faults_files;
#[path = "sessions/files.rs"]
mod files;
#[path = "sessions/hostile.rs"]
mod hostile;
#[path = "sessions/life.rs"]
mod life;
#[path = "sessions/logs.rs"]
mod logs;
#[path = "sessions/memory.rs"]
mod memory;
#[path = "sessions/network.rs"]
mod network;
#[path = "sessions/packets.rs"]
mod packets;
#[path = "sessions/place.rs"]
mod place;
#[path = "sessions/programs.rs"]
mod programs;
#[path = "sessions/users.rs"]
mod users;

use std::ffi::OsString;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::common::clock::{Clock, eventually};
use crate::common::run::binary_for;
use crate::common::terminal::Terminal;
use crate::common::{Caller, PATH, PYTHON, TempDir, for_each_caller, schema, unique};

/// Counts the processes in the sandbox: init, this shell, and a keeper where no cgroup holds it. The shell starts none.
const PROCESSES: &str = "set -- /proc/[0-9]*; echo $#";

/// A session of a caller, which ends with the test.
struct Session {
    caller: Caller,
    home: TempDir,
    binary: PathBuf,
    name: String,
}

/// What a program printed, and how it ended.
#[derive(Debug)]
struct Outcome {
    code: Option<i32>,
    out: String,
    err: String,
}

impl Session {
    /// A place for a session, which is not made yet.
    fn planned(caller: Caller) -> Self {
        let home = TempDir::new(caller);
        let binary = binary_for(caller, &home);
        home.dir("run");
        crate::common::set_mode(&home.join("run"), 0o700);
        Self { caller, home, binary, name: unique() }
    }

    /// Makes a session.
    fn new(caller: Caller, words: &[&str]) -> Self {
        let session = Self::planned(caller);
        let made = session.make(words);
        assert_eq!((made.code, made.out.trim_end()), (Some(0), session.name.as_str()), "{made:?}");
        session
    }

    fn make(&self, words: &[&str]) -> Outcome {
        self.ask(&[&["run", "-d", "--name", &self.name], words].concat())
    }

    /// A command line of stockade.
    fn command<S: Into<OsString> + Clone>(&self, words: &[S]) -> Command {
        let mut command = self.caller.command(&self.binary);
        command.args(words.iter().cloned().map(Into::into)).env_clear();
        command.env("PATH", PATH).env("TERM", "dumb").env("XDG_RUNTIME_DIR", self.home.join("run"));
        command.current_dir(self.home.path());
        command
    }

    fn ask(&self, words: &[&str]) -> Outcome {
        self.feed(words, "")
    }

    fn feed(&self, words: &[&str], input: &str) -> Outcome {
        let mut command = self.command(words);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        outcome(child.wait_with_output().unwrap())
    }

    fn exec(&self, words: &[&str]) -> Outcome {
        self.ask(&[&["exec"], words].concat())
    }

    fn sh(&self, script: &str) -> Outcome {
        self.exec(&[&self.name, "--", "sh", "-c", script])
    }

    /// What a verb says about this session.
    fn verb(&self, verb: &[&str]) -> Outcome {
        self.ask(&[verb, &[self.name.as_str()]].concat())
    }

    /// Nothing is left of earlier commands. Init may reap what it has adopted a moment later.
    #[track_caller]
    fn has_processes(&self, count: &str) {
        assert!(eventually(|| self.sh(PROCESSES).out == count), "{:?}, not {count}", self.sh("ls -l /proc/*/exe"));
    }

    fn inspect(&self) -> Value {
        let shown = self.verb(&["inspect"]);
        serde_json::from_str(&shown.out).unwrap_or_else(|error| panic!("{error}: {shown:?}"))
    }

    /// The line of `ps --json`.
    fn row(&self) -> Option<Value> {
        let rows = self.ask(&["ps", "--json"]).out;
        rows.lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap())
            .find(|row| row["name"] == self.name.as_str())
    }

    /// The supervisor's id.
    #[track_caller]
    fn supervisor(&self) -> i32 {
        let mut pid = None;
        assert!(eventually(|| {
            pid = self.row().and_then(|row| row["pid"].as_i64());
            pid.is_some()
        }));
        pid.unwrap() as i32
    }

    /// The id of its init on the host.
    fn init(&self) -> i32 {
        let supervisor = self.supervisor();
        let mut init = None;
        assert!(eventually(|| {
            let children = std::fs::read_to_string(format!("/proc/{supervisor}/task/{supervisor}/children")).unwrap();
            init = children.split_whitespace().next().map(|pid| pid.parse().unwrap());
            init.is_some()
        }));
        init.unwrap()
    }

    /// The directory of the session.
    fn place(&self) -> PathBuf {
        match self.caller {
            Caller::Root => PathBuf::from("/run/stockade").join(&self.name),
            Caller::Unprivileged => self.home.join("run/stockade").join(&self.name),
        }
    }

    fn background(&self, words: &[&str]) -> Child {
        let mut command = self.command(&[&["exec"], words].concat());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// How many processes of this command line exist on the host.
    fn processes(&self, marker: &str) -> usize {
        let listed = Command::new("pgrep").args(["-fc", marker]).output().unwrap();
        String::from_utf8_lossy(&listed.stdout).trim().parse().unwrap()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = self.verb(&["rm", "-f"]);
        let _ = std::fs::remove_dir_all(self.place());
    }
}

fn outcome(output: Output) -> Outcome {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Outcome { code: output.status.code(), out: text(&output.stdout), err: text(&output.stderr) }
}

impl Outcome {
    #[track_caller]
    fn is(&self, code: i32, out: &str) {
        assert_eq!((self.code, self.out.as_str()), (Some(code), out), "{self:?}");
    }

    /// It was refused, and says why.
    #[track_caller]
    fn refuses(&self, why: &str) {
        assert!(self.code == Some(125) && self.err.contains(why), "{self:?}");
    }
}

fn for_each_session(words: &[&str], body: impl Fn(&Session)) {
    for_each_caller(|caller| {
        body(&Session::new(caller, words));
    });
}

#[test]
fn commands_share_a_sandbox_and_each_has_its_own_streams_and_result() {
    for_each_session(&["-e", "KEPT=yes"], |session| {
        session.sh("echo out; echo err >&2; exit 3").is(3, "out\n");
        assert_eq!(session.sh("echo err >&2").err, "err\n");
        session.feed(&["exec", "-i", &session.name, "cat"], "typed").is(0, "typed");
        session.feed(&["exec", &session.name, "cat"], "not for it").is(0, "");
        session.sh("echo state >/tmp/file").is(0, "");
        session.sh("cat /tmp/file; echo $KEPT").is(0, "state\nyes\n");
        let words = ["-e", "KEPT=no", "-e", "TERM", "-w", "/tmp", "--umask", "077", &session.name];
        session
            .exec(&[&words[..], &["sh", "-c", "echo $KEPT $TERM; pwd; umask"]].concat())
            .is(0, "no dumb\n/tmp\n0077\n");
        assert_eq!(session.exec(&[&session.name, "no-such-command"]).code, Some(127));
        assert_eq!(session.exec(&[&session.name, "/etc"]).code, Some(126));
        assert_eq!(session.sh("kill -9 $$").code, Some(137));
        let count = session.sh(PROCESSES);
        session.sh("(sleep 1000 >/dev/null 2>&1 &) ; echo done").is(0, "done\n");
        session.has_processes(&count.out);
    });
}

#[test]
fn landlock_holds_for_every_command() {
    let script = "echo kept >/tmp/file; cat /tmp/file";
    for_each_session(&["--landlock", "off"], |session| session.sh(script).is(0, "kept\n"));
    let rules = ["--allow-read", "/usr", "--allow-read", "/etc", "--allow-read", "/lib64"];
    for_each_session(&rules, |session| {
        for _ in 0..2 {
            let refused = session.sh(script);
            assert!(refused.code == Some(1) && refused.err.contains("Permission denied"), "{refused:?}");
        }
    });
}

#[test]
fn a_command_has_the_report_of_a_run() {
    for_each_session(&[], |session| {
        let path = session.home.dir("reports").join("report.json");
        let report = format!("--report={}", path.display());
        let counts = "i=0; while [ $i -lt 9999 ]; do i=$((i + 1)); done; exit 4";
        session.exec(&[&report, &session.name, "sh", "-c", counts]).is(4, "");
        let report: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        let schema: Value = serde_json::from_str(include_str!("../../profiles/report.schema.json")).unwrap();
        assert_eq!(schema::violations(&schema, &report), [""; 0]);
        assert_eq!((&report["status"], &report["exit_code"]), (&"nonzero".into(), &4.into()));
        assert_eq!(report["command"]["argv"][0], "sh");
        assert_eq!(report["enforced"]["no_new_privs"], true, "{report}");
        assert!(report["usage"]["cpu"]["total_us"].as_u64().is_some_and(|us| us > 0));
        let refused = session.exec(&["--report", path.to_str().unwrap(), "no-such-session", "true"]);
        assert_eq!(refused.code, Some(125));
        let report: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        assert_eq!((&report["status"], &report["error"]["step"]), (&"setup_error".into(), &"session_connect".into()));
    });
}

#[test]
fn a_command_ends_at_its_limits_with_its_tree_and_the_session_lives_on() {
    for_each_session(&[], |session| {
        let name = session.name.as_str();
        let count = session.sh(PROCESSES);
        let clock = Clock::start();
        let tree = "setsid sleep 4321 & sleep 4321 & trap '' TERM; while :; do sleep 4321; done";
        let timed = session.exec(&["--timeout", "300ms", "--kill-after", "200ms", name, "sh", "-c", tree]);
        assert_eq!(timed.code, Some(124), "{timed:?}");
        assert_eq!(timed.err, "stockade: time limit of 300ms reached (--timeout); killed\n");
        assert!(!clock.is_past(Duration::from_secs(5)));
        session.has_processes(&count.out);
        assert_eq!(session.exec(&["--cpu-time", "200ms", name, "sh", "-c", "while :; do :; done"]).code, Some(124));
        assert_eq!(session.exec(&["--idle-timeout", "200ms", "-q", name, "sleep", "1000"]).err, "");
        let limited = ["--output-limit", "10,head", name, "sh", "-c", "echo 0123456789abcdef"];
        session.exec(&limited).is(0, "0123456789");
        session.sh("echo alive").is(0, "alive\n");
        assert_eq!(session.inspect()["running"], serde_json::json!([]));
    });
}

#[test]
fn a_command_has_a_terminal_of_its_own_on_request() {
    for_each_session(&[], |session| {
        let mut terminal = Terminal::open(33, 77);
        let script = "tty; stty size; read line; echo got $line; trap 'stty size' WINCH; trap 'echo interrupted; exit 6' INT; \
                      echo ready; while :; do sleep 0.05; done";
        let mut command = Command::new("setsid");
        let exec = session.command(&["exec", "-it", &session.name, "sh", "-c", script]);
        command.arg("--ctty").arg(exec.get_program()).args(exec.get_args()).env_clear();
        command.envs(exec.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let before = terminal.modes();
        let mut child =
            command.stdin(terminal.slave()).stdout(terminal.slave()).stderr(terminal.slave()).spawn().unwrap();
        terminal.wait_for("33 77");
        assert!(terminal.shown().starts_with("/dev/pts/"), "{}", terminal.shown());
        assert!(eventually(|| terminal.modes() != before), "it is raw");
        terminal.type_text("hello\r");
        terminal.wait_for("got hello");
        terminal.wait_for("ready");
        terminal.resize(44, 88);
        terminal.wait_for("44 88");
        terminal.type_text("\x03");
        assert_eq!(child.wait().unwrap().code(), Some(6), "{}", terminal.shown());
        terminal.wait_for("interrupted");
        assert_eq!(terminal.modes(), before, "it is restored");
        session
            .exec(&["-t", &session.name, "sh", "-c", "test -t 0 && test -t 1 && echo terminal"])
            .is(0, "terminal\r\n");
        session.exec(&[&session.name, "sh", "-c", "test -t 1 || echo none"]).is(0, "none\n");
    });
}

#[test]
fn signals_of_the_client_reach_the_command() {
    for_each_session(&[], |session| {
        for (signal, code) in [("TERM", 5), ("USR1", 6)] {
            let script = format!("trap 'exit {code}' {signal}; echo ready; while :; do sleep 0.02; done");
            let mut child = session.background(&[&session.name, "sh", "-c", &script]);
            let mut ready = [0; 6];
            std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut ready).unwrap();
            // The client's own id: it runs behind a program that changes the user only until its execve.
            assert!(
                Command::new("kill").arg(format!("-{signal}")).arg(child.id().to_string()).status().unwrap().success()
            );
            assert_eq!(child.wait().unwrap().code(), Some(code), "{signal}");
        }
    });
}

#[test]
fn nothing_of_a_command_stays_open() {
    for_each_session(&[], |session| {
        let (supervisor, init) = (session.supervisor(), session.init());
        let opened = |pid: i32| -> Vec<String> {
            let links = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
            let mut links: Vec<_> = links.flatten().filter_map(|fd| std::fs::read_link(fd.path()).ok()).collect();
            links.sort();
            links.iter().map(|link| link.display().to_string()).collect()
        };
        session.sh("true").is(0, "");
        // The supervisor closes a client's socket some time after the client has ended, and `ps` of another test may be one.
        let samples = (0..10).map(|_| {
            std::thread::sleep(Duration::from_millis(50));
            [opened(supervisor), opened(init)]
        });
        let before = samples.min_by_key(|[one, other]| one.len() + other.len()).unwrap();
        let name = session.name.as_str();
        for options in [&[][..], &["-t"], &["--explain-denials"], &["--output-limit", "1K"], &["--timeout", "1ms"]] {
            let words = [&["exec"], options, &[name, "sh", "-c", "sleep 0.01"]].concat();
            // To a file: a pipe that stays open would not end.
            let file = std::fs::File::create(session.home.join("out")).unwrap();
            session
                .command(&words)
                .stdin(Stdio::null())
                .stdout(file.try_clone().unwrap())
                .stderr(file)
                .status()
                .unwrap();
            assert!(
                eventually(|| [opened(supervisor), opened(init)] == before),
                "{options:?}: {before:?} {:?}",
                [opened(supervisor), opened(init)]
            );
        }
    });
}

/// The protocol is enough for a client in another language; `docs/protocol.md` shows this one.
#[test]
fn a_client_in_another_language_runs_many_commands_over_one_connection() {
    for_each_session(&[], |session| {
        let mut python = session.caller.command(PYTHON);
        python.args(["-I", "-c", include_str!("sessions/client.py")]).arg(session.place().join("socket"));
        let answer = outcome(python.output().unwrap());
        assert_eq!((answer.code, answer.out.as_str()), (Some(0), "ok\n"), "{answer:?}");
    });
}
