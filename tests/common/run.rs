//! One run of the real binary: built up, started, and ended with a search for what it left behind.

use std::ffi::{OsStr, OsString};
use std::io::{Read, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use super::clock::{Clock, PATIENCE, eventually};
use super::leaks::{self, Adopted, Marked};
use super::{Caller, PATH, PYTHON, TempDir, is_root, set_mode, unique};

/// When a run is one that hangs. Less than nextest gives a test.
const HANGS: Duration = Duration::from_secs(300);

/// A run of `stockade run` in the making.
#[derive(Debug)]
pub struct Run {
    caller: Caller,
    outer: Vec<OsString>,
    prefix: Vec<OsString>,
    options: Vec<OsString>,
    command: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    cwd: Option<PathBuf>,
    stdin: Vec<u8>,
    streams: Option<(Stdio, Stdio, Stdio)>,
    report: bool,
    plain: bool,
    orphans: bool,
}

impl Run {
    /// A run with nothing but defaults.
    pub fn new(caller: Caller) -> Self {
        Self {
            caller,
            outer: Vec::new(),
            prefix: Vec::new(),
            options: Vec::new(),
            command: Vec::new(),
            env: Vec::new(),
            cwd: None,
            stdin: Vec::new(),
            streams: None,
            report: true,
            plain: false,
            orphans: false,
        }
    }

    /// Options of `stockade run`.
    pub fn opts<I: IntoIterator<Item = S>, S: Into<OsString>>(mut self, options: I) -> Self {
        self.options.extend(options.into_iter().map(Into::into));
        self
    }

    /// The command to run inside.
    pub fn cmd<I: IntoIterator<Item = S>, S: Into<OsString>>(mut self, command: I) -> Self {
        self.command = command.into_iter().map(Into::into).collect();
        self
    }

    /// A shell script to run inside.
    pub fn sh(self, script: &str) -> Self {
        self.cmd(["/bin/sh", "-c", script])
    }

    /// A Python program to run inside.
    pub fn python(self, program: &str) -> Self {
        self.cmd([PYTHON, "-I", "-S", "-c", program])
    }

    /// A program that starts ours, outside: its words go in front.
    pub fn via<I: IntoIterator<Item = S>, S: Into<OsString>>(mut self, prefix: I) -> Self {
        self.prefix.extend(prefix.into_iter().map(Into::into));
        self
    }

    /// Shows a directory that the caller may not reach at another path, in a mount namespace of the run's own.
    pub fn showing(mut self, directory: &Path, at: &Path) -> Self {
        if is_root() {
            let script = "mount --bind \"$1\" \"$2\" && shift 2 && exec \"$@\"";
            self.outer =
                ["unshare", "-m", "--propagation", "private", "sh", "-c", script, "sh"].map(OsString::from).into();
            self.outer.extend([directory, at].map(OsString::from));
        }
        self
    }

    /// Starts in a cgroup of v2.
    pub fn within(mut self, cgroup: &Path) -> Self {
        let script = "echo $$ >\"$1/cgroup.procs\" && shift && exec \"$@\"";
        self.outer = ["sh", "-c", script, "sh"].map(OsString::from).into();
        self.outer.push(cgroup.into());
        self
    }

    /// A shell script that prepares the process in which ours is then executed, outside.
    pub fn after_sh(self, script: &str) -> Self {
        self.via(["/bin/bash".to_owned(), "-c".to_owned(), format!("{script}\nexec \"$@\""), "bash".to_owned()])
    }

    /// A Python program that prepares the process in which ours is then executed, outside.
    pub fn after_python(self, program: &str) -> Self {
        let exec = "import os, sys\nos.execv(sys.argv[1], sys.argv[1:])";
        self.via([PYTHON, "-I", "-W", "ignore", "-c", &format!("{program}\n{exec}")])
    }

    /// A variable of the caller's environment.
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    /// The caller's working directory.
    pub fn cwd(mut self, path: &Path) -> Self {
        self.cwd = Some(path.to_owned());
        self
    }

    /// What the caller's standard input holds.
    pub fn stdin(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.stdin = bytes.into();
        self
    }

    /// The caller's standard streams, instead of pipes that are read to their end.
    pub fn streams(mut self, stdin: impl Into<Stdio>, stdout: impl Into<Stdio>, stderr: impl Into<Stdio>) -> Self {
        self.streams = Some((stdin.into(), stdout.into(), stderr.into()));
        self
    }

    /// Asks for no report.
    pub fn without_report(mut self) -> Self {
        self.report = false;
        self
    }

    /// Gives `stockade` exactly the options of the test: no `run`, name, report or marker of ours.
    pub fn plain(mut self) -> Self {
        self.plain = true;
        self.report = false;
        self
    }

    /// The test itself makes orphans, which are no leak of the run's when they end by themselves.
    pub fn with_orphans(mut self) -> Self {
        self.orphans = true;
        self
    }

    /// Starts it.
    pub fn spawn(self) -> Live {
        leaks::adopt_orphans();
        let marker = unique();
        let home = TempDir::new(self.caller);
        let binary = binary_for(self.caller, &home);
        let mut collect = self.caller.command(binary.as_os_str());
        collect.arg("gc");
        let work = home.dir("cwd");
        let tmp = home.dir("tmp");
        let report = home.join("report.json");

        let mut words = self.outer;
        words.extend(self.caller.become_words().into_iter().map(OsString::from));
        words.extend(self.prefix);
        words.push(binary.into());
        if !self.plain {
            words.extend(["run", "--name"].map(OsString::from));
            words.push(marker.clone().into());
            words.push("-e".into());
            words.push(format!("{}={marker}", leaks::VARIABLE).into());
            if self.report {
                words.push("--report".into());
                words.push(report.clone().into());
            }
        }
        words.extend(self.options);
        if !self.command.is_empty() {
            words.push("--".into());
            words.extend(self.command);
        }
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).env_clear();
        command.env("PATH", PATH).env("HOME", &work).env("TMPDIR", &tmp).env("LANG", "C.UTF-8").env("TERM", "dumb");
        command.env(leaks::VARIABLE, &marker).envs(self.env);
        command.current_dir(self.cwd.as_deref().unwrap_or(&work));
        let piped = self.streams.is_none();
        let (stdin, stdout, stderr) = self.streams.unwrap_or_else(|| (Stdio::piped(), Stdio::piped(), Stdio::piped()));
        command.stdin(stdin).stdout(stdout).stderr(stderr);
        let marked = Marked::new(&marker, [work, tmp]);
        let clock = Clock::start();
        let mut child = leaks::spawn(&mut command);
        drop(command); // it holds the streams it was given
        if piped {
            feed(&mut child, self.stdin);
        }
        let stdout = Reader::start(child.stdout.take());
        let stderr = Reader::start(child.stderr.take());
        Live { child, home, report, marked, clock, stdout, stderr, orphans: self.orphans, collect, killed: false }
    }

    /// Starts it and waits for its end.
    pub fn go(self) -> Outcome {
        self.spawn().finish()
    }
}

