//! What the supervisor of a session asks of the gateway: changes of the rules, and readers of the log.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use serde::{Deserialize, Serialize};
use tokio::io::Interest;

use super::state::State;
use super::{listen, watch};
use crate::change::Change;
use crate::layout::Socket;

/// The longest order.
const LONGEST: usize = 16 << 10;

/// An order, as JSON in a packet.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// Change the rules. The sockets that this needs come in the next packets. The answer is `told::CHANGED`.
    Change(Change),
    /// Sockets, with this packet.
    Sockets,
    /// Sockets for published ports, with this packet; none if none could be made.
    Connectors,
    /// A command begins, whose processes are in this cgroup.
    Command {
        /// The cgroup's id.
        cgroup: u64,
        /// The command's.
        command: String,
    },
    /// Write the log to the pipe that comes with this packet.
    Read {
        /// Whether also lines that come later.
        follow: bool,
    },
}

/// Receives a packet with its descriptors into a buffer, without waiting. A length of 0 is the end.
pub type Receive = fn(&OwnedFd, &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)>;

/// Where orders come from.
#[derive(Debug)]
pub struct Orders {
    /// A socket that keeps the bounds of packets.
    pub channel: OwnedFd,
    /// How to read it.
    pub receive: Receive,
}

/// A change whose sockets are not all here.
#[derive(Debug, Default)]
struct Pending(VecDeque<Socket>);

/// Takes orders until the supervisor is gone.
pub async fn take(state: Rc<State>, orders: Orders) {
    let Ok(channel) = watch(orders.channel, Interest::READABLE) else { return };
    let pending = RefCell::new(Pending::default());
    let mut buffer = vec![0; LONGEST];
    loop {
        let packet = channel.async_io(Interest::READABLE, |fd| (orders.receive)(fd, &mut buffer)).await;
        let Ok((length @ 1.., fds)) = packet else { return };
        let Ok(order) = serde_json::from_slice(&buffer[..length]) else { return };
        if pending.borrow_mut().obey(&state, order, fds).is_err() {
            return;
        }
    }
}

impl Pending {
    /// An error means that the supervisor and this process do not agree, and no order is taken any more.
    fn obey(&mut self, state: &Rc<State>, order: Order, fds: Vec<OwnedFd>) -> Result<(), String> {
        match order {
            Order::Change(change) => {
                self.0.extend(state.change(&change)?);
            }
            Order::Sockets => {
                for fd in fds {
                    let socket = self.0.pop_front().ok_or("a socket too many")?;
                    listen(state, socket, fd, false).map_err(|error| error.to_string())?;
                }
            }
            Order::Connectors => {
                state.add_connectors(fds);
                return Ok(());
            }
            Order::Command { cgroup, command } => {
                state.owners.iter().for_each(|owners| owners.add(cgroup, command.clone()));
                return Ok(());
            }
            Order::Read { follow } => {
                // A reader that cannot be had sees the end of its pipe.
                fds.into_iter().next().into_iter().for_each(|pipe| drop(state.log.read(pipe, follow)));
                return Ok(());
            }
        }
        if self.0.is_empty() {
            state.tell_change();
        }
        Ok(())
    }
}
