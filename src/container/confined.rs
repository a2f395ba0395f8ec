//! Verifies from outside what confines a container's process before it executes its program. The runtime reads this through its
//! own descriptor of the process's `/proc` directory, so it relies on the kernel and not on the child's report. For a filter
//! that is installed last, the process waits once more ([`super::filter_handshake`]).

use std::os::fd::OwnedFd;

use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;

use super::prepare::Prepared;
use crate::confine::caps::Sets;
use crate::error::{Error, Result, Step, errno_of};
use crate::plan::ContainerPlan;
use crate::sys::status::Status;

/// Most bytes that are read of a file. A process may have 65536 groups.
const LONGEST: usize = 1 << 20;

/// The expected status of the process.
#[derive(Clone, Debug)]
struct Expected {
    /// User and group in the reader's user namespace; `None` for an id that has no mapping there.
    ids: (Option<u32>, Option<u32>),
    /// Supplementary groups, if they were set.
    groups: Option<Vec<Option<u32>>>,
    capabilities: Sets,
    no_new_privs: bool,
    /// The minimum number of filters, if a filter is already installed.
    filters: Option<u64>,
}

/// Fails unless the process has exactly the expected ids, groups and capabilities, and is restricted as planned.
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
    let status = status_of(proc_pid)?;
    differs(&status, &expected).map_or(Ok(()), |found| Err(weaker(&status, found)))
}

/// How many filters our child has after it installed one: ours and its own.
pub fn filters_with_one_more() -> u64 {
    Status::own().ok().and_then(|status| status.filters()).unwrap_or(0) + 1
}

/// The error for a container whose first process died during set-up.
pub fn died(when: &str) -> Error {
    Error::new(Step::Supervise, "container", format!("its first process died {when}"))
        .hint("a memory limit that is too small is the usual cause; see dmesg")
}

/// Fails unless the process has at least this many filters.
pub fn verify_filters(proc_pid: &OwnedFd, filters: u64) -> Result<()> {
    let status = status_of(proc_pid)?;
    lacks_filters(&status, filters).map_or(Ok(()), |found| Err(weaker(&status, found)))
}

fn status_of(proc_pid: &OwnedFd) -> Result<Status> {
    Status::at(proc_pid).map_err(|errno| Error::errno(Step::Verify, "/proc/PID/status", errno))
}

fn read(proc_pid: &OwnedFd, name: &str) -> Result<String> {
    let failed = |errno| Error::errno(Step::Verify, format!("/proc/PID/{name}"), errno);
    let file = openat(proc_pid, name, OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty()).map_err(failed)?;
    let mut text = String::new();
    std::io::Read::read_to_string(&mut std::io::Read::take(std::fs::File::from(file), LONGEST as u64), &mut text)
        .map_err(|error| failed(errno_of(&error)))?;
    Ok(text)
}

/// Parses the lines of an id map: first id inside, first id outside, count.
fn parse_map(text: &str) -> Vec<[u32; 3]> {
    let line = |line: &str| {
        let numbers: Option<Vec<u32>> = line.split_ascii_whitespace().map(|word| word.parse().ok()).collect();
        numbers?.try_into().ok()
    };
    text.lines().filter_map(line).collect()
}

