//! Whether a process could take over another one in its pid namespace, `ptrace(2)`.
//!
//! A process that installs its filter last may have `CAP_SYS_ADMIN` until execve, more than its container. `CAP_SYS_PTRACE` over
//! the host's user namespace suffices to trace it, also while it is not dumpable. So the two never get into one pid namespace:
//! whichever comes second is refused.

use std::os::fd::BorrowedFd;

use nix::errno::Errno;
use nix::sys::stat::{FileStat, fstat, stat};

use crate::confine::caps::{ADMIN, Sets, can_trace};
use crate::error::{Error, Result, Step};
use crate::sys::status::Status;

/// A pid namespace that a process enters.
#[derive(Debug)]
pub enum PidNamespace<'a> {
    /// Its file.
    Open(BorrowedFd<'a>),
    /// That of a process, which cannot be reaped meanwhile.
    Of(i32),
}

/// Refuses a process with these capabilities if it could trace one that waits for its filter in the pid namespace; and one that
/// will `wait` itself, if a process there could trace it.
pub fn refuse(namespace: &PidNamespace<'_>, capabilities: Sets, waits: bool) -> Result<()> {
    let traces = can_trace(capabilities);
    if !waits && !traces {
        return Ok(());
    }
    let failed = |errno| Error::errno(Step::Join, "pid namespace", errno);
    let namespace = match namespace {
        PidNamespace::Open(fd) => fstat(fd),
        PidNamespace::Of(pid) => stat(format!("/proc/{pid}/ns/pid").as_str()),
    };
    let namespace = namespace.map_err(failed)?;
    let entries = std::fs::read_dir("/proc").map_err(|error| failed(crate::error::errno_of(&error)))?;
    for pid in entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok()) {
        if !may_be_in(pid, &namespace) {
            continue;
        }
        let Ok(status) = Status::of(pid) else { continue }; // it has ended
        if waits && may_trace(&status) {
            return Err(takeable());
        }
        if traces && waits_with_admin(&status) {
            let reason = "waits for its start with CAP_SYS_ADMIN, and could be taken over with CAP_SYS_PTRACE";
            return Err(Error::new(Step::Join, format!("pid namespace: process {pid}"), reason)
                .hint("start its container first, or do without CAP_SYS_PTRACE"));
        }
    }
    // Other processes with the same capabilities may follow it.
    if waits && traces { Err(takeable()) } else { Ok(()) }
}

/// A process that cannot be inspected counts as one in the namespace.
fn may_be_in(pid: i32, namespace: &FileStat) -> bool {
    match stat(format!("/proc/{pid}/ns/pid").as_str()) {
        Ok(found) => (found.st_dev, found.st_ino) == (namespace.st_dev, namespace.st_ino),
        Err(errno) => !matches!(errno, Errno::ENOENT | Errno::ESRCH),
    }
}

/// Whether a process has `CAP_SYS_ADMIN` that it cannot have from an execve.
fn waits_with_admin(status: &Status) -> bool {
    let has = |name| status.mask(name).is_none_or(|mask| mask & ADMIN != 0);
    has("CapPrm") && !has("CapBnd")
}

/// Whether a process may have `CAP_SYS_PTRACE`, now or after an execve, without `CAP_SYS_ADMIN`.
fn may_trace(status: &Status) -> bool {
    let set = |name| status.mask(name).unwrap_or(0);
    can_trace(Sets {
        bounding: set("CapBnd"),
        effective: set("CapEff"),
        inheritable: set("CapInh"),
        permitted: set("CapPrm"),
        ambient: set("CapAmb"),
    })
}

fn takeable() -> Error {
    let reason = "refuses calls that are needed to join a pid namespace under it, and a process there could take over a \
        process that is not filtered yet and has CAP_SYS_ADMIN";
    Error::new(Step::Seccomp, "linux.seccomp", reason).hint(
        "allow clone, sendmsg, setsid, capset, prlimit64, read, write, close, mmap, munmap and exit_group; or set \
         noNewPrivileges; or do without CAP_SYS_PTRACE in the pid namespace",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(permitted: u64, bounding: u64) -> Status {
        Status::new(format!("CapInh:\t0\nCapPrm:\t{permitted:x}\nCapEff:\t0\nCapBnd:\t{bounding:x}\nCapAmb:\t0\n"))
    }

    #[test]
    fn a_waiting_process_has_admin_that_it_cannot_keep() {
        assert!(waits_with_admin(&status(ADMIN | 1, 1)));
        assert!(!waits_with_admin(&status(ADMIN | 1, ADMIN)));
        assert!(!waits_with_admin(&status(1, 1)));
    }

    #[test]
    fn a_tracer_has_or_can_get_the_capability() {
        let ptrace = 1 << 19;
        assert!(may_trace(&status(0, ptrace)) && may_trace(&status(ptrace, 0)));
        // With both it gains nothing.
        assert!(!may_trace(&status(ptrace, ptrace | ADMIN)) && !may_trace(&status(1, 1)));
    }
}
