//! Writing when a run is over: no signal is to cut that short, unless nobody reads.

use std::os::fd::AsFd;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::sandbox::Blocked;
use crate::sys::alarm::Alarm;

/// Writes all of it. A reader who keeps us waiting for longer than a second has the signals come through that are held back:
/// one of them may be all that can end us.
pub fn write(fd: impl AsFd, bytes: &[u8], held: Option<&Blocked>) -> nix::Result<()> {
    // Without a clock they come through at once: half a word is better than none.
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
            // The caller's flag, and not our hurry.
            Err(Errno::EAGAIN) => match poll(&mut [PollFd::new(fd.as_fd(), PollFlags::POLLOUT)], PollTimeout::NONE) {
                Err(Errno::EINTR) => held.into_iter().for_each(Blocked::let_through),
                polled => drop(polled?),
            },
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}
