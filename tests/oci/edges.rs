//! Containers at the boundary to their host: callers without privilege, file owners, listeners, roots that change during a run.

use std::os::unix::fs::{MetadataExt as _, symlink};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::common;
use crate::common::bundle::{Bundle, Runtime, ours};
use crate::common::clock::{eventually, used_by_children};
use crate::common::{Caller, TempDir, host};
use serde_json::{Value, json};

#[test]
fn a_caller_without_privilege_has_containers_too() {
    let dir = TempDir::new(Caller::Unprivileged);
    if host::busybox_rootfs(&dir).is_none() {
        return;
    }
    // A path where the caller can execute it.
    let program = dir.join("runtime");
    std::fs::copy(Runtime::Ours.program(), &program).unwrap();
    let call = |words: &[&str]| {
        let mut command = Caller::Unprivileged.command(&program);
        command.current_dir(dir.path()).env("XDG_RUNTIME_DIR", dir.path()).args(words).stdin(Stdio::null());
        common::bundle::Called(command.output().unwrap())
    };
    call(&["spec", "--rootless"]).expect(0);
    let mut config: Value = serde_json::from_slice(&std::fs::read(dir.join("config.json")).unwrap()).unwrap();
    config["process"]["terminal"] = json!(false);
    config["process"]["args"] = json!(["sh", "-c", "id -u; cat /proc/self/uid_map; echo > /dev/null && exit 4"]);
    dir.file("config.json", config.to_string());
    let ran = call(&["run", "one"]).expect(4).out();
    let (own, _) = Caller::Unprivileged.ids();
    assert_eq!(ran.split_whitespace().collect::<Vec<_>>(), ["0", "0", &own.to_string(), "1"]);
    config["process"]["args"] = json!(["sleep", "60"]);
    dir.file("config.json", config.to_string());
    let mut command = Caller::Unprivileged.command(&program);
    command.current_dir(dir.path()).env("XDG_RUNTIME_DIR", dir.path()).args(["run", "--detach", "two"]);
    assert!(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap().success());
    assert_eq!(call(&["exec", "two", "sh", "-c", "id -u; exit 3"]).expect(3).out(), "0\n");
    assert!(call(&["state", "two"]).out().contains("\"running\""));
    call(&["delete", "--force", "two"]).expect(0);
    assert_eq!(call(&["list", "-q"]).expect(0).out(), "");
    // A limit that cannot be enforced for this caller is an error.
    config["linux"]["resources"] = json!({ "pids": { "limit": 5 } });
    config["linux"]["cgroupsPath"] = json!("/stkt-oci-rootless/x");
    dir.file("config.json", config.to_string());
    call(&["run", "three"]).expect_error("cgroup");
}

#[test]
fn files_of_an_idmapped_mount_have_the_owners_that_it_says() {
    ours(|runtime| {
        let Some(mut bundle) = Bundle::new(runtime, "stat -c %u /data/file; touch /data/made") else { return };
        let host = host::idmappable_dir(Caller::Root);
        let file = host.file("file", "");
        std::os::unix::fs::chown(&file, Some(0), Some(0)).unwrap();
        let map = json!([{ "containerID": 0, "hostID": 1234, "size": 10 }]);
        bundle.config["mounts"].as_array_mut().unwrap().push(json!({
            "destination": "/data", "type": "bind", "source": common::text(host.path()), "options": ["rbind"],
            "uidMappings": map, "gidMappings": map,
        }));
        bundle.config["process"]["user"] = json!({ "uid": 1234, "gid": 1234 });
        let called = bundle.run();
        if called.err().contains("idmapped") {
            return common::skip("this file system does not support idmapped mounts");
        }
        assert_eq!(called.expect(0).out(), "1234\n");
        assert_eq!(std::fs::metadata(host.join("made")).unwrap().uid(), 0, "on the host the file belongs to the owner");
    });
}

/// Receives the listener, prints what came with it, and makes every waiting call fail.
const AGENT: &str = r#"
import json, socket, sys
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen()
message, fds, *_ = socket.recv_fds(listener.accept()[0], 65536, 1)
print(json.dumps({"fds": len(fds), "message": json.loads(message)}), flush=True)
"#;

