//! One run of the real binary: configured, started, and finished with a search for leaks.

use std::ffi::{OsStr, OsString};
use std::io::{Read, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use super::clock::{Clock, PATIENCE, eventually};
use super::leaks::{self, Adopted, Marked};
use super::{Caller, PATH, PYTHON, TempDir, is_root, set_mode, unique};

/// After this time a run counts as hanging. Less than nextest's limit for a test.
const HANGS: Duration = Duration::from_secs(300);

/// A `stockade run` that is not started yet.
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
    /// A run with defaults only.
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

    /// Adds options of `stockade run`.
    pub fn opts<I: IntoIterator<Item = S>, S: Into<OsString>>(mut self, options: I) -> Self {
        self.options.extend(options.into_iter().map(Into::into));
        self
    }

    /// Sets the command to run inside.
    pub fn cmd<I: IntoIterator<Item = S>, S: Into<OsString>>(mut self, command: I) -> Self {
        self.command = command.into_iter().map(Into::into).collect();
        self
    }

    /// Sets a shell script to run inside.
    pub fn sh(self, script: &str) -> Self {
        self.cmd(["/bin/sh", "-c", script])
    }

    /// Sets a Python program to run inside.
    pub fn python(self, program: &str) -> Self {
        self.cmd([PYTHON, "-I", "-S", "-c", program])
    }

    /// Starts our program by way of another, outside: its words come in front.
    pub fn via<I: IntoIterator<Item = S>, S: Into<OsString>>(mut self, prefix: I) -> Self {
        self.prefix.extend(prefix.into_iter().map(Into::into));
        self
    }

    /// Mounts a directory that the caller may not reach at another path, in a private mount namespace of the run.
    pub fn showing(mut self, directory: &Path, at: &Path) -> Self {
        if is_root() {
            let script = "mount --bind \"$1\" \"$2\" && shift 2 && exec \"$@\"";
            self.outer =
                ["unshare", "-m", "--propagation", "private", "sh", "-c", script, "sh"].map(OsString::from).into();
            self.outer.extend([directory, at].map(OsString::from));
        }
        self
    }

    /// Starts by way of these words, which the test's own user executes.
    pub fn outside<I: IntoIterator<Item = S>, S: Into<OsString>>(mut self, words: I) -> Self {
        self.outer = words.into_iter().map(Into::into).collect();
        self
    }

    /// Starts in a cgroup of v2.
    pub fn within(mut self, cgroup: &Path) -> Self {
        let script = "echo $$ >\"$1/cgroup.procs\" && shift && exec \"$@\"";
        self.outer = ["sh", "-c", script, "sh"].map(OsString::from).into();
        self.outer.push(cgroup.into());
        self
    }

    /// Executes our program from a shell script, which prepares the process outside.
    pub fn after_sh(self, script: &str) -> Self {
        self.via(["/bin/bash".to_owned(), "-c".to_owned(), format!("{script}\nexec \"$@\""), "bash".to_owned()])
    }

    /// Executes our program from a Python program, which prepares the process outside.
    pub fn after_python(self, program: &str) -> Self {
        let exec = "import os, sys\nos.execv(sys.argv[1], sys.argv[1:])";
        self.via([PYTHON, "-I", "-W", "ignore", "-c", &format!("{program}\n{exec}")])
    }

    /// Sets a variable of the caller's environment.
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    /// Sets the caller's working directory.
    pub fn cwd(mut self, path: &Path) -> Self {
        self.cwd = Some(path.to_owned());
        self
    }

    /// Sets the caller's standard input.
    pub fn stdin(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.stdin = bytes.into();
        self
    }

    /// Sets the caller's standard streams, instead of pipes that are read to their end.
    pub fn streams(mut self, stdin: impl Into<Stdio>, stdout: impl Into<Stdio>, stderr: impl Into<Stdio>) -> Self {
        self.streams = Some((stdin.into(), stdout.into(), stderr.into()));
        self
    }

    /// Requests no report.
    pub fn without_report(mut self) -> Self {
        self.report = false;
        self
    }

    /// Passes `stockade` exactly the options of the test: no `run`, name, report or marker.
    pub fn plain(mut self) -> Self {
        self.plain = true;
        self.report = false;
        self
    }

    /// Allows orphans that the test itself makes and that end by themselves.
    pub fn with_orphans(mut self) -> Self {
        self.orphans = true;
        self
    }

    /// Starts the run.
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
        drop(command); // it holds the child's streams open
        if piped {
            feed(&mut child, self.stdin);
        }
        let stdout = Reader::start(child.stdout.take());
        let stderr = Reader::start(child.stderr.take());
        Live { child, home, report, marked, clock, stdout, stderr, orphans: self.orphans, collect, killed: false }
    }

    /// Starts the run and waits for its end.
    pub fn go(self) -> Outcome {
        self.spawn().finish()
    }
}

