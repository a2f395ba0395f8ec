//! The seccomp listener of a container: taken from its process, and handed to the program that the profile names.

use std::os::fd::{BorrowedFd, OwnedFd, RawFd};
use std::path::Path;

use nix::errno::Errno;
use nix::unistd::Pid;

use crate::confine::seccomp;
use crate::error::{Error, Result, Step};
use crate::plan::ContainerPlan;
use crate::plan::container::OCI_VERSION;
use crate::sys::seccomp::take_listener;
use crate::sys::socket;

/// Takes the listener of a process that cannot send it, because its filter may refuse that.
pub fn take(pidfd: BorrowedFd<'_>, number: RawFd) -> Result<OwnedFd> {
    take_listener(pidfd, number).map_err(|errno| {
        let error = Error::errno(Step::Seccomp, "listener", errno);
        match errno {
            Errno::EPERM => error.hint("allow sendmsg in the profile: without CAP_SYS_PTRACE the process must send it"),
            _ => error,
        }
    })
}

/// As [`hand_over`], for a plan whose filter another command has prepared.
pub fn hand_over_of(plan: &ContainerPlan, listener: BorrowedFd<'_>, pid: Pid, state: &str) -> Result<()> {
    let (filter, _) = seccomp::install::prepare(plan.confinement.seccomp.as_ref(), &plan.into())?;
    let place = filter.as_ref().and_then(|filter| filter.listener());
    place.map_or(Ok(()), |place| hand_over(listener, place, pid, state))
}

/// Sends the listener, with the state that the specification requires, to a socket.
pub fn hand_over(listener: BorrowedFd<'_>, (path, metadata): (&str, &str), pid: Pid, state: &str) -> Result<()> {
    let failed = |errno| {
        Error::errno(Step::Seccomp, path, errno)
            .hint("start the program that listens on this socket before the container")
    };
    let message = serde_json::json!({
        "ociVersion": OCI_VERSION,
        "fds": ["seccompFd"],
        "pid": pid.as_raw(),
        "metadata": metadata,
        "state": serde_json::from_str::<serde_json::Value>(state).unwrap_or_default(),
    });
    let socket = socket::connect(Path::new(path)).map_err(failed)?;
    socket::send(&socket, message.to_string().as_bytes(), Some(listener)).map_err(failed)
}
