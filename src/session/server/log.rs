//! What the session's own command printed: the last part of each stream, and the clients that read it.

use std::collections::VecDeque;
use std::os::fd::{AsFd as _, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags};

use super::Server;
use super::commands::Asked;
use crate::session::place::Held;
use crate::session::protocol::Reply;
use crate::session::record::{self, Output};

/// The bytes that are kept of each stream.
const KEPT: usize = 1 << 20;
/// One read or write.
const PIECE: usize = 64 << 10;
/// How many pieces of a stream are read at the end: more than a pipe holds.
const MOST_PIECES: usize = 32;

/// A stream of the own command.
#[derive(Debug)]
struct Stream {
    /// `None` after its end.
    source: Option<OwnedFd>,
    kept: VecDeque<u8>,
    /// How many bytes came before those that are kept.
    dropped: u64,
}

/// Both output streams.
#[derive(Debug)]
pub struct Log([Stream; 2]);

/// A client that reads the log.
#[derive(Debug)]
pub struct Reader {
    /// The connection.
    pub connection: u64,
    /// The request.
    pub request: u64,
    tails: [Tail; 2],
}

/// How far a client has read a stream.
#[derive(Debug)]
struct Tail {
    /// `None` when it has everything, or has closed it.
    sink: Option<OwnedFd>,
    at: u64,
    /// Where it stops; `None` follows the stream to its end.
    until: Option<u64>,
}

/// A pipe whose supervisor's end does not block: the read end first if the supervisor writes.
fn pipe() -> Result<(OwnedFd, OwnedFd), Errno> {
    nix::unistd::pipe2(OFlag::O_CLOEXEC)
}

fn never_block(fd: &OwnedFd) -> Result<(), Errno> {
    use nix::fcntl::{FcntlArg, fcntl};
    let flags = OFlag::from_bits_retain(fcntl(fd, FcntlArg::F_GETFL)?);
    fcntl(fd, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK)).map(drop)
}

impl Log {
    /// A log, and the ends of its pipes for the command.
    pub fn new() -> Result<(Self, [OwnedFd; 2]), Errno> {
        let [(out, out_end), (error, error_end)] = [pipe()?, pipe()?];
        never_block(&out)?;
        never_block(&error)?;
        let stream = |source| Stream { source: Some(source), kept: VecDeque::new(), dropped: 0 };
        Ok((Self([stream(out), stream(error)]), [out_end, error_end]))
    }

    /// What to poll.
    pub fn interests(&self) -> impl Iterator<Item = PollFd<'_>> {
        self.0.iter().filter_map(|stream| Some(PollFd::new(stream.source.as_ref()?.as_fd(), PollFlags::POLLIN)))
    }

    /// Reads what there is, a piece of each stream. Returns whether there was something.
    pub fn read(&mut self) -> bool {
        self.0.each_mut().map(Stream::read).contains(&true)
    }

    /// Reads what the command left in its pipes. It is dead; if another process has its output open, that one may print on.
    fn read_the_rest(&mut self) {
        for _ in 0..MOST_PIECES {
            if !self.read() {
                return;
            }
        }
    }

    /// Writes what is kept beside the record, and says what that is.
    fn save(&self, held: &Held) -> Output {
        let [stdout, stderr] = self
            .0
            .each_ref()
            .map(|stream| record::Stream { kept_bytes: stream.kept.len() as u64, dropped_bytes: stream.dropped });
        let written = held.write_output(self.0.each_ref().map(|stream| stream.kept.as_slices().into()));
        Output { stdout, stderr, lost: written.err().map(|errno| errno.desc().to_owned()) }
    }

    /// A new reader, and the ends of its pipes for the client.
    pub fn reader(
        &self,
        connection: u64,
        request: u64,
        follow: bool,
        from_now: bool,
    ) -> Result<(Reader, [OwnedFd; 2]), Errno> {
        let tail = |stream: &Stream| -> Result<_, Errno> {
            let (end, sink) = pipe()?;
            never_block(&sink)?;
            let until = (!follow).then(|| stream.end());
            let at = if from_now { stream.end() } else { stream.dropped };
            Ok((Tail { sink: Some(sink), at, until }, end))
        };
        let [(out, out_end), (error, error_end)] = [tail(&self.0[0])?, tail(&self.0[1])?];
        Ok((Reader { connection, request, tails: [out, error] }, [out_end, error_end]))
    }

    /// Passes on to a reader what it accepts now. Returns whether it has everything.
    pub fn give(&self, reader: &mut Reader) -> bool {
        for (tail, stream) in reader.tails.iter_mut().zip(&self.0) {
            tail.take(stream);
        }
        reader.tails.iter().all(|tail| tail.sink.is_none())
    }

    /// What to poll to continue with a reader: where something waits for it.
    pub fn waiting<'a>(&'a self, reader: &'a Reader) -> impl Iterator<Item = PollFd<'a>> {
        reader.tails.iter().zip(&self.0).filter_map(|(tail, stream)| {
            let sink = tail.sink.as_ref().filter(|_| tail.at < stream.end())?;
            Some(PollFd::new(sink.as_fd(), PollFlags::POLLOUT))
        })
    }
}

