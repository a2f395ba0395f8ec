//! The channels between parent and child: a pipe for failures and a socket for everything else.
//!
//! The failure pipe closes when execve succeeds, which tells the parent that the program was executed. The child's end of the
//! socket is also its lifeline: end of file means that the supervisor is gone.

use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, recv, socketpair};

use super::times::CpuTime;
use crate::error::{Error, Result, Step};
use crate::failure::{Failure, Missing, MissingSet};
use crate::sys::mount::FileOnMount;
use crate::sys::socket;

/// The parent's ends.
#[derive(Debug)]
pub struct ParentEnds {
    /// Receives the child's failure. End of file means that the workload was executed.
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

/// A message from the child.
#[derive(Debug)]
pub enum Message {
    /// The terminal's master side.
    Terminal(OwnedFd),
    /// The facilities that the child had to do without. Sent only if there are any.
    Missing(Vec<Missing>),
    /// The workload's process exists: its pidfd, and what init knows of its start.
    Started(OwnedFd, Started),
    /// The CPU time of the workload's process before its program.
    SetUp(CpuTime),
    /// The seccomp listener.
    Listener(OwnedFd),
    /// The executed file, and the time of its last change.
    Program(OwnedFd, u64),
    /// The workload has ended and is a zombie.
    Exited(Exited),
    /// A container's root is built, so the runtime's hooks may run.
    Built,
    /// A container is ready to be started: the file that it will execute.
    Ready(Option<FileOnMount>),
}

/// The workload's start, as seen by init.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Started {
    /// The file that the workload executes, if known.
    pub executed: Option<FileOnMount>,
    /// When its execve succeeded, [`monotonic_ns`]. `None` if init could not see that.
    pub at_ns: Option<u64>,
    /// The CPU time of init so far.
    pub init: CpuTime,
}

/// How the workload ended, as seen by init.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exited {
    /// As `wait(2)` encodes it.
    pub status: i32,
    /// When it ended, [`monotonic_ns`].
    pub at_ns: u64,
    /// Bytes in use on the scratch tmpfs.
    pub scratch_bytes: u64,
    /// Files in use on the scratch tmpfs.
    pub scratch_inodes: u64,
}

const TERMINAL: u32 = 1;
const STARTED: u32 = 2;
const EXITED: u32 = 3;
const MISSING: u32 = 4;
const LISTENER: u32 = 5;
const PROGRAM: u32 = 6;
const BUILT: u32 = 7;
const READY: u32 = 8;
const SET_UP: u32 = 9;
const MESSAGE_LENGTH: usize = 48;
/// Most bytes of a failure's message. The record is written to a pipe at once, which must be atomic.
pub const MAX_FAILURE_MESSAGE: usize = 2048;
/// Length of a failure record.
pub const FAILURE_LENGTH: usize = 8;

/// Encodes a message with up to five numbers.
fn message(kind: u32, status: i32, numbers: &[u64]) -> [u8; MESSAGE_LENGTH] {
    let mut frame = [0; MESSAGE_LENGTH];
    frame[..4].copy_from_slice(&kind.to_ne_bytes());
    frame[4..8].copy_from_slice(&status.to_ne_bytes());
    for (place, number) in frame[8..].chunks_exact_mut(8).zip(numbers) {
        place.copy_from_slice(&number.to_ne_bytes());
    }
    frame
}

fn numbers_of(file: Option<FileOnMount>) -> [u64; 2] {
    file.map_or([0; 2], |file| [file.mount, file.inode]) // no mount has the number 0
}

/// Decodes a message. Anything except a whole message of a known kind, with the descriptor that it requires, is `None`.
pub fn parse(frame: &[u8], fd: Option<OwnedFd>) -> Option<Message> {
    let frame: &[u8; MESSAGE_LENGTH] = frame.try_into().ok()?;
    let word = |at: usize| u32::from_ne_bytes([frame[at], frame[at + 1], frame[at + 2], frame[at + 3]]);
    let long = |at: usize| u64::from_ne_bytes(std::array::from_fn(|offset| frame[at + offset]));
    let executed = Some(FileOnMount { mount: long(8), inode: long(16) }).filter(|file| file.mount != 0);
    let cpu_time = |at| CpuTime { user_us: long(at), system_us: long(at + 8) };
    match word(0) {
        TERMINAL => fd.map(Message::Terminal),
        STARTED => {
            let at_ns = Some(long(24)).filter(|at| *at != 0);
            fd.map(|pidfd| Message::Started(pidfd, Started { executed, at_ns, init: cpu_time(32) }))
        }
        SET_UP => Some(Message::SetUp(cpu_time(8))),
        LISTENER => fd.map(Message::Listener),
        PROGRAM => fd.map(|file| Message::Program(file, long(8))),
        BUILT => Some(Message::Built),
        READY => Some(Message::Ready(executed)),
        MISSING => Some(Message::Missing(MissingSet(word(4)).items())),
        EXITED => Some(Message::Exited(Exited {
            status: word(4) as i32,
            at_ns: long(24),
            scratch_bytes: long(8),
            scratch_inodes: long(16),
        })),
        _ => None,
    }
}

