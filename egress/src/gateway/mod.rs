//! The gateway: serves the sockets of the sandbox's network, and dials outside.
//!
//! It has one thread. Everything that it needs is opened before it confines itself; from then on it only accepts, connects,
//! and moves bytes.

mod connection;
mod dns;
mod meter;
mod pump;
mod state;

use std::fs::File;
use std::io::{self, Write as _};
use std::net::{TcpListener, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::task::{LocalSet, spawn_local};

use self::state::State;
use crate::layout::{Kind, Layout};
use crate::rule::Rules;
use crate::upstream::{Hosts, Resolver};

/// Everything that the gateway knows.
#[derive(Debug)]
pub struct Config {
    /// Name of the sandbox, for the log.
    pub id: String,
    /// The rules.
    pub rules: Rules,
    /// What follows from them.
    pub layout: Layout,
    /// Names with given addresses.
    pub hosts: Hosts,
    /// The name servers outside.
    pub servers: Vec<std::net::SocketAddr>,
    /// Its bounds.
    pub limits: Limits,
}

/// The bounds of the traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections at a time.
    pub connections: u32,
    /// Bytes per second, both directions together.
    pub rate: Option<u64>,
    /// Bytes in all, both directions together.
    pub budget: Option<u64>,
    /// Time to resolve a name and connect.
    pub connect: Duration,
    /// Time without a byte in either direction.
    pub idle: Duration,
}

/// What the gateway tells its supervisor: a byte, followed by the totals as JSON for the last.
pub mod told {
    /// It is confined.
    pub const READY: u8 = b'r';
    /// The budget is used up.
    pub const BUDGET: u8 = b'b';
    /// A line could not be written to the log.
    pub const LOG: u8 = b'l';
    /// The totals follow, then the end.
    pub const TOTALS: u8 = b't';
}

/// How long connections may drain when the workload has ended.
const GRACE: Duration = Duration::from_millis(500);

/// Serves until the supervisor closes its writing side, or is gone. `sockets` are in the order of the layout.
pub fn serve(config: Config, sockets: Vec<OwnedFd>, control: UnixStream, log: Option<File>) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
    control.set_nonblocking(true)?;
    runtime.block_on(LocalSet::new().run_until(async move {
        let mut supervisor = tokio::net::UnixStream::from_std(control.try_clone()?)?;
        let Config { id, rules, layout, hosts, servers, limits } = config;
        let state = Rc::new(State::new(id, rules, &layout, Resolver::new(hosts, servers), limits, log, control));
        for (number, (socket, fd)) in layout.sockets.iter().zip(sockets).enumerate() {
            let state = Rc::clone(&state);
            match (socket.kind, number) {
                (Kind::Datagram, _) => {
                    let socket = UdpSocket::from(fd);
                    socket.set_nonblocking(true)?;
                    spawn_local(dns::datagrams(state, tokio::net::UdpSocket::from_std(socket)?));
                }
                (Kind::Listener, _) => {
                    let listener = TcpListener::from(fd);
                    listener.set_nonblocking(true)?;
                    let listener = tokio::net::TcpListener::from_std(listener)?;
                    match number {
                        1 => drop(spawn_local(dns::streams(state, listener))),
                        _ => drop(spawn_local(connection::accept(state, listener))),
                    }
                }
            }
        }
        let _ = supervisor.read(&mut [0; 1]).await; // end of file
        state.end(GRACE).await;
        let mut said = vec![told::TOTALS];
        said.extend(serde_json::to_vec(&state.totals())?);
        let mut control = supervisor.into_std()?;
        control.set_nonblocking(false)?;
        control.write_all(&said)
    }))
}
