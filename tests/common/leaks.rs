//! Detects leaks of a run: processes, zombies, mounts, cgroups, files, sockets.
//!
//! Every run carries a unique marker in its name and in its environment, so that concurrent runs do not see each other. The test
//! process adopts orphans, so that it also finds a process that hides the marker. A namespace lives as long as its last process
//! or mount, and is found by them.

use std::collections::{BTreeSet, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::{LazyLock, Mutex, MutexGuard};
use std::time::Duration;

use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;

use super::clock::Clock;

/// The environment variable with the marker.
pub const VARIABLE: &str = "STOCKADE_TEST_MARKER";

/// How long leftovers of a run may take to disappear.
pub const GRACE: Duration = Duration::from_secs(2);

/// Additional time for killed processes that are still in the kernel: it destroys namespaces one after the other, and a process
/// needs a processor to die on.
pub const KERNELS_GRACE: Duration = Duration::from_secs(90);

/// The test's own children, which are not orphans of a run. Locked during a spawn, so that no child is ever unlisted.
static CHILDREN: LazyLock<Mutex<HashSet<i32>>> = LazyLock::new(Mutex::default);

fn children() -> MutexGuard<'static, HashSet<i32>> {
    CHILDREN.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Makes this process the parent of its descendants' orphans, `PR_SET_CHILD_SUBREAPER`.
pub fn adopt_orphans() {
    nix::sys::prctl::set_child_subreaper(true).expect("a process can become a subreaper");
}

/// Starts a child of the test itself.
pub fn spawn(command: &mut Command) -> Child {
    let mut known = children();
    let child = command.spawn().unwrap_or_else(|error| panic!("{command:?} starts: {error}"));
    known.insert(child.id() as i32);
    child
}

/// Forgets a child that was waited for.
pub fn forget(child: &Child) {
    forget_pid(child.id());
}

/// Forgets a child that was waited for.
pub fn forget_pid(pid: u32) {
    children().remove(&(pid as i32));
}

/// How to judge an orphan of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Adopted {
    /// A leak: the run did not wait for it.
    Leak,
    /// Expected: the supervisor was killed, so the test reaps its children.
    Expected,
}

/// The marker of a run, and what existed before it.
#[derive(Debug)]
pub struct Marked {
    marker: String,
    mounts: BTreeSet<String>,
    orphans: Vec<i32>,
    directories: Vec<(PathBuf, BTreeSet<PathBuf>)>,
}

impl Marked {
    /// Before the run: `directories` are its own, in which it may leave nothing.
    pub fn new(marker: &str, directories: impl IntoIterator<Item = PathBuf>) -> Self {
        let directories = directories.into_iter().map(|path| (path.clone(), files_below(&path))).collect();
        Self { marker: marker.to_owned(), mounts: mounts(), orphans: orphans(Adopted::Leak), directories }
    }

    /// The run's marker.
    pub fn marker(&self) -> &str {
        &self.marker
    }

    /// After the run: fails if anything of it exists and does not disappear at once.
    pub fn expect_nothing_left(&self, adopted: Adopted) {
        self.expect_no_more(|_| true, adopted);
    }

    /// After a supervisor was killed: only the supervisor removes its cgroup, so an empty one may exist.
    pub fn expect_at_most_a_cgroup(&self, adopted: Adopted) {
        self.expect_no_more(|line| !line.starts_with("cgroup "), adopted);
    }

    fn expect_no_more(&self, counts: impl Fn(&str) -> bool, adopted: Adopted) {
        let mut clock = Clock::start();
        loop {
            let mut left = self.left(adopted);
            left.retain(|line| counts(line));
            if left.is_empty() {
                return;
            }
            // Processes that have exited, but that the kernel has not released yet, get more time.
            let in_the_kernel = left.iter().all(|line| matches!(line.split(' ').nth(2), Some("D" | "R")));
            let limit = if in_the_kernel { GRACE + KERNELS_GRACE } else { GRACE };
            assert!(!clock.is_past(limit), "left behind by the run:\n  {}", left.join("\n  "));
            clock.sleep(Duration::from_millis(20));
        }
    }

