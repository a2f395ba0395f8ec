//! Runs criu, which saves and restores processes: one `criu swrk`, with its protocol over a socket.
//!
//! criu notifies at each stage, and waits for a reply before it continues.

use std::ffi::CString;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::PathBuf;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use nix::unistd::Pid;

use super::messages::{CriuOpts, CriuReq, CriuResp};
use crate::error::{Error, Result, Step};
use crate::sys::clone::{Cloned, clone3};
use crate::sys::{helper, process, socket};

/// How long criu may take to exit.
const EXIT_TIMEOUT_MS: u16 = 5_000;

/// The longest message that is read.
const MAX_MESSAGE: usize = 64 << 10;

/// The requests to criu.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Request {
    Dump = 1,
    Restore = 2,
    PreDump = 4,
}

/// `NOTIFY` of `criu_req_type`.
const NOTIFY: u64 = 6;

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
        options: CriuOpts,
        log: &std::path::Path,
        stage: &mut dyn FnMut(Stage<'_>) -> Result<()>,
    ) -> Result<i32> {
        let io = |errno| Error::errno(Step::Host, "criu", errno);
        socket::send(&self.socket, b"g", None).map_err(io)?;
        let talk = match socket::receive(&self.socket, &mut [0; 1], true).map_err(io)? {
            (1, Some(talk)) => talk,
            _ => return Err(self.died(request, log)),
        };
        let message = CriuReq { kind: request as u64, opts: Some(options), notify_success: false };
        socket::send(&talk, &message.encode(), None).map_err(io)?;
        let mut refused = None;
        let mut buffer = vec![0; MAX_MESSAGE];
        loop {
            let (length, fd) = socket::receive(&talk, &mut buffer, true).map_err(io)?;
            let answer = CriuResp::decode(&buffer[..length]).filter(|_| length > 0);
            let Some(answer) = answer else {
                return Err(refused.unwrap_or_else(|| self.died(request, log)));
            };
            if answer.kind != NOTIFY {
                if answer.success && answer.kind == request as u64 {
                    return refused.map_or(Ok(answer.restore.map_or(0, |restored| restored.pid as i32)), Err);
                }
                return Err(refused.unwrap_or_else(|| failure(request, &answer, log)));
            }
            let notify = answer.notify.unwrap_or_default();
            let name = String::from_utf8_lossy(&notify.script);
            let handled = stage(Stage { name: &name, pid: notify.pid as i32, fd });
            if name == PRE_RESUME
                && let Err(error) = handled
            {
                // criu would ignore the error and hang: the killed container cannot be reaped while criu traces its
                // children.
                let _ = process::pidfd_send_signal(self.pidfd.as_fd(), libc::SIGKILL);
                return Err(error);
            }
            let reply = CriuReq { kind: NOTIFY, opts: None, notify_success: handled.is_ok() };
            refused = refused.or(handled.err());
            socket::send(&talk, &reply.encode(), None).map_err(io)?;
        }
    }

    fn died(&self, request: Request, log: &std::path::Path) -> Error {
        let mut text = [0; 512];
        let length = nix::unistd::read(&self.error_pipe, &mut text).unwrap_or(0);
        match length {
            0 => failure(request, &CriuResp::default(), log),
            length => Error::new(Step::Host, "criu", String::from_utf8_lossy(&text[..length])),
        }
    }
}

/// The error that criu returned, or else the first error in its log.
fn failure(request: Request, answer: &CriuResp, log: &std::path::Path) -> Error {
    let text = std::fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let first = text.lines().find(|line| line.contains("Error (")).map(str::trim);
    let reason = String::from_utf8_lossy(&answer.cr_errmsg);
    let reason = match (reason.trim(), first) {
        ("", None) => "failed".to_owned(),
        ("", Some(line)) => format!("failed: {line}"),
        (reason, _) => format!("failed: {reason}"),
    };
    let why = match answer.cr_errno as i32 {
        0 => reason,
        errno => format!("{reason} ({})", Errno::from_raw(errno).desc()),
    };
    let step = if request == Request::Restore { Step::Restore } else { Step::Checkpoint };
    Error::new(step, "criu", why).hint(format!("see {}", log.display()))
}

/// A descriptor's number, as the protocol encodes it.
pub fn fd_number(fd: &impl AsRawFd) -> u64 {
    let fd: RawFd = fd.as_raw_fd();
    fd as u64
}
