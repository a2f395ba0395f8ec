//! A process that makes routes and sockets in the network of a running sandbox, and ends. It enters the sandbox's user and network
//! namespace, whose owner the supervisor is, but not its pid namespace: nothing inside can see it.

use std::os::fd::{AsFd as _, OwnedFd};

use ipnet::IpNet;
use nix::errno::Errno;
use nix::sys::socket::SockaddrStorage;
use stockade_egress::layout::{Kind, Socket};

use super::{pair, routes};
use crate::error::{Error, Result, Step};
use crate::failure::{Applied, During};
use crate::launch::failures::{FAILURE_LENGTH, failure_record, parse_failure};
use crate::sys::clone::{Cloned, clone3};
use crate::sys::{namespace, net, packet, process};

/// What it makes.
#[derive(Debug)]
pub struct Wanted {
    /// Networks whose addresses become the sandbox's own.
    pub routes: Vec<IpNet>,
    /// Sockets.
    pub sockets: Vec<Socket>,
    /// And how many sockets without an address.
    pub connectors: usize,
}

/// Makes these in a network namespace. On an error, no socket is left.
pub fn open(network: &OwnedFd, wanted: &Wanted) -> Result<Vec<OwnedFd>> {
    if wanted.routes.is_empty() && wanted.sockets.is_empty() && wanted.connectors == 0 {
        return Ok(Vec::new());
    }
    let failed = |errno| Error::errno(Step::Egress, "network of the sandbox", errno);
    let users = namespace::owner(network.as_fd()).map_err(failed)?;
    let routes: Vec<_> = wanted.routes.iter().map(|network| routes::local(*network)).collect();
    let bound = wanted.sockets.iter().map(|socket| Some((socket.address.into(), socket.kind)));
    let sockets: Vec<Option<(SockaddrStorage, Kind)>> =
        bound.chain(std::iter::repeat_n(None, wanted.connectors)).collect();
    let (ours, theirs) = pair()?;
    let (pid, pidfd) = match clone3(0, None).map_err(failed)? {
        Cloned::Child => {
            drop(ours);
            if let Err(failure) = make(network, &users, &routes, &sockets, &theirs) {
                let _ = packet::send(&theirs, &failure_record(failure), &[], true);
            }
            process::exit(0)
        }
        Cloned::Parent { pid, pidfd } => (pid, pidfd),
    };
    drop(theirs);
    let taken = take(&ours, wanted);
    process::end_child(pidfd.as_fd(), pid);
    taken
}

fn make(
    network: &OwnedFd,
    users: &OwnedFd,
    routes: &[Vec<u8>],
    sockets: &[Option<(SockaddrStorage, Kind)>],
    to: &OwnedFd,
) -> Applied {
    process::set_parent_death_signal(libc::SIGKILL).during(Step::Egress, usize::MAX)?;
    match namespace::enter(users.as_fd(), libc::CLONE_NEWUSER) {
        Err(Errno::EINVAL) => {} // the sandbox has none of its own
        entered => entered.during(Step::Egress, usize::MAX)?,
    }
    namespace::enter(network.as_fd(), libc::CLONE_NEWNET).during(Step::Egress, usize::MAX)?;
    let netlink = net::netlink().during(Step::Egress, usize::MAX)?;
    for (index, route) in routes.iter().enumerate() {
        match net::request(&netlink, route) {
            Err(Errno::EEXIST) => {} // made for a change that failed later
            made => made.during(Step::Egress, index)?,
        }
    }
    let mut made = Vec::with_capacity(packet::MOST);
    for (index, socket) in (routes.len()..).zip(sockets) {
        let socket = match socket {
            Some((address, kind)) => net::bound(address, *kind == Kind::Datagram),
            None => net::unbound(),
        };
        made.push(socket.during(Step::Egress, index)?);
        if made.len() == packet::MOST || index + 1 == routes.len() + sockets.len() {
            let fds: Vec<_> = made.iter().map(OwnedFd::as_fd).collect();
            packet::send(to, b"s", &fds, true).during(Step::Egress, index)?;
            made.clear();
        }
    }
    Ok(())
}

fn take(from: &OwnedFd, wanted: &Wanted) -> Result<Vec<OwnedFd>> {
    let failed = |errno| Error::errno(Step::Egress, "network of the sandbox", errno);
    let count = wanted.sockets.len() + wanted.connectors;
    let mut sockets = Vec::with_capacity(count);
    let mut said = [0; FAILURE_LENGTH];
    loop {
        let received = packet::receive(from, &mut said, true).map_err(failed)?;
        match received.length {
            0 if sockets.len() == count => return Ok(sockets),
            1 if received.whole => sockets.extend(received.fds),
            FAILURE_LENGTH => {
                let Some(failure) = parse_failure(&said) else { return Err(failed(Errno::EBADMSG)) };
                return Err(error(wanted, failure.index.into(), failure.errno));
            }
            _ => return Err(failed(Errno::EBADMSG)),
        }
    }
}

fn error(wanted: &Wanted, index: usize, errno: Errno) -> Error {
    let routes = wanted.routes.len();
    let object = match (wanted.routes.get(index), wanted.sockets.get(index.wrapping_sub(routes))) {
        (Some(network), _) => format!("route for {network}"),
        (None, Some(socket)) => format!("socket for {}", socket.address),
        (None, None) => "network of the sandbox".to_owned(),
    };
    let error = Error::errno(Step::Egress, object, errno);
    match errno {
        Errno::EADDRINUSE => error.hint("a process of the sandbox listens on this port of every address"),
        _ => error,
    }
}
