//! The destination of the network log: a file that lines are appended to, or a descriptor of the caller.

use std::ffi::OsStr;
use std::os::fd::{AsFd as _, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::{Mode, SFlag, fstat};

use super::report_file;
use crate::error::{Error, Result, Step};
use crate::plan::Bytes;
use crate::sys::walk::{self, Trail};

/// A destination that was opened before the run starts.
#[derive(Debug)]
pub struct NetLog {
    fd: OwnedFd,
    trail: Trail,
}

impl NetLog {
    /// Opens `FILE` for appending, or takes `fd:N`.
    pub fn open(target: &OsStr) -> Result<Self> {
        let opened = match target.as_encoded_bytes().strip_prefix(b"fd:") {
            Some(number) => report_file::inherited_descriptor(number),
            None => report_file::place(target).and_then(append_to),
        };
        let refused = |error: Error| Error {
            step: Step::Egress,
            object: format!("network log {}", Bytes::from(target)),
            ..error
        };
        opened.map_err(refused).map(|(fd, trail)| Self { fd, trail })
    }

    /// Its location; empty if it has none, such as a pipe.
    pub fn trail(&self) -> &Trail {
        &self.trail
    }

    /// The descriptor.
    pub fn into_fd(self) -> OwnedFd {
        self.fd
    }
}

/// Opens or creates a regular file.
fn append_to(place: walk::Place) -> Result<(OwnedFd, Trail)> {
    let errno = |errno: Errno| Error::errno(Step::Egress, "", errno);
    let trail = Trail::of_place(&place);
    let flags =
        OFlag::O_WRONLY | OFlag::O_APPEND | OFlag::O_CREAT | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
    let file =
        openat(&place.directory, place.name.as_os_str(), flags, Mode::from_bits_truncate(0o600)).map_err(errno)?;
    match fstat(file.as_fd()).map_err(errno)?.st_mode & SFlag::S_IFMT.bits() {
        kind if kind == SFlag::S_IFREG.bits() => Ok((file, trail)),
        _ => Err(Error::new(Step::Egress, "", "it is not a regular file").hint("use fd:N for a pipe")),
    }
}
