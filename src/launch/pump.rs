//! Copies the bytes of one stream between caller and workload.

use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags};
use nix::sys::stat::{SFlag, fstat};
use sha2::{Digest as _, Sha256};

use crate::plan::{Keep, OutputLimit, hex};
use crate::report;

/// Size of a pump's buffer, and of one read.
const BUFFER: usize = 64 * 1024;
/// A write of this size to a pipe that polls writable never blocks, `pipe(7)`.
const PIPE_BUF: usize = 4096;

#[derive(Debug)]
struct Sink {
    fd: Option<OwnedFd>,
    /// The file type, `inode(7)`.
    kind: SFlag,
}

impl Sink {
    fn new(fd: OwnedFd) -> Self {
        let kind = kind(&fd);
        Self { fd: Some(fd), kind }
    }

    fn write(fd: &OwnedFd, kind: SFlag, bytes: &[u8]) -> std::result::Result<usize, Errno> {
        use nix::sys::socket::{MsgFlags, send};
        if kind == SFlag::S_IFREG {
            return nix::unistd::write(fd, bytes);
        }
        let bytes = &bytes[..bytes.len().min(PIPE_BUF)];
        if kind == SFlag::S_IFSOCK {
            return send(fd.as_raw_fd(), bytes, MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL);
        }
        nix::unistd::write(fd, bytes)
    }
}

fn kind(fd: &OwnedFd) -> SFlag {
    fstat(fd).map_or(SFlag::empty(), |stat| SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT)
}

/// Copies bytes from a source to a sink. It never blocks, has a bounded buffer, counts, and may drop bytes.
#[derive(Debug)]
pub struct Pump {
    /// `None` after its end.
    source: Option<OwnedFd>,
    sink: Sink,
    /// The limit of what passes.
    pub limit: Option<OutputLimit>,
    waiting: VecDeque<u8>,
    /// Bytes read.
    seen: u64,
    /// Bytes written, and their hash, if the report needs it.
    passed: u64,
    hash: Option<Sha256>,
    /// Why the sink failed, except for the loss of its reader.
    pub lost: Option<Errno>,
}

impl Pump {
    /// A pump with an empty buffer.
    pub fn new(source: OwnedFd, sink: OwnedFd, limit: Option<OutputLimit>) -> Self {
        let hash = limit.map(|_| Sha256::new());
        Self {
            source: Some(source),
            sink: Sink::new(sink),
            limit,
            waiting: VecDeque::new(),
            seen: 0,
            passed: 0,
            hash,
            lost: None,
        }
    }

    /// What to poll: the source if there is room, the sink if there are bytes for it.
    pub fn interests(&self) -> [Option<PollFd<'_>>; 2] {
        let source = self.source.as_ref().filter(|_| self.has_room());
        let sink = self.sink.fd.as_ref().filter(|_| self.has_output());
        [
            source.map(|fd| PollFd::new(fd.as_fd(), PollFlags::POLLIN)),
            sink.map(|fd| PollFd::new(fd.as_fd(), PollFlags::POLLOUT)),
        ]
    }

    fn keeps_tail(&self) -> bool {
        self.limit.is_some_and(|limit| limit.keep == Keep::Tail)
    }

    fn has_room(&self) -> bool {
        self.keeps_tail() || self.waiting.len() < BUFFER
    }

    fn has_output(&self) -> bool {
        !(self.waiting.is_empty() || self.keeps_tail() && self.source.is_some())
    }

    /// Whether no more bytes can follow.
    pub fn is_done(&self) -> bool {
        self.source.is_none() && (self.waiting.is_empty() || self.sink.fd.is_none())
    }

    /// Whether more bytes arrived than the limit allows.
    pub fn is_over(&self) -> bool {
        self.limit.is_some_and(|limit| self.seen > limit.bytes)
    }

    /// Whether exceeding the limit ends the run.
    pub fn kills(&self) -> bool {
        self.is_over() && self.limit.is_some_and(|limit| limit.keep == Keep::Kill)
    }

