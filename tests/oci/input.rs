//! Invalid configurations: each gives one line that names the place, in the log and on standard error, and exit code 1, in little
//! memory and time, and leaves nothing behind. Unusual but valid configurations are tested beside them.

use std::path::Path;
use std::time::Duration;

use crate::common;
use crate::common::bundle::{Bundle, Called, Runtime, ours};
use crate::common::clock::used_by_children;
use serde_json::{Value, json};

/// Maximum memory for refusing a configuration, KiB.
const MOST_KIB: i64 = 64 << 10;

/// Sets the value at a pointer; the last part may be a new key, or `-` for the end of a list.
fn set(config: &mut Value, pointer: &str, value: Value) {
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    let parent = config.pointer_mut(parent).unwrap_or_else(|| panic!("{pointer}"));
    match (parent.is_array(), key.parse::<usize>()) {
        (true, Ok(index)) => parent[index] = value,
        (true, Err(_)) => parent.as_array_mut().unwrap().push(value),
        _ => parent[key] = value,
    }
}

/// Removes the value at a pointer.
fn remove(config: &mut Value, pointer: &str) {
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    config.pointer_mut(parent).unwrap().as_object_mut().unwrap().remove(key);
}

struct Trial {
    bundle: Bundle,
    whole: Value,
}

impl Trial {
    fn new(runtime: Runtime) -> Option<Self> {
        let bundle = Bundle::new(runtime, "echo ran")?;
        let whole = bundle.config.clone();
        Some(Self { bundle, whole })
    }

    fn run(&mut self) -> Called {
        let log = self.bundle.dir.join("log.json");
        let _ = std::fs::remove_file(&log);
        let words = ["--log", common::text(&log), "--log-format", "json", "run", "--bundle"].map(str::to_owned);
        let rest = [common::text(self.bundle.dir.path()).to_owned(), self.bundle.id.clone()];
        self.bundle.call(words.into_iter().chain(rest))
    }

    /// Fails unless the configuration is refused with this message, and nothing is left.
    fn refuse(&mut self, what: &str, said: &str) {
        let before = used_by_children();
        let called = self.run();
        let (used, err) = (used_by_children() - before, called.err());
        assert!(called.out().is_empty(), "{what}: it ran");
        assert_eq!(called.0.status.code(), Some(1), "{what}: {err}");
        assert!(err.contains(said), "{what}: {said:?} is not in {err:?}");
        assert_eq!(err.trim_end().lines().filter(|line| !line.starts_with("warning")).count(), 1, "{what}: {err}");
        assert!(err.len() < 8192, "{what}: {} bytes", err.len());
        assert!(used < Duration::from_secs(5), "{what}: {used:?}");
        let log = std::fs::read_to_string(self.bundle.dir.join("log.json")).unwrap();
        let last: Value = serde_json::from_str(log.lines().last().unwrap()).unwrap();
        assert_eq!(last["level"], "error", "{what}");
        assert!(last["msg"].as_str().unwrap().contains(said), "{what}: {last}");
        let left = std::fs::read_dir(self.bundle.dir.join("state")).map_or(0, |entries| {
            entries.flatten().filter(|entry| !entry.file_name().to_string_lossy().starts_with('.')).count()
        });
        assert_eq!(left, 0, "{what}: something is left");
        for hierarchy in ["", "memory", "pids", "unified"] {
            assert!(!Path::new("/sys/fs/cgroup").join(hierarchy).join(&self.bundle.id).exists(), "{what}");
        }
        self.bundle.config = self.whole.clone();
    }

    fn accept(&mut self, what: &str) {
        let called = self.run();
        assert_eq!((called.0.status.code(), called.out().as_str()), (Some(0), "ran\n"), "{what}: {}", called.err());
        self.bundle.config = self.whole.clone();
    }
}

#[test]
fn missing_fields_are_reported() {
    ours(|runtime| {
        let Some(mut trial) = Trial::new(runtime) else { return };
        for (pointer, said) in [
            ("/ociVersion", "ociVersion is missing"),
            ("/process", "process is missing"),
            ("/root", "root is missing"),
            ("/root/path", "root: path must not be empty"),
            ("/process/args", "process: args must name a program"),
            ("/process/cwd", "process: cwd is missing"),
            ("/linux", "linux is missing"),
        ] {
            remove(&mut trial.bundle.config, pointer);
            if pointer.starts_with("/linux") {
                remove(&mut trial.bundle.config, "/hostname");
            }
            trial.refuse(pointer, said);
        }
    });
}

