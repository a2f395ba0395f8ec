//! The events of a supervised tree.

use std::os::fd::AsFd as _;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::Supervisor;
use crate::error::{Error, Result, Step};

/// An event that [`Supervisor::wait`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    Signal,
    Timer,
    Dead,
    Message,
    Started,
}

impl Supervisor<'_> {
    /// Waits for events. Once the tree is dead only signals, deadlines and the last output remain.
    pub(super) fn wait(&self, alive: bool) -> Result<Vec<Event>> {
        let mut events = vec![Event::Signal, Event::Timer];
        let readable = |fd| PollFd::new(fd, PollFlags::POLLIN);
        let mut polled = vec![readable(self.signals.as_fd()), readable(self.timer.as_fd())];
        if alive {
            events.push(Event::Dead);
            polled.push(readable(self.pidfd.as_fd()));
            if self.listening {
                events.push(Event::Message);
                polled.push(readable(self.ends.control.as_fd()));
            }
            if self.starting {
                events.push(Event::Started);
                polled.push(readable(self.ends.failure.as_fd()));
            }
        }
        let input = self.pumps.input.as_ref().filter(|_| alive);
        if let Some(denials) = self.denials.as_ref().filter(|_| alive) {
            polled.extend(denials.interests());
        }
        for pump in [input, self.pumps.output.as_ref(), self.pumps.error.as_ref()].into_iter().flatten() {
            polled.extend(pump.interests().into_iter().flatten());
        }
        loop {
            match poll(&mut polled, PollTimeout::NONE) {
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(Error::errno(Step::Supervise, "poll", errno)),
                Ok(_) => break,
            }
        }
        Ok(events.into_iter().zip(&polled).filter(|(_, fd)| fd.any().unwrap_or(true)).map(|(event, _)| event).collect())
    }
}
