//! Network access by name: what `--allow-net` and `--publish` need.

use std::net::{SocketAddr, UdpSocket};

use stockade_egress::upstream::name_servers;

use super::{Finding, Group, Probe, Subject, kernel_text};
use crate::plan::{Egress, RlimitResource};
use crate::run::egress::{descriptors, trial};
use crate::sys::process::rlimit;

const fn subject(name: &'static str, title: &'static str, without: &'static str) -> Subject {
    Subject { name, group: Group::Network, title, required: false, without }
}

const EGRESS: Subject =
    subject("egress", "route and name server inside", "runs with --allow-net or --publish are refused");
const DESCRIPTORS: Subject =
    subject("egress_descriptors", "descriptors of the gateway", "runs with --allow-net are refused");
const SERVERS: Subject =
    subject("name_servers", "name servers of the host", "--allow-net finds no names without --dns or --add-host");

pub(super) fn examine(probe: &Probe) -> Vec<Finding> {
    let works = "made in a new network namespace, and connected to";
    vec![
        probe.tried(&EGRESS, libc::CLONE_NEWNET, works, trial::STEPS, || trial::attempt().map(|()| 0)),
        gateway_descriptors(),
        servers(),
    ]
}

/// The sockets of a name server and of a rule with its default ports.
const SOCKETS: u64 = 4;

/// With the default number of connections.
fn gateway_descriptors() -> Finding {
    let needed = descriptors(SOCKETS, Egress::CONNECTIONS);
    match rlimit(RlimitResource::Nofile.number()) {
        Ok((_, hard)) if hard >= needed => {
            DESCRIPTORS.ok(format!("{needed} are needed by default, {hard} are allowed"))
        }
        Ok((_, hard)) => DESCRIPTORS
            .degraded(
                format!("{needed} are needed by default, and the hard limit is {hard}"),
                "runs with --allow-net are refused unless --net-connections is lower",
            )
            .remedy(format!("ulimit -Hn {needed}  # where the limit is set: limits.conf, LimitNOFILE=")),
        Err(errno) => DESCRIPTORS.unknown(super::trial::words(errno)),
    }
}

/// Asks none of them: a UDP socket is connected, which needs a route and sends nothing.
fn servers() -> Finding {
    let Some(text) = kernel_text("/etc/resolv.conf") else {
        return SERVERS.missing("/etc/resolv.conf cannot be read");
    };
    let servers = name_servers(&text);
    let is_routed = |server: &SocketAddr| {
        let any: SocketAddr = if server.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0_u16; 8], 0).into() };
        UdpSocket::bind(any).and_then(|socket| socket.connect(server)).is_ok()
    };
    let list = |servers: &[SocketAddr]| servers.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
    let (routed, lost): (Vec<_>, Vec<_>) = servers.into_iter().partition(is_routed);
    match (routed.is_empty(), lost.is_empty()) {
        (true, true) => SERVERS.missing("/etc/resolv.conf names none"),
        (true, false) => SERVERS.missing(format!("no route leads to {}", list(&lost))),
        (false, true) => SERVERS.ok(format!("{}, to which routes lead", list(&routed))),
        (false, false) => SERVERS.degraded(
            format!("a route leads to {}, and none to {}", list(&routed), list(&lost)),
            "questions take longer, because some servers never answer",
        ),
    }
}