/// Pointer, value, and words that the error must contain.
fn wrong() -> Vec<(&'static str, Value, &'static str)> {
    let long = |length| "x".repeat(length);
    let deep = format!("/{}", vec!["d"; 2500].join("/"));
    let ranges = |count: u32| {
        json!((0..count).map(|n| json!({ "containerID": n * 2, "hostID": n * 2, "size": 1 })).collect::<Vec<_>>())
    };
    let user = |map: Value| json!({ "namespaces": [{ "type": "mount" }, { "type": "user" }], "uidMappings": map.clone(), "gidMappings": map });
    let resources = "/linux/resources";
    let mount = |options: Value| json!({ "destination": "/m", "type": "tmpfs", "source": "tmpfs", "options": options });
    let bind = |source: &str, options: Value| json!({ "destination": "/m", "type": "bind", "source": source, "options": options });
    let hook = |hook: Value| json!({ "createRuntime": [hook] });
    vec![
        ("/ociVersion", json!("1.0"), "ociVersion: \"1.0\""),
        ("/ociVersion", json!("2.0.0"), "ociVersion: \"2.0.0\""),
        ("/ociVersion", json!("v1"), "ociVersion: \"v1\""),
        ("/ociVersion", json!(1), "ociVersion: 1: must be a string"),
        ("/ociVersion", json!(format!("1.0.{}", long(100_000))), "ociVersion"),
        ("/process/args", json!([""]), "process.args: must name a program"),
        ("/process/args", json!(["a\0b"]), "process.args[0]"),
        ("/process/args", json!("sh"), "process.args: \"sh\": must be an array"),
        ("/process/args", json!([long(200_000)]), "exec"),
        ("/process/args", json!(["true", long(131_072)]), "exec"),
        ("/process/args", json!(["/nowhere"]), "no such file or directory"),
        ("/process/args", json!(["/etc"]), "permission denied"),
        ("/process/args", json!(["/etc/passwd"]), "permission denied"),
        ("/process/args", json!(["nothing-of-that-name"]), "executable file not found in $PATH"),
        ("/process/env", json!(["A=a\0b"]), "process.env[0]"),
        ("/process/env", json!({ "A": "b" }), "process.env: an object: must be an array"),
        ("/process/env", json!([format!("A={}", long(131_072))]), "exec"),
        ("/process/cwd", json!(""), "process.cwd: \"\": must be an absolute path"),
        ("/process/cwd", json!("a"), "process.cwd: \"a\": must be an absolute path"),
        ("/process/cwd", json!("/etc/passwd"), "entering the working directory: /etc/passwd"),
        ("/process/cwd", json!("/proc/self/fd/7"), "entering the working directory: /proc/self/fd/7"),
        ("/process/cwd", json!("/proc/1/root/../../fd/3"), "entering the working directory"),
        ("/process/cwd", json!(format!("/{}", long(4097))), "entering the working directory"),
        ("/process/cwd", json!("/a\0b"), "process.cwd"),
        ("/process/user/uid", json!(-1), "process.user.uid: -1"),
        ("/process/user/uid", json!(4_294_967_295u64), "process.user.uid: 4294967295"),
        ("/process/user/uid", json!(4_294_967_296u64), "process.user.uid: 4294967296"),
        ("/process/user/uid", json!("0"), "process.user.uid: \"0\""),
        ("/process/user/uid", json!(1.5), "process.user.uid: 1.5"),
        ("/process/user/gid", json!(4_294_967_295u64), "process.user.gid"),
        ("/process/user/umask", json!(0o1777), "process.user.umask"),
        ("/process/user/umask", json!(-1), "process.user.umask"),
        ("/process/user/additionalGids", json!([4_294_967_295u64]), "process.user.additionalGids[0]"),
        ("/process/user/additionalGids", json!(vec![7; 65_537]), "65536"),
        ("/process/consoleSize", json!({ "height": 65_536, "width": 1 }), "process.consoleSize.height: 65536"),
        ("/process/consoleSize", json!({ "height": 1, "width": -1 }), "process.consoleSize.width: -1"),
        ("/process/terminal", json!("no"), "process.terminal: \"no\": must be true or false"),
        ("/process/rlimits/0/type", json!("NOFILE"), "process.rlimits[0].type"),
        ("/process/rlimits/-", json!({ "type": "RLIMIT_NOFILE", "soft": 1, "hard": 1 }), "is limited twice"),
        ("/process/rlimits/0/soft", json!(4096), "soft is more than hard"),
        ("/process/rlimits/0/soft", json!(-2), "process.rlimits[0].soft: -2"),
        ("/process/rlimits/0/hard", json!(null), "process.rlimits[0].hard: null: is missing"),
        ("/process/capabilities", json!([]), "process.capabilities: an array: must be an object"),
        ("/process/capabilities/bounding", json!("CAP_KILL"), "process.capabilities.bounding"),
        ("/process/capabilities/bounding", json!([7]), "process.capabilities.bounding[0]"),
        ("/process/capabilities/permitted", json!([]), "dropping capabilities"),
        ("/process/noNewPrivileges", json!(1), "process.noNewPrivileges: 1: must be true or false"),
        ("/process/oomScoreAdj", json!(1001), "process.oomScoreAdj: 1001"),
        ("/process/oomScoreAdj", json!(-1001), "process.oomScoreAdj: -1001"),
        ("/process/scheduler", json!({ "policy": "SCHED_X" }), "process.scheduler.policy: \"SCHED_X\""),
        ("/process/scheduler", json!({}), "process.scheduler: policy is missing"),
        ("/process/scheduler", json!({ "policy": "SCHED_OTHER", "nice": 20 }), "process.scheduler.nice: 20"),
        ("/process/scheduler", json!({ "policy": "SCHED_FIFO", "priority": 100 }), "process.scheduler.priority: 100"),
        ("/process/scheduler", json!({ "policy": "SCHED_OTHER", "flags": ["X"] }), "process.scheduler.flags[0]"),
        ("/process/scheduler", json!({ "policy": "SCHED_DEADLINE", "runtime": -1 }), "process.scheduler.runtime"),
        (
            "/process/scheduler",
            json!({ "policy": "SCHED_DEADLINE", "runtime": 9, "deadline": 1, "period": 1 }),
            "process.scheduler.runtime: 9: must be at least 1024 ns",
        ),
        (
            "/process/scheduler",
            json!({ "policy": "SCHED_DEADLINE", "deadline": 9000 }),
            "process.scheduler: runtime must be at least 1024 ns",
        ),
        (
            "/process/scheduler",
            json!({ "policy": "SCHED_DEADLINE", "runtime": 9000, "deadline": 8000 }),
            "process.scheduler.deadline: 8000: must not be shorter",
        ),
        (
            "/process/scheduler",
            json!({ "policy": "SCHED_DEADLINE", "runtime": 9000, "deadline": 9000, "period": 8000 }),
            "process.scheduler.period: 8000: must not be shorter",
        ),
        ("/process/ioPriority", json!({ "class": "X" }), "process.ioPriority.class"),
        ("/process/ioPriority", json!({ "class": "IOPRIO_CLASS_BE", "priority": 8 }), "process.ioPriority.priority: 8"),
        ("/process/execCPUAffinity", json!({ "initial": "0-" }), "process.execCPUAffinity.initial: \"0-\""),
        ("/process/execCPUAffinity", json!({ "final": "3-1" }), "process.execCPUAffinity.final: \"3-1\""),
        ("/process/execCPUAffinity", json!({ "final": "," }), "process.execCPUAffinity.final: \",\""),
        ("/process/execCPUAffinity", json!({ "final": "0-999999" }), "process.execCPUAffinity.final"),
        ("/root/path", json!(""), "root.path: \"\": must not be empty"),
        ("/root/path", json!("config.json"), "Not a directory"),
        ("/root/path", json!("nowhere"), "No such file or directory"),
        ("/root/path", json!("a\0b"), "root.path"),
        ("/root/readonly", json!("true"), "root.readonly"),
        ("/hostname", json!("a\0b"), "hostname"),
        ("/hostname", json!(long(65)), "setting the host name"),
        ("/domainname", json!(long(65)), "setting the host name"),
        ("/hostname", json!(7), "hostname: 7: must be a string"),
        ("/mounts", json!({}), "mounts: an object: must be an array"),
        ("/mounts/-", json!({ "type": "tmpfs" }), "destination is missing"),
        ("/mounts/-", json!({ "destination": "", "type": "tmpfs" }), "is the root itself"),
        ("/mounts/-", json!({ "destination": "/", "type": "tmpfs" }), "is the root itself"),
        ("/mounts/-", json!({ "destination": "/a/..", "type": "tmpfs" }), "is the root itself"),
        (
            "/mounts/-",
            json!({ "destination": format!("/{}", long(5000)), "type": "tmpfs" }),
            "longer than a path can be",
        ),
        ("/mounts/-", json!({ "destination": format!("/{}", long(300)), "type": "tmpfs" }), "creating a mount point"),
        ("/mounts/-", json!({ "destination": "/a\0", "type": "tmpfs" }), "destination"),
        ("/mounts/-", json!({ "destination": "/m" }), "neither a type nor the option bind"),
        ("/mounts/-", json!({ "destination": "/m", "type": "no-such-type" }), "mounting: /m"),
        ("/mounts/-", json!({ "destination": "/etc/passwd", "type": "tmpfs" }), "/etc/passwd"),
        ("/mounts/-", json!({ "destination": "/m", "type": "bind" }), "a bind mount needs a source"),
        ("/mounts/-", bind("/no/where/at/all", json!([])), "/no/where/at/all"),
        ("/mounts/-", bind("a\0b", json!([])), "source"),
        ("/mounts/-", mount(json!(["foo"])), "mounting: /m"),
        ("/mounts/-", mount(json!(["size=-1"])), "mounting: /m"),
        ("/mounts/-", mount(json!(["size=1e3"])), "mounting: /m"),
        ("/mounts/-", mount(json!(["mode=999"])), "mounting: /m"),
        ("/mounts/-", mount(json!(["uid="])), "mounting: /m"),
        ("/mounts/-", mount(json!([format!("x={}", long(65_536))])), "mounting: /m"),
        ("/mounts/-", mount(json!("ro")), "options: \"ro\": must be an array"),
        ("/mounts/-", mount(json!(["idmap"])), "only new bind mounts can be idmapped"),
        ("/mounts/-", bind("/tmp", json!(["tmpcopyup"])), "tmpcopyup is for a tmpfs"),
        ("/mounts/-", bind("/tmp", json!(["bind", "remount", "ro"])), "/m"),
        (
            "/mounts/-",
            json!({ "destination": "/m", "type": "overlay", "source": "overlay", "options": ["lowerdir=/none,x:y\\z"] }),
            "mounting: /m",
        ),
        (
            "/mounts/-",
            json!({ "destination": "/m", "type": "bind", "source": "/tmp", "uidMappings": [{ "containerID": 0, "hostID": 0, "size": 0 }] }),
            "uidMappings[0]",
        ),
        ("/hooks", hook(json!({ "path": "sh" })), "hooks.createRuntime[0].path: \"sh\": must be an absolute path"),
        ("/hooks", hook(json!({})), "hooks.createRuntime[0]: path is missing"),
        (
            "/hooks",
            hook(json!({ "path": "/bin/true", "timeout": 0 })),
            "hooks.createRuntime[0].timeout: 0: must be a whole number from 1",
        ),
        ("/hooks", hook(json!({ "path": "/bin/true", "timeout": -1 })), "hooks.createRuntime[0].timeout: -1"),
        (
            "/hooks",
            hook(json!({ "path": "/bin/true", "timeout": 9_223_372_036_854_775_808u64 })),
            "hooks.createRuntime[0].timeout",
        ),
        ("/hooks", hook(json!({ "path": "/bin/true", "args": ["a\0"] })), "hooks.createRuntime[0].args[0]"),
        ("/hooks", hook(json!({ "path": "/no/such/hook" })), "createRuntime[0] /no/such/hook"),
        ("/linux/namespaces/-", json!({ "type": "mount" }), "is the second mount namespace"),
        ("/linux/namespaces/-", json!({ "type": "planet" }), "type: \"planet\""),
        ("/linux/namespaces/-", json!({ "type": "time", "path": "x" }), "path: \"x\": must be an absolute path"),
        (
            "/linux/namespaces/-",
            json!({ "type": "time", "path": "/proc/self/ns/net" }),
            "is a namespace of a different kind",
        ),
        ("/linux/namespaces/-", json!({ "type": "time", "path": "/etc/passwd" }), "is not a namespace"),
        ("/linux/namespaces/-", json!({ "type": "time", "path": "/dev/null" }), "is not a namespace"),
        ("/linux/namespaces/-", json!({ "type": "user" }), "uidMappings must map"),
        ("/linux/timeOffsets", json!({ "monotonic": { "secs": 1 } }), "timeOffsets need a new time namespace"),
        (
            "/linux",
            json!({ "namespaces": [{ "type": "mount" }, { "type": "uts" }, { "type": "time" }], "timeOffsets": { "real": {} } }),
            "linux.timeOffsets.real",
        ),
        (
            "/linux",
            json!({ "namespaces": [{ "type": "mount" }, { "type": "uts" }, { "type": "time" }], "timeOffsets": { "monotonic": { "secs": i64::MAX } } }),
            "time namespace",
        ),
        (
            "/linux",
            json!({ "namespaces": [{ "type": "mount" }, { "type": "uts" }, { "type": "time" }], "timeOffsets": { "monotonic": { "nanosecs": 1_000_000_000 } } }),
            "nanosecs",
        ),
        ("/linux", user(json!([{ "containerID": 0, "hostID": 0, "size": 0 }])), "uidMappings[0]: size"),
        ("/linux", user(json!([{ "containerID": 0, "hostID": 4_294_967_290u64, "size": 10 }])), "uidMappings[0]"),
        (
            "/linux",
            user(
                json!([{ "containerID": 0, "hostID": 0, "size": 10 }, { "containerID": 5, "hostID": 100, "size": 10 }]),
            ),
            "uidMappings[1]: overlaps",
        ),
        ("/linux", user(ranges(341)), "has 341 ranges"),
        ("/linux", user(json!([{ "containerID": 1, "hostID": 1, "size": 1 }])), "must map the container's id 0"),
        ("/linux/sysctl", json!({ "vm.swappiness": "1" }), "linux.sysctl.vm.swappiness"),
        ("/linux/sysctl", json!({ "kernel.core_pattern": "|/x" }), "linux.sysctl.kernel.core_pattern"),
        ("/linux/sysctl", json!({ "net/ipv4/../../kernel/core_pattern": "1" }), "is not a kernel parameter name"),
        ("/linux/sysctl", json!({ "kernel.shm_rmid_forced+1": "1" }), "linux.sysctl"),
        ("/linux/sysctl", json!({ "net.ipv4.ip_forward": "1\n2" }), "is not a kernel parameter value"),
        ("/linux/sysctl", json!({ "net.ipv4.ip_forward": 1 }), "must be a string"),
        ("/linux/sysctl", json!({ "net.ipv4.no_such_thing": "1" }), "/proc/sys/net/ipv4/no_such_thing"),
        ("/linux/sysctl", json!({ "kernel.hostname": "x" }), "conflicts with the OCI \"hostname\" field"),
        ("/linux/maskedPaths", json!([""]), "linux.maskedPaths[0]: \"\": must name a path below the root"),
        ("/linux/readonlyPaths", json!(["/"]), "linux.readonlyPaths[0]: \"/\": must name a path below the root"),
        ("/linux/maskedPaths", json!([deep]), "masking a path"),
        ("/linux/rootfsPropagation", json!("sideways"), "linux.rootfsPropagation: \"sideways\""),
        ("/linux/devices", json!([{ "path": "/dev/x", "type": "x" }]), "linux.devices[0].type: \"x\""),
        ("/linux/devices", json!([{ "type": "c" }]), "linux.devices[0]: path must be an absolute path"),
        (
            "/linux/devices",
            json!([{ "path": "/dev/x", "type": "c", "major": -1, "minor": 0 }]),
            "linux.devices[0].major: -1",
        ),
        (
            "/linux/devices",
            json!([{ "path": "/dev/x", "type": "c", "major": 1, "minor": 1 << 20 }]),
            "linux.devices[0].minor",
        ),
        (
            "/linux/devices",
            json!([{ "path": "/dev/x", "type": "p" }, { "path": "/dev/x", "type": "p" }]),
            "same path as another device",
        ),
        ("/linux/devices", json!([{ "path": "/dev/../x", "type": "p" }]), "contains \"..\""),
        ("/linux/devices", json!([{ "path": "dev/x", "type": "p" }]), "must be an absolute path"),
        ("/linux/devices", json!([{ "path": "/etc/passwd", "type": "p" }]), "providing a device node: /etc/passwd"),
        (resources, json!({ "memory": { "limit": -2 } }), "linux.resources.memory.limit: -2"),
        (resources, json!({ "memory": { "limit": 9_223_372_036_854_775_808u64 } }), "linux.resources.memory.limit"),
        (resources, json!({ "memory": { "limit": "1G" } }), "linux.resources.memory.limit: \"1G\""),
        (resources, json!({ "memory": { "swappiness": 201 } }), "linux.resources.memory.swappiness"),
        (resources, json!({ "cpu": { "quota": 999 } }), "cpu"),
        (resources, json!({ "cpu": { "quota": 1000, "period": 1 } }), "cpu"),
        (resources, json!({ "cpu": { "period": 10_000_000 } }), "cpu"),
        (resources, json!({ "cpu": { "cpus": "0-" } }), "linux.resources.cpu.cpus: \"0-\""),
        (resources, json!({ "cpu": { "cpus": "a" } }), "linux.resources.cpu.cpus: \"a\""),
        (resources, json!({ "cpu": { "cpus": "0-999999" } }), "linux.resources.cpu.cpus"),
        (resources, json!({ "pids": { "limit": 9_223_372_036_854_775_808u64 } }), "linux.resources.pids.limit"),
        (resources, json!({ "hugepageLimits": [{ "pageSize": "3XB" }] }), "linux.resources.hugepageLimits[0].pageSize"),
        (resources, json!({ "hugepageLimits": [{ "pageSize": "3MB", "limit": 1 }] }), "hugetlb"),
        (resources, json!({ "unified": { "../x": "1" } }), "is not a file of a controller"),
        (resources, json!({ "unified": { "cgroup.procs": "1" } }), "is not a file of a controller"),
        (resources, json!({ "unified": { "memory.high\n": "1" } }), "is not a file of a controller"),
        (resources, json!({ "unified": { "a/memory.high": "1" } }), "is not a file of a controller"),
        (resources, json!({ "blockIO": { "weight": 1001 } }), "linux.resources.blockIO.weight: 1001"),
        (resources, json!({ "devices": [{ "allow": true, "type": "z" }] }), "linux.resources.devices[0].type"),
        (resources, json!({ "devices": [{ "allow": true, "access": "x" }] }), "linux.resources.devices[0].access"),
        (resources, json!({ "devices": [{ "allow": true, "major": -2 }] }), "linux.resources.devices[0].major"),
        (resources, json!({ "rdma": { "x": { "hcaHandles": -1 } } }), "linux.resources.rdma.x.hcaHandles: -1"),
        ("/linux/cgroupsPath", json!("/../x"), "leads out of itself"),
        ("/linux/cgroupsPath", json!("a/../../b"), "leads out of itself"),
        ("/linux/cgroupsPath", json!(format!("/{}", long(256))), "linux.cgroupsPath"),
        ("/linux/cgroupsPath", json!(format!("/{}", "x/".repeat(2100))), "linux.cgroupsPath"),
        (
            "/linux",
            user(json!(
                (0..340u32)
                    .map(|n| json!({ "containerID": n * 3, "hostID": 100_000 + n, "size": 1 }))
                    .collect::<Vec<_>>()
            )),
            "uidMappings: is a map of",
        ),
        ("/linux/cgroupsPath", json!("/a\0b"), "linux.cgroupsPath"),
        ("/linux/cgroupsPath", json!(7), "linux.cgroupsPath: 7"),
        ("/linux/personality", json!({ "domain": "X" }), "linux.personality.domain"),
        ("/linux/personality", json!({ "domain": "LINUX", "flags": ["X"] }), "linux.personality.flags"),
        ("/linux/memoryPolicy", json!({ "mode": "X" }), "linux.memoryPolicy.mode"),
        ("/linux/memoryPolicy", json!({ "mode": "MPOL_BIND", "nodes": "x" }), "linux.memoryPolicy.nodes"),
        ("/linux/seccomp", json!({}), "linux.seccomp"),
        ("/linux/seccomp", json!({ "defaultAction": "SCMP_ACT_NO" }), "linux.seccomp"),
        (
            "/linux/seccomp",
            json!({ "defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{ "names": ["read"], "action": "SCMP_ACT_NOTIFY" }] }),
            "linux.seccomp",
        ),
        ("/annotations", json!({ "": "x" }), "has an empty name"),
        ("/annotations", json!({ "a": 1 }), "annotations.a: 1: must be a string"),
        ("/linux", json!("x"), "linux: \"x\": must be an object"),
    ]
}

#[test]
fn invalid_configurations_are_refused_in_one_line_and_leave_nothing() {
    ours(|runtime| {
        let Some(mut trial) = Trial::new(runtime) else { return };
        let mut failed = Vec::new();
        for (pointer, value, said) in wrong() {
            let mut what = format!("{pointer} = {value}");
            what.truncate(200);
            set(&mut trial.bundle.config, pointer, value);
            let tried = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| trial.refuse(&what, said)));
            if tried.is_err() {
                failed.push(what);
                trial = Trial::new(runtime).unwrap();
            }
        }
        assert!(failed.is_empty(), "{failed:#?}");
        let most = nix::sys::resource::getrusage(nix::sys::resource::UsageWho::RUSAGE_CHILDREN).unwrap().max_rss();
        eprintln!("at most {most} KiB");
        assert!(most < MOST_KIB, "{most} KiB");
    });
}

