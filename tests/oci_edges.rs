//! Where a container and its host meet: callers without privilege, owners of files, listeners, roots that change under us.

mod common;

use std::os::unix::fs::{MetadataExt as _, symlink};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use common::bundle::{Bundle, Runtime, ours};
use common::{Caller, TempDir, host};
use serde_json::{Value, json};

#[test]
fn a_caller_without_privilege_has_containers_too() {
    let dir = TempDir::new(Caller::Unprivileged);
    if host::busybox_rootfs(&dir).is_none() {
        return;
    }
    // Where the caller can execute it.
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
    // A limit that nobody can enforce for this caller is not silently none.
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
        assert_eq!(std::fs::metadata(host.join("made")).unwrap().uid(), 0, "on the host it is the owner's");
    });
}

/// Takes the listener that comes, tells what came with it, and lets every call that waits fail as it stands.
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
        // With nobody there, nothing runs.
        std::fs::remove_file(&path).unwrap();
        assert!(!bundle.run().0.status.success());
    });
}

#[test]
fn mount_points_that_are_swapped_for_links_lead_nowhere() {
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
                // Whoever shares the root's directory with us, and wants ours to reach out of it.
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
fn a_root_that_cannot_be_pivoted_to_hides_the_old_one_all_the_same() {
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
            // Who may change the root can look for the old one: on its way up it comes to the new one again.
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
