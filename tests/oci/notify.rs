//! The protocol of a service manager above an engine: readiness forwarded, sockets passed on, a pidfd passed.

use std::os::unix::net::UnixDatagram;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::common;
use crate::common::bundle::{Bundle, Called, Runtime, for_each_runtime, ours};
use crate::common::clock::PATIENCE;
use crate::common::{leaks, text};
use serde_json::json;

/// A bundle with the system's Python, whose standard library can use any socket.
fn with_python(runtime: Runtime, program: &str) -> Option<Bundle> {
    let mut bundle = Bundle::new(runtime, "true")?;
    for path in ["/usr", "/lib", "/lib64"] {
        std::fs::create_dir_all(bundle.rootfs().join(&path[1..])).unwrap();
        bundle.mount(path, "bind", path, &["rbind", "ro"]);
    }
    bundle.config["process"]["args"] = json!([common::PYTHON, "-c", program]);
    bundle.config["root"]["readonly"] = json!(false); // the control creates its mount points itself
    Some(bundle)
}

const READY: &str = "
import os, socket, time
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.connect(os.environ['NOTIFY_SOCKET'])
time.sleep(0.3)
s.send(b'MAINPID=1\\nFDSTORE=1')
s.send(b'READY=1\\nSTATUS=up')
time.sleep(0.2)
print('told', flush=True)
time.sleep(30)
";

/// The socket of a manager, and its path.
fn manager(bundle: &Bundle) -> (UnixDatagram, String) {
    let path = text(&bundle.dir.join("manager.sock")).to_owned();
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    (socket, path)
}

/// Everything received so far.
fn heard(socket: &UnixDatagram) -> String {
    let mut all = String::new();
    let mut message = [0; 4096];
    socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    while let Ok(length) = socket.recv(&mut message) {
        all.push_str(&String::from_utf8_lossy(&message[..length]));
        all.push('\n');
    }
    all
}

#[test]
fn readiness_reaches_the_manager_with_the_process_to_watch() {
    for_each_runtime(|runtime| {
        leaks::adopt_orphans();
        let Some(bundle) = with_python(runtime, READY) else { return };
        let (socket, path) = manager(&bundle);
        let out = std::fs::File::create(bundle.dir.join("out")).unwrap();
        let words = ["create", "--bundle", text(bundle.dir.path()), &bundle.id];
        let mut command = bundle.command(words);
        command.env("NOTIFY_SOCKET", &path).stdout(out.try_clone().unwrap()).stderr(out);
        assert!(command.status().unwrap().success(), "{}", bundle.printed());
        assert_eq!(heard(&socket), "", "nothing is ready yet");
        let began = std::time::Instant::now();
        let mut start = bundle.command(["start", &bundle.id]);
        start.env("NOTIFY_SOCKET", &path);
        let mut told = String::new();
        let (started, took) = std::thread::scope(|scope| {
            let start = scope.spawn(|| (start.output().unwrap(), began.elapsed()));
            // The manager listens meanwhile: crun waits until everything was received.
            while !start.is_finished() {
                told.push_str(&heard(&socket));
            }
            start.join().unwrap()
        });
        Called(started).expect(0);
        assert!(took > Duration::from_millis(250), "start waits until it is ready");
        told.push_str(&heard(&socket));
        if runtime == Runtime::Crun {
            assert!(told.contains("READY=1") && !told.contains("MAINPID"), "{told}"); // crun does not send the process to watch
            return;
        }
        let pid = bundle.state()["pid"].to_string();
        assert!(told.contains("READY=1") && told.contains(&format!("MAINPID={pid}")), "{told}");
        assert!(
            !told.contains("FDSTORE") && !told.contains("MAINPID=1\n"),
            "it does not forward other messages: {told}"
        );
        bundle.wait_for_output("told");
        bundle.call(["delete", "--force", &bundle.id]).expect(0);
    });
}

