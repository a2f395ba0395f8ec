//! Resolves allowed names outside: from the names that the caller gave, the host's `hosts` file, and its name servers.

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use hickory_proto::op::{Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::{DNSClass, Name as WireName, RData, RecordType};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrStorage};
use std::os::fd::{AsRawFd as _, OwnedFd};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;

use crate::name::Name;

/// How long a name server may take, and how often each is asked.
const PATIENCE: Duration = Duration::from_secs(2);
const TRIES: u32 = 2;

/// The bounds of the time for which a name keeps its addresses.
const PINNED: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(300));

/// The most addresses of a name, names that are remembered, and names in a chain of aliases.
const ADDRESSES: usize = 16;
const REMEMBERED: usize = 1024;
const ALIASES: usize = 8;

/// Names with addresses that no name server is asked about. The first that adds a name has it.
#[derive(Clone, Debug, Default)]
pub struct Hosts(HashMap<Name, Vec<IpAddr>>);

impl Hosts {
    /// Adds addresses of a name that was given.
    pub fn add(&mut self, name: Name, address: IpAddr) {
        self.0.entry(name).or_default().push(address);
    }

    /// Adds the names of a `hosts(5)` file that have none yet. Lines that are wrong are skipped, as by the C library.
    pub fn add_file(&mut self, text: &str) {
        let mut found = Self::default();
        for line in text.lines() {
            let mut words = line.split('#').next().unwrap_or_default().split_whitespace();
            let Some(Ok(address)) = words.next().map(str::parse) else { continue };
            words.filter_map(|word| word.parse().ok()).for_each(|name| found.add(name, address));
        }
        for (name, addresses) in found.0 {
            self.0.entry(name).or_insert(addresses);
        }
    }
}

/// The name servers of a `resolv.conf(5)` file: at most three, as the C library takes.
pub fn name_servers(text: &str) -> Vec<SocketAddr> {
    let server = |line: &str| {
        let mut words = line.split_whitespace();
        let address: IpAddr = (words.next()? == "nameserver").then(|| words.next())??.parse().ok()?;
        Some(SocketAddr::new(address, 53))
    };
    text.lines().filter_map(server).take(3).collect()
}

/// Why a name has no address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unresolved {
    /// It does not exist, or has no address.
    NotFound,
    /// No name server is configured, or none has answered.
    NoAnswer,
}

/// Resolves names, and keeps the answers for as long as they hold.
#[derive(Debug)]
pub struct Resolver {
    hosts: Hosts,
    servers: Vec<SocketAddr>,
    known: RefCell<HashMap<Name, (Vec<IpAddr>, Instant)>>,
}

impl Resolver {
    /// With these names, and these servers for all others.
    pub fn new(hosts: Hosts, servers: Vec<SocketAddr>) -> Self {
        Self { hosts, servers, known: RefCell::default() }
    }

    /// The addresses of a name, those of IPv4 first. Never empty.
    pub async fn resolve(&self, name: &Name) -> Result<Vec<IpAddr>, Unresolved> {
        if let Some(addresses) = self.hosts.0.get(name) {
            return Ok(addresses.clone());
        }
        let now = Instant::now();
        if let Some((addresses, until)) = self.known.borrow().get(name).filter(|(_, until)| *until > now) {
            let _ = until;
            return Ok(addresses.clone());
        }
        let (four, six) = tokio::join!(self.lookup(name, RecordType::A), self.lookup(name, RecordType::AAAA));
        let (mut addresses, ttl) = match (four, six) {
            (Ok(four), Ok(six)) => ([four.0, six.0].concat(), four.1.min(six.1)),
            (Ok(found), Err(_)) | (Err(_), Ok(found)) => found,
            (Err(error), Err(_)) => return Err(error),
        };
        addresses.truncate(ADDRESSES);
        if addresses.is_empty() {
            return Err(Unresolved::NotFound);
        }
        let mut known = self.known.borrow_mut();
        if known.len() >= REMEMBERED {
            known.retain(|_, (_, until)| *until > now);
        }
        if known.len() < REMEMBERED {
            known.insert(name.clone(), (addresses.clone(), now + ttl.clamp(PINNED.0, PINNED.1)));
        }
        Ok(addresses)
    }

    /// The addresses of one kind, and for how long they hold.
    async fn lookup(&self, name: &Name, kind: RecordType) -> Result<(Vec<IpAddr>, Duration), Unresolved> {
        let wire = WireName::from_ascii(format!("{name}.")).map_err(|_| Unresolved::NotFound)?;
        let mut query = Message::query();
        query.metadata.recursion_desired = true;
        query.add_query(Query::query(wire, kind));
        let packet = query.to_vec().map_err(|_| Unresolved::NotFound)?;
        for _ in 0..TRIES {
            for server in &self.servers {
                let Ok(Some(reply)) = timeout(PATIENCE, ask(*server, &query, &packet)).await else { continue };
                match reply.metadata.response_code {
                    ResponseCode::NoError => return Ok(addresses(&reply, kind)),
                    ResponseCode::NXDomain => return Err(Unresolved::NotFound),
                    _ => {} // perhaps another knows
                }
            }
        }
        Err(Unresolved::NoAnswer)
    }
}

/// Asks one server, by UDP and, if the answer does not fit, by TCP.
async fn ask(server: SocketAddr, query: &Message, packet: &[u8]) -> Option<Message> {
    let socket = UdpSocket::from_std(std::net::UdpSocket::from(connected(server)?)).ok()?;
    socket.send(packet).await.ok()?;
    let mut buffer = [0; 4096];
    let reply = loop {
        let length = socket.recv(&mut buffer).await.ok()?;
        if let Some(reply) = answers(&buffer[..length], query) {
            break reply;
        }
    };
    if !reply.metadata.truncation {
        return Some(reply);
    }
    let mut stream = TcpStream::connect(server).await.ok()?;
    let framed = [&u16::try_from(packet.len()).ok()?.to_be_bytes(), packet].concat();
    stream.write_all(&framed).await.ok()?;
    let length = stream.read_u16().await.ok()?;
    let mut buffer = vec![0; length.into()];
    stream.read_exact(&mut buffer).await.ok()?;
    answers(&buffer, query)
}

