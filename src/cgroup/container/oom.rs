//! Notification when the kernel kills a process because memory ran out.

use std::os::fd::{AsFd as _, OwnedFd};

use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags};
use nix::sys::eventfd::{EfdFlags, EventFd};

use super::{Groups, stats};
use crate::cgroup::v1;

/// The source of the notification: in v2 a file whose changes the kernel signals, in v1 an eventfd counter.
#[derive(Debug)]
pub struct OomWatch {
    /// `memory.events`, or `memory.oom_control`, which must stay open.
    file: OwnedFd,
    counter: Option<EventFd>,
    kills: u64,
}

impl Groups {
    /// `None` if this host has no controller that counts OOM kills.
    pub fn watch_oom(&self) -> Option<OomWatch> {
        let dir = self.with("memory")?;
        let v2 = self.places.is_v2();
        let file = dir.file(if v2 { "memory.events" } else { "memory.oom_control" }, OFlag::O_RDONLY).ok()?;
        let counter = if v2 {
            None
        } else {
            let counter = EventFd::from_value_and_flags(0, EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK).ok()?;
            v1::register_oom_counter(dir, &counter, &file).ok()?;
            Some(counter)
        };
        Some(OomWatch { file, counter, kills: stats::oom_kills(self).unwrap_or(0) })
    }
}

impl OomWatch {
    /// The descriptor to poll.
    pub fn poll_fd(&self) -> PollFd<'_> {
        match &self.counter {
            Some(counter) => PollFd::new(counter.as_fd(), PollFlags::POLLIN),
            None => PollFd::new(self.file.as_fd(), PollFlags::POLLPRI),
        }
    }

    /// Whether an OOM kill happened since the last call.
    pub fn happened(&mut self, groups: &Groups) -> bool {
        if let Some(counter) = &self.counter {
            // The counter changes before the kill. It also changes when the cgroup is removed, which must not count.
            return counter.read().is_ok() && stats::oom_kills(groups).is_some();
        }
        // A read makes the kernel signal the next change.
        let _ = crate::cgroup::files::content(&self.file);
        let before = self.kills;
        self.kills = stats::oom_kills(groups).unwrap_or(before).max(before);
        self.kills > before
    }
}
