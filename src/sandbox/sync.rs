//! What parent and child tell each other: a failure on one pipe, everything else on one socket.
//!
//! The failure pipe closes by itself when execve succeeds, which is how the parent learns of that. The socket's end in the
//! child is also its lifeline: when it reads the end of the stream, the supervisor is gone.

use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, recv, socketpair};

use crate::error::{Error, Result, Step};
use crate::layers::{Failure, Missing, MissingSet};
use crate::sys::mount::FileOnMount;
use crate::sys::socket;

/// The parent's ends.
#[derive(Debug)]
pub struct ParentEnds {
    /// Where a failure of the child arrives; ends when the workload runs.
    pub failure: OwnedFd,
    /// Messages in both directions.
    pub control: OwnedFd,
}

/// The child's ends.
#[derive(Debug)]
pub struct ChildEnds {
    failure: OwnedFd,
    control: OwnedFd,
}

/// Both ends of both channels, all close-on-exec.
pub fn channels() -> Result<(ParentEnds, ChildEnds)> {
    let failed = |errno| Error::errno(Step::Streams, "channel to the sandbox", errno);
    let (failure, failure_child) = nix::unistd::pipe2(OFlag::O_CLOEXEC).map_err(failed)?;
    let (control, control_child) =
        socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC).map_err(failed)?;
    Ok((ParentEnds { failure, control }, ChildEnds { failure: failure_child, control: control_child }))
}

/// What the child tells the parent.
#[derive(Debug)]
pub enum Message {
    /// The terminal's master side.
    Terminal(OwnedFd),
    /// What the child had to do without; sent only if there is something.
    Missing(Vec<Missing>),
    /// The workload's process has been made; its pidfd, and what it executes.
    Started(OwnedFd, Option<FileOnMount>),
    /// Where its refused calls are heard of.
    Listener(OwnedFd),
    /// What the workload executes, and when that was last changed.
    Program(OwnedFd, u64),
    /// The workload has ended, and waits as a zombie.
    Exited(Exited),
    /// The root of a container is built: its hooks may run.
    Built,
    /// A container waits to be started; what it executes then.
    Ready(Option<FileOnMount>),
}

/// How the workload ended, seen from inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exited {
    /// As `wait(2)` encodes it.
    pub status: i32,
    /// Bytes in use on the scratch tmpfs.
    pub scratch_bytes: u64,
    /// Files in use on the scratch tmpfs.
    pub scratch_inodes: u64,
}

const TERMINAL: u32 = 1;
const STARTED: u32 = 2;
/// Kind of the frame of an end.
pub const EXITED: u32 = 3;
const MISSING: u32 = 4;
const LISTENER: u32 = 5;
const PROGRAM: u32 = 6;
const BUILT: u32 = 7;
const READY: u32 = 8;
const MESSAGE_LENGTH: usize = 24;
/// Most that is said about a failure in message: a record with it is written to a pipe as one.
pub const MAX_FAILURE_MESSAGE: usize = 2048;
/// Length of the record of a failure.
pub const FAILURE_LENGTH: usize = 8;

/// A frame.
pub fn message(kind: u32, status: i32, bytes: u64, inodes: u64) -> [u8; MESSAGE_LENGTH] {
    let mut frame = [0; MESSAGE_LENGTH];
    frame[..4].copy_from_slice(&kind.to_ne_bytes());
    frame[4..8].copy_from_slice(&status.to_ne_bytes());
    frame[8..16].copy_from_slice(&bytes.to_ne_bytes());
    frame[16..].copy_from_slice(&inodes.to_ne_bytes());
    frame
}

fn message_of_file(kind: u32, file: Option<FileOnMount>) -> [u8; MESSAGE_LENGTH] {
    let (mount, inode) = file.map_or((0, 0), |file| (file.mount, file.inode)); // no mount has the number 0
    message(kind, 0, mount, inode)
}

