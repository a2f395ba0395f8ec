//! `NOTIFY_SOCKET`: passes a container's messages to the service manager, `sd_notify(3)`.
//!
//! The container gets a socket of its own, bound from its state directory, and never the manager's. Only messages about the
//! service itself are passed on: none about other processes (`MAINPID=`), and no descriptors.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::error::{Error, Result, Step};
use crate::plan::container::{ContainerMount, MountSource};
use crate::plan::{Bytes, ContainerPlan};
use crate::sys::mount::{NODEV, NOEXEC, NOSUID, RDONLY};

const DIRECTORY: &str = "notify";
const SOCKET: &str = "notify.sock";
const INSIDE: &str = "/run/notify";

/// The longest message that is read; longer ones are truncated. No message that is passed on is that long.
const MAX_MESSAGE: usize = 4096;

/// The messages that are passed on.
const PASSED_ON: [&[u8]; 6] = [b"READY=", b"RELOADING=", b"STOPPING=", b"STATUS=", b"ERRNO=", b"WATCHDOG=1"];

/// The manager's socket, if there is a manager.
pub fn manager() -> Option<OsString> {
    std::env::var_os("NOTIFY_SOCKET").filter(|path| !path.is_empty())
}

/// Creates the directory for a container's socket, and adds its mount and variable to the plan.
pub fn prepare(directory: &Path, plan: &mut ContainerPlan) -> Result<()> {
    let place = directory.join(DIRECTORY);
    let made = std::fs::DirBuilder::new().mode(0o755).create(&place);
    made.and_then(|()| std::fs::set_permissions(&place, std::fs::Permissions::from_mode(0o755))).map_err(io)?;
    plan.mounts.push(ContainerMount {
        destination: INSIDE.into(),
        source: MountSource::Bind { source: Bytes::from(&place), recursive: false },
        set: RDONLY | NOSUID | NODEV | NOEXEC,
        ..ContainerMount::default()
    });
    plan.process.command.env.retain(|variable| !variable.as_bytes().starts_with(b"NOTIFY_SOCKET="));
    plan.process.command.env.push(Bytes::from(&format!("NOTIFY_SOCKET={INSIDE}/{SOCKET}")));
    Ok(())
}

/// A container's socket, and the manager's.
#[derive(Debug)]
pub struct Listener {
    own: UnixDatagram,
    manager: UnixDatagram,
}

impl Listener {
    /// Opens both sockets, if there is a manager and [`prepare`] was called for the container.
    pub fn open(directory: &Path) -> Result<Option<Self>> {
        let place = directory.join(DIRECTORY);
        let (Some(manager), true) = (manager(), place.is_dir()) else { return Ok(None) };
        // Through the directory's descriptor, because a socket address holds only a short path.
        let dir = std::fs::File::open(&place).map_err(io)?;
        let path = format!("/proc/self/fd/{}/{SOCKET}", dir.as_raw_fd());
        let _ = std::fs::remove_file(&path); // a stale socket
        let own = UnixDatagram::bind(&path).map_err(io)?;
        // Writable for any user of the container.
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o777)).map_err(io)?;
        Ok(Some(Self { own, manager: connect(&manager).map_err(io)? }))
    }

    /// Passes messages on until the container is ready or has exited. The manager will watch the process `main`.
    pub fn wait_until_ready(&self, container: BorrowedFd<'_>, main: u32) -> Result<()> {
        while let Some(message) = self.next(container)? {
            self.pass_on(&message);
            if message.split(|byte| *byte == b'\n').any(|line| line == b"READY=1") {
                let _ = self.manager.send(format!("MAINPID={main}\n").as_bytes());
                return Ok(());
            }
        }
        Ok(())
    }

    /// Passes messages on until the container has exited.
    pub fn follow(&self, container: BorrowedFd<'_>, main: u32) {
        let _ = self.wait_until_ready(container, main);
        while let Ok(Some(message)) = self.next(container) {
            self.pass_on(&message);
        }
    }

    fn next(&self, container: BorrowedFd<'_>) -> Result<Option<Vec<u8>>> {
        loop {
            let readable = |fd| PollFd::new(fd, PollFlags::POLLIN);
            let mut polled = [readable(self.own.as_fd()), readable(container)];
            match poll(&mut polled, PollTimeout::NONE) {
                Err(Errno::EINTR) => continue,
                polled => polled.map_err(|errno| Error::errno(Step::Notify, "poll", errno))?,
            };
            if !polled[0].any().unwrap_or(true) {
                return Ok(None); // the container has exited, and all its messages were read
            }
            let mut message = vec![0; MAX_MESSAGE];
            let length = self.own.recv(&mut message).map_err(io)?;
            message.truncate(length);
            return Ok(Some(message));
        }
    }

    fn pass_on(&self, message: &[u8]) {
        let lines = message.split(|byte| *byte == b'\n');
        let kept: Vec<u8> = lines
            .filter(|line| PASSED_ON.iter().any(|name| line.starts_with(name)))
            .flat_map(|line| [line, b"\n"].concat())
            .collect();
        if !kept.is_empty() {
            let _ = self.manager.send(&kept); // a failure is ignored: the manager has exited
        }
    }
}

/// Connects to a path, or after an `@` to an abstract name.
fn connect(manager: &OsStr) -> std::io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    match manager.as_bytes().split_first() {
        Some((b'@', name)) => socket.connect_addr(&SocketAddr::from_abstract_name(name)?)?,
        _ => socket.connect(manager)?,
    }
    Ok(socket)
}

fn io(error: std::io::Error) -> Error {
    Error::io(Step::Notify, "NOTIFY_SOCKET", &error)
}
