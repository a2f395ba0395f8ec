//! Every option of runc's and crun's help works, is accepted without effect, or is refused with a reason.

use std::os::unix::process::CommandExt as _;
use std::path::Path;

use serde_json::{Value, json};

use super::common::bundle::{Bundle, Runtime, for_each_runtime, ours};
use super::common::{skip_part, text};

/// What this runtime does with an option of another.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Answer {
    /// It has an effect, or is accepted without one.
    Taken,
    /// It is an error.
    Refused,
}
use Answer::{Refused, Taken};

/// The options of `runc VERB --help` and `crun VERB --help`, up to runc 1.4 and crun 1.27. A value is after `=`.
const OPTIONS: &[(&str, &[&str], Answer)] = &[
    ("", &["--debug", "--log=/dev/null", "--log-format=json", "--root=STATE", "--systemd-cgroup=false"], Taken),
    ("", &["--rootless=auto", "--criu=criu", "--cgroup-manager=cgroupfs", "--log=file:/dev/null"], Taken),
    ("", &["--log-level=warning"], Taken),
    ("", &["--log=journald:x", "--log=syslog:x", "--log-format=xml"], Refused),
    ("create", &["--cgroup-manager=other"], Refused),
    (
        "create",
        &["--bundle=DIR", "-b=DIR", "--console-socket=", "--pid-file=PID", "--no-pivot", "--config=DIR/config.json"],
        Taken,
    ),
    (
        "create",
        &["--no-new-keyring", "--preserve-fds=0", "--no-subreaper", "--pidfd-socket=", "-f=DIR/config.json"],
        Taken,
    ),
    (
        "run",
        &["--bundle=DIR", "-b=DIR", "--console-socket=", "--pid-file=PID", "--no-pivot", "--no-new-keyring"],
        Taken,
    ),
    ("run", &["--preserve-fds=0", "--detach", "-d", "--keep", "--no-subreaper", "--pidfd-socket="], Taken),
    (
        "exec",
        &["--console-socket=", "--cwd=/", "--env=A=1", "-e=A=1", "--user=1:1", "-u=1", "--additional-gids=7"],
        Taken,
    ),
    ("exec", &["-g=7", "--detach", "-d", "--pid-file=PID", "--process-label=", "--apparmor=", "--no-new-privs"], Taken),
    ("exec", &["--cap=CAP_KILL", "-c=CAP_KILL", "--preserve-fds=0", "--cgroup=/", "--ignore-paused"], Taken),
    ("exec", &["--pidfd-socket=", "--tty=false"], Taken),
    ("kill", &["--all", "-a"], Taken),
    ("delete", &["--force", "-f"], Taken),
    ("ps", &["--format=json", "-f=json", "--format=table"], Taken),
    ("ps", &["--format=xml"], Refused),
    ("list", &["--format=json", "-f=table", "--quiet", "-q"], Taken),
    ("list", &["--format=xml"], Refused),
    ("update", &["--pids-limit=50", "--cpu-share=512", "--kernel-memory=1", "--kernel-memory-tcp=0"], Taken),
    ("update", &["--memory=64m", "--memory-reservation=32m", "--cpu-period=100000", "--cpu-quota=50000"], Taken),
    ("update", &["--cpuset-cpus=0", "--cpuset-mems=0", "--resources=RESOURCES", "-r=RESOURCES"], Taken),
    ("update", &["--l3-cache-schema=", "--mem-bw-schema="], Taken),
    ("update", &["--l3-cache-schema=L3:0=1", "--mem-bw-schema=MB:0=1", "--memory=lots", "--pids-limit=many"], Refused),
    ("events", &["--stats"], Taken),
    ("features", &[], Taken),
    ("checkpoint", &["--lazy-pages", "--page-server=1.2.3.4:5", "--status-fd=9"], Refused),
];

