//! A connection of the workload: from the address that it dialled to a checked one outside.

use std::cell::{Cell, RefCell};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd as _;
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime};

use nix::sys::socket::{setsockopt, sockopt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::spawn_local;
use tokio::time::{Instant as Deadline, sleep, timeout, timeout_at};

use super::pump::{Pump, Shared, idle};
use super::state::{Happened, State};
use super::traffic::Count;
use super::{GRACE, proxy};
use crate::ablate::{Check, without};
use crate::client_hello::{self, Hello};
use crate::name::Name;
use crate::record::{Event, Outcome};
use crate::rule::{Refused, Rules};
use crate::upstream::Unresolved;

/// How long a ClientHello may take from its first byte.
const HELLO: Duration = Duration::from_secs(10);

/// Accepts the connections to one address.
pub async fn accept(state: Rc<State>, listener: TcpListener) {
    loop {
        match listener.accept().await {
            Ok((client, _)) => drop(spawn_local(serve(Rc::clone(&state), client))),
            Err(_) => sleep(Duration::from_millis(10)).await, // no descriptor is free
        }
    }
}

/// How a connection ended, if not well: why.
pub enum Bad {
    Refused(String),
    Failed(String),
}

pub fn refused<T>(reason: impl Into<String>) -> Result<T, Bad> {
    Err(Bad::Refused(reason.into()))
}

impl From<io::Error> for Bad {
    fn from(error: io::Error) -> Self {
        Self::Failed(match error.kind() {
            io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => "reset".to_owned(),
            io::ErrorKind::TimedOut => "timed_out".to_owned(),
            _ => error
                .raw_os_error()
                .map_or("io".to_owned(), |number| format!("{:?}", nix::errno::Errno::from_raw(number))),
        })
    }
}

/// What is known of a connection so far.
struct Connection<'a> {
    state: &'a State,
    client: &'a TcpStream,
    /// The name that its address stands for.
    name: Option<&'a Name>,
    dialled: Cell<Option<IpAddr>>,
    port: u16,
    server_name: RefCell<Option<String>>,
    sent: Count,
    received: Count,
    /// Whether the workload's last byte was passed on.
    sent_all: Cell<bool>,
}

async fn serve(state: Rc<State>, client: TcpStream) {
    let (at, begun) = (SystemTime::now(), Instant::now());
    let Ok(local) = client.local_addr() else { return };
    let (address, port) = (local.ip().to_canonical(), local.port());
    let synthetic = if let IpAddr::V4(address) = address { Some(address) } else { None };
    let name = synthetic.and_then(|address| state.names.borrow().at(address).cloned());
    let rule = match &name {
        Some(name) => state.rules.borrow().for_name(name, port),
        None => state.rules.borrow().for_address(address, port),
    };
    let rule = rule.or(without(Check::Connections).then_some(0));
    let cgroup = state.owners.as_ref().and_then(|owners| owners.cgroup_of(&client));
    let connection = Connection {
        state: &state,
        client: &client,
        name: name.as_ref(),
        dialled: Cell::new(None),
        port,
        server_name: RefCell::new(None),
        sent: state.traffic.sent(),
        received: state.traffic.received(),
        sent_all: Cell::new(false),
    };
    let allowed = rule.ok_or("no_rule").and_then(|rule| state.may_open().map(|()| rule));
    let ended = match allowed {
        Ok(_) => {
            let _open = state.open();
            synthetic.inspect(|address| state.names.borrow_mut().hold(*address, true));
            let ended = connection.relay(local).await;
            synthetic.inspect(|address| state.names.borrow_mut().hold(*address, false));
            ended
        }
        Err(reason) => refused(reason),
    };
    let bytes = (connection.sent.get(), connection.received.get());
    let host = name.as_ref().map_or_else(|| address.to_string(), ToString::to_string);
    let (result, reason, logged) = match ended {
        Ok(()) => (Outcome::Closed, None, true),
        Err(Bad::Failed(reason)) => (Outcome::Failed, Some(reason), true),
        Err(Bad::Refused(reason)) => {
            // Of connections that are refused at once only the first of a kind has a line: the workload could make any number.
            let first = state.refuse(&host, Some(port), &reason);
            (Outcome::Refused, Some(reason), first || connection.dialled.get().is_some())
        }
    };
    if result != Outcome::Closed {
        // The workload sees a reset, and not the end of a transfer.
        let _ = setsockopt(&client.as_fd(), sockopt::Linger, &at_once());
    }
    if let Some(rule) = rule.filter(|_| connection.dialled.get().is_some()) {
        state.count(rule, bytes);
    }
    if logged {
        state.write(Happened {
            command: state.command(cgroup),
            event: Event::Connection,
            at,
            took: begun.elapsed(),
            name: name.as_ref().map(Name::as_str),
            rule,
            address: connection.dialled.get().or(name.is_none().then_some(address)),
            port: Some(port),
            server_name: connection.server_name.borrow().as_deref(),
            bytes,
            result,
            reason,
        });
    }
}

