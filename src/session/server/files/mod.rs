//! Requests about files: they are passed on to a file server in the sandbox, and its answers to the clients. The workload may
//! stop or kill that process, so each answer is waited for for a bounded time, and nothing in one is taken unchecked.

mod translate;

use std::collections::VecDeque;
use std::ops::Range;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::poll::{PollFd, PollFlags};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};

use self::translate::{failed, refusal, reply, request};
use super::Server;
use super::commands::Asked;
use crate::error::{Error, Result, Step};
use crate::run::files::message::{self, Answer, Request};
use crate::run::sandbox::{Places, Ready, Running, Sandbox};
use crate::session::protocol::files::{FileOperation, FileType};
use crate::sys::packet::{self, known_mode};

/// So many requests are on their way to the file server. The others wait here.
const MOST_SENT: usize = 64;
/// More requests are refused.
const MOST_WAITING: usize = 4096;
/// An answer, or the start of a file server, is waited for so long.
const PATIENCE: Duration = Duration::from_secs(10);
/// A file server that nobody uses ends after this time.
const IDLE: Duration = Duration::from_secs(60);

/// The file server of a session, if there is one, and the requests.
#[derive(Default)]
pub struct Files {
    process: Option<Process>,
    waiting: VecDeque<Pending>,
    last_number: u64,
    /// When something was answered, or asked after a pause.
    progress: Option<Instant>,
}

struct Process {
    running: Running,
    /// `None` if it was killed, and is used no more.
    socket: Option<OwnedFd>,
    /// What was sent and is not answered, in this order.
    sent: VecDeque<Pending>,
    /// Whether it has answered anything.
    served: bool,
}

struct Pending {
    asked: Asked,
    request: Request,
    number: u64,
}

/// Where the file server put what it waits for.
#[derive(Debug)]
pub struct FilePlaces {
    /// The socket is the first of them, if it is used.
    all: Range<usize>,
    has_socket: bool,
    running: Places,
}

/// What is ready.
#[derive(Clone, Copy, Debug, Default)]
pub struct FilesReady {
    socket: bool,
    running: Option<Ready>,
}

impl FilePlaces {
    /// What is ready, after the wait.
    pub fn ready(self, polled: &[PollFd<'_>]) -> FilesReady {
        let is_ready = |fd: &PollFd<'_>| fd.any().unwrap_or(true);
        let (socket, running) = polled[self.all].split_at(usize::from(self.has_socket));
        let is_running_ready = running.iter().any(is_ready);
        FilesReady {
            socket: socket.iter().any(is_ready),
            running: is_running_ready.then(|| self.running.ready(polled)),
        }
    }
}

impl Files {
    /// Adds everything to poll for.
    pub fn interests<'a>(&'a self, polled: &mut Vec<PollFd<'a>>) -> Option<FilePlaces> {
        let process = self.process.as_ref()?;
        let from = polled.len();
        polled.extend(process.socket.as_ref().map(|socket| PollFd::new(socket.as_fd(), PollFlags::POLLIN)));
        let running = process.running.interests(polled);
        Some(FilePlaces { all: from..polled.len(), has_socket: process.socket.is_some(), running })
    }

    /// When it has something to do by itself.
    pub fn due(&self) -> Option<Instant> {
        let own = self.process.as_ref().and_then(|process| process.running.due());
        let patience = if self.is_busy() { PATIENCE } else { IDLE };
        let is_used = self.process.as_ref().is_some_and(|process| process.socket.is_some());
        let limit = self.progress.filter(|_| self.is_busy() || is_used);
        [own, limit.map(|since| since + patience)].into_iter().flatten().min()
    }

    fn is_busy(&self) -> bool {
        !self.waiting.is_empty() || self.process.as_ref().is_some_and(|process| !process.sent.is_empty())
    }

    /// Forgets the requests of a client that are not sent yet.
    pub fn part(&mut self, connection: u64) {
        self.waiting.retain(|pending| pending.asked.connection != connection);
    }

    /// Sends what waits, to a file server that was verified.
    fn send(&mut self) {
        let Some(process) = &mut self.process else { return };
        let started = process.running.started();
        let Some(socket) = process.socket.as_ref().filter(|_| started.is_some()) else { return };
        while process.sent.len() < MOST_SENT {
            let Some(pending) = self.waiting.pop_front() else { return };
            match packet::send(socket, &pending.request.pack(pending.number), &[], false) {
                Ok(()) => process.sent.push_back(pending),
                // Its end is noticed elsewhere. With room for nothing it still has an answer to give, and this goes on after it.
                Err(_) => return self.waiting.push_front(pending),
            }
        }
    }

