//! The bounds of the traffic.

use super::lines;
use super::world::World;
use crate::common::{TempDir, for_each_caller, text};

#[test]
fn a_run_ends_with_its_budget() {
    let Some(mut world) = World::new() else { return };
    for_each_caller(|caller| {
        let log = TempDir::new(caller);
        let path = log.join("log");
        let run = world.run(caller, &["api.example.com"]).opts(["--net-budget", "3M", "--net-log", text(&path)]);
        let outcome = run.sh("curl -sS http://api.example.com/big/2000000 | wc -c; curl -sS http://api.example.com/big/2000000 | wc -c; sleep 60").go();
        let report = outcome.report();
        assert_eq!((&report["status"], outcome.code()), (&"net_budget".into(), 124), "{outcome}");
        let egress = &report["network"]["egress"];
        let sum = egress["bytes_sent"].as_u64().unwrap() + egress["bytes_received"].as_u64().unwrap();
        assert_eq!(sum, 3 << 20, "to the byte");
        let lines = lines(&std::fs::read_to_string(log.join("log")).unwrap());
        assert_eq!(lines[1]["reason"], "budget", "{lines:?}");
    });
    world.came();
}

#[test]
fn the_rate_holds_for_all_connections_together() {
    let Some(mut world) = World::new() else { return };
    for_each_caller(|caller| {
        let run = world.run(caller, &["api.example.com"]).opts(["--net-rate", "1M"]);
        let fetch = "curl -s http://api.example.com/big/700000 -o /tmp/$1 & ";
        let script = format!(
            "date +%s%N; {}{}wait; date +%s%N; stat -c %s /tmp/1 /tmp/2",
            fetch.replace("$1", "1"),
            fetch.replace("$1", "2")
        );
        let outcome = run.sh(&script).go().expect(0);
        let said: Vec<u64> = outcome.text().lines().map(|line| line.parse().unwrap()).collect();
        let seconds = (said[1] - said[0]) as f64 / 1e9;
        assert_eq!(said[2..], [700_000, 700_000]);
        assert!(seconds > 1.1, "1.4 MB took {seconds} s");
    });
    world.came();
}

#[test]
fn connections_and_silence_are_bounded() {
    let Some(mut world) = World::new() else { return };
    for_each_caller(|caller| {
        let program = r#"
import socket, time
def connect(): return socket.create_connection(("api.example.com", 9), 5)
held = [connect() for _ in range(4)]
time.sleep(0.3)
begin = time.monotonic()
try: print("fifth", connect().recv(1))
except OSError as error: print("fifth", type(error).__name__)
print(time.monotonic() - begin < 2)
begin = time.monotonic()
try: print("idle", held[0].recv(1))
except OSError as error: print("idle", type(error).__name__)
print(0.3 < time.monotonic() - begin < 10)
time.sleep(0.5)
again = connect()
again.settimeout(0.3)
try: again.recv(1)
except OSError as error: print("again", type(error).__name__)
"#;
        let options = ["--net-connections", "4", "--net-idle-timeout", "2s"];
        let outcome = world.run(caller, &["api.example.com:9"]).opts(options).python(program).go().expect(0);
        assert_eq!(
            outcome.text(),
            "fifth ConnectionResetError\nTrue\nidle ConnectionResetError\nTrue\nagain TimeoutError\n",
            "{outcome}"
        );
    });
    world.came();
}

/// A host that does not answer, and a name server that does not.
#[test]
fn a_connection_that_cannot_be_made_is_reset_in_time() {
    let Some(mut world) = World::new() else { return };
    for_each_caller(|caller| {
        let program = r#"
import socket, time
for name in ("nowhere.example.com", "absent.example.com", "api.example.com"):
    begin = time.monotonic()
    try:
        with socket.create_connection((name, 81), 20) as s: print(name, s.recv(1))
    except OSError as error: print(name, type(error).__name__, time.monotonic() - begin < 5)
"#;
        let rules = ["nowhere.example.com:81", "absent.example.com:81", "api.example.com:81"];
        let outcome = world.run(caller, &rules).opts(["--net-connect-timeout", "2s"]).python(program).go().expect(0);
        let expected: String =
            ["nowhere", "absent", "api"].map(|name| format!("{name}.example.com ConnectionResetError True\n")).concat();
        assert_eq!(outcome.text(), expected, "{outcome}");
        let run = world.run_plain(caller).opts([
            "--allow-net",
            "api.example.com",
            "--dns",
            "203.0.113.10:99",
            "--net-connect-timeout",
            "1s",
        ]);
        let outcome = run.sh("curl -sS -m 9 http://api.example.com/; echo $?").go().expect(0);
        // Reset before curl looked at the connection, before it sent its request, or while it waits for the answer.
        assert!(["7\n", "55\n", "56\n"].contains(&outcome.text().as_str()), "{outcome}");
    });
    world.came();
}

/// More connections than allowed, slow readers, and a server that sends without end: the others still work, and the gateway stays
/// small.
#[test]
fn a_flood_harms_only_itself() {
    let Some(mut world) = World::new() else { return };
    for_each_caller(|caller| {
        let program = r#"
import resource, socket, urllib.request
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
slow = [socket.create_connection(("api.example.com", 19), 5) for _ in range(100)]
refused = 0
for _ in range(10000):
    try:
        with socket.create_connection(("api.example.com", 80), 5) as s: assert not s.recv(1)
    except ConnectionResetError: refused += 1
print(refused)
for s in slow[:50]: s.close()
del slow[:50]
import time; time.sleep(0.5)
print(urllib.request.urlopen("http://api.example.com/after").read().decode())
"#;
        let rules = ["api.example.com:80,19"];
        let outcome = world
            .run(caller, &rules)
            .opts(["--net-connections", "100", "--ulimit", "nofile=1024"])
            .python(program)
            .go()
            .expect(0);
        assert!(outcome.text().starts_with("10000\n203.0.113.10"), "{outcome}");
    });
    world.came();
}

/// A pipe that nobody reads: connections go on, lines are dropped, and their number is told.
#[test]
fn a_slow_reader_of_the_log_holds_up_nothing() {
    let Some(mut world) = World::new() else { return };
    for_each_caller(|caller| {
        let python = "import os\nread, write = os.pipe()\nos.dup2(write, 9)\nos.set_inheritable(read, True)";
        let program = r#"
import socket
# One line each: those of different ports are listed once, so connections that fail are counted instead.
for number in range(6000):
    with socket.create_connection(("api.example.com", 22), 5) as s: s.recv(6)
print("done")
"#;
        let run = world.run(caller, &["api.example.com:22"]).opts(["--net-log", "fd:9"]).after_python(python);
        let outcome = run.python(program).go().expect(0);
        assert_eq!(outcome.text(), "done\n");
        let egress = &outcome.report()["network"]["egress"];
        assert_eq!(egress["connections"], 6000);
        assert!(egress["log_lines_lost"].as_u64().unwrap() > 1000, "{egress}");
    });
    world.came();
}
