//! `linux.namespaces`, id maps, time offsets, kernel parameters, names.

use serde_json::{Value, json};

use super::Runtime::{Crun, Runc};
use super::case::{Case, case};

/// Prints whether each namespace is the host's.
const COMPARES: &str = "for n in ipc mnt net pid uts cgroup; do [ $(readlink /proc/self/ns/$n) = \"$(busybox sed -n s/^$n=//p /etc/host)\" ] && echo $n shared || echo $n own; done";
const RECORDS: &str = "for n in ipc mnt net pid uts cgroup; do echo $n=$(readlink /proc/self/ns/$n); done >rootfs/etc/host; run";

fn namespaces(kinds: &[&str]) -> Value {
    kinds.iter().map(|kind| json!({ "type": kind })).collect()
}

/// Joins the namespace of a process of the host's, which `donor` starts.
fn joins(name: &'static str, kind: &str, file: &str, host: &'static str) -> Case {
    let others = ["pid", "network", "ipc", "uts", "mount"].into_iter().filter(|other| *other != kind);
    let mut namespaces: Vec<Value> = others.map(|other| json!({ "type": other })).collect();
    namespaces.push(json!({ "type": kind, "path": "{dir}/ns" }));
    let compares = format!("[ $(readlink /proc/self/ns/{file}) = $(cat /etc/ns) ] && echo joined");
    case(name)
        .set("linux.namespaces", json!(namespaces))
        .without("hostname")
        .host(host)
        .inside(&compares)
        .prints("joined\n")
}

/// A user namespace with these maps.
fn mapped(name: &'static str, uids: Value, gids: Value) -> Case {
    case(name).push("linux.namespaces", json!({ "type": "user" })).set("linux.uidMappings", uids).set("linux.gidMappings", gids)
}

fn map(inside: u32, outside: u32, size: u32) -> Value {
    json!({ "containerID": inside, "hostID": outside, "size": size })
}

