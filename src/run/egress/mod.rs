//! Network access by name: the sockets in the sandbox's network, and the gateway outside that serves them.
//!
//! ```text
//! supervisor                     gateway                              pid 1 of the sandbox
//! ─────────────────────────      ─────────────────────────────────    ──────────────────────────────────────
//! fork ────────────────────────► close, ids, limits, Landlock,
//! clone3 ─────────────────────────────────────────────────────────►   root, network namespace
//! wait for "ready" ◄──────────── seccomp; ready                       routes; each socket is bound and sent ─┐
//! go ─────────────────────────────────────────────────────────────►   ... execve                            │
//!                                take the sockets ◄─────────────────────────────────────────────────────────┘
//! budget, end ◄────────────────► accept, resolve, connect, splice
//! ```
//!
//! The gateway is copied from the supervisor before the sandbox exists. It never enters the sandbox's namespaces, and the sandbox
//! cannot reach it but through these sockets.

mod changing;
mod gateway;
mod hold;
mod opener;
mod refusals;
mod routes;
pub mod traffic;
pub mod trial;

use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrStorage, socketpair};
use stockade_egress::ablate::{Check, without};
use stockade_egress::gateway::{Config, Limits, Traffic};
use stockade_egress::layout::{Kind, Layout};
use stockade_egress::upstream::{Hosts, name_servers};

pub use self::changing::Changing;
use self::gateway::Waiting;
pub use self::gateway::{GATEWAY, descriptors};
pub use self::hold::{Event, Gateway};
pub use self::refusals::denials;
use crate::error::{Error, Result, Step};
use crate::failure::{Applied, During};
use crate::plan::{Egress, Published, RunPlan};
use crate::sys::{net, socket};

/// Everything that the child needs to open its side.
#[derive(Debug)]
pub struct PreparedEgress {
    layout: Layout,
    /// A message of rtnetlink for each route.
    routes: Vec<Vec<u8>>,
    addresses: Vec<SockaddrStorage>,
    /// How many sockets for published ports.
    connectors: usize,
    /// Takes the sockets to the gateway.
    channel: Option<OwnedFd>,
    /// Takes a socket of the sandbox's network to the supervisor of a session.
    supervisor: Option<OwnedFd>,
}

/// Prepares the child's side, and starts the gateway, if the plan has rules for hosts or published ports. `stays` is for a session. `ids`
/// are those that the gateway takes, if this process may take any.
pub fn start(
    plan: &RunPlan,
    log: Option<OwnedFd>,
    stays: bool,
    ids: Option<(u32, u32)>,
) -> Result<Option<(PreparedEgress, Gateway)>> {
    let Some((prepared, waiting)) = prepare(plan, log, stays)? else { return Ok(None) };
    Ok(Some((prepared, waiting.start(ids)?)))
}

/// Parent half: the child's side, and what the gateway is made from.
fn prepare(plan: &RunPlan, log: Option<OwnedFd>, stays: bool) -> Result<Option<(PreparedEgress, Waiting)>> {
    let Some(egress) = &plan.egress else { return Ok(None) };
    let _ = without(Check::Names); // the gateway has no environment to read it from
    let layout = Layout::of(&egress.rules).map_err(|reason| Error::new(Step::Plan, "network.allow", reason))?;
    let (outside, channel) = pair()?;
    let (changing, supervisor) = match stays || !egress.publish.is_empty() {
        false => (None, None),
        true => Changing::prepare(&egress.rules, &layout, &channel).map(|(one, other)| (Some(one), Some(other)))?,
    };
    let published = egress.publish.iter().map(listener).collect::<Result<Vec<_>>>()?;
    let connectors = if published.is_empty() { 0 } else { changing::CONNECTORS };
    let (counters, traffic) = traffic::prepare()?;
    let config = config(&plan.confinement.id, egress, &layout, stays, traffic);
    let waiting = Waiting::prepare(config, outside, log, published, changing, counters)?;
    let prepared = PreparedEgress {
        routes: layout.routes.iter().map(|network| routes::local(*network)).collect(),
        addresses: layout.sockets.iter().map(|socket| socket.address.into()).collect(),
        layout,
        connectors,
        channel: Some(channel),
        supervisor,
    };
    Ok(Some((prepared, waiting)))
}

