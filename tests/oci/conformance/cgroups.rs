//! `linux.cgroupsPath` and `linux.resources`: what the kernel's files say.

use serde_json::{Value, json};

use super::Runtime::{Crun, Runc};
use super::case::Need::{CgroupV1, CgroupV2, File};
use super::case::{Case, case};
use super::exec::running;

/// A created container with these limits, whose value in a file of a v1 controller or of v2 is printed.
fn limit(name: &'static str, resources: Value, host: &'static str) -> Case {
    let mut case = case(name).host(host);
    for (key, value) in resources.as_object().unwrap() {
        case = case.set(&format!("linux.resources.{key}"), value.clone());
    }
    case
}

fn v1(name: &'static str, resources: Value, host: &'static str) -> Case {
    limit(name, resources, host).needs(CgroupV1)
}

fn v2(name: &'static str, resources: Value, host: &'static str) -> Case {
    limit(name, resources, host).needs(CgroupV2)
}

/// Cgroup v2 of a hybrid host.
const UNIFIED: &str = "/sys/fs/cgroup/unified/cgroup.procs";

const LINE: &str = "older formula: the default of v1 is a weight of 39 there";

const MIB: u64 = 1 << 20;

pub(super) fn cases() -> Vec<Case> {
    vec![
        case("a_container_has_its_cgroup").host("create; grep -c \"/$ID\\$\" /proc/$(pid)/cgroup | grep -vcx 0")
            .prints("1\n"),
        case("a_container_is_in_every_hierarchy_of_a_hybrid_host")
            .host("create; grep -v \"/$ID\\$\" /proc/$(pid)/cgroup; start; remove -f; ls -d /sys/fs/cgroup/*/$ID 2>/dev/null | wc -l")
            .prints("0\n").needs(File(UNIFIED)).but(Crun, |seen| seen.prints("0::/\n0\n"), "it runs without cgroup v2 alone"),
        case("exec_is_in_every_hierarchy_of_a_hybrid_host").inside("sleep 20")
            .host("up; rt exec -d --pid-file $B/second $ID sleep 20; grep -v \"/$ID\\$\" /proc/$(cat second)/cgroup").exits(1)
            .needs(File(UNIFIED)).not_on(Crun, "it runs without cgroup v2 alone"),
        case("the_hierarchy_of_systemd_is_shown").inside("cat /sys/fs/cgroup/systemd/cgroup.procs | busybox head -1")
            .prints("1\n").needs(File("/sys/fs/cgroup/systemd/cgroup.procs")),
        case("cgroup_v2_of_a_hybrid_host_is_shown").inside("cat /sys/fs/cgroup/unified/cgroup.procs | busybox head -1")
            .prints("1\n").needs(File(UNIFIED)).but(Runc, |seen| seen.prints(""), "it shows the hierarchies of v1 alone")
            .but(Crun, |seen| seen.prints(""), "it runs without cgroup v2 alone"),
        case("a_cgroup_is_removed")
            .host("up; await stopped; remove; ls -d /sys/fs/cgroup/*/$ID /sys/fs/cgroup/$ID 2>/dev/null | wc -l")
            .prints("0\n"),
        case("a_cgroup_below_others").set("linux.cgroupsPath", json!("/{id}/a/b"))
            .host("create; grep -c \"/$ID/a/b\\$\" /proc/$(pid)/cgroup | grep -vcx 0; remove -f; for d in /sys/fs/cgroup/*/$ID /sys/fs/cgroup/$ID; do [ -d $d ] && find $d -depth -type d -exec rmdir {} +; done; true")
            .prints("1\n"),
        case("a_cgroup_with_a_trailing_slash").set("linux.cgroupsPath", json!("/{id}/"))
            .host("create; grep -c \"/$ID\\$\" /proc/$(pid)/cgroup | grep -vcx 0").prints("1\n")
            .not_on(Crun, "on cgroup v2 it takes the path for one that has a cgroup below"),
        case("a_cgroup_above_the_root").set("linux.cgroupsPath", json!("/../../{id}")).fails("leads out of itself")
            .but(Runc, |seen| seen.exits(0), "it takes the path from the root; where it leads then is not what it says"),
        case("no_resources").without("linux.resources").inside("echo x").prints("x\n"),
        case("empty_resources").set("linux.resources", json!({})).inside("echo x").prints("x\n"),
        case("empty_limits").set("linux.resources.memory", json!({})).set("linux.resources.cpu", json!({}))
            .set("linux.resources.blockIO", json!({})).inside("echo x").prints("x\n"),
        case("a_cgroup_namespace_shows_the_root").inside("busybox cut -d: -f3 /proc/self/cgroup | busybox sort -u")
            .prints("/\n").needs(CgroupV2),
        v1("a_memory_limit_v1", json!({"memory": {"limit": 64 * MIB}}), "create; cat /sys/fs/cgroup/memory/$ID/memory.limit_in_bytes")
            .prints("67108864\n"),
        v2("a_memory_limit_v2", json!({"memory": {"limit": 64 * MIB}}), "create; cat /sys/fs/cgroup/$ID/memory.max")
            .prints("67108864\n"),
        v1("no_memory_limit_v1", json!({"memory": {"limit": -1}}), "create; cat /sys/fs/cgroup/memory/$ID/memory.limit_in_bytes")
            .prints("9223372036854771712\n"),
        v2("no_memory_limit_v2", json!({"memory": {"limit": -1}}), "create; cat /sys/fs/cgroup/$ID/memory.max")
            .prints("max\n"),
        v1("a_reservation_v1", json!({"memory": {"reservation": 32 * MIB}}), "create; cat /sys/fs/cgroup/memory/$ID/memory.soft_limit_in_bytes")
            .prints("33554432\n"),
        v2("a_reservation_v2", json!({"memory": {"reservation": 32 * MIB}}), "create; cat /sys/fs/cgroup/$ID/memory.low")
            .prints("33554432\n"),
        v2("swap_v2", json!({"memory": {"limit": 64 * MIB, "swap": 96 * MIB}}), "create; cat /sys/fs/cgroup/$ID/memory.swap.max")
            .prints("33554432\n").needs(File("/proc/swaps")),
        v1("swappiness_v1", json!({"memory": {"swappiness": 30}}), "create; cat /sys/fs/cgroup/memory/$ID/memory.swappiness")
            .prints("30\n"),
        limit("a_limit_below_zero", json!({"memory": {"limit": -2}}), "run").fails("memory.limit"),
        limit("swappiness_out_of_range", json!({"memory": {"swappiness": 201}}), "run").fails("swappiness")
            .needs(CgroupV1),
        v1("shares_v1", json!({"cpu": {"shares": 512}}), "create; cat /sys/fs/cgroup/cpu/$ID/cpu.shares")
            .prints("512\n"),
        v2("shares_v2", json!({"cpu": {"shares": 512}}), "create; cat /sys/fs/cgroup/$ID/cpu.weight").prints("59\n")
            .but(Runc, |seen| seen.prints("20\n"), LINE).but(Crun, |seen| seen.prints("20\n"), LINE),
        v2("the_fewest_shares_v2", json!({"cpu": {"shares": 2}}), "create; cat /sys/fs/cgroup/$ID/cpu.weight")
            .prints("1\n"),
        v2("the_most_shares_v2", json!({"cpu": {"shares": 262_144}}), "create; cat /sys/fs/cgroup/$ID/cpu.weight")
            .prints("10000\n"),
        v1("no_shares_v1", json!({"cpu": {"shares": 0}}), "create; cat /sys/fs/cgroup/cpu/$ID/cpu.shares")
            .prints("1024\n"),
        v1("a_quota_v1", json!({"cpu": {"quota": 50_000, "period": 100_000}}), "create; cat /sys/fs/cgroup/cpu/$ID/cpu.cfs_quota_us /sys/fs/cgroup/cpu/$ID/cpu.cfs_period_us")
            .prints("50000\n100000\n"),
        v2("a_quota_v2", json!({"cpu": {"quota": 50_000, "period": 100_000}}), "create; cat /sys/fs/cgroup/$ID/cpu.max")
            .prints("50000 100000\n"),
        v2("a_quota_alone_v2", json!({"cpu": {"quota": 50_000}}), "create; cat /sys/fs/cgroup/$ID/cpu.max")
            .prints("50000 100000\n"),
        v2("a_period_alone_v2", json!({"cpu": {"period": 50_000}}), "create; cat /sys/fs/cgroup/$ID/cpu.max")
            .prints("max 50000\n"),
        v1("a_period_alone_v1", json!({"cpu": {"period": 50_000}}), "create; cat /sys/fs/cgroup/cpu/$ID/cpu.cfs_period_us")
            .prints("50000\n"),
        v1("no_quota_v1", json!({"cpu": {"quota": -1}}), "create; cat /sys/fs/cgroup/cpu/$ID/cpu.cfs_quota_us")
            .prints("-1\n"),
        v2("no_quota_v2", json!({"cpu": {"quota": -1}}), "create; cat /sys/fs/cgroup/$ID/cpu.max")
            .prints("max 100000\n"),
        v1("cpus_v1", json!({"cpu": {"cpus": "0", "mems": "0"}}), "create; cat /sys/fs/cgroup/cpuset/$ID/cpuset.cpus /sys/fs/cgroup/cpuset/$ID/cpuset.mems")
            .prints("0\n0\n"),
        v2("cpus_v2", json!({"cpu": {"cpus": "0"}}), "create; cat /sys/fs/cgroup/$ID/cpuset.cpus").prints("0\n"),
        limit("cpus_that_are_missing", json!({"cpu": {"cpus": "5000"}}), "run").fails("cpus"),
        limit("cpus_that_are_no_list", json!({"cpu": {"cpus": "x"}}), "run").fails("cpus"),
        v1("a_number_of_processes_v1", json!({"pids": {"limit": 50}}), "create; cat /sys/fs/cgroup/pids/$ID/pids.max")
            .prints("50\n"),
        v2("a_number_of_processes_v2", json!({"pids": {"limit": 50}}), "create; cat /sys/fs/cgroup/$ID/pids.max")
            .prints("50\n"),
        v1("any_number_of_processes_v1", json!({"pids": {"limit": -1}}), "create; cat /sys/fs/cgroup/pids/$ID/pids.max")
            .prints("max\n"),
        v2("any_number_of_processes_v2", json!({"pids": {"limit": -1}}), "create; cat /sys/fs/cgroup/$ID/pids.max")
            .prints("max\n"),
        limit("a_process_limit_is_enforced", json!({"pids": {"limit": 3}}), "run 2>/dev/null")
            .inside("sleep 5 & sleep 5 & sleep 5 & sleep 5 & echo no").exits(2),
        v1("a_throttle_v1", json!({"blockIO": {"throttleReadBpsDevice": [{"major": 7, "minor": 0, "rate": 1_000_000}]}}), "create; cat /sys/fs/cgroup/blkio/$ID/blkio.throttle.read_bps_device")
            .prints("7:0 1000000\n").needs(File("/dev/loop0")),
        v2("a_throttle_v2", json!({"blockIO": {"throttleReadBpsDevice": [{"major": 7, "minor": 0, "rate": 1_000_000}]}}), "create; cat /sys/fs/cgroup/$ID/io.max")
            .prints("7:0 rbps=1000000 wbps=max riops=max wiops=max\n").needs(File("/sys/block/loop0")),
        v2("unified_v2", json!({"unified": {"pids.max": "33"}}), "create; cat /sys/fs/cgroup/$ID/pids.max")
            .prints("33\n"),
        v2("an_unknown_file_of_unified_v2", json!({"unified": {"nonsense.max": "33"}}), "run").fails("nonsense.max"),
        v2("a_path_in_unified_v2", json!({"unified": {"../pids.max": "33"}}), "run").fails("../pids.max"),
        v2("unified_over_a_limit_v2", json!({"pids": {"limit": 50}, "unified": {"pids.max": "33"}}), "create; cat /sys/fs/cgroup/$ID/pids.max")
            .prints("33\n"),
        v2("idle_v2", json!({"cpu": {"idle": 1}}), "create; cat /sys/fs/cgroup/$ID/cpu.idle").prints("1\n")
            .but(Runc, |seen| seen.prints("0\n"), "1.1 does not know the field"),
        v1("unified_v1", json!({"unified": {"pids.max": "33"}}), "run").fails("is a file of cgroup v2"),
        v1("a_real_time_limit_v1", json!({"cpu": {"realtimeRuntime": 1000, "realtimePeriod": 1_000_000}}), "create; cat /sys/fs/cgroup/cpu/$ID/cpu.rt_runtime_us")
            .prints("1000\n").needs(File("/sys/fs/cgroup/cpu/cpu.rt_runtime_us")),
        limit("a_device_that_no_rule_allows", json!({"devices": [{"allow": false, "access": "rwm"}]}), "run")
            .push("linux.devices", json!({"path": "/dev/mem", "type": "c", "major": 1, "minor": 1}))
            .inside("busybox head -c 1 /dev/mem").exits(1),
        limit("a_device_that_a_rule_allows", json!({"devices": [{"allow": false, "access": "rwm"}, {"allow": true, "type": "c", "major": 10, "minor": 229, "access": "rw"}]}), "run")
            .push("linux.devices", json!({"path": "/dev/fuse", "type": "c", "major": 10, "minor": 229}))
            .inside("exec 3</dev/fuse && echo open").prints("open\n").needs(File("/dev/fuse")),
        limit("a_device_for_reading_alone", json!({"devices": [{"allow": false, "access": "rwm"}, {"allow": true, "type": "c", "major": 10, "minor": 229, "access": "r"}]}), "run")
            .push("linux.devices", json!({"path": "/dev/fuse", "type": "c", "major": 10, "minor": 229}))
            .inside("(exec 3</dev/fuse) && echo reads; (exec 3>>/dev/fuse) 2>/dev/null || echo refused")
            .prints("reads\nrefused\n").needs(File("/dev/fuse")),
        limit("a_device_rule_of_an_unknown_type", json!({"devices": [{"allow": true, "type": "x", "access": "rwm"}]}), "run")
            .fails("type").not_on(Crun, "on cgroup v2 it ignores unknown values"),
        limit("a_device_rule_of_unknown_access", json!({"devices": [{"allow": true, "type": "c", "access": "xyz"}]}), "run")
            .fails("access").but(Runc, |seen| seen.exits(0), "it ignores unknown letters")
            .not_on(Crun, "on cgroup v2 it ignores unknown values"),
        limit("standard_devices_need_no_rule", json!({"devices": [{"allow": false, "access": "rwm"}]}), "run")
            .inside("for d in null zero full random urandom; do (exec 3</dev/$d) && echo $d; done")
            .prints("null\nzero\nfull\nrandom\nurandom\n"),
        case("a_cgroup_mount_is_read_only").inside("busybox mkdir /sys/fs/cgroup/x 2>/dev/null").exits(1)
            .needs(CgroupV1).but(Crun, |seen| seen.exits(0), "on v1 the tmpfs above the hierarchies is writable"),
        case("a_cgroup_mount_shows_the_containers").inside("cat /sys/fs/cgroup/cgroup.procs | busybox head -1")
            .prints("1\n").needs(CgroupV2),
        case("a_cgroup_mount_shows_the_containers_v1")
            .inside("cat /sys/fs/cgroup/pids/cgroup.procs | busybox head -1").prints("1\n").needs(CgroupV1),
        running("exec_joins_the_containers_cgroup", "up; mkdir /sys/fs/cgroup/$ID/sub; cat pid >/sys/fs/cgroup/$ID/sub/cgroup.procs; rt exec $ID grep ^0: /proc/self/cgroup")
            .prints("0::/\n").needs(CgroupV2),
        running("exec_joins_the_first_process_if_the_cgroup_takes_none", "up; mkdir /sys/fs/cgroup/$ID/sub; cat pid >/sys/fs/cgroup/$ID/sub/cgroup.procs; until_so sh -c \"echo +memory >/sys/fs/cgroup/$ID/cgroup.subtree_control\"; rt exec $ID grep ^0: /proc/self/cgroup")
            .prints("0::/sub\n").needs(CgroupV2),
    ]
}