pub(super) fn cases() -> Vec<Case> {
    let owned = "chown -R 100000:100000 rootfs; run";
    vec![
        case("the_namespaces_of_spec_are_new").host(RECORDS).inside(COMPARES)
            .prints("ipc own\nmnt own\nnet own\npid own\nuts own\ncgroup own\n"),
        case("only_a_mount_namespace").set("linux.namespaces", namespaces(&["mount"])).without("hostname")
            .host(RECORDS).inside(COMPARES)
            .prints("ipc shared\nmnt own\nnet shared\npid shared\nuts shared\ncgroup shared\n"),
        case("an_empty_path_does_not_hide_a_second_namespace")
            .push("linux.namespaces", json!({"type": "pid", "path": ""})).fails("second pid namespace"),
        case("an_empty_path_is_a_new_namespace").set("linux.namespaces.1", json!({"type": "network", "path": ""}))
            .host(RECORDS).inside(COMPARES).prints_parts(&["net own\n"])
            .but(Crun, |seen| seen.fails(), "it opens the empty path; engines write the field without a value"),
        case("a_namespace_twice").push("linux.namespaces", json!({"type": "uts"})).fails("uts")
            .but(Crun, |seen| seen.exits(0), "the specification demands an error"),
        case("a_namespace_of_an_unknown_type").push("linux.namespaces", json!({"type": "nonsense"})).fails("nonsense"),
        case("a_namespace_by_a_missing_path")
            .set("linux.namespaces.1", json!({"type": "network", "path": "/nonexistent"})).fails("/nonexistent"),
        case("a_namespace_by_a_path_of_another_kind")
            .set("linux.namespaces.1", json!({"type": "network", "path": "/proc/self/ns/uts"})).fails("network"),
        case("a_namespace_by_a_path_that_is_a_file")
            .set("linux.namespaces.1", json!({"type": "network", "path": "/etc/hostname"})).fails("/etc/hostname"),
        case("a_namespace_by_a_relative_path")
            .set("linux.namespaces.1", json!({"type": "network", "path": "proc/self/ns/net"})).fails("path"),
        joins("a_network_namespace_by_path", "network", "net", "donor net; run; c=$?; kill -KILL $DONOR; exit $c"),
        joins("an_ipc_namespace_by_path", "ipc", "ipc", "donor ipc; run; c=$?; kill -KILL $DONOR; exit $c"),
        joins("a_uts_namespace_by_path", "uts", "uts", "donor uts; run; c=$?; kill -KILL $DONOR; exit $c"),
        joins("a_cgroup_namespace_by_path", "cgroup", "cgroup", "donor cgroup; run; c=$?; kill -KILL $DONOR; exit $c"),
        joins("a_pid_namespace_by_path", "pid", "pid", "donor pid; run; c=$?; kill -KILL $DONOR; exit $c"),
        case("the_hosts_network_by_path")
            .set("linux.namespaces.1", json!({"type": "network", "path": "/proc/self/ns/net"})).host(RECORDS)
            .inside(COMPARES).prints_parts(&["net shared\n"]),
        case("the_first_process_of_a_pid_namespace").inside("echo $$").prints("1\n"),
        case("without_a_pid_namespace_numbers_are_the_hosts")
            .set("linux.namespaces", namespaces(&["mount", "uts", "ipc", "network"]))
            .inside("[ $$ -gt 1 ] && echo high").prints("high\n"),
        case("loopback_is_up").inside("busybox ip -o link show lo | grep -o -w -m1 LOOPBACK,UP")
            .prints("LOOPBACK,UP\n"),
        case("only_loopback_is_there").inside("ls /sys/class/net").prints("lo\n"),
        case("a_host_name").set("hostname", json!("guest")).inside("busybox hostname").prints("guest\n"),
        case("a_host_name_needs_a_namespace").set("linux.namespaces", namespaces(&["mount", "pid"])).fails("hostname"),
        case("an_empty_host_name").set("hostname", json!("")).inside("busybox hostname | busybox wc -c | grep -vcx 0")
            .prints("1\n"),
        case("a_host_name_of_64_bytes").set("hostname", json!("x".repeat(64)))
            .inside("busybox hostname | busybox wc -c").prints("65\n"),
        case("a_host_name_of_65_bytes").set("hostname", json!("x".repeat(65))).fails("host name"),
        case("a_domain_name").set("domainname", json!("example.test")).inside("cat /proc/sys/kernel/domainname")
            .prints("example.test\n").but(Runc, |seen| seen.prints("(none)\n"), "1.1 does not know domain names"),
        mapped("a_user_namespace", json!([map(0, 100_000, 65_536)]), json!([map(0, 100_000, 65_536)])).host(owned)
            .inside("id -u; cat /proc/self/uid_map | busybox tr -s ' '").prints("0\n 0 100000 65536\n"),
        mapped("several_ranges", json!([map(0, 100_000, 10), map(10, 200_000, 5), map(1000, 300_000, 1)]), json!([map(0, 100_000, 10)]))
            .host(owned).inside("cat /proc/self/uid_map | busybox tr -s ' '")
            .prints(" 0 100000 10\n 10 200000 5\n 1000 300000 1\n"),
        mapped("users_and_groups_differ", json!([map(0, 100_000, 10)]), json!([map(0, 300_000, 20)]))
            .host("chown -R 100000:300000 rootfs; run")
            .inside("stat -c %u:%g /etc; cat /proc/self/gid_map | busybox tr -s ' '").prints("0:0\n 0 300000 20\n"),
        mapped("a_mapped_user_other_than_root", json!([map(0, 100_000, 2000)]), json!([map(0, 100_000, 2000)]))
            .host(owned).set("process.user", json!({"uid": 1000, "gid": 1000})).inside("id -u; id -g")
            .prints("1000\n1000\n"),
        mapped("a_user_that_is_not_mapped", json!([map(0, 100_000, 10)]), json!([map(0, 100_000, 10)])).host(owned)
            .set("process.user", json!({"uid": 1000, "gid": 0})).fails("user id"),
        mapped("a_group_that_is_not_mapped", json!([map(0, 100_000, 10)]), json!([map(0, 100_000, 10)])).host(owned)
            .set("process.user", json!({"uid": 0, "gid": 0, "additionalGids": [1000]})).fails("supplementary groups"),
        mapped("a_map_of_root_to_itself", json!([map(0, 0, 1)]), json!([map(0, 0, 1)]))
            .set("mounts.2.options", json!(["newinstance"])).inside("id -u").prints("0\n"),
        mapped("files_of_unmapped_owners", json!([map(0, 100_000, 10)]), json!([map(0, 100_000, 10)]))
            .host("chown -R 100000:100000 rootfs; touch rootfs/etc/x; run").inside("stat -c %u /etc/x")
            .prints("65534\n"),
        mapped("overlapping_ranges", json!([map(0, 100_000, 10), map(5, 200_000, 10)]), json!([map(0, 100_000, 10)]))
            .host(owned).fails("uidMappings"),
        mapped("a_range_of_no_size", json!([map(0, 100_000, 0)]), json!([map(0, 100_000, 10)])).host(owned)
            .fails("uidMappings"),
        case("a_user_namespace_without_maps").push("linux.namespaces", json!({"type": "user"})).fails("uidMappings"),
        case("maps_without_a_user_namespace").set("linux.uidMappings", json!([map(0, 100_000, 10)]))
            .set("linux.gidMappings", json!([map(0, 100_000, 10)])).fails("user namespace")
            .but(Runc, |seen| seen.exits(0), "the maps would have no effect, and the container would be the host's root")
            .but(Crun, |seen| seen.exits(0), "the maps would have no effect, and the container would be the host's root"),
        mapped("devices_in_a_user_namespace", json!([map(0, 100_000, 65_536)]), json!([map(0, 100_000, 65_536)]))
            .host(owned).inside("echo x >/dev/null && stat -c '%t:%T' /dev/null").prints("1:3\n"),
        mapped("mounts_in_a_user_namespace", json!([map(0, 100_000, 65_536)]), json!([map(0, 100_000, 65_536)]))
            .mount("/new", "tmpfs", "tmpfs", &[]).host(owned).inside("touch /new/x && stat -c %u /new/x")
            .prints("0\n"),
        mapped("capabilities_in_a_user_namespace", json!([map(0, 100_000, 65_536)]), json!([map(0, 100_000, 65_536)]))
            .host(owned).inside("grep CapEff /proc/self/status").prints("CapEff:\t0000000020000420\n"),
        mapped("exec_into_a_user_namespace", json!([map(0, 100_000, 65_536)]), json!([map(0, 100_000, 65_536)]))
            .inside("echo up; exec sleep 60")
            .host("chown -R 100000:100000 rootfs; up; printed up; rt exec -u 5:6 $ID sh -c 'id -u; id -g; readlink /proc/self/ns/user >/dev/null && echo x'")
            .prints("up\n5\n6\nx\n"),
        case("a_time_namespace").push("linux.namespaces", json!({"type": "time"}))
            .set("linux.timeOffsets", json!({"boottime": {"secs": 1_000_000, "nanosecs": 0}, "monotonic": {"secs": 500, "nanosecs": 0}}))
            .host("run || exit 1")
            .inside("[ $(busybox cut -d. -f1 /proc/uptime) -gt 1000000 ] && echo later; busybox awk '{ print $1, $2, $3 }' /proc/self/timens_offsets")
            .prints("later\nmonotonic 500 0\nboottime 1000000 0\n")
            .but(Runc, |seen| seen.fails(), "1.1 does not know time namespaces")
            .but(Crun, |seen| seen.fails(), "1.8 fails to write the offsets"),
        case("time_offsets_need_a_namespace")
            .set("linux.timeOffsets", json!({"boottime": {"secs": 1, "nanosecs": 0}})).fails("time")
            .but(Runc, |seen| seen.exits(0), "the offsets would have no effect")
            .but(Crun, |seen| seen.exits(0), "the offsets would have no effect"),
        case("a_time_offset_of_an_unknown_clock").push("linux.namespaces", json!({"type": "time"}))
            .set("linux.timeOffsets", json!({"nonsense": {"secs": 1, "nanosecs": 0}})).fails("timeOffsets"),
        case("a_kernel_parameter").set("linux.sysctl", json!({"net.ipv4.ip_forward": "1"}))
            .inside("cat /proc/sys/net/ipv4/ip_forward").prints("1\n"),
        case("a_kernel_parameter_with_slashes").set("linux.sysctl", json!({"net/ipv4/ip_forward": "1"}))
            .inside("cat /proc/sys/net/ipv4/ip_forward").prints("1\n"),
        case("a_kernel_parameter_of_ipc").set("linux.sysctl", json!({"kernel.msgmax": "4096"}))
            .inside("cat /proc/sys/kernel/msgmax").prints("4096\n"),
        case("a_kernel_parameter_of_message_queues").set("linux.sysctl", json!({"fs.mqueue.msg_max": "20"}))
            .inside("cat /proc/sys/fs/mqueue/msg_max").prints("20\n"),
        case("a_kernel_parameter_of_the_host").set("linux.sysctl", json!({"vm.swappiness": "10"}))
            .fails("vm.swappiness"),
        case("a_kernel_parameter_of_a_shared_network")
            .set("linux.namespaces", namespaces(&["mount", "pid", "ipc", "uts"]))
            .set("linux.sysctl", json!({"net.ipv4.ip_forward": "1"})).fails("net.ipv4.ip_forward"),
        case("a_kernel_parameter_of_shared_ipc")
            .set("linux.namespaces", namespaces(&["mount", "pid", "network", "uts"]))
            .set("linux.sysctl", json!({"kernel.msgmax": "4096"})).fails("kernel.msgmax"),
        case("a_missing_kernel_parameter").set("linux.sysctl", json!({"net.nonsense": "1"})).fails("net/nonsense"),
        case("a_kernel_parameter_with_a_bad_value").set("linux.sysctl", json!({"net.ipv4.ip_forward": "nonsense"}))
            .fails("net/ipv4/ip_forward"),
        case("a_kernel_parameter_that_leaves_its_tree").set("linux.sysctl", json!({"net/../vm/swappiness": "10"}))
            .fails("net/../vm/swappiness"),
        case("the_host_name_as_a_kernel_parameter").set("linux.sysctl", json!({"kernel.hostname": "x"}))
            .fails("kernel.hostname"),
        case("the_domain_name_as_a_kernel_parameter").set("linux.sysctl", json!({"kernel.domainname": "x"}))
            .inside("cat /proc/sys/kernel/domainname").prints("x\n"),
    ]
}
