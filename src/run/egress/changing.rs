//! What the supervisor makes while a sandbox runs, and hands to its gateway: the sockets that changed rules of a session need, and those
//! for connections to published ports.

use std::os::fd::{AsFd as _, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{setsockopt, sockopt};
use nix::sys::time::{TimeVal, TimeValLike as _};
use stockade_egress::change::Change;
use stockade_egress::gateway::Order;
use stockade_egress::layout::Layout;
use stockade_egress::rule::Rules;

use super::{opener, pair};
use crate::error::{Error, Result, Step};
use crate::sys::{net, packet, socket};

/// How long the gateway may leave an order unread.
const PATIENCE_S: i64 = 5;

/// How many sockets for published ports are made at a time.
pub const CONNECTORS: usize = 64;

/// The rules that are in force, and the way to change them.
#[derive(Debug)]
pub struct Changing {
    rules: Rules,
    /// What was opened so far.
    layout: Layout,
    /// Takes orders to the gateway, with descriptors.
    orders: OwnedFd,
    /// Brings a socket of the sandbox's network.
    child: OwnedFd,
    /// The sandbox's network namespace, once it was needed.
    network: Option<OwnedFd>,
}

impl Changing {
    /// For a sandbox with these rules, whose child sends its sockets to `channel`. Returns the child's end of a second channel.
    pub fn prepare(rules: &Rules, layout: &Layout, channel: &OwnedFd) -> Result<(Self, OwnedFd)> {
        let failed = |errno: Errno| Error::errno(Step::Egress, "socket for the gateway", errno);
        let orders = channel.try_clone().map_err(|error| Error::io(Step::Egress, "socket for the gateway", &error))?;
        setsockopt(&orders, sockopt::SendTimeout, &TimeVal::seconds(PATIENCE_S)).map_err(failed)?;
        let (child, theirs) = pair()?;
        let (rules, layout) = (rules.clone(), layout.clone());
        Ok((Self { rules, layout, orders, child, network: None }, theirs))
    }

    /// The sandbox's network, from its child, which opened it before the gateway had all of its sockets.
    fn network(&mut self) -> Result<&OwnedFd> {
        let failed = |errno| Error::errno(Step::Egress, "network of the sandbox", errno);
        let network = match self.network.take() {
            Some(network) => network,
            None => {
                let (_, socket) = socket::receive(&self.child, &mut [0; 1], false).map_err(failed)?;
                net::namespace_of(&socket.ok_or_else(|| failed(Errno::EBADMSG))?).map_err(failed)?
            }
        };
        Ok(self.network.insert(network))
    }

    /// Gives the gateway more sockets for published ports. If none can be made, it asks again for the next connection.
    pub fn refill(&mut self) {
        let wanted = opener::Wanted { routes: Vec::new(), sockets: Vec::new(), connectors: CONNECTORS };
        let sockets = self.network().and_then(|network| opener::open(network, &wanted)).unwrap_or_default();
        let mut parts: Vec<&[OwnedFd]> = sockets.chunks(packet::MOST).collect();
        if parts.is_empty() {
            parts.push(&[]);
        }
        // A gateway that takes no order is about to be ended.
        let _ = parts.into_iter().try_for_each(|part| self.order(&Order::Connectors, part));
    }

    /// The rules that are in force.
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Whether a change is possible.
    pub fn check(&self, change: &Change) -> Result<()> {
        self.after(change).map(drop)
    }

    fn after(&self, change: &Change) -> Result<(Rules, Layout, opener::Wanted)> {
        let wrong = |reason| Error::new(Step::SessionRequest, "rule", reason);
        let rules = change.apply(&self.rules).map_err(wrong)?;
        let mut layout = self.layout.clone();
        let (routes, sockets) = layout.grow(&rules).map_err(wrong)?;
        Ok((rules, layout, opener::Wanted { routes, sockets, connectors: 0 }))
    }

    /// Opens what a change needs, and asks the gateway to make it. An error leaves all as it was.
    pub fn change(&mut self, change: &Change) -> Result<()> {
        let (rules, layout, wanted) = self.after(change)?;
        let sockets = opener::open(self.network()?, &wanted)?;
        self.order(&Order::Change(change.clone()), &[])?;
        for part in sockets.chunks(packet::MOST) {
            self.order(&Order::Sockets, part)?;
        }
        (self.rules, self.layout) = (rules, layout);
        Ok(())
    }

    /// Tells the gateway the command whose processes are in this cgroup.
    pub fn command(&self, cgroup: u64, command: &str) -> Result<()> {
        self.order(&Order::Command { cgroup, command: command.to_owned() }, &[])
    }

    /// Lets the gateway write its log to this pipe.
    pub fn read_log(&self, pipe: OwnedFd, follow: bool) -> Result<()> {
        self.order(&Order::Read { follow }, &[pipe])
    }

    fn order(&self, order: &Order, fds: &[OwnedFd]) -> Result<()> {
        let json = serde_json::to_vec(order).unwrap_or_default();
        let fds: Vec<_> = fds.iter().map(OwnedFd::as_fd).collect();
        packet::send(&self.orders, &json, &fds, true).map_err(failed_order)
    }
}

fn failed_order(errno: Errno) -> Error {
    Error::errno(Step::Egress, "order to the gateway", errno)
}
