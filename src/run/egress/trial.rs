//! Whether this host can do what network access by name needs, for the doctor.

use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use nix::errno::Errno;
use stockade_egress::layout::{DNS_PORT, NAME_SERVER, RANGE};

use super::routes;
use crate::sys::net;

/// The steps of [`attempt`].
pub const STEPS: &[&str] =
    &["rtnetlink", "the route for 198.18.0.0/15", "the name server", "a listener", "a connection to it"];

/// How long the connection may take, which leaves no host.
const PATIENCE: Duration = Duration::from_secs(1);

/// Makes a route and sockets as a sandbox has them, and connects to one, in a new network namespace. An error has the number of its step.
pub fn attempt() -> Result<(), (u8, Errno)> {
    let at = |step: u8| move |errno: Errno| (step, errno);
    net::loopback_up().map_err(at(0))?;
    let netlink = net::netlink().map_err(at(0))?;
    let range = ipnet::Ipv4Net::new(RANGE.0, RANGE.1).map_err(|_| (1, Errno::EINVAL))?;
    net::request(&netlink, &routes::local(range.into())).map_err(at(1))?;
    let server = SocketAddr::from((NAME_SERVER, DNS_PORT));
    net::bound(&server.into(), true).map_err(at(2))?;
    let listener = net::bound(&server.into(), false).map_err(at(3))?;
    let connected = TcpStream::connect_timeout(&server, PATIENCE);
    drop(listener);
    connected.map(drop).map_err(|error| (4, error.raw_os_error().map_or(Errno::EIO, Errno::from_raw)))
}
