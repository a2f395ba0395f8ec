//! CPU time of a process tree without a cgroup: the time of its processes and of the children that they have reaped.

use nix::unistd::{SysconfVar, sysconf};

use super::processes;
use crate::launch::times::CpuTime;

/// CPU time of a process and all its living descendants, each including its reaped children.
///
/// If a process ignores SIGCHLD, the time of its ended children is not counted; `RLIMIT_CPU` still limits each process.
pub fn of_tree(root: i32) -> CpuTime {
    let ticks_per_second = sysconf(SysconfVar::CLK_TCK).ok().flatten().map_or(100, |ticks| ticks.max(1) as u64);
    let micros = |ticks: u64| ticks.saturating_mul(1_000_000) / ticks_per_second;
    let (mut user, mut system) = (0u64, 0u64);
    for pid in processes::tree(root) {
        // Read as bytes: the process chooses the name in this file, which may not be UTF-8.
        let Ok(stat) = std::fs::read(format!("/proc/{pid}/stat")) else { continue };
        let (its_user, its_system) = ticks_of(&String::from_utf8_lossy(&stat)).unwrap_or_default();
        (user, system) = (user.saturating_add(its_user), system.saturating_add(its_system));
    }
    CpuTime { user_us: micros(user), system_us: micros(system) }
}

/// `utime` and `cutime`, and `stime` and `cstime`, of `/proc/PID/stat`. The second field, the name, may contain any text, even
/// parentheses.
pub fn ticks_of(stat: &str) -> Option<(u64, u64)> {
    let fields = &stat[stat.rfind(')')? + 1..];
    let mut numbers = fields.split_ascii_whitespace().skip(11).map(|field| field.parse::<u64>());
    let mut next = || numbers.next()?.ok();
    let (user, system, children_user, children_system) = (next()?, next()?, next()?, next()?);
    Some((user.saturating_add(children_user), system.saturating_add(children_system)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_full_of_traps_is_skipped() {
        let stat = "12 (a) R (\n) b) S 1 2 3 4 5 6 7 8 9 10 100 20 3 1 20 0 1 0 99";
        assert_eq!(ticks_of(stat), Some((103, 21)));
        assert_eq!(ticks_of("12 (a) S 1 2"), None);
        assert_eq!(ticks_of(""), None);
    }
}
