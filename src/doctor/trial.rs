//! Trying something in a short-lived child of its own, in new namespaces, and hearing how it went.
//!
//! Nothing that a trial does outlives its child, and no trial lasts longer than [`PATIENCE`].

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::{Pid, pipe2, read, write};

use crate::error::{Cause, printable};
use crate::layers::user::{Users, open_proc_pid};
use crate::sys::clone::{Cloned, clone3};
use crate::sys::process;

/// How long a trial may take before it is killed.
pub(super) const PATIENCE: Duration = Duration::from_secs(3);

/// What stopped a trial.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Stumble {
    /// The child with its namespaces could not be made.
    Clone(Errno),
    /// The parent's half failed: a reason in words, and the kernel's where it is known.
    Parent(String, Option<Errno>),
    /// The body failed, in the step with this number.
    Step(u8, Errno),
    /// It took longer than [`PATIENCE`].
    Stuck,
    /// The child died without a word.
    Died,
}

impl Stumble {
    /// The kernel's reason.
    pub(super) fn errno(&self) -> Option<Errno> {
        match self {
            Self::Clone(errno) | Self::Step(_, errno) => Some(*errno),
            Self::Parent(_, errno) => *errno,
            Self::Stuck | Self::Died => None,
        }
    }

    /// Whether no child of any kind could be made.
    pub(super) fn is_no_child(&self) -> bool {
        matches!(self, Self::Clone(Errno::EAGAIN | Errno::ENOMEM | Errno::ENOSYS))
    }

    /// In words, with the name of the step that failed.
    pub(super) fn describe(&self, steps: &[&str]) -> String {
        match self {
            Self::Clone(errno) => format!("clone3: {}", words(*errno)),
            Self::Parent(reason, _) => printable(reason),
            Self::Step(step, errno) => match steps.get(usize::from(*step)) {
                Some(name) => format!("{name}: {}", words(*errno)),
                None => words(*errno),
            },
            Self::Stuck => format!("no answer within {} s", PATIENCE.as_secs()),
            Self::Died => "the trial's process was killed".into(),
        }
    }
}

/// An error number in words.
pub(super) fn words(errno: Errno) -> String {
    format!("{} ({errno:?})", errno.desc())
}

/// Names the step of a trial's body that a system call belongs to.
pub(super) trait At<T> {
    /// In the step with this number.
    fn at(self, step: u8) -> Tried<T>;
}

/// Result of a trial's body; the number of an `Ok` reaches the parent.
pub(super) type Tried<T = u32> = Result<T, (u8, Errno)>;

impl<T> At<T> for Result<T, Errno> {
    fn at(self, step: u8) -> Tried<T> {
        self.map_err(|errno| (step, errno))
    }
}

/// How a trial is set up.
#[derive(Clone, Copy, Default)]
pub(super) struct Setup<'a> {
    /// `CLONE_NEW*` flags.
    pub(super) namespaces: i32,
    /// The sandbox's users, when there is a new user namespace.
    pub(super) users: Option<&'a Users>,
    /// The cgroup that the child is born into.
    pub(super) cgroup: Option<BorrowedFd<'a>>,
}

/// Runs `body` in a child. It may only do what is sound between clone3 and execve: no allocation, no locks.
pub(super) fn attempt(setup: Setup<'_>, body: impl FnOnce() -> Tried) -> Result<u32, Stumble> {
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
pub(super) fn write_maps(users: Option<&Users>, pid: Pid) -> Result<(), Stumble> {
    let Some(users) = users else { return Ok(()) };
    open_proc_pid(pid).and_then(|proc_pid| users.write_maps(&proc_pid, pid)).map_err(|error| {
        let errno = if let Cause::Errno(errno) = error.cause { Some(errno) } else { None };
        Stumble::Parent(error.to_string(), errno)
    })
}

/// As [`attempt`], with a parent's half of the caller's own instead of writing the id maps.
pub(super) fn attempt_with(
    setup: Setup<'_>,
    parent: impl FnOnce(Pid) -> Result<(), Stumble>,
    body: impl FnOnce() -> Tried,
) -> Result<u32, Stumble> {
    let no_pipe = |errno: Errno| Stumble::Parent(format!("pipe2: {}", words(errno)), Some(errno));
    let (go_reader, go) = pipe2(OFlag::O_CLOEXEC).map_err(no_pipe)?;
    let (answer, answer_writer) = pipe2(OFlag::O_CLOEXEC).map_err(no_pipe)?;
    // The flags are a 32-bit word whose top bits mean namespaces too: widen without the sign.
    let flags = u64::from(setup.namespaces as u32);
    match clone3(flags, setup.cgroup).map_err(Stumble::Clone)? {
        Cloned::Child => {
            drop(go);
            drop(answer);
            child(&go_reader, &answer_writer, body)
        }
        Cloned::Parent { pid, pidfd } => {
            drop(go_reader);
            drop(answer_writer);
            let started = parent(pid).and_then(|()| {
                write(&go, b"!").map(drop).map_err(|_| Stumble::Died) // EPIPE: it is gone
            });
            if started.is_err() || !ends_within(&pidfd, PATIENCE) {
                // It has not ended, so that its pid is still its own.
                if process::pidfd_send_signal(pidfd.as_fd(), libc::SIGKILL).is_err() {
                    let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL);
                }
                // A process in an uninterruptible wait does not die now: then it is left to init.
                if ends_within(&pidfd, Duration::from_secs(1)) {
                    let _ = process::wait4(pid);
                }
                return Err(started.err().unwrap_or(Stumble::Stuck));
            }
            let _ = process::wait4(pid); // ECHILD where the caller ignores SIGCHLD
            hear(&answer)
        }
    }
}

