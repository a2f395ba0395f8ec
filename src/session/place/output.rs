//! What the own command of a session printed: two files beside the record of a session that has ended.

use std::os::fd::OwnedFd;

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::{Mode, SFlag, fstat};
use nix::unistd::{UnlinkatFlags, unlinkat};

use super::directory::kind;
use super::{Held, Place, planted};
use crate::error::Result;
use crate::sys::process::rlimit;

/// Standard output and standard error.
pub(super) const STREAMS: [&str; 2] = ["stdout", "stderr"];

impl Held {
    /// Writes both streams, each in two pieces. If that fails, nothing of them stays: a part would look like all of it.
    pub fn write_output(&self, streams: [[&[u8]; 2]; 2]) -> std::result::Result<(), Errno> {
        // Beyond this limit the kernel sends SIGXFSZ, which kills the process.
        let (limit, _) = rlimit(libc::RLIMIT_FSIZE as u32)?;
        let longest = streams.iter().map(|pieces| pieces.iter().map(|piece| piece.len() as u64).sum()).max();
        if longest.unwrap_or(0) > limit {
            return Err(Errno::EFBIG);
        }
        let written = STREAMS.iter().zip(streams).try_for_each(|(name, pieces)| self.write_stream(name, pieces));
        written.inspect_err(|_| self.remove_output())
    }

    fn write_stream(&self, name: &str, pieces: [&[u8]; 2]) -> std::result::Result<(), Errno> {
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let file = openat(&self.place.directory, name, flags, Mode::from_bits_truncate(0o600))?;
        for mut rest in pieces {
            while !rest.is_empty() {
                match nix::unistd::write(&file, rest) {
                    Err(Errno::EINTR) => {}
                    written => rest = &rest[written?..],
                }
            }
        }
        Ok(())
    }

    /// Removes what [`write_output`](Self::write_output) wrote.
    pub fn remove_output(&self) {
        for name in STREAMS {
            let _ = unlinkat(&self.place.directory, name, UnlinkatFlags::NoRemoveDir);
        }
    }
}

impl Place {
    /// Both streams, to read from.
    pub fn output(&self) -> Result<[OwnedFd; 2]> {
        let [out, error] = STREAMS.map(|name| self.stream(name));
        Ok([out?, error?])
    }

    fn stream(&self, name: &str) -> Result<OwnedFd> {
        let path = self.path.join(name);
        let failed = |errno| match errno {
            Errno::ELOOP => planted(&path, "is not a regular file"),
            errno => self.failed(name, errno),
        };
        let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
        let file = openat(&self.directory, name, flags, Mode::empty()).map_err(failed)?;
        match kind(&fstat(&file).map_err(failed)?) {
            SFlag::S_IFREG => Ok(file),
            _ => Err(planted(&path, "is not a regular file")),
        }
    }
}
