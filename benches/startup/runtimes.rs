//! The contestants that are OCI runtimes: `run`, a container's life, and `exec` in a running container, each with the runtime's
//! state in memory and on a disk.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use nix::sys::statfs::{TMPFS_MAGIC, statfs};

use super::bundle::{Work, is_root};
use super::contest::{Claim, Contestant, IDLE, PROBE, Words, find};
use super::programs::STOCKADE_OCI;
use super::start;

/// The runtimes' contestants. The containers in which `exec` runs are deleted on drop.
pub struct Runtimes {
    /// The contestants.
    pub contestants: Vec<Contestant>,
    deletions: Vec<Words>,
}

const CLAIM: Claim = Claim {
    namespaces: &["mnt", "pid", "net", "ipc", "uts"],
    filter: false,
    no_new_privs: true,
    no_capabilities: false,
    read_only_root: true,
};

/// The command that a row measures.
#[derive(Clone, Copy)]
enum Measured {
    Run,
    Life,
    Exec,
}
use Measured::{Exec, Life, Run};

/// A row: its names with the state in memory and on a disk, its program, and what it measures.
type Row = ([&'static str; 2], &'static str, Measured);

const OURS: &str = "";
const ROWS: [Row; 10] = [
    (["stockade-oci run", "stockade-oci run, disk"], OURS, Run),
    (["crun run", "crun run, disk"], "crun", Run),
    (["runc run", "runc run, disk"], "runc", Run),
    (["runsc run", "runsc run, disk"], "runsc", Run),
    (["stockade-oci create+start+delete", "stockade-oci create+start+delete, disk"], OURS, Life),
    (["crun create+start+delete", "crun create+start+delete, disk"], "crun", Life),
    (["runc create+start+delete", "runc create+start+delete, disk"], "runc", Life),
    (["stockade-oci exec", "stockade-oci exec, disk"], OURS, Exec),
    (["crun exec", "crun exec, disk"], "crun", Exec),
    (["runc exec", "runc exec, disk"], "runc", Exec),
];

impl Runtimes {
    /// All of them. `only` selects rows by parts of their names, as on the command line.
    pub fn start(work: &Work, only: &[String]) -> Self {
        let mut all = Self { contestants: Vec::new(), deletions: Vec::new() };
        let places = [work.dir.join("state"), work.disk.clone()];
        for (column, place) in places.iter().enumerate() {
            for (names, program, measured) in ROWS {
                let name = names[column];
                if only.is_empty() || only.iter().any(|word| name.contains(word)) {
                    let contestant = all.row(work, name, program, measured, place);
                    all.contestants.push(contestant);
                }
            }
        }
        all
    }

    fn row(&mut self, work: &Work, name: &'static str, program: &str, measured: Measured, place: &Path) -> Contestant {
        if !is_root() {
            return Contestant::without(name, "requires root");
        }
        let program = if program == OURS { STOCKADE_OCI.as_str() } else { program };
        let Some(program) = find(program) else { return Contestant::without(name, "not installed") };
        if place == work.disk && statfs(place).is_ok_and(|found| found.filesystem_type() == TMPFS_MAGIC) {
            return Contestant::without(name, "the build directory is in memory");
        }
        let file = Path::new(&program).file_name().unwrap_or_default();
        let state = place.join(file).display().to_string();
        let of = |words: &[&str]| -> Words {
            [&program, "--root", &state].into_iter().chain(words.iter().copied()).map(str::to_owned).collect()
        };
        let path = |bundle: PathBuf| bundle.display().to_string();
        let run = |bundle: PathBuf| of(&["run", "--bundle", &path(bundle), "startup-{}"]);
        let like = Contestant { claim: CLAIM, ..Contestant::new(name, &program) };
        let idle = ["/bin/busybox", IDLE[0], IDLE[1]];
        match measured {
            Run => Contestant {
                steps: vec![run(work.dir.join("bundle"))],
                probe: Some(run(work.bundle_of("probe", &["/bin/busybox", "sh", "-c", PROBE]))),
                idle: Some(run(work.bundle_of("idle", &idle))),
                ..like
            },
            Life => Contestant {
                steps: vec![
                    of(&["create", "--bundle", &path(work.dir.join("bundle")), "startup-{}"]),
                    of(&["start", "startup-{}"]),
                    of(&["delete", "--force", "startup-{}"]),
                ],
                ..like
            },
            Exec => {
                // A name of its own, because the cgroup has it too.
                let entered = format!("startup-exec-{}", self.deletions.len());
                // Not the arguments of `idle`, by which the added process is recognised.
                let bundle = path(work.bundle_of("entered", &["/bin/busybox", "sleep", "86400"]));
                let begin = of(&["run", "--detach", "--bundle", &bundle, &entered]);
                let begun = start::quiet(&begin, 0).stdin(Stdio::null()).status();
                self.deletions.push(of(&["delete", "--force", &entered]));
                if !begun.is_ok_and(|status| status.success()) {
                    return Contestant::without(name, "its container does not run here");
                }
                // A process by file has the same privileges with every runtime, and engines do the same.
                let exec = |name: &str, words: &[&str]| {
                    of(&["exec", "--process", &path(work.process_of(name, words)), &entered])
                };
                Contestant {
                    steps: vec![exec("process", &["/bin/busybox", "true"])],
                    probe: Some(exec("process-probe", &["/bin/busybox", "sh", "-c", PROBE])),
                    idle: Some(exec("process-idle", &idle)),
                    ..like
                }
            }
        }
    }
}

impl Drop for Runtimes {
    fn drop(&mut self) {
        for words in &self.deletions {
            let _ = start::quiet(words, 0).status();
        }
        start::reap();
    }
}
