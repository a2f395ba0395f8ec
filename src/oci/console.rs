//! A container's terminal goes to whom `--console-socket` names; its process to `--pidfd-socket`.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::Path;

use nix::errno::Errno;

use super::Runtime;
use crate::error::{Error, Result, Step};
use crate::plan::{Bytes, ContainerPlan};
use crate::sandbox::container::Launched;
use crate::sys::socket;

impl Runtime {
    /// That a terminal has somewhere to go, before anything is made. `bridged`: we stay, and can bridge it ourselves.
    pub(super) fn check_console(&self, plan: &ContainerPlan, bridged: bool) -> Result<()> {
        let wrong = |reason: &str| Err(Error::new(Step::Terminal, "process.terminal", reason));
        match (plan.process.terminal, self.args.path("console-socket").is_some()) {
            (true, false) if !bridged => wrong("is true, and there is no --console-socket to hand the terminal to"),
            (false, true) => wrong("is false, and --console-socket was given"),
            _ => Ok(()),
        }
    }

    /// Hands over what is to be handed over.
    pub(super) fn hand_over(&self, launched: &mut Launched) -> Result<()> {
        if let Some(path) = self.args.path("pidfd-socket") {
            send(&path, b"pidfd", launched.pidfd.as_fd())?;
        }
        if let Some(path) = self.args.path("console-socket")
            && let Some(terminal) = launched.terminal.take()
        {
            send(&path, b"/dev/pts/0", terminal.as_fd())?;
        }
        Ok(())
    }

    /// How many descriptors beyond the standard streams are the program's: those of socket activation, then those asked for.
    /// To be asked before we open any ourselves, whose numbers would pass for those.
    pub(super) fn preserved(&self) -> Result<u32> {
        let activated = activated();
        let asked = self.args.number::<u32>("preserve-fds")?.unwrap_or(0);
        let all = activated.saturating_add(asked);
        // All of them: what is not open now would be a descriptor of ours later. The first that is not ends it.
        for number in 3..all.saturating_add(3) {
            let open = i32::try_from(number).map_err(|_| Errno::EBADF).and_then(crate::sys::inherited::duplicate);
            open.map(drop).map_err(|errno| {
                Error::errno(Step::Descriptors, format!("descriptor {number}"), errno)
                    .hint("--preserve-fds counts descriptors from 3 on, each of which must be open")
            })?;
        }
        Ok(all)
    }
}

/// How many descriptors a service manager handed to this very process, `sd_listen_fds(3)`.
fn activated() -> u32 {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u32>().ok());
    number("LISTEN_FDS").filter(|_| number("LISTEN_PID") == Some(std::process::id())).unwrap_or(0)
}

/// What tells the container's first process of them.
pub fn activation() -> Vec<Bytes> {
    let count = activated();
    if count == 0 {
        return Vec::new();
    }
    let mut told = vec![Bytes::from(&format!("LISTEN_FDS={count}")), Bytes::from("LISTEN_PID=1")];
    if let Some(names) = std::env::var_os("LISTEN_FDNAMES") {
        told.push(Bytes::from(
            [b"LISTEN_FDNAMES=", std::os::unix::ffi::OsStrExt::as_bytes(names.as_os_str())].concat(),
        ));
    }
    told
}

fn send(path: &Path, message: &[u8], fd: BorrowedFd<'_>) -> Result<()> {
    let failed = |errno| Error::errno(Step::Terminal, path.display().to_string(), errno);
    let socket: OwnedFd = socket::connect(path).map_err(failed)?;
    socket::send(&socket, message, Some(fd)).map_err(failed)
}
