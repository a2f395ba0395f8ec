//! `delete`: whatever there is of a container goes, also what another command left half-made or half-deleted.

use std::os::fd::AsFd as _;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::create::state_text;
use super::record::{Status, is_damaged};
use super::store::{Held, is_missing};
use super::{Runtime, log, report};
use crate::error::{Error, Result, Step};
use crate::layers::rdt;
use crate::sandbox::container::hooks;
use crate::sys::process;

/// How long a killed process may take to be gone.
const PATIENCE_MS: u16 = 10_000;

/// Removes a container.
pub fn delete(runtime: &Runtime) -> Result<u8> {
    let (id, force) = (runtime.args.id()?, runtime.args.is_on("force"));
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
            Err(Error::new(Step::State, "", reason).hint("kill it first, or use --force"))
        }
        _ => destroy(runtime, held).map(|()| 0),
    }
}

/// Kills what lives, takes away what was made, tells the hooks.
pub fn destroy(runtime: &Runtime, held: Held) -> Result<()> {
    let first = held.record.process();
    if let Some(process) = &first {
        let _ = process::pidfd_send_signal(process.as_fd(), libc::SIGKILL);
    }
    // What is stopped does not die, nor does what `exec` was just about to put there when the first process died.
    if let Some(groups) = held.record.groups()
        && groups.has_frozen()
    {
        let _ = groups.signal_all(libc::SIGKILL);
    }
    if let Some(process) = &first {
        let gone = PollFd::new(process.as_fd(), PollFlags::POLLIN);
        while let Err(nix::errno::Errno::EINTR) = poll(&mut [gone.clone()], PollTimeout::from(PATIENCE_MS)) {}
        if held.record.is_alive() {
            return Err(Error::new(Step::State, held.record.id.clone(), "was killed, and does not die"));
        }
    }
    // What was counted goes with the cgroups.
    let usage = held.record.groups().map(|groups| groups.usage()).unwrap_or_default();
    let reported = report::write(&held, usage);
    if let Some(places) = held.record.places.as_ref().filter(|_| held.record.is_of_this_boot()) {
        places.remove()?;
    }
    rdt::remove(&held.directory)?;
    let plan = if held.record.later_hooks { held.plan().ok() } else { None };
    let hooks = plan.map(|plan| plan.hooks.poststop);
    let state = state_text(&held.record, 0, Status::Stopped.name());
    held.remove()?;
    if let Err(error) = reported {
        runtime.log.warn(&log::sentence(&error)); // the container is gone all the same
    }
    for hook in hooks.iter().flatten() {
        // The container is gone whatever they say.
        if let Err(error) = hooks::run("poststop", std::slice::from_ref(hook), &state) {
            runtime.log.warn(&log::sentence(&error));
        }
    }
    Ok(())
}