fn child(go: &OwnedFd, answer: &OwnedFd, body: impl FnOnce() -> Tried) -> ! {
    let _ = process::set_parent_death_signal(libc::SIGKILL);
    let result = match read(go, &mut [0]) {
        Ok(1) => body(),
        _ => process::exit(1), // the parent is gone or has given up
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

/// In the place of a step number.
const OK: u32 = u32::MAX;

fn hear(answer: &OwnedFd) -> Result<u32, Stumble> {
    let mut message = [0; 8];
    if read(answer, &mut message) != Ok(8) {
        return Err(Stumble::Died);
    }
    let [a, b, c, d, rest @ ..] = message;
    let (step, number) = (u32::from_ne_bytes([a, b, c, d]), u32::from_ne_bytes(rest));
    match u8::try_from(step) {
        Ok(step) => Err(Stumble::Step(step, Errno::from_raw(number as i32))),
        Err(_) => Ok(number),
    }
}

/// Waits for the end of a process, at most this long; does not reap it.
fn ends_within(pidfd: &OwnedFd, patience: Duration) -> bool {
    let until = Instant::now() + patience;
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

/// Runs a host program with no input, at most [`PATIENCE`] long.
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
    if !pidfd.as_ref().is_ok_and(|pidfd| ends_within(pidfd, PATIENCE)) {
        let _ = child.kill();
        if pidfd.is_ok_and(|pidfd| ends_within(&pidfd, Duration::from_secs(1))) {
            let _ = child.wait();
        }
        return Err(format!("{name}: no answer within {} s", PATIENCE.as_secs()));
    }
    let status = child.wait().map_err(|error| format!("{name}: {error}"))?;
    if status.success() {
        return Ok(());
    }
    // Bounded, and without waiting for more: something it started may still hold the pipe.
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
    fn a_trial_says_what_failed_where() {
        assert_eq!(attempt(Setup::default(), || Ok(7)), Ok(7));
        assert_eq!(attempt(Setup::default(), || Err((2, Errno::EROFS))), Err(Stumble::Step(2, Errno::EROFS)));
        let stumble = Stumble::Step(1, Errno::EROFS);
        assert_eq!(stumble.describe(&["one", "two"]), "two: Read-only file system (EROFS)");
    }

    #[test]
    fn a_trial_that_dies_or_hangs_is_over_in_time() {
        assert_eq!(attempt(Setup::default(), || process::exit(9)), Err(Stumble::Died));
        let started = Instant::now();
        let hung = attempt(Setup::default(), || {
            nix::unistd::pause();
            Ok(0)
        });
        assert_eq!(hung, Err(Stumble::Stuck));
        assert!(started.elapsed() < PATIENCE + Duration::from_secs(2));
    }

    #[test]
    fn a_program_that_hangs_is_over_in_time() {
        let arguments = |text: &str| vec!["-c".to_owned(), text.to_owned()];
        let shell = std::path::Path::new("/bin/sh");
        assert_eq!(run(shell, &arguments("exit 0")), Ok(()));
        assert_eq!(run(shell, &arguments("echo no >&2; exit 3")), Err("/bin/sh: no".into()));
        assert!(run(shell, &arguments("exec sleep 60")).unwrap_err().contains("no answer"));
    }
}
