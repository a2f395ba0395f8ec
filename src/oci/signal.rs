//! `kill`, `pause` and `resume`.

use std::os::fd::AsFd as _;

use nix::errno::Errno;

use super::Runtime;
use super::record::Status;
use super::store::read_plan;
use crate::error::{Cause, Error, Result, Step};
use crate::plan::container::NamespaceKind;
use crate::plan::signal_number;
use crate::sys::process;

/// Signals that ask a program to end.
const ENDING: [i32; 4] = [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM];

/// Sends a signal to a container's first process. With `--all` it goes to all of its processes, and so does SIGKILL if the
/// container has no pid namespace of its own.
pub fn kill(runtime: &Runtime) -> Result<u8> {
    runtime.args.at_most(2)?;
    runtime.for_each_match(|id| kill_one(runtime, id))
}

fn kill_one(runtime: &Runtime, id: &str) -> Result<u8> {
    // Without the lock, which `start` may hold while it waits for a hook that never ends.
    let (directory, record) = runtime.store.read(id)?;
    let (id, all) = (record.id.clone(), runtime.args.is_on("all"));
    let mut signal = match runtime.args.words.get(1) {
        None => libc::SIGTERM,
        Some(word) => {
            let text = word.to_string_lossy();
            signal_number(&text).ok_or_else(|| Error::new(Step::Usage, "", format!("unknown signal {text:?}")))?
        }
    };
    // The process that waits at the gate handles no signal, and as pid 1 it ignores what it does not handle. The lock prevents
    // `start` from executing the program, which may handle it.
    let is_created = || record.status(&directory) == Status::Created;
    let _lock = if ENDING.contains(&signal) && is_created() { Some(runtime.store.hold(&id)?) } else { None };
    if _lock.is_some() && is_created() {
        signal = libc::SIGKILL;
    }
    let not_running = || Error::new(Step::Status, id.clone(), "container not running");
    let own_pids = || read_plan(&directory).is_ok_and(|plan| plan.makes(NamespaceKind::Pid));
    let groups = match record.needed_groups() {
        // Without the cgroups, frozen processes would not die, and without a pid namespace only the first process would.
        Err(error) if signal == libc::SIGKILL && !is_absent(&error) => return Err(error),
        found => found.ok().flatten(),
    };
    let Some(process) = record.process().filter(|_| record.runs()) else {
        // Without a pid namespace of its own, other processes may survive the first.
        let left = groups.filter(|_| (all || signal == libc::SIGKILL) && !own_pids());
        return match left.filter(|groups| !groups.pids().is_empty()) {
            Some(groups) => groups.signal_all(signal).map(|()| 0),
            None if all => Ok(0), // all none of them
            None => Err(not_running()),
        };
    };
    if let Some(groups) = &groups
        && (all || signal == libc::SIGKILL && !own_pids())
    {
        return groups.signal_all(signal).map(|()| 0);
    }
    match process::pidfd_send_signal(process.as_fd(), signal) {
        Err(Errno::ESRCH) => return Err(not_running()),
        sent => sent.map_err(|errno| Error::errno(Step::State, id.clone(), errno))?,
    }
    // Frozen processes do not die with cgroup v1 unless they are thawed.
    if signal == libc::SIGKILL
        && let Some(groups) = groups.filter(|groups| groups.has_frozen_process())
    {
        groups.signal_all(signal)?;
    }
    Ok(0)
}

fn is_absent(error: &Error) -> bool {
    matches!(error.cause, Cause::Errno(Errno::ENOENT))
}

/// Freezes or thaws all processes of a container.
pub fn freeze(runtime: &Runtime, frozen: bool) -> Result<u8> {
    runtime.args.at_most(1)?;
    let held = runtime.store.hold(runtime.args.id()?)?;
    let id = held.record.id.clone();
    let wrong = |reason: &str| Err(Error::new(Step::Status, id.clone(), reason));
    match (held.status(), frozen) {
        (Status::Running | Status::Created, true) | (Status::Paused, false) => {}
        (Status::Stopped, _) => return wrong("container not running"),
        (_, true) => return wrong("container not running or created"),
        (_, false) => return wrong("container not paused"),
    }
    match held.record.groups() {
        Some(groups) => groups.set_frozen(frozen).map(|()| 0),
        None => wrong("the container has no cgroup, so it cannot be paused"),
    }
}