impl ParentEnds {
    /// Lets the child continue: its id maps are written, or it was verified.
    pub fn go(&self) -> Result<()> {
        socket::send(&self.control, b"g", None).map_err(|errno| match errno {
            Errno::EPIPE | Errno::ECONNRESET => {
                Error::new(Step::Supervise, "", "the first process died while it was set up")
            }
            errno => Error::errno(Step::Wait, "", errno),
        })
    }

    /// Tells init that the workload was verified, so that init may reap it.
    pub fn verified(&self) {
        let _ = socket::send(&self.control, b"v", None); // if this fails, the supervisor kills init as if it had not been sent
    }

    /// The next message. `Ok(None)` means that none is pending, `Err(EPIPE)` that no more will follow.
    pub fn receive(&self) -> std::result::Result<Option<Message>, Errno> {
        let mut frame = [0; MESSAGE_LENGTH + 1];
        match socket::receive(&self.control, &mut frame, false) {
            Err(Errno::EAGAIN) => Ok(None),
            Err(errno) => Err(errno),
            Ok((0, _)) => Err(Errno::EPIPE),
            Ok((length, fd)) => parse(&frame[..length], fd).map(Some).ok_or(Errno::EBADMSG),
        }
    }

    /// Reads the failure pipe after it became readable. `None` means that it closed because the workload was executed.
    pub fn failure(&self) -> Option<Failure> {
        match read_failure_event(self.failure.as_fd()) {
            Ok(FailureEvent::Failed(failure, _)) => Some(failure),
            _ => None,
        }
    }
}

/// An event on a failure pipe.
#[derive(Debug)]
pub enum FailureEvent {
    /// The last filter is about to be installed.
    FilterDue,
    /// A failure with its message, which may be empty.
    Failed(Failure, String),
    /// End of file, or an invalid record.
    Closed,
}

/// A record with the error number 0, which no failure has.
const FILTER_DUE: Failure = Failure { step: Step::Seccomp, index: 0, errno: Errno::UnknownErrno };

/// Reads the next event from a failure pipe.
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

/// Announces that the last filter is about to be installed.
pub fn announce_filter(pipe: BorrowedFd<'_>) -> std::result::Result<(), Errno> {
    nix::unistd::write(pipe, &failure_record(FILTER_DUE)).map(drop)
}

/// The record of a failure, followed by its message.
pub fn failure_with_message(failure: Failure, message: &str) -> Vec<u8> {
    let message = &message.as_bytes()[message.len().saturating_sub(MAX_FAILURE_MESSAGE)..];
    [&failure_record(failure), message].concat()
}

/// Decodes a failure record. `None` if it is invalid.
pub fn parse_failure(record: &[u8]) -> Option<Failure> {
    let record: &[u8; FAILURE_LENGTH] = record.try_into().ok()?;
    let step = Step::from_number(u16::from_ne_bytes([record[0], record[1]]))?;
    let index = u16::from_ne_bytes([record[2], record[3]]);
    let errno = Errno::from_raw(i32::from_ne_bytes([record[4], record[5], record[6], record[7]]));
    Some(Failure { step, index, errno })
}

impl ChildEnds {
    /// Waits for the parent's permission to continue. `false` means that the parent is gone.
    pub fn wait(&self) -> bool {
        loop {
            // Not recvmsg: a filter that is already in force may refuse it.
            match nix::unistd::read(&self.control, &mut [0; 1]) {
                Err(Errno::EINTR) => {}
                received => return received == Ok(1),
            }
        }
    }

    /// Whether the parent is alive.
    pub fn parent_lives(&self) -> bool {
        let flags = MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT; // peeks: pending messages are for `wait`
        matches!(recv(self.control.as_raw_fd(), &mut [0; 1], flags), Err(Errno::EAGAIN) | Ok(1))
    }

    /// Reports a failure to the parent. If the parent is gone, nothing can be done.
    pub fn fail(&self, failure: Failure) {
        self.fail_with_message(failure, "");
    }

