//! Mounts and device nodes: sources in the root, the attributes of binds, nodes in user namespaces.

use std::os::unix::fs::symlink;
use std::process::Command;

use crate::common;
use crate::common::bundle::{Bundle, Runtime, for_each_runtime, ours};
use serde_json::json;

/// A bundle with a user namespace that begins at this id of the host, which owns the root.
pub fn in_user_namespace(runtime: Runtime, script: &str) -> Option<Bundle> {
    const FIRST: u32 = 300_000;
    let mut bundle = Bundle::new(runtime, script)?;
    bundle.config["linux"]["namespaces"].as_array_mut().unwrap().push(json!({ "type": "user" }));
    let map = json!([{ "containerID": 0, "hostID": FIRST, "size": 65_536 }]);
    bundle.config["linux"]["uidMappings"] = map.clone();
    bundle.config["linux"]["gidMappings"] = map;
    common::set_mode(bundle.dir.path(), 0o755);
    std::os::unix::fs::chown(bundle.rootfs(), Some(FIRST), Some(FIRST)).unwrap();
    Some(bundle)
}

#[test]
fn a_bind_of_what_an_earlier_mount_shows_gets_that() {
    for_each_runtime(|runtime| {
        let script = "cat /dir/file /one; echo of the container >>/dir/file; cat /one /tmpfs/dir/file";
        let Some(mut bundle) = Bundle::new(runtime, script) else { return };
        let (host, root) = (bundle.dir.dir("host"), bundle.rootfs());
        for (directory, content) in [(host.join("dir"), "of the host\n"), (root.join("data/dir"), "of the image\n")] {
            std::fs::create_dir_all(&directory).unwrap();
            std::fs::write(directory.join("file"), content).unwrap();
        }
        // The image lacks the second source.
        std::fs::create_dir(root.join("tmpfs")).unwrap();
        let at = |path: &str| common::text(&root.join(path)).to_owned();
        bundle.mount("/data", "bind", common::text(&host), &["rbind"]);
        bundle.mount("/tmpfs", "bind", common::text(&host), &["rbind"]);
        bundle.mount("/dir", "bind", &at("data/dir"), &["bind"]);
        bundle.mount("/one", "bind", &at("tmpfs/dir/file"), &["bind", "ro"]);
        let host_lines = "of the host\nof the host\n";
        let both = "of the host\nof the container\n";
        assert_eq!(bundle.run().expect(0).out(), format!("{host_lines}{both}{both}"));
    });
}

/// A source in the root is looked up when the root may already belong to an attacker.
#[test]
fn a_source_in_the_root_never_leads_out_of_it() {
    ours(|runtime| {
        let Some(mut bundle) = Bundle::new(runtime, "cat /got/name") else { return };
        let (root, outside) = (bundle.rootfs(), bundle.dir.dir("outside"));
        for (directory, content) in [(outside.join("deep"), "of the host\n"), (root.join("deep"), "of the image\n")] {
            std::fs::create_dir_all(&directory).unwrap();
            std::fs::write(directory.join("name"), content).unwrap();
        }
        // The link appears with the first mount, which the second source needs.
        let shared = bundle.dir.dir("shared");
        let up = format!("{}/../../../../../..{}", "..", common::text(&outside));
        symlink(up, shared.join("link")).unwrap();
        symlink("/", shared.join("absolute")).unwrap();
        bundle.mount("/shared", "bind", common::text(&shared), &["bind"]);
        bundle.mount("/got", "bind", common::text(&root.join("shared/absolute/deep")), &["bind"]);
        assert_eq!(bundle.run().expect(0).out(), "of the image\n");
        bundle.config["mounts"].as_array_mut().unwrap().pop();
        bundle.mount("/got", "bind", common::text(&root.join("shared/link/deep")), &["bind"]);
        bundle.run().expect_error("No such file");
    });
}

/// As mount(2) under runc: without an option for it, a bind keeps the attributes of its source; with one, it has these alone.
#[test]
fn a_bind_keeps_the_attributes_of_its_source_or_replaces_them() {
    for_each_runtime(|runtime| {
        let Some(mut bundle) = Bundle::new(runtime, "grep ' /bound ' /proc/self/mountinfo | cut -d' ' -f6") else {
            return;
        };
        let source = bundle.dir.dir("source");
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNS).unwrap(); // for this thread alone
        let mount =
            |words: &[&str]| assert!(Command::new("mount").args(words).status().unwrap().success(), "{words:?}");
        mount(&["--make-rslave", "/"]);
        mount(&["-t", "tmpfs", "-o", "ro,nosuid,nodev,noexec,noatime", "tmpfs", common::text(&source)]);
        let all = "ro,nosuid,nodev,noexec,noatime";
        for (options, attributes) in [
            (&["bind"][..], all),
            (&["rbind", "rprivate"], all),
            (&["bind", "ro"], "ro,noatime"),
            (&["rbind", "nosuid"], "rw,nosuid,noatime"),
            (&["bind", "rw", "noexec"], "rw,noexec,noatime"),
            (&["bind", "relatime"], "rw,relatime"),
            (&["bind", "ro", "nodev", "noatime"], "ro,nodev,noatime"),
            // The versions of the controls do not know these options, or ignore them.
            (&["bind", "rw"], if runtime == Runtime::Runc { all } else { "rw,noatime" }),
            (&["bind", "exec"], if runtime == Runtime::Runc { all } else { "rw,noatime" }),
            (&["bind", "suid", "dev"], if runtime == Runtime::Runc { all } else { "rw,noatime" }),
        ] {
            if runtime == Runtime::Crun && attributes == all {
                continue; // it always replaces them
            }
            bundle.mount("/bound", "bind", common::text(&source), options);
            assert_eq!(bundle.run().expect(0).out(), format!("{attributes}\n"), "{options:?}");
            bundle.config["mounts"].as_array_mut().unwrap().pop();
        }
    });
}

