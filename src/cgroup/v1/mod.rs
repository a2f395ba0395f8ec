//! cgroup v1, for runs and for containers. Only this module writes its files.
//!
//! It writes through cgroups-rs, with two precautions. The crate opens files with `O_CREAT`. On the tmpfs that contains the
//! hierarchies' mount points such a file can be created, written and read back without limiting anything. So the crate is given
//! a descriptor of a directory that was checked to be a cgroup. The crate also ignores some errors, and the kernel changes some
//! values. So every value and every moved process is read back.
//!
//! The crate does not suffice in these cases. It does not know `cpu.cfs_burst_us` and `cpu.idle`. It watches
//! `cgroup.event_control` in a thread. It does not report whether a directory existed before, and ignores a failure to
//! initialise a new cpuset. It removes a cgroup without killing the processes in it.

mod entrance;
mod limits;
mod usage;

use std::error::Error as _;
use std::fmt::Display;
use std::os::fd::{AsFd, AsRawFd as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use cgroups_rs::CgroupPid;
use cgroups_rs::Controller as _;
use cgroups_rs::cpuset::CpuSetController;
use cgroups_rs::devices::{DevicePermissions, DeviceType, DevicesController};
use cgroups_rs::error::Result as Written;
use cgroups_rs::freezer::FreezerController;
use cgroups_rs::pid::PidController;
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::stat::Mode;
use nix::sys::statfs::{CGROUP_SUPER_MAGIC, CGROUP2_SUPER_MAGIC, fstatfs};
use nix::unistd::Pid;

pub use self::entrance::Entrance;
pub use self::limits::SWAP;

use super::files::Dir;
use super::{budget, failed, hierarchies, leaf};
use crate::error::{Error, Result, Step, errno_of};
use crate::plan::container::{CgroupView, DeviceRule};
use crate::sys::{file, schedule};

/// The time limit for killed processes to leave their cgroup.
const EMPTY_DEADLINE: Duration = Duration::from_secs(5);

/// A cgroup: its directory in each hierarchy in use. That of a container on a hybrid host also has one in cgroup v2.
#[derive(Debug, Default)]
pub struct Cgroup(Vec<Member>);

#[derive(Debug)]
struct Member {
    controllers: Vec<String>,
    dir: Dir,
}

impl Cgroup {
    /// Adds the directory in the hierarchy with these controllers: without any, in cgroup v2.
    pub fn open(&mut self, controllers: &[String], path: &Path) -> Result<()> {
        let dir = Dir::open(path).map_err(|errno| failed(path, errno))?;
        let (magic, version) =
            if controllers.is_empty() { (CGROUP2_SUPER_MAGIC, "v2") } else { (CGROUP_SUPER_MAGIC, "v1") };
        if !fstatfs(dir.fd()).is_ok_and(|found| found.filesystem_type() == magic) {
            let reason = format!("is not in a hierarchy of cgroup {version}");
            return Err(Error::new(Step::Cgroup, path.display().to_string(), reason));
        }
        self.0.push(Member { controllers: controllers.to_vec(), dir });
        Ok(())
    }

    /// The directory in the hierarchy of a controller.
    pub fn with(&self, controller: &str) -> Option<&Dir> {
        let has = |member: &&Member| member.controllers.iter().any(|name| name == controller);
        self.0.iter().find(has).map(|member| &member.dir)
    }

    /// The directory in cgroup v2.
    pub fn unified(&self) -> Option<&Dir> {
        self.0.iter().find(|member| member.controllers.is_empty()).map(|member| &member.dir)
    }

    /// The directory that contains a file, whose name begins with its controller.
    fn of(&self, file: &str) -> Result<&Dir> {
        let controller = file.split('.').next().unwrap_or(file);
        self.with(controller).ok_or_else(|| no_controller(controller, file))
    }

    /// All directories.
    pub fn dirs(&self) -> impl Iterator<Item = &Dir> {
        self.0.iter().map(|member| &member.dir)
    }

    /// Its directories, for a mount in the sandbox.
    pub fn view(&self) -> CgroupView {
        let mut view = CgroupView::default();
        self.0.iter().for_each(|member| view.add(&member.controllers, member.dir.path()));
        view
    }

    /// The directory that limits memory, or the first one.
    pub fn main(&self) -> Option<&Dir> {
        self.with("memory").or(self.dirs().next())
    }

    /// Moves a process into the cgroup. The caller must ensure that the pid cannot be reused meanwhile.
    pub fn add(&self, pid: Pid) -> Result<()> {
        let number = CgroupPid::from(u64::from(pid.as_raw().unsigned_abs()));
        for dir in self.dirs() {
            // This file is the same for every controller.
            let written = PidController::new(by_descriptor(dir), false).add_task_by_tgid(&number);
            written.map_err(|error| failed(&dir.path().join("cgroup.procs"), cause(dir, "cgroup.procs", &error)))?;
        }
        self.verify(pid)
    }

    /// Fails unless the process is in the cgroup.
    pub fn verify(&self, pid: Pid) -> Result<()> {
        let text = file::read(format!("/proc/{pid}/cgroup").as_str()).unwrap_or_default();
        let memberships = hierarchies::memberships(&String::from_utf8_lossy(&text));
        let elsewhere = self.0.iter().find(|member| {
            let is_there = |one: &hierarchies::Membership| {
                // Above this process's own cgroup namespace the paths differ, except for the last component.
                one.is_of(&member.controllers) && one.name() == member.dir.path().file_name()
            };
            !memberships.iter().any(is_there)
        });
        match elsewhere {
            None => Ok(()),
            Some(member) => {
                let reason = "a process was moved there or began there, and is elsewhere";
                Err(Error::new(Step::Cgroup, member.dir.path().display().to_string(), reason))
            }
        }
    }

    /// Writes a value with a call of cgroups-rs on the directory, and reads it back.
    fn set(&self, file: &str, value: impl Display, write: impl FnOnce(PathBuf) -> Written<()>) -> Result<()> {
        let dir = self.of(file)?;
        confirm(dir, file, &value.to_string(), through_crate(dir, file, write))
    }

    /// Writes a file that cgroups-rs does not know, and reads it back.
    fn set_directly(&self, file: &str, value: impl Display) -> Result<()> {
        let (dir, value) = (self.of(file)?, value.to_string());
        confirm(dir, file, &value, dir.write(file, &value))
    }
}

/// The path by which cgroups-rs reaches an open directory, so that no path is resolved twice.
fn by_descriptor(dir: &Dir) -> PathBuf {
    format!("/proc/self/fd/{}", dir.fd().as_raw_fd()).into()
}

fn through_crate(dir: &Dir, file: &str, write: impl FnOnce(PathBuf) -> Written<()>) -> nix::Result<()> {
    write(by_descriptor(dir)).map_err(|error| cause(dir, file, &error))
}

/// The errno of a failed write by cgroups-rs.
fn cause(dir: &Dir, file: &str, error: &cgroups_rs::error::Error) -> Errno {
    let errno = error.source().and_then(|cause| cause.downcast_ref()).map_or(Errno::EIO, errno_of);
    // Because of O_CREAT, a missing file gives EACCES.
    let missing = errno == Errno::EACCES && matches!(dir.file(file, OFlag::O_PATH), Err(Errno::ENOENT));
    if missing { Errno::ENOENT } else { errno }
}

/// Checks that a value was written and that the kernel applies it.
fn confirm(dir: &Dir, file: &str, value: &str, written: nix::Result<()>) -> Result<()> {
    let read = written.and_then(|()| dir.read(file)).map_err(|errno| {
        let error = failed(&dir.path().join(file), errno);
        match errno {
            Errno::EINVAL | Errno::ERANGE => error.hint(format!("the kernel does not take {value:?} for it")),
            _ => error,
        }
    })?;
    let lists = |device| read.lines().any(|line| line.split_ascii_whitespace().next() == Some(device));
    // The kernel shows "unlimited" as a large number, and does not list a device whose limit is 0.
    let unlimited = value.starts_with('-') || value.strip_suffix(" 0").is_some_and(|device| !lists(device));
    if unlimited || budget::agrees(file, value, &read) {
        return Ok(());
    }
    Err(Error::new(Step::Cgroup, file, format!("wrote {value:?}, but the kernel has {:?}", read.trim())))
}

/// An error that names the missing controller.
pub fn no_controller(name: &str, file: &str) -> Error {
    Error::new(Step::Cgroup, file, format!("no cgroup hierarchy of this host has the controller {name}"))
        .hint("leave the limit out, or mount the controller")
}

/// Creates a cgroup and its missing parents. Returns whether it is new.
pub fn make(path: &Path, controllers: &[String]) -> Result<bool> {
    let mode = Mode::from_bits_truncate(0o755);
    let cpuset = controllers.iter().any(|name| name == "cpuset");
    if !cpuset {
        match nix::unistd::mkdir(path, mode) {
            Ok(()) => return Ok(true),
            Err(Errno::EEXIST) => return Ok(false),
            Err(_) => {} // a parent may be missing
        }
    }
    let missing: Vec<_> = path.ancestors().take_while(|path| !path.exists()).collect();
    for path in missing.iter().rev() {
        match nix::unistd::mkdir(*path, mode) {
            Ok(()) | Err(Errno::EEXIST) => {}
            Err(errno) => return Err(failed(path, errno)),
        }
    }
    if let Some(above) = path.parent().filter(|_| cpuset) {
        fill_cpuset(path, above)?;
    }
    Ok(!missing.is_empty())
}

/// Copies the settings of the parent into an empty cpuset, which takes no process until then. An empty parent is filled first.
fn fill_cpuset(path: &Path, above: &Path) -> Result<()> {
    let is_empty = |at: &Path| {
        let empty = |name| file::read_text(&at.join(name)).is_ok_and(|list| list.trim().is_empty());
        empty("cpuset.cpus") || empty("cpuset.mems")
    };
    if !is_empty(path) {
        return Ok(()); // the kernel has done it, `cgroup.clone_children`
    }
    if let Some(further) = above.parent().filter(|_| is_empty(above)) {
        fill_cpuset(above, further)?;
    }
    let dir = Dir::open(path).map_err(|errno| failed(path, errno))?;
    for (file, set) in
        [("cpuset.cpus", CpuSetController::set_cpus as fn(&_, &str) -> _), ("cpuset.mems", CpuSetController::set_mems)]
    {
        let text = file::read_text(&above.join(file)).unwrap_or_default();
        let list = text.trim();
        let written = through_crate(&dir, file, |at| set(&CpuSetController::new(at, false), list));
        confirm(&dir, file, list, written)?;
    }
    Ok(())
}

/// Allows or denies the use of device nodes. The result cannot be read back: the kernel lists exceptions, not rules.
pub fn apply_device_rule(dir: &Dir, rule: &DeviceRule) -> Result<()> {
    let (file, change): (_, fn(&_, _, _, _, &[_]) -> _) = match rule.allow {
        true => ("devices.allow", DevicesController::allow_device),
        false => ("devices.deny", DevicesController::deny_device),
    };
    let kind = DeviceType::from_char(Some(rule.kind)).unwrap_or(DeviceType::All);
    // -1 means every number.
    let number = |number: Option<u32>| if kind == DeviceType::All { -1 } else { number.map_or(-1, i64::from) };
    let access: Vec<_> = rule.access.chars().filter_map(DevicePermissions::from_char).collect();
    through_crate(dir, file, |at| {
        change(&DevicesController::new(at), kind, number(rule.major), number(rule.minor), &access)
    })
    .map_err(|errno| failed(&dir.path().join(file), errno))
}

/// Requests that every process stops or continues. `freezer.state` shows the result a moment later.
pub fn request_freeze(dir: &Dir, frozen: bool) -> Result<()> {
    through_crate(dir, "freezer.state", |at| {
        let freezer = FreezerController::new(at, false);
        if frozen { freezer.freeze() } else { freezer.thaw() }
    })
    .map_err(|errno| failed(&dir.path().join("freezer.state"), errno))
}

/// Makes the kernel count into `counter` when memory runs out, as long as `oom_control` is open.
pub fn register_oom_counter(dir: &Dir, counter: impl AsFd, oom_control: impl AsFd) -> nix::Result<()> {
    let descriptors = format!("{} {}", counter.as_fd().as_raw_fd(), oom_control.as_fd().as_raw_fd());
    dir.write("cgroup.event_control", &descriptors)
}

/// Kills the processes in a cgroup, waits until it is empty, and removes it. A missing cgroup counts as removed.
pub fn remove(path: &Path) -> Result<()> {
    let deadline = Instant::now() + EMPTY_DEADLINE;
    let mut pause = Duration::from_micros(100);
    loop {
        match leaf::remove_tree(path) {
            Ok(()) => return Ok(()),
            Err(Errno::EBUSY) if Instant::now() < deadline => {
                if let Ok(dir) = Dir::open(path) {
                    leaf::kill_in(dir.fd());
                }
                schedule::pause(pause);
                pause = (pause * 2).min(Duration::from_millis(20));
            }
            Err(errno) => return Err(failed(path, errno).hint("`stockade gc` removes it later")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_outside_the_hierarchies_is_refused() {
        let error = Cgroup::default().open(&["pids".to_owned()], Path::new("/tmp")).unwrap_err();
        assert!(error.to_string().contains("is not in a hierarchy of cgroup v1"), "{error}");
    }
}
