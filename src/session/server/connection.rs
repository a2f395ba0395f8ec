//! One client's connection: who it is, what it asks, and what waits until it reads.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use nix::errno::Errno;
use nix::poll::PollFlags;
use nix::sys::socket::{UnixCredentials, getsockopt, sockopt};
use nix::unistd::geteuid;

use crate::session::wire::{self, Packet, Received};
use crate::sys::packet;
use crate::sys::pidfd::pid_of;

/// No request is read from a client that leaves so many replies unread.
const MOST_UNREAD: usize = 64;
/// No request is read from a client of which so many requests about files are not answered.
const MOST_EXPECTED: usize = 64;
/// A client that leaves so much unread is disconnected.
const MOST_QUEUED: usize = 256;
const MOST_QUEUED_BYTES: usize = 1 << 20;

/// A connection.
#[derive(Debug)]
pub struct Connection {
    socket: OwnedFd,
    queue: VecDeque<Packet>,
    queued_bytes: usize,
    /// How many requests about files are not answered yet.
    expected: usize,
    open: bool,
}

impl Connection {
    /// Accepts a client. `None` if none waits, or if it is refused: then it is closed without a word.
    pub fn accept(listener: BorrowedFd<'_>) -> Result<Option<Self>, Errno> {
        let socket = packet::accept(listener)?;
        let admitted = getsockopt(&socket, sockopt::PeerCredentials).is_ok_and(|peer| may_ask(&socket, &peer));
        Ok(admitted.then(|| Self { socket, queue: VecDeque::new(), queued_bytes: 0, expected: 0, open: true }))
    }

    /// Whether it can still be used.
    pub fn is_open(&self) -> bool {
        self.open
    }

    /// What to poll it for. Its end is always reported.
    pub fn interests(&self) -> PollFlags {
        let mut flags = PollFlags::empty();
        flags.set(PollFlags::POLLIN, self.takes_more());
        flags.set(PollFlags::POLLOUT, !self.queue.is_empty());
        flags
    }

    fn takes_more(&self) -> bool {
        self.queue.len() < MOST_UNREAD && self.expected < MOST_EXPECTED
    }

    /// A request of this client will be answered later.
    pub fn expect(&mut self) {
        self.expected += 1;
    }

    /// Such a request is answered now.
    pub fn meet(&mut self) {
        self.expected = self.expected.saturating_sub(1);
    }

    /// The next request, if there is one and the client reads its replies.
    pub fn receive(&mut self, buffer: &mut Vec<u8>) -> Option<Result<Packet, &'static str>> {
        if !self.open || !self.takes_more() {
            return None;
        }
        match wire::receive(&self.socket, buffer, false) {
            Ok(Received::Packet(packet)) => Some(Ok(packet)),
            Ok(Received::Wrong(why)) => Some(Err(why)),
            Ok(Received::Nothing) => None,
            Ok(Received::End) | Err(_) => {
                self.open = false;
                None
            }
        }
    }

    /// Sends an object now, or as soon as the client reads.
    pub fn say(&mut self, object: &impl serde::Serialize, fds: Vec<OwnedFd>) {
        let json = serde_json::to_vec(object).unwrap_or_default();
        let Ok(packet) = (Packet { json, fds }).fit() else {
            self.open = false;
            return;
        };
        self.queued_bytes += packet.size();
        self.queue.push_back(packet);
        self.flush();
        if self.queue.len() > MOST_QUEUED || self.queued_bytes > MOST_QUEUED_BYTES {
            self.open = false;
        }
    }

    /// Sends what waits, as far as there is room.
    pub fn flush(&mut self) {
        while let Some(packet) = self.queue.front() {
            match wire::send(&self.socket, packet, false) {
                Ok(()) => {
                    self.queued_bytes -= packet.size();
                    self.queue.pop_front();
                }
                // The descriptors in flight of this user are too many, until somebody receives them.
                Err(Errno::EAGAIN | Errno::ETOOMANYREFS | Errno::ENOBUFS | Errno::ENOMEM) => return,
                Err(_) => {
                    self.open = false;
                    return;
                }
            }
        }
    }

    /// Whether everything was sent.
    pub fn is_flushed(&self) -> bool {
        self.queue.is_empty()
    }

    /// Notices that the client has closed its end while nothing is read from it.
    pub fn hang_up(&mut self) {
        self.open = false;
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Whether a client may use this session: the owner and root may. A workload of an unprivileged user has that user's id, so
/// a process of another user namespace may not, even if the socket's directory was bound into its sandbox.
fn may_ask(socket: &OwnedFd, peer: &UnixCredentials) -> bool {
    let owner = geteuid().as_raw();
    if peer.uid() != owner {
        return peer.uid() == 0;
    }
    let namespace = |process: PathBuf| std::fs::read_link(process.join("ns/user")).ok();
    let pidfd = packet::peer_pidfd(socket);
    let theirs = namespace(PathBuf::from(format!("/proc/{}", peer.pid())));
    // The pidfd shows that the number still is the client's: none is used again before its process has ended.
    let lives = pidfd.is_err() || pidfd.is_ok_and(|pidfd| pid_of(pidfd.as_fd()) == Some(peer.pid()));
    lives && theirs.is_some() && theirs == namespace(PathBuf::from("/proc/self"))
}