/// Further options that need a caller's preparations: the help lists them.
const LISTED: &[(&str, &[&str])] = &[
    ("spec", &["bundle", "rootless", "file"]),
    ("kill", &["all", "regex"]),
    ("delete", &["force", "regex"]),
    ("events", &["interval", "stats"]),
    ("exec", &["process", "tty"]),
    ("update", &["blkio-weight", "cpu-rt-period", "cpu-rt-runtime", "memory-swap", "cpu-burst", "cpu-idle"]),
    (
        "checkpoint",
        &[
            "image-path",
            "work-path",
            "parent-path",
            "leave-running",
            "tcp-established",
            "tcp-skip-in-flight",
            "link-remap",
            "ext-unix-sk",
            "shell-job",
            "lazy-pages",
            "status-fd",
            "page-server",
            "file-locks",
            "pre-dump",
            "manage-cgroups-mode",
            "empty-ns",
            "auto-dedup",
        ],
    ),
    (
        "restore",
        &[
            "console-socket",
            "image-path",
            "work-path",
            "tcp-established",
            "tcp-close",
            "ext-unix-sk",
            "shell-job",
            "file-locks",
            "manage-cgroups-mode",
            "bundle",
            "detach",
            "pid-file",
            "no-subreaper",
            "no-pivot",
            "empty-ns",
            "auto-dedup",
            "lazy-pages",
            "lsm-profile",
            "lsm-mount-context",
        ],
    ),
];

/// The words of an option, with its value as a word of its own for a single letter.
fn words(bundle: &Bundle, option: &str) -> Vec<String> {
    let dir = text(bundle.dir.path());
    let filled = option
        .replace("STATE", &format!("{dir}/state"))
        .replace("RESOURCES", &format!("{dir}/resources"))
        .replace("PID", &format!("{dir}/the.pid"))
        .replace("DIR", dir);
    match filled.split_once('=') {
        Some((letter, value)) if !letter.starts_with("--") => vec![letter.to_owned(), value.to_owned()],
        _ => vec![filled],
    }
}

#[test]
fn every_option_of_runc_and_crun_has_an_answer() {
    ours(|runtime| {
        let Some(mut bundle) = Bundle::new(runtime, "exec sleep 1000") else { return };
        std::fs::write(bundle.dir.join("resources"), "{}").unwrap();
        bundle.config["linux"]["resources"] = json!({});
        bundle.call(["features"]).expect(0); // writes the configuration
        let mut created = false;
        for (verb, options, answer) in OPTIONS {
            for option in *options {
                let mut line = Vec::new();
                let given = words(&bundle, option);
                if verb.is_empty() {
                    line.extend(given.iter().map(String::as_str).chain(["features"]));
                } else {
                    line.push(verb);
                    line.extend(given.iter().map(String::as_str));
                    if matches!(*verb, "create" | "run") && !option.contains("bundle") && !option.starts_with("-b") {
                        line.extend(["--bundle", text(bundle.dir.path())]);
                    }
                    if *verb == "run" && !matches!(*option, "--detach" | "-d") {
                        line.push("--detach");
                    }
                    let makes = matches!(*verb, "create" | "run" | "delete" | "kill");
                    if makes && created {
                        bundle.call(["delete", "--force", &bundle.id]).expect(0);
                        created = false;
                    }
                    if !matches!(*verb, "create" | "run" | "list" | "features") && !created {
                        bundle.create().expect(0);
                        bundle.about("start").expect(0);
                    }
                    created = !matches!(*verb, "delete");
                    if !matches!(*verb, "list" | "features") {
                        line.push(&bundle.id);
                    }
                    match *verb {
                        "exec" => line.push("true"),
                        "kill" => line.push("KILL"),
                        _ => {}
                    }
                    if *verb == "delete" && !option.contains('f') {
                        continue;
                    }
                }
                let err = bundle.dir.join("err");
                let mut command = bundle.command(&line);
                command.stdout(std::process::Stdio::null()).stderr(std::fs::File::create(&err).unwrap());
                let code = command.status().unwrap().code();
                let said = std::fs::read_to_string(&err).unwrap();
                match answer {
                    Taken => assert_eq!(code, Some(0), "{verb} {option}: {said}"),
                    Refused => {
                        assert!(code.is_some_and(|code| code != 0), "{verb} {option}: {said}");
                        assert!(said.contains("level=error") || said.contains("\"level\":\"error\""), "{said}");
                        assert!(!said.contains("not defined"), "{verb} {option}: {said}");
                    }
                }
            }
        }
        for (verb, options) in LISTED {
            let help = bundle.call([*verb, "--help"]).expect(0).out();
            for option in *options {
                assert!(help.contains(&format!("--{option}")), "{verb} --{option}: {help}");
            }
        }
    });
}