/// Reads a frame totally: anything but a whole message of a known kind, with the descriptor it promises, is none.
pub fn parse(frame: &[u8], fd: Option<OwnedFd>) -> Option<Message> {
    let frame: &[u8; MESSAGE_LENGTH] = frame.try_into().ok()?;
    let word = |at: usize| u32::from_ne_bytes([frame[at], frame[at + 1], frame[at + 2], frame[at + 3]]);
    let long = |at: usize| u64::from_ne_bytes(std::array::from_fn(|offset| frame[at + offset]));
    let executed = Some(FileOnMount { mount: long(8), inode: long(16) }).filter(|file| file.mount != 0);
    match word(0) {
        TERMINAL => fd.map(Message::Terminal),
        STARTED => fd.map(|pidfd| Message::Started(pidfd, executed)),
        LISTENER => fd.map(Message::Listener),
        PROGRAM => fd.map(|file| Message::Program(file, long(8))),
        BUILT => Some(Message::Built),
        READY => Some(Message::Ready(executed)),
        MISSING => Some(Message::Missing(MissingSet(word(4)).items())),
        EXITED => {
            Some(Message::Exited(Exited { status: word(4) as i32, scratch_bytes: long(8), scratch_inodes: long(16) }))
        }
        _ => None,
    }
}

impl ParentEnds {
    /// Lets the child go on: its id maps are written, or it was looked at.
    pub fn go(&self) -> Result<()> {
        socket::send(&self.control, b"g", None).map_err(|errno| match errno {
            Errno::EPIPE | Errno::ECONNRESET => {
                Error::new(Step::Supervise, "", "the first process died while it was set up")
            }
            errno => Error::errno(Step::Wait, "", errno),
        })
    }

    /// Tells init that the workload was looked at, and need not be there any more when it has ended.
    pub fn verified(&self) {
        let _ = socket::send(&self.control, b"v", None); // or we kill it, as if we had not
    }

    /// The next message, if one is there: `Ok(None)` when there is none now, `Err(EPIPE)` when there will be no more.
    pub fn receive(&self) -> std::result::Result<Option<Message>, Errno> {
        let mut frame = [0; MESSAGE_LENGTH + 1];
        match socket::receive(&self.control, &mut frame, false) {
            Err(Errno::EAGAIN) => Ok(None),
            Err(errno) => Err(errno),
            Ok((0, _)) => Err(Errno::EPIPE),
            Ok((length, fd)) => parse(&frame[..length], fd).map(Some).ok_or(Errno::EBADMSG),
        }
    }

    /// After the pipe became readable: the child's failure, or `None` when it ended because the workload runs.
    pub fn failure(&self) -> Option<Failure> {
        match read_failure_event(self.failure.as_fd()) {
            Ok(FailureEvent::Failed(failure, _)) => Some(failure),
            _ => None,
        }
    }
}

/// What stands in a pipe for failures.
#[derive(Debug)]
pub enum FailureEvent {
    /// The last filter is about to be put in force.
    FilterDue,
    /// A failure, and the message that came with it.
    Failed(Failure, String),
    /// The end of the stream, or what is no record.
    Closed,
}

/// No failure: an error number of 0.
const FILTER_DUE: Failure = Failure { step: Step::Seccomp, index: 0, errno: Errno::UnknownErrno };

/// Reads from a pipe for failures.
pub fn read_failure_event(pipe: BorrowedFd<'_>) -> std::result::Result<FailureEvent, Errno> {
    let mut record = [0; 2 * FAILURE_LENGTH + MAX_FAILURE_MESSAGE];
    let length = nix::unistd::read(pipe, &mut record)?;
    let event = &record[..length];
    let rest = event.strip_prefix(&failure_record(FILTER_DUE));
    if rest.is_some_and(<[u8]>::is_empty) {
        return Ok(FailureEvent::FilterDue);
    }
    let event = rest.unwrap_or(event);
    let (record, message) = event.split_at(event.len().min(FAILURE_LENGTH));
    let failed = |failure| FailureEvent::Failed(failure, String::from_utf8_lossy(message).into_owned());
    Ok(parse_failure(record).map_or(FailureEvent::Closed, failed))
}

