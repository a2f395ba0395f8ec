//! The cgroups of a container: made by one command, found again by the others, gone with `delete`.
//!
//! One directory in cgroup v2, or one in each hierarchy of v1. Where they are is decided before any is made ([`Places`]), and
//! written down, so that whoever comes later can finish what was begun. Every limit is read back.

mod absent;
mod devices;
mod freeze;
mod oom;
mod place;
mod stats;
pub mod unit;
mod v2;

use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::unistd::Pid;

pub use self::absent::absent;
pub use self::oom::OomWatch;
pub use self::place::{Places, find};
use super::files::Dir;
use super::{failed, leaf, usage, v1};
use crate::error::Result;
use crate::plan::Facility;
use crate::plan::container::{CgroupView, Resources};
use crate::report::{self, Usage};

/// The open directories.
#[derive(Debug)]
pub struct Groups {
    places: Places,
    dirs: Dirs,
    /// Whether all of them were made just now.
    fresh: bool,
}

#[derive(Debug)]
enum Dirs {
    V2(Dir),
    V1(v1::Cgroup),
}

impl Groups {
    /// Makes what is not there yet, with what v2 needs above it.
    pub fn make(places: Places) -> Result<Self> {
        let mut fresh = !places.is_v2();
        for one in &places.directories {
            if places.is_v2() {
                v2::make(&places.mount, &one.path)?;
            } else {
                fresh &= v1::make(&one.path, &one.controllers)?;
            }
        }
        Ok(Self { fresh, ..Self::open(places)? })
    }

    /// Opens what is there.
    pub fn open(places: Places) -> Result<Self> {
        let dirs = match places.directories.as_slice() {
            [one] if places.is_v2() => Dirs::V2(Dir::open(&one.path).map_err(|errno| failed(&one.path, errno))?),
            several => {
                let mut cgroup = v1::Cgroup::default();
                several.iter().try_for_each(|one| cgroup.open(&one.controllers, &one.path))?;
                Dirs::V1(cgroup)
            }
        };
        Ok(Self { places, dirs, fresh: false })
    }

    /// Below these: for `exec` into a cgroup of the container's own.
    pub fn below(&self, path: &str) -> Result<Self> {
        let relative = place::clean(path)?;
        let mut places = self.places.clone();
        for one in &mut places.directories {
            one.path = one.path.join(&relative);
        }
        Self::open(places)
    }

    /// Those below these that a process of the container is in, on cgroup v2; otherwise these.
    pub fn of(self, pid: i32) -> Self {
        let text = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
        let path = text.lines().find_map(|line| line.strip_prefix("0::/")).map(|path| self.places.mount.join(path));
        let below = path
            .zip(self.places.directories.first())
            .filter(|(path, own)| self.places.is_v2() && path.starts_with(&own.path) && *path != own.path);
        let Some((path, _)) = below else { return self };
        let mut places = self.places.clone();
        places.directories[0].path = path;
        Self::open(places).unwrap_or(self)
    }

    /// Whether somebody is in it already.
    pub fn is_populated(&self) -> bool {
        let has_processes = |dir: &Dir| dir.read("cgroup.procs").is_ok_and(|text| !text.trim().is_empty());
        !self.fresh
            && match &self.dirs {
                Dirs::V2(dir) => has_processes(dir),
                Dirs::V1(cgroup) => cgroup.dirs().any(has_processes),
            }
    }

    /// Puts limits in force; what is left out stays as it is. What could not be had and need not be is said.
    pub fn limit(&self, resources: &Resources) -> Result<()> {
        match &self.dirs {
            Dirs::V2(dir) => v2::limit(dir, resources),
            Dirs::V1(cgroup) => cgroup.limit(resources),
        }
    }

    /// Puts the device rules in force.
    pub fn allow_devices(&self, resources: &Resources) -> Result<()> {
        devices::apply(self, resources)
    }

    fn with(&self, controller: &str) -> Option<&Dir> {
        match &self.dirs {
            Dirs::V2(dir) => Some(dir),
            Dirs::V1(cgroup) => cgroup.with(controller),
        }
    }

