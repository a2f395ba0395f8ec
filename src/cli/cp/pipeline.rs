//! Requests about files on their way to a session, which answers them in their order.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;

use crate::error::{Error, Result};
use crate::session::client::{Client, refusal};
use crate::session::protocol::files::FileOperation;
use crate::session::protocol::{Operation, Reply};

/// So many may be on their way. The session reads 64 ahead.
const MOST: usize = 48;

/// Requests, each with what is to be done with its answer.
pub struct Pipeline<T> {
    client: Client,
    sent: VecDeque<(u64, T)>,
}

/// An answer: a reply and its descriptor, or an error.
pub type Answer = Result<(Reply, Option<OwnedFd>)>;

impl<T> Pipeline<T> {
    /// Over this connection.
    pub fn new(client: Client) -> Self {
        Self { client, sent: VecDeque::new() }
    }

    /// Whether an answer must be taken before the next request.
    pub fn is_full(&self) -> bool {
        self.sent.len() >= MOST
    }

    /// Sends a request.
    pub fn send(&mut self, operation: FileOperation, then: T) -> Result<()> {
        let id = self.client.send(Operation::File(operation), Vec::new())?;
        self.sent.push_back((id, then));
        Ok(())
    }

    /// Waits for the answer to the oldest request. `None` if there is none.
    pub fn receive(&mut self) -> Result<Option<(T, Answer)>> {
        let Some((id, then)) = self.sent.pop_front() else { return Ok(None) };
        let Some((reply, fds)) = self.client.reply(true)? else { return Err(self.client.wrong("does not answer")) };
        if reply.id != Some(id) {
            return Err(self.client.wrong("answers to another request"));
        }
        Ok(Some((then, refusal(reply).map(|reply| (reply, fds.into_iter().next())))))
    }
}

/// Asks for one thing, and waits for the answer.
pub fn ask(client: &mut Client, operation: FileOperation) -> Result<(Reply, Option<OwnedFd>)> {
    let id = client.send(Operation::File(operation), Vec::new())?;
    match client.reply(true)? {
        Some((reply, fds)) if reply.id == Some(id) => refusal(reply).map(|reply| (reply, fds.into_iter().next())),
        _ => Err(client.wrong("does not answer")),
    }
}

/// Whether an error is this one of a system call.
pub fn is(error: &Error, errno: nix::errno::Errno) -> bool {
    error.cause == crate::error::Cause::Errno(errno)
}
