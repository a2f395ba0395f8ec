//! The container is as `config.json` says: checked from inside, with runc and crun as the controls.

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::process::ExitStatusExt as _;

use crate::common;
use crate::common::bundle::{Bundle, Called, Runtime, for_each_runtime, ours};
use crate::common::clock::PATIENCE;
use crate::common::host;
use serde_json::{Value, json};

/// The output of the bundle's script.
fn printed(bundle: &Bundle) -> String {
    bundle.run().expect(0).out()
}

#[test]
fn the_process_has_what_it_was_given_and_nothing_else() {
    for_each_runtime(|runtime| {
        let script = "id -u; id -g; busybox pwd; umask; echo $A; grep -E '^(Groups|Cap|NoNew)' /proc/self/status; \
            ulimit -n; cat /proc/self/oom_score_adj; busybox hostname";
        let Some(mut bundle) = Bundle::new(runtime, script) else { return };
        let process = &mut bundle.config["process"];
        process["user"] = json!({ "uid": 5, "gid": 6, "umask": 0o027, "additionalGids": [7, 8] });
        process["cwd"] = json!("/made/for/it");
        process["env"] = json!(["PATH=/bin", "A=b c"]);
        process["capabilities"] = json!({
            "bounding": ["CAP_KILL", "CAP_CHOWN", "CAP_NET_RAW"], "permitted": ["CAP_KILL", "CAP_CHOWN"],
            "effective": ["CAP_KILL"], "inheritable": ["CAP_CHOWN", "CAP_KILL"], "ambient": ["CAP_KILL"],
        });
        process["rlimits"] = json!([{ "type": "RLIMIT_NOFILE", "soft": 77, "hard": 99 }]);
        process["oomScoreAdj"] = json!(321);
        bundle.config["root"]["readonly"] = json!(false);
        let expected = "5\n6\n/made/for/it\n0027\nb c\nGroups:\t7 8 \nCapInh:\t0000000000000021\nCapPrm:\t0000000000000020\n\
            CapEff:\t0000000000000020\nCapBnd:\t0000000000002021\nCapAmb:\t0000000000000020\nNoNewPrivs:\t1\n77\n321\nstockade\n";
        assert_eq!(printed(&bundle), expected);
    });
}

#[test]
fn new_privileges_can_be_had_where_they_are_not_forbidden() {
    for_each_runtime(|runtime| {
        // `su` is the only program of busybox that keeps the privileges of its set-user-id bit.
        let Some(mut bundle) = Bundle::new(runtime, "grep NoNew /proc/self/status; /suid/su -c 'id -u' 2>&1") else {
            return;
        };
        let suid = bundle.rootfs().join("suid");
        std::fs::create_dir(&suid).unwrap();
        std::fs::copy(bundle.rootfs().join("bin/busybox"), suid.join("su")).unwrap();
        std::fs::set_permissions(suid.join("su"), std::fs::Permissions::from_mode(0o4755)).unwrap();
        std::fs::write(bundle.rootfs().join("etc/passwd"), "root::0:0::/:/bin/sh\nuser::5:6::/:/bin/sh\n").unwrap();
        std::fs::write(bundle.rootfs().join("etc/group"), "root::0:\nuser::6:\n").unwrap();
        bundle.config["process"]["user"] = json!({ "uid": 5, "gid": 6 });
        for set in ["bounding", "effective", "permitted"] {
            let sets = &mut bundle.config["process"]["capabilities"];
            sets[set] = json!(["CAP_SETUID", "CAP_SETGID"]);
        }
        for (forbidden, became_root) in [(false, true), (true, false)] {
            bundle.config["process"]["noNewPrivileges"] = json!(forbidden);
            let said = bundle.run().out();
            assert!(said.starts_with(&format!("NoNewPrivs:\t{}\n", u8::from(forbidden))), "{said}");
            assert_eq!(said.ends_with("\n0\n"), became_root, "{said}");
        }
    });
}

