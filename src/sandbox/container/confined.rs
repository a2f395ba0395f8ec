//! What really confines a container's process before it executes its program, read from outside by the runtime's own handle
//! of its `/proc` directory. That the child set and checked it is its word; this is the kernel's. For a filter that is
//! put in force last, the process waits once more ([`super::hold`]).

use std::collections::HashMap;
use std::os::fd::OwnedFd;

use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;

use super::prepare::Prepared;
use crate::error::{Error, Result, Step, errno_of};
use crate::layers::caps::Sets;
use crate::plan::ContainerPlan;

/// `Seccomp:` of a process with a filter.
const SECCOMP_MODE_FILTER: u64 = 2;

/// `Seccomp:` of a process that its filter has killed, `kernel/seccomp.c`.
const SECCOMP_MODE_DEAD: u64 = 3;

/// Most that is read of a file; a process may have 65536 groups.
const LONGEST: usize = 1 << 20;

/// What the process has to be.
#[derive(Clone, Debug)]
struct Expected {
    /// User and group, as the reader sees them; `None` for one that the reader's maps do not have.
    ids: (Option<u32>, Option<u32>),
    /// Supplementary groups, if they were set.
    groups: Option<Vec<Option<u32>>>,
    capabilities: Sets,
    no_new_privs: bool,
    /// How many filters it has at least, if it has one by now.
    filters: Option<u64>,
}

/// Fails unless the process has exactly the ids, groups and capabilities that it should, and is as restricted.
pub fn verify(proc_pid: &OwnedFd, plan: &ContainerPlan, prepared: &Prepared<'_>) -> Result<()> {
    let text = |name: &str| read(proc_pid, name);
    let maps = match prepared.in_user_namespace {
        true => (parse_map(&text("uid_map")?), parse_map(&text("gid_map")?)),
        false => (Vec::new(), Vec::new()),
    };
    let outside = |map: &[[u32; 3]], id: u32| match prepared.in_user_namespace {
        true => map
            .iter()
            .find(|[inside, _, count]| id.wrapping_sub(*inside) < *count)
            .map(|[inside, outside, _]| id - inside + outside),
        false => Some(id),
    };
    let (uid, gid) = prepared.users.inside();
    let forbidden = prepared.in_user_namespace && text("setgroups").is_ok_and(|text| text.trim() == "deny");
    let set_groups = prepared.users.can_clear_groups() && !(forbidden && plan.process.groups.is_empty());
    let expected = Expected {
        ids: (outside(&maps.0, uid), outside(&maps.1, gid)),
        groups: set_groups.then(|| plan.process.groups.iter().map(|group| outside(&maps.1, *group)).collect()),
        capabilities: prepared.capabilities,
        no_new_privs: plan.process.no_new_privs,
        filters: (prepared.seccomp.is_some() && prepared.filters_early).then(filters_with_one_more),
    };
    let text = text("status")?;
    let status = Status::parse(&text);
    status.differs(&expected).map_or(Ok(()), |found| Err(status.weaker(found)))
}

/// How many filters a process of ours has that got one, beside those that we have ourselves.
pub fn filters_with_one_more() -> u64 {
    let own = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    Status::parse(&own).number("Seccomp_filters").unwrap_or(0) + 1
}

/// The error of a container whose first process died too early.
pub fn died(when: &str) -> Error {
    Error::new(Step::Supervise, "container", format!("its first process died {when}"))
        .hint("a memory limit too small for that is the usual cause: dmesg tells")
}

/// Fails unless a process has at least so many filters.
pub fn verify_filters(proc_pid: &OwnedFd, filters: u64) -> Result<()> {
    let text = read(proc_pid, "status")?;
    let status = Status::parse(&text);
    status.lacks_filters(filters).map_or(Ok(()), |found| Err(status.weaker(found)))
}

fn read(proc_pid: &OwnedFd, name: &str) -> Result<String> {
    let failed = |errno| Error::errno(Step::Verify, format!("/proc/PID/{name}"), errno);
    let file = openat(proc_pid, name, OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty()).map_err(failed)?;
    let mut text = String::new();
    std::io::Read::read_to_string(&mut std::io::Read::take(std::fs::File::from(file), LONGEST as u64), &mut text)
        .map_err(|error| failed(errno_of(&error)))?;
    Ok(text)
}

