//! Finds the parent of a run's cgroup in cgroup v2.
//!
//! The choices, in this order: a subtree that is delegated to the caller and contains this process; a scope that systemd
//! creates and delegates; for root, the top of the hierarchy. A cgroup that systemd manages is never written to: systemd
//! disables controllers that none of its own units needs, and the limits disappear with them.

use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::sys::stat::Mode;
use nix::unistd::{AccessFlags, access, geteuid};

use super::files::Dir;
use super::hierarchies::V2;
use crate::plan::Facility;
use crate::sys::file;

/// The child cgroup for processes that would keep a delegated cgroup from having children with controllers.
pub const CALLERS: &str = "stockade.callers";

/// Controllers that are enabled even without a limit, because they measure usage.
const COUNTERS: [Facility; 3] = [Facility::Memory, Facility::Pids, Facility::Io];

/// A cgroup below which cgroups of runs can be created.
#[derive(Debug)]
pub struct Parent {
    /// Its directory.
    pub path: PathBuf,
    /// The controllers of its children.
    pub enabled: Vec<Facility>,
    /// Why the other controllers are unavailable.
    pub without: String,
}

/// Finds the parent, or returns why there is none. `systemd` creates one, and is called only if there is no delegated subtree, with
/// whether there is another choice.
pub fn find(
    v2: &V2,
    wanted: &[Facility],
    systemd: impl FnOnce(bool) -> Result<PathBuf, String>,
) -> Result<Parent, String> {
    if let Some(path) = delegated(v2) {
        return Parent::below(&path, wanted, &v2.own);
    }
    let top = top(v2);
    let refused = match systemd(top.is_some()) {
        Ok(scope) => return Parent::below(&scope, wanted, &scope),
        Err(why) => why,
    };
    if let Some(top) = top {
        return Parent::below(top, wanted, &v2.own);
    }
    Err(format!("{} is not delegated to this user, and {refused}", v2.own.display()))
}

/// The subtree around this process that is delegated to its user.
pub fn delegated(v2: &V2) -> Option<PathBuf> {
    let root = geteuid().is_root();
    let around = || v2.own.ancestors().take_while(|path| path.starts_with(&v2.mount));
    let marked = around().find(|path| is_marked(path));
    let found = match marked {
        Some(path) => path,
        // The top of a container's cgroup namespace has a type. The top of the hierarchy has none, and is not delegated.
        None if root => around().find(|path| *path == v2.mount && path.join("cgroup.type").exists())?,
        None => around().take_while(|path| is_writable(path)).last()?,
    };
    let name = found.file_name()?.to_str()?;
    // The cgroup of `user@UID.service` is delegated to the user's systemd.
    let is_systemd = name.starts_with("user@") && name.ends_with(".service");
    (!is_systemd && is_writable(found)).then(|| found.to_owned())
}

/// The top of the hierarchy, for root. Root of another user namespace may be unable to write to it.
pub fn top(v2: &V2) -> Option<&Path> {
    Some(v2.mount.as_path()).filter(|top| geteuid().is_root() && is_writable(top))
}

/// Whether systemd marked the cgroup as delegated, `Delegate=` in `systemd.resource-control(5)`.
fn is_marked(path: &Path) -> bool {
    let Ok(dir) = Dir::open(path) else { return false };
    [c"user.delegate", c"trusted.delegate"].into_iter().any(|name| file::attribute_is(dir.fd(), name, b"1"))
}

/// Whether the caller can create cgroups with controllers in it and move processes between them.
pub fn is_writable(path: &Path) -> bool {
    let writable = |path: &Path| access(path, AccessFlags::W_OK).is_ok();
    writable(path) && writable(&path.join("cgroup.procs")) && writable(&path.join("cgroup.subtree_control"))
}

impl Parent {
    /// Enables the controllers for the children of `path`. `own` is the cgroup of this process.
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

/// Enables these controllers for a cgroup, as far as its parent has them.
pub fn offer(path: &Path, controllers: &[Facility]) {
    if let Some(dir) = path.parent().and_then(|parent| Dir::open(parent).ok()) {
        let _ = enable(&dir, controllers, Path::new("")); // no process is moved for what nothing has asked for
    }
}

fn enabled(dir: &Dir) -> nix::Result<Vec<Facility>> {
    dir.read("cgroup.subtree_control").map(|text| names(&text))
}

fn names(text: &str) -> Vec<Facility> {
    text.split_ascii_whitespace().filter_map(|name| name.parse().ok()).collect()
}

/// Enables controllers one at a time: in a single write, one unavailable controller would fail them all.
fn enable(dir: &Dir, controllers: &[Facility], own: &Path) -> nix::Result<()> {
    let mut result = Ok(());
    for controller in controllers {
        let line = format!("+{}", controller.name());
        let turned_on = match dir.write("cgroup.subtree_control", &line) {
            // A cgroup has either processes or children with controllers, cgroups(7).
            Err(Errno::EBUSY) if dir.path() == own => {
                move_processes(dir).and_then(|()| dir.write("cgroup.subtree_control", &line))
            }
            other => other,
        };
        result = result.and(turned_on);
    }
    result
}

/// Moves every process of a delegated cgroup into a child, including this process.
fn move_processes(dir: &Dir) -> nix::Result<()> {
    let child = dir.path().join(CALLERS);
    match nix::unistd::mkdir(&child, Mode::from_bits_truncate(0o755)) {
        Ok(()) | Err(Errno::EEXIST) => {}
        Err(errno) => return Err(errno),
    }
    let child = Dir::open(&child)?;
    // A process that forks meanwhile leaves its child in the parent cgroup.
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