    /// Its directory, for `CLONE_INTO_CGROUP`; `None` when processes can only be moved into it.
    pub fn dir(&self) -> Option<BorrowedFd<'_>> {
        match &self.dirs {
            Dirs::V2(dir) => Some(dir.fd()),
            Dirs::V1(_) => None,
        }
    }

    /// Moves a freshly cloned process in, if it was not born there.
    pub fn take_in(&self, pid: Pid) -> Result<()> {
        if self.places.is_v2() { Ok(()) } else { self.put(pid) }
    }

    /// Moves a process in, whose pid cannot be another's meanwhile.
    pub fn put(&self, pid: Pid) -> Result<()> {
        match &self.dirs {
            Dirs::V2(dir) => dir
                .write("cgroup.procs", &pid.to_string())
                .map_err(|errno| failed(&dir.path().join("cgroup.procs"), errno)),
            Dirs::V1(cgroup) => cgroup.add(pid),
        }
    }

    /// As a mount shows them inside.
    pub fn view(&self) -> CgroupView {
        let mut view = CgroupView::default();
        for one in &self.places.directories {
            let name = one.controllers.join(",");
            if one.controllers.len() > 1 {
                view.links.extend(one.controllers.iter().map(|link| (link.clone(), name.clone())));
            }
            view.directories.push((name, one.path.clone()));
        }
        view
    }

    /// Every process in it and below it.
    pub fn pids(&self) -> Vec<i32> {
        fn walk(path: &Path, found: &mut Vec<i32>) {
            let text = std::fs::read_to_string(path.join("cgroup.procs")).unwrap_or_default();
            found.extend(text.lines().filter_map(|line| line.trim().parse::<i32>().ok()));
            for entry in std::fs::read_dir(path).into_iter().flatten().flatten() {
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    walk(&entry.path(), found);
                }
            }
        }
        let mut found = Vec::new();
        if let Some(one) = self.with("pids").map(Dir::path).or(self.places.directories.first().map(|one| &*one.path)) {
            walk(one, &mut found);
        }
        found.sort_unstable();
        found.dedup();
        found
    }

    /// Where they are, for people and engines.
    pub fn places(&self) -> &Places {
        &self.places
    }

    /// What was counted, as reports have it.
    pub fn usage(&self) -> Usage {
        let mut usage = Usage::default();
        match &self.dirs {
            Dirs::V2(dir) => usage::fill_in(dir, &mut usage),
            Dirs::V1(cgroup) => cgroup.fill_in(&mut usage),
        }
        usage
    }

    /// Where it is and what bounds it, as reports have it.
    pub fn record(&self) -> Option<report::Cgroup> {
        let path = self.places.main()?.display().to_string();
        let controllers = match &self.dirs {
            Dirs::V2(dir) => dir.read("cgroup.controllers").ok()?.split_whitespace().map(str::to_owned).collect(),
            Dirs::V1(_) => self.places.directories.iter().flat_map(|one| one.controllers.clone()).collect(),
        };
        Some(report::Cgroup { path, controllers })
    }

    /// What was counted, in the shape of `events --stats`.
    pub fn stats(&self) -> serde_json::Value {
        stats::of(self)
    }
}

impl Places {
    /// Kills what is in them and removes them. Those that are not there count as removed.
    pub fn remove(&self) -> Result<()> {
        if let Some(unit) = &self.unit {
            unit::stop(unit); // or it would make the cgroup again when it reads its units again
        }
        let mut result = Ok(());
        for one in &self.directories {
            if self.is_v2() {
                result = result.and(leaf::remove(&one.path));
            } else {
                if matches!(leaf::rmdir(&one.path), Ok(()) | Err(Errno::ENOENT)) {
                    continue; // as nearly always: everything in it is dead
                }
                // A container may have made some below its own.
                result = v1::remove(&one.path).and(result);
            }
        }
        result
    }

    /// The directory that people mean when they ask.
    pub fn main(&self) -> Option<&PathBuf> {
        let memory = self.directories.iter().find(|one| one.controllers.iter().any(|name| name == "memory"));
        memory.or(self.directories.first()).map(|one| &one.path)
    }
}

/// The controller that a file of cgroup v2 belongs to, for reading it back; memory where that is no matter.
fn facility(file: &str) -> Facility {
    file.split_once('.').and_then(|(name, _)| name.parse().ok()).unwrap_or(Facility::Misc)
}