#[test]
fn mounts_are_as_their_options_say() {
    for_each_runtime(|runtime| {
        let script = "grep -E ' /(ro|rw|tmp|link/made|below|upper) ' /proc/self/mounts | busybox cut -d' ' -f2-4; \
            echo x > /ro/x; echo y > /rw/y; cat /upper/old; ls -d /rel";
        let Some(mut bundle) = Bundle::new(runtime, script) else { return };
        let host = bundle.dir.dir("host");
        let upper = bundle.rootfs().join("upper");
        std::fs::create_dir(&upper).unwrap();
        std::fs::write(upper.join("old"), "was there\n").unwrap();
        let source = common::text(&host).to_owned();
        bundle
            .mount("/ro", "bind", &source, &["rbind", "ro", "nosuid", "nodev", "noexec"])
            .mount("/rw", "bind", &source, &["bind", "rw", "nosuid"])
            .mount("/tmp", "tmpfs", "tmpfs", &["size=64k", "mode=1770", "noexec", "nodev"])
            .mount("/upper", "tmpfs", "tmpfs", &["tmpcopyup", "size=1m"])
            .mount("/etc/../rel", "tmpfs", "tmpfs", &[]);
        bundle.config["root"]["readonly"] = json!(false);
        let called = bundle.run();
        let said = called.out();
        let has = |path: &str, options: &[&str]| {
            let line = said.lines().find(|line| line.starts_with(path)).unwrap_or_else(|| panic!("{path} in {said}"));
            let set: Vec<_> = line.rsplit(' ').next().unwrap().split(',').collect();
            options.iter().all(|option| set.contains(option))
        };
        assert!(has("/ro ", &["ro", "nosuid", "nodev", "noexec"]) && has("/rw ", &["rw", "nosuid"]), "{said}");
        assert!(!has("/rw ", &["noexec"]) && has("/tmp ", &["noexec", "nodev", "size=64k", "mode=1770"]), "{said}");
        assert!(said.contains("was there") && said.contains("/rel"), "{said}");
        assert!(called.err().contains("Read-only file system"), "{called:?}");
        assert_eq!(std::fs::read_to_string(host.join("y")).unwrap(), "y\n");
        assert!(!host.join("x").exists());
    });
}

#[test]
fn recursive_attributes_reach_what_is_mounted_below() {
    ours(|runtime| {
        let Some(mut bundle) =
            Bundle::new(runtime, "touch /a/inner/x || echo refused; touch /b/inner/x && echo allowed")
        else {
            return;
        };
        let (outer, inner) = (bundle.dir.dir("outer"), bundle.dir.dir("outer/inner"));
        let source = common::text(&outer).to_owned();
        let mounted = std::process::Command::new("mount").args(["-t", "tmpfs", "tmpfs"]).arg(&inner).status().unwrap();
        assert!(mounted.success());
        bundle.mount("/a", "bind", &source, &["rbind", "rro"]).mount("/b", "bind", &source, &["rbind", "ro"]);
        let said = bundle.run().out();
        nix::mount::umount(&inner).unwrap();
        assert_eq!(said, "refused\nallowed\n");
    });
}

#[test]
fn a_symlink_in_an_image_does_not_lead_out() {
    for_each_runtime(|runtime| {
        let Some(mut bundle) = Bundle::new(runtime, "echo ran") else { return };
        let outside = bundle.dir.dir("outside");
        let before = host::fingerprint(&outside);
        let far = format!("../../../../../..{}", common::text(&outside));
        symlink(&far, bundle.rootfs().join("data")).unwrap();
        symlink(format!("{far}/file"), bundle.rootfs().join("etc/resolv.conf")).unwrap();
        if runtime == Runtime::Ours {
            symlink(&outside, bundle.rootfs().join("dev")).unwrap(); // current runc creates its links there
        }
        let file = bundle.dir.file("bound", "");
        bundle.mount("/data/made", "tmpfs", "tmpfs", &[]).mount(
            "/etc/resolv.conf",
            "bind",
            common::text(&file),
            &["bind", "ro"],
        );
        let _ = bundle.run(); // it may fail
        assert_eq!(host::fingerprint(&outside), before);
        for name in ["proc", "sys"] {
            let Some(bundle) = Bundle::new(runtime, "echo ran") else { return };
            symlink(&outside, bundle.rootfs().join(name)).unwrap();
            let called = bundle.run();
            assert!(!called.0.status.success() && called.out().is_empty(), "/{name} is a symlink: {called:?}");
            assert_eq!(host::fingerprint(&outside), before);
        }
    });
}

#[test]
fn masked_and_read_only_paths_are_both() {
    for_each_runtime(|runtime| {
        let script =
            "cat /secret; ls /hidden; cat /proc/kcore; echo x > /frozen/x; echo x > /proc/sys/kernel/domainname";
        let Some(mut bundle) = Bundle::new(runtime, script) else { return };
        let root = bundle.rootfs();
        std::fs::write(root.join("secret"), "secret\n").unwrap();
        std::fs::create_dir_all(root.join("hidden/inner")).unwrap();
        std::fs::create_dir(root.join("frozen")).unwrap();
        bundle.config["root"]["readonly"] = json!(false);
        for (list, paths) in
            [("maskedPaths", ["/secret", "/hidden", "/none"]), ("readonlyPaths", ["/frozen", "/no", "/nor"])]
        {
            bundle.config["linux"][list].as_array_mut().unwrap().extend(paths.map(|path| json!(path)));
        }
        let called = bundle.run();
        assert_eq!(called.out(), "", "{called:?}");
        assert_eq!(called.err().matches("Read-only file system").count(), 2, "{called:?}");
        assert!(!root.join("frozen/x").exists());
    });
}

