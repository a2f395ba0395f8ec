//! What a container that was created waits at until it is started: two FIFOs in its state directory.
//!
//! `start` opens the answer for reading, writes a byte into the gate and reads: the end of the stream means that the program
//! was executed (both are close-on-exec), eight bytes are the failure, what follows is what a hook said. A dead container has the gate open nowhere, so
//! nobody ever waits for one.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::stat::Mode;

use crate::error::{Error, Result, Step};
use crate::layers::Failure;
use crate::sandbox::sync;

/// The FIFO that is waited at.
const GATE: &str = "exec.fifo";
const ANSWER: &str = "exec.answer";

/// How long a started container may take to execute its program, hooks apart.
const PATIENCE_MS: u16 = 60_000;

/// The container's side.
#[derive(Debug)]
pub struct Gate {
    gate: OwnedFd,
    answer: OwnedFd,
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
        Ok(Self { gate: make(GATE)?, answer: make(ANSWER)? })
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

    /// Child half: where failures go from now on.
    pub fn answer(&self) -> BorrowedFd<'_> {
        self.answer.as_fd()
    }
}

/// Opens the gate of a state directory: `Ok(Some(failure))`, with what a hook said, when the program could not be executed, `Err(ENXIO)` when nobody
/// waits there.
pub fn open_gate(directory: &Path) -> std::result::Result<Option<(Failure, String)>, Errno> {
    let flags = OFlag::O_NONBLOCK | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW;
    let gate = open(&directory.join(GATE), flags | OFlag::O_WRONLY, Mode::empty())?;
    let answer = open(&directory.join(ANSWER), flags | OFlag::O_RDONLY, Mode::empty())?;
    nix::unistd::write(&gate, b"s")?;
    let _ = std::fs::remove_file(directory.join(GATE)); // started is started, whoever looks
    let readable = PollFd::new(answer.as_fd(), PollFlags::POLLIN);
    while let Err(Errno::EINTR) = poll(&mut [readable.clone()], PollTimeout::from(PATIENCE_MS)) {}
    match sync::read_failure(answer.as_fd()) {
        Err(Errno::EAGAIN) => Ok(None), // a slow hook: the container is on its way
        failure => failure,
    }
}

/// Whether a container waits at a gate: whether anybody has it open.
pub fn is_closed(directory: &Path) -> bool {
    let flags = OFlag::O_WRONLY | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW;
    open(&directory.join(GATE), flags, Mode::empty()).is_ok()
}
