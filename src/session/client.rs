//! A client's connection to a session.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::socket::{getsockopt, setsockopt, sockopt};
use nix::sys::time::{TimeVal, TimeValLike as _};
use nix::unistd::geteuid;

use super::place::{Home, missing};
use super::protocol::{Event, Hello, Operation, PROTOCOL, Reply, Request};
use super::wire::{self, Packet, Received};
use crate::error::{Error, Result, Step};

/// A connection.
#[derive(Debug)]
pub struct Client {
    socket: OwnedFd,
    name: String,
    next: u64,
    buffer: Vec<u8>,
}

impl Client {
    /// Connects to a session of this user.
    pub fn connect(name: &str) -> Result<Self> {
        let place = Home::open()?.ok_or_else(|| missing(name))?.place(name)?;
        Self::over(place.connect()?, name)
    }

    /// Takes a connected socket, and reads the session's first packet.
    pub fn over(socket: OwnedFd, name: &str) -> Result<Self> {
        let mut client = Self { socket, name: name.to_owned(), next: 1, buffer: Vec::new() };
        let peer = getsockopt(&client.socket, sockopt::PeerCredentials).map_err(|errno| client.failed(errno))?;
        if peer.uid() != geteuid().as_raw() {
            return Err(client.wrong("its socket belongs to another user's process"));
        }
        let Some(packet) = client.packet(true)? else { return Err(client.wrong("the session ended")) };
        let hello: Hello =
            serde_json::from_slice(&packet.json).map_err(|_| client.wrong("does not greet as a session"))?;
        match hello.protocol == PROTOCOL {
            true => Ok(client),
            false => Err(client.wrong(&format!("speaks {}, not {PROTOCOL}", hello.protocol))),
        }
    }

    /// Does not wait longer than this for a reply: a supervisor may be stopped.
    pub fn patience(&self, time: Duration) -> Result<()> {
        let time = TimeVal::microseconds(time.as_micros() as i64);
        setsockopt(&self.socket, sockopt::ReceiveTimeout, &time).map_err(|errno| self.failed(errno))
    }

    /// Sends a request and returns its id. Waits for room.
    pub fn send(&mut self, operation: Operation, fds: Vec<OwnedFd>) -> Result<u64> {
        let id = self.next;
        self.next += 1;
        let json = serde_json::to_vec(&Request { id, operation }).map_err(|error| self.wrong(&error.to_string()))?;
        let packet = Packet { json, fds }.fit().map_err(|errno| self.failed(errno))?;
        wire::send(&self.socket, &packet, true).map_err(|errno| match errno {
            Errno::EPIPE | Errno::ECONNRESET => self.wrong("the session ended"),
            Errno::EAGAIN => self.failed(Errno::ETIMEDOUT),
            errno => self.failed(errno),
        })?;
        Ok(id)
    }

    /// The next reply, with its descriptors. `None` if there is none yet and it must not `wait`. A session that ended is an error.
    pub fn reply(&mut self, wait: bool) -> Result<Option<(Reply, Vec<OwnedFd>)>> {
        let Some(packet) = self.packet(wait)? else { return Ok(None) };
        let reply = serde_json::from_slice(&packet.json).map_err(|error| self.wrong(&error.to_string()))?;
        Ok(Some((reply, packet.fds)))
    }

    /// Sends a request and waits for its last reply. A refusal is an error.
    pub fn ask(&mut self, operation: Operation) -> Result<Reply> {
        let id = self.send(operation, Vec::new())?;
        loop {
            let Some((reply, _)) = self.reply(true)? else { return Err(self.failed(Errno::ETIMEDOUT)) };
            if reply.id == Some(id) && reply.event != Event::Started {
                return refusal(reply);
            }
        }
    }

    /// An error about this session.
    pub fn wrong(&self, reason: &str) -> Error {
        Error::new(Step::SessionConnect, &self.name, reason)
    }

    fn failed(&self, errno: Errno) -> Error {
        Error::errno(Step::SessionConnect, &self.name, errno)
    }

    fn packet(&mut self, wait: bool) -> Result<Option<Packet>> {
        match wire::receive(&self.socket, &mut self.buffer, wait).map_err(|errno| self.failed(errno))? {
            Received::Packet(packet) => Ok(Some(packet)),
            Received::Nothing => Ok(None),
            Received::Wrong(why) => Err(self.wrong(&format!("a packet {why}"))),
            Received::End => Err(self.wrong("the session ended")),
        }
    }
}

impl AsFd for Client {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// The reply, unless the request was refused.
pub fn refusal(reply: Reply) -> Result<Reply> {
    match (reply.event, &reply.error) {
        (Event::Error, Some(record)) => Err(Error::from(record)),
        _ => Ok(reply),
    }
}