/// The error for a difference. A process that is ending has released its memory, and perhaps its filters.
fn weaker(status: &Status, (what, is): (&'static str, String)) -> Error {
    if status.is_ending() {
        return died("while it was checked");
    }
    Error::new(Step::Verify, what, format!("the container's process has {is}"))
}

/// The first difference, and the value found.
fn differs(status: &Status, expected: &Expected) -> Option<(&'static str, String)> {
    let shown = |what, name: &str| Some((what, format!("{name} {}", value(status, name))));
    for (what, name, id) in [("user", "Uid", expected.ids.0), ("group", "Gid", expected.ids.1)] {
        if id.is_some_and(|id| status.numbers(name) != Some(vec![id; 4])) {
            return shown(what, name);
        }
    }
    if let Some(groups) = &expected.groups {
        let mut wanted: Vec<u32> = groups.iter().flatten().copied().collect();
        let mut found = status.numbers("Groups").unwrap_or_else(|| vec![u32::MAX]);
        for list in [&mut wanted, &mut found] {
            list.sort_unstable();
            list.dedup();
        }
        if groups.iter().all(Option::is_some) && wanted != found {
            return shown("supplementary groups", "Groups");
        }
    }
    let Sets { bounding, effective, inheritable, permitted, ambient } = expected.capabilities;
    for (name, set) in [("CapInh", inheritable), ("CapPrm", permitted), ("CapEff", effective), ("CapAmb", ambient)] {
        if status.mask(name) != Some(set) {
            return shown("capabilities", name);
        }
    }
    // The runtime itself may lack some of these.
    if status.mask("CapBnd").is_none_or(|found| found & !bounding != 0) {
        return shown("capabilities", "CapBnd");
    }
    if expected.no_new_privs && status.no_new_privs() != Some(true) {
        return shown("no_new_privs", "NoNewPrivs");
    }
    expected.filters.and_then(|filters| lacks_filters(status, filters))
}

/// The same for filters alone.
fn lacks_filters(status: &Status, filters: u64) -> Option<(&'static str, String)> {
    let number = status.filters().unwrap_or(filters); // older kernels do not report it
    (!status.is_filtered() || number < filters)
        .then(|| ("seccomp filters", format!("Seccomp {}, {number} of {filters}", value(status, "Seccomp"))))
}

fn value<'a>(status: &'a Status, name: &str) -> &'a str {
    status.field(name).unwrap_or("nothing that can be read")
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
    fn a_process_as_expected_passes() {
        assert_eq!(differs(&Status::new(TEXT), &expected()), None);
        let without = TEXT.replace("Seccomp_filters:\t2\n", "");
        assert_eq!(differs(&Status::new(without), &expected()), None);
        let filterless = TEXT.replace("Seccomp:\t2", "Seccomp:\t0");
        assert_eq!(differs(&Status::new(filterless), &Expected { filters: None, ..expected() }), None);
    }

    #[test]
    fn every_difference_is_found() {
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
            assert!(differs(&Status::new(text), &expected()).is_some(), "{to}");
        }
    }

    #[test]
    fn a_missing_filter_is_found() {
        // The test process has no filter of its own.
        let own = crate::confine::user::open_proc_pid(nix::unistd::getpid()).unwrap();
        let error = verify_filters(&own, filters_with_one_more()).unwrap_err();
        assert_eq!((error.step, error.object.as_str()), (Step::Verify, "seccomp filters"));
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let gone = crate::confine::user::open_proc_pid(nix::unistd::Pid::from_raw(child.id() as i32)).unwrap();
        child.wait().unwrap();
        assert!(verify_filters(&gone, 0).is_err(), "the process has ended");
        let mut zombie = std::process::Command::new("true").spawn().unwrap();
        let ended = nix::sys::wait::WaitPidFlag::WEXITED | nix::sys::wait::WaitPidFlag::WNOWAIT;
        let pid = nix::unistd::Pid::from_raw(zombie.id() as i32);
        nix::sys::wait::waitid(nix::sys::wait::Id::Pid(pid), ended).unwrap();
        let dead = crate::confine::user::open_proc_pid(pid).unwrap();
        assert_eq!(verify_filters(&dead, filters_with_one_more()).unwrap_err().step, Step::Supervise);
        zombie.wait().unwrap();
        assert_eq!(lacks_filters(&Status::new(TEXT), 2), None);
        assert_eq!(lacks_filters(&Status::new(TEXT.replace("Seccomp:\t2", "Seccomp:\t3")), 2), None);
    }

    #[test]
    fn a_map_is_read_line_by_line() {
        assert_eq!(parse_map("         0     200000       1000\n 1000 300000 5\njunk\n1 2\n").len(), 2);
    }
}