/// The target of a link can be reached by its own name, so it is what must be protected. Absolute links lead to the
/// container's root.
#[test]
fn a_link_among_masked_and_read_only_paths_protects_its_target() {
    for_each_runtime(|runtime| {
        let script = "cat /secret; ls /hidden; echo x > /frozen/x; echo x > /to-frozen/y";
        let Some(mut bundle) = Bundle::new(runtime, script) else { return };
        let root = bundle.rootfs();
        std::fs::write(root.join("secret"), "secret\n").unwrap();
        std::fs::create_dir_all(root.join("hidden/inner")).unwrap();
        std::fs::create_dir(root.join("frozen")).unwrap();
        let links =
            [("to-secret", "secret"), ("to-hidden", "/hidden"), ("to-frozen", "../../frozen"), ("gone", "none")];
        for (link, target) in links {
            symlink(target, root.join(link)).unwrap();
        }
        bundle.config["root"]["readonly"] = json!(false);
        bundle.config["linux"]["maskedPaths"] = json!(["/to-secret", "/to-hidden", "/gone"]);
        bundle.config["linux"]["readonlyPaths"] = json!(["/to-frozen", "/gone"]);
        let called = bundle.run();
        assert_eq!(called.out(), "", "{called:?}");
        assert_eq!(called.err().matches("Read-only file system").count(), 2, "{called:?}");
        // A link that leads nowhere else cannot be protected, and is not taken for a missing path.
        symlink("../circle", root.join("circle")).unwrap();
        for list in ["maskedPaths", "readonlyPaths"] {
            bundle.config["linux"][list] = json!(["/circle"]);
            let called = bundle.run();
            assert!(!called.0.status.success() && called.out().is_empty(), "{list}: {called:?}");
            bundle.about("delete");
            bundle.config["linux"][list] = json!([]);
        }
    });
}

#[test]
fn masked_paths_are_empty_for_a_user_without_capabilities() {
    for_each_runtime(|runtime| {
        let script = "cat /secret && ls /hidden && stat -c %s /secret; echo x > /hidden/x; grep -c ' /hidden ' /proc/self/mountinfo";
        let Some(mut bundle) = Bundle::new(runtime, script) else { return };
        let root = bundle.rootfs();
        std::fs::write(root.join("secret"), "secret\n").unwrap();
        std::fs::create_dir_all(root.join("hidden/inner")).unwrap();
        bundle.config["root"]["readonly"] = json!(false);
        bundle.config["process"]["capabilities"] = json!({});
        bundle.config["linux"]["maskedPaths"] = json!(["/secret", "hidden", "/hidden"]);
        for uid in [0, 1000] {
            bundle.config["process"]["user"] = json!({ "uid": uid, "gid": uid });
            let called = bundle.run();
            assert!(called.out().starts_with("0\n"), "{called:?}");
            assert!(called.err().contains("Read-only file system"), "{called:?}");
            assert!(runtime != Runtime::Ours || called.out() == "0\n1\n", "masked once: {called:?}");
        }
    });
}

#[test]
fn a_tmpfs_has_the_mode_of_the_directory_that_it_covers() {
    for_each_runtime(|runtime| {
        let script = "stat -c '%a %u:%g' /new /old /set; ls /copied; stat -c '%a %u:%g' /copied";
        let Some(mut bundle) = Bundle::new(runtime, script) else { return };
        for name in ["old", "set", "copied"] {
            let path = bundle.rootfs().join(name);
            std::fs::create_dir(&path).unwrap();
            std::fs::write(path.join("file"), "x").unwrap();
            std::os::unix::fs::chown(&path, Some(1000), Some(1001)).unwrap();
            std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        }
        bundle.mount("/new", "tmpfs", "tmpfs", &[]).mount("/old", "tmpfs", "tmpfs", &[]);
        bundle.mount("/set", "tmpfs", "tmpfs", &["mode=700", "uid=5"]).mount(
            "/copied",
            "tmpfs",
            "tmpfs",
            &["tmpcopyup"],
        );
        // runc leaves the owner to root and, in this version, overrides an explicit mode. crun ignores the directory.
        let (old, set) = match runtime {
            Runtime::Ours => ("755 1000:1001", "700 5:0"),
            Runtime::Runc => ("755 0:0", "755 5:0"),
            Runtime::Crun => ("1777 0:0", "700 5:0"),
        };
        let expected = format!("1777 0:0\n{old}\n{set}\nfile\n{old}\n");
        assert_eq!(bundle.run().out(), expected);
    });
}

