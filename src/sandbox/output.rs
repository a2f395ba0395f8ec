//! The workload's standard streams: passed through untouched where that is safe, and pumped by the supervisor where they
//! have to be bounded, or kept away from the caller's terminal or from a file that is only to be appended to.
//!
//! The mode of an open file (`O_NONBLOCK`, `O_APPEND`) belongs to all who share it, also after the run. It is never changed
//! here; the workload gets pipes opened anew, and what it did to the mode of anything else is undone.

use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags};
use nix::sys::stat::{SFlag, fstat};
use sha2::{Digest as _, Sha256};

use super::prepare::ChildStream;
use super::standard::{copy_of, is_file, is_same, is_terminal, kind, mode, own_pipe, unblocking};
use crate::error::{Error, Result, Step};
use crate::plan::{Keep, OutputLimit, RunPlan, hex};
use crate::report;
use crate::sys::process::borrow_standard;
use crate::sys::terminal::{self, Size};

/// How much a pump holds on its way; also what one turn reads.
const BUFFER: usize = 64 * 1024;
/// What a write to a pipe that polls writable can always take, `pipe(7)`.
const PIPE_BUF: usize = 4096;

/// The supervisor's side of the streams.
#[derive(Debug, Default)]
pub struct Pumps {
    /// To the workload's standard input.
    pub input: Option<Pump>,
    /// From its standard output (or its terminal).
    pub output: Option<Pump>,
    /// From its standard error.
    pub error: Option<Pump>,
    /// Whether input and output go through a terminal of its own.
    pub terminal: bool,
    /// What the terminal's output is bounded to.
    limit: Option<OutputLimit>,
    input_wanted: bool,
    /// The caller's streams that the workload shares, and the mode they had before.
    shared: Vec<(i32, OFlag)>,
}

/// Decides for each stream, and makes the pipes that are needed.
pub fn prepare(plan: &RunPlan) -> Result<([ChildStream; 3], Option<Size>, Pumps)> {
    for number in 0..3 {
        refuse_directory(number)?;
    }
    let stdio = &plan.stdio;
    if stdio.tty {
        let size = terminal::size(borrow_standard(0)).or_else(|_| terminal::size(borrow_standard(1)));
        let size = size.unwrap_or(Size { rows: 24, columns: 80 });
        let pumps = Pumps { terminal: true, limit: stdio.output_limit, input_wanted: stdio.stdin, ..Pumps::default() };
        return Ok(([ChildStream::Null, ChildStream::Null, ChildStream::Null], Some(size), pumps));
    }
    // A terminal is never handed over: its input could be read, and on old kernels faked, from inside.
    let watched = stdio.output_limit.is_some() || plan.deadlines.idle_us.is_some();
    let mut pumps = Pumps::default();
    let stdin = match stdio.stdin {
        false => ChildStream::Null,
        true if is_terminal(0) => {
            let (read, write) = pipe()?;
            pumps.input = Some(Pump::new(Source::new(copy_of(0)?), Sink::new(never_block(write)?), None));
            ChildStream::Own(read)
        }
        // What a pump reads ahead would be lost to who reads after us.
        true => match own_pipe(0)? {
            Some(own) => ChildStream::Own(own),
            None => pumps.share(0)?,
        },
    };
    let mut output = |number| -> Result<(ChildStream, Option<Pump>)> {
        if !watched && !is_terminal(number) {
            match kind(number) {
                SFlag::S_IFIFO => {
                    if let Some(own) = own_pipe(number)? {
                        return Ok((ChildStream::Own(own), None));
                    }
                }
                // At hand, it could be written over, or cut off.
                SFlag::S_IFREG if stdio.relay || mode(number)?.contains(OFlag::O_APPEND) => {}
                _ => return Ok((pumps.share(number)?, None)),
            }
        }
        let (read, write) = pipe()?;
        let pump = Pump::new(Source::new(never_block(read)?), Sink::new(unblocking(number)?), stdio.output_limit);
        Ok((ChildStream::Own(write), Some(pump)))
    };
    let (stdout, to_stdout) = output(1)?;
    let (stderr, to_stderr) = match &stdout {
        // One pipe, or what goes to the one file would change its order.
        ChildStream::Own(pipe) if !watched && to_stdout.is_some() && is_file(1) && is_same(1, 2) => {
            let pipe = pipe.try_clone().map_err(|error| Error::io(Step::Streams, "pipe", &error))?;
            (ChildStream::Own(pipe), None)
        }
        _ => output(2)?,
    };
    (pumps.output, pumps.error) = (to_stdout, to_stderr);
    Ok(([stdin, stdout, stderr], None, pumps))
}