#[test]
fn the_restrictions_of_a_source_are_locked_in_a_user_namespace() {
    for_each_runtime(|runtime| {
        let script = "grep ' /bound ' /proc/self/mountinfo | cut -d' ' -f6";
        let Some(mut bundle) = in_user_namespace(runtime, script) else { return };
        let source = bundle.dir.dir("source");
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNS).unwrap(); // for this thread alone
        let mount =
            |words: &[&str]| assert!(Command::new("mount").args(words).status().unwrap().success(), "{words:?}");
        mount(&["--make-rslave", "/"]);
        mount(&["-t", "tmpfs", "-o", "ro,nosuid,nodev,noexec,noatime", "tmpfs", common::text(&source)]);
        let all = "ro,nosuid,nodev,noexec,noatime\n";
        for options in [&["bind"][..], &["bind", "rw"], &["rbind", "exec", "suid"], &["bind", "noexec"]] {
            if runtime == Runtime::Runc && options == ["bind", "noexec"] {
                continue; // this version fails
            }
            bundle.mount("/bound", "bind", common::text(&source), options);
            assert_eq!(bundle.run().expect(0).out(), all, "{options:?}");
            bundle.config["mounts"].as_array_mut().unwrap().pop();
        }
    });
}

const NODES: &str = "stat -c '%n %t:%T %a %u:%g' /dev/zero /dev/mine /dev/null; echo x >/dev/mine && echo usable";

#[test]
fn device_nodes_have_the_mode_and_owner_of_the_configuration_in_a_user_namespace_too() {
    for_each_runtime(|runtime| {
        for own in [false, true] {
            if own && runtime != Runtime::Ours {
                continue; // runc only binds nodes of the host, and crun does so if one has that path
            }
            let new = if own { in_user_namespace } else { Bundle::new };
            let Some(mut bundle) = new(runtime, NODES) else { return };
            let node = |path: &str, minor: u32, mode: u32, uid: u32| json!({ "path": path, "type": "c", "major": 1, "minor": minor, "fileMode": mode, "uid": uid, "gid": uid + 1 });
            bundle.config["linux"]["devices"] = json!([node("/dev/zero", 5, 0o640, 5), node("/dev/mine", 3, 0o600, 0)]);
            let said = bundle.run().expect(0).out();
            assert_eq!(said, "/dev/zero 1:5 640 5:6\n/dev/mine 1:3 600 0:1\n/dev/null 1:3 666 0:0\nusable\n");
        }
    });
}

#[test]
fn a_device_path_may_end_with_a_slash() {
    for_each_runtime(|runtime| {
        if runtime == Runtime::Crun {
            return; // it fails
        }
        let Some(mut bundle) = Bundle::new(runtime, "stat -c %t:%T /dev/one /dev/a/b/two") else { return };
        let node = |path: &str| json!({ "path": path, "type": "c", "major": 1, "minor": 3 });
        bundle.config["linux"]["devices"] = json!([node("/dev/one/"), node("/dev/a//b/./two")]);
        assert_eq!(bundle.run().expect(0).out(), "1:3\n1:3\n");
    });
}

#[test]
fn a_configuration_without_a_mount_namespace_runs() {
    for_each_runtime(|runtime| {
        let Some(mut bundle) = Bundle::new(runtime, "ls -d /bin /home; echo ran") else { return };
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNS).unwrap(); // for this thread alone: the controls leave their mounts
        assert!(Command::new("mount").args(["--make-rslave", "/"]).status().unwrap().success());
        let namespaces = bundle.config["linux"]["namespaces"].as_array_mut().unwrap();
        namespaces.retain(|namespace| namespace["type"] != "mount");
        for field in ["maskedPaths", "readonlyPaths"] {
            bundle.config["linux"].as_object_mut().unwrap().remove(field);
        }
        assert_eq!(bundle.run().expect(0).out(), "/bin\nran\n");
        let mounts = std::fs::read_to_string("/proc/thread-self/mountinfo").unwrap();
        let left = mounts.contains(common::text(&bundle.rootfs()));
        assert!(!left || runtime != Runtime::Ours, "{mounts}");
        if left {
            let _ = Command::new("umount").args(["-l", common::text(&bundle.rootfs())]).status();
        }
    });
}

/// A node that the runtime makes outside, for a user namespace. The host's node would have the host's owner and mode.
#[test]
fn a_device_node_that_cannot_be_made_is_an_error() {
    if !common::inject::may_inject() {
        return;
    }
    const MKNODAT: &str = "259";
    const FCHOWNAT: &str = "260";
    ours(|runtime| {
        let Some(bundle) = in_user_namespace(runtime, "true") else { return };
        bundle.run().expect(0);
        for (call, error) in [(MKNODAT, "ENOSPC"), (FCHOWNAT, "EIO")] {
            let run = bundle.command(["run", "--bundle", common::text(bundle.dir.path()), &bundle.id]);
            let words = common::inject::words(&["0", call, "1", error]);
            let mut command = Command::new(&words[0]);
            command.args(&words[1..]).arg(run.get_program()).args(run.get_args());
            let output = command.stdin(std::process::Stdio::null()).output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(
                output.status.code() == Some(1) && said.contains(error) && said.contains("/dev/"),
                "{call}: {output:?}"
            );
        }
    });
}
