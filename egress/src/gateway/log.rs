//! Where lines of the network log go: a file, a pipe or socket whose reader is never waited for, and those who follow a session's.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::rc::Rc;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{MsgFlags, send};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::Notify;
use tokio::task::spawn_local;
use tokio::time::timeout;

use super::watch;
use crate::record::Line;

/// The most bytes that wait for a slow reader. Further lines are dropped, and counted in the next one.
const WAITING: usize = 1 << 20;

/// The most bytes of a write: a pipe that polls writable takes as many at once.
const PART: usize = 4096;

/// How many of the last lines a session keeps, and how many readers it has at a time.
const RECENT: usize = 1000;
const READERS: usize = 64;

/// The log.
#[derive(Debug, Default)]
pub struct Log {
    main: Option<Sink>,
    readers: RefCell<Vec<Rc<Stream>>>,
    recent: Option<RefCell<VecDeque<Line>>>,
    failed: Cell<bool>,
}

/// A destination.
#[derive(Debug)]
enum Sink {
    /// A file, which takes every line at once.
    File(RefCell<File>),
    /// A pipe, socket or terminal.
    Stream(Rc<Stream>),
}

/// A destination with a reader.
#[derive(Debug)]
struct Stream {
    /// Whether it is a socket, or so far seems to be one.
    socket: Cell<bool>,
    queue: RefCell<VecDeque<Vec<u8>>>,
    queued: Cell<usize>,
    /// Lines that were dropped: since the last that was not, and in all.
    lost: Cell<u64>,
    all_lost: Cell<u64>,
    grown: Notify,
    emptied: Notify,
    /// Whether it ends when everything was written.
    closes: Cell<bool>,
    broken: Cell<bool>,
}

impl Log {
    /// A log with this destination, if there is one. `keeps` the last lines for later readers. Within the runtime.
    pub fn new(main: Option<OwnedFd>, keeps: bool) -> Self {
        let sink = |fd| match watch(fd, Interest::WRITABLE) {
            Ok(fd) => Sink::Stream(Stream::start(fd)),
            Err(fd) => Sink::File(RefCell::new(File::from(fd))), // what cannot be polled does not block
        };
        Self { main: main.map(sink), recent: keeps.then(RefCell::default), ..Self::default() }
    }

    /// Whether lines go anywhere.
    pub fn is_wanted(&self) -> bool {
        self.main.is_some() || self.recent.is_some()
    }

    /// Adds a line. `false` means that it is lost for good, because its destination has failed.
    pub fn add(&self, line: Line) -> bool {
        let written = match &self.main {
            None => true,
            Some(Sink::Stream(stream)) => {
                stream.add(&line);
                !stream.broken.get()
            }
            Some(Sink::File(file)) => {
                let bytes = text(&line);
                file.borrow_mut().write_all(&bytes).is_ok() // in one call, so that lines of several runs do not mix
            }
        };
        if let Some(recent) = &self.recent {
            let mut readers = self.readers.borrow_mut();
            readers.retain(|reader| !reader.broken.get());
            readers.iter().filter(|reader| !reader.closes.get()).for_each(|reader| reader.add(&line));
            let mut recent = recent.borrow_mut();
            if recent.len() == RECENT {
                recent.pop_front();
            }
            recent.push_back(line);
        }
        if !written {
            self.failed.set(true);
        }
        written
    }

    /// Writes the lines that are kept to a reader's pipe, and if it `follows`, those that come.
    pub fn read(&self, pipe: OwnedFd, follows: bool) -> io::Result<()> {
        let mut readers = self.readers.borrow_mut();
        readers.retain(|reader| !reader.is_done());
        if readers.len() >= READERS {
            return Err(io::ErrorKind::QuotaExceeded.into());
        }
        let pipe = watch(pipe, Interest::WRITABLE).map_err(|_| io::ErrorKind::InvalidInput)?;
        let stream = Stream::start(pipe);
        self.recent.iter().for_each(|recent| recent.borrow().iter().for_each(|line| stream.add(line)));
        stream.closes.set(!follows);
        stream.grown.notify_one();
        readers.push(stream);
        Ok(())
    }

    /// Waits until what is queued was written, at most for `time`. Returns the number of lines of the main destination that were
    /// dropped, and whether it has failed.
    pub async fn finish(&self, time: Duration) -> (u64, bool) {
        let readers = self.readers.take();
        let main = match &self.main {
            Some(Sink::Stream(stream)) => Some(Rc::clone(stream)),
            _ => None,
        };
        let all = async {
            for stream in readers.iter().chain(&main) {
                stream.empty().await;
            }
        };
        let _ = timeout(time, all).await;
        let lost = main.as_ref().map_or(0, |main| main.all_lost.get() + main.queue.borrow().len() as u64);
        (lost, self.failed.get() || main.is_some_and(|main| main.broken.get()))
    }
}

