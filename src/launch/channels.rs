//! The channels between parent and child: a pipe for failures and a socket for everything else.
//!
//! The failure pipe closes when execve succeeds, which tells the parent that the program was executed. The child's end of the
//! socket is also its lifeline: end of file means that the supervisor is gone.

use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, recv, socketpair};

use super::failures::{FailureEvent, failure_with_message, read_failure_event};
use super::times::{CpuTime, Reaped};
use crate::error::{Error, Result, Step};
use crate::failure::{Applied, During, Failure, Missing, MissingSet};
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
    /// For one failure.
    pub failure: OwnedFd,
    /// Messages in both directions.
    pub control: OwnedFd,
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
    /// The CPU time of the workload's process before its program, and when that began, [`monotonic_ns`].
    SetUp(CpuTime, Option<u64>),
    /// The seccomp listener.
    Listener(OwnedFd),
    /// The executed file, and the time of its last change.
    Program(OwnedFd, u64),
    /// The workload has ended and is a zombie.
    Exited(Exited),
    /// The command has a keeper: its pidfd.
    Keeper(OwnedFd),
    /// The keeper has reaped every process of the command, and ends.
    Emptied(Reaped),
    /// The sandbox of a session is complete, and init waits for commands.
    Serving,
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
    /// The CPU time of everything that init has seen end, if it served this workload alone.
    pub used: CpuTime,
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
const SERVING: u32 = 10;
const KEEPER: u32 = 11;
const EMPTIED: u32 = 12;
const MESSAGE_LENGTH: usize = 56;
/// Encodes a message with up to six numbers.
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
        STARTED => fd.map(|pidfd| Message::Started(pidfd, Started { executed, init: cpu_time(24) })),
        SET_UP => Some(Message::SetUp(cpu_time(8), Some(long(24)).filter(|at_ns| *at_ns != 0))),
        LISTENER => fd.map(Message::Listener),
        PROGRAM => fd.map(|file| Message::Program(file, long(8))),
        SERVING => Some(Message::Serving),
        KEEPER => fd.map(Message::Keeper),
        EMPTIED => Some(Message::Emptied(Reaped::of(std::array::from_fn(|at| long(8 + 8 * at))))),
        BUILT => Some(Message::Built),
        READY => Some(Message::Ready(executed)),
        MISSING => Some(Message::Missing(MissingSet(word(4)).items())),
        EXITED => Some(Message::Exited(Exited {
            status: word(4) as i32,
            at_ns: long(24),
            scratch_bytes: long(8),
            scratch_inodes: long(16),
            used: cpu_time(32),
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

impl ChildEnds {
    /// Waits for the parent's permission to continue. Fails if the parent is gone.
    pub fn wait(&self) -> Applied {
        wait(self.control.as_fd()).during(Step::Wait, 0)
    }

    /// Fails unless the parent is alive.
    pub fn parent_lives(&self) -> Applied {
        let flags = MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT; // peeks: pending messages are for `wait`
        match recv(self.control.as_raw_fd(), &mut [0; 1], flags) {
            Err(Errno::EAGAIN) | Ok(1) => Ok(()),
            received => received.and(Err(Errno::EPIPE)).during(Step::Lifeline, 0),
        }
    }

    /// Reports a failure to the parent. If the parent is gone, nothing can be done.
    pub fn fail(&self, failure: Failure) {
        self.fail_with_message(failure, "");
    }

    /// As [`Self::fail`], with the message of a program that the child ran.
    pub fn fail_with_message(&self, failure: Failure, message: &str) {
        let _ = nix::unistd::write(&self.failure, &failure_with_message(failure, message));
    }

    /// Reports that a container's root is built, and waits for the runtime's hooks.
    pub fn built(&self) -> Applied {
        socket::send(&self.control, &message(BUILT, 0, &[]), None).during(Step::Wait, 0)?;
        self.wait()
    }

    /// Reports that a container is ready to be started, and the file that it will execute.
    pub fn send_ready(&self, executed: Option<FileOnMount>) -> std::result::Result<(), Errno> {
        nix::unistd::write(&self.control, &message(READY, 0, &numbers_of(executed))).map(drop) // write for the same reason as read in `wait`
    }

    /// Reports that init waits for commands.
    pub fn send_serving(&self) -> std::result::Result<(), Errno> {
        socket::send(&self.control, &message(SERVING, 0, &[]), None)
    }

    /// Sends the pidfd of the command's keeper.
    pub fn send_keeper(&self, pidfd: &OwnedFd) -> std::result::Result<(), Errno> {
        socket::send(&self.control, &message(KEEPER, 0, &[]), Some(pidfd.as_fd()))
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
        socket::send(&self.control, &message(STARTED, 0, &[mount, inode, user_us, system_us]), Some(pidfd))
    }

    /// Sends the CPU time that the workload's process has used before its program, and the time of the host's monotonic clock, if
    /// it sees that clock.
    pub fn send_set_up(&self, cpu: CpuTime, at_ns: Option<u64>) -> std::result::Result<(), Errno> {
        let numbers = [cpu.user_us, cpu.system_us, at_ns.unwrap_or(0)];
        socket::send(&self.control, &message(SET_UP, 0, &numbers), None)
    }

    /// Sends the seccomp listener.
    pub fn send_listener(&self, listener: BorrowedFd<'_>) -> std::result::Result<(), Errno> {
        socket::send(&self.control, &message(LISTENER, 0, &[]), Some(listener))
    }

    /// Sends the file that the workload is about to execute.
    pub fn send_program(&self, file: BorrowedFd<'_>, changed_ns: u64) -> std::result::Result<(), Errno> {
        socket::send(&self.control, &message(PROGRAM, 0, &[changed_ns]), Some(file))
    }
}

/// Whether the supervisor has told init that the workload was verified.
pub fn was_verified(control: BorrowedFd<'_>) -> bool {
    matches!(socket::receive(control, &mut [0; 1], false), Ok((1, _)))
}

/// Waits for the supervisor's permission to continue. `EPIPE` means that it is gone.
pub fn wait(control: BorrowedFd<'_>) -> std::result::Result<(), Errno> {
    loop {
        // Not recvmsg: a filter that is already in force may refuse it.
        match nix::unistd::read(control, &mut [0; 1]) {
            Err(Errno::EINTR) => {}
            Ok(1) => return Ok(()),
            received => return received.and(Err(Errno::EPIPE)),
        }
    }
}

/// Reports that every process of the command is dead and reaped.
pub fn send_emptied(control: BorrowedFd<'_>, reaped: Reaped) -> std::result::Result<(), Errno> {
    socket::send(control, &message(EMPTIED, 0, &reaped.numbers()), None)
}

/// Reports how the workload ended.
pub fn send_exited(control: BorrowedFd<'_>, exited: Exited) -> std::result::Result<(), Errno> {
    socket::send(control, &exited_message(exited), None)
}

/// Encodes [`Message::Exited`].
pub fn exited_message(exited: Exited) -> [u8; MESSAGE_LENGTH] {
    let Exited { status, at_ns, scratch_bytes, scratch_inodes, used } = exited;
    message(EXITED, status, &[scratch_bytes, scratch_inodes, at_ns, used.user_us, used.system_us])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_whole_and_known_or_none() {
        let used = CpuTime { user_us: 5, system_us: 6 };
        let exited = Exited { status: 256, at_ns: 9, scratch_bytes: 7, scratch_inodes: u64::MAX, used };
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
    fn a_wait_that_fails_has_its_reason() {
        let errno = |waited: Applied| waited.map_err(|failure| failure.errno);
        let (parent, child) = channels().unwrap();
        assert_eq!(errno(child.parent_lives()), Ok(()));
        parent.go().unwrap();
        assert_eq!((errno(child.parent_lives()), errno(child.wait())), (Ok(()), Ok(())));
        drop(parent);
        assert_eq!((errno(child.parent_lives()), errno(child.wait())), (Err(Errno::EPIPE), Err(Errno::EPIPE)));
        // Neither readable nor a socket.
        let child = ChildEnds { control: child.failure.try_clone().unwrap(), failure: child.failure };
        assert_eq!((errno(child.parent_lives()), errno(child.wait())), (Err(Errno::ENOTSOCK), Err(Errno::EBADF)));
    }
}