    /// Everything that was asked and is not answered.
    fn take_all(&mut self) -> Vec<Pending> {
        let sent = self.process.as_mut().map(|process| std::mem::take(&mut process.sent)).unwrap_or_default();
        sent.into_iter().chain(std::mem::take(&mut self.waiting)).collect()
    }

    /// Kills the file server. What was sent to it is returned; the rest waits for another one.
    fn leave(&mut self) -> VecDeque<Pending> {
        let Some(process) = &mut self.process else { return VecDeque::new() };
        if process.socket.take().is_some() {
            process.running.kill();
        }
        std::mem::take(&mut process.sent)
    }

    /// The next answer, if there is one: to which request, and what came with it.
    fn receive(&mut self, buffer: &mut [u8]) -> Received {
        let Some(process) = self.process.as_mut() else { return Received::Nothing };
        let Some(socket) = &process.socket else { return Received::Nothing };
        let received = match packet::receive(socket, buffer, false) {
            Err(Errno::EAGAIN) => return Received::Nothing,
            Ok(received) if received.length > 0 && received.whole => received,
            _ => return Received::Wrong,
        };
        let answer = Answer::unpack(&buffer[..received.length]);
        match (answer, process.sent.front()) {
            (Ok((number, answer)), Some(pending))
                if number == pending.number
                    && pending.request.accepts(&answer)
                    && fits(&pending.request, &answer, &received.fds) =>
            {
                process.served = true;
                process
                    .sent
                    .pop_front()
                    .map_or(Received::Wrong, |pending| Received::Answer(pending, answer, received.fds))
            }
            _ => Received::Wrong,
        }
    }
}

enum Received {
    Nothing,
    /// No answer to what was asked. Nothing that follows can be trusted to be one.
    Wrong,
    Answer(Pending, Answer, Vec<OwnedFd>),
}

/// Whether the descriptors are those of the answer: a regular file, opened as it was asked for, or none.
fn fits(request: &Request, answer: &Answer, fds: &[OwnedFd]) -> bool {
    let (Request::Open(open), Answer::File(_)) = (request, answer) else { return fds.is_empty() };
    let [file] = fds else { return false };
    let is_regular = known_mode(file).is_ok_and(|mode| FileType::of(mode) == FileType::File);
    let flags = fcntl(file, FcntlArg::F_GETFL).unwrap_or(libc::O_PATH);
    let asked = open.flags & (libc::O_ACCMODE | libc::O_APPEND);
    is_regular && flags & (libc::O_ACCMODE | libc::O_APPEND | libc::O_PATH) == asked
}

