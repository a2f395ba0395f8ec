//! Messages of `rtnetlink(7)`, which the child sends without making them.

use std::net::IpAddr;

use ipnet::IpNet;
use netlink_packet_core::{NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REQUEST, NetlinkMessage};
use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteMessage, RouteProtocol, RouteScope, RouteType};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

/// The loopback interface, the first of every network namespace.
const LOOPBACK: u32 = 1;

/// The table of local addresses, `RT_TABLE_LOCAL`.
const LOCAL: u8 = 255;

/// Makes all addresses of a network this host's own: `ip route add local NETWORK dev lo`.
pub fn local(network: IpNet) -> Vec<u8> {
    let mut route = RouteMessage::default();
    let (family, address) = match network.addr() {
        IpAddr::V4(address) => (AddressFamily::Inet, RouteAddress::Inet(address)),
        IpAddr::V6(address) => (AddressFamily::Inet6, RouteAddress::Inet6(address)),
    };
    route.header.address_family = family;
    route.header.destination_prefix_length = network.prefix_len();
    route.header.table = LOCAL;
    route.header.protocol = RouteProtocol::Boot;
    route.header.scope = RouteScope::Host;
    route.header.kind = RouteType::Local;
    if network.prefix_len() > 0 {
        route.attributes.push(RouteAttribute::Destination(address));
    }
    route.attributes.push(RouteAttribute::Oif(LOOPBACK));
    let mut message = NetlinkMessage::from(RouteNetlinkMessage::NewRoute(route));
    message.header.flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL;
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    bytes
}