#[test]
fn the_listener_of_a_seccomp_profile_goes_where_it_says() {
    ours(|runtime| {
        let Some(mut bundle) = Bundle::new(runtime, "echo ran") else { return };
        let path = bundle.dir.join("agent.sock");
        bundle.dir.file("agent.py", AGENT);
        let mut agent = Command::new(common::PYTHON);
        let agent = agent.arg(bundle.dir.join("agent.py")).arg(&path).stdout(Stdio::piped()).spawn().unwrap();
        while !path.exists() {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        bundle.config["linux"]["seccomp"] = json!({
            "defaultAction": "SCMP_ACT_ALLOW", "listenerPath": path, "listenerMetadata": "for you",
            "syscalls": [{ "names": ["mknod", "mknodat"], "action": "SCMP_ACT_NOTIFY" }],
        });
        assert_eq!(bundle.run().expect(0).out(), "ran\n");
        let told: Value = serde_json::from_slice(&agent.wait_with_output().unwrap().stdout).unwrap();
        assert_eq!(told["fds"], 1);
        let message = &told["message"];
        assert_eq!((&message["metadata"], &message["fds"]), (&json!("for you"), &json!(["seccompFd"])));
        assert_eq!(message["state"]["id"], json!(bundle.id));
        assert!(message["pid"].as_i64().unwrap() > 0);
        // Without an agent nothing runs.
        std::fs::remove_file(&path).unwrap();
        assert!(!bundle.run().0.status.success());
    });
}

#[test]
fn mount_points_swapped_for_symlinks_stay_inside_the_root() {
    ours(|runtime| {
        let Some(mut bundle) = Bundle::new(runtime, "true") else { return };
        let outside = bundle.dir.dir("outside");
        let before = host::fingerprint(&outside);
        let root = bundle.rootfs();
        for destination in ["/a/b/c", "/a/b/file"] {
            let source =
                if destination.ends_with("file") { bundle.dir.file("source", "") } else { bundle.dir.dir("tree") };
            let source = common::text(&source).to_owned();
            bundle.mount(destination, "bind", &source, &["rbind", "ro"]);
        }
        bundle.mount("/a/x/y", "tmpfs", "tmpfs", &[]);
        let far = format!("../../../../../../../..{}", common::text(&outside));
        let done = AtomicBool::new(false);
        let ran = std::thread::scope(|scope| {
            scope.spawn(|| {
                // The attacker shares the root's directory and tries to make the runtime leave it.
                while !done.load(Ordering::Relaxed) {
                    for name in ["a/b", "a/x", "a"] {
                        let _ = std::fs::remove_dir_all(root.join(name));
                        let _ = symlink(&far, root.join(name));
                        std::thread::yield_now();
                        let _ = std::fs::remove_file(root.join(name));
                        let _ = std::fs::create_dir_all(root.join(name));
                    }
                }
            });
            let ran = (0..60).filter(|_| bundle.run().0.status.success()).count();
            done.store(true, Ordering::Relaxed);
            ran
        });
        eprintln!("{ran} of 60 ran");
        assert_eq!(host::fingerprint(&outside), before);
    });
}

#[test]
fn a_root_without_pivot_root_also_hides_the_old_one() {
    common::bundle::for_each_runtime(|runtime| {
        let script = "ls /; ls /..; busybox grep -c ' - proc ' /proc/1/mountinfo; echo x >/proc/sys/kernel/hostname; \
            busybox mkdir /dev/deep; busybox chroot /dev/deep ../bin/true; ls /dev/deep/../../..";
        let Some(mut bundle) = Bundle::new(runtime, script) else { return };
        let unmasked = |bundle: &Bundle| {
            bundle.call(["run", "--no-pivot", "--bundle", common::text(bundle.dir.path()), &bundle.id])
        };
        bundle.config["root"]["readonly"] = json!(true);
        let without = bundle.run().expect(0);
        let with = unmasked(&bundle).expect(0);
        assert_eq!(with.out(), without.out(), "{with:?}");
        assert!(!with.out().contains("home"), "nothing of the host: {with:?}");
        if runtime == Runtime::Ours {
            // A process with the right to change the root can look for the old one, but every way up ends at the new one.
            for set in ["bounding", "effective", "permitted"] {
                bundle.config["process"]["capabilities"][set] = json!(["CAP_SYS_CHROOT"]);
            }
            let escape = "busybox mkdir /dev/deep && cd / && busybox chroot /dev/deep /bin/true; ls ../../../..; ls -d /bin/busybox";
            bundle.config["process"]["args"] = json!(["sh", "-c", escape]);
            let said = unmasked(&bundle).out();
            assert!(!said.lines().any(|line| line == "home" || line == "boot"), "{said}");
        }
    });
}

/// Enters the mount namespace of a container without pivot_root, unmounts the new root from the old one, and prints the file
/// systems at some paths there.
const UNCOVER: &str = "import ctypes, os, subprocess, sys\n\
    libc = ctypes.CDLL(None, use_errno=True)\n\
    namespace = os.open(f'/proc/{PID}/ns/mnt', os.O_RDONLY)\n\
    for _ in range(2):\n\
    \x20   if libc.setns(namespace, 0) != 0: sys.exit(2)\n\
    \x20   if os.path.exists('/usr/bin/stat'): break\n\
    \x20   if libc.umount2(b'/', 2) != 0: sys.exit(3)\n\
    sys.exit(subprocess.run(['/usr/bin/stat', '-f', '-c', '%T', '/proc', PLACE]).returncode)";

/// A container that reaches the old root, or a user namespace, could mount another procfs if a fully visible one exists.
#[test]
fn a_container_that_is_not_pivoted_has_no_procfs_of_the_host_in_its_mount_namespace() {
    ours(|runtime| {
        let Some(bundle) = Bundle::new(runtime, "sleep 60") else { return };
        let place = bundle.dir.dir("with blank\\and backslash");
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNS).unwrap(); // for this thread alone
        for words in [["--make-rprivate", "/"].as_slice(), &["-t", "proc", "proc", common::text(&place)]] {
            assert!(Command::new("mount").args(words).status().unwrap().success(), "{words:?}");
        }
        let path = common::text(bundle.dir.path());
        let mut run = bundle.command(["run", "--no-pivot", "--detach", "--bundle", path, &bundle.id]);
        assert!(run.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap().success());
        let kinds = |pid: &str| {
            let program = UNCOVER.replace("{PID}", pid).replace("PLACE", &format!("{:?}", common::text(&place)));
            common::python_outside(Caller::Root, &program)
        };
        assert_eq!(kinds(&nix::unistd::gettid().to_string()), (0, "proc\n".repeat(2)));
        let (code, inside) = kinds(&bundle.state()["pid"].to_string());
        assert!(code == 0 && inside.lines().count() == 2 && !inside.contains("proc"), "{code}: {inside}");

        // In a user namespace the host's mounts are locked, and are covered.
        let Some(bundle) = crate::mounts::in_user_namespace(runtime, "sleep 60") else { return };
        let path = common::text(bundle.dir.path());
        let mut run = bundle.command(["run", "--no-pivot", "--detach", "--bundle", path, &bundle.id]);
        assert!(run.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap().success());
        assert_eq!(kinds(&bundle.state()["pid"].to_string()), (0, "tmpfs\n".repeat(2)));
    });
}

