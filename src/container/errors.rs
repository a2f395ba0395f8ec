//! Errors of a container's start, some of them in the words that engines look for.

use std::os::fd::OwnedFd;

use nix::errno::Errno;

use super::hooks;
use crate::confine::seccomp;
use crate::error::{Cause, Error, Result, Step};
use crate::failure::Failure;
use crate::plan::ContainerPlan;
use crate::sys::status::Status;

/// Longest value of a configuration in an error, in characters.
const MAX_VALUE: usize = 1000;

/// The error for a container whose first process died during set-up.
pub fn died(when: &str) -> Error {
    Error::new(Step::Supervise, "container", format!("its first process died {when}"))
        .hint("a memory limit that is too small is the usual cause; see dmesg")
}

/// The status of a process that is checked. One that has been reaped has died.
pub fn status_of(proc_pid: &OwnedFd) -> Result<Status> {
    Status::at(proc_pid).map_err(|errno| match errno {
        Errno::ESRCH => died("while it was checked"),
        errno => Error::errno(Step::Verify, "/proc/PID/status", errno),
    })
}

/// The error for a process that is not confined as expected. A process that is ending has released its memory, and perhaps its
/// filters.
pub fn weaker(status: &Status, error: Error) -> Error {
    if status.is_ending() { died("while it was checked") } else { error }
}

/// A message from the failed program is more useful than an error number.
pub fn with_message(error: Error, message: String) -> Error {
    if message.is_empty() { error } else { Error { cause: Cause::Reason(message), ..error } }
}

/// A failure between `start` and `execve`, when the process that created the container has ended.
pub fn start_error(plan: &ContainerPlan, failure: Failure, message: String) -> Error {
    if failure.step != Step::Hook {
        return exec_error(plan, failure);
    }
    let named = hooks::named(&plan.hooks, usize::from(failure.index));
    with_message(Error::errno(failure.step, named.unwrap_or_default(), failure.errno), message)
}

/// A value, without an end that is too long for an error.
pub fn shortened(mut text: String) -> String {
    if let Some((end, _)) = text.char_indices().nth(MAX_VALUE) {
        text.truncate(end);
        text.push('…');
    }
    text
}

/// Engines look for exactly these texts when a program cannot be executed.
pub fn exec_error(plan: &ContainerPlan, failure: Failure) -> Error {
    let program = shortened(plan.process.command.argv.first().map(ToString::to_string).unwrap_or_default());
    let by_path = program.contains('/');
    let reason = match (failure.step, failure.errno) {
        (Step::Exec | Step::Interpreter, _) if seccomp::install::refuses_execve(plan) => {
            "operation not permitted: the seccomp profile refuses execve".to_owned()
        }
        (Step::Exec, Errno::ENOENT) if !by_path => "executable file not found in $PATH".to_owned(),
        (Step::Exec, Errno::ENOENT | Errno::ENOTDIR) => format!("stat {program}: no such file or directory"),
        (Step::Exec, Errno::EACCES) => "permission denied".to_owned(),
        (Step::Interpreter, _) => "its interpreter: no such file or directory".to_owned(),
        (_, errno) => errno.desc().to_lowercase(),
    };
    Error::new(failure.step, format!("exec: {program:?}"), reason)
}
