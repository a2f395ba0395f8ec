//! Writes at the end of a run. Signals stay blocked, so that they cannot cut the output short; a stalled reader unblocks
//! them.

use std::os::fd::AsFd;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::launch::signals::Blocked;
use crate::sys::alarm::Alarm;

/// Writes all bytes. If the reader stalls for more than a second, the blocked signals are delivered: one of them may be the
/// only way to end this process.
pub fn write(fd: impl AsFd, bytes: &[u8], held: Option<&Blocked>) -> nix::Result<()> {
    // Without a timer the signals are delivered at once: truncated output is better than a process that cannot be ended.
    let alarm = held.map(|_| Alarm::every_second());
    if let (Some(Err(_)), Some(held)) = (&alarm, held) {
        held.let_through();
    }
    let mut rest = bytes;
    while !rest.is_empty() {
        match nix::unistd::write(&fd, rest) {
            Ok(0) => return Err(Errno::EIO),
            Ok(count) => rest = rest.get(count..).unwrap_or_default(),
            Err(Errno::EINTR) => held.into_iter().for_each(Blocked::let_through),
            // The caller made the file O_NONBLOCK.
            Err(Errno::EAGAIN) => match poll(&mut [PollFd::new(fd.as_fd(), PollFlags::POLLOUT)], PollTimeout::NONE) {
                Err(Errno::EINTR) => held.into_iter().for_each(Blocked::let_through),
                polled => drop(polled?),
            },
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// Whether a short message can be written without waiting for the reader.
pub fn is_writable(fd: impl AsFd) -> bool {
    let mut polled = [PollFd::new(fd.as_fd(), PollFlags::POLLOUT)];
    poll(&mut polled, PollTimeout::ZERO) == Ok(1) && polled[0].revents() == Some(PollFlags::POLLOUT)
}
