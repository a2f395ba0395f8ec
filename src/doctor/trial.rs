//! Runs a test in a short-lived child in new namespaces, and returns its result.
//!
//! A trial leaves nothing behind, and takes no longer than [`TIMEOUT`].

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::{Pid, pipe2, read, write};

use crate::confine::user::{Users, open_proc_pid};
use crate::error::{Cause, printable};
use crate::sys::clone::{Cloned, clone3};
use crate::sys::process;

/// How long a trial may take before it is killed.
pub(super) const TIMEOUT: Duration = Duration::from_secs(3);

/// The failure of a trial.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// The child with its namespaces could not be created.
    Clone(Errno),
    /// The parent's half failed: the reason as text, and the error number if it is known.
    Parent(String, Option<Errno>),
    /// The body failed in the step with this number.
    Step(u8, Errno),
    /// It took longer than [`TIMEOUT`].
    TimedOut,
    /// The child died without an answer.
    Died,
}

impl Failure {
    /// The error number, if there is one.
    pub(super) fn errno(&self) -> Option<Errno> {
        match self {
            Self::Clone(errno) | Self::Step(_, errno) => Some(*errno),
            Self::Parent(_, errno) => *errno,
            Self::TimedOut | Self::Died => None,
        }
    }

    /// Whether no child could be created, with or without namespaces.
    pub(super) fn no_child_possible(&self) -> bool {
        matches!(self, Self::Clone(Errno::EAGAIN | Errno::ENOMEM | Errno::ENOSYS))
    }

    /// The failure as text, with the name of the step.
    pub(super) fn describe(&self, steps: &[&str]) -> String {
        match self {
            Self::Clone(errno) => format!("clone3: {}", words(*errno)),
            Self::Parent(reason, _) => printable(reason),
            Self::Step(step, errno) => match steps.get(usize::from(*step)) {
                Some(name) => format!("{name}: {}", words(*errno)),
                None => words(*errno),
            },
            Self::TimedOut => format!("no answer within {} s", TIMEOUT.as_secs()),
            Self::Died => "the trial's process was killed".into(),
        }
    }
}

/// An error number as text.
pub(super) fn words(errno: Errno) -> String {
    format!("{} ({errno:?})", errno.desc())
}

/// Adds the step of a trial's body to an error.
pub(super) trait At<T> {
    /// In the step with this number.
    fn at(self, step: u8) -> Tried<T>;
}

/// The result of a trial's body. The number in `Ok` is passed to the parent.
pub(super) type Tried<T = u32> = Result<T, (u8, Errno)>;

impl<T> At<T> for Result<T, Errno> {
    fn at(self, step: u8) -> Tried<T> {
        self.map_err(|errno| (step, errno))
    }
}

/// The setup of a trial.
#[derive(Clone, Copy, Default)]
pub(super) struct Setup<'a> {
    /// `CLONE_NEW*` flags.
    pub(super) namespaces: i32,
    /// The sandbox's users, for a new user namespace.
    pub(super) users: Option<&'a Users>,
    /// The cgroup in which the child is created.
    pub(super) cgroup: Option<BorrowedFd<'a>>,
}

/// Runs `body` in a child. `body` must be safe between clone3 and execve: no allocation, no locks.
pub(super) fn attempt(setup: Setup<'_>, body: impl FnOnce() -> Tried) -> Result<u32, Failure> {
    attempt_with(
        setup,
        |pid| write_maps(setup.users, pid),
        || {
            if let Some(users) = setup.users {
                users.take().map_err(|failure| (u8::MAX, failure.errno))?;
            }
            body()
        },
    )
}

/// The parent's half of [`attempt`].
pub(super) fn write_maps(users: Option<&Users>, pid: Pid) -> Result<(), Failure> {
    let Some(users) = users else { return Ok(()) };
    open_proc_pid(pid).and_then(|proc_pid| users.write_maps(&proc_pid, pid)).map_err(|error| {
        let errno = if let Cause::Errno(errno) = error.cause { Some(errno) } else { None };
        Failure::Parent(error.to_string(), errno)
    })
}

/// As [`attempt`], but runs `parent` in the parent instead of writing the id maps.
pub(super) fn attempt_with(
    setup: Setup<'_>,
    parent: impl FnOnce(Pid) -> Result<(), Failure>,
    body: impl FnOnce() -> Tried,
) -> Result<u32, Failure> {
    let no_pipe = |errno: Errno| Failure::Parent(format!("pipe2: {}", words(errno)), Some(errno));
    let (go_reader, go) = pipe2(OFlag::O_CLOEXEC).map_err(no_pipe)?;
    let (answer, answer_writer) = pipe2(OFlag::O_CLOEXEC).map_err(no_pipe)?;
    // The flags are a 32-bit word whose top bits mean namespaces too: widen without the sign.
    let flags = u64::from(setup.namespaces as u32);
    match clone3(flags, setup.cgroup).map_err(Failure::Clone)? {
        Cloned::Child => {
            drop(go);
            drop(answer);
            child(&go_reader, &answer_writer, body)
        }
        Cloned::Parent { pid, pidfd } => {
            drop(go_reader);
            drop(answer_writer);
            let started = parent(pid).and_then(|()| {
                write(&go, b"!").map(drop).map_err(|_| Failure::Died) // EPIPE: the child died
            });
            if started.is_err() || !ends_within(&pidfd, TIMEOUT) {
                // It has not been reaped, so its pid cannot have been reused.
                if process::pidfd_send_signal(pidfd.as_fd(), libc::SIGKILL).is_err() {
                    let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL);
                }
                // A process in an uninterruptible wait does not die now, and is left to init.
                if ends_within(&pidfd, Duration::from_secs(1)) {
                    let _ = process::wait4(pid);
                }
                return Err(started.err().unwrap_or(Failure::TimedOut));
            }
            let _ = process::wait4(pid); // ECHILD if the caller ignores SIGCHLD
            read_answer(&answer)
        }
    }
}