    /// Reads at most one buffer from the source. Returns whether it read anything.
    pub fn take(&mut self) -> bool {
        let Some(fd) = self.source.as_ref().filter(|_| self.has_room()) else { return false };
        let mut buffer = [0; BUFFER];
        let room = if self.keeps_tail() { BUFFER } else { BUFFER - self.waiting.len().min(BUFFER) };
        match nix::unistd::read(fd, &mut buffer[..room]) {
            Ok(0) => self.source = None,
            // No process has the terminal open any more. From a pipe it is an error.
            Err(Errno::EIO) if kind(fd) == SFlag::S_IFCHR => self.source = None,
            Ok(length) => {
                self.admit(length, &buffer);
                return true;
            }
            Err(Errno::EAGAIN | Errno::EINTR) => {}
            Err(errno) => {
                self.lost.get_or_insert(errno); // the rest of the output
                self.source = None;
            }
        }
        self.close_sink();
        false
    }

    fn admit(&mut self, length: usize, buffer: &[u8]) {
        let bytes = &buffer[..length];
        let before = self.seen;
        self.seen += length as u64;
        if self.sink.fd.is_none() {
            return;
        }
        match self.limit {
            None => self.waiting.extend(bytes),
            Some(OutputLimit { bytes: limit, keep: Keep::Tail }) => {
                self.waiting.extend(bytes);
                let limit = usize::try_from(limit).unwrap_or(usize::MAX);
                self.waiting.drain(..self.waiting.len().saturating_sub(limit));
            }
            Some(OutputLimit { bytes: limit, .. }) => {
                let room = usize::try_from(limit.saturating_sub(before)).unwrap_or(usize::MAX);
                self.waiting.extend(&bytes[..length.min(room)]);
            }
        }
    }

    /// Writes as much as the sink accepts now.
    pub fn give(&mut self) {
        if !self.has_output() {
            return self.close_sink();
        }
        let Some(fd) = &self.sink.fd else { return };
        // A sink that may block is written to only if it accepts one piece without blocking.
        while !self.waiting.is_empty() && polls(fd, PollFlags::POLLOUT) {
            let (front, _) = self.waiting.as_slices();
            match Sink::write(fd, self.sink.kind, front) {
                Ok(written) => {
                    if let Some(hash) = &mut self.hash {
                        hash.update(&front[..written]);
                    }
                    self.passed += written as u64;
                    self.waiting.drain(..written);
                }
                Err(Errno::EAGAIN | Errno::EINTR) => break,
                Err(errno) => {
                    let unread = match errno {
                        Errno::EIO => self.sink.kind == SFlag::S_IFCHR, // a closed terminal; from a disk it is an error
                        errno => matches!(errno, Errno::EPIPE | Errno::ECONNRESET | Errno::ENOTCONN),
                    };
                    self.lost = (!unread).then_some(errno);
                    // The workload gets SIGPIPE or EPIPE, as it would without the relay.
                    self.waiting.clear();
                    self.sink.fd = None;
                    self.source = None;
                    break;
                }
            }
        }
        self.close_sink();
    }

    /// Closes the sink after the end of the source.
    fn close_sink(&mut self) {
        if self.source.is_none() && self.waiting.is_empty() {
            self.sink.fd = None;
        }
    }

    /// As [`Self::take`], for a source that may block: reads only if it polls readable.
    pub fn take_if_ready(&mut self) {
        let ready = self.has_room() && self.source.as_ref().is_some_and(|fd| polls(fd, PollFlags::POLLIN));
        if ready {
            self.take();
        }
    }

    /// Gives up on a sink that accepts nothing.
    pub fn abandon(&mut self) {
        self.source = None;
        self.waiting.clear();
        self.close_sink();
    }

    /// What the report says about a limited stream.
    pub fn record(&self) -> report::Stream {
        report::Stream {
            bytes: self.seen,
            kept: self.passed,
            truncated: self.passed < self.seen,
            sha256: hex(&self.hash.clone().unwrap_or_default().finalize()),
        }
    }

    /// The source's descriptor: the master side, for a terminal of the sandbox's own.
    pub fn source_fd(&self) -> Option<BorrowedFd<'_>> {
        self.source.as_ref().map(|fd| fd.as_fd())
    }
}

fn polls(fd: &OwnedFd, flags: PollFlags) -> bool {
    let mut polled = [PollFd::new(fd.as_fd(), flags)];
    nix::poll::poll(&mut polled, nix::poll::PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
}
