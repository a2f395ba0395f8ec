//! Field by field of the runtime specification for Linux: each is compared with the kernel's state, with runc and crun as the
//! controls where they know the field. [`FIELDS`] names the test of each.

use std::path::Path;
use std::process::Command;

use crate::common;
use crate::common::bundle::{Bundle, Runtime, for_each_runtime, ours};
use crate::common::host;
use serde_json::{Value, json};

/// Every field of `config.json` for Linux, and the test that fails if the field is ignored: in this file, or in the named one.
const FIELDS: &[(&str, &str)] = &[
    ("process.terminal", "lifecycle::a_terminal_goes_to_the_console_socket"),
    ("process.consoleSize", "lifecycle::a_terminal_goes_to_the_console_socket"),
    ("process.cwd", "config::the_process_has_what_it_was_given_and_nothing_else"),
    ("process.env", "config::the_process_has_what_it_was_given_and_nothing_else"),
    ("process.args", "config::the_process_has_what_it_was_given_and_nothing_else"),
    ("process.user.uid", "config::the_process_has_what_it_was_given_and_nothing_else"),
    ("process.user.umask", "config::the_process_has_what_it_was_given_and_nothing_else"),
    ("process.user.additionalGids", "config::the_process_has_what_it_was_given_and_nothing_else"),
    ("process.capabilities", "config::the_process_has_what_it_was_given_and_nothing_else"),
    ("process.rlimits", "config::the_process_has_what_it_was_given_and_nothing_else"),
    ("process.noNewPrivileges", "config::new_privileges_can_be_had_where_they_are_not_forbidden"),
    ("process.oomScoreAdj", "config::the_process_has_what_it_was_given_and_nothing_else"),
    ("process.apparmorProfile", "labels::an_apparmor_profile_is_that_of_the_program"),
    ("process.selinuxLabel", "missing_features_of_the_host_are_errors"),
    ("process.scheduler", "a_process_is_scheduled_as_it_says"),
    ("process.scheduler.deadline", "a_deadline_is_the_kernels_to_keep"),
    ("process.ioPriority", "a_process_is_scheduled_as_it_says"),
    ("process.execCPUAffinity", "the_cpus_of_exec_are_not_those_of_the_container"),
    ("root.path", "config::the_process_has_what_it_was_given_and_nothing_else"),
    ("root.readonly", "the_root_is_read_only_or_not"),
    ("hostname", "names_are_the_containers_own"),
    ("domainname", "names_are_the_containers_own"),
    ("annotations", "lifecycle::engines_read_the_other_commands_too"),
    ("hooks", "config::hooks_run_at_their_stages_with_the_state"),
    ("mounts.type", "config::mounts_are_as_their_options_say"),
    ("mounts.options", "every_mount_option_does_what_it_says"),
    ("mounts.options.remount", "a_mount_is_changed_where_it_is"),
    ("mounts.options.tmpcopyup", "config::mounts_are_as_their_options_say"),
    ("mounts.options.r*", "config::recursive_attributes_reach_what_is_mounted_below"),
    ("mounts.options.propagation", "events_cross_a_mount_as_it_says"),
    ("mounts.uidMappings", "edges::files_of_an_idmapped_mount_have_the_owners_that_it_says"),
    ("mounts.options.ridmap", "mounts_below_are_idmapped_when_asked_for"),
    ("mounts.destination (relative)", "config::mounts_are_as_their_options_say"),
    ("linux.namespaces", "config::namespaces_are_new_or_those_that_are_named"),
    ("linux.namespaces.path (mount)", "a_mount_namespace_by_path_gets_the_root"),
    ("linux.namespaces.path (user)", "a_user_namespace_by_path_is_entered"),
    ("linux.uidMappings", "config::a_user_namespace_has_the_ranges_it_was_given"),
    ("linux.timeOffsets", "config::a_time_namespace_has_its_own_clocks"),
    ("linux.devices", "config::device_nodes_are_there_and_no_others_can_be_used"),
    ("linux.devices.type", "devices_of_every_kind_are_made"),
    ("linux.netDevices", "network_devices_are_moved_with_their_addresses"),
    ("linux.cgroupsPath", "config::limits_are_in_force_and_can_be_changed"),
    ("linux.resources.memory", "every_limit_is_in_the_kernels_file"),
    ("linux.resources.cpu", "every_limit_is_in_the_kernels_file"),
    ("linux.resources.pids", "every_limit_is_in_the_kernels_file"),
    ("linux.resources.blockIO", "every_limit_is_in_the_kernels_file"),
    ("linux.resources.hugepageLimits", "every_limit_is_in_the_kernels_file"),
    ("linux.resources.network", "every_limit_is_in_the_kernels_file"),
    ("linux.resources.rdma", "every_limit_is_in_the_kernels_file"),
    ("linux.resources.unified", "every_limit_is_in_the_kernels_file"),
    ("linux.resources.memory.checkBeforeUpdate", "a_limit_below_the_usage_is_refused_on_request"),
    ("linux.resources.devices", "the_last_rule_for_a_device_decides"),
    ("linux.sysctl", "config::kernel_parameters_are_those_of_a_namespace_alone"),
    ("linux.seccomp", "config::a_seccomp_profile_is_in_force_with_and_without_new_privileges"),
    ("linux.seccomp.listenerPath", "edges::the_listener_of_a_seccomp_profile_goes_where_it_says"),
    ("linux.seccomp.listenerMetadata", "edges::the_listener_of_a_seccomp_profile_goes_where_it_says"),
    ("linux.rootfsPropagation", "the_root_has_its_propagation"),
    ("linux.maskedPaths", "config::masked_and_read_only_paths_are_both"),
    ("linux.readonlyPaths", "config::masked_and_read_only_paths_are_both"),
    ("linux.mountLabel", "missing_features_of_the_host_are_errors"),
    ("linux.personality", "a_process_is_scheduled_as_it_says"),
    ("linux.memoryPolicy", "a_process_is_scheduled_as_it_says"),
    ("linux.intelRdt", "missing_features_of_the_host_are_errors"),
];

#[test]
fn every_field_has_its_test() {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/oci");
    for (field, test) in FIELDS {
        let (module, name) = test.split_once("::").unwrap_or(("fields", test));
        let text = std::fs::read_to_string(tests.join(format!("{module}.rs"))).unwrap_or_default();
        assert!(text.contains(&format!("fn {name}()")), "{field}: {module} has no test {name}");
    }
}

