//! The supervisor of a session leaves the program that its user started, which waits until the session is ready.

use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::OFlag;

use crate::error::{Error, Result, Step};
use crate::sys::clone::{Cloned, clone3};
use crate::sys::file::{content, open};
use crate::sys::process;

/// The side of a [`detach`].
#[derive(Debug)]
pub enum Detached {
    /// The program that the user started.
    Caller(Waiting),
    /// The supervisor.
    Supervisor(Announcement),
}

/// The wait for a session.
#[derive(Debug)]
pub struct Waiting(OwnedFd);

/// The supervisor's word, which it gives once.
#[derive(Debug)]
pub struct Announcement(OwnedFd);

/// What the supervisor said.
#[derive(Debug, PartialEq, Eq)]
pub struct Word {
    /// 0 if the session is ready; otherwise the exit code of the failure.
    pub exit_code: u8,
    /// For standard output if it is ready, and for standard error if not.
    pub text: String,
}

/// Copies this process, which has no threads. The copy has a session of its own, without a terminal, and of the open
/// descriptors only the `kept` one.
pub fn detach(kept: Option<BorrowedFd<'_>>) -> Result<Detached> {
    let failed = |errno| Error::errno(Step::Fork, "the session's supervisor", errno);
    let (read, write) = nix::unistd::pipe2(OFlag::O_CLOEXEC).map_err(failed)?;
    match clone3(0, None).map_err(failed)? {
        Cloned::Parent { .. } => Ok(Detached::Caller(Waiting(read))),
        Cloned::Child => {
            drop(read);
            nix::unistd::setsid().map_err(failed)?;
            // What the caller has open would stay open as long as the session: the pipes of a shell, for instance.
            let mut kept: Vec<_> = kept.iter().chain([&write.as_fd()]).map(|fd| fd.as_raw_fd()).collect();
            process::close_but(3, &mut kept).map_err(failed)?;
            Ok(Detached::Supervisor(Announcement(write)))
        }
    }
}

impl Waiting {
    /// Waits until the session is ready or has failed.
    pub fn wait(self) -> Result<Word> {
        let died = || Error::new(Step::Supervise, "session", "its supervisor died before it was ready");
        let said = content(&self.0).map_err(|errno| Error::errno(Step::Supervise, "session", errno))?;
        let (exit_code, text) = said.split_first().ok_or_else(died)?;
        Ok(Word { exit_code: *exit_code, text: String::from_utf8_lossy(text).into_owned() })
    }
}

impl Announcement {
    /// The session is ready: leaves the caller's directory and streams, and tells its name.
    pub fn ready(self, name: &str) -> Result<()> {
        let failed = |errno| Error::errno(Step::Streams, "/dev/null", errno);
        let null = open("/dev/null", OFlag::O_RDWR).map_err(failed)?;
        for number in 0..3 {
            process::dup_onto(null.as_fd(), number).map_err(failed)?;
        }
        nix::unistd::chdir("/").map_err(|errno| Error::errno(Step::Cwd, "/", errno))?;
        // A caller that is gone did not want to wait, and nobody knows of this session.
        self.say(0, &format!("{name}\n")).map_err(|errno| Error::errno(Step::Supervise, "the caller", errno))
    }

    /// The session cannot be: tells why.
    pub fn refuse(self, exit_code: u8, text: &str) {
        let _ = self.say(exit_code.max(1), text);
    }

    fn say(self, exit_code: u8, text: &str) -> std::result::Result<(), Errno> {
        let word = [&[exit_code], text.as_bytes()].concat();
        let mut rest = word.as_slice();
        while !rest.is_empty() {
            match nix::unistd::write(&self.0, rest) {
                Err(Errno::EINTR) => {}
                written => rest = &rest[written?..],
            }
        }
        Ok(())
    }
}
