//! The gateway: serves the sockets of the sandbox's network, and dials outside.
//!
//! It has one thread. Everything that it needs is opened before it confines itself; from then on it only accepts, connects,
//! and moves bytes.

mod connection;
mod dns;
mod log;
mod meter;
mod orders;
mod owner;
mod proxy;
mod publish;
mod pump;
mod state;
mod traffic;

use std::io::{self, Write as _};
use std::net::{TcpListener, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::time::Duration;

use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncReadExt as _, Interest};
use tokio::task::{LocalSet, spawn_local};

use self::log::Log;
pub use self::orders::{Order, Orders, Receive};
use self::owner::Owners;
use self::state::State;
pub use self::traffic::Traffic;
use crate::layout::{Kind, Layout, Socket};
use crate::proxy::Proxy;
use crate::rule::Rules;
use crate::upstream::Hosts;

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
    /// The proxy that every connection to a host goes through.
    pub proxy: Option<Proxy>,
    /// Its bounds.
    pub limits: Limits,
    /// The ports of the sandbox that are published, in the order of their listeners.
    pub published: Vec<u16>,
    /// Whether it is for a session, whose commands it tells apart.
    pub is_session: bool,
    /// Where the traffic is counted.
    pub traffic: Traffic,
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
    /// Only a few sockets for published ports are left.
    pub const SOCKETS: u8 = b's';
    /// A change of the rules is in force.
    pub const CHANGED: u8 = b'c';
    /// The totals follow, then the end.
    pub const TOTALS: u8 = b't';
}

/// How long connections may drain when the workload has ended.
const GRACE: Duration = Duration::from_millis(500);

/// What the gateway was given.
#[derive(Debug)]
pub struct Given {
    /// The sockets of the sandbox's network, in the order of the layout.
    pub sockets: Vec<OwnedFd>,
    /// The listeners on the host.
    pub published: Vec<OwnedFd>,
    /// Sockets for connections to published ports.
    pub connectors: Vec<OwnedFd>,
    /// The network log.
    pub log: Option<OwnedFd>,
    /// What it has if it is for a session, or has published ports.
    pub managed: Option<Managed>,
}

/// What the gateway has whose supervisor makes sockets while it runs.
#[derive(Debug)]
pub struct Managed {
    /// A netlink socket of the sandbox's network namespace.
    pub diagnosis: OwnedFd,
    /// Where changes come from.
    pub orders: Orders,
}

/// Serves until the supervisor closes its writing side, or is gone.
pub fn serve(config: Config, given: Given, control: UnixStream) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
    control.set_nonblocking(true)?;
    runtime.block_on(LocalSet::new().run_until(async move {
        let mut supervisor = tokio::net::UnixStream::from_std(control.try_clone()?)?;
        let expected = config.layout.sockets.clone();
        let log = Log::new(given.log, config.is_session);
        let (owners, orders) = given.managed.map(|one| (Owners::new(one.diagnosis), one.orders)).unzip();
        let (owners, ports) = (owners.filter(|_| config.is_session), config.published.clone());
        let state = Rc::new(State::new(config, log, owners, control));
        for (number, (socket, fd)) in expected.into_iter().zip(given.sockets).enumerate() {
            listen(&state, socket, fd, number == 1)?;
        }
        state.add_connectors(given.connectors);
        for (port, fd) in ports.into_iter().zip(given.published) {
            let listener = TcpListener::from(fd);
            listener.set_nonblocking(true)?;
            let listener = tokio::net::TcpListener::from_std(listener)?;
            spawn_local(publish::accept(Rc::clone(&state), listener, port));
        }
        if let Some(orders) = orders {
            spawn_local(orders::take(Rc::clone(&state), orders));
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

/// Serves a socket of the sandbox's network. `names` is whether the name server listens there.
fn listen(state: &Rc<State>, socket: Socket, fd: OwnedFd, names: bool) -> io::Result<()> {
    let state = Rc::clone(state);
    match socket.kind {
        Kind::Datagram => {
            let socket = UdpSocket::from(fd);
            socket.set_nonblocking(true)?;
            spawn_local(dns::datagrams(state, tokio::net::UdpSocket::from_std(socket)?));
        }
        Kind::Listener => {
            let listener = TcpListener::from(fd);
            listener.set_nonblocking(true)?;
            let listener = tokio::net::TcpListener::from_std(listener)?;
            match names {
                true => drop(spawn_local(dns::streams(state, listener))),
                false => drop(spawn_local(connection::accept(state, listener))),
            }
        }
    }
    Ok(())
}

/// Lets the runtime watch a descriptor. One that cannot be watched, such as a file, is returned.
#[allow(deprecated)] // what it warns of cannot happen to a descriptor that is owned
fn watch(fd: OwnedFd, interest: Interest) -> Result<AsyncFd<OwnedFd>, OwnedFd> {
    AsyncFd::try_with_interest(fd, interest).map_err(|error| error.into_parts().0)
}
