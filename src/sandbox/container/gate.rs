//! What a container that was created waits at until it is started: two FIFOs in its state directory.
//!
//! `start` opens the answer for reading, writes a byte into the gate and reads: that the last filter is due, which it looks
//! at before it lets the program be executed; then the end of the stream, as the program was (both are close-on-exec), or
//! eight bytes of a failure, with what a hook said after them. A dead container has the gate open nowhere, so nobody ever
//! waits for one.

use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl, open};
use nix::sys::stat::Mode;

use super::filter_handshake::FilterHandshake;
use crate::error::{Error, Result, Step};
use crate::layers::Failure;
use crate::sandbox::sync::{self, FailureEvent};

/// The FIFO that is waited at.
const GATE: &str = "exec.fifo";
const ANSWER: &str = "exec.answer";

/// The container's side.
#[derive(Debug)]
pub struct Gate {
    gate: OwnedFd,
    answer: OwnedFd,
    directory: PathBuf,
}

impl Gate {
    /// Makes it in a state directory.
    pub fn make(directory: &Path) -> Result<Self> {
        let make = |name: &str| {
            let path = directory.join(name);
            let failed = |errno| Error::errno(Step::State, path.display().to_string(), errno);
            nix::unistd::mkfifo(&path, Mode::from_bits_truncate(0o600)).map_err(failed)?;
            // Both ends: so that opening never waits, and reading does as long as nobody writes.
            open(&path, OFlag::O_RDWR | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW, Mode::empty()).map_err(failed)
        };
        Ok(Self { gate: make(GATE)?, answer: make(ANSWER)?, directory: directory.to_owned() })
    }

    /// Child half: waits for `start`.
    pub fn wait(&self) -> std::result::Result<(), Errno> {
        loop {
            match nix::unistd::read(&self.gate, &mut [0; 1]) {
                Err(Errno::EINTR) => {}
                Ok(1) => return Ok(()),
                Ok(_) => return Err(Errno::EPIPE),
                Err(errno) => return Err(errno),
            }
        }
    }

    /// Its descriptors.
    pub fn fds(&self) -> [RawFd; 2] {
        [self.gate.as_raw_fd(), self.answer.as_raw_fd()]
    }

    /// Where it is.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Child half: where failures go from now on.
    pub fn answer(&self) -> BorrowedFd<'_> {
        self.answer.as_fd()
    }
}

/// What came of a container that was let on its way.
#[derive(Debug)]
pub enum Started {
    /// The program was executed, or its process has ended.
    Executed,
    /// The program could not be executed; with what a hook said.
    Failed(Failure, String),
    /// The process ended before its last filter was seen, and the program was not executed.
    Died,
}

/// A container on its way from its gate to its program. If this goes before it is through, and its last filter has not been
/// seen yet, the container ends.
#[derive(Debug)]
pub struct Underway {
    answer: OwnedFd,
    handshake: Option<FilterHandshake>,
}

/// Opens the gate of a state directory: `Err(ENXIO)` when nobody waits there.
pub fn open_gate(directory: &Path) -> std::result::Result<Underway, Errno> {
    let flags = OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW;
    let gate = open(&directory.join(GATE), flags | OFlag::O_NONBLOCK | OFlag::O_WRONLY, Mode::empty())?;
    // There is somebody who has it open for writing as well, so that this does not wait. Reading from it does.
    let answer = open(&directory.join(ANSWER), flags | OFlag::O_NONBLOCK | OFlag::O_RDONLY, Mode::empty())?;
    fcntl(&answer, FcntlArg::F_SETFL(OFlag::empty()))?;
    let handshake = FilterHandshake::open_in(directory)?;
    if let Some(handshake) = &handshake {
        handshake.watch()?;
    }
    nix::unistd::write(&gate, b"s")?;
    let _ = std::fs::remove_file(directory.join(GATE)); // started is started, whoever looks
    FilterHandshake::remove_from(directory);
    Ok(Underway { answer, handshake })
}

impl Underway {
    /// Waits until the program is executed, as long as that takes: hooks come first. `look` gives the process's directory in
    /// `/proc`, and how many filters it must have; `schedule` sets how it is scheduled. The process must be killed if this
    /// fails.
    pub fn wait(
        self,
        look: impl FnOnce() -> Result<(OwnedFd, u64)>,
        schedule: impl FnOnce() -> Result<()>,
    ) -> Result<Started> {
        let next_event = || loop {
            match sync::read_failure_event(self.answer.as_fd()) {
                Err(Errno::EINTR) => {}
                event => return event.map_err(|errno| Error::errno(Step::State, "exec answer", errno)),
            }
        };
        let mut first = next_event()?;
        let mut seen = self.handshake.is_none();
        if let (FailureEvent::FilterDue, Some(handshake)) = (&first, &self.handshake) {
            let (proc_pid, filters) = look()?;
            seen = handshake.verify_and_release(&proc_pid, filters, self.answer.as_fd(), schedule)?;
            first = next_event()?;
        }
        Ok(match first {
            FailureEvent::Failed(failure, message) => Started::Failed(failure, message),
            _ if seen => Started::Executed,
            _ => Started::Died,
        })
    }
}

/// Whether a container that was started has not executed its program yet.
pub fn is_underway(directory: &Path) -> bool {
    let flags = OFlag::O_WRONLY | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW;
    !is_closed(directory) && open(&directory.join(ANSWER), flags, Mode::empty()).is_ok()
}

/// Whether a container waits at a gate: whether anybody has it open.
pub fn is_closed(directory: &Path) -> bool {
    let flags = OFlag::O_WRONLY | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW;
    open(&directory.join(GATE), flags, Mode::empty()).is_ok()
}
