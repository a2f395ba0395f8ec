//! The gate at which a created container waits for `start`: two FIFOs in its state directory.
//!
//! `start` opens the answer FIFO for reading, writes one byte into the gate, and reads the answers. First comes the
//! announcement of the last filter, if one is still to be installed; `start` verifies that filter. Then comes end of file,
//! because the program was executed (both FIFOs are close-on-exec), or a failure record with the output of a hook. If the
//! container is dead, no process has the gate open, so opening it fails at once and `start` never waits.

use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::stat::Mode;

use super::filter_handshake::{FilterHandshake, Rest};
use crate::error::{Error, Result, Step};
use crate::failure::Failure;
use crate::launch::failures::{self, FailureEvent};
use crate::sys::file::open;

/// The FIFO at which the container waits.
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
    /// Creates both FIFOs in a state directory.
    pub fn make(directory: &Path) -> Result<Self> {
        let make = |name: &str| {
            let path = directory.join(name);
            let failed = |errno| Error::errno(Step::State, path.display().to_string(), errno);
            nix::unistd::mkfifo(&path, Mode::from_bits_truncate(0o600)).map_err(failed)?;
            // Opened for both directions, so that the open never blocks, and a read blocks while there is no writer.
            open(&path, OFlag::O_RDWR | OFlag::O_NOFOLLOW).map_err(failed)
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

    /// Both descriptors.
    pub fn fds(&self) -> [RawFd; 2] {
        [self.gate.as_raw_fd(), self.answer.as_raw_fd()]
    }

    /// The state directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Child half: the channel for failures from now on.
    pub fn answer(&self) -> BorrowedFd<'_> {
        self.answer.as_fd()
    }
}

/// The result of a start.
#[derive(Debug)]
pub enum Started {
    /// The program was executed, or its process has ended.
    Executed,
    /// The program could not be executed; with the output of the failed hook.
    Failed(Failure, String),
    /// The process ended before its last filter was seen, and the program was not executed.
    Died,
}

/// A container between its gate and its program. If this is dropped before its last filter is verified, the container dies.
#[derive(Debug)]
pub struct Underway {
    answer: OwnedFd,
    handshake: Option<FilterHandshake>,
}

/// Opens the gate of a state directory. `Err(ENXIO)` means that no container waits there.
pub fn open_gate(directory: &Path) -> std::result::Result<Underway, Errno> {
    let flags = OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW;
    let gate = open(&directory.join(GATE), flags | OFlag::O_NONBLOCK | OFlag::O_WRONLY)?;
    // The container has this FIFO open for writing, so the open does not block. Reads block, after O_NONBLOCK is cleared below.
    let answer = open(&directory.join(ANSWER), flags | OFlag::O_NONBLOCK | OFlag::O_RDONLY)?;
    fcntl(&answer, FcntlArg::F_SETFL(OFlag::empty()))?;
    let handshake = FilterHandshake::open_in(directory)?;
    if let Some(handshake) = &handshake {
        handshake.watch()?;
    }
    nix::unistd::write(&gate, b"s")?;
    let _ = std::fs::remove_file(directory.join(GATE)); // a container starts only once
    FilterHandshake::remove_from(directory);
    Ok(Underway { answer, handshake })
}

impl Underway {
    /// Waits until the program is executed. `startContainer` hooks run before that, without a time limit of ours. `look`
    /// returns the process's directory in `/proc` and its expected number of filters. On failure the caller must kill the
    /// process.
    pub fn wait(
        self,
        look: impl FnOnce() -> Result<(OwnedFd, u64)>,
        rest: Rest<impl FnOnce() -> Result<()>, impl FnOnce(RawFd) -> Result<()>>,
    ) -> Result<Started> {
        let next_event = || loop {
            match failures::read_failure_event(self.answer.as_fd()) {
                Err(Errno::EINTR) => {}
                event => return event.map_err(|errno| Error::errno(Step::State, "exec answer", errno)),
            }
        };
        let mut first = next_event()?;
        let mut seen = self.handshake.is_none();
        if let (FailureEvent::FilterDue, Some(handshake)) = (&first, &self.handshake) {
            let (proc_pid, filters) = look()?;
            seen = handshake.verify_and_release(&proc_pid, filters, self.answer.as_fd(), rest)?;
            first = next_event()?;
        }
        let reported = self.handshake.as_ref().and_then(FilterHandshake::failure);
        Ok(match (first, reported) {
            (FailureEvent::Failed(failure, message), _) => Started::Failed(failure, message),
            (_, Some(failure)) => Started::Failed(failure, String::new()),
            _ if seen => Started::Executed,
            _ => Started::Died,
        })
    }
}

/// Whether a started container has not executed its program yet.
pub fn is_underway(directory: &Path) -> bool {
    let flags = OFlag::O_WRONLY | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW;
    !is_closed(directory) && open(&directory.join(ANSWER), flags).is_ok()
}

/// Whether a container waits at the gate, that is, has the FIFO open.
pub fn is_closed(directory: &Path) -> bool {
    let flags = OFlag::O_WRONLY | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW;
    open(&directory.join(GATE), flags).is_ok()
}
