//! Limits of a running container: changed, kept, counted, and reported when they are reached.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::common;
use crate::common::bundle::{Bundle, Runtime, for_each_runtime, ours};
use crate::common::clock::eventually;
use crate::common::{PYTHON, leaks, text};
use serde_json::{Value, json};

fn is_v2() -> bool {
    std::path::Path::new("/sys/fs/cgroup/cgroup.controllers").exists()
}

/// A file of the container's cgroup, by its name in each version.
fn file(bundle: &Bundle, v1: (&str, &str), v2: &str) -> String {
    let path = match is_v2() {
        true => format!("/sys/fs/cgroup/{}/{v2}", bundle.id),
        false => format!("/sys/fs/cgroup/{}/{}/{}", v1.0, bundle.id, v1.1),
    };
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}")).trim().to_owned()
}

fn pids_max(bundle: &Bundle) -> String {
    file(bundle, ("pids", "pids.max"), "pids.max")
}

fn memory(bundle: &Bundle) -> String {
    file(bundle, ("memory", "memory.limit_in_bytes"), "memory.max")
}

#[test]
fn limits_change_by_flags_by_a_file_and_by_standard_input() {
    for_each_runtime(|runtime| {
        leaks::adopt_orphans();
        let Some(mut bundle) = Bundle::new(runtime, "sleep 60") else { return };
        bundle.config["linux"]["resources"]["memory"] = json!({ "limit": 64 << 20 });
        bundle.create().expect(0);
        bundle.call(["update", "--pids-limit", "55", &bundle.id]).expect(0);
        assert_eq!((pids_max(&bundle), memory(&bundle)), ("55".into(), (64 << 20).to_string()));
        let file = bundle.dir.file("resources.json", json!({ "pids": { "limit": 44 } }).to_string());
        bundle.call(["update", "--resources", text(&file), &bundle.id]).expect(0);
        assert_eq!((pids_max(&bundle), memory(&bundle)), ("44".into(), (64 << 20).to_string()), "the rest stays");
        let mut command = bundle.command(["update", "--resources=-", &bundle.id]);
        let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
        let resources = json!({ "memory": { "limit": 80 << 20 }, "pids": { "limit": 33 } });
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), resources.to_string().as_bytes()).unwrap();
        assert!(child.wait().unwrap().success());
        assert_eq!((pids_max(&bundle), memory(&bundle)), ("33".into(), (80 << 20).to_string()));
    });
}

/// The kernel accepts such a large share and uses a smaller one. cgroup v2 has another unit, whose range includes the largest
/// share.
#[test]
fn a_limit_that_the_kernel_lowers_is_refused() {
    if is_v2() {
        return common::skip("there is no cgroup v1");
    }
    ours(|runtime| {
        let Some(mut bundle) = Bundle::new(runtime, "true") else { return };
        bundle.config["linux"]["resources"] = json!({ "cpu": { "shares": 1_000_000 } });
        bundle.create().expect_error("cpu.shares: wrote \"1000000\", but the kernel has \"262144\"");
    });
}

/// Every leaf of a JSON tree, by its path.
fn leaves(path: &str, value: &Value, found: &mut BTreeMap<String, Value>) {
    match value {
        Value::Object(object) => object.iter().for_each(|(key, value)| leaves(&format!("{path}.{key}"), value, found)),
        Value::Array(array) => {
            array.iter().enumerate().for_each(|(index, value)| leaves(&format!("{path}[{index}]"), value, found));
        }
        leaf => drop(found.insert(path.to_owned(), leaf.clone())),
    }
}

/// What engines parse: runc's names and types everywhere, and its values where they do not depend on the moment.
#[test]
fn statistics_have_every_value_of_runcs() {
    let statistics = |runtime: Runtime| {
        let mut bundle = Bundle::new(runtime, "echo up; sleep 60")?;
        bundle.config["linux"]["resources"] = json!({
            "memory": { "limit": 64 << 20, "reservation": 32 << 20 }, "pids": { "limit": 40 },
            "cpu": { "shares": 512, "quota": 50_000, "period": 100_000, "cpus": "0" },
        });
        bundle.create().expect(0);
        bundle.about("start").expect(0);
        bundle.wait_for_output("up");
        let shown: Value = serde_json::from_slice(&bundle.call(["events", "--stats", &bundle.id]).0.stdout).unwrap();
        bundle.call(["delete", "--force", &bundle.id]).expect(0);
        let mut found = BTreeMap::new();
        leaves("", &shown["data"], &mut found);
        Some(found)
    };
    ours(|_| {
        if !std::path::Path::new(Runtime::Runc.program()).exists() {
            return common::skip("runc is not installed");
        }
        let (Some(ours), Some(theirs)) = (statistics(Runtime::Ours), statistics(Runtime::Runc)) else { return };
        assert!(theirs.len() > 60, "{theirs:?}");
        // Which devices were used depends on what the page cache holds.
        for (path, value) in theirs.iter().filter(|(path, _)| !path.starts_with(".blkio.")) {
            let own = ours.get(path).unwrap_or_else(|| panic!("{path} is missing, which is {value} under runc"));
            assert_eq!(std::mem::discriminant(own), std::mem::discriminant(value), "{path}: {own}, {value}");
            let fixed = [".limit", ".failcnt"].iter().any(|end| path.ends_with(end))
                || path.starts_with(".cpuset.")
                || path.starts_with(".pids.limit");
            assert!(!fixed || own == value, "{path}: {own}, and {value} under runc");
        }
    });
}

