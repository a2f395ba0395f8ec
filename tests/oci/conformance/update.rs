//! `update`: limits of a running container, by flags and as JSON; `events` shows them.

use serde_json::json;

use super::Runtime::{Crun, Runc};
use super::case::Need::{CgroupV1, CgroupV2, File};
use super::case::{Case, case};

/// A running container, on which an update is made.
fn update(name: &'static str, host: &'static str) -> Case {
    case(name).inside("trap exit TERM; while :; do sleep 0.05; done").host(host)
}

fn v1(name: &'static str, host: &'static str) -> Case {
    update(name, host).needs(CgroupV1)
}

fn v2(name: &'static str, host: &'static str) -> Case {
    update(name, host).needs(CgroupV2)
}

const LINE: &str = "older formula: the default of v1 is a weight of 39 there";

pub(super) fn cases() -> Vec<Case> {
    vec![
        v1("update_memory_v1", "up; rt update --memory 64M $ID; cat /sys/fs/cgroup/memory/$ID/memory.limit_in_bytes")
            .prints("67108864\n").but(Crun, |seen| seen.prints("9223372036854771712\n"), "1.8 takes numbers alone"),
        v2("update_memory_v2", "up; rt update --memory 64M $ID; cat /sys/fs/cgroup/$ID/memory.max")
            .prints("67108864\n").but(Crun, |seen| seen.prints("max\n"), "1.8 takes numbers alone"),
        v1("update_memory_in_bytes_v1", "up; rt update --memory 67108864 $ID; cat /sys/fs/cgroup/memory/$ID/memory.limit_in_bytes")
            .prints("67108864\n"),
        v2("update_memory_in_bytes_v2", "up; rt update --memory 67108864 $ID; cat /sys/fs/cgroup/$ID/memory.max")
            .prints("67108864\n"),
        v2("update_to_any_memory_v2", "up; rt update --memory 33554432 --memory-swap 67108864 $ID; rt update --memory -1 $ID; cat /sys/fs/cgroup/$ID/memory.max /sys/fs/cgroup/$ID/memory.swap.max")
            .prints("max\nmax\n")
            .but(Crun, |seen| seen.prints("max\n33554432\n"), "1.8 keeps the limit on swap"),
        v1("update_reservation_v1", "up; rt update --memory-reservation 33554432 $ID; cat /sys/fs/cgroup/memory/$ID/memory.soft_limit_in_bytes")
            .prints("33554432\n"),
        v2("update_reservation_v2", "up; rt update --memory-reservation 33554432 $ID; cat /sys/fs/cgroup/$ID/memory.low")
            .prints("33554432\n"),
        v1("update_shares_v1", "up; rt update --cpu-share 512 $ID; cat /sys/fs/cgroup/cpu/$ID/cpu.shares")
            .prints("512\n"),
        v2("update_shares_v2", "up; rt update --cpu-share 512 $ID; cat /sys/fs/cgroup/$ID/cpu.weight").prints("59\n")
            .but(Runc, |seen| seen.prints("20\n"), LINE).but(Crun, |seen| seen.prints("20\n"), LINE),
        v1("update_quota_v1", "up; rt update --cpu-quota 50000 --cpu-period 100000 $ID; cat /sys/fs/cgroup/cpu/$ID/cpu.cfs_quota_us")
            .prints("50000\n"),
        v2("update_quota_v2", "up; rt update --cpu-quota 50000 --cpu-period 100000 $ID; cat /sys/fs/cgroup/$ID/cpu.max")
            .prints("50000 100000\n"),
        v1("update_quota_alone_v1", "up; rt update --cpu-quota 50000 $ID; cat /sys/fs/cgroup/cpu/$ID/cpu.cfs_quota_us")
            .prints("50000\n"),
        v2("update_quota_alone_v2", "up; rt update --cpu-quota 50000 $ID; cat /sys/fs/cgroup/$ID/cpu.max")
            .prints("50000 100000\n"),
        v1("update_removes_the_quota_v1", "up; rt update --cpu-quota 50000 $ID; rt update --cpu-quota -1 $ID; cat /sys/fs/cgroup/cpu/$ID/cpu.cfs_quota_us")
            .prints("-1\n").but(Crun, |seen| seen.prints("50000\n"), "1.8 writes -1 as a positive number"),
        v2("update_removes_the_quota_v2", "up; rt update --cpu-quota 50000 $ID; rt update --cpu-quota -1 $ID; cat /sys/fs/cgroup/$ID/cpu.max")
            .prints("max 100000\n").but(Crun, |seen| seen.prints("50000 100000\n"), "1.8 does not write -1"),
        v1("update_cpus_v1", "up; rt update --cpuset-cpus 0 $ID; cat /sys/fs/cgroup/cpuset/$ID/cpuset.cpus")
            .prints("0\n"),
        v2("update_cpus_v2", "up; rt update --cpuset-cpus 0 $ID; cat /sys/fs/cgroup/$ID/cpuset.cpus").prints("0\n"),
        v1("update_processes_v1", "up; rt update --pids-limit 40 $ID; cat /sys/fs/cgroup/pids/$ID/pids.max")
            .prints("40\n"),
        v2("update_processes_v2", "up; rt update --pids-limit 40 $ID; cat /sys/fs/cgroup/$ID/pids.max").prints("40\n"),
        v1("update_to_any_number_of_processes_v1", "up; rt update --pids-limit 40 $ID; rt update --pids-limit -1 $ID; cat /sys/fs/cgroup/pids/$ID/pids.max")
            .prints("max\n").but(Crun, |seen| seen.prints("40\n"), "1.8 writes -1 as a positive number"),
        v2("update_to_any_number_of_processes_v2", "up; rt update --pids-limit 40 $ID; rt update --pids-limit -1 $ID; cat /sys/fs/cgroup/$ID/pids.max")
            .prints("max\n"),
        v1("update_by_json_v1", "up; echo '{\"pids\":{\"limit\":40},\"cpu\":{\"shares\":512}}' >r; rt update --resources r $ID; cat /sys/fs/cgroup/pids/$ID/pids.max /sys/fs/cgroup/cpu/$ID/cpu.shares")
            .prints("40\n512\n"),
        v2("update_by_json_v2", "up; echo '{\"pids\":{\"limit\":40},\"cpu\":{\"shares\":512}}' >r; rt update --resources r $ID; cat /sys/fs/cgroup/$ID/pids.max /sys/fs/cgroup/$ID/cpu.weight")
            .prints("40\n59\n")
            .but(Runc, |seen| seen.prints("40\n20\n"), LINE).but(Crun, |seen| seen.prints("40\n20\n"), LINE),
        v1("update_from_standard_input_v1", "up; echo '{\"pids\":{\"limit\":40}}' | rt update --resources - $ID; cat /sys/fs/cgroup/pids/$ID/pids.max")
            .prints("40\n"),
        v2("update_from_standard_input_v2", "up; echo '{\"pids\":{\"limit\":40}}' | rt update --resources - $ID; cat /sys/fs/cgroup/$ID/pids.max")
            .prints("40\n"),
        v1("update_keeps_the_other_limits_v1", "up; rt update --cpu-share 512 $ID; cat /sys/fs/cgroup/pids/$ID/pids.max")
            .set("linux.resources.pids", json!({"limit": 77})).prints("77\n"),
        v2("update_keeps_the_other_limits_v2", "up; rt update --cpu-share 512 $ID; cat /sys/fs/cgroup/$ID/pids.max")
            .set("linux.resources.pids", json!({"limit": 77})).prints("77\n"),
        v2("update_by_unified_v2", "up; echo '{\"unified\":{\"pids.max\":\"41\"}}' | rt update --resources - $ID; cat /sys/fs/cgroup/$ID/pids.max")
            .prints("41\n"),
        v1("update_of_a_created_container_v1", "create; rt update --pids-limit 40 $ID; cat /sys/fs/cgroup/pids/$ID/pids.max; status")
            .prints("40\ncreated\n"),
        v2("update_of_a_created_container_v2", "create; rt update --pids-limit 40 $ID; cat /sys/fs/cgroup/$ID/pids.max; status")
            .prints("40\ncreated\n"),
        update("update_of_a_paused_container", "up; rt pause $ID; rt update --pids-limit 40 $ID; echo $?; status")
            .prints("0\npaused\n"),
        update("update_of_a_stopped_container", "up; rt kill $ID KILL; await stopped; rt update --pids-limit 40 $ID")
            .fails("").but(Crun, |seen| seen.exits(0), "it writes into the cgroup that is left"),
        update("update_without_a_limit", "up; rt update $ID; echo $?").prints("0\n"),
        update("update_by_an_empty_object", "up; echo '{}' | rt update --resources - $ID; echo $?").prints("0\n"),
        update("update_by_broken_json", "up; echo '{' | rt update --resources - $ID").fails("standard input"),
        update("update_by_a_missing_file", "up; rt update --resources /nonexistent $ID").fails("/nonexistent"),
        update("update_to_no_number", "up; rt update --pids-limit x $ID").fails("pids-limit")
            .but(Runc, |seen| seen.prints_parts(&["USAGE"]), "it prints its usage"),
        update("update_to_a_size_of_nonsense", "up; rt update --memory 5x $ID").fails("memory"),
        update("update_to_missing_cpus", "up; rt update --cpuset-cpus 5000 $ID").fails("cpus"),
        update("an_update_that_fails_leaves_the_container", "up; rt update --cpuset-cpus 5000 $ID; status")
            .prints("running\n"),
        v1("an_update_that_fails_changes_nothing_v1", "up; echo '{\"pids\":{\"limit\":40},\"cpu\":{\"cpus\":\"5000\"}}' | rt update --resources - $ID; echo $?; cat /sys/fs/cgroup/pids/$ID/pids.max")
            .set("linux.resources.pids", json!({"limit": 77})).prints("1\n77\n")
            .but(Crun, |seen| seen.prints("1\n40\n"), "it keeps what it wrote before the failure"),
        v2("an_update_that_fails_changes_nothing_v2", "up; echo '{\"pids\":{\"limit\":40},\"cpu\":{\"cpus\":\"5000\"}}' | rt update --resources - $ID; echo $?; cat /sys/fs/cgroup/$ID/pids.max")
            .set("linux.resources.pids", json!({"limit": 77})).prints("1\n77\n")
            .but(Runc, |seen| seen.prints("1\n40\n"), "it cannot set back what it wrote")
            .but(Crun, |seen| seen.prints("1\n40\n"), "it keeps what it wrote before the failure"),
        v1("flag_cpu_period_v1", "up; rt update --cpu-period 50000 $ID; cat /sys/fs/cgroup/cpu/$ID/cpu.cfs_period_us")
            .prints("50000\n"),
        v2("flag_cpu_period_v2", "up; rt update --cpu-period 50000 $ID; cat /sys/fs/cgroup/$ID/cpu.max")
            .prints("max 50000\n"),
        v1("a_shorter_period_below_a_limit_v1", "up; cd /sys/fs/cgroup/cpu/$ID; rt update --cpu-quota 30000 $ID; echo 50000 >cpu.cfs_quota_us; rt update --cpu-period 10000 --cpu-quota 3000 $ID; cat c/cpu.cfs_quota_us c/cpu.cfs_period_us; remove -f; for d in /sys/fs/cgroup/*/$ID; do rmdir $d; done")
            .set("linux.cgroupsPath", json!("/{id}/c")).prints("3000\n10000\n")
            .not_on(Runc, "1.1 writes the period first").not_on(Crun, "1.8 writes the period first"),
        v1("flag_cpu_burst_v1", "up; rt update --cpu-quota 50000 --cpu-burst 10000 $ID; cat /sys/fs/cgroup/cpu/$ID/cpu.cfs_burst_us")
            .prints("10000\n").not_on(Runc, "1.1 does not have the option").not_on(Crun, "1.8 does not have the option"),
        v2("flag_cpu_burst_v2", "up; rt update --cpu-quota 50000 --cpu-burst 10000 $ID; cat /sys/fs/cgroup/$ID/cpu.max.burst")
            .prints("10000\n").not_on(Runc, "1.1 does not have the option").not_on(Crun, "1.8 does not have the option"),
        v1("flag_cpu_idle_v1", "up; rt update --cpu-idle 1 $ID; cat /sys/fs/cgroup/cpu/$ID/cpu.idle").prints("1\n")
            .not_on(Runc, "1.1 does not have the option").not_on(Crun, "1.8 does not have the option"),
        v2("flag_cpu_idle_v2", "up; rt update --cpu-idle 1 $ID; cat /sys/fs/cgroup/$ID/cpu.idle").prints("1\n")
            .not_on(Runc, "1.1 does not have the option").not_on(Crun, "1.8 does not have the option"),
        v1("flag_no_shares_v1", "up; rt update --cpu-share 512 $ID; rt update --cpu-share 0 $ID; cat /sys/fs/cgroup/cpu/$ID/cpu.shares")
            .prints("512\n"),
        v1("flag_rt_period_v1", "up; rt update --cpu-rt-period 900000 $ID; cat /sys/fs/cgroup/cpu/$ID/cpu.rt_period_us")
            .prints("900000\n").needs(File("/sys/fs/cgroup/cpu/cpu.rt_period_us")),
        v1("flag_rt_runtime_v1", "up; rt update --cpu-rt-runtime 1000 $ID; cat /sys/fs/cgroup/cpu/$ID/cpu.rt_runtime_us")
            .prints("1000\n").needs(File("/sys/fs/cgroup/cpu/cpu.rt_runtime_us")),
        v1("flag_nodes_v1", "up; rt update --cpuset-mems 0 $ID; cat /sys/fs/cgroup/cpuset/$ID/cpuset.mems").prints("0\n"),
        v2("flag_nodes_v2", "up; rt update --cpuset-mems 0 $ID; cat /sys/fs/cgroup/$ID/cpuset.mems").prints("0\n")
            .needs(File("/sys/fs/cgroup/cpuset.mems.effective")),
        v1("flag_swap_v1", "up; rt update --memory 67108864 --memory-swap 134217728 $ID; cat /sys/fs/cgroup/memory/$ID/memory.memsw.limit_in_bytes")
            .prints("134217728\n").needs(File("/sys/fs/cgroup/memory/memory.memsw.limit_in_bytes")),
        v1("flag_no_limit_of_swap_v1", "up; rt update --memory 67108864 --memory-swap 134217728 $ID; rt update --memory-swap -1 $ID; cat /sys/fs/cgroup/memory/$ID/memory.memsw.limit_in_bytes")
            .prints("9223372036854771712\n").needs(File("/sys/fs/cgroup/memory/memory.memsw.limit_in_bytes")),
        v2("flag_swap_v2", "up; rt update --memory 67108864 --memory-swap 134217728 $ID; cat /sys/fs/cgroup/$ID/memory.swap.max")
            .prints("67108864\n").needs(File("/proc/swaps")),
        v1("flag_kernel_memory_is_ignored_v1", "up; rt update --kernel-memory 67108864 $ID; cat /sys/fs/cgroup/memory/$ID/memory.kmem.limit_in_bytes")
            .prints("9223372036854771712\n").needs(File("/sys/fs/cgroup/memory/memory.kmem.limit_in_bytes")),
        update("flag_of_0_processes_changes_nothing", "up; rt update --pids-limit 40 $ID; rt update --pids-limit 0 $ID; rt events --stats $ID | tr -d ' \\n' | grep -o '\"pids\":{[^}]*}' | grep -c '\"limit\":40'; true")
            .prints("1\n").not_on(Crun, "1.8 has no events"),
        update("events_show_statistics", "up; rt events --stats $ID | tr -d ' \\n' | grep -o -E '\"type\":\"stats\"'")
            .prints("\"type\":\"stats\"\n")
            .but(Crun, |seen| seen.exits(1).prints(""), "1.8 does not have the command"),
        update("events_show_the_process_limit", "up; rt update --pids-limit 40 $ID; rt events --stats $ID | tr -d ' \\n' | grep -o '\"limit\":40'")
            .prints("\"limit\":40\n").but(Crun, |seen| seen.exits(1).prints(""), "1.8 does not have the command"),
        update("events_begin_with_their_type", "up; rt events --stats $ID | grep -o '^{\"type\":\"stats\",\"id\":'")
            .prints("{\"type\":\"stats\",\"id\":\n").but(Crun, |seen| seen.exits(1).prints(""), "1.8 does not have the command"),
        update("events_of_a_stopped_container", "up; rt kill $ID KILL; await stopped; rt events --stats $ID")
            .fails("not running"),
    ]
}