impl Stream {
    /// How many bytes came.
    fn end(&self) -> u64 {
        self.dropped + self.kept.len() as u64
    }

    /// Reads a piece. Returns whether there was one.
    fn read(&mut self) -> bool {
        let Some(source) = &self.source else { return false };
        let mut buffer = [0; PIECE];
        match nix::unistd::read(source, &mut buffer) {
            Err(Errno::EAGAIN | Errno::EINTR) => false,
            Ok(0) | Err(_) => {
                self.source = None;
                false
            }
            Ok(length) => {
                self.kept.extend(&buffer[..length]);
                let over = self.kept.len().saturating_sub(KEPT);
                self.kept.drain(..over);
                self.dropped += over as u64;
                true
            }
        }
    }
}

impl Tail {
    fn take(&mut self, stream: &Stream) {
        while let Some(sink) = &self.sink {
            self.at = self.at.max(stream.dropped); // a slow reader misses what was dropped
            let end = self.until.unwrap_or(u64::MAX).min(stream.end());
            if self.at >= end {
                if self.until.is_some() || stream.source.is_none() {
                    self.sink = None;
                }
                return;
            }
            let (from, to) = ((self.at - stream.dropped) as usize, (end - stream.dropped) as usize);
            let (first, second) = stream.kept.as_slices();
            let piece = match from < first.len() {
                true => &first[from..to.min(first.len())],
                false => &second[from - first.len()..to - first.len()],
            };
            match nix::unistd::write(sink, &piece[..piece.len().min(PIECE)]) {
                Ok(written) => self.at += written as u64,
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => return,
                Err(_) => self.sink = None, // nobody reads it any more
            }
        }
    }
}

impl Server<'_> {
    /// Passes the last output on, and keeps it beside the record.
    pub(super) fn end_log(&mut self) -> Option<Output> {
        self.log.as_mut()?.read_the_rest();
        self.pass_on_log();
        self.log.as_ref().map(|log| log.save(self.held))
    }

    /// Writes to the readers of the log what they have room for, and answers those that have everything.
    pub(super) fn pass_on_log(&mut self) {
        let Some(log) = &self.log else { return };
        let mut done = Vec::new();
        self.readers.retain_mut(|reader| {
            let has_everything = log.give(reader);
            if has_everything {
                done.push(Asked { connection: reader.connection, request: reader.request });
            }
            !has_everything
        });
        done.into_iter().for_each(|asked| self.tell(Some(asked), Reply::default(), Vec::new()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn everything(end: &OwnedFd) -> Vec<u8> {
        crate::sys::file::content(end).unwrap()
    }

    #[test]
    fn a_reader_gets_the_last_part_and_a_follower_what_comes() {
        let (mut log, [out, error]) = Log::new().unwrap();
        nix::unistd::write(&error, b"oops").unwrap();
        let line = [b'x'; 1000];
        for _ in 0..2000 {
            nix::unistd::write(&out, &line).unwrap();
            log.read();
        }
        nix::unistd::write(&out, b"last").unwrap();
        log.read();
        let (mut reader, [from_out, from_error]) = log.reader(1, 1, false, false).unwrap();
        let (mut follower, [followed, _]) = log.reader(1, 2, true, false).unwrap();
        let collector = std::thread::spawn(move || (everything(&from_out), everything(&from_error)));
        let following = std::thread::spawn(move || everything(&followed));
        while !log.give(&mut reader) {
            std::thread::yield_now();
        }
        let (read, read_error) = collector.join().unwrap();
        assert_eq!((read.len(), &read[KEPT - 4..], read_error.as_slice()), (KEPT, &b"last"[..], &b"oops"[..]));
        drop((out, error));
        log.read();
        while !log.give(&mut follower) {
            std::thread::yield_now();
        }
        assert!(following.join().unwrap().ends_with(b"last"));
        assert_eq!(log.interests().count(), 0);
    }

    #[test]
    fn a_reader_that_does_not_read_delays_nothing() {
        let (mut log, [out, _error]) = Log::new().unwrap();
        let (mut slow, [end, _]) = log.reader(1, 1, true, false).unwrap();
        for _ in 0..5000 {
            nix::unistd::write(&out, &[b'y'; 1000]).unwrap();
            log.read();
            assert!(!log.give(&mut slow));
        }
        assert_eq!(log.waiting(&slow).count(), 1);
        drop(end);
        log.give(&mut slow);
        assert_eq!(log.waiting(&slow).count(), 0);
    }
}
