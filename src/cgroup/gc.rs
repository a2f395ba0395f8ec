//! Removes the cgroups of killed supervisors.
//!
//! A cgroup is removed only if it is provably ours and its supervisor is dead: this program generated its name, it lies where
//! this program creates cgroups, the caller owns it, and its supervisor (identified by process id, start time and pid
//! namespace) has exited.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use nix::unistd::geteuid;

use super::{hierarchies, leaf, name, parent, v1};
use crate::error::Error;

/// The result of a collection.
#[derive(Debug, Default)]
pub struct Collected {
    /// The removed cgroups.
    pub removed: Vec<PathBuf>,
    /// The cgroups that could not be removed, with the errors.
    pub kept: Vec<(PathBuf, Error)>,
}

/// Searches every place where a run of this caller, started from here, could have created a cgroup.
pub fn collect() -> Collected {
    let mut collected = Collected::default();
    let found = hierarchies::look();
    if let Some(v2) = &found.v2 {
        let mut places: Vec<_> = parent::delegated(v2).into_iter().collect();
        places.extend(geteuid().is_root().then(|| v2.mount.clone()));
        places.dedup();
        for place in places {
            collected.of(&place, leaf::remove);
        }
    }
    for hierarchy in found.v1.iter().filter(|_| geteuid().is_root()) {
        collected.of(&hierarchy.own, v1::remove);
    }
    collected
}

impl Collected {
    fn of(&mut self, place: &Path, remove: fn(&Path) -> crate::error::Result<()>) {
        for entry in std::fs::read_dir(place).into_iter().flatten().flatten() {
            let Some(owner) = entry.file_name().to_str().and_then(name::owner) else { continue };
            let ours = entry.metadata().is_ok_and(|found| found.is_dir() && found.uid() == geteuid().as_raw());
            if !ours || !owner.is_dead() {
                continue;
            }
            match remove(&entry.path()) {
                Ok(()) => self.removed.push(entry.path()),
                Err(error) => self.kept.push((entry.path(), error)),
            }
        }
    }
}
