//! Operations that are refused whatever the seccomp profile says, because they would bypass another layer.

use std::io::Read as _;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;

use crate::common::{Run, TempDir, for_each_caller, text};

const EVERYTHING: &str = r#"{ "defaultAction": "SCMP_ACT_ALLOW" }"#;

/// Every way to create a file with set-id bits, one a line.
const SET_ID: &str = "import ctypes, os, stat, struct\n\
    os.umask(0)\n\
    libc = ctypes.CDLL(None, use_errno=True)\n\
    def attempt(name, make):\n\
    \x20   try: make(name)\n\
    \x20   except OSError: pass\n\
    \x20   try: print(name, oct(os.stat(name).st_mode & 0o6000))\n\
    \x20   except OSError: print(name, 'none')\n\
    def plain(name): os.close(os.open(name, os.O_CREAT | os.O_WRONLY, 0o755))\n\
    def chmod(name): plain(name); os.chmod(name, 0o4755)\n\
    def fchmod(name): fd = os.open(name, os.O_CREAT | os.O_WRONLY, 0o755); os.fchmod(fd, 0o2755)\n\
    def fchmodat(name): plain(name); d = os.open('.', os.O_RDONLY); os.chmod(name, 0o6755, dir_fd=d)\n\
    def fchmodat2(name): plain(name); libc.syscall(452, -100, name.encode(), 0o4755, 0)\n\
    def opened(name): os.close(os.open(name, os.O_CREAT | os.O_WRONLY, 0o4755))\n\
    def creat(name): libc.syscall(85, name.encode(), 0o4755)\n\
    def old_open(name): libc.syscall(2, name.encode(), os.O_CREAT | os.O_WRONLY, 0o2755)\n\
    def mknod(name): os.mknod(name, stat.S_IFREG | 0o4755)\n\
    def old_mknod(name): libc.syscall(133, name.encode(), stat.S_IFREG | 0o4755, 0)\n\
    def linked(name): fd = os.open('.', os.O_TMPFILE | os.O_WRONLY, 0o4755); os.link(f'/proc/self/fd/{fd}', name)\n\
    def openat2(name): libc.syscall(437, -100, name.encode(), struct.pack('QQQ', os.O_CREAT | os.O_WRONLY, 0o4755, 0), 24)\n\
    for make in (chmod, fchmod, fchmodat, fchmodat2, opened, creat, old_open, mknod, old_mknod, linked, openat2):\n\
    \x20   attempt(make.__name__, make)\n";

/// The host honours set-id bits: a file that the workload creates there belongs to the directory's owner.
#[test]
fn no_profile_lets_set_id_files_out_of_the_sandbox() {
    for_each_caller(|caller| {
        let dir = TempDir::new(caller);
        let everything = text(&dir.file("everything.json", EVERYTHING)).to_owned();
        for profile in ["docker", "unconfined", &everything] {
            let workspace = TempDir::new(caller);
            let options = ["--workspace", text(workspace.path()), "--seccomp", profile];
            let outcome = Run::new(caller).opts(options).python(SET_ID).go().expect(0);
            assert_eq!(outcome.lines().len(), 11, "{outcome}");
            for entry in std::fs::read_dir(workspace.path()).unwrap().flatten() {
                let mode = entry.metadata().unwrap().permissions().mode();
                assert_eq!(mode & 0o6000, 0, "{profile}: {:?} has {mode:o} on the host", entry.file_name());
            }
            let guards = outcome.report().pointer("/enforced/seccomp/guards").unwrap();
            assert_eq!(*guards, serde_json::json!(["set-id", "core-limit", "init"]), "{profile}");
        }
        // In scratch space, which ends with the run, they are allowed.
        let scratch = format!("import os; os.chdir('/tmp')\n{SET_ID}");
        let outcome = Run::new(caller).opts(["--seccomp", &everything]).python(&scratch).go().expect(0);
        assert!(outcome.text().contains("chmod 0o4000"), "{outcome}");
    });
}

#[test]
fn the_default_lets_no_set_id_file_out() {
    for_each_caller(|caller| {
        for profile in ["default", "strict"] {
            let workspace = TempDir::new(caller);
            let options = ["--workspace", text(workspace.path()), "--seccomp", profile];
            Run::new(caller).opts(options).python(SET_ID).go().expect(0);
            for entry in std::fs::read_dir(workspace.path()).unwrap().flatten() {
                let mode = entry.metadata().unwrap().permissions().mode();
                assert_eq!(mode & 0o6000, 0, "{profile}: {:?} has {mode:o} on the host", entry.file_name());
            }
        }
    });
}

#[test]
fn requesting_set_id_files_gives_a_warning() {
    for_each_caller(|caller| {
        let workspace = TempDir::new(caller);
        let options = ["--workspace", text(workspace.path()), "--seccomp-allow", "setuid-bits"];
        let outcome = Run::new(caller).opts(options).sh("touch x; chmod 4755 x").go().expect(0);
        assert!(outcome.stderr.contains("setuid-bits") && outcome.stderr.contains("on the host"), "{outcome}");
        let mode = std::fs::metadata(workspace.join("x")).unwrap().permissions().mode();
        assert_eq!(mode & 0o6000, 0o4000);
    });
}