/// Tells that the last filter is about to be put in force.
pub fn announce_filter(pipe: BorrowedFd<'_>) -> std::result::Result<(), Errno> {
    nix::unistd::write(pipe, &failure_record(FILTER_DUE)).map(drop)
}

/// The record of a failure, and message about it.
pub fn failure_with_message(failure: Failure, message: &str) -> Vec<u8> {
    let message = &message.as_bytes()[message.len().saturating_sub(MAX_FAILURE_MESSAGE)..];
    [&failure_record(failure), message].concat()
}

/// Reads the record of a failure totally: `None` if it is not one.
pub fn parse_failure(record: &[u8]) -> Option<Failure> {
    let record: &[u8; FAILURE_LENGTH] = record.try_into().ok()?;
    let step = Step::from_number(u16::from_ne_bytes([record[0], record[1]]))?;
    let index = u16::from_ne_bytes([record[2], record[3]]);
    let errno = Errno::from_raw(i32::from_ne_bytes([record[4], record[5], record[6], record[7]]));
    Some(Failure { step, index, errno })
}

impl ChildEnds {
    /// Waits until the parent lets us go on; `false` when it is gone instead.
    pub fn wait(&self) -> bool {
        loop {
            // Not by recvmsg, which a filter that is in force already may refuse.
            match nix::unistd::read(&self.control, &mut [0; 1]) {
                Err(Errno::EINTR) => {}
                received => return received == Ok(1),
            }
        }
    }

    /// Whether the parent still lives.
    pub fn parent_lives(&self) -> bool {
        let flags = MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT; // what it has said already is for who waits for that
        matches!(recv(self.control.as_raw_fd(), &mut [0; 1], flags), Err(Errno::EAGAIN) | Ok(1))
    }

    /// Tells the parent what failed. Nothing more can be done if it does not listen.
    pub fn fail(&self, failure: Failure) {
        self.fail_with_message(failure, "");
    }

    /// The pipe for failures.
    pub fn failure(&self) -> BorrowedFd<'_> {
        self.failure.as_fd()
    }

    /// As [`Self::fail`], with what a program that we ran said about it.
    pub fn fail_with_message(&self, failure: Failure, message: &str) {
        let _ = nix::unistd::write(&self.failure, &failure_with_message(failure, message));
    }

    /// Tells that the root of a container is built, and waits for its hooks; `false` when the parent is gone instead.
    pub fn built(&self) -> bool {
        socket::send(&self.control, &message(BUILT, 0, 0, 0), None).is_ok() && self.wait()
    }

    /// Tells that a container waits to be started, and what it executes then.
    pub fn send_ready(&self, executed: Option<FileOnMount>) -> std::result::Result<(), Errno> {
        nix::unistd::write(&self.control, &message_of_file(READY, executed)).map(drop) // as for waiting
    }

    /// Hands the terminal's master side over.
    pub fn send_terminal(&self, master: BorrowedFd<'_>) -> std::result::Result<(), Errno> {
        socket::send(&self.control, &message(TERMINAL, 0, 0, 0), Some(master))
    }

    /// Tells what had to be done without, if anything.
    pub fn send_missing(&self, missing: MissingSet) -> std::result::Result<(), Errno> {
        if missing == MissingSet::default() {
            return Ok(());
        }
        socket::send(&self.control, &message(MISSING, missing.0 as i32, 0, 0), None)
    }

    /// Hands the workload's pidfd over, and says what it executes, if that is known.
    pub fn send_started(&self, pidfd: BorrowedFd<'_>, executed: Option<FileOnMount>) -> std::result::Result<(), Errno> {
        socket::send(&self.control, &message_of_file(STARTED, executed), Some(pidfd))
    }

    /// Hands over what listens to the workload's refused calls.
    pub fn send_listener(&self, listener: BorrowedFd<'_>) -> std::result::Result<(), Errno> {
        socket::send(&self.control, &message(LISTENER, 0, 0, 0), Some(listener))
    }

    /// Hands over what the workload is about to execute.
    pub fn send_program(&self, file: BorrowedFd<'_>, changed_ns: u64) -> std::result::Result<(), Errno> {
        socket::send(&self.control, &message(PROGRAM, 0, changed_ns, 0), Some(file))
    }

    /// The socket, which is all that init keeps of the two.
    pub fn control(&self) -> BorrowedFd<'_> {
        self.control.as_fd()
    }
}