/// An agent that does not accept, or does not read, would block a container that no command can handle.
#[test]
fn an_agent_that_does_not_listen_does_not_block_a_container() {
    ours(|runtime| {
        let dir = TempDir::new(Caller::Root);
        let agent = |name: &str, backlog: i32| {
            let agent = UnixListener::bind(dir.join(name)).unwrap();
            nix::sys::socket::listen(&agent, nix::sys::socket::Backlog::new(backlog).unwrap()).unwrap();
            agent
        };
        let (_deaf, _busy) = (agent("deaf", 8), agent("busy", 0));
        let _waits = UnixStream::connect(dir.join("busy")).unwrap(); // fills the queue
        let start = |name: &str, annotation: usize| {
            let mut bundle = Bundle::new(runtime, "true")?;
            bundle.config["linux"]["seccomp"] = json!({
                "defaultAction": "SCMP_ACT_ALLOW", "listenerPath": dir.join(name),
                "syscalls": [{ "names": ["mkdir"], "action": "SCMP_ACT_NOTIFY" }],
            });
            // The agent receives the annotations: more than fits into a socket without a reader.
            bundle.config["annotations"] = json!({ "large": "x".repeat(annotation) });
            let mut run = bundle.command(["run", "--bundle", common::text(bundle.dir.path()), &bundle.id]);
            let run = run.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
            Some((bundle, run))
        };
        let started = std::time::Instant::now();
        let (Some(unread), Some(refused)) = (start("deaf", 1 << 20), start("busy", 0)) else { return };
        for (bundle, run) in [unread, refused] {
            common::bundle::Called(run.wait_with_output().unwrap()).expect(1).expect_error("ETIMEDOUT");
            bundle.expect_nothing_left("after its agent did not listen");
        }
        assert!(started.elapsed() < std::time::Duration::from_secs(25), "{:?}", started.elapsed());
    });
}

