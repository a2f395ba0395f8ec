//! What enforces each limit of a run's budget: its cgroup, limits of its processes, or nothing.

use std::time::Duration;

use nix::errno::Errno;
use nix::unistd::Pid;

use crate::cgroup::{Group, ONLY_ON_V1};
use crate::confine::process::StandIn;
use crate::error::{Error, Result, Step};
use crate::plan::{Budget, Facility, RlimitResource};
use crate::report::{Bound, BoundBy, Degraded};
use crate::sys::file;
use crate::sys::status::Status;

/// The limits of the budget, for the report.
pub fn record(budget: &Budget, cgroup: Option<&Group>, stand_ins: &[StandIn]) -> Vec<Bound> {
    let bound = |controller: Facility| {
        let stand_in = stand_ins.iter().find(|one| one.controller == controller);
        let (by, limit) = match stand_in {
            _ if cgroup.is_some_and(|group| group.enforces(controller)) => {
                (BoundBy::Cgroup, Some(budget.describe(controller)))
            }
            Some(stand_in) => (BoundBy::Rlimit, Some(stand_in.to_string())),
            None => (BoundBy::None, None),
        };
        Bound { what: controller.name().to_owned(), by, limit }
    };
    budget.controllers().into_iter().map(bound).collect()
}

/// Compares the limits that replace a budget with those of the running workload. `Ok` if it has ended.
pub fn verify(pid: i32, stand_ins: &[StandIn]) -> Result<()> {
    if stand_ins.is_empty() {
        return Ok(());
    }
    let path = format!("/proc/{pid}/limits");
    let text = match file::read_text(path.as_str()) {
        Err(Errno::ENOENT | Errno::ESRCH) => return Ok(()),
        Ok(text) if text.is_empty() => return Ok(()), // it was reaped between the open and the read
        text => text.map_err(|errno| Error::errno(Step::Verify, &path, errno))?,
    };
    match stand_ins.iter().find(|one| hard_limit(&text, one.resource).is_none_or(|limit| limit > one.bound)) {
        Some(lost) => Err(Error::new(Step::Verify, lost.resource.name(), format!("the process does not have {lost}"))),
        None => Ok(()),
    }
}

/// Fails unless the tree's first process is in the cgroup, unless it ends meanwhile: then cgroup v1 shows it in no cgroup.
pub fn verify_group(group: &Group, first: Option<i32>) -> Result<()> {
    let Some(pid) = first else { return Ok(()) };
    let mut verified = group.verify(Pid::from_raw(pid));
    for _ in 0..100 {
        if verified.is_ok() || Status::of(pid).map_or(true, |status| status.is_ending()) {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(1)); // the kernel shows a little later that it ends
        verified = group.verify(Pid::from_raw(pid));
    }
    verified
}

/// The hard limit in a text in the format of `/proc/PID/limits`, `proc_pid_limits(5)`.
fn hard_limit(text: &str, resource: RlimitResource) -> Option<u64> {
    let name = if resource == RlimitResource::Nproc { "Max processes" } else { "Max data size" };
    text.lines().find_map(|line| line.strip_prefix(name))?.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// What the caller should know, in one line: a default limit that nothing enforces, unless the caller accepts its absence, and a
/// requested limit that each process has for itself. The number of processes is the sandbox's in either case. What was never to
/// be enforced is documented, and listed in the report.
pub fn warning(budget: &Budget, lacking: &[Degraded], stand_ins: &[StandIn], accepted: &[Facility]) -> Option<String> {
    let (mut unlimited, mut each, mut why, mut asks) = (Vec::new(), Vec::new(), None, false);
    for one in lacking.iter().filter(|one| one.why != ONLY_ON_V1) {
        let Ok(controller) = one.what.parse::<Facility>() else { continue };
        let is_default = budget.if_possible.contains(&controller);
        match stand_ins.iter().find(|stand_in| stand_in.controller == controller) {
            Some(stand_in) if controller == Facility::Memory => each.push(stand_in.to_string()),
            Some(_) => continue,
            None if is_default && accepted.contains(&controller) => continue,
            None => unlimited.push(one.what.as_str()),
        }
        asks |= is_default;
        why = why.or(Some(&one.why));
    }
    let verb = if unlimited.len() == 1 { "is" } else { "are" };
    let unlimited = (!unlimited.is_empty()).then(|| (unlimited.join(" and "), unlimited.join(" --allow-degraded ")));
    let ways = unlimited.as_ref().filter(|_| asks).map_or(String::new(), |(_, names)| {
        format!(" (--require-budget enforces it or refuses the run, --allow-degraded {names} accepts it)")
    });
    let unlimited = unlimited.map(|(names, _)| format!("{names} {verb} not limited"));
    let each = (!each.is_empty()).then(|| format!("memory has no common limit, only {}", each.join(", ")));
    let said: Vec<_> = unlimited.into_iter().chain(each).collect();
    why.map(|why| format!("{}: {why}{ways}", said.join("; ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: &str = "Limit                     Soft Limit           Hard Limit           Units     \n\
        Max data size             1024                 2048                 bytes     \n\
        Max processes             9                    unlimited            processes \n";

    #[test]
    fn the_kernels_limits_are_read() {
        assert_eq!(hard_limit(LIMITS, RlimitResource::Data), Some(2048));
        assert_eq!(hard_limit(LIMITS, RlimitResource::Nproc), None, "unlimited");
        assert_eq!(hard_limit("", RlimitResource::Data), None);
    }

    #[test]
    fn the_line_says_what_is_not_limited_and_nothing_that_was_accepted() {
        let lost = |what: &str| Degraded { what: what.into(), why: "no cgroup".into(), ..Degraded::default() };
        let (both, memory) = ([lost("memory"), lost("pids")], [lost("memory")]);
        let default = Budget { if_possible: vec![Facility::Memory, Facility::Pids], ..Budget::default() };
        let stand_in = |controller, resource| StandIn { controller, resource, bound: 9 };
        let pids = stand_in(Facility::Pids, RlimitResource::Nproc);
        let said = warning(&default, &both, &[pids], &[]).unwrap();
        assert!(said.starts_with("memory is not limited: no cgroup (") && said.contains("--require-budget"), "{said}");
        assert!(said.ends_with("--allow-degraded memory accepts it)"), "{said}");
        assert_eq!(warning(&default, &both, &[pids], &[Facility::Memory]), None);
        let said = warning(&default, &both, &[], &[]).unwrap();
        assert!(said.starts_with("memory and pids are not limited: "), "{said}");
        // Requested limits.
        let data = stand_in(Facility::Memory, RlimitResource::Data);
        let said = warning(&Budget::default(), &memory, &[data], &[Facility::Memory]).unwrap();
        assert_eq!(said, "memory has no common limit, only RLIMIT_DATA 9 for each process: no cgroup");
        let said = warning(&Budget::default(), &[lost("cpu")], &[], &[Facility::Cpu]).unwrap();
        assert_eq!(said, "cpu is not limited: no cgroup");
        assert_eq!(warning(&default, &[], &[], &[]), None);
        let by_choice = Degraded { why: ONLY_ON_V1.to_owned(), ..lost("memory") };
        assert_eq!(warning(&default, &[by_choice], &[], &[]), None);
    }
}