#[test]
fn namespaces_are_new_or_those_that_are_named() {
    for_each_runtime(|runtime| {
        let links = "for n in mnt pid net ipc uts; do readlink /proc/self/ns/$n; done";
        let Some(mut bundle) = Bundle::new(runtime, links) else { return };
        let own = |name: &str| std::fs::read_link(format!("/proc/self/ns/{name}")).unwrap().display().to_string();
        let inside = printed(&bundle);
        for name in ["mnt", "pid", "net", "ipc", "uts"] {
            assert!(!inside.contains(&own(name)), "{name}");
        }
        let Some(donor) = Bundle::new(runtime, "while :; do sleep 0.1; done") else { return };
        donor.create().expect(0);
        let pid = donor.state()["pid"].as_i64().unwrap();
        let theirs = |name: &str| std::fs::read_link(format!("/proc/{pid}/ns/{name}")).unwrap().display().to_string();
        bundle.config["linux"]["namespaces"] = json!([
            { "type": "mount" }, { "type": "uts" },
            { "type": "pid", "path": format!("/proc/{pid}/ns/pid") },
            { "type": "network", "path": format!("/proc/{pid}/ns/net") },
        ]);
        bundle.config["mounts"].as_array_mut().unwrap().retain(|mount| mount["destination"] != "/dev/mqueue");
        let lines = printed(&bundle);
        let lines: Vec<&str> = lines.lines().collect();
        assert_eq!(lines[1..4], [theirs("pid"), theirs("net"), own("ipc")]);
        bundle.config["linux"]["namespaces"][2]["path"] = json!("/etc/passwd");
        assert!(!bundle.run().0.status.success());
    });
}

#[test]
fn the_procfs_of_a_joined_pid_namespace_shows_its_processes_alone() {
    for_each_runtime(|runtime| {
        let Some(donor) = Bundle::new(runtime, "exec sleep 9876") else { return };
        donor.create().expect(0);
        donor.about("start").expect(0);
        let pid = donor.state()["pid"].clone();
        let script = "tr '\\0' ' ' </proc/1/cmdline; echo; readlink /proc/self/ns/pid; ls /proc | grep -c '^[0-9]'; \
                      tr '\\0' ' ' </more/1/cmdline; echo";
        let Some(mut bundle) = Bundle::new(runtime, script) else { return };
        bundle.mount("/more", "proc", "proc", &["nosuid", "nodev", "noexec"]);
        std::fs::create_dir(bundle.rootfs().join("more")).unwrap();
        for namespace in bundle.config["linux"]["namespaces"].as_array_mut().unwrap() {
            if namespace["type"] == "pid" {
                namespace["path"] = json!(format!("/proc/{pid}/ns/pid"));
            }
        }
        let said = printed(&bundle);
        let lines: Vec<&str> = said.lines().collect();
        let joined = std::fs::read_link(format!("/proc/{pid}/ns/pid")).unwrap().display().to_string();
        // The donor, the shell, `ls` and perhaps `grep`.
        assert!(lines.len() == 4 && lines[0] == "sleep 9876 " && lines[1] == joined && lines[3] == lines[0], "{said}");
        assert!(lines[2].parse::<u32>().unwrap() <= 5, "{said}");
    });
}

#[test]
fn the_ptmx_is_the_containers_own_whatever_device_is_listed() {
    for_each_runtime(|runtime| {
        let Some(mut bundle) = Bundle::new(runtime, "readlink /dev/ptmx; ls /dev/pts") else { return };
        // Engines list all devices of the host in a privileged container.
        let listed = json!({ "path": "/dev/ptmx", "type": "c", "major": 5, "minor": 2, "fileMode": 0o666 });
        bundle.config["linux"]["devices"] = json!([listed]);
        assert_eq!(printed(&bundle), "pts/ptmx\nptmx\n");
    });
}

#[test]
fn a_user_namespace_has_the_ranges_it_was_given() {
    for_each_runtime(|runtime| {
        let script = "id -u; cat /proc/self/uid_map; touch /made; ls -ln /dev/null; echo > /dev/null && echo written";
        let Some(mut bundle) = Bundle::new(runtime, script) else { return };
        for dir in ["rootfs", "rootfs/bin", "rootfs/etc"] {
            std::os::unix::fs::chown(bundle.dir.join(dir), Some(200_000), Some(200_000)).unwrap();
        }
        bundle.config["root"]["readonly"] = json!(false);
        let linux = &mut bundle.config["linux"];
        linux["namespaces"].as_array_mut().unwrap().push(json!({ "type": "user" }));
        let maps = json!([
            { "containerID": 0, "hostID": 200_000, "size": 1000 },
            { "containerID": 1000, "hostID": 300_000, "size": 64536 },
        ]);
        (linux["uidMappings"], linux["gidMappings"]) = (maps.clone(), maps);
        let called = bundle.run().expect(0);
        let words: Vec<_> = called.out().split_whitespace().map(str::to_owned).collect();
        assert_eq!(words[..7], ["0", "0", "200000", "1000", "1000", "300000", "64536"], "{called:?}");
        assert!(called.out().ends_with("written\n"));
        use std::os::unix::fs::MetadataExt as _;
        assert_eq!(std::fs::metadata(bundle.rootfs().join("made")).unwrap().uid(), 200_000);
    });
}