fn text(line: &Line) -> Vec<u8> {
    let mut text = serde_json::to_vec(line).unwrap_or_default();
    text.push(b'\n');
    text
}

impl Stream {
    fn start(fd: AsyncFd<OwnedFd>) -> Rc<Self> {
        let stream = Rc::new(Self {
            socket: Cell::new(true),
            queue: RefCell::default(),
            queued: Cell::new(0),
            lost: Cell::new(0),
            all_lost: Cell::new(0),
            grown: Notify::new(),
            emptied: Notify::new(),
            closes: Cell::new(false),
            broken: Cell::new(false),
        });
        let own = Rc::clone(&stream);
        spawn_local(async move {
            if own.write_all(fd).await.is_err() {
                own.broken.set(true);
                own.queue.borrow_mut().clear();
                own.queued.set(0);
            }
            own.emptied.notify_waiters();
        });
        stream
    }

    fn add(&self, line: &Line) {
        if self.broken.get() {
            return;
        }
        if self.queued.get() >= WAITING {
            self.lost.set(self.lost.get() + 1);
            self.all_lost.set(self.all_lost.get() + 1);
            return;
        }
        let bytes = text(&Line { lost: self.lost.take(), ..line.clone() });
        self.queued.set(self.queued.get() + bytes.len());
        self.queue.borrow_mut().push_back(bytes);
        self.grown.notify_one();
    }

    fn is_done(&self) -> bool {
        self.broken.get() || (self.closes.get() && self.queue.borrow().is_empty())
    }

    async fn empty(&self) {
        while !self.broken.get() && !self.queue.borrow().is_empty() {
            self.emptied.notified().await;
        }
    }

    /// Writes what is queued, as the reader takes it. Closes the descriptor at the end.
    async fn write_all(&self, fd: AsyncFd<OwnedFd>) -> io::Result<()> {
        loop {
            let Some(line) = self.queue.borrow().front().cloned() else {
                self.emptied.notify_waiters();
                if self.closes.get() {
                    return Ok(());
                }
                tokio::select! {
                    () = self.grown.notified() => {}
                    _ = fd.ready(Interest::ERROR) => return Err(io::ErrorKind::BrokenPipe.into()), // nobody reads
                }
                continue;
            };
            let mut rest = &line[..];
            while !rest.is_empty() {
                rest = &rest[fd.async_io(Interest::WRITABLE, |fd| self.write(fd, rest)).await?..];
            }
            self.queue.borrow_mut().pop_front();
            self.queued.set(self.queued.get() - line.len());
        }
    }

    /// Writes a part, and never blocks, although the descriptor may be one that others rely on to block.
    fn write(&self, fd: &OwnedFd, bytes: &[u8]) -> io::Result<usize> {
        if self.socket.get() {
            match send(fd.as_raw_fd(), bytes, MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL) {
                Err(Errno::ENOTSOCK) => self.socket.set(false),
                sent => return Ok(sent?),
            }
        }
        let mut polled = [PollFd::new(fd.as_fd(), PollFlags::POLLOUT)];
        match poll(&mut polled, PollTimeout::ZERO)? {
            0 => Err(io::ErrorKind::WouldBlock.into()),
            _ => Ok(nix::unistd::write(fd, &bytes[..bytes.len().min(PART)])?),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use tokio::runtime::Builder;
    use tokio::task::LocalSet;

    use super::*;
    use crate::record::{Event, Outcome, SCHEMA};

    fn line() -> Line {
        Line {
            schema: SCHEMA.to_owned(),
            time: String::new(),
            id: "x".repeat(1000),
            command: None,
            event: Event::Name,
            name: None,
            rule: None,
            address: None,
            port: None,
            server_name: None,
            bytes_sent: 0,
            bytes_received: 0,
            duration_us: 0,
            result: Outcome::Refused,
            reason: None,
            lost: 0,
        }
    }

    #[test]
    fn a_slow_reader_of_the_log_gets_a_bounded_queue() {
        const LINES: u64 = 3000;
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let (read, write) = nix::unistd::pipe().unwrap();
        let (lost, reader) = LocalSet::new().block_on(&runtime, async {
            let log = Log::new(Some(write), false);
            assert!((0..LINES).all(|_| log.add(line())), "the reader is slow, not gone");
            let reader = std::thread::spawn(move || {
                let mut text = String::new();
                File::from(read).read_to_string(&mut text).map(|_| text).unwrap()
            });
            log.finish(Duration::from_secs(60)).await;
            assert!(log.add(line()));
            (log.finish(Duration::from_secs(60)).await.0, reader)
        });
        let text = reader.join().unwrap();
        let came: Vec<Line> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert!(text.len() < WAITING + 4096, "{} bytes waited", text.len());
        assert_eq!(came.len() as u64 + lost, LINES + 1);
        assert_eq!(came.last().unwrap().lost, lost, "the next line says how many");
    }
}
