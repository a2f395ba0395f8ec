//! The workload's standard streams. A stream is passed through unchanged where that is safe. The supervisor relays it if it
//! must be limited, or kept away from the caller's terminal or from an append-only file.
//!
//! The mode of an open file (`O_NONBLOCK`, `O_APPEND`) is shared by every process that has it open, also after the run. It is
//! never changed here. The workload gets reopened pipes, and its changes to the mode of other streams are undone.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::stat::{Mode, SFlag, fchmod, fstat};
use nix::sys::statfs::fstatfs;
use sha2::{Digest as _, Sha256};

use super::pump::Pump;
use super::standard::{copy_of, is_file, is_same, is_terminal, kind, may_write, mode, own_pipe, unblocking};
use crate::error::{Error, Result, Step};
use crate::plan::{OutputLimit, Stdio, hex};
use crate::report;
use crate::sys::process::borrow_standard;
use crate::sys::terminal::{self, Size};

/// One of the workload's standard streams.
#[derive(Debug)]
pub enum ChildStream {
    /// The sandbox's own /dev/null.
    Null,
    /// The caller's stream, unchanged.
    Inherited(BorrowedFd<'static>),
    /// A pipe end that no other process has.
    Own(OwnedFd),
}

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

/// Decides how each stream is connected, and creates the pipes. `workload` are its user and group on the host.
/// `observed` relays output that would otherwise pass unseen, as a deadline for silence requires.
pub fn prepare(stdio: &Stdio, observed: bool, workload: (u32, u32)) -> Result<([ChildStream; 3], Option<Size>, Pumps)> {
    for number in 0..3 {
        refuse_directory(number)?;
    }
    if stdio.tty {
        let size = terminal::size(borrow_standard(0)).or_else(|_| terminal::size(borrow_standard(1)));
        let size = size.unwrap_or(Size { rows: 24, columns: 80 });
        let pumps = Pumps { terminal: true, limit: stdio.output_limit, input_wanted: stdio.stdin, ..Pumps::default() };
        return Ok(([ChildStream::Null, ChildStream::Null, ChildStream::Null], Some(size), pumps));
    }
    // The caller's terminal is never passed on: its input could be read from inside and, on old kernels, faked.
    let watched = observed || stdio.output_limit.is_some();
    let mut pumps = Pumps::default();
    let stdin = match stdio.stdin {
        false => ChildStream::Null,
        true if is_terminal(0) => {
            let (read, write) = pipe()?;
            pumps.input = Some(Pump::new(copy_of(0)?, never_block(write)?, None));
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
                // Root's files usually refuse the workload's user, who then could not open /dev/stderr.
                SFlag::S_IFREG if !may_write(number, workload) => {}
                _ => return Ok((pumps.share(number)?, None)),
            }
        }
        let (read, write) = pipe()?;
        let pump = Pump::new(never_block(read)?, unblocking(number)?, stdio.output_limit);
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

/// Lets a workload with this user id open its pipes anew (`/dev/stderr`), each in the direction of its descriptor. Root's pipes
/// belong to root, and an owner could also read its output back, so the pipe's mode changes instead. No path leads to it.
pub fn let_open_anew(streams: &[ChildStream; 3], workload: u32) {
    const PIPEFS_MAGIC: i64 = 0x5049_5045; // a named FIFO on a file system is left alone
    for (number, stream) in streams.iter().enumerate() {
        let ChildStream::Own(pipe) = stream else { continue };
        let foreign = fstat(pipe).ok().filter(|stat| stat.st_uid != workload);
        let unnamed = fstatfs(pipe).is_ok_and(|found| found.filesystem_type().0 as i64 == PIPEFS_MAGIC);
        if let Some(stat) = foreign.filter(|_| unnamed) {
            let others = if number == 0 { Mode::S_IROTH } else { Mode::S_IWOTH };
            // A caller without privilege cannot change another user's pipe. Then only the descriptor can be used.
            let _ = fchmod(pipe, Mode::from_bits_truncate(stat.st_mode & 0o7777) | others);
        }
    }
}

/// Refuses a directory as a standard stream: it would lead out of the sandbox.
pub fn refuse_directory(number: i32) -> Result<()> {
    refuse_directory_at(number, borrow_standard(number))
}

fn refuse_directory_at(number: i32, stream: BorrowedFd<'_>) -> Result<()> {
    let object = ["standard input", "standard output", "standard error"][number as usize];
    let stat = fstat(stream).map_err(|errno| Error::errno(Step::Streams, object, errno))?;
    if SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT == SFlag::S_IFDIR {
        return Err(Error::new(Step::Streams, object, "is a directory, which would lead out of the sandbox"));
    }
    Ok(())
}

/// The streams of a command in a session, which a client passed. Output that must be counted is relayed, to a pipe or socket
/// alone: a write to them never blocks.
pub fn passed(streams: [OwnedFd; 3], limit: Option<OutputLimit>, observed: bool) -> Result<([ChildStream; 3], Pumps)> {
    for (number, stream) in (0..).zip(&streams) {
        refuse_directory_at(number, stream.as_fd())?;
    }
    let mut pumps = Pumps::default();
    let [stdin, stdout, stderr] = streams;
    let counted = observed || limit.is_some();
    let output = |number: usize, stream: OwnedFd| -> Result<(ChildStream, Option<Pump>)> {
        if !counted {
            return Ok((ChildStream::Own(stream), None));
        }
        let object = ["standard input", "standard output", "standard error"][number];
        let stat = fstat(&stream).map_err(|errno| Error::errno(Step::Streams, object, errno))?;
        let kind = SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT;
        if kind != SFlag::S_IFIFO && kind != SFlag::S_IFSOCK {
            return Err(Error::new(Step::Streams, object, "must be a pipe or a socket, for its output to be counted"));
        }
        let (read, write) = pipe()?;
        Ok((ChildStream::Own(write), Some(Pump::new(never_block(read)?, stream, limit))))
    };
    let (stdout, to_stdout) = output(1, stdout)?;
    let (stderr, to_stderr) = output(2, stderr)?;
    (pumps.output, pumps.error) = (to_stdout, to_stderr);
    Ok(([ChildStream::Own(stdin), stdout, stderr], pumps))
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
            self.input = Some(Pump::new(copy_of(0)?, copy, None));
        }
        self.output = Some(Pump::new(master, unblocking(1)?, self.limit));
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
