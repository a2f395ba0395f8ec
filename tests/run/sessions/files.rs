//! Requests about files: what they do, and what a hostile workload can do about them.

use super::*;

/// The client of the other tests, without what it does.
const CLIENT: &str = include_str!("client.py");

/// Runs a script as a client of the session.
pub(super) fn client(session: &Session, script: &str) -> Outcome {
    let (class, _) = CLIENT.split_once("\nsession = Session(").unwrap();
    let mut python = session.caller.command(PYTHON);
    python.args(["-I", "-c", &format!("{class}\n{script}")]).arg(session.place().join("socket"));
    outcome(python.stdin(Stdio::null()).output().unwrap())
}

#[test]
fn a_client_works_on_the_files_of_the_sandbox() {
    for_each_session(&[], |session| {
        client(session, include_str!("files.py")).is(0, "ok\n");
        session.sh("test -e /tmp/b && ls -A /tmp/p/q").is(0, "r\n");
    });
}

/// What the file server's process shows of its confinement, from outside.
pub(super) fn server(session: &Session) -> Option<(i32, String)> {
    let listed = Command::new("pgrep").args(["-x", "stockade-files"]).output().unwrap();
    let pids = String::from_utf8_lossy(&listed.stdout).into_owned();
    let supervisor = session.supervisor();
    pids.split_whitespace().filter_map(|pid| pid.parse().ok()).find_map(|pid: i32| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        descends(pid, supervisor).then_some((pid, status))
    })
}

fn descends(mut pid: i32, from: i32) -> bool {
    while pid > 1 {
        if pid == from {
            return true;
        }
        let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
        let Some((_, rest)) = stat.rsplit_once(") ") else { return false };
        pid = rest.split_whitespace().nth(1).and_then(|parent| parent.parse().ok()).unwrap_or(0);
    }
    false
}

const STAT: &str = r#"
session = Session(sys.argv[1])
print(session.ask("stat", path="/tmp")["event"])
"#;

#[test]
fn the_file_server_is_confined_as_a_command_and_more() {
    for_each_session(&["--cap-add", "CHOWN"], |session| {
        assert_eq!(server(session), None, "it starts when it is needed");
        client(session, STAT).is(0, "done\n");
        let (pid, status) = server(session).unwrap();
        let field = |name: &str| {
            let line = status.lines().find(|line| line.starts_with(name)).unwrap();
            line.split_once('\t').unwrap().1.to_owned()
        };
        let own = session.sh("grep -E '^(Uid|Gid|CapBnd):' /proc/self/status").out;
        assert_eq!(field("CapBnd"), own.lines().find_map(|line| line.strip_prefix("CapBnd:\t")).unwrap());
        for set in ["CapEff", "CapPrm", "CapInh", "CapAmb"] {
            assert_eq!(field(set), "0000000000000000", "{set}");
        }
        assert_eq!((field("NoNewPrivs").as_str(), field("Seccomp").as_str()), ("1", "2"));
        // The same ids, namespaces and root as init.
        let link = |pid: i32, name: &str| std::fs::read_link(format!("/proc/{pid}/{name}")).unwrap();
        let children = |pid: i32| std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
        let init: i32 = children(session.supervisor()).split_whitespace().next().unwrap().parse().unwrap();
        for name in ["ns/user", "ns/mnt", "ns/pid", "ns/net", "ns/ipc", "ns/uts"] {
            assert_eq!(link(pid, name), link(init, name), "{name}");
        }
        let opened = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
        assert_eq!(opened, 3, "its socket and the null device");
        // The workload sees it, and reaches nothing of it.
        let seen = "for p in /proc/[0-9]*; do read n <$p/comm; [ $n = stockade-files ] && echo ${p#/proc/}; done";
        let inside = session.sh(seen).out.trim().to_owned();
        for file in ["fd/0", "mem", "environ", "exe", "root/etc/passwd", "cwd/etc/passwd", "maps"] {
            let refused = session.sh(&format!("head -c1 /proc/{inside}/{file}"));
            assert!(refused.code != Some(0) && refused.out.is_empty(), "{file}: {refused:?}");
        }
    });
}

#[test]
fn a_workload_that_kills_or_stops_the_file_server_fails_one_request() {
    for_each_session(&[], |session| {
        client(session, STAT).is(0, "done\n");
        let find = "for p in /proc/[0-9]*; do read n <$p/comm; [ $n = stockade-files ] && echo ${p#/proc/}; done";
        session.sh(&format!("kill -9 $({find})")).is(0, "");
        let again = || client(session, STAT).out == "done\n";
        assert!(eventually(again), "the next one serves");
        session.sh(&format!("kill -STOP $({find})")).is(0, "");
        let clock = Clock::start();
        client(session, STAT).is(0, "error\n");
        assert!(!clock.is_past(Duration::from_secs(20)));
        assert!(eventually(|| session.caller != Caller::Root || again()));
        client(session, STAT).is(0, "done\n");
        session.sh("echo alive").is(0, "alive\n");
    });
}