/// A directory as a standard stream would lead out of the sandbox.
pub fn refuse_directory(number: i32) -> Result<()> {
    let object = ["standard input", "standard output", "standard error"][number as usize];
    let stat = fstat(borrow_standard(number)).map_err(|errno| Error::errno(Step::Streams, object, errno))?;
    if SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT == SFlag::S_IFDIR {
        return Err(Error::new(Step::Streams, object, "is a directory, which would lead out of the sandbox"));
    }
    Ok(())
}

/// A pipe of which the supervisor keeps one end, which never blocks it.
fn pipe() -> Result<(OwnedFd, OwnedFd)> {
    nix::unistd::pipe2(OFlag::O_CLOEXEC).map_err(|errno| Error::errno(Step::Streams, "pipe", errno))
}

fn never_block(fd: OwnedFd) -> Result<OwnedFd> {
    let failed = |errno| Error::errno(Step::Streams, "pipe", errno);
    let flags = OFlag::from_bits_retain(fcntl(&fd, FcntlArg::F_GETFL).map_err(failed)?);
    fcntl(&fd, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK)).map_err(failed)?;
    Ok(fd)
}

impl Pumps {
    /// Hands a stream of the caller's over as it is.
    fn share(&mut self, number: i32) -> Result<ChildStream> {
        self.shared.push((number, mode(number)?));
        Ok(ChildStream::Inherited(borrow_standard(number)))
    }

    /// Once the workload is dead: takes back what it changed of the mode of the caller's streams.
    pub fn restore(&self) {
        for (number, before) in &self.shared {
            if mode(*number).is_ok_and(|now| now != *before) {
                let _ = fcntl(borrow_standard(*number), FcntlArg::F_SETFL(*before));
            }
        }
    }

    /// Between the caller's streams and a terminal, if there is one; otherwise none.
    pub fn bridge(terminal: Option<OwnedFd>) -> Result<Self> {
        let is_terminal = terminal.is_some();
        let mut pumps = Self { terminal: is_terminal, input_wanted: is_terminal, ..Self::default() };
        if let Some(master) = terminal {
            pumps.attach_terminal(master)?;
        }
        Ok(pumps)
    }

    /// The terminal's master side has come: input goes to it, output comes from it.
    pub fn attach_terminal(&mut self, master: OwnedFd) -> Result<()> {
        let master = never_block(master)?;
        if self.input_wanted {
            let copy = master.try_clone().map_err(|error| Error::new(Step::Terminal, "", error.to_string()))?;
            self.input = Some(Pump::new(Source::new(copy_of(0)?), Sink::new(copy), None));
        }
        self.output = Some(Pump::new(Source::new(master), Sink::new(unblocking(1)?), self.limit));
        Ok(())
    }

    /// Those that carry what the workload prints.
    pub fn outputs(&mut self) -> impl Iterator<Item = &mut Pump> {
        [&mut self.output, &mut self.error].into_iter().flatten()
    }

    /// Why output was lost, unless only because nobody reads it any more.
    pub fn failure(&self) -> Option<Error> {
        let named = [(&self.output, "standard output"), (&self.error, "standard error")];
        named.into_iter().find_map(|(pump, name)| Some(Error::errno(Step::Output, name, pump.as_ref()?.lost?)))
    }

    /// What was printed, if it was bounded.
    pub fn record(&self) -> Option<report::Output> {
        let stream = |pump: &Option<Pump>| pump.as_ref().map(Pump::record).unwrap_or_else(empty_record);
        let bounded = [&self.output, &self.error].into_iter().flatten().any(|pump| pump.limit.is_some());
        bounded.then(|| report::Output { stdout: stream(&self.output), stderr: stream(&self.error) })
    }
}

fn empty_record() -> report::Stream {
    report::Stream { sha256: hex(&Sha256::digest([])), ..report::Stream::default() }
}

#[derive(Debug)]
struct Source(Option<OwnedFd>);

impl Source {
    fn new(fd: OwnedFd) -> Self {
        Self(Some(fd))
    }
}

#[derive(Debug)]
struct Sink {
    fd: Option<OwnedFd>,
    /// What it is, `inode(7)`.
    kind: SFlag,
}