/// A listener on the host.
fn listener(published: &Published) -> Result<OwnedFd> {
    let bound = std::net::TcpListener::bind(published.listen).map(OwnedFd::from);
    bound.map_err(|error| Error::io(Step::Egress, format!("port {} of the host", published.listen), &error))
}

/// A socket that keeps the bounds of packets, and its other end.
fn pair() -> Result<(OwnedFd, OwnedFd)> {
    socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)
        .map_err(|errno| Error::errno(Step::Egress, "socket for the gateway", errno))
}

/// What the gateway knows. The host's files are read here, because it has no files.
fn config(id: &str, egress: &Egress, layout: &Layout, is_session: bool, traffic: Traffic) -> Config {
    let mut hosts = Hosts::default();
    egress.hosts.iter().for_each(|host| hosts.add(host.name.clone(), host.address));
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    hosts.add_file(&read("/etc/hosts"));
    Config {
        id: id.to_owned(),
        rules: egress.rules.clone(),
        layout: layout.clone(),
        hosts,
        servers: egress.dns.map_or_else(|| name_servers(&read("/etc/resolv.conf")), |server| vec![server]),
        proxy: egress.upstream_proxy.clone(),
        limits: Limits {
            connections: egress.connections,
            rate: egress.rate_bytes,
            budget: egress.budget_bytes,
            connect: Duration::from_micros(egress.connect_timeout_us),
            idle: Duration::from_micros(egress.idle_timeout_us),
        },
        published: egress.publish.iter().map(|published| published.port).collect(),
        is_session,
        traffic,
    }
}

impl PreparedEgress {
    /// Child half, in the new network namespace, before capabilities are dropped: makes the routes and the sockets, and sends the
    /// sockets to the gateway.
    pub fn open(&self) -> Applied {
        let channel = self.channel.as_ref().ok_or(Errno::EBADF).during(Step::Egress, 0)?;
        let netlink = net::netlink().during(Step::Egress, 0)?;
        for (index, route) in self.routes.iter().enumerate() {
            net::request(&netlink, route).during(Step::Egress, index)?;
        }
        for (index, (socket, address)) in (self.routes.len()..).zip(self.layout.sockets.iter().zip(&self.addresses)) {
            let bound = net::bound(address, socket.kind == Kind::Datagram).during(Step::Egress, index)?;
            socket::send(channel, b"s", Some(bound.as_fd())).during(Step::Egress, index)?;
        }
        for _ in 0..self.connectors {
            let socket = net::unbound().during(Step::Egress, usize::MAX)?;
            socket::send(channel, b"s", Some(socket.as_fd())).during(Step::Egress, usize::MAX)?;
        }
        if let Some(supervisor) = &self.supervisor {
            let diagnosis = net::diagnosis().during(Step::Egress, usize::MAX)?;
            socket::send(channel, b"s", Some(diagnosis.as_fd())).during(Step::Egress, usize::MAX)?;
            socket::send(supervisor, b"s", Some(netlink.as_fd())).during(Step::Egress, usize::MAX)?;
        }
        Ok(())
    }

    /// Parent half, after the clone: only the child and the gateway have the channel.
    pub fn drop_channel(&mut self) {
        (self.channel, self.supervisor) = (None, None);
    }

    /// What failed in [`Self::open`].
    pub fn object(&self, index: usize) -> String {
        match (self.layout.routes.get(index), self.layout.sockets.get(index.wrapping_sub(self.layout.routes.len()))) {
            (Some(network), _) => format!("route for {network}"),
            (None, Some(socket)) => format!("socket for {}", socket.address),
            (None, None) => String::new(),
        }
    }
}
