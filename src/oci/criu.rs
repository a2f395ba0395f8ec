//! Runs criu, which saves and restores processes: one `criu swrk`, with its protocol over a socket.
//!
//! The protocol is that of `criu/rpc.proto`, encoded as protocol buffers; the needed part is encoded by hand. criu notifies
//! at each stage, and waits for a reply before it continues.

use std::ffi::CString;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::PathBuf;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use nix::unistd::Pid;

use crate::error::{Error, Result, Step};
use crate::sys::clone::{Cloned, clone3};
use crate::sys::{helper, process, socket};

/// How long criu may take to exit.
const EXIT_TIMEOUT_MS: u16 = 5_000;

/// The longest message that is read.
const MAX_MESSAGE: usize = 64 << 10;

/// An encoded message, or a part of one.
#[derive(Clone, Debug, Default)]
pub struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut number: u64) {
        while number > 0x7f {
            self.0.push((number & 0x7f) as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }

    /// Appends a number or a flag.
    pub fn number(&mut self, field: u32, number: u64) -> &mut Self {
        self.varint(u64::from(field) << 3);
        self.varint(number);
        self
    }

    /// Appends a flag if it is on.
    pub fn flag(&mut self, field: u32, on: bool) -> &mut Self {
        if on { self.number(field, 1) } else { self }
    }

    /// Appends text or an encoded message.
    pub fn bytes(&mut self, field: u32, bytes: &[u8]) -> &mut Self {
        self.varint(u64::from(field) << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
        self
    }

    /// Appends a nested message.
    pub fn message(&mut self, field: u32, message: &Self) -> &mut Self {
        self.bytes(field, &message.0)
    }
}

/// A field of a received message.
enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// Decodes the fields of a message; `None` if it is invalid.
fn fields(mut bytes: &[u8]) -> Option<Vec<(u64, Value<'_>)>> {
    fn varint(bytes: &mut &[u8]) -> Option<u64> {
        let mut number = 0u64;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = bytes.split_first()?;
            *bytes = rest;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }
    fn take<'a>(bytes: &mut &'a [u8], length: u64) -> Option<&'a [u8]> {
        let (taken, rest) = bytes.split_at_checked(usize::try_from(length).ok()?)?;
        *bytes = rest;
        Some(taken)
    }
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes)?;
        let value = match key & 7 {
            0 => Value::Number(varint(&mut bytes)?),
            1 => Value::Bytes(take(&mut bytes, 8)?),
            2 => {
                let length = varint(&mut bytes)?;
                Value::Bytes(take(&mut bytes, length)?)
            }
            5 => Value::Bytes(take(&mut bytes, 4)?),
            _ => return None,
        };
        found.push((key >> 3, value));
    }
    Some(found)
}

/// The requests to criu.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Request {
    Dump = 1,
    Restore = 2,
    PreDump = 4,
}

const NOTIFY: u64 = 6;

/// A received message.
#[derive(Debug, Default, PartialEq, Eq)]
struct Answer {
    kind: u64,
    success: bool,
    pid: i32,
    stage: String,
    errno: i32,
    reason: String,
}

impl Answer {
    fn parse(bytes: &[u8]) -> Option<Self> {
        let mut answer = Self::default();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        for (field, value) in fields(bytes)? {
            match (field, value) {
                (1, Value::Number(kind)) => answer.kind = kind,
                (2, Value::Number(success)) => answer.success = success != 0,
                (4, Value::Bytes(restored)) => {
                    for (field, value) in fields(restored)? {
                        if let (1, Value::Number(pid)) = (field, value) {
                            answer.pid = pid as i32;
                        }
                    }
                }
                (5, Value::Bytes(notified)) => {
                    for (field, value) in fields(notified)? {
                        match (field, value) {
                            (1, Value::Bytes(stage)) => answer.stage = text(stage),
                            (2, Value::Number(pid)) => answer.pid = pid as i32,
                            _ => {}
                        }
                    }
                }
                (7, Value::Number(errno)) => answer.errno = errno as i32,
                (9, Value::Bytes(reason)) => answer.reason = text(reason),
                _ => {}
            }
        }
        Some(answer)
    }
}

/// The last stage before a restored container runs. An error at this stage requires killing the container.
pub const PRE_RESUME: &str = "pre-resume";

/// A stage that criu has reached.
pub struct Stage<'a> {
    /// `pre-dump`, `setup-namespaces`, `post-restore` and so on.
    pub name: &'a str,
    /// The container's first process; 0 if it does not exist yet.
    pub pid: i32,
    /// The master side of its terminal.
    pub fd: Option<OwnedFd>,
}