fn child(go: &OwnedFd, answer: &OwnedFd, body: impl FnOnce() -> Tried) -> ! {
    let _ = process::set_parent_death_signal(libc::SIGKILL);
    let result = match read(go, &mut [0]) {
        Ok(1) => body(),
        _ => process::exit(1), // the parent died or gave up
    };
    let (step, number) = match result {
        Ok(number) => (OK, number),
        Err((step, errno)) => (u32::from(step), errno as u32),
    };
    let mut message = [0; 8];
    message[..4].copy_from_slice(&step.to_ne_bytes());
    message[4..].copy_from_slice(&number.to_ne_bytes());
    let _ = write(answer, &message);
    process::exit(0)
}

/// Success, instead of a step number.
const OK: u32 = u32::MAX;

fn read_answer(answer: &OwnedFd) -> Result<u32, Failure> {
    let mut message = [0; 8];
    if read(answer, &mut message) != Ok(8) {
        return Err(Failure::Died);
    }
    let [a, b, c, d, rest @ ..] = message;
    let (step, number) = (u32::from_ne_bytes([a, b, c, d]), u32::from_ne_bytes(rest));
    match u8::try_from(step) {
        Ok(step) => Err(Failure::Step(step, Errno::from_raw(number as i32))),
        Err(_) => Ok(number),
    }
}

/// Waits for the end of a process, at most this long. Does not reap it.
fn ends_within(pidfd: &OwnedFd, timeout: Duration) -> bool {
    let until = Instant::now() + timeout;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::ZERO);
        match poll(&mut [PollFd::new(pidfd.as_fd(), PollFlags::POLLIN)], timeout) {
            Ok(0) => return false,
            Ok(_) => return true,
            Err(Errno::EINTR) => {}
            Err(_) => return false,
        }
    }
}

/// Runs a program of the host without input, for at most [`TIMEOUT`].
pub(super) fn run(program: &std::path::Path, arguments: &[String]) -> Result<(), String> {
    use std::process::{Command, Stdio};
    let name = program.display();
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("{name}: {error}"))?;
    let pidfd = process::pidfd_open(Pid::from_raw(child.id() as i32)).map_err(|errno| format!("pidfd_open: {errno}"));
    if !pidfd.as_ref().is_ok_and(|pidfd| ends_within(pidfd, TIMEOUT)) {
        let _ = child.kill();
        if pidfd.is_ok_and(|pidfd| ends_within(&pidfd, Duration::from_secs(1))) {
            let _ = child.wait();
        }
        return Err(format!("{name}: no answer within {} s", TIMEOUT.as_secs()));
    }
    let status = child.wait().map_err(|error| format!("{name}: {error}"))?;
    if status.success() {
        return Ok(());
    }
    // Bounded and non-blocking, because a process that it started may still hold the pipe open.
    let mut said = [0; 300];
    let length = child.stderr.take().map_or(0, |pipe| {
        let set = fcntl(&pipe, FcntlArg::F_SETFL(OFlag::O_NONBLOCK));
        set.and_then(|_| read(&pipe, &mut said)).unwrap_or(0)
    });
    Err(format!("{name}: {}", String::from_utf8_lossy(&said[..length]).trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_trial_names_its_step() {
        assert_eq!(attempt(Setup::default(), || Ok(7)), Ok(7));
        assert_eq!(attempt(Setup::default(), || Err((2, Errno::EROFS))), Err(Failure::Step(2, Errno::EROFS)));
        let failure = Failure::Step(1, Errno::EROFS);
        assert_eq!(failure.describe(&["one", "two"]), "two: Read-only file system (EROFS)");
    }

    #[test]
    fn a_trial_that_dies_or_hangs_ends_in_time() {
        assert_eq!(attempt(Setup::default(), || process::exit(9)), Err(Failure::Died));
        let started = Instant::now();
        let hung = attempt(Setup::default(), || {
            nix::unistd::pause();
            Ok(0)
        });
        assert_eq!(hung, Err(Failure::TimedOut));
        assert!(started.elapsed() < TIMEOUT + Duration::from_secs(2));
    }

    #[test]
    fn a_program_that_hangs_is_killed_in_time() {
        let arguments = |text: &str| vec!["-c".to_owned(), text.to_owned()];
        let shell = std::path::Path::new("/bin/sh");
        assert_eq!(run(shell, &arguments("exit 0")), Ok(()));
        assert_eq!(run(shell, &arguments("echo no >&2; exit 3")), Err("/bin/sh: no".into()));
        assert!(run(shell, &arguments("exec sleep 60")).unwrap_err().contains("no answer"));
    }
}