#[test]
fn a_time_namespace_has_its_own_clocks() {
    ours(|runtime| {
        let Some(mut bundle) = Bundle::new(runtime, "cat /proc/uptime") else { return };
        let linux = &mut bundle.config["linux"];
        linux["namespaces"].as_array_mut().unwrap().push(json!({ "type": "time" }));
        linux["timeOffsets"] = json!({ "boottime": { "secs": 1_000_000_000 } });
        let said = printed(&bundle);
        let uptime: f64 = said.split(' ').next().unwrap().parse().unwrap();
        assert!(uptime > 1e9, "{said}");
    });
}

#[test]
fn kernel_parameters_are_those_of_a_namespace_alone() {
    for_each_runtime(|runtime| {
        let Some(mut bundle) = Bundle::new(runtime, "cat /proc/sys/net/ipv4/ip_forward /proc/sys/kernel/shmmni") else {
            return;
        };
        bundle.config["linux"]["sysctl"] = json!({ "net.ipv4.ip_forward": "1", "kernel.shmmni": "1234" });
        assert_eq!(printed(&bundle), "1\n1234\n");
        for name in
            ["kernel.core_pattern", "vm.overcommit_memory", "kernel/../vm/swappiness", "net/../kernel/core_pattern"]
        {
            bundle.config["linux"]["sysctl"] = json!({ name: "1" });
            assert!(!bundle.run().0.status.success(), "{name}");
        }
    });
}

#[test]
fn limits_are_in_force_and_can_be_changed() {
    for_each_runtime(|runtime| {
        // Its first process starts no others: it would end where none are left, and the one that uses them up with it.
        let Some(mut bundle) = Bundle::new(runtime, "echo up; exec sleep 1000") else { return };
        bundle.config["linux"]["resources"] = json!({
            "memory": { "limit": 64 << 20 }, "pids": { "limit": 33 },
            "cpu": { "shares": 512, "quota": 50_000, "period": 100_000 },
            "devices": [{ "allow": false, "access": "rwm" }],
        });
        bundle.create().expect(0);
        bundle.about("start").expect(0);
        bundle.wait_for_output("up");
        let expect_limits = |memory: u64, pids: u64| {
            if !runtime.has_events() {
                return;
            }
            let now: Value = serde_json::from_slice(&bundle.call(["events", "--stats", &bundle.id]).0.stdout).unwrap();
            assert_eq!(now["data"]["memory"]["usage"]["limit"], json!(memory));
            assert_eq!(now["data"]["pids"]["limit"], json!(pids));
        };
        expect_limits(64 << 20, 33);
        let resources = bundle
            .dir
            .file("resources.json", json!({ "memory": { "limit": 48 << 20 }, "pids": { "limit": 22 } }).to_string());
        bundle.call(["update", "--resources", common::text(&resources), &bundle.id]).expect(0);
        expect_limits(48 << 20, 22);
        let called = bundle
            .exec("for n in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23; do sleep 1 & done; wait");
        assert!(called.err().contains("fork"), "{called:?}");
    });
}

#[test]
fn device_nodes_are_there_and_no_others_can_be_used() {
    for_each_runtime(|runtime| {
        let script = "ls -l /dev/mine | busybox awk '{print $1, $3, $4, $5, $6}'; busybox mknod /dev/fuse c 10 229; \
            (: </dev/fuse) 2>/dev/null && echo opened || echo refused; echo x > /dev/null && echo null; cat /dev/mine | busybox head -c 0 && echo mine";
        let Some(mut bundle) = Bundle::new(runtime, script) else { return };
        for set in ["bounding", "effective", "permitted"] {
            bundle.config["process"]["capabilities"][set].as_array_mut().unwrap().push(json!("CAP_MKNOD"));
        }
        bundle.config["linux"]["devices"] = json!([{ "path": "/dev/mine", "type": "c", "major": 1, "minor": 5, "fileMode": 0o640, "uid": 3, "gid": 4 }]);
        assert_eq!(printed(&bundle), "crw-r----- 3 4 1, 5\nrefused\nnull\nmine\n");
        if !std::path::Path::new("/dev/fuse").exists() {
            return common::skip_part("the control", "this host has no /dev/fuse, which every user may open");
        }
        // Only the device rules can forbid it.
        let rule = json!({ "allow": true, "type": "c", "major": 10, "minor": 229, "access": "rw" });
        bundle.config["linux"]["resources"]["devices"].as_array_mut().unwrap().push(rule);
        assert_eq!(printed(&bundle), "crw-r----- 3 4 1, 5\nopened\nnull\nmine\n");
    });
}

