//! Verifies from outside what confines a container's process before it executes its program. The runtime reads this through its
//! own descriptor of the process's `/proc` directory, so it relies on the kernel and not on the child's report. For a filter
//! that is installed last, the process waits once more ([`super::filter_handshake`]).

use std::os::fd::OwnedFd;

use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;

use super::errors::{status_of, weaker};
use super::prepare::Prepared;
use crate::error::{Error, Result, Step, errno_of};
use crate::launch::verify::{self, Capabilities, Expected, filters_with_one_more};
use crate::plan::ContainerPlan;

/// Most bytes that are read of a file. An id map has at most 340 lines.
const LONGEST: usize = 1 << 20;

/// Fails unless the process has exactly the expected ids, groups and capabilities, and is restricted as planned.
pub fn verify(proc_pid: &OwnedFd, plan: &ContainerPlan, prepared: &Prepared<'_>) -> Result<()> {
    let expected = expected(proc_pid, plan, prepared)?;
    let status = status_of(proc_pid)?;
    verify::compare(&status, &expected).map_err(|error| weaker(&status, error))
}

fn expected(proc_pid: &OwnedFd, plan: &ContainerPlan, prepared: &Prepared<'_>) -> Result<Expected> {
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
    let set_groups =
        prepared.users.can_clear_groups() && !plan.keep_groups && !(forbidden && plan.process.groups.is_empty());
    let groups = || plan.process.groups.iter().map(|group| outside(&maps.1, *group)).collect();
    Ok(Expected {
        ids: (outside(&maps.0, uid), outside(&maps.1, gid)),
        groups: set_groups.then(groups).flatten(),
        capabilities: Capabilities::Exactly(prepared.expected_capabilities()),
        no_new_privs: plan.process.no_new_privs,
        filters: (prepared.seccomp.is_some() && prepared.filters_early).then(filters_with_one_more),
        nested: false,
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_is_read_line_by_line() {
        assert_eq!(parse_map("         0     200000       1000\n 1000 300000 5\njunk\n1 2\n").len(), 2);
    }
}