impl Server<'_> {
    /// Takes a request about files. It is answered later.
    pub(super) fn ask_files(&mut self, asked: Asked, operation: FileOperation) -> Result<()> {
        let refused = |reason: &str| Error::new(Step::SessionRequest, "session", reason);
        if self.ending.is_some() {
            return Err(refused("is ending"));
        }
        if self.paused {
            return Err(refused("is paused").hint("unpause it"));
        }
        if self.files.waiting.len() >= MOST_WAITING {
            return Err(refused("has too many requests about files"));
        }
        let request = request(operation, self.plan.command.umask)?;
        if !self.files.is_busy() {
            self.files.progress = Some(Instant::now());
        }
        self.files.last_number += 1;
        self.files.waiting.push_back(Pending { asked, request, number: self.files.last_number });
        if let Some(connection) = self.connections.get_mut(&asked.connection) {
            connection.expect();
        }
        self.go_on_with_files();
        Ok(())
    }

    /// Starts a file server if one is needed, and sends it what waits.
    fn go_on_with_files(&mut self) {
        if self.files.process.is_none() && !self.files.waiting.is_empty() {
            match start(&mut self.sandbox) {
                Ok((running, socket)) => {
                    let process = Process { running, socket: Some(socket), sent: VecDeque::new(), served: false };
                    self.files.process = Some(process);
                    self.files.progress.get_or_insert_with(Instant::now); // a new one has no new time
                }
                Err(error) => {
                    let all = self.files.take_all();
                    self.fail_files(all, |_| error.clone());
                }
            }
        }
        self.files.send();
    }

    /// Lets the file server take a step, and passes on its answers.
    pub(super) fn advance_files(&mut self, ready: FilesReady, now: Instant) {
        let Some(process) = &mut self.files.process else { return };
        let is_due = process.running.due().is_some_and(|due| due <= now);
        if ready.running.is_some() || is_due {
            process.running.turn(ready.running.unwrap_or_default());
        }
        if process.running.is_lost() {
            self.sandbox.kill();
        }
        let is_over = process.running.is_over();
        if ready.socket {
            self.take_answers(now);
        }
        if is_over {
            self.end_files();
        }
        if self.files.due().is_some_and(|due| due <= now) {
            self.lose_patience(now);
        }
        self.go_on_with_files();
    }

    fn take_answers(&mut self, now: Instant) {
        let mut buffer = vec![0; message::LARGEST];
        loop {
            match self.files.receive(&mut buffer) {
                Received::Nothing => return,
                Received::Wrong => {
                    let sent = self.files.leave();
                    return self.fail_files(sent, |request| {
                        failed(request, "the file server ended, or sent something that is not an answer")
                    });
                }
                Received::Answer(pending, answer, fds) => {
                    self.files.progress = Some(now);
                    let mut reply = reply(&pending.request, answer);
                    reply.id = Some(pending.asked.request);
                    if let Some(connection) = self.connections.get_mut(&pending.asked.connection) {
                        connection.meet();
                        connection.say(&reply, fds);
                    }
                }
            }
        }
    }

    /// The process is gone. If it never began, its report says why.
    fn end_files(&mut self) {
        let Some(process) = self.files.process.take() else { return };
        let began = process.running.started().is_some();
        let report = process.running.report(&self.sandbox);
        let why = report.error.as_ref().map(Error::from).filter(|_| !began).map(|error| match error.step {
            Step::Fork => Error { step: Step::SessionFile, object: "start of the file server".to_owned(), ..error }
                .hint("a limit on processes was reached: the session's --pids-limit, ulimit -u, or pids.max of a cgroup above"),
            _ => error,
        });
        let mut sent = process.sent;
        if began && sent.is_empty() && !process.served {
            sent.extend(self.files.waiting.pop_front()); // or a workload that kills each one at once would have it started for ever
        }
        self.fail_files(sent, |request| failed(request, "the file server ended before it answered"));
        // Another one would not begin either.
        if !began {
            let all = self.files.take_all();
            self.fail_files(all, |request| {
                why.clone().unwrap_or_else(|| failed(request, "the file server could not be started"))
            });
        }
        self.files.progress = self.files.is_busy().then(Instant::now);
    }

    /// Nothing was answered for too long, or nobody asked.
    fn lose_patience(&mut self, now: Instant) {
        if self.files.process.as_ref().and_then(|process| process.running.due()).is_some_and(|due| due <= now) {
            return; // this is its own business
        }
        let was_leaving = self.files.process.as_ref().is_some_and(|process| process.socket.is_none());
        let is_sent = self.files.process.as_ref().is_some_and(|process| !process.sent.is_empty());
        let mut late = Vec::from(self.files.leave());
        if was_leaving || !is_sent {
            late.extend(std::mem::take(&mut self.files.waiting));
        }
        self.fail_files(late, |request| {
            failed(request, "the file server did not answer in time")
                .hint("a process of the sandbox may have stopped it, or the file system does not answer; try again")
        });
        self.files.progress = self.files.is_busy().then_some(now);
    }

    fn fail_files(&mut self, all: impl IntoIterator<Item = Pending>, why: impl Fn(&Request) -> Error) {
        for pending in all {
            let mut reply = refusal(&why(&pending.request));
            reply.id = Some(pending.asked.request);
            if let Some(connection) = self.connections.get_mut(&pending.asked.connection) {
                connection.meet();
                connection.say(&reply, Vec::new());
            }
        }
    }

    /// The sandbox is dead, or about to be ended.
    pub(super) fn lose_files(&mut self) {
        let all = self.files.take_all();
        self.fail_files(all, |request| failed(request, "the session ended"));
        if let Some(mut process) = self.files.process.take() {
            process.running.kill();
            process.running.lose();
            drop(process.running.report(&self.sandbox));
        }
    }
}

fn start(sandbox: &mut Sandbox) -> Result<(Running, OwnedFd)> {
    let made = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC);
    let (socket, theirs) = made.map_err(|errno| Error::errno(Step::SessionFile, "file server", errno))?;
    sandbox.begin_files(theirs).map(|running| (running, socket))
}