#[test]
fn a_directory_cannot_be_a_stream_of_a_container() {
    ours(|runtime| {
        let Some(bundle) = Bundle::new(runtime, "ls /proc/self/fd/0/; sleep 20") else { return };
        let root = || Stdio::from(std::fs::File::open("/").unwrap());
        let run = ["run", "--bundle", common::text(bundle.dir.path()), &bundle.id];
        let called = common::bundle::Called(bundle.command(run).stdin(root()).output().unwrap());
        called.expect(1).expect_error("is a directory");
        bundle.create().expect(0);
        let exec = ["exec", &bundle.id, "ls", "/proc/self/fd/0/"];
        let called = common::bundle::Called(bundle.command(exec).stdin(root()).output().unwrap());
        called.expect_error("is a directory");
    });
}

/// A hook inside has a time limit, and the image has another file at the path where the runtime looks for the hook's processes.
#[test]
fn a_hook_with_a_time_limit_is_killed_whatever_the_image_has_at_proc() {
    ours(|runtime| {
        let Some(mut bundle) = Bundle::new(runtime, "true") else { return };
        let mounts = bundle.config["mounts"].as_array_mut().unwrap();
        mounts.retain(|mount| mount["destination"] != "/proc");
        for field in ["maskedPaths", "readonlyPaths"] {
            bundle.config["linux"].as_object_mut().unwrap().remove(field);
        }
        let directory = bundle.dir.dir("rootfs/proc/thread-self");
        nix::unistd::mkfifo(&directory.join("children"), nix::sys::stat::Mode::from_bits_truncate(0o666)).unwrap();
        bundle.config["hooks"] = json!({ "startContainer": [
            { "path": "/bin/busybox", "args": ["busybox", "sleep", "100"], "timeout": 1 }
        ] });
        let command = bundle.command(["run", "--bundle", common::text(bundle.dir.path()), &bundle.id]);
        let mut limited = Command::new("timeout");
        limited.args(["-s", "KILL", "30"]).arg(command.get_program()).args(command.get_args()).stdin(Stdio::null());
        common::bundle::Called(limited.output().unwrap()).expect(1).expect_error("took longer than 1 s");
    });
}

#[test]
fn a_pid_file_is_not_written_through_a_link() {
    ours(|runtime| {
        let Some(bundle) = Bundle::new(runtime, "true") else { return };
        let victim = bundle.dir.file("victim", "untouched\n");
        symlink(&victim, bundle.dir.join("pid.new")).unwrap();
        bundle.create().expect(0);
        assert_eq!(std::fs::read_to_string(&victim).unwrap(), "untouched\n");
        let written = std::fs::read_to_string(bundle.dir.join("pid")).unwrap();
        assert_eq!(written, bundle.state()["pid"].to_string());
    });
}