/// Close at once, with a reset.
pub fn at_once() -> nix::libc::linger {
    nix::libc::linger { l_onoff: 1, l_linger: 0 }
}

impl Connection<'_> {
    async fn relay(&self, local: SocketAddr) -> Result<(), Bad> {
        let deadline = Deadline::now() + self.state.limits.connect;
        let (server, first) = tokio::select! {
            dialled = self.dial(local, deadline) => dialled?,
            () = self.is_denied(local) => return Err(Bad::Failed("denied".to_owned())),
            () = self.state.ending() => return Err(Bad::Failed("ended".to_owned())),
        };
        let _ = (self.client.set_nodelay(true), server.set_nodelay(true));
        let shared = Shared { moved: Cell::new(Instant::now()) };
        let meter = &self.state.meter;
        let there = Pump { from: self.client, to: &server, bytes: &self.sent, shared: &shared, meter };
        let back = Pump { from: &server, to: self.client, bytes: &self.received, shared: &shared, meter };
        let there = async {
            self.check_hello(&server, &shared).await?;
            within_budget(there.run().await?)?;
            self.sent_all.set(true);
            Ok(())
        };
        let back = async {
            self.pass(self.client, &first, &self.received).await?;
            within_budget(back.run().await?)
        };
        let both = async { tokio::try_join!(there, back).map(drop) };
        let ended = tokio::select! {
            ended = both => ended,
            () = idle(&shared, self.state.limits.idle) => Err(Bad::Failed("idle".to_owned())),
            () = self.is_denied(local) => Err(Bad::Failed("denied".to_owned())),
            () = self.is_over() => if self.sent_all.get() { Ok(()) } else { Err(Bad::Failed("ended".to_owned())) },
        };
        if self.state.meter.is_used_up() {
            self.state.tell_budget();
        }
        ended
    }

    /// Connects to an address that was checked, and to no other. Also returns what came from a proxy with its answer.
    async fn dial(&self, local: SocketAddr, deadline: Deadline) -> Result<(TcpStream, Vec<u8>), Bad> {
        let addresses = match self.name {
            None => vec![local.ip().to_canonical()],
            Some(name) => match timeout_at(deadline, self.state.resolver.resolve(name)).await {
                Ok(Ok(addresses)) => addresses,
                Ok(Err(Unresolved::NotFound)) => return Err(Bad::Failed("name_not_found".to_owned())),
                Ok(Err(Unresolved::NoAnswer)) | Err(_) => return Err(Bad::Failed("no_name_server".to_owned())),
            },
        };
        let mut why = None;
        let mut checked = Vec::new();
        for address in addresses {
            match self.state.rules.borrow().may_dial(address, self.port) {
                Ok(()) => checked.push(address),
                Err(Refused::Denied) => why = Some(format!("address_denied: {address}")),
                Err(Refused::Special(special)) => why = Some(format!("address_refused: {address} is {}", special.what)),
            }
        }
        if let (true, Some(why)) = (checked.is_empty(), why) {
            return refused(why);
        }
        let mut failed = Bad::Failed("timed_out".to_owned());
        let count = checked.len() as u32;
        for (index, address) in (0..count).zip(checked) {
            let wanted = SocketAddr::new(address, self.port);
            // What is left, shared among the addresses that are left.
            let part = deadline.saturating_duration_since(Deadline::now()) / (count - index);
            let reached = match &self.state.proxy {
                Some(proxy) => proxy::connect(proxy, &self.state.resolver, wanted, Deadline::now() + part).await,
                None => connect(wanted, part).await.map(|stream| (stream, Vec::new())),
            };
            match reached {
                Err(bad) => failed = bad,
                Ok(reached) => {
                    self.dialled.set(Some(address));
                    return Ok(reached);
                }
            }
        }
        Err(failed)
    }

    /// Reads the first bytes of the workload and passes them on, if they are not TLS for another name.
    async fn check_hello(&self, server: &TcpStream, shared: &Shared) -> Result<(), Bad> {
        let Some(name) = self.name else { return Ok(()) };
        let mut bytes = Vec::new();
        let mut deadline = None;
        loop {
            let mut part = [0; 4096];
            let read = async {
                loop {
                    self.client.readable().await?;
                    match self.client.try_read(&mut part) {
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                        read => return read,
                    }
                }
            };
            let length = match deadline {
                None => read.await?,
                Some(deadline) => match timeout_at(deadline, read).await {
                    Ok(read) => read?,
                    Err(_) => return refused("tls_slow"),
                },
            };
            if length == 0 {
                return match bytes.is_empty() {
                    true => Ok(()), // it sends nothing; the pump finds the end of file, too
                    false => refused("tls_malformed"),
                };
            }
            deadline.get_or_insert(Deadline::now() + HELLO);
            bytes.extend_from_slice(&part[..length]);
            match client_hello::read(&bytes) {
                Hello::Incomplete => {}
                _ if without(Check::ServerName) => break,
                Hello::NotTls => break,
                Hello::Malformed => return refused("tls_malformed"),
                Hello::Tls(None) if name.is_single() => break, // Java sends none for such a name
                Hello::Tls(None) => return refused("sni_absent"),
                Hello::Tls(Some(sent)) => {
                    let sent_name = Name::from_wire(&sent);
                    *self.server_name.borrow_mut() = Some(String::from_utf8_lossy(&sent).chars().take(255).collect());
                    match sent_name.as_ref() == Some(name) {
                        true => break,
                        false => return refused("sni_mismatch"),
                    }
                }
            }
        }
        self.pass(server, &bytes, &self.sent).await?;
        shared.moved.set(Instant::now());
        Ok(())
    }

    /// Passes on bytes that were read already, within the budget.
    async fn pass(&self, to: &TcpStream, bytes: &[u8], counted: &Count) -> Result<(), Bad> {
        let length = bytes.len() as u64;
        if length == 0 {
            return Ok(());
        }
        self.state.meter.wait().await;
        if (self.state.meter.may() as u64) < length && self.state.limits.budget.is_some() {
            self.state.meter.count(u64::MAX);
            return within_budget(false);
        }
        self.state.meter.count(length);
        write(to, bytes).await?;
        counted.add(length);
        Ok(())
    }

    /// Returns when the rules have changed, and do not allow this any more.
    async fn is_denied(&self, local: SocketAddr) {
        let allowed = |rules: &Rules| {
            let by_rule = match self.name {
                Some(name) => rules.for_name(name, self.port),
                None => rules.for_address(local.ip().to_canonical(), self.port),
            };
            (by_rule.is_some() || without(Check::Connections))
                && self.dialled.get().is_none_or(|address| rules.may_dial(address, self.port).is_ok())
        };
        self.state.unless(allowed).await;
    }

    /// Returns when the workload has ended, and what it sent has been passed on or has had its time.
    async fn is_over(&self) {
        self.state.ending().await;
        let until = Deadline::now() + GRACE;
        while !self.sent_all.get() && Deadline::now() < until {
            sleep(Duration::from_millis(1)).await;
        }
    }
}

/// Connects in this time. The peer is compared, so that what was checked is what is reached.
async fn connect(wanted: SocketAddr, time: Duration) -> Result<TcpStream, Bad> {
    match timeout(time, TcpStream::connect(wanted)).await {
        Err(_) => Err(Bad::Failed("timed_out".to_owned())),
        Ok(stream) => {
            let stream = stream?;
            if stream.peer_addr()? == wanted { Ok(stream) } else { refused("peer_differs") }
        }
    }
}

pub async fn write(to: &TcpStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        to.writable().await?;
        match to.try_write(bytes) {
            Ok(length) => bytes = &bytes[length..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

pub fn within_budget(is_left: bool) -> Result<(), Bad> {
    if is_left { Ok(()) } else { Err(Bad::Failed("budget".to_owned())) }
}