/// As in a container of another runtime. runc and crun fail there.
#[test]
fn a_runtime_that_may_not_make_nodes_binds_the_hosts() {
    ours(|runtime| {
        let script =
            "echo x >/dev/null && busybox stat -c '%t %T' /dev/null; grep -c ' /dev/null ' /proc/self/mounts; true";
        let Some(bundle) = Bundle::new(runtime, script) else { return };
        let runs = |capabilities: &str| {
            let plain = bundle.command(["run", "--bundle", common::text(bundle.dir.path()), &bundle.id]);
            let mut command = std::process::Command::new("setpriv");
            command.arg(format!("--bounding-set={capabilities}")).arg(plain.get_program()).args(plain.get_args());
            Called(command.stdin(std::process::Stdio::null()).output().unwrap()).expect(0).out()
        };
        assert_eq!(runs("-mknod"), "1 3\n1\n");
        assert_eq!(runs("+mknod"), "1 3\n0\n");
    });
}

#[test]
fn a_seccomp_profile_that_refuses_calls_of_a_start_is_in_force() {
    ours(|runtime| {
        let Some(mut bundle) = Bundle::new(runtime, "grep -m1 Seccomp: /proc/self/status; busybox mkdir /tmp/x") else {
            return;
        };
        bundle.mount("/tmp", "tmpfs", "tmpfs", &[]);
        let rules = json!([{ "names": ["mkdir", "mkdirat", "munmap"], "action": "SCMP_ACT_ERRNO", "errnoRet": 28 }]);
        bundle.config["linux"]["seccomp"] = json!({ "defaultAction": "SCMP_ACT_ALLOW", "syscalls": rules });
        for forbidden in [true, false] {
            bundle.config["process"]["noNewPrivileges"] = json!(forbidden);
            let called = bundle.run();
            assert!(called.out().contains("Seccomp:\t2") && called.err().contains("No space left"), "{called:?}");
        }
    });
}

#[test]
fn a_seccomp_profile_is_in_force_with_and_without_new_privileges() {
    for_each_runtime(|runtime| {
        let Some(mut bundle) = Bundle::new(runtime, "grep -m1 Seccomp: /proc/self/status; busybox mkdir /tmp/x") else {
            return;
        };
        bundle.mount("/tmp", "tmpfs", "tmpfs", &[]);
        bundle.config["linux"]["seccomp"] = json!({
            "defaultAction": "SCMP_ACT_ALLOW", "architectures": ["SCMP_ARCH_X86_64"],
            "syscalls": [{ "names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_ERRNO", "errnoRet": 28 }],
        });
        for forbidden in [true, false] {
            bundle.config["process"]["noNewPrivileges"] = json!(forbidden);
            let called = bundle.run();
            assert!(called.out().contains("Seccomp:\t2") && called.err().contains("No space left"), "{called:?}");
        }
    });
}

#[test]
fn hooks_run_at_their_stages_with_the_state() {
    for_each_runtime(|runtime| {
        let Some(mut bundle) = Bundle::new(runtime, "echo program >> /log/all") else { return };
        let log = bundle.dir.dir("log");
        std::fs::create_dir(bundle.rootfs().join("log")).unwrap();
        let source = common::text(&log).to_owned();
        bundle.mount("/log", "bind", &source, &["bind"]);
        let hook = |stage: &str, log: &str| {
            let script = format!("read -r state; echo {stage} $A >> {log}/all; echo \"$state\" > {log}/{stage}.json");
            json!([{ "path": "/bin/sh", "args": ["sh", "-c", script], "env": ["A=b", "PATH=/usr/bin:/bin"], "timeout": 20 }])
        };
        let mut hooks = serde_json::Map::new();
        for stage in ["prestart", "createRuntime", "createContainer", "poststart", "poststop"] {
            hooks.insert(stage.into(), hook(stage, &source));
        }
        hooks.insert("startContainer".into(), hook("startContainer", "/log"));
        bundle.config["hooks"] = hooks.into();
        bundle.create().expect(0);
        bundle.about("start").expect(0);
        bundle.wait_for("stopped");
        bundle.about("delete").expect(0);
        let all = std::fs::read_to_string(log.join("all")).unwrap();
        let stages: Vec<_> = all.lines().map(|line| line.trim_end_matches(" b")).collect();
        assert_eq!(stages[..3], ["prestart", "createRuntime", "createContainer"]);
        assert_eq!(stages[6..], ["poststop"]);
        // `start` and the program run concurrently.
        let at = |stage: &str| stages.iter().position(|other| *other == stage).unwrap_or_else(|| panic!("{stages:?}"));
        assert!(at("startContainer") < at("program"), "{stages:?}");
        // The control does not wait for the program.
        assert!(runtime != Runtime::Ours || at("startContainer") < at("poststart"), "{stages:?}");
        for (stage, status) in [("createRuntime", "creating"), ("poststart", "running"), ("poststop", "stopped")] {
            let state: Value =
                serde_json::from_slice(&std::fs::read(log.join(format!("{stage}.json"))).unwrap()).unwrap();
            assert_eq!(state["id"], json!(bundle.id));
            // The control does not always know yet that the program runs.
            assert!(state["status"] == json!(status) || runtime != Runtime::Ours, "{stage}: {state}");
            assert_eq!(state["bundle"], json!(bundle.dir.path()));
        }
    });
}

