//! Sends a container's terminal to `--console-socket`, and its pidfd to `--pidfd-socket`.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::Path;

use nix::errno::Errno;

use super::Runtime;
use crate::container::Launched;
use crate::error::{Error, Result, Step};
use crate::plan::{Bytes, ContainerPlan};
use crate::sys::socket;

impl Runtime {
    /// Checks that a terminal has a receiver. With `bridged` this process stays and bridges the terminal itself.
    pub(super) fn check_console(&self, plan: &ContainerPlan, bridged: bool) -> Result<()> {
        let wrong = |reason: &str| Err(Error::new(Step::Terminal, "process.terminal", reason));
        match (plan.process.terminal, self.args.path("console-socket").is_some()) {
            (true, false) if !bridged => wrong("is true, but --console-socket is missing"),
            (false, true) => wrong("is false, but --console-socket was given"),
            _ => Ok(()),
        }
    }

    /// Whether this process stays and relays the terminal itself.
    pub(super) fn relays_terminal(&self) -> bool {
        self.args.path("console-socket").is_none()
    }

    /// Sends the pidfd and the terminal to the sockets that the caller named.
    pub(super) fn hand_over(&self, launched: &mut Launched) -> Result<()> {
        if let Some(path) = self.args.path("pidfd-socket") {
            send((Step::Supervise, "--pidfd-socket"), &path, b"pidfd", launched.pidfd.as_fd())?;
        }
        if let Some(path) = self.args.path("console-socket")
            && let Some(terminal) = launched.terminal.take()
        {
            send((Step::Terminal, "--console-socket"), &path, b"/dev/pts/0", terminal.as_fd())?;
        }
        Ok(())
    }

    /// How many descriptors after the standard streams the program inherits: those of socket activation, and those of
    /// `--preserve-fds`. Must be called before this process opens descriptors, which would be mistaken for them.
    pub(super) fn preserved(&self) -> Result<u32> {
        let activated = activated();
        let asked = self.args.number::<u32>("preserve-fds")?.unwrap_or(0);
        let all = activated.saturating_add(asked);
        // Each number is checked: one that is closed now could be a descriptor of the runtime later.
        for number in 3..all.saturating_add(3) {
            let open = i32::try_from(number).map_err(|_| Errno::EBADF).and_then(crate::sys::inherited::duplicate);
            open.map(drop).map_err(|errno| {
                Error::errno(Step::Descriptors, format!("descriptor {number}"), errno)
                    .hint("--preserve-fds N requires that the N descriptors from 3 on are open")
            })?;
        }
        Ok(all)
    }
}

/// How many descriptors a service manager passed to this process, `sd_listen_fds(3)`.
fn activated() -> u32 {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u32>().ok());
    number("LISTEN_FDS").filter(|_| number("LISTEN_PID") == Some(std::process::id())).unwrap_or(0)
}

/// The environment variables that announce them to the container's first process.
pub fn activation() -> Vec<Bytes> {
    let count = activated();
    if count == 0 {
        return Vec::new();
    }
    let mut variables = vec![Bytes::from(&format!("LISTEN_FDS={count}")), Bytes::from("LISTEN_PID=1")];
    if let Some(names) = std::env::var_os("LISTEN_FDNAMES") {
        variables.push(Bytes::from(
            [b"LISTEN_FDNAMES=", std::os::unix::ffi::OsStrExt::as_bytes(names.as_os_str())].concat(),
        ));
    }
    variables
}

fn send((step, option): (Step, &str), path: &Path, message: &[u8], fd: BorrowedFd<'_>) -> Result<()> {
    let failed = |errno| Error::errno(step, format!("{option} {}", path.display()), errno);
    let socket: OwnedFd = socket::connect(path).map_err(failed)?;
    socket::send(&socket, message, Some(fd)).map_err(failed)
}