/// The path of criu.
pub fn find() -> Result<PathBuf> {
    helper::find("criu").ok_or_else(|| {
        Error::new(Step::Host, "criu", "is not installed: it saves and restores containers")
            .hint("install criu 3.0 or newer in a directory of PATH that only root can write")
    })
}

fn pair() -> nix::Result<(OwnedFd, OwnedFd)> {
    socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)
}

/// A running criu.
#[derive(Debug)]
pub struct Criu {
    pid: Pid,
    pidfd: OwnedFd,
    socket: OwnedFd,
    /// The child's error text.
    error_pipe: OwnedFd,
}

impl Drop for Criu {
    fn drop(&mut self) {
        // criu cleans up and exits when its socket closes. After the timeout it is killed.
        let _ = nix::sys::socket::shutdown(self.socket.as_raw_fd(), nix::sys::socket::Shutdown::Both);
        let gone = PollFd::new(self.pidfd.as_fd(), PollFlags::POLLIN);
        while let Err(Errno::EINTR) = poll(&mut [gone.clone()], PollTimeout::from(EXIT_TIMEOUT_MS)) {}
        let _ = process::pidfd_send_signal(self.pidfd.as_fd(), libc::SIGKILL);
        let _ = process::wait4(self.pid);
    }
}

impl Criu {
    /// Starts criu in the namespaces of `flags` (`CLONE_NEW*`) and in `cgroup`. `before` runs in the child before execve.
    /// The descriptors `inherited` stay open under their own numbers.
    pub fn start(
        flags: u64,
        cgroup: Option<BorrowedFd<'_>>,
        inherited: &[BorrowedFd<'_>],
        before: impl FnOnce() -> std::result::Result<(), (String, Errno)>,
    ) -> Result<Self> {
        let program = find()?;
        let failed = |errno| Error::errno(Step::Host, "criu", errno);
        let (socket, theirs) = pair().map_err(failed)?;
        let (error_pipe, error_writer) =
            nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC | nix::fcntl::OFlag::O_NONBLOCK).map_err(failed)?;
        let c_string = |bytes: &[u8]| CString::new(bytes).map_err(|_| failed(Errno::EINVAL));
        let path = c_string(program.as_os_str().as_bytes())?;
        let env = std::env::vars_os().map(|(name, value)| c_string(&[name.into_vec(), value.into_vec()].join(&b'=')));
        let env = env.collect::<Result<Vec<_>>>()?.into();
        let runtime = nix::unistd::getpid();
        match clone3(flags, cgroup).map_err(failed)? {
            Cloned::Parent { pid, pidfd } => Ok(Self { pid, pidfd, socket, error_pipe }),
            Cloned::Child => {
                let (what, errno) = (|| {
                    process::set_parent_death_signal(libc::SIGKILL).map_err(|errno| (String::new(), errno))?;
                    // The child waits until the runtime has moved it to its cgroup.
                    if nix::unistd::getppid() != runtime
                        || !matches!(socket::receive(&theirs, &mut [0; 1], true), Ok((1, _)))
                    {
                        process::exit(1);
                    }
                    before()?;
                    let no_object = |errno| (String::new(), errno);
                    // criu opens its directories through the process that created the socket, so that process must be in
                    // the same mount namespace.
                    let (own, runtimes) = pair().map_err(no_object)?;
                    socket::send(&theirs, b"s", Some(runtimes.as_fd())).map_err(no_object)?;
                    for fd in inherited.iter().copied().chain([own.as_fd()]) {
                        process::dup_onto(fd, fd.as_raw_fd()).map_err(no_object)?;
                    }
                    let number = CString::new(own.as_raw_fd().to_string()).unwrap_or_default();
                    let argv = vec![path.clone(), c"swrk".to_owned(), number].into();
                    Err((program.display().to_string(), process::execve(&path, &argv, &env)))
                })()
                .map_or_else(|failure| failure, |()| (String::new(), Errno::EINVAL));
                let _ = nix::unistd::write(&error_writer, format!("{what}: {}", errno.desc()).as_bytes());
                process::exit(1)
            }
        }
    }

