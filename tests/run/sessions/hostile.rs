//! Hostile clients and workloads: the session does not wait for them, does not crash, does not grow, and serves others.

use super::*;
use crate::common::host::may_trace;
use crate::common::is_root;

/// Attacks of a client, each over a connection of its own.
const ATTACKS: &str = r#"
import array, errno, fcntl, json, os, resource, socket, sys, time

def connect():
    s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    s.connect(sys.argv[1])
    s.settimeout(20)
    s.recv(1000)
    return s

def answer(s):
    return json.loads(s.recv(65536))

def check(name, s):
    "The connection is closed, or answers."
    try:
        s.send(b'{"id":77,"op":"ping"}')
        while True:
            packet = s.recv(65536)
            if not packet or json.loads(packet)["id"] == 77:
                return
    except (BrokenPipeError, ConnectionResetError):
        return

for packet in [b"", b"{", b"null", b"[]", b"\xff\xfe", b'"' * 60000, b"[" * 60000, b'{"a":' * 10000, b'{"id":1}', b'{"id":1e400,"op":"ping"}',
               b'{"id":18446744073709551616,"op":"ping"}', b'{"id":1,"op":{}}', b'{"id":1,"id":2,"op":"ping"}',
               b'{"id":1,"op":"run","argv":["a"],"tty":{"rows":-1,"columns":1}}', b'{"in_memfd":true}', b"x" * 65537, b"x" * 200000,
               b'{"id":1,"op":"run","argv":' + json.dumps(["\u202e"] * 100).encode() + b'}']:
    s = connect()
    try:
        s.send(packet)
    except OSError:
        continue
    check(packet[:20], s)

# Descriptors: too many, of the wrong kind, for operations that take none.
s = connect()
for fds in [[0] * 9, [0] * 253, [os.open("/", os.O_RDONLY)] * 3, [os.open("/", os.O_PATH)] * 3, [s.fileno()] * 4, [0]]:
    for packet in [b'{"id":1,"op":"ping"}', b'{"id":1,"op":"run","argv":["true"]}', b'{"in_memfd":true}']:
        if packet == b'{"id":1,"op":"run","argv":["true"]}' and fds == [s.fileno()] * 3:
            continue
        socket.send_fds(s, [packet], fds)
        assert answer(s)["event"] == "error", (fds, packet)
master, slave = os.openpty()
socket.send_fds(s, [b'{"id":1,"op":"run","argv":["true"]}'], [slave] * 3)
assert "terminal" in answer(s)["error"]["reason"]

# A memory file that can change, and one that never ends.
for seals in [0, fcntl.F_SEAL_SHRINK, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW]:
    file = os.memfd_create("x", os.MFD_ALLOW_SEALING)
    os.write(file, b'{"id":1,"op":"ping"}')
    fcntl.fcntl(file, fcntl.F_ADD_SEALS, seals)
    socket.send_fds(s, [b'{"in_memfd":true}'], [file])
    assert answer(s)["event"] == "error"
file = os.memfd_create("x", os.MFD_ALLOW_SEALING)
os.truncate(file, 1 << 40)
fcntl.fcntl(file, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE)
socket.send_fds(s, [b'{"in_memfd":true}'], [file])
assert answer(s)["event"] == "error"

# Ten thousand requests without reading a reply.
s.setblocking(False)
sent = 0
for _ in range(10000):
    try:
        s.send(b'{"id":1,"op":"status"}')
        sent += 1
    except (BlockingIOError, BrokenPipeError, ConnectionResetError):
        pass

# Commands whose replies nobody reads, connections that do nothing, and clients that leave in the middle.
null = os.open("/dev/null", os.O_RDWR)
t = connect()
t.setblocking(False)
for _ in range(300):
    try:
        socket.send_fds(t, [b'{"id":1,"op":"run","argv":["true"]}'], [null] * 3)
    except OSError:
        break
# Files whose descriptors nobody takes.
f = connect()
f.setblocking(False)
for _ in range(1000):
    try:
        f.send(b'{"id":1,"op":"open","path":"/tmp/x","access":"write","create":true}')
    except (BlockingIOError, BrokenPipeError, ConnectionResetError):
        break
resource.setrlimit(resource.RLIMIT_NOFILE, (1000, 1000))
idle = []
for _ in range(100):
    idle.append(connect())
for _ in range(50):
    u = connect()
    while True:
        try:
            socket.send_fds(u, [b'{"id":1,"op":"run","argv":["sleep","9876"]}'], [null] * 3)
            break
        except OSError as error: # this user has as many descriptors on their way as it may
            assert error.errno == errno.ETOOMANYREFS, error
            time.sleep(0.01)
    u.close()