#[test]
fn unusual_valid_configurations_run() {
    ours(|runtime| {
        let Some(mut trial) = Trial::new(runtime) else { return };
        let mounts =
            |options: Value| json!({ "destination": "/m", "type": "tmpfs", "source": "none", "options": options });
        let deny = json!({ "allow": false, "access": "rwm" });
        for (pointer, value) in [
            ("/ociVersion", json!("1.99.3-rc.1+dev")),
            ("/process/env", json!(["PATH=/bin", "A", "=x", "PATH=/bin", "LD_PRELOAD=/x.so", "A=\n"])),
            ("/process/cwd", json!("/etc/../bin/.")),
            ("/process/user/additionalGids", json!([7, 7, 7])),
            ("/process/user/additionalGids", json!((0..65_536).collect::<Vec<u32>>())),
            ("/process/capabilities/bounding/-", json!("CAP_99")),
            ("/process/capabilities/bounding/-", json!("cap_kill")),
            ("/process/capabilities/bounding/-", json!("CAP_KILL")),
            ("/process/rlimits", json!([{ "type": "RLIMIT_CORE", "soft": 0, "hard": 0 }])),
            ("/process/rlimits", json!(null)),
            ("/hostname", json!("")),
            ("/mounts/-", json!({ "destination": "m", "type": "tmpfs" })),
            ("/mounts/-", json!({ "destination": "../../m", "type": "tmpfs" })),
            ("/mounts/-", json!({ "destination": "//m//./n/../o", "type": "tmpfs", "source": "" })),
            ("/mounts/-", mounts(json!(["ro", "rw", "private", "shared", "noexec", "exec"]))),
            ("/mounts/-", mounts(json!([""]))),
            ("/mounts/-", mounts(json!(["size=99999999999g"]))),
            ("/mounts/-", json!({ "destination": "/tmp/a", "type": "tmpfs" })),
            ("/linux/maskedPaths", json!((0..10_000).map(|n| format!("/none/{n}")).collect::<Vec<_>>())),
            ("/linux/maskedPaths", json!(["/nowhere", "/etc/passwd/below", "/etc/../etc/passwd"])),
            ("/linux/readonlyPaths", json!([])),
            ("/linux/rootfsPropagation", json!("")),
            ("/linux/namespaces/-", json!({ "type": "time", "path": "" })),
            ("/linux/devices", json!([{ "path": "/m/dev/x", "type": "p", "fileMode": 0o4666 }])),
            (
                "/linux/resources",
                json!({ "memory": { "limit": 0 }, "pids": { "limit": -1 }, "cpu": { "shares": 2, "quota": -1 } }),
            ),
            ("/linux/resources", json!({ "memory": { "limit": -1 }, "cpu": { "shares": 262_144 }, "devices": [deny] })),
            ("/linux/resources", json!({ "cpu": { "cpus": "" } })),
            ("/linux/resources", json!({})),
            ("/annotations", json!({ "big": "x".repeat(1 << 20) })),
            ("/hooks", json!({ "createRuntime": vec![json!({ "path": "/bin/true" }); 20] })),
            ("/vm", json!({ "kernel": { "path": 7 } })),
            ("/windows", json!(7)),
            ("/zos", json!([])),
            ("/linux/unheardOf", json!({ "a": [1, { "b": null }] })),
        ] {
            let mut what = format!("{pointer} = {value}");
            what.truncate(200);
            trial.bundle.config["root"]["readonly"] = json!(false);
            set(&mut trial.bundle.config, pointer, value);
            trial.accept(&what);
        }
    });
}

