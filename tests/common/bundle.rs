//! OCI bundles, and the runtimes that run them: ours, and runc and crun as the controls that prove the tests themselves.

use std::ffi::OsStr;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::clock::{Clock, eventually};
use super::{Caller, TempDir, host, is_root, skip, unique};

/// The runtime of a bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runtime {
    /// The tested runtime.
    Ours,
    /// The control that engines use by default, and whose command line they expect.
    Runc,
    /// An independent control.
    Crun,
}

/// Runs crun in a mount namespace of its own. crun refuses a hybrid host: it gets cgroup v1 alone. And crun 1.8 gives its standard
/// streams to the container's user, even if they are the host's `/dev/null`: it gets another node.
const FOR_CRUN: &str = r#"
    cgroups=/sys/fs/cgroup
    [ -e $cgroups/cgroup.controllers ] || [ ! -e $cgroups/unified/cgroup.controllers ] || umount $cgroups/unified || exit 125
    is_null() {
        [ /proc/self/fd/$1 -ef /dev/null ] || return 1
        [ -e /mnt/dev/null ] || { mount -t tmpfs -o mode=755 null /mnt && mkdir /mnt/dev && mknod -m 666 /mnt/dev/null c 1 3; }
    }
    is_null 0 && exec </mnt/dev/null
    is_null 1 && exec >/mnt/dev/null
    is_null 2 && exec 2>/mnt/dev/null
    exec "$@"
"#;

impl Runtime {
    /// The runtime's program.
    pub fn program(self) -> &'static str {
        match self {
            Self::Ours => env!("CARGO_BIN_EXE_stockade-oci"),
            Self::Runc => "/usr/sbin/runc",
            Self::Crun => "/usr/bin/crun",
        }
    }

    /// The command line that starts the runtime: its program, for crun after a wrapper.
    pub fn words(self) -> Vec<&'static str> {
        let mut words = Vec::new();
        if self == Self::Crun {
            words.extend(["/usr/bin/unshare", "--mount", "--propagation", "slave", "/bin/sh", "-c", FOR_CRUN, "sh"]);
        }
        words.push(self.program());
        words
    }

    /// The expected message: ours follows runc, because engines parse it; crun has its own words.
    pub fn says(self, words: &'static str, crun: &'static str) -> &'static str {
        if self == Self::Crun { crun } else { words }
    }

    /// Whether the runtime has the command `events`.
    pub fn has_events(self) -> bool {
        self != Self::Crun
    }

    /// A command of the runtime, without arguments.
    pub fn command(self) -> Command {
        let words = self.words();
        let mut command = Command::new(words[0]);
        command.args(&words[1..]);
        command
    }
}

/// Runs the body for our runtime and for all installed controls.
pub fn for_each_runtime(body: impl Fn(Runtime)) {
    if !is_root() {
        return skip("not root");
    }
    for runtime in [Runtime::Ours, Runtime::Runc, Runtime::Crun] {
        if !Path::new(runtime.program()).exists() {
            super::skip_part(&format!("{runtime:?}"), "not installed");
            continue;
        }
        eprintln!("--- {runtime:?}");
        body(runtime);
    }
}

/// Runs the body for our runtime alone, where the controls behave differently or lack the feature.
pub fn ours(body: impl Fn(Runtime)) {
    if is_root() { body(Runtime::Ours) } else { skip("not root") }
}

/// A bundle with a busybox root and its container, which is deleted on drop.
#[derive(Debug)]
pub struct Bundle {
    runtime: Runtime,
    /// The bundle's directory, with `rootfs` in it.
    pub dir: TempDir,
    /// The container's id.
    pub id: String,
    /// The content of `config.json`.
    pub config: Value,
}

impl Bundle {
    /// A bundle that runs a shell script. `None` without a static busybox.
    pub fn new(runtime: Runtime, script: &str) -> Option<Self> {
        let dir = TempDir::new(Caller::Root);
        host::busybox_rootfs(&dir)?;
        let spec = Command::new(Runtime::Ours.program()).args(["spec", "--bundle"]).arg(dir.path()).output().unwrap();
        assert!(spec.status.success(), "{spec:?}");
        let mut config: Value = serde_json::from_slice(&std::fs::read(dir.join("config.json")).unwrap()).unwrap();
        config["ociVersion"] = json!("1.0.2"); // the controls know this version
        config["process"]["terminal"] = json!(false);
        config["process"]["args"] = json!(["sh", "-c", script]);
        let id = unique();
        config["linux"]["cgroupsPath"] = json!(format!("/{id}"));
        Some(Self { runtime, dir, id, config })
    }

    /// A bundle that another tool created in this directory, unchanged.
    pub fn found(runtime: Runtime, dir: TempDir) -> Self {
        let config = serde_json::from_slice(&std::fs::read(dir.join("config.json")).unwrap()).unwrap();
        Self { runtime, dir, id: unique(), config }
    }

    /// The root directory on the host.
    pub fn rootfs(&self) -> PathBuf {
        self.dir.join("rootfs")
    }

    /// Adds a mount.
    pub fn mount(&mut self, destination: &str, kind: &str, source: &str, options: &[&str]) -> &mut Self {
        let mounts = self.config["mounts"].as_array_mut().unwrap();
        mounts.push(json!({ "destination": destination, "type": kind, "source": source, "options": options }));
        self
    }

    /// Writes `config.json` atomically: another command may be reading it.
    pub fn write_config(&self) {
        let (new, path) = (self.dir.join("config.json.new"), self.dir.join("config.json"));
        std::fs::write(&new, self.config.to_string()).and_then(|()| std::fs::rename(&new, &path)).unwrap();
    }

