//! Networks and sockets: D37 to D41.

use crate::kernel::{call, read};
use crate::{Outcome, RIG, Stop, attempt};

pub fn run(id: &str) -> bool {
    match id {
        "D37" => {
            for address in
                ["127.0.0.1:7001", "[::1]:7001", "127.0.0.2:7001", "203.0.113.10:7001", "[::ffff:127.0.0.1]:7001"]
            {
                attempt(address, || tcp(address));
            }
        }
        "D38" => {
            for address in ["203.0.113.10:80", "169.254.169.254:80", "10.0.0.5:80", "100.100.100.200:80"] {
                attempt(address, || tcp(address));
            }
        }
        "D39" => {
            for address in ["203.0.113.53:53", "127.0.0.53:53", "224.0.0.251:5353", "255.255.255.255:53"] {
                attempt(address, || udp(address));
            }
            for name in ["/run/systemd/resolve/io.systemd.Resolve", "/var/run/nscd/socket", "/run/avahi-daemon/socket"]
            {
                attempt(name, || unix(name.as_bytes()));
            }
        }
        "D40" => {
            attempt("abstract name", || unix(b"\0attackcanary"));
            attempt("list of abstract names", || match read_all("/proc/net/unix")?.contains("attackcanary") {
                true => Ok("lists the host's".into()),
                false => Err(libc::ENOENT.into()),
            });
        }
        "D41" => {
            let names = ["/run/docker.sock", "/run/dbus/system_bus_socket", "/run/containerd/containerd.sock"];
            for name in names.into_iter().map(str::to_owned).chain([format!("{RIG}/host/socket")]) {
                attempt(&name, || unix(name.as_bytes()));
            }
        }
        // A known gap if Landlock is older than ABI 9; a separate row keeps the other one unambiguous.
        "D41-bound" => {
            attempt("a socket in a directory that was bound", || unix(format!("{RIG}/ro/socket").as_bytes()))
        }
        _ => return false,
    }
    true
}

fn read_all(name: &str) -> Result<String, i32> {
    read(name)?;
    std::fs::read_to_string(name).map_err(|error| error.raw_os_error().unwrap_or(0))
}

/// The kernel's form of an address.
pub fn internet(address: &str) -> Result<(usize, Vec<u8>), i32> {
    let address: std::net::SocketAddr = address.parse().map_err(|_| libc::EINVAL)?;
    let port = address.port().to_be_bytes();
    Ok(match address {
        std::net::SocketAddr::V4(four) => (2, [&2u16.to_ne_bytes()[..], &port, &four.ip().octets(), &[0; 8]].concat()),
        std::net::SocketAddr::V6(six) => {
            (10, [&10u16.to_ne_bytes()[..], &port, &[0; 4], &six.ip().octets(), &[0; 4]].concat())
        }
    })
}

fn tcp(address: &str) -> Outcome {
    let (family, bytes) = internet(address)?;
    let fd = call(libc::SYS_socket, &[family, 1, 0])?;
    call(libc::SYS_connect, &[fd, bytes.as_ptr() as usize, bytes.len()])?;
    let message = *b"leak";
    call(libc::SYS_write, &[fd, message.as_ptr() as usize, 4])?;
    Ok("connected".into())
}

fn udp(address: &str) -> Outcome {
    let (family, bytes) = internet(address)?;
    let fd = call(libc::SYS_socket, &[family, 2, 0])?;
    let on = [1u32];
    let _ = call(libc::SYS_setsockopt, &[fd, 1, 6, on.as_ptr() as usize, 4]); // SO_BROADCAST
    let message = *b"leak";
    call(libc::SYS_sendto, &[fd, message.as_ptr() as usize, 4, 0, bytes.as_ptr() as usize, bytes.len()])?;
    Err(Stop::Absent("sent; who gets it tells".into()))
}

fn unix(name: &[u8]) -> Outcome {
    let fd = call(libc::SYS_socket, &[1, 1, 0])?;
    let end: &[u8] = if name[0] == 0 { &[] } else { &[0] };
    let bytes = [&1u16.to_ne_bytes()[..], name, end].concat();
    call(libc::SYS_connect, &[fd, bytes.as_ptr() as usize, bytes.len()])?;
    let message = *b"leak";
    call(libc::SYS_write, &[fd, message.as_ptr() as usize, 4])?;
    Ok("connected".into())
}