#[test]
fn several_containers_are_killed_and_deleted_by_a_pattern() {
    for_each_runtime(|runtime| {
        if runtime == Runtime::Runc {
            return; // crun's option
        }
        let Some(mut bundle) = Bundle::new(runtime, "exec sleep 1000") else { return };
        let base = bundle.id.clone();
        let ids = ["a", "b", "other"].map(|end| format!("{base}-{end}"));
        for id in &ids {
            bundle.id.clone_from(id);
            bundle.config["linux"]["cgroupsPath"] = json!(format!("/{id}"));
            bundle.create().expect(0);
            bundle.about("start").expect(0);
        }
        let pattern = format!("^{base}-[ab]$");
        bundle.call(["kill", "--regex", &pattern, "KILL"]).expect(0);
        for (id, expected) in ids.iter().zip(["stopped", "stopped", "running"]) {
            bundle.id.clone_from(id);
            bundle.wait_for(expected);
        }
        bundle.call(["delete", "-r", &pattern]).expect(0);
        assert_eq!(bundle.call(["list", "-q"]).expect(0).out().lines().collect::<Vec<_>>(), [ids[2].as_str()]);
        if runtime == Runtime::Ours {
            bundle.call(["delete", "--regex", "^.*-other"]).expect(1).expect_error("that is not stopped: running");
            bundle.call(["delete", "--regex", "("]).expect(1).expect_error("--regex (");
        }
        bundle.call(["delete", "--force", "--regex", ".*"]).expect(0);
        assert_eq!(bundle.call(["list", "-q"]).expect(0).out(), "");
    });
}

#[test]
fn exec_enters_cgroups_by_controller() {
    if !Path::new("/sys/fs/cgroup/pids").exists() {
        return skip_part("--cgroup", "no cgroup v1");
    }
    for_each_runtime(|runtime| {
        if runtime == Runtime::Crun {
            return; // one path for all controllers
        }
        let Some(bundle) = Bundle::new(runtime, "exec sleep 1000") else { return };
        bundle.create().expect(0);
        bundle.about("start").expect(0);
        for controller in ["pids", "memory"] {
            std::fs::create_dir(format!("/sys/fs/cgroup/{controller}/{}/below", bundle.id)).unwrap();
        }
        let own = |options: &[&str]| {
            let words = ["exec"].iter().chain(options).copied();
            let called = bundle.call(words.chain([bundle.id.as_str(), "cat", "/proc/self/cgroup"])).expect(0);
            let out = called.out();
            let of =
                |name: &str| out.lines().find_map(|line| line.split_once(&format!(":{name}:"))).unwrap().1.to_owned();
            ["pids", "memory", "cpu"].map(of)
        };
        assert_eq!(own(&["--cgroup", "pids:below"]), ["/below", "/", "/"]);
        assert_eq!(own(&["--cgroup", "pids:/below", "--cgroup=memory:below"]), ["/below", "/below", "/"]);
        assert_eq!(own(&["--cgroup", "pids,memory:below", "--cgroup", "cpu:/"]), ["/below", "/below", "/"]);
        assert_eq!(own(&["--cgroup", "/"]), ["/", "/", "/"]);
        let refused = |options: &[&str], runc: &str, expected: &str| {
            let words = ["exec"].iter().chain(options).copied();
            let called = bundle.call(words.chain([bundle.id.as_str(), "true"])).expect(255);
            called.expect_error(if runtime == Runtime::Ours { expected } else { runc });
        };
        refused(&["--cgroup", "nonsense:below"], "unknown controller", "has no cgroup of this controller");
        refused(&["--cgroup", "pids:/../.."], "is not a sub cgroup path", "leads out of itself");
        refused(&["--cgroup", "below"], "no such file", "No such file");
        refused(&["--cgroup", "below", "--cgroup", "pids:below"], "--cgroup", "need a controller each");
        if runtime == Runtime::Ours {
            refused(&["--cgroup", "pids:below", "--cgroup", "pids:/"], "", "for the second time"); // runc takes the last
        }
        for controller in ["pids", "memory"] {
            std::fs::remove_dir(format!("/sys/fs/cgroup/{controller}/{}/below", bundle.id)).unwrap();
        }
    });
}