    /// A command of the runtime for this bundle.
    pub fn command<S: AsRef<OsStr>>(&self, words: impl IntoIterator<Item = S>) -> Command {
        self.write_config();
        let mut command = self.runtime.command();
        command.arg("--root").arg(self.dir.join("state")).args(words).stdin(Stdio::null());
        command
    }

    /// Runs a command to its end.
    pub fn call<S: AsRef<OsStr>>(&self, words: impl IntoIterator<Item = S>) -> Called {
        Called(self.command(words).output().unwrap())
    }

    /// `run` in the foreground.
    pub fn run(&self) -> Called {
        self.call(["run", "--bundle", self.path(), &self.id])
    }

    /// `create`, with its output in a file, because a container keeps its streams open.
    pub fn create(&self) -> Called {
        let out = std::fs::File::create(self.dir.join("out")).unwrap();
        let mut command = self.command(["create", "--bundle", self.path(), "--pid-file"]);
        command.arg(self.dir.join("pid")).arg(&self.id).stdout(out.try_clone().unwrap()).stderr(out);
        let mut output = command.output().unwrap();
        output.stderr = std::fs::read(self.dir.join("out")).unwrap();
        Called(output)
    }

    /// The output of the container of [`Self::create`] so far.
    pub fn printed(&self) -> String {
        std::fs::read_to_string(self.dir.join("out")).unwrap()
    }

    /// A command about the container.
    pub fn about(&self, verb: &str) -> Called {
        self.call([verb, &self.id])
    }

    /// The container's state.
    pub fn state(&self) -> Value {
        serde_json::from_slice(&self.about("state").0.stdout).unwrap_or(Value::Null)
    }

    /// Waits until the container has this status.
    pub fn wait_for(&self, status: &str) {
        let is_so = || self.state()["status"] == status;
        assert!(eventually(is_so), "is not {status}: {}\n{}", self.state(), self.printed());
    }

    /// Waits until the container has printed this text.
    pub fn wait_for_output(&self, text: &str) {
        assert!(eventually(|| self.printed().contains(text)), "did not print {text:?}: {:?}", self.printed());
    }

    /// Runs a script with `exec`.
    pub fn exec(&self, script: &str) -> Called {
        self.call(["exec", &self.id, "sh", "-c", script])
    }

    /// The container's cgroup directories, in any hierarchy.
    pub fn cgroups(&self) -> Vec<PathBuf> {
        let all = std::fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten().map(|entry| entry.path());
        let all = all.chain([PathBuf::from("/sys/fs/cgroup")]);
        all.map(|path| path.join(&self.id)).filter(|path| path.exists()).collect()
    }

    /// The processes in the container's cgroups.
    pub fn members(&self) -> Vec<String> {
        let listed = |path: PathBuf| std::fs::read_to_string(path.join("cgroup.procs")).unwrap_or_default();
        self.cgroups()
            .into_iter()
            .flat_map(|path| listed(path).lines().map(str::to_owned).collect::<Vec<_>>())
            .collect()
    }

    /// Processes with the container's id in their arguments or environment.
    pub fn processes(&self) -> Vec<String> {
        let has = |pid: &str, file: &str| {
            let text = std::fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
            text.windows(self.id.len()).any(|window| window == self.id.as_bytes())
        };
        let entries = std::fs::read_dir("/proc").unwrap().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().into_string().ok());
        pids.filter(|pid| pid.parse::<i32>().is_ok() && (has(pid, "environ") || has(pid, "cmdline"))).collect()
    }

    /// Everything that exists of the container, except for the bundle.
    pub fn left(&self) -> (Vec<PathBuf>, Vec<String>, bool) {
        (self.cgroups(), self.processes(), self.dir.join("state").join(&self.id).exists())
    }

    /// Fails if anything of the container remains after five seconds.
    pub fn expect_nothing_left(&self, what: &str) {
        let mut clock = Clock::start();
        loop {
            let left = self.left();
            if left == (Vec::new(), Vec::new(), false) {
                return;
            }
            assert!(!clock.is_past(Duration::from_secs(5)), "{what}: left behind: {left:?}");
            clock.sleep(Duration::from_millis(10));
        }
    }

    fn path(&self) -> &str {
        super::text(self.dir.path())
    }
}

impl Drop for Bundle {
    fn drop(&mut self) {
        let _ = self.call(["delete", "--force", &self.id]);
        // A control leaves the cgroups of a container that it failed to create, and every runtime those above.
        for path in self.cgroups() {
            for below in std::fs::read_dir(&path).into_iter().flatten().flatten() {
                let _ = std::fs::remove_dir(below.path());
            }
            let _ = std::fs::remove_dir(path);
        }
    }
}

/// A finished command of a runtime.
#[derive(Debug)]
pub struct Called(pub Output);

impl Called {
    /// Fails unless the command ended with this code.
    #[track_caller]
    pub fn expect(self, code: i32) -> Self {
        let status = self.0.status;
        assert!(status.code() == Some(code), "{:?} {:?}: {}{}", status.code(), status.signal(), self.out(), self.err());
        self
    }

    /// Fails unless the command failed with this message.
    #[track_caller]
    pub fn expect_error(self, text: &str) -> Self {
        assert!(!self.0.status.success(), "it succeeded: {}", self.out());
        // Quotes are escaped in a record.
        let plain = self.err().replace("\\\"", "\"").replace("\\\\", "\\");
        assert!(self.err().contains(text) || plain.contains(text), "{text:?} is not in {:?}", self.err());
        self
    }

    /// The standard output.
    pub fn out(&self) -> String {
        String::from_utf8_lossy(&self.0.stdout).into_owned()
    }

    /// The standard error.
    pub fn err(&self) -> String {
        String::from_utf8_lossy(&self.0.stderr).into_owned()
    }
}
