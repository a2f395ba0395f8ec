//! The workload's standard streams. A stream is passed through unchanged where that is safe. The supervisor relays it if it
//! must be limited, or kept away from the caller's terminal or from an append-only file.
//!
//! The mode of an open file (`O_NONBLOCK`, `O_APPEND`) is shared by every process that has it open, also after the run. It is
//! never changed here. The workload gets reopened pipes, and its changes to the mode of other streams are undone.

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

/// Size of a pump's buffer, and of one read.
const BUFFER: usize = 64 * 1024;
/// A write of this size to a pipe that polls writable never blocks, `pipe(7)`.
const PIPE_BUF: usize = 4096;

/// The supervisor's side of the streams.
#[derive(Debug, Default)]
pub struct Pumps {
    /// To the workload's standard input.
    pub input: Option<Pump>,
    /// From the workload's standard output or terminal.
    pub output: Option<Pump>,
    /// From the workload's standard error.
    pub error: Option<Pump>,
    /// Whether input and output are a terminal of the sandbox's own.
    pub terminal: bool,
    /// The limit of the terminal's output.
    limit: Option<OutputLimit>,
    input_wanted: bool,
    /// The caller's streams that the workload shares, with their mode before the run.
    shared: Vec<(i32, OFlag)>,
}

/// Decides how each stream is connected, and creates the pipes.
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
    // The caller's terminal is never passed on: its input could be read from inside and, on old kernels, faked.
    let watched = stdio.output_limit.is_some() || plan.deadlines.idle_us.is_some();
    let mut pumps = Pumps::default();
    let stdin = match stdio.stdin {
        false => ChildStream::Null,
        true if is_terminal(0) => {
            let (read, write) = pipe()?;
            pumps.input = Some(Pump::new(Source::new(copy_of(0)?), Sink::new(never_block(write)?), None));
            ChildStream::Own(read)
        }
        // A pump reads ahead, and the next reader of the caller's input would lose those bytes.
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
                // With a descriptor of the file itself, the workload could overwrite or truncate it.
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
        // One pipe for both, because two would change the order of output to the same file.
        ChildStream::Own(pipe) if !watched && to_stdout.is_some() && is_file(1) && is_same(1, 2) => {
            let pipe = pipe.try_clone().map_err(|error| Error::io(Step::Streams, "pipe", &error))?;
            (ChildStream::Own(pipe), None)
        }
        _ => output(2)?,
    };
    (pumps.output, pumps.error) = (to_stdout, to_stderr);
    Ok(([stdin, stdout, stderr], None, pumps))
}

/// Refuses a directory as a standard stream: it would lead out of the sandbox.
pub fn refuse_directory(number: i32) -> Result<()> {
    let object = ["standard input", "standard output", "standard error"][number as usize];
    let stat = fstat(borrow_standard(number)).map_err(|errno| Error::errno(Step::Streams, object, errno))?;
    if SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT == SFlag::S_IFDIR {
        return Err(Error::new(Step::Streams, object, "is a directory, which would lead out of the sandbox"));
    }
    Ok(())
}

/// A pipe whose supervisor end is non-blocking.
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
    /// Passes a stream of the caller on unchanged.
    fn share(&mut self, number: i32) -> Result<ChildStream> {
        self.shared.push((number, mode(number)?));
        Ok(ChildStream::Inherited(borrow_standard(number)))
    }

    /// Restores the mode of the caller's streams, after the workload is dead.
    pub fn restore(&self) {
        for (number, before) in &self.shared {
            if mode(*number).is_ok_and(|now| now != *before) {
                let _ = fcntl(borrow_standard(*number), FcntlArg::F_SETFL(*before));
            }
        }
    }

    /// The pumps between the caller's streams and a terminal, if there is one.
    pub fn bridge(terminal: Option<OwnedFd>) -> Result<Self> {
        let is_terminal = terminal.is_some();
        let mut pumps = Self { terminal: is_terminal, input_wanted: is_terminal, ..Self::default() };
        if let Some(master) = terminal {
            pumps.attach_terminal(master)?;
        }
        Ok(pumps)
    }

    /// Connects input and output to the terminal whose master side has arrived.
    pub fn attach_terminal(&mut self, master: OwnedFd) -> Result<()> {
        let master = never_block(master)?;
        if self.input_wanted {
            let copy = master.try_clone().map_err(|error| Error::new(Step::Terminal, "", error.to_string()))?;
            self.input = Some(Pump::new(Source::new(copy_of(0)?), Sink::new(copy), None));
        }
        self.output = Some(Pump::new(Source::new(master), Sink::new(unblocking(1)?), self.limit));
        Ok(())
    }

    /// The pumps that carry the workload's output.
    pub fn outputs(&mut self) -> impl Iterator<Item = &mut Pump> {
        [&mut self.output, &mut self.error].into_iter().flatten()
    }

    /// Why output was lost. Not an error if its reader has only closed it.
    pub fn failure(&self) -> Option<Error> {
        let named = [(&self.output, "standard output"), (&self.error, "standard error")];
        named.into_iter().find_map(|(pump, name)| Some(Error::errno(Step::Output, name, pump.as_ref()?.lost?)))
    }

    /// What the report says about limited output.
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
    /// The file type, `inode(7)`.
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

