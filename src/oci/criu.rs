//! Speaking to criu, which saves and restores processes: one `criu swrk`, asked in its protocol over a socket.
//!
//! The protocol is that of `criu/rpc.proto`, in the encoding of protocol buffers; what of it is needed here is spelled out
//! by hand. criu asks back at each stage, and goes no further until it is answered.

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

/// How long it may take to end.
const PATIENCE_MS: u16 = 5_000;

/// Longest message that is read.
const MAX_MESSAGE: usize = 64 << 10;

/// A message, or a part of one, as it is sent.
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

    /// A field that is a number, or a flag.
    pub fn number(&mut self, field: u32, number: u64) -> &mut Self {
        self.varint(u64::from(field) << 3);
        self.varint(number);
        self
    }

    /// A flag, which is left out where it is off.
    pub fn flag(&mut self, field: u32, on: bool) -> &mut Self {
        if on { self.number(field, 1) } else { self }
    }

    /// A field that is text, or a message.
    pub fn bytes(&mut self, field: u32, bytes: &[u8]) -> &mut Self {
        self.varint(u64::from(field) << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
        self
    }

    /// A message within this one.
    pub fn message(&mut self, field: u32, message: &Self) -> &mut Self {
        self.bytes(field, &message.0)
    }
}

/// A field of a message that came.
enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// The fields of a message; `None` if it is none.
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

/// What criu can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Request {
    Dump = 1,
    Restore = 2,
    PreDump = 4,
}

const NOTIFY: u64 = 6;

/// What came from criu.
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

/// The last stage before a restored container runs. Who refuses it has to kill what was restored.
pub const PRE_RESUME: &str = "pre-resume";

/// A stage that criu has come to: its name, the first process as far as it is there, and what came with it.
pub struct Stage<'a> {
    /// `pre-dump`, `setup-namespaces`, `post-restore` and so on.
    pub name: &'a str,
    /// The container's first process.
    pub pid: i32,
    /// The other side of its terminal.
    pub fd: Option<OwnedFd>,
}

/// Where criu is; an error that says so where it is not.
pub fn find() -> Result<PathBuf> {
    helper::find("criu").ok_or_else(|| {
        Error::new(Step::Host, "criu", "is not installed: it saves and restores containers")
            .hint("install criu 3.0 or newer, and let PATH lead to it, by directories that only root can write")
    })
}

fn pair() -> nix::Result<(OwnedFd, OwnedFd)> {
    socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)
}

/// A criu that waits to be asked.
#[derive(Debug)]
pub struct Criu {
    pid: Pid,
    pidfd: OwnedFd,
    socket: OwnedFd,
    /// What the child could not do, in words.
    said: OwnedFd,
}

impl Drop for Criu {
    fn drop(&mut self) {
        // It tidies up when nobody talks to it any more; but we do not wait for ever.
        let _ = nix::sys::socket::shutdown(self.socket.as_raw_fd(), nix::sys::socket::Shutdown::Both);
        let gone = PollFd::new(self.pidfd.as_fd(), PollFlags::POLLIN);
        while let Err(Errno::EINTR) = poll(&mut [gone.clone()], PollTimeout::from(PATIENCE_MS)) {}
        let _ = process::pidfd_send_signal(self.pidfd.as_fd(), libc::SIGKILL);
        let _ = process::wait4(self.pid);
    }
}

impl Criu {
    /// Starts it. `flags` (`CLONE_NEW*`) and `cgroup` are where it is born; `before` is done there before it is executed.
    /// `inherited` stay open in it under their own numbers.
    pub fn start(
        flags: u64,
        cgroup: Option<BorrowedFd<'_>>,
        inherited: &[BorrowedFd<'_>],
        before: impl FnOnce() -> std::result::Result<(), (String, Errno)>,
    ) -> Result<Self> {
        let program = find()?;
        let failed = |errno| Error::errno(Step::Host, "criu", errno);
        let (socket, theirs) = pair().map_err(failed)?;
        let (said, says) =
            nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC | nix::fcntl::OFlag::O_NONBLOCK).map_err(failed)?;
        let c_string = |bytes: &[u8]| CString::new(bytes).map_err(|_| failed(Errno::EINVAL));
        let path = c_string(program.as_os_str().as_bytes())?;
        let env = std::env::vars_os().map(|(name, value)| c_string(&[name.into_vec(), value.into_vec()].join(&b'=')));
        let env = env.collect::<Result<Vec<_>>>()?.into();
        let runtime = nix::unistd::getpid();
        match clone3(flags, cgroup).map_err(failed)? {
            Cloned::Parent { pid, pidfd } => Ok(Self { pid, pidfd, socket, said }),
            Cloned::Child => {
                let (what, errno) = (|| {
                    process::set_parent_death_signal(libc::SIGKILL).map_err(|errno| (String::new(), errno))?;
                    // Whoever asks first: nothing is done before the runtime has put us where we belong.
                    if nix::unistd::getppid() != runtime
                        || !matches!(socket::receive(&theirs, &mut [0; 1], true), Ok((1, _)))
                    {
                        process::exit(1);
                    }
                    before()?;
                    let nowhere = |errno| (String::new(), errno);
                    // It looks for the directories it is given in whoever made the socket: that must be in the same namespace.
                    let (own, runtimes) = pair().map_err(nowhere)?;
                    socket::send(&theirs, b"s", Some(runtimes.as_fd())).map_err(nowhere)?;
                    for fd in inherited.iter().copied().chain([own.as_fd()]) {
                        process::dup_onto(fd, fd.as_raw_fd()).map_err(nowhere)?;
                    }
                    let number = CString::new(own.as_raw_fd().to_string()).unwrap_or_default();
                    let argv = vec![path.clone(), c"swrk".to_owned(), number].into();
                    Err((program.display().to_string(), process::execve(&path, &argv, &env)))
                })()
                .map_or_else(|failure| failure, |()| (String::new(), Errno::EINVAL));
                let _ = nix::unistd::write(&says, format!("{what}: {}", errno.desc()).as_bytes());
                process::exit(1)
            }
        }
    }

    /// Its process, which no one has waited for.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Asks, and answers at each stage; the first process of what was restored. `log` is where criu writes what it does.
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
            let told = stage(Stage { name: &answer.stage, pid: answer.pid, fd });
            if answer.stage == PRE_RESUME
                && let Err(error) = told
            {
                // It goes on all the same, and for ever: what was killed cannot be reaped while criu traces its children.
                let _ = process::pidfd_send_signal(self.pidfd.as_fd(), libc::SIGKILL);
                return Err(error);
            }
            let mut reply = Message::default();
            reply.number(1, NOTIFY).number(3, u64::from(told.is_ok()));
            refused = refused.or(told.err());
            socket::send(&talk, &reply.0, None).map_err(io)?;
        }
    }

    fn died(&self, request: Request, log: &std::path::Path) -> Error {
        let mut text = [0; 512];
        let length = nix::unistd::read(&self.said, &mut text).unwrap_or(0);
        match length {
            0 => failure(request, &Answer::default(), log),
            length => Error::new(Step::Host, "criu", String::from_utf8_lossy(&text[..length])),
        }
    }
}

/// What criu said, and the last error in its log.
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

/// A descriptor's number as the protocol wants it.
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
    fn an_answer_is_whole_or_none() {
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