#[test]
fn a_file_server_that_cannot_start_says_why() {
    if !crate::common::is_root() {
        return crate::common::skip("only root is sure of a limit on processes");
    }
    let session = Session::new(Caller::Root, &["--pids-limit", "6"]);
    let fill = || session.exec(&["-d", &session.name, "sleep", "1000"]);
    assert!(eventually(|| fill().code == Some(125)), "the limit is reached");
    std::fs::write(session.home.join("file"), "content").unwrap();
    let clock = Clock::start();
    let refused = session.cp(&["file", &session.at("/tmp/file")]);
    refused.refuses("file server: Try again (EAGAIN)");
    assert!(refused.err.contains("--pids-limit"), "{refused:?}");
    assert!(!clock.is_past(Duration::from_secs(8)));
    session.ask(&["kill", "-s", "KILL", "--command", "all", &session.name]).is(0, "");
    assert!(eventually(|| session.inspect()["running"] == serde_json::json!([])));
    session.cp(&["file", &session.at("/tmp/file")]).is(0, "");
    session.sh("cat /tmp/file").is(0, "content");
}

/// Here strace makes it fail after it was cloned. Init offers the end of one process at a time.
#[test]
fn a_file_server_that_fails_in_its_start_holds_up_no_command() {
    if !crate::common::host::may_trace() || !crate::common::is_root() {
        return;
    }
    let session = Session::new(Caller::Root, &[]);
    let init = session.init();
    let mut strace = Command::new("strace");
    strace.args(["-qq", "-f", "-o", "/dev/null", "-e", "inject=capset:error=EPERM", "-p", &init.to_string()]);
    let mut strace = strace.spawn().unwrap();
    let tracer = || std::fs::read_to_string(format!("/proc/{init}/status")).unwrap();
    assert!(eventually(|| !tracer().contains("TracerPid:\t0\n")));
    client(&session, STAT).is(0, "error\n");
    strace.kill().unwrap();
    strace.wait().unwrap();
    let (mut alive, clock) = (session.background(&[&session.name, "echo", "alive"]), Clock::start());
    while alive.try_wait().unwrap().is_none() && !clock.is_past(Duration::from_secs(10)) {
        std::thread::sleep(Duration::from_millis(5));
    }
    let _ = alive.kill();
    outcome(alive.wait_with_output().unwrap()).is(0, "alive\n");
    client(&session, STAT).is(0, "done\n");
}

/// Files that no client may wait for.
const TRAPS: &str = r#"
session = Session(sys.argv[1])
for path, access in [("fifo", "read"), ("fifo", "write"), ("fifo", "read_write"), ("socket", "read"), ("/dev/null", "read"), ("/dev/tty", "write"), ("/dev/zero", "read")]:
    reply = session.ask("open", path=os.path.join("/tmp", path), access=access)
    assert reply["event"] == "error", (path, access, reply)
for path in ("fifo", "socket"):
    reply = session.ask("open", path="/tmp/" + path, access="read")
    assert path[1:] in reply["error"]["reason"].lower() or reply["error"]["errno"], reply
    session.ask("stat", path="/tmp/" + path)["file"]
assert session.ask("stat", path="/tmp/fifo")["file"]["type"] == "fifo"
reply = session.ask("open", path="/tmp/leased", access="write", truncate=True)
assert reply["event"] == "error" and reply["error"]["errno"] == 11, reply
# A directory that changes all the time, and names that are swapped for links.
for _ in range(300):
    reply = session.ask("list", path="/tmp/busy")
    assert reply["event"] in ("done", "error"), reply
    id = session.send("open", path="/tmp/swapped/passwd", access="read")
    reply, fds = session.receive()
    for fd in fds:
        assert os.read(fd, 6) == b"inside", "a file of the host"
        os.close(fd)
print("ok")
"#;

const RACE: &str = r#"
import fcntl, os, signal, socket, threading
os.mkfifo("/tmp/fifo")
socket.socket(socket.AF_UNIX).bind("/tmp/socket")
signal.signal(signal.SIGIO, signal.SIG_IGN)
open("/tmp/leased", "w").close()
lease = os.open("/tmp/leased", os.O_RDWR)
fcntl.fcntl(lease, fcntl.F_SETLEASE, fcntl.F_WRLCK)
os.mkdir("/tmp/busy")
os.mkdir("/tmp/real")
with open("/tmp/real/passwd", "w") as file:
    file.write("inside")
os.symlink("/proc/1/root/etc", "/tmp/link")
os.rename("/tmp/real", "/tmp/swapped")
print("ready", flush=True)
count = 0
while True:
    count += 1
    os.mkdir(f"/tmp/busy/{count}")
    if count > 100:
        os.rmdir(f"/tmp/busy/{count - 100}")
    os.rename("/tmp/swapped", "/tmp/aside")
    os.rename("/tmp/link", "/tmp/swapped")
    os.rename("/tmp/swapped", "/tmp/link")
    os.rename("/tmp/aside", "/tmp/swapped")
"#;

#[test]
fn no_file_of_the_workload_makes_a_client_wait() {
    // Under its own filter the workload can take no lease.
    for_each_session(&["--seccomp", "unconfined"], |session| {
        let mut race = session.background(&[&session.name, PYTHON, "-I", "-c", RACE]);
        let mut ready = [0; 6];
        std::io::Read::read_exact(race.stdout.as_mut().unwrap(), &mut ready).unwrap();
        let clock = Clock::start();
        client(session, TRAPS).is(0, "ok\n");
        assert!(!clock.is_past(Duration::from_secs(20)));
        session.ask(&["kill", "-s", "KILL", "--command", "c1", &session.name]);
        race.wait().unwrap();
    });
}
