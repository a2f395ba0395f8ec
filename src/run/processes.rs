//! The processes of a tree, as `/proc` shows them, and the end of those below one of them.

use std::collections::BTreeSet;
use std::os::fd::AsFd as _;

use nix::unistd::Pid;

use crate::sys::process;

/// How often the tree is looked through for processes that are not stopped yet.
const PASSES: usize = 100;

/// A process and its living descendants.
pub fn tree(root: i32) -> BTreeSet<i32> {
    let (mut found, mut next) = (BTreeSet::from([root]), vec![root]);
    while let Some(pid) = next.pop() {
        let Ok(tasks) = std::fs::read_dir(format!("/proc/{pid}/task")) else { continue };
        for task in tasks.flatten() {
            let children = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
            let children = children.split_ascii_whitespace().filter_map(|child| child.parse().ok());
            next.extend(children.filter(|child| found.insert(*child)));
        }
    }
    found
}

/// Whether this kernel shows the children of a process (`CONFIG_PROC_CHILDREN`).
pub fn can_be_found() -> bool {
    std::fs::read("/proc/thread-self/children").is_ok()
}

/// Kills the descendants of a process, which adopts orphans. Each is stopped first, because a stopped process creates no others.
/// Processes that are created faster than they are found may escape this time.
pub fn kill_below(root: i32) {
    let mut stopped = BTreeSet::from([root]);
    for _ in 0..PASSES {
        let found = tree(root);
        let new: Vec<i32> = found.difference(&stopped).copied().collect();
        if new.is_empty() {
            break;
        }
        new.iter().for_each(|pid| signal(*pid, &found, libc::SIGSTOP));
        stopped.extend(new);
    }
    let found = tree(root);
    found.iter().filter(|pid| **pid != root).for_each(|pid| signal(*pid, &found, libc::SIGKILL));
}

/// Stops a process and its process group, as far as they are below `root`, which adopts orphans.
pub fn stop_group(root: i32, leader: i32) {
    let mut stopped = BTreeSet::new();
    for _ in 0..PASSES {
        let found = tree(root);
        let is_in_group = |pid: i32| pid == leader || stat(pid).is_some_and(|stat| group_of(&stat) == Some(leader));
        let new: Vec<i32> =
            found.difference(&stopped).copied().filter(|pid| *pid != root && is_in_group(*pid)).collect();
        if new.is_empty() {
            return;
        }
        new.iter().for_each(|pid| signal(*pid, &found, libc::SIGSTOP));
        stopped.extend(new);
    }
}

/// Sends a signal to a process whose parent is one of these. Its number may be another process's by now, and then the parent is.
fn signal(pid: i32, parents: &BTreeSet<i32>, signal: libc::c_int) {
    let Ok(pidfd) = process::pidfd_open(Pid::from_raw(pid)) else { return };
    if stat(pid).and_then(|stat| parent_of(&stat)).is_some_and(|parent| parents.contains(&parent)) {
        let _ = process::pidfd_send_signal(pidfd.as_fd(), signal);
    }
}

/// The content of `/proc/PID/stat`, `proc_pid_stat(5)`.
fn stat(pid: i32) -> Option<String> {
    std::fs::read(format!("/proc/{pid}/stat")).ok().map(|stat| String::from_utf8_lossy(&stat).into_owned())
}

/// The parent's id.
fn parent_of(stat: &str) -> Option<i32> {
    after_name(stat, 1)
}

/// The id of the process group.
fn group_of(stat: &str) -> Option<i32> {
    after_name(stat, 2)
}

/// A number after the second field, the name, which may contain any text, even parentheses.
fn after_name(stat: &str, nth: usize) -> Option<i32> {
    stat[stat.rfind(')')? + 1..].split_ascii_whitespace().nth(nth)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_full_of_traps_is_skipped() {
        assert_eq!(parent_of("12 (a) R (\n) b) S 7 2 3"), Some(7));
        assert_eq!(group_of("12 (a) R (\n) b) S 7 2 3"), Some(2));
        assert_eq!(parent_of("12 (a) S"), None);
        assert_eq!(parent_of(""), None);
    }

    #[test]
    fn this_process_is_in_its_tree() {
        let own = nix::unistd::getpid().as_raw();
        assert!(tree(own).contains(&own));
        assert!(can_be_found());
    }
}