#[test]
fn a_hook_without_an_environment_inherits_one() {
    for_each_runtime(|runtime| {
        let Some(mut bundle) = Bundle::new(runtime, "true") else { return };
        std::fs::create_dir(bundle.rootfs().join("log")).unwrap();
        let log = bundle.dir.dir("log");
        let source = common::text(&log).to_owned();
        bundle.mount("/log", "bind", &source, &["bind"]);
        bundle.config["process"]["env"] = json!(["PATH=/bin", "OF=process"]);
        let hook = |stage: &str, log: &str| {
            let script = format!("cat >/dev/null; env > {log}/{stage}");
            json!([{ "path": "/bin/sh", "args": ["sh", "-c", script] }])
        };
        bundle.config["hooks"] = json!({ "createRuntime": hook("createRuntime", &source),
            "createContainer": hook("createContainer", &source), "startContainer": hook("startContainer", "/log"),
            "poststop": hook("poststop", &source) });
        let run = ["run", "--bundle", common::text(bundle.dir.path()), &bundle.id];
        let output = bundle.command(run).env("OF", "runtime").output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let of = |stage: &str| {
            let text = std::fs::read_to_string(log.join(stage)).unwrap();
            text.lines().find_map(|line| line.strip_prefix("OF=").map(str::to_owned))
        };
        let (runtime_s, process_s) = (Some("runtime".to_owned()), Some("process".to_owned()));
        assert_eq!(of("createRuntime"), runtime_s);
        assert_eq!(of("poststop"), runtime_s);
        assert_eq!(of("startContainer"), process_s);
        if runtime == Runtime::Ours {
            assert_eq!(of("createContainer"), runtime_s);
            let text = std::fs::read_to_string(log.join("createContainer")).unwrap();
            assert!(!text.contains("_PROTECTED="), "{text}");
        }
    });
}

#[test]
fn a_hook_that_fails_or_hangs_ends_the_container() {
    for_each_runtime(|runtime| {
        // crun does not report a hook's output.
        let broken = runtime.says("broken", "exit code: 3");
        for (script, said) in [("echo broken >&2; exit 3", broken), ("sleep 1000; true", "")] {
            if runtime != Runtime::Ours && said.is_empty() {
                continue; // they kill only the shell, and its child holds the output open
            }
            let Some(mut bundle) = Bundle::new(runtime, "echo ran") else { return };
            let hook = json!([{ "path": "/bin/sh", "args": ["sh", "-c", script], "timeout": 1 }]);
            bundle.config["hooks"] = json!({ "createRuntime": hook });
            let begun = std::time::Instant::now();
            let mut called = bundle.run();
            // crun sometimes dies of its own pipe to the container, before it has reported the reason.
            while runtime == Runtime::Crun
                && called.0.status.signal() == Some(libc::SIGPIPE)
                && begun.elapsed() < PATIENCE
            {
                let _ = bundle.call(["delete", "--force", &bundle.id]);
                called = bundle.run();
            }
            assert!(!called.0.status.success() && called.out().is_empty(), "{called:?}");
            assert!(called.err().contains(said), "{called:?}");
            assert!(begun.elapsed() < PATIENCE);
            assert!(bundle.state().is_null(), "nothing is left");
        }
    });
}

#[test]
fn ambient_capabilities_that_no_kernel_would_grant_are_left_out() {
    for_each_runtime(|runtime| {
        let Some(mut bundle) = Bundle::new(runtime, "grep -E '^Cap(Amb|Eff)' /proc/self/status") else { return };
        bundle.config["process"]["capabilities"] = json!({
            "bounding": ["CAP_KILL", "CAP_CHOWN"], "permitted": ["CAP_KILL", "CAP_CHOWN"],
            "effective": ["CAP_KILL", "CAP_CHOWN"], "ambient": ["CAP_KILL", "CAP_CHOWN"],
        });
        assert_eq!(printed(&bundle), "CapEff:\t0000000000000021\nCapAmb:\t0000000000000000\n");
    });
}