#[test]
fn updated_limits_are_seen_by_later_commands() {
    ours(|runtime| {
        leaks::adopt_orphans();
        let Some(mut bundle) = Bundle::new(runtime, "sleep 60") else { return };
        bundle.config["linux"]["resources"]["memory"] = json!({ "limit": 64 << 20 });
        bundle.create().expect(0);
        bundle.call(["update", "--pids-limit", "55", "--memory", "80m", &bundle.id]).expect(0);
        let plan = || -> Value {
            let path = bundle.dir.join("state").join(&bundle.id).join("plan.json");
            let plan: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
            plan["cgroup"]["resources"].clone()
        };
        assert_eq!((&plan()["pids"], &plan()["memory_limit"]), (&json!(55), &json!(80 << 20)));
        // A change is applied completely or not at all.
        let wrong = json!({ "pids": { "limit": 11 }, "cpu": { "cpus": "900-901" } });
        let wrong = bundle.dir.file("wrong.json", wrong.to_string());
        bundle.call(["update", "--resources", text(&wrong), &bundle.id]).expect(1);
        assert_eq!((pids_max(&bundle), &plan()["pids"]), ("55".into(), &json!(55)));
        for (flag, value, said) in [
            ("--memory", "lots", "is not a size"),
            ("--pids-limit", "many", "not a number"),
            ("--l3-cache-schema", "L3:0=f", "--l3-cache-schema"),
        ] {
            bundle.call(["update", flag, value, &bundle.id]).expect(1).expect_error(said);
        }
        bundle.call(["update", "--resources", "/nonexistent", &bundle.id]).expect(1).expect_error("/nonexistent");
        let twice = bundle.dir.file("twice.json", r#"{"pids":{"limit":1},"pids":{"limit":2}}"#);
        bundle.call(["update", "--resources", text(&twice), &bundle.id]).expect(1).expect_error("pids");
        assert_eq!(pids_max(&bundle), "55");
        bundle.call(["kill", &bundle.id, "KILL"]).expect(0);
        bundle.wait_for("stopped");
        bundle.call(["update", "--pids-limit", "5", &bundle.id]).expect(1).expect_error("not running");
    });
}

/// Traces a process, whose exit cannot finish while this runs.
const HOLD: &str = "import ctypes, sys
pid = ctypes.c_long(int(sys.argv[1]))
PTRACE_SEIZE = ctypes.c_long(0x4206)
assert ctypes.CDLL(None).ptrace(PTRACE_SEIZE, pid, None, None) == 0
print('held', flush=True)
sys.stdin.read()";

#[test]
fn a_dying_container_is_neither_updated_nor_watched() {
    ours(|runtime| {
        leaks::adopt_orphans();
        let Some(bundle) = Bundle::new(runtime, "sleep 61 & echo begun; sleep 60") else { return };
        bundle.create().expect(0);
        bundle.about("start").expect(0);
        bundle.wait_for_output("begun");
        let first = &bundle.state()["pid"];
        let pids = bundle.call(["ps", "--format", "json", &bundle.id]).expect(0).out();
        let pids: Vec<Value> = serde_json::from_str(&pids).unwrap();
        let other = pids.iter().find(|pid| *pid != first).unwrap().to_string();
        let mut command = Command::new(PYTHON);
        command.args(["-c", HOLD, &other]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut holder = command.spawn().unwrap();
        let said = BufReader::new(holder.stdout.take().unwrap()).lines().next();
        assert_eq!(said.unwrap().unwrap(), "held");
        bundle.call(["kill", &bundle.id, "KILL"]).expect(0);
        bundle.wait_for("stopped");
        let before = pids_max(&bundle);
        bundle.call(["update", "--pids-limit", "5", &bundle.id]).expect(1).expect_error("not running");
        bundle.call(["events", "--stats", &bundle.id]).expect(1).expect_error("not running");
        assert_eq!(pids_max(&bundle), before);
        // Its first process waits for all others of its namespace.
        let stat = std::fs::read_to_string(format!("/proc/{first}/stat")).unwrap();
        assert!(!stat.contains(") Z"), "{stat}");
        drop(holder.stdin.take());
        holder.wait().unwrap();
    });
}

#[test]
fn an_oom_event_is_reported_at_once() {
    for_each_runtime(|runtime| {
        if !runtime.has_events() {
            return;
        }
        leaks::adopt_orphans();
        let script = "read line </go; busybox tail /dev/zero; echo survived; sleep 60";
        let Some(mut bundle) = Bundle::new(runtime, script) else { return };
        bundle.config["linux"]["resources"]["memory"] = json!({ "limit": 32 << 20, "swap": 32 << 20 });
        bundle.config["root"]["readonly"] = json!(false);
        nix::unistd::mkfifo(&bundle.rootfs().join("go"), nix::sys::stat::Mode::from_bits_truncate(0o666)).unwrap();
        let created = bundle.create();
        if created.err().contains("memsw") || created.err().contains("swap") {
            bundle.config["linux"]["resources"]["memory"] = json!({ "limit": 32 << 20 });
            bundle.create().expect(0);
        }
        bundle.about("start").expect(0);
        // The interval is an hour, so an event that arrives now did not wait for the clock.
        let mut command = bundle.command(["events", "--interval", "1h", &bundle.id]);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        // The control prints nothing before the first interval.
        if runtime == Runtime::Ours {
            let first: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
            assert_eq!(first["type"], "stats");
        } else {
            std::thread::sleep(Duration::from_millis(1500));
        }
        std::fs::write(bundle.rootfs().join("go"), "go\n").unwrap();
        let told: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        assert_eq!((&told["type"], &told["id"]), (&json!("oom"), &json!(bundle.id)), "{told}");
        bundle.call(["kill", &bundle.id, "KILL"]).expect(0);
        if runtime == Runtime::Runc {
            child.kill().unwrap(); // it runs until the container is reaped
            child.wait().unwrap();
            return;
        }
        assert!(eventually(|| child.try_wait().unwrap().is_some()), "it ends with the container");
    });
}

#[test]
fn figures_have_the_shape_that_engines_read() {
    for_each_runtime(|runtime| {
        if !runtime.has_events() {
            return;
        }
        leaks::adopt_orphans();
        let Some(bundle) = Bundle::new(runtime, "sleep 60") else { return };
        bundle.create().expect(0);
        let mut command = bundle.command(["events", "--interval", "200ms", &bundle.id]);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().take(3);
        let lines: Vec<Value> = lines.map(|line| serde_json::from_str(&line.unwrap()).unwrap()).collect();
        assert_eq!(lines.len(), 3);
        child.kill().unwrap();
        child.wait().unwrap();
        for line in lines {
            assert_eq!((&line["type"], &line["id"]), (&json!("stats"), &json!(bundle.id)));
            let data = &line["data"];
            for path in ["/cpu/usage/total", "/memory/usage/usage", "/memory/usage/limit", "/pids/current"] {
                assert!(data.pointer(path).is_some_and(Value::is_u64), "{path} in {data}");
            }
            assert!(data["memory"]["raw"].is_object() && data["blkio"].is_object(), "{data}");
            for (size, one) in data["hugetlb"].as_object().into_iter().flatten() {
                assert!(size.ends_with('B') && one["failcnt"].is_u64(), "{size}: {one}");
            }
        }
        for (interval, fine) in [("0s", false), ("soon", false)] {
            let called = bundle.call(["events", "--interval", interval, &bundle.id]);
            assert_eq!(called.0.status.success(), fine, "{interval}");
        }
    });
}

#[test]
fn a_file_that_only_one_version_has_is_refused_on_the_other() {
    ours(|runtime| {
        let Some(mut bundle) = Bundle::new(runtime, "true") else { return };
        if is_v2() {
            bundle.config["linux"]["resources"]["network"] = json!({ "classID": 1 });
            bundle.create().expect_error("cgroup v2 does not have it");
            return;
        }
        bundle.config["linux"]["resources"]["unified"] = json!({ "memory.high": "1000000" });
        bundle.create().expect_error("is a file of cgroup v2");
        let mut command = Command::new(runtime.program());
        command.args(["--systemd-cgroup", "--root"]).arg(bundle.dir.join("state"));
        bundle.config["linux"]["resources"]["unified"] = json!({});
        bundle.command(["x"]);
        command.args(["create", "--bundle", text(bundle.dir.path()), &bundle.id]).stdin(Stdio::null());
        let called = common::bundle::Called(command.output().unwrap());
        called.expect(1).expect_error("needs cgroup v2");
    });
}