/// The record of a failure.
pub fn failure_record(failure: Failure) -> [u8; FAILURE_LENGTH] {
    let mut record = [0; FAILURE_LENGTH];
    record[..2].copy_from_slice(&(failure.step as u16).to_ne_bytes());
    record[2..4].copy_from_slice(&failure.index.to_ne_bytes());
    record[4..].copy_from_slice(&(failure.errno as i32).to_ne_bytes());
    record
}

/// Whether the parent has told init that the workload was looked at.
pub fn was_verified(control: BorrowedFd<'_>) -> bool {
    matches!(socket::receive(control, &mut [0; 1], false), Ok((1, _)))
}

/// Tells the parent how the workload ended.
pub fn send_exited(control: BorrowedFd<'_>, exited: Exited) -> std::result::Result<(), Errno> {
    let frame = message(EXITED, exited.status, exited.scratch_bytes, exited.scratch_inodes);
    socket::send(control, &frame, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_whole_and_known_or_none() {
        let exited = Exited { status: 256, scratch_bytes: 7, scratch_inodes: u64::MAX };
        let frame = message(EXITED, exited.status, exited.scratch_bytes, exited.scratch_inodes);
        assert!(matches!(parse(&frame, None), Some(Message::Exited(read)) if read == exited));
        for length in 0..frame.len() {
            assert!(parse(&frame[..length], None).is_none());
        }
        assert!(parse(&[frame.as_slice(), &[0]].concat(), None).is_none());
        assert!(parse(&message(STARTED, 0, 0, 0), None).is_none(), "a start without its pidfd");
        assert!(parse(&message(99, 0, 0, 0), None).is_none());
    }

    #[test]
    fn a_failure_is_whole_and_known_or_none() {
        assert!(parse_failure(&[0xff; 8]).is_none());
        assert!(parse_failure(&[0; 7]).is_none());
        assert_eq!(parse_failure(&[0; 8]).map(|failure| failure.step), Some(Step::Usage));
    }

    #[test]
    fn what_is_due_and_what_failed_are_told_apart() {
        let (reader, writer) = nix::unistd::pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK).unwrap();
        let failure = Failure { step: Step::Exec, index: 3, errno: Errno::EACCES };
        assert_eq!(read_failure_event(reader.as_fd()).unwrap_err(), Errno::EAGAIN);
        let failed = || matches!(read_failure_event(reader.as_fd()), Ok(FailureEvent::Failed(found, message)) if found == failure && message == "why");
        let fail = || nix::unistd::write(&writer, &failure_with_message(failure, "why")).map(drop);
        fail().unwrap();
        assert!(failed());
        announce_filter(writer.as_fd()).unwrap();
        assert!(matches!(read_failure_event(reader.as_fd()), Ok(FailureEvent::FilterDue)));
        announce_filter(writer.as_fd()).and_then(|()| fail()).unwrap();
        assert!(failed(), "both at once");
        drop(writer);
        assert!(matches!(read_failure_event(reader.as_fd()), Ok(FailureEvent::Closed)));
    }
}