/// The binary where the caller can reach it: a checkout may lie below somebody's home.
fn binary_for(caller: Caller, home: &TempDir) -> PathBuf {
    let built = PathBuf::from(env!("CARGO_BIN_EXE_stockade"));
    if caller == Caller::Root || !is_root() {
        return built;
    }
    let copy = home.join("stockade");
    std::fs::copy(&built, &copy).expect("the binary can be copied");
    set_mode(&copy, 0o755);
    copy
}

fn feed(child: &mut Child, bytes: Vec<u8>) {
    let mut pipe = child.stdin.take().expect("standard input is a pipe");
    if bytes.is_empty() {
        return;
    }
    // A workload that does not read must not stop the test.
    std::thread::spawn(move || {
        let _ = pipe.write_all(&bytes);
    });
}

#[derive(Debug, Default)]
struct Reader {
    bytes: Arc<Mutex<Vec<u8>>>,
    thread: Option<JoinHandle<()>>,
}

impl Reader {
    fn start(pipe: Option<impl Read + Send + 'static>) -> Self {
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&bytes);
        let thread = pipe.map(|mut pipe| {
            std::thread::spawn(move || {
                let mut chunk = [0; 65536];
                while let Ok(count @ 1..) = pipe.read(&mut chunk) {
                    sink.lock().unwrap().extend_from_slice(&chunk[..count]);
                }
            })
        });
        Self { bytes, thread }
    }

    fn so_far(&self) -> Vec<u8> {
        self.bytes.lock().unwrap().clone()
    }

    /// All of it; a stream that somebody still holds open two seconds after the end is a leak.
    fn end(self, name: &str) -> Vec<u8> {
        if let Some(thread) = self.thread {
            let mut clock = Clock::start();
            while !thread.is_finished() {
                assert!(!clock.is_past(leaks::GRACE), "{name} is still held open by somebody");
                clock.sleep(Duration::from_millis(5));
            }
            thread.join().unwrap();
        }
        std::mem::take(&mut self.bytes.lock().unwrap())
    }
}