/// Cgroups below the container's own, so deep that their paths are too long for any system call.
#[test]
fn cgroups_of_any_depth_go_with_their_container() {
    let top = std::path::Path::new("/sys/fs/cgroup/freezer");
    if !top.join("cgroup.procs").exists() {
        return common::skip("no freezer of cgroup v1");
    }
    ours(|runtime| {
        let Some(bundle) = Bundle::new(runtime, "sleep 60") else { return };
        bundle.create().expect(0);
        // The container's root user makes them, in a writable mount of its cgroups.
        let name = "a".repeat(200);
        let script =
            format!("cd $0; for i in $(seq 30); do mkdir {name} && cd -P ./{name} 2>/dev/null || exit 1; done");
        let own = top.join(&bundle.id);
        let made = Command::new("/bin/busybox").args(["sh", "-c", &script]).arg(&own).status().unwrap();
        eprintln!("reached the requested depth: {made}");
        // The shell's own paths end at PATH_MAX: one more level through a descriptor of the last.
        let mut deepest = own.clone();
        while let Some(Ok(entry)) =
            std::fs::read_dir(&deepest).unwrap().find(|entry| entry.as_ref().is_ok_and(|entry| entry.path().is_dir()))
        {
            deepest = entry.path();
        }
        let below = std::fs::File::open(&deepest).unwrap();
        let number = std::os::fd::AsRawFd::as_raw_fd(&below);
        let _ = std::fs::create_dir(format!("/proc/self/fd/{number}/{name}")); // the shell may have created it
        let before = used_by_children();
        let deleted = bundle.call(["delete", "--force", &bundle.id]);
        if own.exists() {
            let _ = std::fs::remove_dir(format!("/proc/self/fd/{number}/{name}"));
        }
        deleted.expect(0);
        let used = used_by_children() - before;
        assert!(used < std::time::Duration::from_secs(4), "{used:?}");
        bundle.expect_nothing_left("deep cgroups");
    });
}

/// A freezer of cgroup v1 that the container creates below its own and freezes itself with.
#[test]
fn a_container_that_stops_itself_can_be_killed_and_deleted() {
    let top = std::path::Path::new("/sys/fs/cgroup/freezer");
    if !top.join("cgroup.procs").exists() {
        return common::skip("no freezer of cgroup v1");
    }
    ours(|runtime| {
        let script = "cd /sys/fs/cgroup/freezer; busybox mkdir x; echo 1 >x/cgroup.procs; echo FROZEN >x/freezer.state";
        let Some(mut bundle) = Bundle::new(runtime, script) else { return };
        for mount in bundle.config["mounts"].as_array_mut().unwrap() {
            if mount["destination"] == "/sys/fs/cgroup" {
                mount["options"] = json!(["nosuid", "noexec", "nodev"]);
            }
        }
        for killed in [true, false] {
            bundle.create().expect(0);
            bundle.about("start").expect(0);
            let inner = top.join(&bundle.id).join("x/freezer.state");
            let is_frozen = || std::fs::read_to_string(&inner).is_ok_and(|text| text.trim() == "FROZEN");
            assert!(eventually(is_frozen), "it did not stop itself: {}", bundle.printed());
            let ended = if killed {
                bundle.call(["kill", &bundle.id, "KILL"]).expect(0);
                std::thread::sleep(std::time::Duration::from_millis(500));
                let status = bundle.state()["status"].clone();
                bundle.about("delete");
                status == "stopped"
            } else {
                bundle.call(["delete", "--force", &bundle.id]).0.status.success()
            };
            if !ended {
                let _ = std::fs::write(&inner, "THAWED"); // otherwise it cannot be removed
            }
            assert!(ended, "killed: {killed}");
            bundle.expect_nothing_left("a container that stopped itself");
        }
    });
}

#[test]
fn every_descriptor_to_be_handed_over_is_open() {
    ours(|runtime| {
        let Some(bundle) = Bundle::new(runtime, "true") else { return };
        let script =
            "ulimit -n 2048 || exit 99; for fd in $(seq 3 1030); do eval \"exec $fd</dev/null\"; done; exec \"$@\"";
        let words = ["run", "--preserve-fds", "1100", "--bundle", common::text(bundle.dir.path()), &bundle.id];
        let command = bundle.command(words);
        let mut opened = Command::new("/bin/bash");
        opened.args(["-c", script, "bash"]).arg(command.get_program()).args(command.get_args()).stdin(Stdio::null());
        let called = common::bundle::Called(opened.output().unwrap());
        if called.0.status.code() == Some(99) {
            return common::skip("no 2048 descriptors may be open");
        }
        called.expect_error("descriptor 1031");
    });
}

