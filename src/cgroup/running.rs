//! The running sandboxes, found by their cgroups: for `stockade top`.
//!
//! A cgroup's name states its supervisor, but any process can create a cgroup with such a name. So the statement is displayed
//! and never acted upon.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::files::Dir;
use super::{hierarchies, name, usage, v1};
use crate::report::Usage;

/// The depth limit of the search.
const MAX_DEPTH: u32 = 16;

/// The maximum length read of a supervisor's command line.
const MAX_COMMAND: u64 = 64 << 10;

/// The result of a search.
#[derive(Debug)]
pub struct Found {
    /// The sandboxes that have a cgroup, sorted by name.
    pub sandboxes: Vec<Running>,
    /// Which other sandboxes may exist without being visible.
    pub unseen: Option<&'static str>,
}

/// A sandbox.
#[derive(Debug)]
pub struct Running {
    /// Its name.
    pub id: String,
    /// Process id of its supervisor. `None` if the supervisor is in another pid namespace, or the name is not genuine.
    pub pid: Option<u32>,
    /// The time since the supervisor started.
    pub age: Option<Duration>,
    /// Its cgroup; on hosts with cgroup v1, one of them.
    pub path: PathBuf,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    V2(Dir),
    V1(v1::Cgroup),
}

/// Searches all hierarchies, as far as they are visible.
pub fn look() -> Found {
    let hierarchies = hierarchies::look();
    let mut sandboxes = Vec::new();
    if let Some(v2) = &hierarchies.v2 {
        below(&v2.mount, MAX_DEPTH, &mut |path| {
            if let Ok(dir) = Dir::open(path) {
                sandboxes.extend(Running::of(path, || Kind::V2(dir)));
            }
        });
    }
    for hierarchy in &hierarchies.v1 {
        below(&hierarchy.mount, MAX_DEPTH, &mut |path| {
            // The name is the same in every hierarchy.
            let known = |one: &Running| one.path.file_name() == path.file_name();
            if !sandboxes.iter().any(known) {
                sandboxes.extend(Running::of(path, || Kind::V1(v1::Cgroup::default())));
            }
            if let Some(Running { kind: Kind::V1(cgroup), .. }) = sandboxes.iter_mut().find(|one| known(one)) {
                let _ = cgroup.open(&hierarchy.controllers, path); // it may have been removed meanwhile
            }
        });
    }
    sandboxes.sort_by(|one, other| (&one.id, &one.path).cmp(&(&other.id, &other.path)));
    let unseen = match (&hierarchies.v2, hierarchies.v1.is_empty()) {
        (None, true) => Some("no cgroup file system is mounted here: sandboxes have no cgroup, and cannot be seen"),
        (_, false) => Some(
            "this host has cgroup v1: only sandboxes that root gave a budget have a cgroup, and others cannot be seen",
        ),
        (Some(_), true) => None,
    };
    Found { sandboxes, unseen }
}

/// Calls `found` for every cgroup below `path` whose name this program generated.
fn below(path: &Path, levels: u32, found: &mut dyn FnMut(&Path)) {
    for entry in std::fs::read_dir(path).into_iter().flatten().flatten() {
        if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        if entry.file_name().to_str().and_then(name::owner).is_some() {
            found(&entry.path());
        } else if levels > 0 {
            below(&entry.path(), levels - 1, found);
        }
    }
}

impl Running {
    /// `None` if its supervisor is dead: then `stockade gc` removes it.
    fn of(path: &Path, kind: impl FnOnce() -> Kind) -> Option<Self> {
        let name = path.file_name()?.to_str()?;
        let (id, owner) = (name::id(name)?.to_owned(), name::owner(name)?);
        if owner.is_dead() {
            return None;
        }
        let uid = |path: &Path| std::fs::metadata(path).ok().map(|metadata| metadata.uid());
        let pid = owner.pid().filter(|pid| uid(Path::new(&format!("/proc/{pid}"))) == uid(path));
        Some(Self { id, pid, age: owner.age(), path: path.to_owned(), kind: kind() })
    }

    /// Its usage so far.
    pub fn usage(&self) -> Usage {
        let mut usage = Usage::default();
        let first = match &self.kind {
            Kind::V2(dir) => {
                usage::fill_in(dir, &mut usage);
                Some(dir)
            }
            Kind::V1(cgroup) => {
                cgroup.fill_in(&mut usage);
                cgroup.dirs().next()
            }
        };
        // Counts the processes if there is no pids controller.
        let listed = || first.map(|dir| processes(dir.path()));
        usage.pids.current = usage.pids.current.or_else(listed);
        usage
    }

    /// The words of its supervisor's command line.
    pub fn words(&self) -> Option<Vec<Vec<u8>>> {
        let mut text = Vec::new();
        File::open(format!("/proc/{}/cmdline", self.pid?)).ok()?.take(MAX_COMMAND).read_to_end(&mut text).ok()?;
        let text = text.strip_suffix(b"\0").unwrap_or(&text);
        (!text.is_empty()).then(|| text.split(|byte| *byte == 0).map(<[u8]>::to_vec).collect())
    }
}

/// How many processes are in a cgroup, and in those of a session's commands below it.
fn processes(path: &Path) -> u64 {
    let own = std::fs::read_to_string(path.join("cgroup.procs")).unwrap_or_default().lines().count() as u64;
    let below = std::fs::read_dir(path).into_iter().flatten().flatten();
    own + below
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| processes(&entry.path()))
        .sum::<u64>()
}
