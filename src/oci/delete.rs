//! `delete`: removes everything of a container, including the remains of an interrupted command.

use std::os::fd::AsFd as _;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::record::{Status, is_damaged};
use super::store::{Held, is_missing};
use super::{Runtime, log, report};
use crate::container::hooks;
use crate::container::rdt;
use crate::error::{Error, Result, Step};
use crate::sys::process;

/// How long a killed process may take to exit.
const EXIT_TIMEOUT_MS: u16 = 10_000;

/// Removes a container, or with `--regex` all whose ids match.
pub fn delete(runtime: &Runtime) -> Result<u8> {
    runtime.for_each_match(|id| delete_one(runtime, id))
}

fn delete_one(runtime: &Runtime, id: &str) -> Result<u8> {
    let force = runtime.args.is_on("force");
    let held = match runtime.store.hold(id) {
        Err(error) if force && is_missing(&error) => return Ok(0),
        Err(error) if force && is_damaged(&error) => {
            runtime.log.warn(&log::sentence(&error));
            runtime.store.salvage(id)?
        }
        held => held?,
    };
    match held.status() {
        status @ (Status::Running | Status::Paused | Status::Creating) if !force => {
            let reason = format!("cannot delete container {id} that is not stopped: {}", status.name());
            Err(Error::new(Step::Status, "", reason).hint("kill it first, or use --force"))
        }
        _ => destroy(runtime, held).map(|()| 0),
    }
}

/// Kills the container's processes, removes its cgroups and files, and runs its poststop hooks.
pub fn destroy(runtime: &Runtime, held: Held) -> Result<()> {
    let first = held.record.process();
    if let Some(process) = &first {
        let _ = process::pidfd_send_signal(process.as_fd(), libc::SIGKILL);
    }
    // Frozen processes do not die, nor does a process that `exec` adds just when the first process dies.
    if held.record.freezer().is_some_and(|freezer| freezer.has_frozen_process())
        && let Some(groups) = held.record.groups()
    {
        let _ = groups.signal_all(libc::SIGKILL);
    }
    if let Some(process) = &first {
        let gone = PollFd::new(process.as_fd(), PollFlags::POLLIN);
        while let Err(nix::errno::Errno::EINTR) = poll(&mut [gone.clone()], PollTimeout::from(EXIT_TIMEOUT_MS)) {}
        if held.record.is_alive() {
            return Err(Error::new(
                Step::Status,
                held.record.id.clone(),
                "the container was killed but has not exited",
            ));
        }
    }
    // Written first: the counters of its usage are removed with the cgroups.
    let reported = report::write(&held);
    if let Some(places) = held.record.places.as_ref().filter(|_| !held.record.is_of_earlier_boot) {
        places.remove()?;
    }
    rdt::remove(&held.directory)?;
    let plan = if held.record.later_hooks { held.plan().ok() } else { None };
    let hooks = plan.map(|plan| plan.hooks).unwrap_or_default();
    let state = held.record.state_text(0, Status::Stopped.name());
    held.remove()?;
    if let Err(error) = reported {
        runtime.log.warn(&log::sentence(&error)); // only a warning: the container is already removed
    }
    for hook in &hooks.poststop {
        // Only a warning: the container is already removed.
        if let Err(error) = hooks::run("poststop", std::slice::from_ref(hook), &hooks.files, &state) {
            runtime.log.warn(&log::sentence(&error));
        }
    }
    Ok(())
}