#[test]
fn hooks_write_to_the_files_that_annotations_name() {
    for_each_runtime(|runtime| {
        if runtime == Runtime::Runc {
            return; // crun's annotations
        }
        let Some(mut bundle) = Bundle::new(runtime, "true") else { return };
        let [out, err] = ["hooks.out", "hooks.err"].map(|name| text(&bundle.dir.join(name)).to_owned());
        bundle.config["annotations"] = json!({ "run.oci.hooks.stdout": out, "run.oci.hooks.stderr": err });
        let stages = ["prestart", "createRuntime", "createContainer", "poststart", "poststop"];
        for stage in stages {
            let script = format!("echo out {stage}; echo err {stage} >&2");
            bundle.config["hooks"][stage] = json!([{ "path": "/bin/sh", "args": ["sh", "-c", script] }]);
        }
        bundle.run().expect(0);
        let read = |path: &str| std::fs::read_to_string(path).unwrap();
        assert_eq!(read(&out), stages.map(|stage| format!("out {stage}\n")).concat());
        assert_eq!(read(&err), stages.map(|stage| format!("err {stage}\n")).concat());
        if runtime != Runtime::Ours {
            return;
        }
        for (path, expected) in [
            ("relative", "is not an absolute path"),
            (text(&bundle.rootfs().join("x")), "which the container can write"),
            ("/nonexistent/x", "its directory does not exist"),
        ] {
            bundle.config["root"]["readonly"] = json!(false);
            bundle.config["annotations"] = json!({ "run.oci.hooks.stdout": path });
            bundle.run().expect(1).expect_error(expected);
        }
    });
}

#[test]
fn supplementary_groups_of_the_caller_are_kept_if_asked() {
    for_each_runtime(|runtime| {
        let Some(mut bundle) = Bundle::new(runtime, "exec sleep 1000") else { return };
        bundle.config["process"]["user"]["additionalGids"] = json!([9]);
        for (keeps, expected) in [(false, "9"), (true, "5 77")] {
            if keeps && runtime == Runtime::Runc {
                continue; // crun's annotation
            }
            if keeps {
                bundle.config["annotations"] = json!({ "run.oci.keep_original_groups": "1" });
            }
            let with_groups = |words: &[&str]| {
                let mut command = bundle.command(words);
                let program = command.get_program().to_owned();
                let words: Vec<_> = command.get_args().map(ToOwned::to_owned).collect();
                command = std::process::Command::new("/usr/bin/setpriv");
                command.args(["--groups", "5,77"]).arg(program).args(&words).arg0("setpriv");
                command.stdin(std::process::Stdio::null()).stdout(std::process::Stdio::null());
                assert!(command.status().unwrap().success(), "{runtime:?} {words:?}");
            };
            with_groups(&["run", "--detach", "--bundle", text(bundle.dir.path()), &bundle.id]);
            let pid = bundle.state()["pid"].as_i64().unwrap();
            let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
            let groups = status.lines().find_map(|line| line.strip_prefix("Groups:")).unwrap().trim();
            assert_eq!(groups, expected, "{runtime:?} {keeps}");
            bundle.call(["delete", "--force", &bundle.id]).expect(0);
        }
    });
}

