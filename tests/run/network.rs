//! The networks that the workload can reach: none, its own loopback, or on request the caller's.

use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::common;
use crate::common::{Caller, Run, TempDir, attack, for_each_caller, is_root, outside, python_outside, unique};

/// A listener of the host that counts connections.
struct Canary {
    address: SocketAddr,
    came: Arc<AtomicUsize>,
}

impl Canary {
    fn listen() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, came) = (listener.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
        let count = Arc::clone(&came);
        std::thread::spawn(move || {
            for _ in listener.incoming() {
                count.fetch_add(1, Ordering::SeqCst);
            }
        });
        Self { address, came }
    }

    fn came(&self) -> usize {
        // A connection is counted as soon as the thread runs.
        std::thread::sleep(std::time::Duration::from_millis(50));
        self.came.load(Ordering::SeqCst)
    }
}

fn connect_to(port: u16) -> String {
    attack(&format!(
        r#"
import socket
def connect(family, address):
    with socket.socket(family) as s:
        s.settimeout(2)
        s.connect(address)
for host in ("127.0.0.1", "127.0.0.2", "0.0.0.0"):
    attempt(host, lambda: connect(socket.AF_INET, (host, {port})))
"#
    ))
}

#[test]
fn listeners_on_the_hosts_loopback_are_out_of_reach() {
    for_each_caller(|caller| {
        let canary = Canary::listen();
        let program = connect_to(canary.address.port());
        assert!(python_outside(caller, &program).1.contains("127.0.0.1=OK"));
        let before = canary.came();
        assert!(before > 0, "the canary counts");
        for mode in ["none", "loopback"] {
            let inside = Run::new(caller).opts(["--network", mode]).python(&program).go().expect(0);
            assert!(!inside.text().contains("=OK"), "{inside}");
            assert_eq!(inside.report()["network"]["mode"], mode);
        }
        assert_eq!(canary.came(), before);
    });
}

#[test]
fn the_hosts_network_is_reached_only_when_asked_for() {
    for_each_caller(|caller| {
        let canary = Canary::listen();
        let program = connect_to(canary.address.port());
        let inside = Run::new(caller).opts(["--network", "host"]).python(&program).go().expect(0);
        assert_eq!(inside.value("127.0.0.1"), "OK");
        assert!(canary.came() > 0);
        assert_eq!(inside.report()["network"]["mode"], "host", "and the report says so");
        assert!(!inside.report()["enforced"]["namespaces"].as_array().unwrap().contains(&"net".into()));
    });
}

#[test]
fn the_only_interface_is_a_loopback_that_works() {
    for_each_caller(|caller| {
        let program = attack(
            r#"
import socket
print("interfaces=" + " ".join(sorted(line.split(":")[0].strip() for line in open("/proc/net/dev") if ":" in line)))
print("routes=" + str(len(open("/proc/net/route").readlines()) - 1))
def echo(family, host):
    with socket.socket(family) as server, socket.socket(family) as client:
        server.bind((host, 0)); server.listen(); client.connect(server.getsockname()[:2])
        server.accept()[0].send(b"x"); assert client.recv(1) == b"x"
attempt("ipv4", lambda: echo(socket.AF_INET, "127.0.0.1"))
if os.path.exists("/proc/net/if_inet6"): attempt("ipv6", lambda: echo(socket.AF_INET6, "::1"))
attempt("literal", lambda: socket.create_connection(("203.0.113.10", 80), 2))
attempt("metadata", lambda: socket.create_connection(("169.254.169.254", 80), 2))
attempt("dns", lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("203.0.113.53", 53)))
attempt("raw", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1))
attempt("packet", lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 3))
"#,
        );
        let inside = Run::new(caller).python(&program).go().expect(0);
        assert_eq!(inside.report()["network"]["mode"], "loopback", "the default");
        assert_eq!(inside.value("interfaces"), "lo");
        assert_eq!(inside.value("routes"), "0");
        assert_eq!(inside.value("ipv4"), "OK");
        if inside.text().contains("ipv6=") {
            assert_eq!(inside.value("ipv6"), "OK");
        }
        for refused in ["literal", "metadata", "dns", "raw", "packet"] {
            assert_ne!(inside.value(refused), "OK", "{refused}");
        }
    });
}

#[test]
fn abstract_sockets_of_the_host_are_out_of_reach() {
    for_each_caller(|caller| {
        let name = unique();
        let address = std::os::unix::net::SocketAddr::from_abstract_name(&name).unwrap();
        let _listener = UnixListener::bind_addr(&address).unwrap();
        let program = attack(&format!(
            "import socket\nattempt('connect', lambda: socket.socket(socket.AF_UNIX).connect('\\0{name}'))"
        ));
        assert!(python_outside(caller, &program).1.contains("connect=OK"));
        let inside = Run::new(caller).python(&program).go().expect(0);
        assert_eq!(inside.value("connect"), "ECONNREFUSED");
        let listed = Run::new(caller).cmd(["/bin/cat", "/proc/net/unix"]).go().expect(0);
        assert!(!listed.text().contains(&name), "its name is visible: {listed}");
    });
}

#[test]
fn datagrams_do_not_leave() {
    for_each_caller(|caller| {
        let canary = UdpSocket::bind("127.0.0.1:0").unwrap();
        canary.set_read_timeout(Some(std::time::Duration::from_millis(200))).unwrap();
        let port = canary.local_addr().unwrap().port();
        let program = attack(&format!(
            "import socket\nattempt('send', lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', {port})))"
        ));
        python_outside(caller, &program);
        let mut buffer = [0; 8];
        assert!(canary.recv(&mut buffer).is_ok(), "they do not arrive from outside either");
        Run::new(caller).python(&program).go().expect(0);
        assert!(canary.recv(&mut buffer).is_err());
    });
}

#[test]
fn a_socket_below_a_bound_directory_can_be_connected_to() {
    // A read-only bind does not stop connect(2): a documented limit, and the reason why /run and /tmp are never bound.
    for_each_caller(|caller| {
        let dir = TempDir::new(caller);
        let _listener = UnixListener::bind(dir.join("socket")).unwrap();
        common::set_mode(&dir.join("socket"), 0o777);
        let program = |place: &str| {
            attack(&format!(
                "import socket\nattempt('connect', lambda: socket.socket(socket.AF_UNIX).connect('{place}/socket'))"
            ))
        };
        let bound = common::text(dir.path());
        assert!(python_outside(caller, &program(bound)).1.contains("connect=OK"));
        let unbound = Run::new(caller).python(&program(bound)).go().expect(0);
        assert_eq!(unbound.value("connect"), "ENOENT");
        for place in [
            "/run/dbus/system_bus_socket",
            "/run/docker.sock",
            "/var/run/docker.sock",
            "/run/systemd/notify",
            "/run/user",
        ] {
            assert_eq!(Run::new(caller).cmd(["/usr/bin/test", "-e", place]).go().code(), 1, "{place}");
        }
    });
}

#[test]
fn names_are_resolved_only_with_the_hosts_network() {
    for_each_caller(|caller| {
        let inside = Run::new(caller).sh("cat /etc/resolv.conf | grep -c nameserver; getent hosts localhost").go();
        assert!(inside.text().starts_with("0\n"), "{inside}");
        assert!(inside.text().contains("localhost"), "{inside}");
        if is_root() && caller == Caller::Root {
            let (_, own) = outside(caller, ["cat", "/etc/resolv.conf"]);
            let host = Run::new(caller).opts(["--network", "host"]).cmd(["/bin/cat", "/etc/resolv.conf"]).go();
            assert_eq!(host.expect(0).text(), own);
        }
    });
}