/// First id inside, first outside, and how many, a line.
fn parse_map(text: &str) -> Vec<[u32; 3]> {
    let line = |line: &str| {
        let numbers: Option<Vec<u32>> = line.split_ascii_whitespace().map(|word| word.parse().ok()).collect();
        numbers?.try_into().ok()
    };
    text.lines().filter_map(line).collect()
}

/// The fields of `proc_pid_status(5)`.
struct Status<'a>(HashMap<&'a str, &'a str>);

impl<'a> Status<'a> {
    fn parse(text: &'a str) -> Self {
        Self(text.lines().filter_map(|line| line.split_once(':')).map(|(key, value)| (key, value.trim())).collect())
    }

    fn text(&self, key: &str) -> &'a str {
        self.0.get(key).copied().unwrap_or("nothing that can be read")
    }

    fn number(&self, key: &str) -> Option<u64> {
        self.0.get(key)?.parse().ok()
    }

    fn numbers(&self, key: &str) -> Option<Vec<u32>> {
        self.0.get(key)?.split_ascii_whitespace().map(|word| word.parse().ok()).collect()
    }

    fn mask(&self, key: &str) -> Option<u64> {
        u64::from_str_radix(self.0.get(key)?, 16).ok()
    }

    /// The error for what is not as expected. One that dies meanwhile has let go of its memory, and may of its filters.
    fn weaker(&self, (what, is): (&'static str, String)) -> Error {
        if self.text("State").starts_with(['Z', 'X']) || !self.0.contains_key("VmSize") {
            return died("while it was looked at");
        }
        Error::new(Step::Verify, what, format!("the container's process has {is}"))
    }

    /// What is not as expected, and how it is.
    fn differs(&self, expected: &Expected) -> Option<(&'static str, String)> {
        let shown = |what, key: &str| Some((what, format!("{key} {}", self.text(key))));
        for (what, key, id) in [("user", "Uid", expected.ids.0), ("group", "Gid", expected.ids.1)] {
            if id.is_some_and(|id| self.numbers(key) != Some(vec![id; 4])) {
                return shown(what, key);
            }
        }
        if let Some(groups) = &expected.groups {
            let mut wanted: Vec<u32> = groups.iter().flatten().copied().collect();
            let mut found = self.numbers("Groups").unwrap_or_else(|| vec![u32::MAX]);
            for list in [&mut wanted, &mut found] {
                list.sort_unstable();
                list.dedup();
            }
            if groups.iter().all(Option::is_some) && wanted != found {
                return shown("supplementary groups", "Groups");
            }
        }
        let Sets { bounding, effective, inheritable, permitted, ambient } = expected.capabilities;
        for (key, set) in [("CapInh", inheritable), ("CapPrm", permitted), ("CapEff", effective), ("CapAmb", ambient)] {
            if self.mask(key) != Some(set) {
                return shown("capabilities", key);
            }
        }
        // The runtime may have lacked some of these itself.
        if self.mask("CapBnd").is_none_or(|found| found & !bounding != 0) {
            return shown("capabilities", "CapBnd");
        }
        if expected.no_new_privs && self.number("NoNewPrivs") != Some(1) {
            return shown("no_new_privs", "NoNewPrivs");
        }
        expected.filters.and_then(|filters| self.lacks_filters(filters))
    }

    /// The same, of its filters.
    fn lacks_filters(&self, filters: u64) -> Option<(&'static str, String)> {
        // Before Linux 5.9 their number is not to be had.
        let number = self.number("Seccomp_filters").unwrap_or(filters);
        let filtered = matches!(self.number("Seccomp"), Some(SECCOMP_MODE_FILTER | SECCOMP_MODE_DEAD));
        (!filtered || number < filters)
            .then(|| ("seccomp filters", format!("Seccomp {}, {number} of {filters}", self.text("Seccomp"))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "Name:\tsh\nUid:\t7\t7\t7\t7\nGid:\t8\t8\t8\t8\nGroups:\t9 4 \nCapInh:\t0000000000000001\n\
        CapPrm:\t0000000000000003\nCapEff:\t0000000000000002\nCapBnd:\t0000000000000007\nCapAmb:\t0000000000000001\n\
        NoNewPrivs:\t1\nSeccomp:\t2\nSeccomp_filters:\t2\n";

    fn expected() -> Expected {
        Expected {
            ids: (Some(7), Some(8)),
            groups: Some(vec![Some(4), Some(9), Some(4)]),
            capabilities: Sets { bounding: 0xf, effective: 2, inheritable: 1, permitted: 3, ambient: 1 },
            no_new_privs: true,
            filters: Some(2),
        }
    }

    #[test]
    fn a_process_that_is_as_it_should_be_passes() {
        assert_eq!(Status::parse(TEXT).differs(&expected()), None);
        let without = TEXT.replace("Seccomp_filters:\t2\n", "");
        assert_eq!(Status::parse(&without).differs(&expected()), None);
        let filterless = TEXT.replace("Seccomp:\t2", "Seccomp:\t0");
        assert_eq!(Status::parse(&filterless).differs(&Expected { filters: None, ..expected() }), None);
    }

    #[test]
    fn anything_else_does_not() {
        for (from, to) in [
            ("Uid:\t7\t7\t7\t7", "Uid:\t7\t7\t0\t7"),
            ("Uid:\t7\t7\t7\t7\n", ""),
            ("Gid:\t8\t8\t8\t8", "Gid:\t8\t8\t8\t0"),
            ("Groups:\t9 4 ", "Groups:\t9 4 0"),
            ("Groups:\t9 4 ", "Groups:\t9"),
            ("Groups:\t9 4 ", "Groups:\tjunk"),
            ("CapInh:\t0000000000000001", "CapInh:\t0000000000000000"),
            ("CapPrm:\t0000000000000003", "CapPrm:\t0000000000000007"),
            ("CapEff:\t0000000000000002", "CapEff:\t0000000000000003"),
            ("CapAmb:\t0000000000000001", "CapAmb:\t0000000000000003"),
            ("CapBnd:\t0000000000000007", "CapBnd:\t0000000000000017"),
            ("CapBnd:\t0000000000000007", "CapBnd:\tjunk"),
            ("NoNewPrivs:\t1", "NoNewPrivs:\t0"),
            ("Seccomp:\t2", "Seccomp:\t0"),
            ("Seccomp_filters:\t2", "Seccomp_filters:\t1"),
        ] {
            let text = TEXT.replace(from, to);
            assert_ne!(text, TEXT);
            assert!(Status::parse(&text).differs(&expected()).is_some(), "{to}");
        }
    }

    #[test]
    fn a_filter_that_is_not_in_force_is_missed() {
        // The test itself has none of its own making.
        let own = crate::layers::user::open_proc_pid(nix::unistd::getpid()).unwrap();
        let error = verify_filters(&own, filters_with_one_more()).unwrap_err();
        assert_eq!((error.step, error.object.as_str()), (Step::Verify, "seccomp filters"));
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let gone = crate::layers::user::open_proc_pid(nix::unistd::Pid::from_raw(child.id() as i32)).unwrap();
        child.wait().unwrap();
        assert!(verify_filters(&gone, 0).is_err(), "nothing is known of who is gone");
        let mut zombie = std::process::Command::new("true").spawn().unwrap();
        let ended = nix::sys::wait::WaitPidFlag::WEXITED | nix::sys::wait::WaitPidFlag::WNOWAIT;
        let pid = nix::unistd::Pid::from_raw(zombie.id() as i32);
        nix::sys::wait::waitid(nix::sys::wait::Id::Pid(pid), ended).unwrap();
        let dead = crate::layers::user::open_proc_pid(pid).unwrap();
        assert_eq!(verify_filters(&dead, filters_with_one_more()).unwrap_err().step, Step::Supervise);
        zombie.wait().unwrap();
        assert_eq!(Status::parse(TEXT).lacks_filters(2), None);
        assert_eq!(Status::parse(&TEXT.replace("Seccomp:\t2", "Seccomp:\t3")).lacks_filters(2), None);
    }

    #[test]
    fn a_map_is_read_line_by_line() {
        assert_eq!(parse_map("         0     200000       1000\n 1000 300000 5\njunk\n1 2\n").len(), 2);
    }
}