#[test]
fn features_are_what_engines_parse() {
    ours(|runtime| {
        let Some(bundle) = Bundle::new(runtime, "true") else { return };
        let features: Value = serde_json::from_slice(&bundle.call(["features"]).expect(0).0.stdout).unwrap();
        let strings = |pointer: &str| -> Vec<String> {
            let list = features.pointer(pointer).and_then(Value::as_array).unwrap_or_else(|| panic!("{pointer}"));
            list.iter().map(|one| one.as_str().unwrap_or_else(|| panic!("{pointer}: {one}")).to_owned()).collect()
        };
        // The members of the specification's schema, and no others, so that a misspelt one is found.
        let members = |pointer: &str, known: &[&str]| {
            let found = features.pointer(pointer).and_then(Value::as_object).unwrap_or_else(|| panic!("{pointer}"));
            let mut found: Vec<&str> = found.keys().map(String::as_str).collect();
            found.sort_unstable();
            assert_eq!(found, known, "{pointer}");
        };
        members(
            "",
            &[
                "annotations",
                "hooks",
                "linux",
                "mountOptions",
                "ociVersionMax",
                "ociVersionMin",
                "potentiallyUnsafeConfigAnnotations",
            ],
        );
        members(
            "/linux",
            &[
                "apparmor",
                "capabilities",
                "cgroup",
                "intelRdt",
                "memoryPolicy",
                "mountExtensions",
                "namespaces",
                "netDevices",
                "seccomp",
                "selinux",
            ],
        );
        members("/linux/cgroup", &["rdma", "systemd", "systemdUser", "v1", "v2"]);
        members("/linux/seccomp", &["actions", "archs", "enabled", "knownFlags", "operators", "supportedFlags"]);
        for flag in [
            "apparmor/enabled",
            "selinux/enabled",
            "intelRdt/enabled",
            "netDevices/enabled",
            "mountExtensions/idmap/enabled",
            "seccomp/enabled",
        ] {
            assert!(features.pointer(&format!("/linux/{flag}")).is_some_and(Value::is_boolean), "{flag}");
        }
        assert_eq!(
            (features["ociVersionMin"].as_str(), features["ociVersionMax"].as_str()),
            (Some("1.0.0"), Some("1.3.0"))
        );
        let namespaces = strings("/linux/namespaces");
        for kind in ["cgroup", "ipc", "mount", "network", "pid", "time", "user", "uts"] {
            assert!(namespaces.iter().any(|one| one == kind), "{kind}: {namespaces:?}");
        }
        assert!(strings("/mountOptions").iter().any(|one| one == "rro"), "CRI reads recursive read-only from it");
        assert!(strings("/linux/capabilities").iter().all(|one| one.starts_with("CAP_")));
        assert!(strings("/linux/seccomp/actions").iter().all(|one| one.starts_with("SCMP_ACT_")));
        assert!(strings("/linux/seccomp/archs").iter().all(|one| one.starts_with("SCMP_ARCH_")));
        let unsafe_ones = strings("/potentiallyUnsafeConfigAnnotations");
        for annotation in [
            "org.systemd.property.",
            "org.stockade.report",
            "run.oci.hooks.stdout",
            "run.oci.hooks.stderr",
            "run.oci.keep_original_groups",
        ] {
            assert!(unsafe_ones.iter().any(|one| one == annotation), "{annotation}: {unsafe_ones:?}");
        }
        assert!(features["annotations"].as_object().unwrap().values().all(Value::is_string));
        // Docker reads the version after the word "version" of a line, and the commit of another.
        let version = bundle.call(["--version"]).expect(0).out();
        let named = version.lines().find(|line| line.contains("version")).unwrap();
        assert!(
            named.starts_with("stockade-oci version ")
                && named.split(' ').next_back().unwrap().starts_with(|c: char| c.is_ascii_digit())
        );
        assert!(version.lines().any(|line| line.starts_with("commit: ")), "{version}");
        assert!(version.lines().any(|line| line == "spec: 1.3.0"), "{version}");
    });
}
