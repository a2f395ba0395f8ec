//! cgroup v1, for runs and for containers: the only code that writes its files.
//!
//! It writes through cgroups-rs, with two precautions. The crate opens what it is told to with `O_CREAT`, and on the tmpfs
//! where the hierarchies are mounted such a file can be made, written and read back, and limits nothing. So the crate is
//! given a descriptor of a directory that was checked to be a cgroup's. And it swallows some errors, and the kernel changes
//! some values. So every value and every process moved is read back.
//!
//! Some of it the crate cannot do. It does not know `cpu.cfs_burst_us` and `cpu.idle`. It listens to `cgroup.event_control`
//! in a thread. It does not say whether a directory was there before it made it, and ignores that a new cpuset could not be
//! filled. It removes a cgroup without killing what is in it.

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
use nix::sys::statfs::{CGROUP_SUPER_MAGIC, fstatfs};
use nix::unistd::Pid;

pub use self::limits::SWAP;

use super::files::Dir;
use super::{budget, failed, hierarchies, leaf};
use crate::error::{Error, Result, Step, errno_of};
use crate::plan::container::DeviceRule;
use crate::sys::schedule;

/// How long killed processes may take to leave their cgroup.
const EMPTY_DEADLINE: Duration = Duration::from_secs(5);

/// A cgroup: its directory in each hierarchy that is used.
#[derive(Debug, Default)]
pub struct Cgroup(Vec<Member>);

#[derive(Debug)]
struct Member {
    controllers: Vec<String>,
    dir: Dir,
}

impl Cgroup {
    /// Adds its directory in a hierarchy with these controllers.
    pub fn open(&mut self, controllers: &[String], path: &Path) -> Result<()> {
        let dir = Dir::open(path).map_err(|errno| failed(path, errno))?;
        if !fstatfs(dir.fd()).is_ok_and(|found| found.filesystem_type() == CGROUP_SUPER_MAGIC) {
            return Err(Error::new(Step::Cgroup, path.display().to_string(), "is not in a hierarchy of cgroup v1"));
        }
        self.0.push(Member { controllers: controllers.to_vec(), dir });
        Ok(())
    }

    /// The directory where a controller is.
    pub fn with(&self, controller: &str) -> Option<&Dir> {
        let has = |member: &&Member| member.controllers.iter().any(|name| name == controller);
        self.0.iter().find(has).map(|member| &member.dir)
    }

    /// The directory where a file is, whose name begins with its controller.
    fn of(&self, file: &str) -> Result<&Dir> {
        let controller = file.split('.').next().unwrap_or(file);
        self.with(controller).ok_or_else(|| no_controller(controller, file))
    }

    /// All of its directories.
    pub fn dirs(&self) -> impl Iterator<Item = &Dir> {
        self.0.iter().map(|member| &member.dir)
    }

    /// The directory that limits memory, or the first.
    pub fn main(&self) -> Option<&Dir> {
        self.with("memory").or(self.dirs().next())
    }

    /// Moves a process in, whose pid cannot be another's meanwhile.
    pub fn add(&self, pid: Pid) -> Result<()> {
        let number = CgroupPid::from(u64::from(pid.as_raw().unsigned_abs()));
        for dir in self.dirs() {
            // Any controller writes the same file.
            let written = PidController::new(by_descriptor(dir), false).add_task_by_tgid(&number);
            written.map_err(|error| failed(&dir.path().join("cgroup.procs"), cause(dir, "cgroup.procs", &error)))?;
        }
        let text = std::fs::read(format!("/proc/{pid}/cgroup")).unwrap_or_default();
        let memberships = hierarchies::memberships(&String::from_utf8_lossy(&text));
        let elsewhere = self.0.iter().find(|member| {
            let is_there = |one: &hierarchies::Membership| {
                // Above this process's own cgroup namespace paths differ, but for their ends.
                one.has(&member.controllers) && one.name() == member.dir.path().file_name()
            };
            !memberships.iter().any(is_there)
        });
        match elsewhere {
            None => Ok(()),
            Some(member) => {
                let reason = "a process was moved there, and is elsewhere";
                Err(Error::new(Step::Cgroup, member.dir.path().display().to_string(), reason))
            }
        }
    }

    /// Writes a value, by a call of cgroups-rs that is given the directory, and reads it back.
    fn set(&self, file: &str, value: impl Display, write: impl FnOnce(PathBuf) -> Written<()>) -> Result<()> {
        let dir = self.of(file)?;
        confirm(dir, file, &value.to_string(), through_crate(dir, file, write))
    }

    /// Writes a value to a file that cgroups-rs does not know, and reads it back.
    fn set_directly(&self, file: &str, value: impl Display) -> Result<()> {
        let (dir, value) = (self.of(file)?, value.to_string());
        confirm(dir, file, &value, dir.write(file, &value))
    }
}

/// Where cgroups-rs finds an open directory: no path is looked up a second time.
fn by_descriptor(dir: &Dir) -> PathBuf {
    format!("/proc/self/fd/{}", dir.fd().as_raw_fd()).into()
}

fn through_crate(dir: &Dir, file: &str, write: impl FnOnce(PathBuf) -> Written<()>) -> nix::Result<()> {
    write(by_descriptor(dir)).map_err(|error| cause(dir, file, &error))
}