    /// Its process, which has not been waited for.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Sends a request, and calls `stage` at each stage. Returns the first process of a restored container. `log` is criu's
    /// log, for errors.
    pub fn ask(
        &self,
        request: Request,
        options: &Message,
        log: &std::path::Path,
        stage: &mut dyn FnMut(Stage<'_>) -> Result<()>,
    ) -> Result<i32> {
        let io = |errno| Error::errno(Step::Host, "criu", errno);
        socket::send(&self.socket, b"g", None).map_err(io)?;
        let talk = match socket::receive(&self.socket, &mut [0; 1], true).map_err(io)? {
            (1, Some(talk)) => talk,
            _ => return Err(self.died(request, log)),
        };
        let mut message = Message::default();
        message.number(1, request as u64).message(2, options);
        socket::send(&talk, &message.0, None).map_err(io)?;
        let mut refused = None;
        let mut buffer = vec![0; MAX_MESSAGE];
        loop {
            let (length, fd) = socket::receive(&talk, &mut buffer, true).map_err(io)?;
            let answer = Answer::parse(&buffer[..length]).filter(|_| length > 0);
            let Some(answer) = answer else {
                return Err(refused.unwrap_or_else(|| self.died(request, log)));
            };
            if answer.kind != NOTIFY {
                if answer.success && answer.kind == request as u64 {
                    return refused.map_or(Ok(answer.pid), Err);
                }
                return Err(refused.unwrap_or_else(|| failure(request, &answer, log)));
            }
            let handled = stage(Stage { name: &answer.stage, pid: answer.pid, fd });
            if answer.stage == PRE_RESUME
                && let Err(error) = handled
            {
                // criu would ignore the error and hang: the killed container cannot be reaped while criu traces its
                // children.
                let _ = process::pidfd_send_signal(self.pidfd.as_fd(), libc::SIGKILL);
                return Err(error);
            }
            let mut reply = Message::default();
            reply.number(1, NOTIFY).number(3, u64::from(handled.is_ok()));
            refused = refused.or(handled.err());
            socket::send(&talk, &reply.0, None).map_err(io)?;
        }
    }

    fn died(&self, request: Request, log: &std::path::Path) -> Error {
        let mut text = [0; 512];
        let length = nix::unistd::read(&self.error_pipe, &mut text).unwrap_or(0);
        match length {
            0 => failure(request, &Answer::default(), log),
            length => Error::new(Step::Host, "criu", String::from_utf8_lossy(&text[..length])),
        }
    }
}

/// The error that criu returned, or else the first error in its log.
fn failure(request: Request, answer: &Answer, log: &std::path::Path) -> Error {
    let text = std::fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let first = text.lines().find(|line| line.contains("Error (")).map(str::trim);
    let reason = match (answer.reason.trim(), first) {
        ("", None) => "failed".to_owned(),
        ("", Some(line)) => format!("failed: {line}"),
        (reason, _) => format!("failed: {reason}"),
    };
    let why = if answer.errno == 0 { reason } else { format!("{reason} ({})", Errno::from_raw(answer.errno).desc()) };
    let step = if request == Request::Restore { Step::Restore } else { Step::Checkpoint };
    Error::new(step, "criu", why).hint(format!("see {}", log.display()))
}

/// A descriptor's number, as the protocol encodes it.
pub fn fd_number(fd: &impl AsRawFd) -> u64 {
    let fd: RawFd = fd.as_raw_fd();
    fd as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_encoded_as_protocol_buffers_are() {
        let mut inner = Message::default();
        inner.number(1, 150).flag(3, false).flag(4, true);
        let mut message = Message::default();
        message.number(1, 2).message(2, &inner).bytes(37, b"ab");
        assert_eq!(message.0, [0x08, 2, 0x12, 5, 0x08, 0x96, 1, 0x20, 1, 0xaa, 2, 2, b'a', b'b']);
    }

    #[test]
    fn truncated_answers_are_survived() {
        let mut notify = Message::default();
        notify.bytes(1, b"post-restore").number(2, 77);
        let mut message = Message::default();
        message.number(1, NOTIFY).number(2, 1).message(5, &notify).bytes(9, b"why").number(7, 2);
        let answer = Answer::parse(&message.0).unwrap();
        assert_eq!((answer.stage.as_str(), answer.pid, answer.reason.as_str()), ("post-restore", 77, "why"));
        assert!(answer.success && answer.errno == 2);
        for length in 0..message.0.len() {
            let _ = Answer::parse(&message.0[..length]);
        }
        assert!(Answer::parse(&[0x12, 0xff]).is_none() && Answer::parse(&[0xff; 12]).is_none());
    }
}
