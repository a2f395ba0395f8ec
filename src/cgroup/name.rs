//! The name of a run's cgroup, which identifies its owner.
//!
//! `stockade.ID.PID.START.NS`: the supervisor's process id, its start time (in clock ticks since boot) and its pid namespace
//! (by inode). A cgroup does not outlive the boot that created it, so these three identify one process as long as the name
//! exists.

use std::os::unix::fs::MetadataExt as _;
use std::time::Duration;

use nix::errno::Errno;
use nix::time::{ClockId, clock_gettime};
use nix::unistd::{SysconfVar, sysconf};

use crate::sys::file;

const PREFIX: &str = "stockade.";

/// The process that created a cgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    pid: u32,
    started: u64,
    namespace: u64,
}

/// A name for a cgroup of this process. `None` without a readable /proc.
pub fn own(id: &str) -> Option<String> {
    let Owner { pid, started, namespace } = Owner::this()?;
    Some(format!("{PREFIX}{id}.{pid}.{started}.{namespace}"))
}

/// The owner of the cgroup with this name. `None` if this program did not create it.
pub fn owner(name: &str) -> Option<Owner> {
    let mut fields = name.strip_prefix(PREFIX)?.rsplitn(4, '.'); // the id may contain dots
    let mut number =
        || fields.next().filter(|field| field.bytes().all(|byte| byte.is_ascii_digit()))?.parse::<u64>().ok();
    let (namespace, started, pid) = (number()?, number()?, number()?);
    let pid = u32::try_from(pid).ok()?;
    fields.next().filter(|id| !id.is_empty()).map(|_| Owner { pid, started, namespace })
}

/// The name of the run, from the name of its cgroup.
pub fn id(name: &str) -> Option<&str> {
    owner(name)?;
    name.strip_prefix(PREFIX)?.rsplitn(4, '.').nth(3)
}

impl Owner {
    fn this() -> Option<Self> {
        let pid = std::process::id();
        Some(Self { pid, started: started(pid).ok()??, namespace: namespace()? })
    }

    /// Its process id. `None` if the owner is in another pid namespace.
    pub fn pid(self) -> Option<u32> {
        (namespace() == Some(self.namespace)).then_some(self.pid)
    }

    /// The time since its start.
    pub fn age(self) -> Option<Duration> {
        let ticks = sysconf(SysconfVar::CLK_TCK).ok()??;
        let started_ms = self.started.saturating_mul(1_000) / u64::try_from(ticks).ok().filter(|ticks| *ticks > 0)?;
        let now = Duration::from(clock_gettime(ClockId::CLOCK_BOOTTIME).ok()?);
        Some(now.saturating_sub(Duration::from_millis(started_ms)))
    }

    /// Whether it is known to be dead. The state of a process in another pid namespace is unknown.
    pub fn is_dead(self) -> bool {
        let here = namespace() == Some(self.namespace);
        here && started(self.pid).is_ok_and(|started| started != Some(self.started))
    }
}

fn namespace() -> Option<u64> {
    std::fs::metadata("/proc/self/ns/pid").ok().map(|namespace| namespace.ino())
}

/// The start time of a process, `proc_pid_stat(5)`. `None` if it does not exist or is a zombie. An error decides nothing.
pub fn started(pid: u32) -> nix::Result<Option<u64>> {
    read_start(pid, false)
}

/// As [`started`], and also `None` for a process that is exiting. Such a process runs no more code, and closes its descriptors
/// before it becomes a zombie.
pub fn runs_since(pid: u32) -> nix::Result<Option<u64>> {
    read_start(pid, true)
}

fn read_start(pid: u32, ending_is_gone: bool) -> nix::Result<Option<u64>> {
    match file::read_text(format!("/proc/{pid}/stat").as_str()) {
        Ok(stat) => Ok(start_time(&stat, ending_is_gone)),
        Err(Errno::ENOENT | Errno::ESRCH) => Ok(None),
        Err(errno) => Err(errno),
    }
}

fn start_time(stat: &str, ending_is_gone: bool) -> Option<u64> {
    let mut fields = stat[stat.rfind(')')? + 1..].split_ascii_whitespace(); // the name before it may contain any character
    let state = fields.next()?;
    let flags: u64 = fields.nth(5)?.parse().ok()?;
    let is_ending = flags & 4 != 0; // PF_EXITING of linux/sched.h
    if matches!(state, "Z" | "X") || ending_is_gone && is_ending { None } else { fields.nth(12)?.parse().ok() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_contain_id_and_owner() {
        for id in ["x", "a.b.1.2.3.4", "+", "A-_."] {
            let name = own(id).unwrap();
            assert_eq!((owner(&name), super::id(&name)), (Owner::this(), Some(id)), "{name}");
            assert!(!owner(&name).unwrap().is_dead());
        }
    }

    #[test]
    fn foreign_names_have_no_owner() {
        for name in ["", "stockade", "stockade.", "stockade.x", "stockade.x.1.2", "stockade..1.2.3", "stockade.callers"]
        {
            assert_eq!(owner(name), None, "{name}");
        }
        for name in [
            "x.stockade.a.1.2.3",
            "stockade.x.1.2.-3",
            "stockade.x.4294967296.2.3",
            "stockade.x.1.2.3x",
            "stockade.x.+1.2.3",
        ] {
            assert_eq!(owner(name), None, "{name}");
        }
    }

    #[test]
    fn a_reused_pid_is_not_the_owner() {
        let this = Owner::this().unwrap();
        assert!(Owner { started: this.started + 1, ..this }.is_dead());
        assert!(Owner { pid: 4_194_305, ..this }.is_dead());
        assert!(!Owner { pid: 4_194_305, namespace: this.namespace + 1, ..this }.is_dead());
    }

    #[test]
    fn a_zombie_has_no_start_time() {
        let stat = |state| format!("7 (a) R (\n) {state} 1 2 3 4 5 6 7 8 9 10 100 20 3 1 20 0 1 0 99 5");
        let start = |stat: &str| start_time(stat, false);
        assert_eq!((start(&stat("S")), start(&stat("Z")), start("7 (a) S 1")), (Some(99), None, None));
        assert_eq!(start_time(&stat("S"), true), None, "its flags are 6, which include PF_EXITING (4)");
    }
}