/// A run under way.
#[derive(Debug)]
pub struct Live {
    child: Child,
    home: TempDir,
    report: PathBuf,
    marked: Marked,
    clock: Clock,
    stdout: Reader,
    stderr: Reader,
    orphans: bool,
    /// What removes the cgroup of a supervisor that was killed.
    collect: Command,
    killed: bool,
}

impl Live {
    /// Process id of the supervisor.
    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// The caller's directories.
    pub fn home(&self) -> &TempDir {
        &self.home
    }

    /// The unique word that all processes of the run carry.
    pub fn marker(&self) -> &str {
        self.marked.marker()
    }

    /// Everything written to standard output so far.
    pub fn stdout_so_far(&self) -> String {
        String::from_utf8_lossy(&self.stdout.so_far()).into_owned()
    }

    /// Waits until the standard output holds the text.
    pub fn wait_for(&self, text: &str) {
        assert!(
            eventually(|| self.stdout_so_far().contains(text)),
            "no {text:?} in {:?}; standard error: {}",
            self.stdout_so_far(),
            String::from_utf8_lossy(&self.stderr.so_far())
        );
    }

    /// Sends the supervisor a signal.
    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.pid()), signal).expect("the supervisor can be signalled");
    }

    /// Kills the supervisor, so that it can clean up nothing itself.
    pub fn kill_supervisor(&mut self) {
        self.killed = true;
        self.signal(Signal::SIGKILL);
    }

    /// Says that the supervisor will be killed by other means.
    pub fn expect_killed(&mut self) {
        self.killed = true;
    }

    /// Processes of the run, the supervisor and what it started.
    pub fn processes(&self) -> Vec<i32> {
        leaks::descendants(self.pid())
    }

    /// Waits for the end, without the search for leaks and with the kernel's accounting left out.
    fn wait(&mut self) -> ExitStatus {
        loop {
            if let Some(status) = self.child.try_wait().expect("the supervisor can be waited for") {
                leaks::forget(&self.child);
                return status;
            }
            if self.clock.elapsed() > HANGS {
                let tree = leaks::describe(&self.processes());
                self.signal(Signal::SIGKILL);
                let _ = self.child.wait();
                leaks::forget(&self.child);
                let stderr = String::from_utf8_lossy(&self.stderr.so_far()).into_owned();
                panic!("still running after {HANGS:?}: {tree}\nstandard error: {stderr}");
            }
            // Finer than any time a test looks at, coarse enough to leave the processor to the run.
            self.clock.sleep(Duration::from_millis(2));
        }
    }

    /// Waits for the end, and fails if anything of the run is left two seconds later.
    pub fn finish(mut self) -> Outcome {
        let status = self.wait();
        let (wall, allowance) = (self.clock.elapsed(), self.clock.allowance());
        let adopted = if self.killed || self.orphans { Adopted::Expected } else { Adopted::Leak };
        if self.killed {
            self.marked.expect_at_most_a_cgroup(adopted);
            // It also finds what others left, some of whose processes the kernel has not taken apart yet.
            self.collect.stdout(Stdio::null());
            let mut collects = || self.collect.status().is_ok_and(|status| status.success());
            assert!(eventually(&mut collects), "`stockade gc` removes what it left");
        }
        self.marked.expect_nothing_left(adopted);
        let stdout = self.stdout.end("standard output");
        let stderr = String::from_utf8_lossy(&self.stderr.end("standard error")).into_owned();
        let report = std::fs::read(&self.report).ok().map(|bytes| {
            serde_json::from_slice(&bytes)
                .unwrap_or_else(|error| panic!("the report is JSON: {error}: {}", String::from_utf8_lossy(&bytes)))
        });
        Outcome { status, stdout, stderr, report, wall, allowance, home: self.home }
    }
}

