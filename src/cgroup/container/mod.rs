//! The cgroups of a container: created by one command, reopened by later ones, removed by `delete`.
//!
//! A container has one directory in cgroup v2, or one in each hierarchy of v1. [`Places`] determines their paths before any is
//! created. The paths are recorded, so that a later command can finish an interrupted one. Every limit is read back.

mod absent;
mod devices;
mod freeze;
mod oom;
mod place;
mod stats;
pub mod unit;
mod v2;

use std::os::fd::BorrowedFd;
use std::path::{Component, Path, PathBuf};

use nix::errno::Errno;
use nix::unistd::Pid;

pub use self::absent::absent;
pub use self::oom::OomWatch;
pub use self::place::Places;
use super::files::Dir;
pub use super::v1::Entrance;
use super::{failed, leaf, usage, v1};
use crate::error::{Error, Result, Step};
use crate::plan::Facility;
use crate::plan::container::{CgroupView, ContainerCgroup, Resources};
use crate::report::{self, Usage};
use crate::sys::file;

/// Decides where a container's cgroups are.
pub fn find(planned: &ContainerCgroup, id: &str) -> Result<Places> {
    if planned.systemd { unit::expected(planned, id) } else { place::find(planned, id) }
}

/// The open directories of a container's cgroups.
#[derive(Debug)]
pub struct Groups {
    places: Places,
    dirs: Dirs,
    /// Whether all of them are new.
    fresh: bool,
    /// A process whose cgroup below these is used in v2 if these take no processes.
    inhabitant: Option<i32>,
}

#[derive(Debug)]
enum Dirs {
    V2(Dir),
    V1(v1::Cgroup),
}

impl Groups {
    /// Creates the missing directories. In v2, enables the controllers in the directories above.
    pub fn make(places: Places) -> Result<Self> {
        let mut fresh = !places.is_v2();
        for one in &places.directories {
            if places.is_v2() {
                v2::make(&places.mount, &one.path)?;
            } else {
                fresh &= v1::make(&one.path, &one.controllers)?;
            }
        }
        Self { fresh, ..Self::open(places)? }.unless_frozen()
    }

    /// A process in a frozen cgroup would never run, and the runtime would wait for it for ever.
    fn unless_frozen(self) -> Result<Self> {
        let unified = match &self.dirs {
            Dirs::V1(cgroup) => cgroup.unified(),
            Dirs::V2(_) => None,
        };
        let frozen = self.with("freezer").filter(|_| self.is_frozen()).or(unified.filter(|dir| freeze::in_v2(dir)));
        let Some(dir) = frozen else { return Ok(self) };
        let path = dir.path().display().to_string();
        Err(Error::new(Step::Cgroup, path, "is frozen, so that no process in it runs")
            .hint("thaw it, or the cgroup above"))
    }

    /// Opens the existing directories.
    pub fn open(places: Places) -> Result<Self> {
        let dirs = match places.directories.as_slice() {
            [one] if places.is_v2() => Dirs::V2(Dir::open(&one.path).map_err(|errno| failed(&one.path, errno))?),
            several => {
                let mut cgroup = v1::Cgroup::default();
                several.iter().try_for_each(|one| cgroup.open(&one.controllers, &one.path))?;
                Dirs::V1(cgroup)
            }
        };
        Ok(Self { places, dirs, fresh: false, inhabitant: None })
    }

    /// Cgroups below these, for `exec` into cgroups of the container's own: paths, each for the hierarchies of these controllers
    /// or, without controllers, for all.
    pub fn below(&self, paths: &[(Vec<&str>, &str)]) -> Result<Self> {
        let mut places = self.places.clone();
        for (controllers, path) in paths {
            let top = Path::new(path).components().all(|one| matches!(one, Component::RootDir | Component::CurDir));
            let relative = if top { PathBuf::new() } else { place::clean(path)? };
            places.descend(controllers, &relative)?;
        }
        Self::open(places)?.unless_frozen()
    }

    /// Lets [`Self::put`] use the cgroup of this process if these take none: in cgroup v2, one that gives controllers to those
    /// below it holds no processes itself.
    pub fn or_of(self, pid: i32) -> Self {
        Self { inhabitant: Some(pid), ..self }
    }

    /// In cgroup v2, the cgroup below these that contains this process.
    fn of(&self, pid: i32) -> Option<Dir> {
        let text = file::read_text(format!("/proc/{pid}/cgroup").as_str()).unwrap_or_default();
        let path = text.lines().find_map(|line| line.strip_prefix("0::/")).map(|path| self.places.mount.join(path));
        let own = self.places.directories.first()?;
        Dir::open(&path.filter(|path| path.starts_with(&own.path) && *path != own.path)?).ok()
    }

    /// Whether a process is already in it.
    pub fn is_populated(&self) -> bool {
        let has_processes = |dir: &Dir| dir.read("cgroup.procs").is_ok_and(|text| !text.trim().is_empty());
        !self.fresh
            && match &self.dirs {
                Dirs::V2(dir) => has_processes(dir),
                Dirs::V1(cgroup) => cgroup.dirs().any(has_processes),
            }
    }

    /// Applies limits. Missing limits stay unchanged.
    pub fn limit(&self, resources: &Resources) -> Result<()> {
        match &self.dirs {
            Dirs::V2(dir) => v2::limit(dir, resources),
            Dirs::V1(cgroup) => cgroup.limit(resources),
        }
    }