    fn left(&self, adopted: Adopted) -> Vec<String> {
        let mut left = Vec::new();
        let marked = |text: &[u8]| contains(text, self.marker.as_bytes());
        for pid in pids() {
            let carries = |file: &str| fs::read(format!("/proc/{pid}/{file}")).is_ok_and(|text| marked(&text));
            if carries("environ") || carries("cmdline") {
                left.push(format!("process {}", describe(&[pid])));
            }
        }
        // Orphans of an earlier test in this process are not the run's.
        let own = orphans(adopted).into_iter().filter(|pid| !self.orphans.contains(pid));
        left.extend(own.map(|pid| format!("orphan {}", describe(&[pid]))));
        left.extend(mounts().difference(&self.mounts).map(|line| format!("mount {line}")));
        for (path, before) in &self.directories {
            left.extend(files_below(path).difference(before).map(|path| format!("file {}", path.display())));
        }
        for place in ["/tmp", "/var/tmp", "/dev/shm", "/run"] {
            for entry in fs::read_dir(place).into_iter().flatten().flatten() {
                if marked(entry.file_name().as_encoded_bytes()) {
                    left.push(format!("file {}", entry.path().display()));
                }
            }
        }
        left.extend(cgroups(&self.marker).iter().map(|path| format!("cgroup {}", path.display())));
        for line in fs::read_to_string("/proc/net/unix").unwrap_or_default().lines() {
            if line.contains(&self.marker) {
                left.push(format!("socket {line}"));
            }
        }
        left
    }
}

fn contains(text: &[u8], word: &[u8]) -> bool {
    text.windows(word.len()).any(|window| window == word)
}

fn pids() -> Vec<i32> {
    let entries = fs::read_dir("/proc").expect("/proc can be read");
    entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// State letter and parent of a process, `proc_pid_stat(5)`.
pub fn stat(pid: i32) -> Option<(char, i32)> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = text.rsplit_once(')')?.1.split_ascii_whitespace();
    Some((fields.next()?.chars().next()?, fields.next()?.parse().ok()?))
}

/// Children of this process that it did not start: adopted orphans. Zombies among them are reaped.
fn orphans(adopted: Adopted) -> Vec<i32> {
    let me = std::process::id() as i32;
    let known = children();
    let mut orphans: Vec<_> = pids()
        .into_iter()
        .filter(|pid| !known.contains(pid) && stat(*pid).is_some_and(|(_, parent)| parent == me))
        .collect();
    if adopted == Adopted::Expected {
        orphans.retain(|&pid| {
            let dead = stat(pid).is_none_or(|(state, _)| state == 'Z');
            if dead {
                let _ = waitpid(Pid::from_raw(pid), Some(WaitPidFlag::WNOHANG));
            }
            !dead
        });
    }
    orphans
}

/// A process and all of its descendants.
pub fn descendants(root: i32) -> Vec<i32> {
    let parents: Vec<_> = pids().into_iter().filter_map(|pid| Some((pid, stat(pid)?.1))).collect();
    let mut tree = vec![root];
    let mut at = 0;
    while let Some(&parent) = tree.get(at) {
        tree.extend(parents.iter().filter(|(_, of)| *of == parent).map(|(pid, _)| *pid));
        at += 1;
    }
    tree
}

/// Describes processes for a message.
pub fn describe(pids: &[i32]) -> String {
    let words = pids.iter().map(|pid| {
        let cmdline = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let cmdline = String::from_utf8_lossy(&cmdline).replace('\0', " ");
        let comm = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        let state = stat(*pid).map_or('?', |(state, _)| state);
        let waits = fs::read_to_string(format!("/proc/{pid}/wchan")).unwrap_or_default();
        format!("{pid} {state} {} in {waits} [{}]", comm.trim(), cmdline.chars().take(200).collect::<String>())
    });
    words.collect::<Vec<_>>().join("; ")
}

fn mounts() -> BTreeSet<String> {
    let text = fs::read("/proc/self/mountinfo").expect("mountinfo can be read");
    String::from_utf8_lossy(&text).lines().map(str::to_owned).collect()
}

fn files_below(path: &Path) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            found.extend(files_below(&entry.path()));
        }
        found.insert(entry.path());
    }
    found
}

fn cgroups(marker: &str) -> Vec<PathBuf> {
    fn walk(path: &Path, marker: &str, depth: u32, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(path).into_iter().flatten().flatten() {
            // Symlinks are not followed: the kernel's tree has none, but a hybrid host's tmpfs does.
            if depth == 0 || !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                continue;
            }
            if entry.file_name().to_string_lossy().contains(marker) {
                found.push(entry.path());
            }
            walk(&entry.path(), marker, depth - 1, found);
        }
    }
    let mut found = Vec::new();
    walk(Path::new("/sys/fs/cgroup"), marker, 8, &mut found);
    found
}