/// What a run came to.
#[derive(Debug)]
pub struct Outcome {
    /// How the supervisor ended.
    pub status: ExitStatus,
    /// Its standard output.
    pub stdout: Vec<u8>,
    /// Its standard error.
    pub stderr: String,
    /// The report, if one was written.
    pub report: Option<Value>,
    /// From its start to its end, seen from outside.
    pub wall: Duration,
    /// How much longer than promised it may have taken, on a machine as busy as this.
    pub allowance: Duration,
    /// The caller's directories, alive as long as this.
    pub home: TempDir,
}

impl Outcome {
    /// The exit code; the supervisor must not have been killed.
    pub fn code(&self) -> i32 {
        self.status.code().unwrap_or_else(|| panic!("the supervisor died of signal {:?}: {self}", self.status.signal()))
    }

    /// Fails unless the exit code is this one.
    #[track_caller]
    pub fn expect(self, code: i32) -> Self {
        assert_eq!(self.status.code(), Some(code), "{self}");
        self
    }

    /// Fails unless the report has this status.
    #[track_caller]
    pub fn expect_status(self, status: &str) -> Self {
        assert_eq!(self.report()["status"], status, "{self}");
        self
    }

    /// The report.
    #[track_caller]
    pub fn report(&self) -> &Value {
        self.report.as_ref().unwrap_or_else(|| panic!("a report was written: {self}"))
    }

    /// The standard output as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// The lines of the standard output.
    pub fn lines(&self) -> Vec<String> {
        self.text().lines().map(str::to_owned).collect()
    }

    /// The value of the output's line `NAME=VALUE`.
    #[track_caller]
    pub fn value(&self, name: &str) -> String {
        let start = format!("{name}=");
        let lines = self.lines();
        let line = lines.iter().find_map(|line| line.strip_prefix(&start));
        line.unwrap_or_else(|| panic!("a line {start}… was printed: {self}")).to_owned()
    }
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let shorten = |text: String| {
            if text.len() > 4000 { format!("{}…", text.chars().take(4000).collect::<String>()) } else { text }
        };
        write!(
            f,
            "{} after {:?}\nstandard output:\n{}\nstandard error:\n{}",
            self.status,
            self.wall,
            shorten(self.text()),
            shorten(self.stderr.clone())
        )?;
        match &self.report {
            Some(report) => write!(f, "\nstatus: {}, error: {}", report["status"], report["error"]),
            None => write!(f, "\nno report"),
        }
    }
}

/// Runs a command as the caller, outside of any sandbox: how an attack shows that it works at all.
pub fn outside<S: AsRef<OsStr>>(caller: Caller, words: impl IntoIterator<Item = S>) -> (i32, String) {
    let words: Vec<_> = words.into_iter().collect();
    let mut command = caller.command(words[0].as_ref());
    command.args(&words[1..]).env_clear().env("PATH", PATH).current_dir("/").stdin(Stdio::null());
    let output = output(&mut command);
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    (output.status.code().unwrap_or_else(|| 128 + output.status.signal().unwrap_or(0)), text)
}

/// Runs a command of the test's own to its end.
pub fn output(command: &mut Command) -> Output {
    let child = leaks::spawn(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()));
    let pid = child.id();
    let output = child.wait_with_output().expect("it can be waited for");
    leaks::forget_pid(pid);
    output
}

/// A Python program outside of any sandbox.
pub fn python_outside(caller: Caller, program: &str) -> (i32, String) {
    outside(caller, [PYTHON, "-I", "-S", "-c", program])
}