/// The binary in a place that the caller can reach: a checkout may be below a home directory.
pub fn binary_for(caller: Caller, home: &TempDir) -> PathBuf {
    let built = PathBuf::from(env!("CARGO_BIN_EXE_stockade"));
    if caller == Caller::Root || !is_root() {
        return built;
    }
    // Many runs at once need only one copy, as long as a home with it is there.
    static LAST: Mutex<Option<PathBuf>> = Mutex::new(None);
    let copy = home.join("stockade");
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    if last.as_ref().is_none_or(|last| std::fs::hard_link(last, &copy).is_err()) {
        std::fs::copy(&built, &copy).expect("the binary can be copied");
        set_mode(&copy, 0o755);
    }
    *last = Some(copy.clone());
    copy
}

fn feed(child: &mut Child, bytes: Vec<u8>) {
    let mut pipe = child.stdin.take().expect("standard input is a pipe");
    if bytes.is_empty() {
        return;
    }
    // A workload that does not read must not block the test.
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

    /// The whole stream. It is a leak if a process still holds the stream open two seconds after the end.
    fn end(self, name: &str) -> Vec<u8> {
        if let Some(thread) = self.thread {
            let mut clock = Clock::start();
            while !thread.is_finished() {
                assert!(!clock.is_past(leaks::GRACE), "a process still holds {name} open");
                clock.sleep(Duration::from_millis(5));
            }
            thread.join().unwrap();
        }
        std::mem::take(&mut self.bytes.lock().unwrap())
    }
}

/// A running run.
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
    /// Removes the cgroup of a killed supervisor.
    collect: Command,
    killed: bool,
}

impl Live {
    /// The supervisor's process id.
    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// The caller's directories.
    pub fn home(&self) -> &TempDir {
        &self.home
    }

    /// The marker that all processes of the run carry.
    pub fn marker(&self) -> &str {
        self.marked.marker()
    }

    /// The standard output so far.
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

    /// Announces that the supervisor will be killed by other means.
    pub fn expect_killed(&mut self) {
        self.killed = true;
    }

    /// The processes of the run: the supervisor and its descendants.
    pub fn processes(&self) -> Vec<i32> {
        leaks::descendants(self.pid())
    }

    /// Waits for the end, without looking for leaks.
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
            // Finer than any time that a test checks, and coarse enough to leave the processor to the run.
            self.clock.sleep(Duration::from_millis(2));
        }
    }

    /// Waits for the end, and fails if anything of the run is left after two seconds.
    pub fn finish(mut self) -> Outcome {
        let status = self.wait();
        let (wall, allowance) = (self.clock.elapsed(), self.clock.allowance());
        let adopted = if self.killed || self.orphans { Adopted::Expected } else { Adopted::Leak };
        if self.killed {
            self.marked.expect_at_most_a_cgroup(adopted);
            // `gc` also finds leftovers of other runs, whose processes the kernel may not have released yet.
            self.collect.stdout(Stdio::null());
            let mut collects = || self.collect.status().is_ok_and(|status| status.success());
            assert!(eventually(&mut collects), "`stockade gc` removes its leftovers");
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

/// The outcome of a run.
#[derive(Debug)]
pub struct Outcome {
    /// The supervisor's exit status.
    pub status: ExitStatus,
    /// The standard output.
    pub stdout: Vec<u8>,
    /// The standard error.
    pub stderr: String,
    /// The report, if one was written.
    pub report: Option<Value>,
    /// The duration, measured from outside.
    pub wall: Duration,
    /// The allowance for the load of the machine.
    pub allowance: Duration,
    /// The caller's directories, removed with this.
    pub home: TempDir,
}

impl Outcome {
    /// The exit code. Fails if the supervisor was killed.
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

/// Runs a command as the caller, outside of any sandbox: proves that an attack works.
pub fn outside<S: AsRef<OsStr>>(caller: Caller, words: impl IntoIterator<Item = S>) -> (i32, String) {
    let words: Vec<_> = words.into_iter().collect();
    let mut command = caller.command(words[0].as_ref());
    command.args(&words[1..]).env_clear().env("PATH", PATH).current_dir("/").stdin(Stdio::null());
    let output = output(&mut command);
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    (output.status.code().unwrap_or_else(|| 128 + output.status.signal().unwrap_or(0)), text)
}

/// Runs a command of the test itself to its end.
pub fn output(command: &mut Command) -> Output {
    let child = leaks::spawn(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()));
    let pid = child.id();
    let output = child.wait_with_output().expect("the child can be waited for");
    leaks::forget_pid(pid);
    output
}

/// Runs a Python program outside of any sandbox.
pub fn python_outside(caller: Caller, program: &str) -> (i32, String) {
    outside(caller, [PYTHON, "-I", "-S", "-c", program])
}
