//! The network outside of the sandboxes: a namespace of the test's own, with servers that count.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::Value;

use crate::common::leaks;
use crate::common::{Caller, PATH, PYTHON, Run, TempDir, has_program, is_root, skip, text};

/// Its name server.
pub const SERVER: &str = "203.0.113.53";

/// A network with servers, which end with this.
pub struct World {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    /// Whether there is IPv6.
    pub has_six: bool,
    /// The certificate of `*.example.com` and `*.cdn.example.com`.
    pub directory: TempDir,
}

/// What came to the servers.
pub struct Came(Value);

impl Came {
    /// The number of connections to an address.
    pub fn to(&self, address: &str) -> u64 {
        self.0["came"][address].as_u64().unwrap_or(0)
    }

    /// Every address that was connected to.
    pub fn addresses(&self) -> Vec<String> {
        self.0["came"].as_object().unwrap().keys().cloned().collect()
    }

    /// The names that were asked for.
    pub fn asked(&self) -> Vec<String> {
        let mut names: Vec<_> =
            self.0["asked"].as_array().unwrap().iter().map(|name| name.as_str().unwrap().to_owned()).collect();
        names.sort();
        names.dedup();
        names
    }
}

impl World {
    /// Makes it. `None` if that is not possible here.
    pub fn new() -> Option<Self> {
        if !is_root() {
            skip("only root makes a network with servers for all callers");
            return None;
        }
        if let Some(missing) =
            ["ip", "unshare", "nsenter", "openssl", "curl"].into_iter().find(|name| !has_program(name))
        {
            skip(&format!("{missing} is not installed"));
            return None;
        }
        let directory = TempDir::new(Caller::Root);
        let script = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 9 -subj /CN=example.com \
                      -addext 'subjectAltName=DNS:*.example.com,DNS:*.a.cdn.example.com' -keyout key.pem -out cert.pem 2>/dev/null \
                      && cat key.pem cert.pem >both.pem && chmod 644 cert.pem && chmod 711 .";
        let made =
            Command::new("sh").args(["-c", script]).env("PATH", PATH).current_dir(directory.path()).status().unwrap();
        assert!(made.success());
        let mut command = Command::new("unshare");
        command
            .args(["-n", "--", PYTHON, "-I", "-W", "ignore", "-c", include_str!("outside.py"), text(directory.path())])
            .env("PATH", PATH)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut process = leaks::spawn(&mut command);
        let input = process.stdin.take().unwrap();
        let mut output = BufReader::new(process.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        assert!(line.starts_with("ready"), "the servers start: {line:?}");
        Some(Self { process, input, output, has_six: line.contains("six"), directory })
    }

    /// The words that enter it.
    pub fn entering(&self) -> [String; 3] {
        ["nsenter".into(), format!("--net=/proc/{}/ns/net", self.process.id()), "--".into()]
    }

    /// A run from there, with rules and the name server.
    pub fn run(&self, caller: Caller, rules: &[&str]) -> Run {
        let rules = rules.iter().flat_map(|rule| ["--allow-net", rule]);
        self.run_plain(caller).opts(rules).opts(["--dns", SERVER])
    }

    /// A run from there.
    pub fn run_plain(&self, caller: Caller) -> Run {
        Run::new(caller).outside(self.entering())
    }

    /// What a program there prints.
    pub fn python(&self, program: &str) -> String {
        self.try_python(program).unwrap_or_else(|error| panic!("{error}"))
    }

    /// The same, or why it failed.
    pub fn try_python(&self, program: &str) -> Result<String, String> {
        let [enter, words @ ..] = self.entering();
        let done =
            Command::new(enter).args(words).args([PYTHON, "-I", "-c", program]).env("PATH", PATH).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if done.status.success() { Ok(text(&done.stdout)) } else { Err(text(&done.stderr)) }
    }

    /// What came since the last question.
    pub fn came(&mut self) -> Came {
        writeln!(self.input, "said").unwrap();
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        Came(serde_json::from_str(&line).unwrap())
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        leaks::forget(&self.process);
    }
}