/// A socket that receives from this server alone, with a port that the kernel chooses.
fn connected(server: SocketAddr) -> Option<OwnedFd> {
    let family = if server.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = nix::sys::socket::socket(family, SockType::Datagram, flags, None).ok()?;
    nix::sys::socket::connect(socket.as_raw_fd(), &SockaddrStorage::from(server)).ok()?;
    Some(socket)
}

/// The message, if it answers this query.
fn answers(bytes: &[u8], query: &Message) -> Option<Message> {
    let reply = Message::from_vec(bytes).ok()?;
    let head = &reply.metadata;
    let fits = head.id == query.metadata.id
        && head.message_type == MessageType::Response
        && head.op_code == OpCode::Query
        && reply.queries == query.queries;
    fits.then_some(reply)
}

/// The addresses of the name that was asked for, through its aliases, and the shortest time for which one of these records holds.
fn addresses(reply: &Message, kind: RecordType) -> (Vec<IpAddr>, Duration) {
    let Some(query) = reply.queries.first() else { return (Vec::new(), PINNED.0) };
    let mut owner = query.name().clone();
    let mut ttl = u32::MAX;
    let records = || reply.answers.iter().filter(|record| record.dns_class == DNSClass::IN);
    for _ in 0..ALIASES {
        let alias = records().filter(|record| record.name == owner).find_map(|record| match &record.data {
            RData::CNAME(target) => Some((target.0.clone(), record.ttl)),
            _ => None,
        });
        let Some((target, holds)) = alias else { break };
        (owner, ttl) = (target, ttl.min(holds));
    }
    let mut found = Vec::new();
    for record in records().filter(|record| record.name == owner) {
        let address = match (&record.data, kind) {
            (RData::A(address), RecordType::A) => IpAddr::from(address.0),
            (RData::AAAA(address), RecordType::AAAA) => IpAddr::from(address.0),
            _ => continue,
        };
        ttl = ttl.min(record.ttl);
        found.push(address);
    }
    (found, Duration::from_secs(ttl.into()))
}

/// Reads an answer to a question for this name, as the resolver does. For tests of the parser.
pub fn read_answer(bytes: &[u8], name: &Name) -> Vec<IpAddr> {
    let Ok(wire) = WireName::from_ascii(format!("{name}.")) else { return Vec::new() };
    let mut query = Message::new(
        u16::from_be_bytes([*bytes.first().unwrap_or(&0), *bytes.get(1).unwrap_or(&0)]),
        MessageType::Query,
        OpCode::Query,
    );
    query.add_query(Query::query(wire, RecordType::A));
    answers(bytes, &query).map(|reply| addresses(&reply, RecordType::A).0).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use hickory_proto::rr::Record;
    use hickory_proto::rr::rdata::{A, CNAME};

    use super::*;

    fn wire(name: &str) -> WireName {
        WireName::from_ascii(name).unwrap()
    }

    #[test]
    fn files_of_the_host_are_read_as_the_c_library_does() {
        let text = "# x\nnameserver 192.0.2.1\nsearch a b\nnameserver fe80::1%eth0\n nameserver  2001:db8::1 # y\nnameserver\n";
        let found: Vec<_> = name_servers(text).iter().map(ToString::to_string).collect();
        assert_eq!(found, ["192.0.2.1:53", "[2001:db8::1]:53"]);
        let mut hosts = Hosts::default();
        hosts.add("a".parse().unwrap(), [9, 9, 9, 9].into());
        hosts.add_file("10.0.0.1 a b # c\n\n::1 b localhost\nx y\n10.0.0.2\tB.\n");
        let of = |name: &str| hosts.0.get(&name.parse().unwrap()).map(Vec::len);
        assert_eq!((of("a"), of("b"), of("localhost"), of("c"), of("y")), (Some(1), Some(3), Some(1), None, None));
    }

    #[test]
    fn only_records_of_the_asked_name_and_its_aliases_count() {
        let mut reply = Message::new(7, MessageType::Response, OpCode::Query);
        reply.add_query(Query::query(wire("a.example."), RecordType::A));
        let a = |name, ttl, last| Record::from_rdata(wire(name), ttl, RData::A(A([192, 0, 2, last].into())));
        reply.add_answer(a("evil.example.", 1, 66));
        reply.add_answer(Record::from_rdata(wire("a.example."), 50, RData::CNAME(CNAME(wire("b.example.")))));
        reply.add_answer(a("b.example.", 90, 2));
        reply.add_answer(a("a.example.", 1, 67));
        let expected: Vec<IpAddr> = vec![[192, 0, 2, 2].into()];
        assert_eq!(addresses(&reply, RecordType::A), (expected.clone(), Duration::from_secs(50)));
        let bytes = reply.to_vec().unwrap();
        assert_eq!(read_answer(&bytes, &"a.example".parse().unwrap()), expected);
        assert!(read_answer(&bytes, &"b.example".parse().unwrap()).is_empty(), "an answer to another question");
        reply.answers.truncate(2);
        reply.add_answer(Record::from_rdata(wire("b.example."), 50, RData::CNAME(CNAME(wire("a.example.")))));
        assert!(addresses(&reply, RecordType::A).0.is_empty(), "aliases in a circle");
    }
}