#[test]
fn a_container_that_dies_before_it_is_ready_is_not_waited_for() {
    // The control waits until the process is reaped: as long as its process id is taken.
    ours(|runtime| {
        leaks::adopt_orphans();
        let Some(mut bundle) = Bundle::new(runtime, "exit 3") else { return };
        bundle.config["root"]["readonly"] = json!(false);
        let (_socket, path) = manager(&bundle);
        let words = ["create", "--bundle", text(bundle.dir.path()), &bundle.id];
        let null = || (Stdio::null(), Stdio::null());
        let mut command = bundle.command(words);
        assert!(command.env("NOTIFY_SOCKET", &path).stdout(null().0).stderr(null().1).status().unwrap().success());
        let began = std::time::Instant::now();
        let mut command = bundle.command(["start", &bundle.id]);
        command.env("NOTIFY_SOCKET", &path).stdout(null().0).stderr(null().1).status().unwrap();
        assert!(began.elapsed() < PATIENCE);
        bundle.wait_for("stopped");
    });
    ours(|runtime| {
        let Some(bundle) = with_python(runtime, &READY.replace("time.sleep(30)", "raise SystemExit(6)")) else {
            return;
        };
        let (socket, path) = manager(&bundle);
        let mut command = bundle.command(["run", "--bundle", text(bundle.dir.path()), &bundle.id]);
        let child = command.env("NOTIFY_SOCKET", &path).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let ours = child.id();
        Called(child.wait_with_output().unwrap()).expect(6);
        let told = heard(&socket);
        assert!(told.contains("READY=1") && told.contains(&format!("MAINPID={ours}\n")), "{told}");
    });
}

#[test]
fn sockets_of_a_manager_are_handed_down_to_whom_they_are_for() {
    for_each_runtime(|runtime| {
        let Some(bundle) = Bundle::new(runtime, "echo ${LISTEN_FDS-none} ${LISTEN_PID-none}; cat <&3") else { return };
        let given = bundle.dir.file("given", "from outside\n");
        bundle.command(["x"]); // writes the configuration
        let call = |listen_pid: &str| {
            let script =
                format!("exec 3<{}; export LISTEN_FDS=1 LISTEN_PID={listen_pid}; exec \"$@\"", given.display());
            let mut shell = Command::new("/bin/sh");
            shell.args(["-c", &script, "sh"]).args(runtime.words()).arg("--root").arg(bundle.dir.join("state"));
            shell.args(["run", "--bundle", text(bundle.dir.path()), &bundle.id]).stdin(Stdio::null());
            Called(shell.output().unwrap())
        };
        // crun passes them on without their number.
        let told = runtime.says("1 1\nfrom outside\n", "none 1\nfrom outside\n");
        assert_eq!(call("$$").expect(0).out(), told);
        if runtime == Runtime::Crun {
            return; // nor does it check the process id they are for
        }
        let other = call("1");
        assert!(other.out().starts_with("none none"), "{other:?}");
        assert!(!other.out().contains("from outside"), "descriptors of another process are not passed on");
    });
}

/// Receives the descriptor, and prints the process that it refers to.
const ENGINE: &str = r#"
import os, socket, sys
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen()
fd = socket.recv_fds(listener.accept()[0], 64, 1)[1][0]
print([line.split()[1] for line in open(f"/proc/self/fdinfo/{fd}") if line.startswith("Pid:")][0], flush=True)
"#;

#[test]
fn a_pidfd_goes_to_the_pidfd_socket() {
    // The installed control is too old for it.
    ours(|runtime| {
        leaks::adopt_orphans();
        let Some(bundle) = Bundle::new(runtime, "sleep 60") else { return };
        let path = bundle.dir.join("pidfd.sock");
        bundle.dir.file("engine.py", ENGINE);
        let engine =
            Command::new(common::PYTHON).arg(bundle.dir.join("engine.py")).arg(&path).stdout(Stdio::piped()).spawn();
        let engine = engine.unwrap();
        while !path.exists() {
            std::thread::sleep(Duration::from_millis(5));
        }
        let words = ["run", "--detach", "--pidfd-socket", text(&path), "--bundle", text(bundle.dir.path()), &bundle.id];
        assert!(bundle.command(words).stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap().success());
        let told = String::from_utf8(engine.wait_with_output().unwrap().stdout).unwrap();
        assert_eq!(told.trim(), bundle.state()["pid"].to_string());
    });
}