    /// Applies the device rules.
    pub fn allow_devices(&self, resources: &Resources) -> Result<()> {
        devices::apply(self, resources)
    }

    fn with(&self, controller: &str) -> Option<&Dir> {
        match &self.dirs {
            Dirs::V2(dir) => Some(dir),
            Dirs::V1(cgroup) => cgroup.with(controller),
        }
    }

    /// The directory for `CLONE_INTO_CGROUP`: in cgroup v2, also that of a hybrid host. `None` with v1 only.
    pub fn dir(&self) -> Option<BorrowedFd<'_>> {
        self.unified().map(Dir::fd)
    }

    fn unified(&self) -> Option<&Dir> {
        match &self.dirs {
            Dirs::V2(dir) => Some(dir),
            Dirs::V1(cgroup) => cgroup.unified(),
        }
    }

    /// Where a process that was born in [`Self::dir`] enters the cgroups of v1.
    pub fn entrance(&self) -> Result<Option<Entrance>> {
        match &self.dirs {
            Dirs::V2(_) => Ok(None),
            Dirs::V1(cgroup) => cgroup.entrance().map(Some),
        }
    }

    /// Fails unless a process is in the cgroups of v1. In v2 its creation would have failed.
    pub fn verify(&self, pid: Pid) -> Result<()> {
        match &self.dirs {
            Dirs::V2(_) => Ok(()),
            Dirs::V1(cgroup) => cgroup.verify(pid),
        }
    }

    /// Moves another process into the cgroups of v1. The caller must ensure that the pid cannot be reused meanwhile.
    pub fn add(&self, pid: Pid) -> Result<()> {
        match &self.dirs {
            Dirs::V2(_) => Ok(()),
            Dirs::V1(cgroup) => cgroup.add(pid),
        }
    }

    /// Moves a process that was not born in [`Self::dir`] there. The caller must ensure that the pid cannot be reused meanwhile.
    pub fn put(&self, pid: Pid) -> Result<()> {
        let Some(dir) = self.unified() else { return Ok(()) };
        let put = |dir: &Dir| dir.write("cgroup.procs", &pid.to_string());
        let put = put(dir).or_else(|errno| match self.inhabitant {
            Some(other) if matches!(errno, Errno::EBUSY | Errno::EOPNOTSUPP) => {
                self.of(other).map_or(Err(errno), |dir| put(&dir))
            }
            _ => Err(errno),
        });
        put.map_err(|errno| failed(&dir.path().join("cgroup.procs"), errno))
    }

    /// The paths for a mount inside the container.
    pub fn view(&self) -> CgroupView {
        let mut view = CgroupView::default();
        for one in &self.places.directories {
            match one.controllers.as_slice() {
                [] if self.places.is_v2() => return CgroupView::of_v2(&one.path),
                controllers => view.add(controllers, &one.path),
            }
        }
        view
    }

    /// The pids of every process in it and below it.
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

    /// The paths, for messages and engines.
    pub fn places(&self) -> &Places {
        &self.places
    }

    /// The usage, in the format of reports.
    pub fn usage(&self) -> Usage {
        let mut usage = Usage::default();
        match &self.dirs {
            Dirs::V2(dir) => usage::fill_in(dir, &mut usage),
            Dirs::V1(cgroup) => cgroup.fill_in(&mut usage),
        }
        usage
    }

    /// The path and controllers, in the format of reports.
    pub fn record(&self) -> Option<report::Cgroup> {
        let path = self.places.main()?.display().to_string();
        let controllers = match &self.dirs {
            Dirs::V2(dir) => dir.read("cgroup.controllers").ok()?.split_whitespace().map(str::to_owned).collect(),
            Dirs::V1(_) => {
                let all = self.places.directories.iter().flat_map(|one| &one.controllers);
                all.filter(|name| !name.starts_with("name=")).cloned().collect()
            }
        };
        Some(report::Cgroup { path, controllers })
    }

    /// The statistics, in the format of `events --stats`.
    pub fn stats(&self) -> serde_json::Value {
        stats::of(self)
    }
}

impl Places {
    /// Kills their processes and removes them. A missing cgroup counts as removed.
    pub fn remove(&self) -> Result<()> {
        if let Some(unit) = &self.unit {
            unit::stop(unit); // otherwise systemd would create the cgroup again on a reload
        }
        let mut result = Ok(());
        for one in &self.directories {
            if self.is_v2() {
                result = result.and(leaf::remove(&one.path));
            } else {
                if matches!(leaf::rmdir(&one.path), Ok(()) | Err(Errno::ENOENT)) {
                    continue; // the usual case: all processes have exited
                }
                // A container may have created cgroups below its own.
                result = v1::remove(&one.path).and(result);
            }
        }
        result
    }

    /// The directory to report as the container's cgroup.
    pub fn main(&self) -> Option<&PathBuf> {
        let memory = self.directories.iter().find(|one| one.controllers.iter().any(|name| name == "memory"));
        memory.or(self.directories.first()).map(|one| &one.path)
    }
}

/// The controller of a file of cgroup v2, for reading it back. `Memory` for files of other controllers.
fn facility(file: &str) -> Facility {
    file.split_once('.').and_then(|(name, _)| name.parse().ok()).unwrap_or(Facility::Misc)
}
