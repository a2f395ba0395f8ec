//! Where a run's cgroup may be made in cgroup v2.
//!
//! In this order: a subtree that was delegated to the caller and that this process is in; a scope that systemd makes and
//! delegates; as root, the top of the hierarchy. A cgroup that systemd manages is never written to behind its back: it
//! turns controllers off again where none of its own units needs them, and with them the limits.

use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::sys::stat::Mode;
use nix::unistd::{AccessFlags, access, geteuid};

use super::files::Dir;
use super::hierarchies::V2;
use crate::plan::Facility;
use crate::sys::file;

/// Where those processes go that keep a delegated cgroup from having children with controllers.
pub const CALLERS: &str = "stockade.callers";

/// Controllers that count without a limit: they are turned on for what they measure.
const COUNTERS: [Facility; 3] = [Facility::Memory, Facility::Pids, Facility::Io];

/// A cgroup to make runs' cgroups in.
#[derive(Debug)]
pub struct Parent {
    /// Its directory.
    pub path: PathBuf,
    /// The controllers that its children have.
    pub enabled: Vec<Facility>,
    /// Why the others cannot be had.
    pub without: String,
}

/// Finds it, or says why there is none. `systemd` is asked to make one only if there is nothing else.
pub fn find(v2: &V2, wanted: &[Facility], systemd: impl FnOnce() -> Result<PathBuf, String>) -> Result<Parent, String> {
    if let Some(path) = delegated(v2) {
        return Parent::below(&path, wanted, &v2.own);
    }
    let refused = match systemd() {
        Ok(scope) => return Parent::below(&scope, wanted, &scope),
        Err(why) => why,
    };
    if geteuid().is_root() {
        return Parent::below(&v2.mount, wanted, &v2.own);
    }
    Err(format!("{} is not delegated to this user, and {refused}", v2.own.display()))
}

/// The subtree around this process that was handed to its user.
pub fn delegated(v2: &V2) -> Option<PathBuf> {
    let root = geteuid().is_root();
    let around = || v2.own.ancestors().take_while(|path| path.starts_with(&v2.mount));
    let marked = around().find(|path| is_marked(path));
    let found = match marked {
        Some(path) => path,
        // The top of a container's own namespace has a type; the top of the hierarchy has none, and is not a delegated one.
        None if root => around().find(|path| *path == v2.mount && path.join("cgroup.type").exists())?,
        None => around().take_while(|path| is_writable(path)).last()?,
    };
    let name = found.file_name()?.to_str()?;
    // This one is delegated to the user's systemd.
    let is_systemd = name.starts_with("user@") && name.ends_with(".service");
    (!is_systemd && is_writable(found)).then(|| found.to_owned())
}

/// What systemd writes on a cgroup that it delegates, `Delegate=` in `systemd.resource-control(5)`.
fn is_marked(path: &Path) -> bool {
    let Ok(dir) = Dir::open(path) else { return false };
    [c"user.delegate", c"trusted.delegate"].into_iter().any(|name| file::attribute_is(dir.fd(), name, b"1"))
}

/// Whether cgroups with controllers can be made in it, and processes moved between them.
pub fn is_writable(path: &Path) -> bool {
    let writable = |path: &Path| access(path, AccessFlags::W_OK).is_ok();
    writable(path) && writable(&path.join("cgroup.procs")) && writable(&path.join("cgroup.subtree_control"))
}

impl Parent {
    /// Turns the controllers on for the children of `path`; `own` is where this process is.
    fn below(path: &Path, wanted: &[Facility], own: &Path) -> Result<Self, String> {
        let failed = |errno: Errno| format!("{}: {}", path.display(), errno.desc());
        let dir = Dir::open(path).map_err(failed)?;
        let mut parent =
            Self { path: path.to_owned(), enabled: enabled(&dir).map_err(failed)?, without: String::new() };
        if parent.has(wanted) && parent.has(&COUNTERS) {
            return Ok(parent);
        }
        let available = names(&dir.read("cgroup.controllers").map_err(failed)?);
        let missing = |controller: &&Facility| available.contains(controller) && !parent.enabled.contains(controller);
        let mut missing: Vec<_> = wanted.iter().chain(&COUNTERS).filter(missing).copied().collect();
        missing.sort();
        missing.dedup();
        parent.without = format!("{} does not have the controller", path.display());
        if let Err(errno) = enable(&dir, &missing, own)
            && !parent.has(wanted)
        {
            parent.without = format!("{}: {}", path.join("cgroup.subtree_control").display(), errno.desc());
        }
        parent.enabled = enabled(&dir).map_err(failed)?;
        Ok(parent)
    }

    fn has(&self, controllers: &[Facility]) -> bool {
        controllers.iter().all(|controller| self.enabled.contains(controller))
    }
}

fn enabled(dir: &Dir) -> nix::Result<Vec<Facility>> {
    dir.read("cgroup.subtree_control").map(|text| names(&text))
}

fn names(text: &str) -> Vec<Facility> {
    text.split_ascii_whitespace().filter_map(|name| name.parse().ok()).collect()
}

/// One by one, as one that cannot be had would keep the others from being turned on.
fn enable(dir: &Dir, controllers: &[Facility], own: &Path) -> nix::Result<()> {
    let mut result = Ok(());
    for controller in controllers {
        let line = format!("+{}", controller.name());
        let turned_on = match dir.write("cgroup.subtree_control", &line) {
            // A cgroup has processes or children with controllers, never both, cgroups(7).
            Err(Errno::EBUSY) if dir.path() == own => {
                move_processes(dir).and_then(|()| dir.write("cgroup.subtree_control", &line))
            }
            other => other,
        };
        result = result.and(turned_on);
    }
    result
}

/// Moves every process of a delegated cgroup into a child, this one among them.
fn move_processes(dir: &Dir) -> nix::Result<()> {
    let child = dir.path().join(CALLERS);
    match nix::unistd::mkdir(&child, Mode::from_bits_truncate(0o755)) {
        Ok(()) | Err(Errno::EEXIST) => {}
        Err(errno) => return Err(errno),
    }
    let child = Dir::open(&child)?;
    // A process that forks meanwhile leaves its child behind.
    for _ in 0..16 {
        let here = dir.read("cgroup.procs")?;
        if here.trim().is_empty() {
            return Ok(());
        }
        for pid in here.lines() {
            match child.write("cgroup.procs", pid) {
                Ok(()) | Err(Errno::ESRCH) => {}
                Err(errno) => return Err(errno),
            }
        }
    }
    Err(Errno::EBUSY)
}