#[test]
fn a_program_of_the_host_is_not_looked_for_in_the_working_directory() {
    ours(|runtime| {
        let Some(bundle) = Bundle::new(runtime, "sleep 60") else { return };
        let hostile = bundle.dir.dir("hostile");
        for name in ["ps", "criu"] {
            let program = bundle.dir.file(&format!("hostile/{name}"), "#!/bin/sh\necho executed >&2; echo executed\n");
            common::set_mode(&program, 0o755);
        }
        bundle.create().expect(0);
        bundle.about("start").expect(0);
        for path in ["", ":", "."] {
            for verb in ["ps", "checkpoint"] {
                let mut command = bundle.command([verb, &bundle.id]);
                let called = command.current_dir(&hostile).env("PATH", path).output().unwrap();
                let called = common::bundle::Called(called);
                let said = called.out() + &called.err();
                assert!(!said.contains("executed") && !called.0.status.success(), "PATH={path:?} {verb}: {said}");
            }
        }
    });
}

/// An interpreter that the host's administrator registered (`binfmt_misc`, flag F) is deliberately a file of the host.
#[test]
fn a_registered_interpreter_of_the_host_is_executed() {
    ours(|runtime| {
        let Some(mut bundle) = Bundle::new(runtime, "") else { return };
        bundle.config["process"]["args"] = json!(["/program"]);
        bundle.config["linux"]["resources"] = json!({});
        bundle.config["linux"].as_object_mut().unwrap().remove("cgroupsPath");
        let kinds = ["pid", "mount", "uts", "ipc", "network"].map(|kind| json!({ "type": kind }));
        bundle.config["linux"]["namespaces"] = json!(kinds);
        let mounts = bundle.config["mounts"].as_array_mut().unwrap();
        mounts.retain(|mount| mount["destination"] == "/proc" || mount["destination"] == "/dev");
        let program = bundle.rootfs().join("program");
        std::fs::write(&program, "STOCKADEmagic=1\nbusybox sleep 0.3\necho interpreted $0\n").unwrap();
        common::set_mode(&program, 0o755);
        let interpreter = bundle.dir.dir("host").join("sh");
        std::fs::copy(bundle.rootfs().join("bin/busybox"), &interpreter).unwrap();
        let command = bundle.command(["run", "--bundle", common::text(bundle.dir.path()), &bundle.id]);
        let script = format!(
            "read go; mount -t binfmt_misc none /proc/sys/fs/binfmt_misc || exit 99; \
             echo ':stkt:M::STOCKADEmagic::{}:F' >/proc/sys/fs/binfmt_misc/register || exit 99; exec \"$@\"",
            common::text(&interpreter)
        );
        let mut namespace = Command::new("unshare");
        namespace.args(["--user", "--mount", "sh", "-c", &script, "sh"]);
        namespace.arg(command.get_program()).args(command.get_args());
        let mut child = namespace.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let own = std::fs::read_link("/proc/self/ns/user").unwrap();
        while std::fs::read_link(format!("/proc/{}/ns/user", child.id())).is_ok_and(|its| its == own) {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        for map in ["uid_map", "gid_map"] {
            std::fs::write(format!("/proc/{}/{map}", child.id()), "0 0 65536\n").unwrap();
        }
        use std::io::Write as _;
        child.stdin.take().unwrap().write_all(b"go\n").unwrap();
        let called = common::bundle::Called(child.wait_with_output().unwrap());
        if called.0.status.code() == Some(99) {
            return common::skip("no binfmt_misc in a user namespace");
        }
        assert_eq!(called.expect(0).out(), "interpreted /program\n");
    });
}

#[test]
fn a_profile_that_refuses_every_call_ends_the_container() {
    ours(|runtime| {
        let Some(mut bundle) = Bundle::new(runtime, "true") else { return };
        // ERRNO is the answer also to exit_group, which must not be repeated for ever.
        for action in ["SCMP_ACT_KILL", "SCMP_ACT_KILL_PROCESS", "SCMP_ACT_ERRNO", "SCMP_ACT_TRAP"] {
            bundle.config["linux"]["seccomp"] = json!({ "defaultAction": action });
            let called = bundle.run();
            assert!(!called.0.status.success() && called.out().is_empty(), "{action}: {called:?}");
            assert!(bundle.processes().is_empty(), "{action}");
        }
    });
}