impl Sink {
    fn new(fd: OwnedFd) -> Self {
        let kind = fstat(&fd).map_or(SFlag::empty(), |stat| SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT);
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

/// Carries bytes from a source to a sink, never blocking, bounded in memory, counting and perhaps dropping.
#[derive(Debug)]
pub struct Pump {
    source: Source,
    sink: Sink,
    limit: Option<OutputLimit>,
    waiting: VecDeque<u8>,
    /// Bytes that came.
    seen: u64,
    /// Bytes that were passed on, and their hash, if it will be asked for.
    passed: u64,
    hash: Option<Sha256>,
    /// Why the sink took no more, where that is not for want of a reader.
    lost: Option<Errno>,
}

impl Pump {
    fn new(source: Source, sink: Sink, limit: Option<OutputLimit>) -> Self {
        let hash = limit.map(|_| Sha256::new());
        Self { source, sink, limit, waiting: VecDeque::new(), seen: 0, passed: 0, hash, lost: None }
    }

    /// What to poll for: the source while there is room, the sink while there is something for it.
    pub fn interests(&self) -> [Option<PollFd<'_>>; 2] {
        let source = self.source.0.as_ref().filter(|_| self.has_room());
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
        !(self.waiting.is_empty() || self.keeps_tail() && self.source.0.is_some())
    }

    /// Whether nothing more will come through.
    pub fn is_done(&self) -> bool {
        self.source.0.is_none() && (self.waiting.is_empty() || self.sink.fd.is_none())
    }

    /// Whether more came than may.
    pub fn is_over(&self) -> bool {
        self.limit.is_some_and(|limit| self.seen > limit.bytes)
    }

    /// Whether the run is to end when it is.
    pub fn kills(&self) -> bool {
        self.is_over() && self.limit.is_some_and(|limit| limit.keep == Keep::Kill)
    }

    /// Takes what the source has now, one buffer at most; whether anything came.
    pub fn take(&mut self) -> bool {
        let Some(fd) = self.source.0.as_ref().filter(|_| self.has_room()) else { return false };
        let mut buffer = [0; BUFFER];
        let room = if self.keeps_tail() { BUFFER } else { BUFFER - self.waiting.len().min(BUFFER) };
        match nix::unistd::read(fd, &mut buffer[..room]) {
            Ok(0) | Err(Errno::EIO) => self.source.0 = None, // EIO: a terminal nobody has open any more
            Ok(length) => {
                self.admit(length, &buffer);
                return true;
            }
            Err(Errno::EAGAIN | Errno::EINTR) => {}
            Err(errno) => {
                self.lost.get_or_insert(errno); // what was still to come
                self.source.0 = None;
            }
        }
        self.finish();
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

    /// Gives the sink what it can take now.
    pub fn give(&mut self) {
        if !self.has_output() {
            return self.finish();
        }
        let Some(fd) = &self.sink.fd else { return };
        // A sink that may block is only ever written to when it can take a piece at once.
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
                        Errno::EIO => self.sink.kind == SFlag::S_IFCHR, // a terminal that is gone, and no broken disk
                        errno => matches!(errno, Errno::EPIPE | Errno::ECONNRESET | Errno::ENOTCONN),
                    };
                    self.lost = (!unread).then_some(errno);
                    // Let the workload notice as it would without us.
                    self.waiting.clear();
                    self.sink.fd = None;
                    self.source.0 = None;
                    break;
                }
            }
        }
        self.finish();
    }

    /// Passes the end of the stream on.
    fn finish(&mut self) {
        if self.source.0.is_none() && self.waiting.is_empty() {
            self.sink.fd = None;
        }
    }

    /// As [`Self::take`], for a source that may block: only if it polls readable.
    pub fn take_if_ready(&mut self) {
        let ready = self.has_room() && self.source.0.as_ref().is_some_and(|fd| polls(fd, PollFlags::POLLIN));
        if ready {
            self.take();
        }
    }

    /// Gives up on a sink that takes nothing.
    pub fn abandon(&mut self) {
        self.source.0 = None;
        self.waiting.clear();
        self.finish();
    }

    fn record(&self) -> report::Stream {
        report::Stream {
            bytes: self.seen,
            kept: self.passed,
            truncated: self.passed < self.seen,
            sha256: hex(&self.hash.clone().unwrap_or_default().finalize()),
        }
    }

    /// What it reads from: the master side, when that is a terminal of the sandbox's own.
    pub fn source_fd(&self) -> Option<BorrowedFd<'_>> {
        self.source.0.as_ref().map(|fd| fd.as_fd())
    }
}

fn polls(fd: &OwnedFd, flags: PollFlags) -> bool {
    let mut polled = [PollFd::new(fd.as_fd(), flags)];
    nix::poll::poll(&mut polled, nix::poll::PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
}
