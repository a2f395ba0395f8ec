//! A tree of processes that ends as one: how it is signalled and killed, and how its death is noticed.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::rc::Rc;

use nix::poll::{PollFd, PollFlags};
use nix::unistd::Pid;

use super::bare::Orphans;
use crate::cgroup::commands;
use crate::error::Result;
use crate::launch::requests::Outbox;
use crate::sys::process;

/// The processes of a command.
#[derive(Debug)]
pub enum Tree {
    /// All of a sandbox: pid 1, and with it every process in its pid namespace. Without a pid namespace, init ends them.
    Sandbox {
        /// The id of pid 1 on the host.
        pid: Pid,
        /// Pid 1.
        pidfd: OwnedFd,
        /// Without a pid namespace: what init leaves if it dies.
        orphans: Option<Orphans>,
    },
    /// Those in a cgroup: one command of a session.
    Cgroup {
        /// Its number in the session.
        number: u64,
        /// For requests to the session's init.
        init: Rc<Outbox>,
        /// `cgroup.events`.
        events: OwnedFd,
    },
    /// Those below a keeper: one command of a session without cgroups.
    Kept {
        /// Its number in the session.
        number: u64,
        /// For requests to the session's init.
        init: Rc<Outbox>,
        /// The keeper's id on the host and its pidfd, once init has sent them.
        keeper: Option<(i32, OwnedFd)>,
        /// Whether the keeper has said that nothing is left.
        emptied: bool,
    },
}

impl Tree {
    /// What becomes ready when every process is dead. A keeper sends a message instead.
    pub fn end(&self) -> Option<PollFd<'_>> {
        match self {
            Self::Sandbox { pidfd, .. } => Some(PollFd::new(pidfd.as_fd(), PollFlags::POLLIN)),
            Self::Cgroup { events, .. } => Some(PollFd::new(events.as_fd(), PollFlags::POLLPRI)),
            Self::Kept { .. } => None,
        }
    }

    /// Whether it is dead, if [`Self::end`] was `ready` or not, and its first process has `ended`.
    pub fn is_dead(&self, ready: bool, ended: bool) -> bool {
        match self {
            Self::Sandbox { .. } => ready,
            // Read in any case, because the kernel reports only changes since the last reading.
            Self::Cgroup { events, .. } => commands::is_empty(events) && ended,
            Self::Kept { emptied, .. } => *emptied,
        }
    }

    /// Sends a signal to init, which forwards it to the command's process group (or is the workload itself).
    pub fn signal(&self, signal: libc::c_int) {
        match self {
            Self::Sandbox { pid, pidfd, .. } => send(pidfd.as_fd(), *pid, signal),
            Self::Cgroup { number, init, .. } | Self::Kept { number, init, .. } => {
                init.signal(*number, signal);
            }
        }
    }

    /// Waits for what init has left that ended with this status.
    pub fn reap(&self, status: libc::c_int) -> Result<()> {
        match self {
            Self::Sandbox { orphans: Some(orphans), .. } if status != 0 => orphans.reap(),
            _ => Ok(()),
        }
    }

    /// Pid 1, if it ends with the tree.
    pub fn first(&self) -> Option<Pid> {
        match self {
            Self::Sandbox { pid, .. } => Some(*pid),
            Self::Cgroup { .. } | Self::Kept { .. } => None,
        }
    }

    /// A process that all others descend from, on the host.
    pub fn root(&self) -> Option<i32> {
        match self {
            Self::Sandbox { pid, .. } => Some(pid.as_raw()),
            Self::Cgroup { .. } => None,
            Self::Kept { keeper, .. } => keeper.as_ref().map(|(pid, _)| *pid),
        }
    }
}

/// Sends a signal to our child.
fn send(pidfd: BorrowedFd<'_>, pid: Pid, signal: libc::c_int) {
    if process::pidfd_send_signal(pidfd, signal).is_err() {
        // pidfd_send_signal may be refused by a filter around us. Until it is reaped, the number is our child's.
        let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::try_from(signal).ok());
    }
}