print("ok")
"#;

#[test]
fn a_hostile_client_disturbs_nobody() {
    for_each_session(&[], |session| {
        let memory = || -> u64 {
            let status = std::fs::read_to_string(format!("/proc/{}/status", session.supervisor())).unwrap();
            let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
            line.split_whitespace().nth(1).unwrap().parse().unwrap()
        };
        let pid = session.supervisor();
        let attack = || {
            let mut python = session.caller.command(PYTHON);
            python.args(["-I", "-c", ATTACKS]).arg(session.place().join("socket"));
            let attacked = outcome(python.stdin(Stdio::null()).output().unwrap());
            assert_eq!((attacked.code, attacked.out.as_str()), (Some(0), "ok\n"), "{attacked:?}");
            assert_eq!(session.supervisor(), pid);
            assert!(
                eventually(|| session.inspect()["running"].as_array().is_some_and(Vec::is_empty)),
                "clients that left took all along"
            );
        };
        attack(); // takes memory for 256 commands at a time, which is kept for the next
        let before = memory();
        attack();
        session.sh("echo alive").is(0, "alive\n");
        let descriptors = || std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
        assert!(eventually(|| descriptors() < 40), "{} descriptors", descriptors());
        assert!(memory() < before + 4096, "{before} KiB before, {} after", memory());
    });
}

/// Stops every other process that it can signal, again and again, for a while.
const STOPPER: &str = r#"
import os, signal, time
print("ready", flush=True)
until = time.monotonic() + 20
while time.monotonic() < until:
    try:
        os.kill(-1, signal.SIGSTOP)
    except ProcessLookupError:
        pass
"#;

/// A process can be stopped before its execve, while init waits for it. A command that has a time limit ends at that.
#[test]
fn a_workload_that_stops_all_others_cannot_hang_the_session() {
    for_each_session(&[], |session| {
        let mut stopper = session.background(&[&session.name, PYTHON, "-I", "-c", STOPPER]);
        let mut ready = [0; 6];
        std::io::Read::read_exact(stopper.stdout.as_mut().unwrap(), &mut ready).unwrap();
        let limits = ["--timeout", "300ms", "--kill-after", "100ms", &session.name, "sleep", "1000"];
        let (stopped, clock) = (session.exec(&limits), Clock::start());
        assert!(matches!(stopped.code, Some(124 | 125)), "{stopped:?}");
        assert!(!clock.is_past(Duration::from_secs(15)));
        session.ask(&["kill", "--command", "c1", &session.name]);
        stopper.wait().unwrap();
        // Processes of a command without a cgroup may end only with the sandbox, if they are stopped again and again.
        let alive = session.sh("echo alive");
        let ended = session.caller != Caller::Root && session.row().unwrap()["state"] == "ended";
        assert!(alive.out == "alive\n" || ended, "{alive:?}");
    });
}

/// A command without a time limit that is stopped before its execve ends after the longest start. Here strace stops it, which
/// always comes in time.
#[test]
fn a_command_that_is_stopped_before_it_runs_does_not_hang_the_session() {
    if !may_trace() || !is_root() {
        return;
    }
    let session = Session::new(Caller::Root, &[]);
    let mut strace = Command::new("strace");
    strace.args(["-qq", "-f", "-o", "/dev/null", "-e", "inject=setsid:signal=STOP", "-p", &session.init().to_string()]);
    let mut strace = strace.spawn().unwrap();
    let tracer = || std::fs::read_to_string(format!("/proc/{}/status", session.init())).unwrap();
    assert!(eventually(|| !tracer().contains("TracerPid:\t0\n")));
    let (mut command, clock) = (session.background(&[&session.name, "true"]), Clock::start());
    while command.try_wait().unwrap().is_none() {
        assert!(!clock.is_past(Duration::from_secs(90)), "it hangs");
        std::thread::sleep(Duration::from_millis(100));
    }
    let stopped = outcome(command.wait_with_output().unwrap());
    assert!(stopped.code == Some(125) && stopped.err.contains("did not start within 30 seconds"), "{stopped:?}");
    strace.kill().unwrap();
    strace.wait().unwrap();
    session.sh("echo alive").is(0, "alive\n");
}

#[test]
fn commands_may_signal_each_other() {
    for_each_session(&[], |session| {
        let child = session.background(&[&session.name, "sh", "-c", "echo $$ >/tmp/pid; exec sleep 5433"]);
        assert!(eventually(|| session.sh("kill -USR1 $(cat /tmp/pid)").code == Some(0)));
        assert_eq!(outcome(child.wait_with_output().unwrap()).code, Some(128 + 10));
    });
}
