//! Whether a process could take over another one in its pid namespace, `ptrace(2)`.
//!
//! A process that installs its filter last may have `CAP_SYS_ADMIN` until execve, more than its container. `CAP_SYS_PTRACE` over
//! the host's user namespace suffices to trace it, also while it is not dumpable. So the two never get into one pid namespace:
//! whichever comes second is refused.
//!
//! If both come at once, a lock orders them: neither looks for the other while that one has looked and cannot be seen yet. The
//! lock is on the kernel's file of the namespace, which is the same for every caller, whatever its state directory. A process
//! inside can open that file and hold the lock as well, so it is not awaited for ever.

use std::fs::File;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg, OFlag};
use nix::sys::stat::{FileStat, fstat, stat};

use crate::confine::caps::{ADMIN, Sets, can_trace};
use crate::error::{Error, Result, Step};
use crate::sys::status::Status;
use crate::sys::{credentials, file, namespace, schedule};

/// How long the lock is awaited. Others hold it for milliseconds, or as long as the hooks of a container that joins.
const PATIENCE: Duration = Duration::from_secs(10);

/// A pid namespace that a process enters.
#[derive(Debug)]
pub enum PidNamespace<'a> {
    /// Its file.
    Open(BorrowedFd<'a>),
    /// That of a process, which cannot be reaped meanwhile.
    Of(i32),
}

/// The lock of a pid namespace, until it is dropped.
pub type Lock = Flock<File>;

/// Refuses a process with these capabilities if it could trace one that waits for its filter in the pid namespace; and one that
/// will `wait` itself, if a process there could trace it. The lock must be held until the process can be seen there.
pub fn refuse(namespace: &PidNamespace<'_>, capabilities: Sets, waits: bool) -> Result<Option<Lock>> {
    let traces = can_trace(capabilities);
    if !waits && !traces {
        return Ok(None);
    }
    let failed = |errno| Error::errno(Step::Join, "pid namespace", errno);
    let path = match namespace {
        PidNamespace::Open(fd) => format!("/proc/self/fd/{}", fd.as_raw_fd()), // a lock belongs to one open(2)
        PidNamespace::Of(pid) => format!("/proc/{pid}/ns/pid"),
    };
    let lock = lock(file::open(path.as_str(), OFlag::O_RDONLY).map_err(failed)?.into(), waits)?;
    let found = fstat(&*lock).map_err(failed)?;
    let entries = std::fs::read_dir("/proc").map_err(|error| failed(crate::error::errno_of(&error)))?;
    for pid in entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok()) {
        // A host may have thousands of processes. Few have CAP_SYS_ADMIN, and only those can wait.
        if !(waits || may_have_admin(pid)) || !may_be_in(pid, lock.as_fd(), &found) {
            continue;
        }
        // One that has ended keeps its capabilities until it is reaped.
        let Some(status) = Status::of(pid).ok().filter(|status| !status.is_ending()) else { continue };
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
    if waits && traces { Err(takeable()) } else { Ok(Some(lock)) }
}

/// Processes that trace share the lock. One that waits has it alone.
fn lock(mut namespace: File, waits: bool) -> Result<Lock> {
    let how = if waits { FlockArg::LockExclusiveNonblock } else { FlockArg::LockSharedNonblock };
    let deadline = Instant::now() + PATIENCE;
    loop {
        match Flock::lock(namespace, how) {
            Ok(lock) => return Ok(lock),
            Err((file, Errno::EWOULDBLOCK)) if Instant::now() < deadline => {
                namespace = file;
                schedule::pause(Duration::from_millis(2));
            }
            Err((_, Errno::EWOULDBLOCK)) => {
                let reason = "another process keeps it locked, while it joins or from inside";
                return Err(
                    Error::new(Step::Join, "pid namespace", reason).hint("try again, or do without CAP_SYS_PTRACE")
                );
            }
            Err((_, errno)) => return Err(Error::errno(Step::Join, "pid namespace", errno)),
        }
    }
}

/// Whether a process has `CAP_SYS_ADMIN`. One that cannot be inspected counts.
fn may_have_admin(pid: i32) -> bool {
    match credentials::capabilities_of(pid) {
        Ok(sets) => sets.permitted & ADMIN != 0,
        Err(errno) => errno != Errno::ESRCH,
    }
}

/// A process that cannot be inspected counts as one in the namespace.
fn may_be_in(pid: i32, namespace: BorrowedFd<'_>, found: &FileStat) -> bool {
    if namespace::has_process(namespace, pid) == Ok(false) {
        return false; // the fast answer
    }
    match stat(format!("/proc/{pid}/ns/pid").as_str()) {
        Ok(its) => (its.st_dev, its.st_ino) == (found.st_dev, found.st_ino),
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
