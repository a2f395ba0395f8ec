//! Shared by all suites: runs the real binary, as root and as an unprivileged user, and looks for leaks.
//!
//! Nothing here is a mock of the kernel.

// Each suite is a separate crate and uses a part of this.
#![allow(dead_code, unreachable_pub, unused_imports)]

pub mod bundle;
pub mod clock;
pub mod compiled;
pub mod confined;
pub mod history;
pub mod host;
pub mod inject;
pub mod leaks;
pub mod python;
pub mod run;
pub mod schema;
pub mod storm;
pub mod terminal;

pub use compiled::compiled;
pub use python::attack;
pub use run::{Live, Outcome, Run, output, outside, python_outside};

use std::ffi::{OsStr, OsString};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// The unprivileged user of the tests: Debian's `daemon`, which every Debian has in its passwd file and which owns nothing.
pub const UNPRIVILEGED: (u32, u32, &str) = (1, 1, "daemon");

/// A PATH without home directories.
pub const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The system's interpreter, not one from the PATH of the user.
pub const PYTHON: &str = "/usr/bin/python3";

/// The user that starts a sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller {
    /// Root of the host.
    Root,
    /// A user without any privilege.
    Unprivileged,
}

impl Caller {
    /// User and group id on the host.
    pub fn ids(self) -> (u32, u32) {
        match self {
            _ if !is_root() => (nix::unistd::getuid().as_raw(), nix::unistd::getgid().as_raw()),
            Self::Root => (0, 0),
            Self::Unprivileged => (UNPRIVILEGED.0, UNPRIVILEGED.1),
        }
    }

    /// A command that runs as this caller, outside of any sandbox.
    pub fn command(self, program: impl AsRef<OsStr>) -> Command {
        let mut words = self.become_words().into_iter().map(OsString::from).chain([program.as_ref().to_owned()]);
        let mut command = Command::new(words.next().expect("at least the program"));
        command.args(words);
        command
    }

    /// The words in front of a command that change to this caller.
    pub fn become_words(self) -> Vec<String> {
        if self == Self::Root || !is_root() {
            return Vec::new();
        }
        let (uid, gid) = self.ids();
        vec!["setpriv".into(), format!("--reuid={uid}"), format!("--regid={gid}"), "--clear-groups".into(), "--".into()]
    }
}

/// Whether the tests run as root.
pub fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

/// All callers that this host allows. Without root only one; the other is reported as skipped.
pub fn callers() -> Vec<Caller> {
    if is_root() {
        return vec![Caller::Root, Caller::Unprivileged];
    }
    skip_part("as root", "not root");
    vec![Caller::Unprivileged]
}

/// Runs the body for every caller. If the body fails, the message names the caller.
pub fn for_each_caller(body: impl Fn(Caller)) {
    for caller in callers() {
        eprintln!("--- as {caller:?}");
        body(caller);
    }
}

/// Reports that the running test cannot run here. Use as `return skip("why")`.
pub fn skip(reason: &str) {
    skip_part("", reason);
}

/// Reports that a part of the running test cannot run here.
pub fn skip_part(part: &str, reason: &str) {
    eprintln!("skipped: {reason}");
    let Some(file) = std::env::var_os("STOCKADE_SKIPS") else { return };
    let thread = std::thread::current();
    // libtest names a test's thread after it. With one thread, the process belongs to one test under nextest.
    let test = std::env::var("NEXTEST_TEST_NAME").unwrap_or_else(|_| thread.name().unwrap_or("?").to_owned());
    let suite = std::env::args().next().unwrap_or_default();
    let suite = Path::new(&suite).file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let suite = suite.rsplit_once('-').map_or(suite.as_str(), |(name, _hash)| name);
    let part = if part.is_empty() { String::new() } else { format!(" ({part})") };
    let line = format!("{suite}::{test}{part}\t{reason}\n");
    use std::io::Write as _;
    let opened = std::fs::OpenOptions::new().create(true).append(true).open(file);
    opened
        .and_then(|mut file| file.write_all(line.as_bytes()))
        .expect("STOCKADE_SKIPS names a file that can be written");
}

/// Whether a program is installed. If not, reports a skip.
pub fn has_program(name: &str) -> bool {
    let found = PATH.split(':').any(|dir| Path::new(dir).join(name).exists());
    if !found {
        skip(&format!("{name} is not installed"));
    }
    found
}

/// A name that no other test or run has, by which leaks are recognised. It contains the time, because a killed process leaves its
/// files and its process id is reused.
pub fn unique() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |time| time.as_millis());
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("stkt-{}-{:05x}-{number}-", std::process::id(), now & 0xfffff) // no name is a prefix of another
}

/// A directory that the caller owns, removed on drop.
#[derive(Debug)]
pub struct TempDir {
    path: PathBuf,
}

impl TempDir {
    /// Creates one in `/tmp`, which every caller can enter, unlike `TMPDIR`.
    pub fn new(caller: Caller) -> Self {
        Self::below(Path::new("/tmp"), caller)
    }

    /// Creates one in a directory that every caller can enter.
    pub fn below(parent: &Path, caller: Caller) -> Self {
        let path = parent.join(unique());
        std::fs::create_dir(&path).expect("a temporary directory can be made");
        let (uid, gid) = caller.ids();
        chown(&path, Some(uid), Some(gid)).expect("its owner can be set");
        set_mode(&path, 0o755);
        Self { path }
    }

    /// The directory's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A path below it.
    pub fn join(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Creates a file in it, with the directory's owner.
    pub fn file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.join(name);
        std::fs::write(&path, content).expect("a file can be written");
        self.own(&path);
        set_mode(&path, 0o644);
        path
    }

    /// Creates a directory in it, with the directory's owner.
    pub fn dir(&self, name: &str) -> PathBuf {
        let path = self.join(name);
        std::fs::create_dir_all(&path).expect("a directory can be made");
        self.own(&path);
        set_mode(&path, 0o755);
        path
    }

    fn own(&self, path: &Path) {
        use std::os::unix::fs::MetadataExt as _;
        let owner = std::fs::metadata(&self.path).expect("it is there");
        chown(path, Some(owner.uid()), Some(owner.gid())).expect("its owner can be set");
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

/// `chmod(2)`.
pub fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("a mode can be set");
}

/// A path as text.
pub fn text(path: &Path) -> &str {
    path.to_str().expect("the tests' paths are UTF-8")
}
