//! Ports of the host that lead into the sandbox.

use std::process::Command;

use super::world::World;
use super::{Value, lines};
use crate::common::clock::eventually;
use crate::common::host::may_trace;
use crate::common::{Caller, TempDir, for_each_caller, is_root, text};

/// Sends back what it gets, in upper case, on port 8080.
const SERVE: &str = r#"
import socket, threading
def serve(one):
    with one:
        while part := one.recv(65536): one.sendall(part.upper())
listener = socket.create_server(("127.0.0.1", 8080), backlog=512)
print("listens", flush=True)
while True: threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
"#;

/// Connects from the world, many at once.
fn clients(world: &World, port: u16, count: usize) -> String {
    let program = format!(
        r#"
import socket
held = []
for _ in range({count}):
    try:
        held.append(socket.create_connection(("127.0.0.1", {port}), 5))
        held[-1].sendall(b"x" * 1000)
        held[-1].shutdown(socket.SHUT_WR)
    except OSError: pass # a reset
good = 0
for s in held:
    s.settimeout(10)
    got = b""
    try:
        while part := s.recv(65536): got += part
    except OSError: pass
    good += got == b"X" * 1000
print(good)
"#
    );
    world.python(&program)
}

#[test]
fn a_published_port_leads_in_and_nothing_else_does() {
    let Some(mut world) = World::new() else { return };
    for_each_caller(|caller| {
        let directory = TempDir::new(caller);
        let log = directory.join("log");
        let options = ["--publish", "18080:8080", "--publish", "18081:8081", "--net-log", text(&log)];
        let run = world.run_plain(caller).opts(options).python(SERVE).spawn();
        run.wait_for("listens");
        for count in [1, 20, 200] {
            assert_eq!(clients(&world, 18080, count), format!("{count}\n"));
        }
        assert_eq!(clients(&world, 18081, 1), "0\n", "nothing listens inside");
        let closed = "import socket\nfor a in (('127.0.0.1', 8080), ('203.0.113.10', 18080)):\n try: socket.create_connection(a, 2); print(a)\n except OSError: pass";
        assert_eq!(world.python(closed), "", "only the published address listens");
        run.signal(nix::sys::signal::Signal::SIGTERM);
        let outcome = run.finish();
        let egress: &Value = &outcome.report()["network"]["egress"];
        assert_eq!((&egress["published"], &egress["connections"]), (&222.into(), &0.into()));
        let lines = lines(&std::fs::read_to_string(&log).unwrap());
        let first = lines.iter().find(|line| line["event"] == "published").unwrap();
        assert_eq!((&first["bytes_received"], &first["address"]), (&1000.into(), &"127.0.0.1".into()));
    });
    world.came();
}

/// The supervisor makes sixty-four sockets at a time, and the gateway asks for more in time.
#[test]
fn sockets_that_could_not_be_made_are_asked_for_again() {
    if !may_trace() || !is_root() {
        return;
    }
    let Some(mut world) = World::new() else { return };
    let run = world.run_plain(Caller::Root).opts(["--publish", "18080:8080"]).python(SERVE).spawn();
    run.wait_for("listens");
    let mut strace = Command::new("strace");
    // EAGAIN would be tried again at once.
    strace.args(["-qq", "-o", "/dev/null", "-e", "inject=clone3:error=ENOMEM:when=1", "-p", &run.pid().to_string()]);
    let mut strace = strace.spawn().unwrap();
    let status = || std::fs::read_to_string(format!("/proc/{}/status", run.pid())).unwrap();
    assert!(eventually(|| !status().contains("TracerPid:\t0\n")));
    assert_eq!(clients(&world, 18080, 60), "60\n");
    assert_eq!(clients(&world, 18080, 60), "60\n");
    strace.kill().unwrap();
    strace.wait().unwrap();
    run.signal(nix::sys::signal::Signal::SIGTERM);
    run.finish();
    world.came();
}

#[test]
fn a_port_that_is_taken_is_named() {
    let Some(mut world) = World::new() else { return };
    for_each_caller(|caller| {
        let run = world.run_plain(caller).opts(["--publish", "203.0.113.10:8080:80"]).cmd(["true"]);
        let outcome = run.go().expect(125);
        assert!(outcome.stderr.contains("port 203.0.113.10:8080 of the host"), "{outcome}");
    });
    world.came();
}