/// Why cgroups-rs could not write a file.
fn cause(dir: &Dir, file: &str, error: &cgroups_rs::error::Error) -> Errno {
    let errno = error.source().and_then(|cause| cause.downcast_ref()).map_or(Errno::EIO, errno_of);
    // With O_CREAT a missing file is one that must not be made.
    let missing = errno == Errno::EACCES && matches!(dir.file(file, OFlag::O_PATH), Err(Errno::ENOENT));
    if missing { Errno::ENOENT } else { errno }
}

/// Whether a value was written, and is what the kernel has then.
fn confirm(dir: &Dir, file: &str, value: &str, written: nix::Result<()>) -> Result<()> {
    let read = written.and_then(|()| dir.read(file)).map_err(|errno| {
        let error = failed(&dir.path().join(file), errno);
        match errno {
            Errno::EINVAL | Errno::ERANGE => error.hint(format!("the kernel does not take {value:?} for it")),
            _ => error,
        }
    })?;
    let lists = |device| read.lines().any(|line| line.split_ascii_whitespace().next() == Some(device));
    // No limit is some large number; a limit for a device, once it is 0, is not listed.
    let unlimited = value.starts_with('-') || value.strip_suffix(" 0").is_some_and(|device| !lists(device));
    if unlimited || budget::agrees(file, value, &read) {
        return Ok(());
    }
    Err(Error::new(Step::Cgroup, file, format!("wrote {value:?}, but the kernel has {:?}", read.trim())))
}

/// An error that says which controller is missing.
pub fn no_controller(name: &str, file: &str) -> Error {
    Error::new(Step::Cgroup, file, format!("no cgroup hierarchy of this host has the controller {name}"))
        .hint("leave the limit out, or mount the controller")
}

/// Makes a cgroup and those above it, and says whether it was not there.
pub fn make(path: &Path, controllers: &[String]) -> Result<bool> {
    let mode = Mode::from_bits_truncate(0o755);
    let cpuset = controllers.iter().any(|name| name == "cpuset");
    if !cpuset {
        match nix::unistd::mkdir(path, mode) {
            Ok(()) => return Ok(true),
            Err(Errno::EEXIST) => return Ok(false),
            Err(_) => {} // something above it, then
        }
    }
    let missing: Vec<_> = path.ancestors().take_while(|path| !path.exists()).collect();
    for path in missing.iter().rev() {
        match nix::unistd::mkdir(*path, mode) {
            Ok(()) | Err(Errno::EEXIST) => {}
            Err(errno) => return Err(failed(path, errno)),
        }
        if let Some(above) = path.parent().filter(|_| cpuset) {
            fill_cpuset(path, above)?;
        }
    }
    Ok(!missing.is_empty())
}

/// A new cpuset is empty, and takes no process until it has what the one above has.
fn fill_cpuset(path: &Path, above: &Path) -> Result<()> {
    let dir = Dir::open(path).map_err(|errno| failed(path, errno))?;
    for (file, set) in
        [("cpuset.cpus", CpuSetController::set_cpus as fn(&_, &str) -> _), ("cpuset.mems", CpuSetController::set_mems)]
    {
        let text = std::fs::read_to_string(above.join(file)).unwrap_or_default();
        let list = text.trim();
        let written = through_crate(&dir, file, |at| set(&CpuSetController::new(at, false), list));
        confirm(&dir, file, list, written)?;
    }
    Ok(())
}

/// Allows or denies the use of device nodes. Not read back: the kernel lists exceptions, and not the rules that made them.
pub fn apply_device_rule(dir: &Dir, rule: &DeviceRule) -> Result<()> {
    let (file, change): (_, fn(&_, _, _, _, &[_]) -> _) = match rule.allow {
        true => ("devices.allow", DevicesController::allow_device),
        false => ("devices.deny", DevicesController::deny_device),
    };
    let kind = DeviceType::from_char(Some(rule.kind)).unwrap_or(DeviceType::All);
    // -1 is every number.
    let number = |number: Option<u32>| if kind == DeviceType::All { -1 } else { number.map_or(-1, i64::from) };
    let access: Vec<_> = rule.access.chars().filter_map(DevicePermissions::from_char).collect();
    through_crate(dir, file, |at| {
        change(&DevicesController::new(at), kind, number(rule.major), number(rule.minor), &access)
    })
    .map_err(|errno| failed(&dir.path().join(file), errno))
}

/// Asks for every process to be stopped, or to go on. Whether they did is in `freezer.state` a moment later.
pub fn ask_to_freeze(dir: &Dir, frozen: bool) -> Result<()> {
    through_crate(dir, "freezer.state", |at| {
        let freezer = FreezerController::new(at, false);
        if frozen { freezer.freeze() } else { freezer.thaw() }
    })
    .map_err(|errno| failed(&dir.path().join("freezer.state"), errno))
}

/// Has the kernel count into `counter` when memory runs out, as long as `oom_control` is open.
pub fn announce_oom(dir: &Dir, counter: impl AsFd, oom_control: impl AsFd) -> nix::Result<()> {
    let descriptors = format!("{} {}", counter.as_fd().as_raw_fd(), oom_control.as_fd().as_raw_fd());
    dir.write("cgroup.event_control", &descriptors)
}

/// Kills what is in a cgroup, waits until it is empty, and removes it. One that is not there counts as removed.
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