/// Copies bytes from a source to a sink. It never blocks, has a bounded buffer, counts, and may drop bytes.
#[derive(Debug)]
pub struct Pump {
    source: Source,
    sink: Sink,
    limit: Option<OutputLimit>,
    waiting: VecDeque<u8>,
    /// Bytes read.
    seen: u64,
    /// Bytes written, and their hash, if the report needs it.
    passed: u64,
    hash: Option<Sha256>,
    /// Why the sink failed, except for the loss of its reader.
    lost: Option<Errno>,
}

impl Pump {
    fn new(source: Source, sink: Sink, limit: Option<OutputLimit>) -> Self {
        let hash = limit.map(|_| Sha256::new());
        Self { source, sink, limit, waiting: VecDeque::new(), seen: 0, passed: 0, hash, lost: None }
    }

    /// What to poll: the source if there is room, the sink if there are bytes for it.
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

    /// Whether no more bytes can follow.
    pub fn is_done(&self) -> bool {
        self.source.0.is_none() && (self.waiting.is_empty() || self.sink.fd.is_none())
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
        let Some(fd) = self.source.0.as_ref().filter(|_| self.has_room()) else { return false };
        let mut buffer = [0; BUFFER];
        let room = if self.keeps_tail() { BUFFER } else { BUFFER - self.waiting.len().min(BUFFER) };
        match nix::unistd::read(fd, &mut buffer[..room]) {
            Ok(0) | Err(Errno::EIO) => self.source.0 = None, // EIO: no process has the terminal open any more
            Ok(length) => {
                self.admit(length, &buffer);
                return true;
            }
            Err(Errno::EAGAIN | Errno::EINTR) => {}
            Err(errno) => {
                self.lost.get_or_insert(errno); // the rest of the output
                self.source.0 = None;
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
                    self.source.0 = None;
                    break;
                }
            }
        }
        self.close_sink();
    }

    /// Closes the sink after the end of the source.
    fn close_sink(&mut self) {
        if self.source.0.is_none() && self.waiting.is_empty() {
            self.sink.fd = None;
        }
    }

    /// As [`Self::take`], for a source that may block: reads only if it polls readable.
    pub fn take_if_ready(&mut self) {
        let ready = self.has_room() && self.source.0.as_ref().is_some_and(|fd| polls(fd, PollFlags::POLLIN));
        if ready {
            self.take();
        }
    }

    /// Gives up on a sink that accepts nothing.
    pub fn abandon(&mut self) {
        self.source.0 = None;
        self.waiting.clear();
        self.close_sink();
    }

    fn record(&self) -> report::Stream {
        report::Stream {
            bytes: self.seen,
            kept: self.passed,
            truncated: self.passed < self.seen,
            sha256: hex(&self.hash.clone().unwrap_or_default().finalize()),
        }
    }

    /// The source's descriptor: the master side, for a terminal of the sandbox's own.
    pub fn source_fd(&self) -> Option<BorrowedFd<'_>> {
        self.source.0.as_ref().map(|fd| fd.as_fd())
    }
}

fn polls(fd: &OwnedFd, flags: PollFlags) -> bool {
    let mut polled = [PollFd::new(fd.as_fd(), flags)];
    nix::poll::poll(&mut polled, nix::poll::PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
}