/// A listener on the host that counts connections.
fn listener() -> (TcpListener, u16) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

fn connections(listener: &TcpListener) -> usize {
    let mut count = 0;
    while let Ok((mut stream, _)) = listener.accept() {
        let _ = stream.read(&mut [0; 16]);
        count += 1;
    }
    count
}

#[test]
fn a_list_of_ports_cannot_be_bypassed() {
    for_each_caller(|caller| {
        let dir = TempDir::new(caller);
        let everything = text(&dir.file("everything.json", EVERYTHING)).to_owned();
        let (listener, port) = listener();
        let python = format!(
            "import errno, socket\nat = ('127.0.0.1', {port})\n\
             def attempt(name, call):\n  try: call(); print(name, 'OK')\n  except OSError as e: print(name, errno.errorcode[e.errno])\n\
             tcp = lambda: socket.socket()\n\
             attempt('connect', lambda: tcp().connect(at))\n\
             attempt('sendto', lambda: tcp().sendto(b'x', 0x20000000, at))\n\
             attempt('sendmsg', lambda: tcp().sendmsg([b'x'], [], 0x20000000, at))\n\
             attempt('mptcp', lambda: socket.socket(proto=262).connect(at))\n\
             attempt('smc', lambda: socket.socket(43).connect(at))"
        );
        let run = |options: &[&str]| {
            let options = ["--network", "host"].iter().chain(options);
            Run::new(caller).opts(options.map(ToString::to_string)).python(&python).go().expect(0)
        };
        let free = run(&["--seccomp", &everything]);
        assert!(free.text().contains("connect OK\nsendto OK\nsendmsg OK"), "{free}");
        assert!(connections(&listener) >= 3);
        for profile in ["default", "docker", "unconfined", &everything] {
            for list in ["--allow-connect", "--allow-bind"] {
                let other = if list == "--allow-bind" { &["--allow-connect", "1"][..] } else { &[] };
                let options: Vec<&str> = ["--seccomp", profile, list, "1"].iter().chain(other).copied().collect();
                let listed = run(&options);
                assert!(!listed.text().contains("OK"), "{profile}: {listed}");
                assert_eq!(connections(&listener), 0, "{profile}: {listed}");
            }
        }
    });
}

/// Landlock restricts the ports of TCP alone. On the host's network, a list of ports closes what it cannot restrict.
#[test]
fn a_list_of_ports_closes_every_other_way_to_the_hosts_network() {
    for_each_caller(|caller| {
        let dir = TempDir::new(caller);
        let everything = text(&dir.file("everything.json", EVERYTHING)).to_owned();
        let receiver = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        receiver.set_nonblocking(true).unwrap();
        let port = receiver.local_addr().unwrap().port();
        let python = format!(
            "import errno, socket\n\
             def attempt(name, call):\n  try: call(); print(name, 'OK')\n  except OSError as e: print(name, errno.errorcode[e.errno])\n\
             attempt('udp', lambda: socket.socket(2, 2).sendto(b'x', ('127.0.0.1', {port})))\n\
             attempt('udp6', lambda: socket.socket(10, 2))\n\
             attempt('flags', lambda: socket.socket(2, 2 | socket.SOCK_NONBLOCK))\n\
             attempt('sctp', lambda: socket.socket(2, 1, 132))\n\
             attempt('vsock', lambda: socket.socket(40, 1))\n\
             attempt('tcp', lambda: socket.socket(2, 1))\n\
             attempt('unix', lambda: socket.socket(1, 2))"
        );
        let received = || std::iter::from_fn(|| receiver.recv(&mut [0; 8]).ok()).count();
        let run = |options: &[&str]| {
            let options = ["--network", "host"].iter().chain(options);
            Run::new(caller).opts(options.map(ToString::to_string)).python(&python).go().expect(0)
        };
        let free = run(&["--seccomp", &everything]);
        assert!(free.text().contains("udp OK\nudp6 OK\nflags OK"), "{free}");
        assert_eq!(received(), 1);
        for profile in ["default", "unconfined", &everything] {
            for list in ["--allow-connect", "--allow-bind"] {
                let listed = run(&["--seccomp", profile, list, "443"]);
                for way in ["udp EACCES", "udp6 EACCES", "flags EACCES", "tcp OK", "unix OK"] {
                    assert!(listed.text().contains(way), "{profile} {list}, {way}: {listed}");
                }
                assert!(
                    !listed.text().contains("sctp OK") && !listed.text().contains("vsock OK"),
                    "{profile}: {listed}"
                );
                assert_eq!(received(), 0, "{profile}: {listed}");
            }
        }
        let kept = run(&["--allow-connect", "443", "--allow-degraded", "udp"]);
        assert!(kept.text().contains("udp OK"), "{kept}");
        assert_eq!(received(), 1);
        let degraded = &kept.report()["enforced"]["degraded"];
        assert!(degraded.as_array().unwrap().iter().any(|one| one["what"] == "udp"), "{degraded}");
        // A network of the sandbox's own reaches nothing else.
        let own =
            Run::new(caller).opts(["--network", "loopback", "--allow-connect", "443"]).python(&python).go().expect(0);
        assert!(own.text().contains("udp OK"), "{own}");
    });
}
