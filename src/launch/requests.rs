//! What the supervisor of a session asks of its init.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags};

use super::channels::ChildEnds;
use crate::sys::{file, packet};

/// Bytes before the order: kind, number of the command, signal or flags.
const HEAD: usize = 24;

/// Most bytes of an order that travel in the message itself. More is passed as a file in memory.
const INLINE: usize = 32 << 10;

/// Size of init's buffer for a message.
pub const LARGEST: usize = HEAD + INLINE;

/// More signals are not queued.
const MOST_QUEUED: usize = 1024;

const BEGIN: u64 = 1;
const SIGNAL: u64 = 2;
const RELEASE: u64 = 3;

/// A request, as init receives it.
#[derive(Debug)]
pub enum Request {
    /// Start a command.
    Begin(Begin),
    /// Send a signal to a command's process group.
    Signal(u64, libc::c_int),
    /// A command was looked at from outside, so its process may be reaped.
    Release(u64),
}

/// A command to start.
#[derive(Debug)]
pub struct Begin {
    /// Its number in the session.
    pub number: u64,
    /// What init needs, packed.
    pub order: Vec<u8>,
    /// Its channels.
    pub ends: ChildEnds,
    /// Its standard streams.
    pub streams: [OwnedFd; 3],
    /// Its cgroup, if it has one.
    pub cgroup: Option<OwnedFd>,
}

fn head(kind: u64, number: u64, detail: u64) -> [u8; HEAD] {
    let mut head = [0; HEAD];
    for (place, number) in head.chunks_exact_mut(8).zip([kind, number, detail]) {
        place.copy_from_slice(&number.to_ne_bytes());
    }
    head
}

/// The supervisor's half: the socket to init, and what there was no room for. A command whose start is delayed delays init, and
/// the supervisor waits for neither.
#[derive(Debug)]
pub struct Outbox {
    init: OwnedFd,
    queue: RefCell<VecDeque<(Vec<u8>, Vec<OwnedFd>)>>,
}

impl Outbox {
    /// Over this socket.
    pub fn new(init: OwnedFd) -> Self {
        Self { init, queue: RefCell::default() }
    }

    /// Asks init to start a command.
    pub fn begin(
        &self,
        number: u64,
        order: &[u8],
        ends: &ChildEnds,
        streams: [BorrowedFd<'_>; 3],
        cgroup: Option<BorrowedFd<'_>>,
    ) -> Result<(), Errno> {
        let large = (order.len() > INLINE).then(|| file::in_memory(c"order", order)).transpose()?;
        let mut descriptors = vec![ends.failure.as_fd(), ends.control.as_fd()];
        descriptors.extend(streams);
        descriptors.extend(cgroup);
        descriptors.extend(large.as_ref().map(|file| file.as_fd()));
        let flags = u64::from(cgroup.is_some()) | u64::from(large.is_some()) << 1;
        let mut message = head(BEGIN, number, flags).to_vec();
        if large.is_none() {
            message.extend(order);
        }
        self.send(&message, &descriptors)
    }

    /// Asks init to signal a command. Lost if init is delayed and others wait.
    pub fn signal(&self, number: u64, signal: libc::c_int) {
        if self.queue.borrow().len() < MOST_QUEUED {
            let _ = self.send(&head(SIGNAL, number, signal as u64), &[]); // without init there is nothing to signal
        }
    }

    /// Tells init that a command was looked at. This is not lost: init would never report the command's end.
    pub fn release(&self, number: u64) {
        let message = head(RELEASE, number, 0);
        match self.send(&message, &[]) {
            Ok(()) | Err(Errno::EPIPE | Errno::ECONNRESET) => {} // without init the sandbox has ended
            Err(_) => self.queue.borrow_mut().push_back((message.to_vec(), Vec::new())),
        }
    }

    fn send(&self, message: &[u8], descriptors: &[BorrowedFd<'_>]) -> Result<(), Errno> {
        self.flush();
        let mut queue = self.queue.borrow_mut();
        if queue.is_empty() {
            match packet::send(&self.init, message, descriptors, false) {
                Err(errno) if is_full(errno) => {}
                sent => return sent,
            }
        }
        let copied = |fd: &BorrowedFd<'_>| fd.try_clone_to_owned().map_err(|_| Errno::EMFILE);
        let descriptors = descriptors.iter().map(copied).collect::<Result<_, _>>()?;
        queue.push_back((message.to_vec(), descriptors));
        Ok(())
    }

    /// Sends what waits, as far as there is room.
    pub fn flush(&self) {
        let mut queue = self.queue.borrow_mut();
        while let Some((message, descriptors)) = queue.front() {
            let descriptors: Vec<_> = descriptors.iter().map(|fd| fd.as_fd()).collect();
            match packet::send(&self.init, message, &descriptors, false) {
                Err(errno) if is_full(errno) => return,
                Err(Errno::ENOMEM) => return,
                _ => drop(queue.pop_front()), // an init that is gone is noticed by its pidfd
            }
        }
    }

    /// What to wait for if something is left to be sent.
    pub fn room(&self) -> Option<PollFd<'_>> {
        (!self.queue.borrow().is_empty()).then(|| PollFd::new(self.init.as_fd(), PollFlags::POLLOUT))
    }
}

/// Whether the socket has no room now. The kernel also limits how many descriptors of a user are in flight.
fn is_full(errno: Errno) -> bool {
    matches!(errno, Errno::EAGAIN | Errno::ETOOMANYREFS | Errno::ENOBUFS)
}

/// Init's half: the next request. `Ok(None)` means that none is pending, `Err(EPIPE)` that the supervisor has ended.
pub fn receive(control: BorrowedFd<'_>, buffer: &mut [u8]) -> Result<Option<Request>, Errno> {
    let received = match packet::receive(control, buffer, false) {
        Err(Errno::EAGAIN) => return Ok(None),
        received => received?,
    };
    match received.length {
        0 => Err(Errno::EPIPE),
        length if received.whole => parse(&buffer[..length], received.fds).map(Some).ok_or(Errno::EBADMSG),
        _ => Err(Errno::EMSGSIZE),
    }
}

fn parse(message: &[u8], descriptors: Vec<OwnedFd>) -> Option<Request> {
    let (head, inline) = message.split_at_checked(HEAD)?;
    let word = |at: usize| Some(u64::from_ne_bytes(head.get(at..at + 8)?.try_into().ok()?));
    let (kind, number, detail) = (word(0)?, word(8)?, word(16)?);
    match kind {
        SIGNAL => Some(Request::Signal(number, libc::c_int::try_from(detail).ok()?)),
        RELEASE => Some(Request::Release(number)),
        BEGIN => {
            let mut descriptors = descriptors.into_iter();
            let ends = ChildEnds { failure: descriptors.next()?, control: descriptors.next()? };
            let streams = [descriptors.next()?, descriptors.next()?, descriptors.next()?];
            let cgroup = if detail & 1 != 0 { Some(descriptors.next()?) } else { None };
            let order = match detail & 2 != 0 {
                true => file::content(&descriptors.next()?).ok()?,
                false => inline.to_vec(),
            };
            Some(Request::Begin(Begin { number, order, ends, streams, cgroup }))
        }
        _ => None,
    }
}
