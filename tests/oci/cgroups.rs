//! Cgroups that exist before the container: frozen ones, empty cpusets; and limits that depend on each other.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::common;
use crate::common::bundle::{Bundle, Called, Runtime, for_each_runtime, ours};
use crate::common::clock::Clock;
use serde_json::json;

fn is_v2() -> bool {
    Path::new("/sys/fs/cgroup/cgroup.controllers").exists()
}

/// A directory of cgroups, in the hierarchy of this controller, which is removed on drop.
struct Parent(PathBuf);

impl Parent {
    fn new(controller: &str, id: &str) -> Self {
        let top = if is_v2() { "/sys/fs/cgroup".into() } else { format!("/sys/fs/cgroup/{controller}") };
        let path = Path::new(&top).join(id);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn write(&self, file: &str, text: &str) {
        std::fs::write(self.0.join(file), text).unwrap();
    }
}

impl Drop for Parent {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

/// The file of the container's cgroup, in the hierarchy of its controller.
fn value(bundle: &Bundle, controller: &str, file: &str) -> String {
    let top = if is_v2() { String::new() } else { format!("{controller}/") };
    let path = format!("/sys/fs/cgroup/{top}{}/{file}", bundle.id);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}")).trim().to_owned()
}

fn created(bundle: &Bundle) -> Called {
    common::leaks::adopt_orphans();
    bundle.create()
}

/// The controls wait for a process that never runs.
#[test]
fn a_frozen_cgroup_is_an_error_and_not_a_hang() {
    ours(|runtime| {
        let Some(mut bundle) = Bundle::new(runtime, "true") else { return };
        let parent = Parent::new("freezer", &bundle.id);
        bundle.config["linux"]["cgroupsPath"] = json!(format!("/{}/below", bundle.id));
        let (file, frozen, thawed) = match is_v2() {
            true => ("cgroup.freeze", "1", "0"),
            false => ("freezer.state", "FROZEN", "THAWED"),
        };
        parent.write(file, frozen);
        let clock = Clock::start();
        bundle.run().expect_error("is frozen");
        assert!(!clock.is_past(Duration::from_secs(20)));
        parent.write(file, thawed);
        bundle.run().expect(0);
        bundle.about("delete");
    });
}

/// The container is also in the cgroup of v2, whose freezer is another one.
#[test]
fn a_frozen_cgroup_of_v2_on_a_hybrid_host_is_an_error_and_not_a_hang() {
    if !Path::new("/sys/fs/cgroup/unified/cgroup.procs").exists() {
        return common::skip("not a hybrid host");
    }
    ours(|runtime| {
        let Some(mut bundle) = Bundle::new(runtime, "true") else { return };
        let parent = Parent::new("unified", &bundle.id);
        bundle.config["linux"]["cgroupsPath"] = json!(format!("/{}/below", bundle.id));
        parent.write("cgroup.freeze", "1");
        bundle.run().expect_error("is frozen");
        parent.write("cgroup.freeze", "0");
        bundle.run().expect(0);
        bundle.about("delete");
        for top in ["cpu", "memory"] {
            let _ = std::fs::remove_dir(Path::new("/sys/fs/cgroup").join(top).join(&bundle.id));
        }
    });
}

/// A new cpuset of v1 is empty, and takes no process until it is filled. An engine's may be empty too.
#[test]
fn an_empty_cpuset_above_the_container_is_filled() {
    if is_v2() {
        return common::skip("in cgroup v2 an empty cpuset has the CPUs of the one above");
    }
    for_each_runtime(|runtime| {
        let Some(mut bundle) = Bundle::new(runtime, "grep Cpus_allowed_list /proc/self/status") else { return };
        let parent = Parent::new("cpuset", &bundle.id);
        let below = Parent::new("cpuset", &format!("{}/deep", bundle.id));
        assert_eq!(std::fs::read_to_string(parent.0.join("cpuset.mems")).unwrap().trim(), "");
        bundle.config["linux"]["cgroupsPath"] = json!(format!("/{}/deep/below", bundle.id));
        bundle.run().expect(0);
        bundle.about("delete");
        assert_ne!(std::fs::read_to_string(parent.0.join("cpuset.mems")).unwrap().trim(), "");
        drop(below);
    });
}

#[test]
fn a_weight_reaches_the_file_that_the_kernel_has() {
    for_each_runtime(|runtime| {
        let Some(mut bundle) = Bundle::new(runtime, "sleep 60") else { return };
        bundle.config["linux"]["resources"] = json!({ "blockIO": { "weight": 333 } });
        let file = match is_v2() {
            true => "io.weight",
            false if Path::new("/sys/fs/cgroup/blkio/blkio.weight").exists() => "blkio.weight",
            false => "blkio.bfq.weight",
        };
        if runtime == Runtime::Crun && file == "blkio.bfq.weight" {
            return; // this version writes blkio.weight only
        }
        created(&bundle).expect(0);
        let path = bundle.cgroups().into_iter().find_map(|path| std::fs::read_to_string(path.join(file)).ok());
        let Some(now) = path else { return common::skip_part(file, "this kernel does not have it") };
        // crun writes the scale of io.weight to io.bfq.weight if that exists.
        let expected: &[&str] = if is_v2() { &["default 3263", "default 3264"] } else { &["333"] };
        assert!(expected.contains(&now.trim()), "{file}: {now}");
    });
}

#[test]
fn an_idle_cgroup_gets_shares_when_it_is_no_longer_idle() {
    ours(|runtime| {
        let Some(mut bundle) = Bundle::new(runtime, "sleep 60") else { return };
        bundle.config["linux"]["resources"] = json!({ "cpu": { "shares": 512, "idle": 1 } });
        let called = created(&bundle);
        if called.err().contains("cpu.idle") {
            return common::skip("this kernel has no cpu.idle");
        }
        called.expect(0);
        assert_eq!(value(&bundle, "cpu", "cpu.idle"), "1");
        let file = bundle.dir.file("resources.json", json!({ "cpu": { "shares": 2048, "idle": 0 } }).to_string());
        bundle.call(["update", "--resources", common::text(&file), &bundle.id]).expect(0);
        assert_eq!(value(&bundle, "cpu", "cpu.idle"), "0");
        let (shares, expected) = if is_v2() { ("cpu.weight", "174") } else { ("cpu.shares", "2048") };
        assert_eq!(value(&bundle, "cpu", shares), expected);
    });
}

/// The runtime may not exceed the period, so the order of the two writes depends on the values before.
#[test]
fn real_time_limits_change_in_either_direction() {
    if is_v2() || !Path::new("/sys/fs/cgroup/cpu/cpu.rt_runtime_us").exists() {
        return common::skip("this kernel has no real-time groups");
    }
    ours(|runtime| {
        let Some(mut bundle) = Bundle::new(runtime, "sleep 60") else { return };
        let limits = |period: u64, time: i64| json!({ "cpu": { "realtimePeriod": period, "realtimeRuntime": time } });
        bundle.config["linux"]["resources"] = limits(400_000, 2_000);
        let called = created(&bundle);
        if called.err().contains("cpu.rt_runtime_us") {
            return common::skip("no real-time is left for this test");
        }
        called.expect(0);
        for (period, time) in [(800_000, 4_000), (3_000, 1_000), (900_000, 5_000)] {
            let file = bundle.dir.file("resources.json", limits(period, time).to_string());
            bundle.call(["update", "--resources", common::text(&file), &bundle.id]).expect(0);
            let now = (value(&bundle, "cpu", "cpu.rt_period_us"), value(&bundle, "cpu", "cpu.rt_runtime_us"));
            assert_eq!(now, (period.to_string(), time.to_string()));
        }
    });
}

#[test]
fn a_limit_on_processes_of_zero_or_less_is_none() {
    for_each_runtime(|runtime| {
        let Some(mut bundle) = Bundle::new(runtime, "sleep 60") else { return };
        for (limit, expected) in [(0, "max"), (-1, "max"), (17, "17")] {
            if runtime == Runtime::Crun && limit < 0 {
                continue; // this version writes the number as it is, which fails
            }
            bundle.config["linux"]["resources"] = json!({ "pids": { "limit": limit } });
            created(&bundle).expect(0);
            assert_eq!(value(&bundle, "pids", "pids.max"), expected, "{limit}");
            bundle.call(["delete", "--force", &bundle.id]).expect(0);
        }
    });
}

#[test]
fn a_file_in_unified_prevails_over_the_field_for_it() {
    if !is_v2() {
        return common::skip("this host has no cgroup v2");
    }
    for_each_runtime(|runtime| {
        let Some(mut bundle) = Bundle::new(runtime, "sleep 60") else { return };
        bundle.config["linux"]["resources"] = json!({
            "pids": { "limit": 17 }, "memory": { "limit": 64 << 20 },
            "unified": { "pids.max": "19", "memory.max": (32 << 20).to_string() },
        });
        created(&bundle).expect(0);
        assert_eq!(value(&bundle, "pids", "pids.max"), "19");
        assert_eq!(value(&bundle, "memory", "memory.max"), (32 << 20).to_string());
    });
}

/// A program with the capability may make any node, and use those that every container has and `/dev/net/tun`.
#[test]
fn nodes_can_be_made_inside_and_used_as_under_runc() {
    for_each_runtime(|runtime| {
        let script = "for n in '1 3' '1 5' '5 2' '10 200' '1 11' '10 237'; do rm -f /dev/made; mknod /dev/made c $n || echo not made; \
            (: </dev/made) 2>&1 | grep -o 'not permitted' || echo used; done; mknod /dev/block b 7 77 && echo made";
        let Some(mut bundle) = Bundle::new(runtime, script) else { return };
        bundle.config["linux"]["resources"] = json!({ "devices": [{ "allow": false, "access": "rwm" }] });
        for set in ["bounding", "effective", "permitted"] {
            bundle.config["process"]["capabilities"][set] = json!(["CAP_MKNOD"]);
        }
        let said = bundle.run().expect(0).out();
        // crun does not allow /dev/net/tun.
        let tun = if runtime == Runtime::Crun { "not permitted" } else { "used" };
        let expected = format!("used\nused\nused\n{tun}\nnot permitted\nnot permitted\nmade\n");
        assert_eq!(said, expected);
    });
}