#[test]
fn other_documents_are_refused_in_little_memory() {
    ours(|runtime| {
        let Some(mut trial) = Trial::new(runtime) else { return };
        let path = trial.bundle.dir.join("config.json");
        let run = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            let mut command = std::process::Command::new(runtime.program());
            command.arg("--root").arg(trial.bundle.dir.join("state")).args(["run", "-b"]).arg(trial.bundle.dir.path());
            Called(command.arg("x").output().unwrap())
        };
        let whole = trial.whole.to_string();
        let twice = whole.replacen("\"hostname\"", "\"hostname\":\"a\",\"hostname\"", 1);
        let nested = format!("{{\"a\":{}{}}}", "[".repeat(100_000), "]".repeat(100_000));
        let documents: Vec<Vec<u8>> = vec![
            Vec::new(),
            b"null".to_vec(),
            b"[]".to_vec(),
            b"7".to_vec(),
            b"{}".to_vec(),
            b"\xef\xbb\xbf{}".to_vec(),
            [whole.as_bytes(), b"x"].concat(),
            [whole.as_bytes(), whole.as_bytes()].concat(),
            twice.into_bytes(),
            nested.into_bytes(),
            whole.replace("echo ran", "\u{1}").replace("\\u0001", "\u{1}").into_bytes(),
            [&whole.as_bytes()[..whole.len() / 2], b"\xff\xfe", &whole.as_bytes()[whole.len() / 2..]].concat(),
            whole.replace("\"1.0.2\"", "\"\\ud800\"").into_bytes(),
            format!("{{\"a\":{}}}", "9".repeat(400)).into_bytes(),
            format!("{{{}}}", (0..100_000).map(|n| format!("\"k{n}\":0")).collect::<Vec<_>>().join(",")).into_bytes(),
            vec![b' '; 1 << 20],
        ];
        for (index, document) in documents.iter().enumerate() {
            let called = run(document);
            let err = called.err();
            assert_eq!(called.0.status.code(), Some(1), "{index}: {err}");
            assert!(err.contains("config.json") && err.trim_end().lines().count() == 1, "{index}: {err}");
        }
        for (name, made) in [("a directory", true), ("nothing", false)] {
            std::fs::remove_file(&path).or_else(|_| std::fs::remove_dir(&path)).unwrap();
            if made {
                std::fs::create_dir(&path).unwrap();
            }
            let mut command = std::process::Command::new(runtime.program());
            command.arg("--root").arg(trial.bundle.dir.join("state")).args(["run", "-b"]).arg(trial.bundle.dir.path());
            let called = Called(command.arg("x").output().unwrap());
            assert!(called.0.status.code() == Some(1) && called.err().contains("config.json"), "{name}: {called:?}");
        }
        std::fs::remove_file(&path).or_else(|_| std::fs::remove_dir(&path)).ok();
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRUSR).unwrap();
        let mut command = std::process::Command::new("timeout");
        command.args(["10", runtime.program()]).arg("--root").arg(trial.bundle.dir.join("state")).args(["run", "-b"]);
        let called = Called(command.arg(trial.bundle.dir.path()).arg("x").output().unwrap());
        assert_eq!(called.0.status.code(), Some(1), "a FIFO: {called:?}");
        std::fs::remove_file(&path).unwrap();
        trial.bundle.config = trial.whole.clone();
        trial.accept("the original configuration");
    });
}