    /// The failure pipe.
    pub fn failure(&self) -> BorrowedFd<'_> {
        self.failure.as_fd()
    }

    /// As [`Self::fail`], with the message of a program that the child ran.
    pub fn fail_with_message(&self, failure: Failure, message: &str) {
        let _ = nix::unistd::write(&self.failure, &failure_with_message(failure, message));
    }

    /// Reports that a container's root is built, and waits for the runtime's hooks. `false` means that the parent is gone.
    pub fn built(&self) -> bool {
        socket::send(&self.control, &message(BUILT, 0, &[]), None).is_ok() && self.wait()
    }

    /// Reports that a container is ready to be started, and the file that it will execute.
    pub fn send_ready(&self, executed: Option<FileOnMount>) -> std::result::Result<(), Errno> {
        nix::unistd::write(&self.control, &message(READY, 0, &numbers_of(executed))).map(drop) // write for the same reason as read in `wait`
    }

    /// Sends the terminal's master side.
    pub fn send_terminal(&self, master: BorrowedFd<'_>) -> std::result::Result<(), Errno> {
        socket::send(&self.control, &message(TERMINAL, 0, &[]), Some(master))
    }

    /// Reports missing facilities, if there are any.
    pub fn send_missing(&self, missing: MissingSet) -> std::result::Result<(), Errno> {
        if missing == MissingSet::default() {
            return Ok(());
        }
        socket::send(&self.control, &message(MISSING, missing.0 as i32, &[]), None)
    }

    /// Sends the workload's pidfd and its start.
    pub fn send_started(&self, pidfd: BorrowedFd<'_>, started: Started) -> std::result::Result<(), Errno> {
        let [mount, inode] = numbers_of(started.executed);
        let CpuTime { user_us, system_us } = started.init;
        let numbers = [mount, inode, started.at_ns.unwrap_or(0), user_us, system_us];
        socket::send(&self.control, &message(STARTED, 0, &numbers), Some(pidfd))
    }

    /// Sends the CPU time that the workload's process has used before its program.
    pub fn send_set_up(&self, CpuTime { user_us, system_us }: CpuTime) -> std::result::Result<(), Errno> {
        socket::send(&self.control, &message(SET_UP, 0, &[user_us, system_us]), None)
    }

    /// Sends the seccomp listener.
    pub fn send_listener(&self, listener: BorrowedFd<'_>) -> std::result::Result<(), Errno> {
        socket::send(&self.control, &message(LISTENER, 0, &[]), Some(listener))
    }

    /// Sends the file that the workload is about to execute.
    pub fn send_program(&self, file: BorrowedFd<'_>, changed_ns: u64) -> std::result::Result<(), Errno> {
        socket::send(&self.control, &message(PROGRAM, 0, &[changed_ns]), Some(file))
    }

    /// The control socket, the only channel that init keeps.
    pub fn control(&self) -> BorrowedFd<'_> {
        self.control.as_fd()
    }
}

/// Encodes a failure.
pub fn failure_record(failure: Failure) -> [u8; FAILURE_LENGTH] {
    let mut record = [0; FAILURE_LENGTH];
    record[..2].copy_from_slice(&(failure.step as u16).to_ne_bytes());
    record[2..4].copy_from_slice(&failure.index.to_ne_bytes());
    record[4..].copy_from_slice(&(failure.errno as i32).to_ne_bytes());
    record
}

/// Whether the supervisor has told init that the workload was verified.
pub fn was_verified(control: BorrowedFd<'_>) -> bool {
    matches!(socket::receive(control, &mut [0; 1], false), Ok((1, _)))
}

/// Reports how the workload ended.
pub fn send_exited(control: BorrowedFd<'_>, exited: Exited) -> std::result::Result<(), Errno> {
    socket::send(control, &exited_message(exited), None)
}

/// Encodes [`Message::Exited`].
pub fn exited_message(exited: Exited) -> [u8; MESSAGE_LENGTH] {
    message(EXITED, exited.status, &[exited.scratch_bytes, exited.scratch_inodes, exited.at_ns])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_whole_and_known_or_none() {
        let exited = Exited { status: 256, at_ns: 9, scratch_bytes: 7, scratch_inodes: u64::MAX };
        let frame = exited_message(exited);
        assert!(matches!(parse(&frame, None), Some(Message::Exited(read)) if read == exited));
        for length in 0..frame.len() {
            assert!(parse(&frame[..length], None).is_none());
        }
        assert!(parse(&[frame.as_slice(), &[0]].concat(), None).is_none());
        assert!(parse(&message(STARTED, 0, &[]), None).is_none(), "a start without its pidfd");
        assert!(parse(&message(99, 0, &[]), None).is_none());
    }

    #[test]
    fn a_failure_is_whole_and_known_or_none() {
        assert!(parse_failure(&[0xff; 8]).is_none());
        assert!(parse_failure(&[0; 7]).is_none());
        assert_eq!(parse_failure(&[0; 8]).map(|failure| failure.step), Some(Step::Usage));
    }

    #[test]
    fn announcements_and_failures_are_distinguished() {
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