#[test]
fn unknown_capabilities_and_keys_do_no_harm() {
    for_each_runtime(|runtime| {
        let Some(mut bundle) = Bundle::new(runtime, "echo ran") else { return };
        bundle.config["process"]["capabilities"]["bounding"].as_array_mut().unwrap().push(json!("CAP_OF_TOMORROW"));
        bundle.config["futureField"] = json!({ "anything": [1, 2] });
        bundle.config["linux"]["alsoNew"] = json!(true);
        bundle.config["annotations"] = json!({ "org.example": "x" });
        let ran = bundle.run().expect(0);
        assert_eq!(ran.out(), "ran\n");
        let warning = "ignoring unknown or unavailable capabilities: [CAP_OF_TOMORROW]";
        assert!(runtime == Runtime::Crun || ran.err().contains(warning), "{ran:?}");
    });
}

#[test]
fn errors_name_the_file_the_field_and_the_reason() {
    ours(|runtime| {
        let cases: [(&str, Value, &str); 22] = [
            ("/ociVersion", json!("2.0.0"), "ociVersion"),
            ("/process/args", json!([]), "process.args: must name a program"),
            ("/process/cwd", json!("relative"), "process.cwd: \"relative\": must be an absolute path"),
            ("/process/user/uid", json!(4_294_967_295u64), "process.user.uid"),
            ("/process/rlimits/0/soft", json!(4096), "process.rlimits[0]: soft is more than hard"),
            ("/process/rlimits/0/type", json!("RLIMIT_X"), "process.rlimits[0].type"),
            ("/process/oomScoreAdj", json!(1001), "oomScoreAdj"),
            ("/process/scheduler", json!({ "policy": "SCHED_X" }), "process.scheduler.policy"),
            ("/process/env", json!("x"), "process.env: \"x\": must be an array"),
            ("/root/path", json!(""), "root.path"),
            ("/mounts/0/destination", json!("/"), "mounts[0].destination"),
            ("/mounts/0/options", json!([7]), "mounts[0].options[0]: 7: must be a string"),
            ("/linux/namespaces/0/type", json!("planet"), "linux.namespaces[0].type"),
            ("/linux/namespaces/0/type", json!("mount"), "second mount namespace"),
            ("/linux/cgroupsPath", json!("/../x"), "leads out of itself"),
            ("/linux/resources/memory", json!({ "limit": -2 }), "linux.resources.memory.limit: -2"),
            ("/linux/resources/unified", json!({ "../x": "1" }), "is not a file of a controller"),
            ("/linux/resources/cpu", json!({ "cpus": "3-1" }), "linux.resources.cpu.cpus"),
            ("/linux/seccomp", json!({ "defaultAction": "SCMP_ACT_X" }), "linux.seccomp"),
            ("/linux/rootfsPropagation", json!("sideways"), "linux.rootfsPropagation"),
            ("/linux/intelRdt", json!({ "schemata": ["L3"] }), "linux.intelRdt.schemata[0]"),
            ("/hooks", json!({ "prestart": [{ "path": "sh" }] }), "hooks.prestart[0].path"),
        ];
        for (pointer, value, said) in cases {
            let Some(mut bundle) = Bundle::new(runtime, "echo ran") else { return };
            let (parent, key) = pointer.rsplit_once('/').unwrap();
            let parent = bundle.config.pointer_mut(parent).unwrap();
            match key.parse::<usize>() {
                Ok(index) => parent[index] = value,
                Err(_) => parent[key] = value,
            }
            let called = bundle.run();
            assert!(called.out().is_empty(), "{pointer} ran");
            called.expect_error(said);
            assert!(bundle.state().is_null());
        }
        let Some(bundle) = Bundle::new(runtime, "echo ran") else { return };
        let whole = bundle.config.to_string();
        let path = bundle.dir.join("config.json");
        let run = |text: &[u8]| {
            std::fs::write(&path, text).unwrap();
            let root = bundle.dir.join("state");
            let mut command = std::process::Command::new(runtime.program());
            command.arg("--root").arg(root).args(["run", "-b"]).arg(bundle.dir.path()).arg("x");
            common::bundle::Called(command.output().unwrap())
        };
        run(whole.replacen("\"hostname\"", "\"root\":{\"path\":\"/\"},\"hostname\"", 1).as_bytes())
            .expect_error("duplicate key");
        for text in ["", "{", "[]", "null", "\u{feff}{}", "{}{}"] {
            run(text.as_bytes()).expect_error("config.json");
        }
        for length in (0..whole.len()).step_by(97) {
            let called = run(&whole.as_bytes()[..length]);
            assert!(!called.0.status.success() && called.err().contains("config.json"), "{called:?}");
        }
    });
}
