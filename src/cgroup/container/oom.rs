//! Hearing at once when the kernel kills for want of memory.

use std::os::fd::{AsFd as _, OwnedFd};

use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags};
use nix::sys::eventfd::{EfdFlags, EventFd};

use super::{Groups, stats};
use crate::cgroup::v1;

/// What tells of it: on v2 a file whose changes are announced, on v1 a counter that the kernel was told of.
#[derive(Debug)]
pub struct OomWatch {
    /// `memory.events`, or `memory.oom_control`, which has to stay open.
    file: OwnedFd,
    counter: Option<EventFd>,
    kills: u64,
}

impl Groups {
    /// `None` where no controller of this host counts it.
    pub fn watch_oom(&self) -> Option<OomWatch> {
        let dir = self.with("memory")?;
        let v2 = self.places.is_v2();
        let file = dir.file(if v2 { "memory.events" } else { "memory.oom_control" }, OFlag::O_RDONLY).ok()?;
        let counter = if v2 {
            None
        } else {
            let counter = EventFd::from_value_and_flags(0, EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK).ok()?;
            v1::announce_oom(dir, &counter, &file).ok()?;
            Some(counter)
        };
        Some(OomWatch { file, counter, kills: stats::oom_kills(self).unwrap_or(0) })
    }
}

impl OomWatch {
    /// To be waited for.
    pub fn poll_fd(&self) -> PollFd<'_> {
        match &self.counter {
            Some(counter) => PollFd::new(counter.as_fd(), PollFlags::POLLIN),
            None => PollFd::new(self.file.as_fd(), PollFlags::POLLPRI),
        }
    }

    /// Whether it happened since it was asked last.
    pub fn happened(&mut self, groups: &Groups) -> bool {
        if let Some(counter) = &self.counter {
            // It counts before anything is killed; and once more when the cgroup goes, which is no lack of memory.
            return counter.read().is_ok() && stats::oom_kills(groups).is_some();
        }
        // Reading is what makes the next change be announced.
        let _ = crate::cgroup::files::content(&self.file);
        let before = self.kills;
        self.kills = stats::oom_kills(groups).unwrap_or(before).max(before);
        self.kills > before
    }
}