fn printed(bundle: &Bundle) -> String {
    bundle.run().expect(0).out()
}

fn run(words: &[&str]) {
    let output = Command::new(words[0]).args(&words[1..]).output().unwrap();
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn the_root_is_read_only_or_not() {
    for_each_runtime(|runtime| {
        let Some(mut bundle) = Bundle::new(runtime, "touch /made && echo made || echo refused") else { return };
        for (read_only, said) in [(true, "refused\n"), (false, "made\n")] {
            bundle.config["root"]["readonly"] = json!(read_only);
            assert_eq!(printed(&bundle), said);
        }
    });
}

#[test]
fn names_are_the_containers_own() {
    for_each_runtime(|runtime| {
        let Some(mut bundle) = Bundle::new(runtime, "cat /proc/sys/kernel/hostname /proc/sys/kernel/domainname") else {
            return;
        };
        bundle.config["hostname"] = json!("guest");
        if runtime == Runtime::Ours {
            bundle.config["domainname"] = json!("example.test");
        }
        let domain = if runtime == Runtime::Ours { "example.test" } else { "(none)" };
        assert_eq!(printed(&bundle), format!("guest\n{domain}\n"));
    });
}

#[test]
fn a_process_is_scheduled_as_it_says() {
    ours(|runtime| {
        let script =
            "cut -d' ' -f19,41 /proc/self/stat; ionice; uname -m; grep -m1 -o ' [a-z=:0-9]*' /proc/self/numa_maps";
        let Some(mut bundle) = Bundle::new(runtime, script) else { return };
        bundle.config["process"]["scheduler"] = json!({ "policy": "SCHED_BATCH", "nice": 7 });
        bundle.config["process"]["ioPriority"] = json!({ "class": "IOPRIO_CLASS_BE", "priority": 6 });
        bundle.config["linux"]["personality"] = json!({ "domain": "LINUX32" });
        let numa = Path::new("/proc/self/numa_maps").exists();
        if numa {
            bundle.config["linux"]["memoryPolicy"] =
                json!({ "mode": "MPOL_BIND", "nodes": "0", "flags": ["MPOL_F_STATIC_NODES"] });
        } else {
            common::skip_part("memoryPolicy", "this kernel has no NUMA");
        }
        let said = bundle.run().out();
        let lines: Vec<&str> = said.lines().collect();
        assert_eq!(lines[..2], ["7 3", "best-effort: prio 6"], "{said}");
        if std::env::consts::ARCH == "x86_64" && !host::is_uml() {
            assert_eq!(lines[2], "i686");
        }
        assert!(!numa || lines[3] == " bind=static:0", "{said}");
    });
}

#[test]
fn a_deadline_is_the_kernels_to_keep() {
    ours(|runtime| {
        let Some(mut bundle) =
            Bundle::new(runtime, "cut -d' ' -f41 /proc/self/stat; grep -E '^policy|^dl' /proc/self/sched")
        else {
            return;
        };
        let nanos = |millis: u64| json!(millis * 1_000_000);
        bundle.config["process"]["scheduler"] = json!({
            "policy": "SCHED_DEADLINE", "runtime": nanos(5), "deadline": nanos(50), "period": nanos(100),
            "flags": ["SCHED_FLAG_RESET_ON_FORK"],
        });
        // The program must not fork: it is a command of the shell's own.
        bundle.config["process"]["args"] = json!(["cat", "/proc/self/stat"]);
        let called = bundle.run();
        if called.err().contains("EPERM") || called.err().contains("EBUSY") {
            return common::skip("this host does not allow deadline scheduling");
        }
        let said = called.expect(0).out();
        let (_, fields) = said.rsplit_once(')').unwrap();
        assert_eq!(fields.split_ascii_whitespace().nth(38), Some("6"), "{said}");
        bundle.config["process"]["scheduler"]["runtime"] = nanos(60);
        bundle.run().expect_error("scheduler");
    });
}

/// The parent sets the policy after the process installed its filter; the filter must not prevent that.
#[test]
fn a_real_time_process_with_a_filter_is_scheduled_as_it_says() {
    ours(|runtime| {
        let Some(mut bundle) = Bundle::new(runtime, "cut -d' ' -f18,41 /proc/self/stat; sleep 60") else { return };
        bundle.config["process"]["scheduler"] = json!({ "policy": "SCHED_FIFO", "priority": 3 });
        let policy = |text: &str| text.lines().map(str::to_owned).next();
        let filters = json!({
            "defaultAction": "SCMP_ACT_ALLOW",
            "syscalls": [{ "names": ["sched_setattr", "sched_setscheduler"], "action": "SCMP_ACT_KILL_PROCESS" }],
        });
        for filter in [json!(null), filters] {
            bundle.config["linux"]["seccomp"] = filter;
            let created = bundle.create();
            if created.err().contains("EPERM") {
                return common::skip("this host does not allow real-time policies");
            }
            created.expect(0);
            bundle.about("start").expect(0);
            bundle.wait_for_output("\n");
            assert_eq!(policy(&bundle.printed()).as_deref(), Some("-4 1"));
            let mut process = bundle.config["process"].clone();
            process["args"] = json!(["sh", "-c", "cut -d' ' -f18,41 /proc/self/stat"]);
            let file = bundle.dir.file("process.json", process.to_string());
            let executed = bundle.call(["exec", "--process", common::text(&file), &bundle.id]).expect(0);
            assert_eq!(policy(&executed.out()).as_deref(), Some("-4 1"));
            bundle.call(["delete", "--force", &bundle.id]).expect(0);
        }
    });
}

#[test]
fn the_cpus_of_exec_are_not_those_of_the_container() {
    ours(|runtime| {
        let allowed = |text: &str| {
            let line =
                text.lines().find(|line| line.starts_with("Cpus_allowed_list")).unwrap_or_else(|| panic!("{text}"));
            line.split_whitespace().last().unwrap().to_owned()
        };
        let own = allowed(&std::fs::read_to_string("/proc/self/status").unwrap());
        if !own.starts_with("0-") {
            return common::skip("this host has one CPU only");
        }
        let Some(mut bundle) = Bundle::new(runtime, "cat /proc/self/status; while :; do sleep 0.1; done") else {
            return;
        };
        bundle.config["process"]["execCPUAffinity"] = json!({ "initial": "0", "final": "1" });
        bundle.create().expect(0);
        bundle.about("start").expect(0);
        bundle.wait_for_output("Cpus_allowed_list");
        assert_eq!(allowed(&bundle.printed()), own);
        assert_eq!(allowed(&bundle.exec("cat /proc/self/status").expect(0).out()), "1");
        let process = |affinity: Value| {
            let mut process = bundle.config["process"].clone();
            process["args"] = json!(["cat", "/proc/self/status"]);
            process["execCPUAffinity"] = affinity;
            let file = bundle.dir.file("process.json", process.to_string());
            bundle.call(["exec", "--process", common::text(&file), &bundle.id])
        };
        assert_eq!(allowed(&process(json!({ "initial": "0" })).expect(0).out()), own, "only until it has joined");
        let logged = bundle.call(["--debug", "exec", &bundle.id, "true"]).expect(0);
        assert!(logged.err().contains("initial CPU affinity: 0x1"), "{logged:?}");
        process(json!({ "initial": "60000", "final": "0" })).expect_error("initial CPU affinity");
        process(json!({ "final": "60000" })).expect_error("final CPU affinity");
        process(json!({ "initial": "x" })).expect_error("execCPUAffinity.initial");
    });
}

/// A mount as the kernel shows it: its own options, its tags, and those of its file system.
fn shown(mountinfo: &str, place: &str) -> Vec<String> {
    let line = mountinfo.lines().rfind(|line| line.split(' ').nth(4) == Some(place));
    let line = line.unwrap_or_else(|| panic!("{place} is not in {mountinfo}"));
    let fields: Vec<&str> = line.split(' ').collect();
    let dash = fields.iter().position(|field| *field == "-").unwrap();
    let tags = fields[6..dash].iter().map(|tag| tag.split(':').next().unwrap());
    fields[5].split(',').chain(tags).chain(fields[dash + 3].split(',')).map(str::to_owned).collect()
}

/// Options of a bind mount or, with `*`, of a new tmpfs; the options that must be shown then, and with `!` those that must not.
const OPTIONS: &[(&str, &str)] = &[
    ("ro", "ro"),
    ("ro rw", "rw"),
    ("rro", "ro"),
    ("rro rrw", "rw"),
    ("nosuid", "nosuid"),
    ("nosuid suid", "!nosuid"),
    ("rnosuid", "nosuid"),
    ("rnosuid rsuid", "!nosuid"),
    ("nodev", "nodev"),
    ("nodev dev", "!nodev"),
    ("rnodev", "nodev"),
    ("rnodev rdev", "!nodev"),
    ("noexec", "noexec"),
    ("noexec exec", "!noexec"),
    ("rnoexec", "noexec"),
    ("rnoexec rexec", "!noexec"),
    ("noatime", "noatime !relatime"),
    ("noatime atime", "!noatime"),
    ("rnoatime", "noatime"),
    ("rnoatime ratime", "!noatime"),
    ("relatime", "relatime"),
    ("strictatime", "!relatime !noatime"),
    ("strictatime relatime", "relatime"),
    ("rstrictatime", "!relatime !noatime"),
    ("rstrictatime rrelatime", "relatime"),
    ("noatime norelatime", "!noatime"),
    ("noatime nostrictatime", "!noatime"),
    ("rnoatime rnorelatime", "!noatime"),
    ("rnoatime rnostrictatime", "!noatime"),
    ("nodiratime", "nodiratime"),
    ("nodiratime diratime", "!nodiratime"),
    ("rnodiratime", "nodiratime"),
    ("rnodiratime rdiratime", "!nodiratime"),
    ("nosymfollow", "nosymfollow"),
    ("nosymfollow symfollow", "!nosymfollow"),
    ("rnosymfollow", "nosymfollow"),
    ("rnosymfollow rsymfollow", "!nosymfollow"),
    ("private", "!shared !master"),
    ("rprivate", "!shared !master"),
    ("slave", "!shared"),
    ("rslave", "!shared"),
    ("shared", "shared"),
    ("rshared", "shared"),
    ("unbindable", "unbindable"),
    ("runbindable", "unbindable"),
    ("rbind ro", "ro"),
    ("* sync", "sync"),
    ("* sync async", "!sync"),
    ("* dirsync", "dirsync"),
    ("* lazytime", "lazytime"),
    ("* lazytime nolazytime", "!lazytime"),
    ("* rro rnosuid", "ro nosuid"),
    ("* ro noexec", "ro noexec"),
    ("* defaults silent loud mand nomand iversion noiversion", "rw"),
];

/// Options with separate tests.
const ELSEWHERE: [&str; 5] = ["idmap", "ridmap", "tmpcopyup", "remount", "bind"];

#[test]
fn every_mount_option_does_what_it_says() {
    ours(|runtime| {
        let Some(mut bundle) = Bundle::new(runtime, "cat /proc/self/mountinfo") else { return };
        let source = bundle.dir.dir("source");
        for (index, (options, _)) in OPTIONS.iter().enumerate() {
            let place = format!("/mnt/{index}");
            let options: Vec<&str> = options.split(' ').collect();
            match options.split_first() {
                Some((&"*", rest)) => bundle.mount(&place, "tmpfs", "tmpfs", rest),
                _ => bundle.mount(&place, "", common::text(&source), &[&["bind"], &options[..]].concat()),
            };
        }
        bundle.config["root"]["readonly"] = json!(false);
        let mountinfo = printed(&bundle);
        for (index, (options, expected)) in OPTIONS.iter().enumerate() {
            let shown = shown(&mountinfo, &format!("/mnt/{index}"));
            for word in expected.split(' ') {
                let (word, wanted) = word.strip_prefix('!').map_or((word, true), |word| (word, false));
                assert_eq!(shown.iter().any(|one| one == word), wanted, "{options}: {word} in {shown:?}");
            }
        }
        let features: Value = serde_json::from_slice(&bundle.call(["features"]).expect(0).0.stdout).unwrap();
        let tried: Vec<&str> = OPTIONS.iter().flat_map(|(options, _)| options.split(' ')).chain(ELSEWHERE).collect();
        for option in features["mountOptions"].as_array().unwrap() {
            assert!(tried.contains(&option.as_str().unwrap()), "{option} is listed, and has no test");
        }
        // Options that runc 1.5 lists in addition.
        for option in "async atime bind defaults dev diratime dirsync exec iversion lazytime loud mand noatime nodev nodiratime \
            noexec noiversion nolazytime nomand norelatime nostrictatime nosuid nosymfollow private ratime rbind rdev rdiratime \
            relatime remount rexec rnoatime rnodev rnodiratime rnoexec rnorelatime rnostrictatime rnosuid rnosymfollow ro \
            rprivate rrelatime rro rrw rshared rslave rstrictatime rsuid rsymfollow runbindable rw shared silent slave \
            strictatime suid symfollow sync tmpcopyup unbindable idmap ridmap"
            .split_ascii_whitespace()
        {
            assert!(features["mountOptions"].as_array().unwrap().contains(&json!(option)), "{option} is not listed");
        }
    });
}

#[test]
fn a_mount_is_changed_where_it_is() {
    for_each_runtime(|runtime| {
        let Some(mut bundle) = Bundle::new(runtime, "cat /proc/self/mountinfo") else { return };
        let source = bundle.dir.dir("source");
        bundle.mount("/a", "bind", common::text(&source), &["bind", "nosuid"]);
        bundle.mount("/a", "bind", common::text(&source), &["bind", "remount", "ro", "nosuid"]);
        bundle.config["root"]["readonly"] = json!(false);
        if runtime == Runtime::Runc {
            // The control makes another bind mount instead.
            return assert!(shown(&printed(&bundle), "/a").contains(&"ro".to_owned()));
        }
        bundle.mount("/b", "tmpfs", "tmpfs", &["size=64k"]).mount(
            "/b",
            "tmpfs",
            "tmpfs",
            &["remount", "size=128k", "noexec"],
        );
        let mountinfo = printed(&bundle);
        let has = |place: &str, word: &str| shown(&mountinfo, place).iter().any(|one| one == word);
        assert!(has("/a", "ro") && has("/a", "nosuid") && has("/b", "size=128k") && has("/b", "noexec"), "{mountinfo}");
        assert_eq!(mountinfo.lines().filter(|line| line.contains(" /a ")).count(), 1);
        bundle.mount("/etc", "tmpfs", "tmpfs", &["remount", "ro"]);
        bundle.run().expect_error(runtime.says("/etc", "`etc`"));
        bundle.config["mounts"].as_array_mut().unwrap().pop();
        bundle.mount("/a", "tmpfs", "tmpfs", &["remount", "size=1m"]);
        bundle.run().expect_error(runtime.says("no earlier mount created a file system there", "Invalid argument"));
    });
}

#[test]
fn events_cross_a_mount_as_it_says() {
    for_each_runtime(|runtime| {
        let Some(mut bundle) = Bundle::new(runtime, "cat /proc/self/mountinfo") else { return };
        let source = bundle.dir.dir("source");
        run(&["mount", "-t", "tmpfs", "tmpfs", common::text(&source)]);
        run(&["mount", "--make-shared", common::text(&source)]);
        for (place, option) in [("/p", "rprivate"), ("/s", "rslave"), ("/sh", "rshared")] {
            bundle.mount(place, "bind", common::text(&source), &["rbind", option]);
        }
        bundle.config["root"]["readonly"] = json!(false);
        bundle.config["linux"]["rootfsPropagation"] = json!("shared");
        let called = bundle.run();
        run(&["umount", common::text(&source)]);
        let mountinfo = called.expect(0).out();
        let has = |place: &str, word: &str| shown(&mountinfo, place).iter().any(|one| one == word);
        assert!(!has("/p", "master") && !has("/p", "shared"), "{mountinfo}");
        assert!(has("/s", "master") && has("/sh", "shared"), "{mountinfo}");
    });
}

#[test]
fn the_root_has_its_propagation() {
    // Current runc sets it on the mount that contains the root, before the root is a mount.
    ours(|runtime| {
        for (propagation, has, lacks) in [
            ("shared", "shared", "unbindable"),
            ("private", "", "shared"),
            ("rslave", "", "shared"),
            ("unbindable", "unbindable", "shared"),
        ] {
            let Some(mut bundle) = Bundle::new(runtime, "cat /proc/self/mountinfo") else { return };
            bundle.config["linux"]["rootfsPropagation"] = json!(propagation);
            let shown = shown(&printed(&bundle), "/");
            assert!(has.is_empty() || shown.iter().any(|one| one == has), "{propagation}: {shown:?}");
            assert!(!shown.iter().any(|one| one == lacks), "{propagation}: {shown:?}");
        }
    });
}

#[test]
fn mounts_below_are_idmapped_when_asked_for() {
    ours(|runtime| {
        let script = "stat -c %u /plain/file /plain/below/file /all/file /all/below/file /own/file";
        let Some(mut bundle) = Bundle::new(runtime, script) else { return };
        let (outer, inner) = (host::idmappable_dir(common::Caller::Root), host::idmappable_dir(common::Caller::Root));
        for dir in [&outer, &inner] {
            std::os::unix::fs::chown(dir.file("file", ""), Some(5), Some(5)).unwrap();
        }
        let below = outer.dir("below");
        run(&["mount", "--bind", common::text(inner.path()), common::text(&below)]);
        let map = json!([
            { "containerID": 0, "hostID": 100_000, "size": 5 }, { "containerID": 5, "hostID": 200_000, "size": 5 },
        ]);
        for (place, option) in [("/plain", "idmap"), ("/all", "ridmap"), ("/own", "idmap")] {
            let mut mount = json!({
                "destination": place, "type": "bind", "source": outer.path(), "options": ["rbind", option],
            });
            if place != "/own" {
                (mount["uidMappings"], mount["gidMappings"]) = (map.clone(), map.clone());
            }
            bundle.config["mounts"].as_array_mut().unwrap().push(mount);
        }
        // An idmapped mount without maps of its own uses the container's.
        let linux = &mut bundle.config["linux"];
        linux["namespaces"].as_array_mut().unwrap().push(json!({ "type": "user" }));
        let own = json!([{ "containerID": 0, "hostID": 0, "size": 1_000_000 }]);
        (linux["uidMappings"], linux["gidMappings"]) = (own.clone(), own);
        let called = bundle.run();
        run(&["umount", common::text(&below)]);
        if called.err().contains("idmapped") {
            return common::skip("this file system does not support idmapped mounts");
        }
        let said = called.expect(0).out();
        assert_eq!(said.split_ascii_whitespace().collect::<Vec<_>>(), ["200000", "5", "200000", "200000", "5"]);
    });
}

#[test]
fn a_mount_namespace_by_path_gets_the_root() {
    for_each_runtime(|runtime| {
        let Some(mut bundle) = Bundle::new(runtime, "readlink /proc/self/ns/mnt; ls -d /mine /home; cat /there/x")
        else {
            return;
        };
        std::fs::create_dir(bundle.rootfs().join("mine")).unwrap();
        let there = bundle.dir.dir("there");
        std::fs::write(there.join("x"), "bound\n").unwrap();
        bundle.mount("/there", "bind", common::text(&there), &["bind", "ro"]);
        bundle.config["root"]["readonly"] = json!(false);
        let mut donor =
            Command::new("unshare").args(["-m", "--propagation", "private", "sleep", "60"]).spawn().unwrap();
        let own = std::fs::read_link("/proc/self/ns/mnt").unwrap();
        let path = format!("/proc/{}/ns/mnt", donor.id());
        while std::fs::read_link(&path).is_ok_and(|other| other == own) {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let theirs = std::fs::read_link(&path).unwrap().display().to_string();
        let namespaces = bundle.config["linux"]["namespaces"].as_array_mut().unwrap();
        namespaces.iter_mut().find(|one| one["type"] == "mount").unwrap()["path"] = json!(path);
        let called = bundle.run();
        let _ = donor.kill();
        let _ = donor.wait();
        assert_eq!(called.out(), format!("{theirs}\n/mine\nbound\n"), "{called:?}");
        assert!(Path::new("/home").exists(), "our namespace is unchanged");
    });
}

#[test]
fn a_user_namespace_by_path_is_entered() {
    for_each_runtime(|runtime| {
        let Some(mut bundle) =
            Bundle::new(runtime, "readlink /proc/self/ns/user; cat /proc/self/uid_map; id -u; touch /made")
        else {
            return;
        };
        for dir in ["rootfs", "rootfs/bin", "rootfs/etc"] {
            std::os::unix::fs::chown(bundle.dir.join(dir), Some(200_000), Some(200_000)).unwrap();
        }
        let mut donor = Command::new("unshare").args(["-U", "sleep", "60"]).spawn().unwrap();
        let own = std::fs::read_link("/proc/self/ns/user").unwrap();
        let path = format!("/proc/{}/ns/user", donor.id());
        while std::fs::read_link(&path).is_ok_and(|other| other == own) {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        for map in ["uid_map", "gid_map"] {
            std::fs::write(format!("/proc/{}/{map}", donor.id()), "0 200000 1000\n").unwrap();
        }
        let theirs = std::fs::read_link(&path).unwrap().display().to_string();
        bundle.config["root"]["readonly"] = json!(false);
        bundle.config["linux"]["namespaces"].as_array_mut().unwrap().push(json!({ "type": "user", "path": path }));
        if runtime == Runtime::Runc {
            let map = json!([{ "containerID": 0, "hostID": 200_000, "size": 1000 }]); // runc requires the maps again
            (bundle.config["linux"]["uidMappings"], bundle.config["linux"]["gidMappings"]) = (map.clone(), map);
        }
        let called = bundle.run();
        let _ = donor.kill();
        let _ = donor.wait();
        let said = called.out();
        let words: Vec<&str> = said.split_ascii_whitespace().collect();
        assert_eq!(words, [&*theirs, "0", "200000", "1000", "0"], "{called:?}");
        use std::os::unix::fs::MetadataExt as _;
        assert_eq!(std::fs::metadata(bundle.rootfs().join("made")).unwrap().uid(), 200_000);
    });
}

#[test]
fn devices_of_every_kind_are_made() {
    for_each_runtime(|runtime| {
        let script = "stat -c '%F %t:%T %a %u:%g' /dev/c /dev/u /deep/er/b /dev/p";
        let Some(mut bundle) = Bundle::new(runtime, script) else { return };
        bundle.config["root"]["readonly"] = json!(false);
        bundle.config["linux"]["devices"] = json!([
            { "path": "/dev/c", "type": "c", "major": 1, "minor": 3, "fileMode": 0o600, "uid": 7, "gid": 8 },
            { "path": "/dev/u", "type": "u", "major": 1, "minor": 5 },
            { "path": "/deep/er/b", "type": "b", "major": 7, "minor": 0, "fileMode": 0o640 },
            { "path": "/dev/p", "type": "p", "fileMode": 0o622 },
        ]);
        let said = printed(&bundle);
        let lines: Vec<&str> = said.lines().collect();
        assert_eq!(lines[0], "character special file 1:3 600 7:8");
        assert!(lines[1].starts_with("character special file 1:5 666"), "{said}");
        assert_eq!(lines[2], "block special file 7:0 640 0:0");
        assert_eq!(
            lines[3].split_once(' ').map(|(kind, rest)| (kind, rest.ends_with("622 0:0"))),
            Some(("fifo", true)),
            "{said}"
        );
    });
}

#[test]
fn the_last_rule_for_a_device_decides() {
    for_each_runtime(|runtime| {
        let script = "for n in zero full; do (: </dev/$n) 2>/dev/null && echo $n; done; (: </dev/mine) 2>/dev/null && echo mine; true";
        let Some(mut bundle) = Bundle::new(runtime, script) else { return };
        if !Path::new("/dev/fuse").exists() {
            return common::skip("this host has no /dev/fuse, which every user may open");
        }
        bundle.config["linux"]["devices"] = json!([{ "path": "/dev/mine", "type": "c", "major": 10, "minor": 229 }]);
        let mine = |allow: bool| json!({ "allow": allow, "type": "c", "major": 10, "minor": 229, "access": "rw" });
        let all = json!({ "allow": false, "access": "rwm" });
        for (rules, said) in [
            (json!([mine(true), all]), "zero\nfull\n"),
            (json!([all, mine(true)]), "zero\nfull\nmine\n"),
            (json!([all, mine(true), mine(false)]), "zero\nfull\n"),
            (json!([{ "allow": true, "access": "rwm" }]), "zero\nfull\nmine\n"),
        ] {
            bundle.config["linux"]["resources"]["devices"] = rules.clone();
            let called = bundle.run();
            if runtime == Runtime::Runc && !called.0.status.success() {
                common::skip_part("the control", "runc does not accept these rules here");
                return;
            }
            assert_eq!(called.expect(0).out(), said, "{rules}");
        }
    });
}

/// A pair of virtual network devices in a network namespace of this thread's own.
struct OwnNetwork;

impl OwnNetwork {
    fn enter() -> Self {
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
        run(&["ip", "link", "set", "lo", "up"]);
        Self
    }
}

#[test]
fn network_devices_are_moved_with_their_addresses() {
    ours(|runtime| {
        if !common::has_program("ip") {
            return common::skip("ip(8) is not installed");
        }
        // In a separate thread: its network namespace disappears with it.
        std::thread::spawn(move || {
            let _network = OwnNetwork::enter();
            let Some(mut bundle) = Bundle::new(runtime, "ip -o link; ip -o addr; cat /sys/class/net/*/operstate")
            else {
                return;
            };
            let make = || {
                // The kernel destroys an abandoned network namespace some time later.
                let add = ["link", "add", "one", "type", "veth", "peer", "name", "two"];
                let added = || Command::new("ip").args(add).output().unwrap().status.success();
                assert!((0..500).any(|_| added() || {
                    std::thread::sleep(std::time::Duration::from_millis(10));
                    false
                }));
                run(&["ip", "link", "set", "two", "up"]);
                run(&["ip", "addr", "add", "192.0.2.7/24", "dev", "one"]);
                run(&["ip", "addr", "add", "192.0.2.8/24", "dev", "one"]);
                run(&["ip", "addr", "add", "198.51.100.1/32", "dev", "one", "scope", "link"]);
                run(&["ip", "addr", "add", "192.0.2.9/24", "dev", "one", "valid_lft", "1000", "preferred_lft", "1000"]);
                run(&["ip", "-6", "addr", "add", "2001:db8::7/64", "dev", "one", "nodad"]);
                run(&["ip", "link", "set", "one", "up"]);
            };
            make();
            bundle.config["linux"]["netDevices"] = json!({ "one": { "name": "eth7" } });
            let said = printed(&bundle);
            assert!(said.contains("eth7@") && !said.contains("one@") && said.contains("LOWER_UP"), "{said}");
            for kept in ["192.0.2.7/24", "192.0.2.8/24", "2001:db8::7/64"] {
                assert!(said.contains(kept), "{kept} in {said}");
            }
            for left in ["198.51.100.1", "192.0.2.9"] {
                assert!(!said.contains(left), "{left} in {said}");
            }
            // The kernel chooses the number in the name.
            make();
            bundle.config["linux"]["netDevices"] = json!({ "one": { "name": "net%d" } });
            let said = printed(&bundle);
            assert!(said.contains("net0@") && said.contains("192.0.2.7/24"), "{said}");
            // Without a new name a device keeps its own.
            make();
            bundle.config["linux"]["netDevices"] = json!({ "one": {} });
            assert!(printed(&bundle).contains("one@"));
            // A missing device, and a name that is taken.
            bundle.config["linux"]["netDevices"] = json!({ "none": {} });
            bundle.run().expect_error("none as none");
            make();
            bundle.config["linux"]["netDevices"] = json!({ "one": { "name": "lo" } });
            bundle.run().expect_error("has a device of that name");
            run(&["ip", "link", "show", "one"]); // the device was not moved
            for (name, value, reason) in [
                ("one", json!({ "name": "a/b" }), "not a network device name"),
                ("one", json!({ "name": "sixteen-letters-" }), "not a network device name"),
                ("one", json!({ "name": "a%s" }), "not a network device name"),
                ("o%d", json!({}), "not a network device name"),
                ("", json!({}), "not a network device name"),
                ("one", json!("x"), "must be an object"),
            ] {
                bundle.config["linux"]["netDevices"] = json!({ name: value });
                bundle.run().expect_error(reason);
            }
            bundle.config["linux"]["netDevices"] = json!({ "one": {} });
            bundle.config["linux"]["namespaces"].as_array_mut().unwrap().retain(|one| one["type"] != "network");
            bundle.run().expect_error("need a network namespace");
        })
        .join()
        .unwrap();
    });
}

#[test]
fn missing_features_of_the_host_are_errors() {
    ours(|runtime| {
        let cases = [
            (
                "/sys/fs/selinux/enforce",
                "process",
                "selinuxLabel",
                json!("system_u:system_r:container_t:s0"),
                "SELinux",
            ),
            (
                "/sys/fs/selinux/enforce",
                "linux",
                "mountLabel",
                json!("system_u:object_r:container_file_t:s0"),
                "SELinux",
            ),
            ("/sys/kernel/security/apparmor", "process", "apparmorProfile", json!("some-profile"), "AppArmor"),
            (
                "/sys/fs/resctrl/schemata",
                "linux",
                "intelRdt",
                json!({ "closID": "x", "schemata": ["L3:0=f"] }),
                "resctrl",
            ),
            ("/sys/fs/resctrl/schemata", "linux", "intelRdt", json!({ "l3CacheSchema": "L3:0=f" }), "resctrl"),
            ("/sys/fs/resctrl/schemata", "linux", "intelRdt", json!({ "enableMonitoring": true }), "resctrl"),
            ("/sys/fs/resctrl/schemata", "linux", "intelRdt", json!({}), "resctrl"),
        ];
        for (there, object, field, value, said) in cases {
            if Path::new(there).exists() {
                common::skip_part(field, "this host supports it");
                continue;
            }
            let Some(mut bundle) = Bundle::new(runtime, "echo ran") else { return };
            bundle.config[object][field] = value;
            let called = bundle.run();
            assert!(called.out().is_empty(), "{field} ran");
            called.expect_error(said);
            assert!(bundle.state().is_null(), "nothing is left");
        }
        for (value, said) in [
            (json!({ "closID": "a/b" }), "closID"),
            (json!({ "closID": ".." }), "closID"),
            (json!({ "closID": "info" }), "closID"),
            (json!({ "closID": 7 }), "closID: 7: must be a string"),
            (json!({ "l3CacheSchema": "MB:0=10" }), "l3CacheSchema"),
            (json!({ "memBwSchema": "MB:0" }), "memBwSchema"),
            (json!({ "schemata": ["L3:0=f", "L3:0=f;"] }), "schemata[1]"),
            (json!({ "schemata": ["L3:0=f\nMB:0=1"] }), "schemata[0]"),
            (json!({ "enableMonitoring": "yes" }), "enableMonitoring"),
            (json!([]), "linux.intelRdt"),
        ] {
            let Some(mut bundle) = Bundle::new(runtime, "echo ran") else { return };
            bundle.config["linux"]["intelRdt"] = value;
            bundle.run().expect_error(said);
        }
    });
}

/// A limit in the specification's words; controller, file and content on cgroup v1; file and content on v2. `None` if that
/// version lacks the limit and must refuse it.
type LimitCase = (Value, Option<(&'static str, &'static str, &'static str)>, Option<(&'static str, &'static str)>);

fn limit_cases() -> Vec<LimitCase> {
    let device = |rate: u64| json!([{ "major": 7, "minor": 0, "rate": rate }]);
    vec![
        (
            json!({ "memory": { "limit": 67_108_864 } }),
            Some(("memory", "memory.limit_in_bytes", "67108864")),
            Some(("memory.max", "67108864")),
        ),
        (
            json!({ "memory": { "reservation": 33_554_432 } }),
            Some(("memory", "memory.soft_limit_in_bytes", "33554432")),
            Some(("memory.low", "33554432")),
        ),
        (
            json!({ "memory": { "swappiness": 7 } }),
            Some(("memory", "memory.swappiness", "7")),
            Some(("memory.max", "max")),
        ),
        (
            json!({ "memory": { "disableOOMKiller": true } }),
            Some(("memory", "memory.oom_control", "oom_kill_disable 1")),
            Some(("memory.max", "max")),
        ),
        (
            json!({ "memory": { "kernelTCP": 8_388_608 } }),
            Some(("memory", "memory.kmem.tcp.limit_in_bytes", "8388608")),
            Some(("memory.max", "max")),
        ),
        (json!({ "pids": { "limit": 33 } }), Some(("pids", "pids.max", "33")), Some(("pids.max", "33"))),
        (json!({ "cpu": { "shares": 2 } }), Some(("cpu", "cpu.shares", "2")), Some(("cpu.weight", "1"))),
        (
            json!({ "cpu": { "quota": 50_000, "period": 200_000 } }),
            Some(("cpu", "cpu.cfs_quota_us", "50000")),
            Some(("cpu.max", "50000 200000")),
        ),
        (
            json!({ "cpu": { "period": 200_000 } }),
            Some(("cpu", "cpu.cfs_period_us", "200000")),
            Some(("cpu.max", "max 200000")),
        ),
        (
            json!({ "cpu": { "quota": 50_000, "burst": 10_000 } }),
            Some(("cpu", "cpu.cfs_burst_us", "10000")),
            Some(("cpu.max.burst", "10000")),
        ),
        (json!({ "cpu": { "idle": 1 } }), Some(("cpu", "cpu.idle", "1")), Some(("cpu.idle", "1"))),
        (json!({ "cpu": { "cpus": "0" } }), Some(("cpuset", "cpuset.cpus", "0")), Some(("cpuset.cpus", "0"))),
        (json!({ "cpu": { "mems": "0" } }), Some(("cpuset", "cpuset.mems", "0")), Some(("cpuset.mems", "0"))),
        (
            json!({ "blockIO": { "throttleReadBpsDevice": device(1_048_576) } }),
            Some(("blkio", "blkio.throttle.read_bps_device", "7:0 1048576")),
            Some(("io.max", "7:0 rbps=1048576")),
        ),
        (
            json!({ "blockIO": { "throttleWriteBpsDevice": device(2_097_152) } }),
            Some(("blkio", "blkio.throttle.write_bps_device", "7:0 2097152")),
            Some(("io.max", "wbps=2097152")),
        ),
        (
            json!({ "blockIO": { "throttleReadIOPSDevice": device(100) } }),
            Some(("blkio", "blkio.throttle.read_iops_device", "7:0 100")),
            Some(("io.max", "riops=100")),
        ),
        (
            json!({ "blockIO": { "throttleWriteIOPSDevice": device(200) } }),
            Some(("blkio", "blkio.throttle.write_iops_device", "7:0 200")),
            Some(("io.max", "wiops=200")),
        ),
        (
            json!({ "blockIO": { "weight": 500 } }),
            Some(("blkio", "blkio.weight", "500")),
            Some(("io.weight", "default 4950")),
        ),
        (
            json!({ "blockIO": { "leafWeight": 500 } }),
            Some(("blkio", "blkio.leaf_weight", "500")),
            Some(("memory.max", "max")),
        ),
        (
            json!({ "blockIO": { "weightDevice": [{ "major": 7, "minor": 0, "weight": 500 }] } }),
            Some(("blkio", "blkio.weight_device", "7:0 500")),
            Some(("io.weight", "7:0 4950")),
        ),
        (
            json!({ "hugepageLimits": [{ "pageSize": "2MB", "limit": 4_194_304 }] }),
            Some(("hugetlb", "hugetlb.2MB.limit_in_bytes", "4194304")),
            Some(("hugetlb.2MB.max", "4194304")),
        ),
        (json!({ "network": { "classID": 1_048_577 } }), Some(("net_cls", "net_cls.classid", "1048577")), None),
        (
            json!({ "network": { "priorities": [{ "name": "lo", "priority": 5 }] } }),
            Some(("net_prio", "net_prio.ifpriomap", "lo 5")),
            None,
        ),
        (
            json!({ "rdma": { "mlx5_1": { "hcaHandles": 3 } } }),
            Some(("rdma", "rdma.max", "mlx5_1 hca_handle=3")),
            Some(("rdma.max", "mlx5_1 hca_handle=3")),
        ),
        (
            json!({ "cpu": { "realtimePeriod": 500_000, "realtimeRuntime": 1000 } }),
            Some(("cpu", "cpu.rt_runtime_us", "1000")),
            None,
        ),
        (json!({ "unified": { "memory.high": "50331648" } }), None, Some(("memory.high", "50331648"))),
        (json!({ "unified": { "pids.max": "44" }, "pids": { "limit": 33 } }), None, Some(("pids.max", "44"))),
    ]
}

#[test]
fn every_limit_is_in_the_kernels_file() {
    ours(|runtime| {
        let tree = Path::new("/sys/fs/cgroup");
        let v2 = tree.join("cgroup.controllers").exists();
        let (mut held, mut missing) = (0, Vec::new());
        for (resources, v1_file, v2_file) in limit_cases() {
            let Some(mut bundle) = Bundle::new(runtime, "true") else { return };
            bundle.config["linux"]["resources"] = resources.clone();
            let created = bundle.create();
            let (file, content) = match (v2, v1_file, v2_file) {
                (true, _, Some((file, content))) => (tree.join(&bundle.id).join(file), content),
                (false, Some((controller, file, content)), _) => {
                    (tree.join(controller).join(&bundle.id).join(file), content)
                }
                _ => {
                    assert!(!created.0.status.success(), "{resources} does not exist here");
                    held += 1;
                    continue;
                }
            };
            if !created.0.status.success() {
                // Only a limit without a file or a device may be refused, and the error names it.
                let above = file.parent().unwrap().parent().unwrap();
                let said = created.err();
                let lacks = said.contains("controller")
                    || said.contains("ENOENT")
                    || said.contains("no such")
                    || said.contains("ENODEV")
                    || said.contains("EOPNOTSUPP")
                    || said.contains("EINVAL");
                assert!(lacks || !above.join(file.file_name().unwrap()).exists(), "{resources}: {said}");
                missing.push(file.file_name().unwrap().to_string_lossy().into_owned());
                continue;
            }
            // Kernels without CFQ have the weights of BFQ.
            let bfq = file.to_string_lossy().replace("/blkio.weight", "/blkio.bfq.weight");
            let file = if file.exists() { file } else { bfq.into() };
            let text = std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
            assert!(
                text.trim_end().lines().any(|line| line.contains(content)),
                "{resources}: {} has {text:?}",
                file.display()
            );
            held += 1;
        }
        eprintln!("{held} limits were set; this kernel lacks {missing:?}");
        assert!(held >= 12, "{held} limits were set, {missing:?} were not");
    });
}

#[test]
fn a_limit_below_the_usage_is_refused_on_request() {
    ours(|runtime| {
        let script =
            "dd if=/dev/zero of=/tmp/fill bs=1M count=24 2>/dev/null; echo filled; while :; do sleep 0.1; done";
        let Some(mut bundle) = Bundle::new(runtime, script) else { return };
        bundle.mount("/tmp", "tmpfs", "tmpfs", &[]);
        bundle.config["linux"]["resources"] = json!({ "memory": { "limit": 67_108_864 } });
        bundle.create().expect(0);
        bundle.about("start").expect(0);
        bundle.wait_for_output("filled");
        let update = |memory: Value| {
            let file = bundle.dir.file("resources.json", json!({ "memory": memory }).to_string());
            bundle.call(["update", "--resources", common::text(&file), &bundle.id])
        };
        update(json!({ "limit": 8_388_608, "checkBeforeUpdate": true })).expect_error("bytes in use");
        assert_eq!(bundle.state()["status"], "running");
        update(json!({ "limit": 50_331_648, "checkBeforeUpdate": true })).expect(0);
    });
}

#[test]
fn hooks_find_the_root_at_its_place_with_its_mounts() {
    for_each_runtime(|runtime| {
        let Some(mut bundle) = Bundle::new(runtime, "cat /hooked/said") else { return };
        std::fs::create_dir(bundle.rootfs().join("hooked")).unwrap();
        let root = common::text(&bundle.rootfs()).to_owned();
        let script = format!(
            "mount -t tmpfs tmpfs {root}/hooked && test -d {root}/proc/self && echo from the hook > {root}/hooked/said"
        );
        bundle.config["hooks"] = json!({ "createContainer": [{
            "path": "/bin/sh", "args": ["sh", "-c", script], "env": ["PATH=/usr/bin:/bin:/usr/sbin:/sbin"],
        }] });
        assert_eq!(printed(&bundle), "from the hook\n");
        assert!(!bundle.rootfs().join("hooked/said").exists(), "not on the host");
    });
}

#[test]
fn a_mount_that_a_hook_changed_stops_the_container() {
    ours(|runtime| {
        for (change, place) in [
            ("mount -o remount,bind,rw ROOT/frozen", "/frozen"),
            ("mount -o remount,bind,exec ROOT/bound", "/bound"),
            ("mount -o remount,bind,dev,suid ROOT/dev/pts", "/dev/pts"),
            ("umount -l ROOT/bound", "/bound"),
            ("mount --make-shared ROOT/bound", "/bound"),
            ("true", ""),
        ] {
            let Some(mut bundle) = Bundle::new(runtime, "echo ran") else { return };
            let source = bundle.dir.dir("source");
            bundle.mount("/bound", "bind", common::text(&source), &["bind", "noexec", "rprivate"]);
            bundle.mount("/frozen", "bind", common::text(&source), &["bind", "ro", "rprivate"]);
            bundle.config["root"]["readonly"] = json!(false);
            let script = change.replace("ROOT", common::text(&bundle.rootfs()));
            bundle.config["hooks"] = json!({ "createContainer": [{
                "path": "/bin/sh", "args": ["sh", "-c", script], "env": ["PATH=/usr/bin:/bin:/usr/sbin:/sbin"],
            }] });
            let called = bundle.run();
            if place.is_empty() {
                assert_eq!(called.expect(0).out(), "ran\n", "an unchanged container runs");
                continue;
            }
            assert!(called.out().is_empty(), "{change}: it ran");
            called.expect_error(&format!("verifying the confinement: mount {place}: differs from what was mounted"));
            assert!(bundle.state().is_null());
        }
    });
}

#[test]
fn host_and_domain_names_are_not_set_by_kernel_parameters_that_contradict_their_fields() {
    for_each_runtime(|runtime| {
        let Some(mut bundle) = Bundle::new(runtime, "cat /proc/sys/kernel/domainname") else { return };
        bundle.config["linux"]["sysctl"] = json!({ "kernel.domainname": "here" });
        assert_eq!(bundle.run().expect(0).out(), "here\n");
        // Also without a hostname: the field is the place for it.
        bundle.config.as_object_mut().unwrap().remove("hostname");
        bundle.config["linux"]["sysctl"] = json!({ "kernel.hostname": "here" });
        if runtime == Runtime::Crun {
            return; // sets it
        }
        bundle.run().expect(1).expect_error("is not allowed as it conflicts with the OCI \"hostname\" field");
        if runtime == Runtime::Ours {
            bundle.config["domainname"] = json!("there");
            bundle.config["linux"]["sysctl"] = json!({ "kernel.domainname": "here" });
            bundle.run().expect(1).expect_error("conflicts with the OCI \"domainname\" field");
        }
    });
}
