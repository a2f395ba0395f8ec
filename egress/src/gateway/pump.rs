//! Moves bytes from one socket to another, within the kernel.

use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{OFlag, SpliceFFlags, splice};
use nix::sys::socket::{Shutdown, shutdown};
use std::os::fd::AsRawFd as _;
use tokio::io::Interest;
use tokio::net::TcpStream;

use super::meter::Meter;
use super::traffic::Count;

/// What both directions of a connection share.
#[derive(Debug)]
pub struct Shared {
    /// When the last byte was moved.
    pub moved: Cell<Instant>,
}

/// One direction.
#[derive(Debug)]
pub struct Pump<'a> {
    /// Where bytes come from.
    pub from: &'a TcpStream,
    /// Where they go.
    pub to: &'a TcpStream,
    /// Bytes so far.
    pub bytes: &'a Count,
    /// The time of the last.
    pub shared: &'a Shared,
    /// The bounds of all connections.
    pub meter: &'a Meter,
}

/// The pipe between two splices.
struct Pipe {
    reader: OwnedFd,
    writer: OwnedFd,
}

impl Pump<'_> {
    /// Moves everything until the end of file, which it passes on. `Ok(false)` means that the budget is used up.
    pub async fn run(&self) -> io::Result<bool> {
        let (reader, writer) = nix::unistd::pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK)?;
        let pipe = Pipe { reader, writer };
        loop {
            self.meter.wait().await;
            let moved = self.from.async_io(Interest::READABLE, || self.take(&pipe)).await?;
            match moved {
                None => return Ok(false),
                Some(0) => break,
                Some(length) => self.give(&pipe, length).await?,
            }
        }
        // The other direction stays open.
        shutdown(self.to.as_raw_fd(), Shutdown::Write)
            .or_else(|errno| match errno {
                Errno::ENOTCONN => Ok(()),
                errno => Err(errno.into()),
            })
            .map(|()| true)
    }

    /// Bytes into the empty pipe. `None` means that none are allowed any more.
    fn take(&self, pipe: &Pipe) -> io::Result<Option<usize>> {
        match self.meter.may() {
            0 => Ok(None),
            most => {
                let moved = splice(self.from.as_fd(), None, pipe.writer.as_fd(), None, most, flags())?;
                self.meter.count(moved as u64);
                Ok(Some(moved))
            }
        }
    }

    async fn give(&self, pipe: &Pipe, mut left: usize) -> io::Result<()> {
        while left > 0 {
            let give = || Ok(splice(pipe.reader.as_fd(), None, self.to.as_fd(), None, left, flags())?);
            let moved = self.to.async_io(Interest::WRITABLE, give).await?;
            left -= moved;
            self.bytes.add(moved as u64);
            self.shared.moved.set(Instant::now());
        }
        Ok(())
    }
}

/// Returns when nothing was moved for this time.
pub async fn idle(shared: &Shared, time: Duration) {
    loop {
        let until = shared.moved.get() + time;
        if until <= Instant::now() {
            return;
        }
        tokio::time::sleep_until(until.into()).await;
    }
}

fn flags() -> SpliceFFlags {
    SpliceFFlags::SPLICE_F_MOVE | SpliceFFlags::SPLICE_F_NONBLOCK
}
