//! Detects, before any cgroup is created, limits that the hierarchies of this host cannot enforce.

use super::Places;
use crate::cgroup::hierarchies;
use crate::cgroup::v1::no_controller;
use crate::error::{Error, Step};
use crate::plan::container::Resources;

/// The fields of `linux.resources` that need a controller or a cgroup version that this host does not have.
pub fn absent(places: &Places, resources: &Resources) -> Vec<(&'static str, Error)> {
    let some = |set: bool, name: &'static str| set.then_some(name);
    let memory = resources.memory_limit.is_some_and(|limit| limit != 0)
        || resources.memory_reservation.is_some_and(|limit| limit != 0)
        || resources.memory_swap.is_some_and(|limit| limit != 0);
    let cpu =
        resources.cpu_quota.is_some_and(|quota| quota != 0) || resources.cpu_shares.is_some_and(|shares| shares != 0);
    let block = resources.block_weight.is_some()
        || !resources.block_weights.is_empty()
        || !resources.block_throttles.is_empty();
    let wanted = [
        (some(memory, "memory"), "memory"),
        (some(cpu, "cpu"), "cpu"),
        (some(resources.cpus.is_some() || resources.mems.is_some(), "cpu"), "cpuset"),
        (some(resources.pids.is_some_and(|limit| limit != 0), "pids"), "pids"),
        (some(block, "blockIO"), if places.is_v2() { "io" } else { "blkio" }),
        (some(!resources.hugepages.is_empty(), "hugepageLimits"), "hugetlb"),
        (some(!resources.rdma.is_empty(), "rdma"), "rdma"),
    ];
    let there: Vec<String> = if places.is_v2() {
        let text = std::fs::read_to_string(places.mount.join("cgroup.controllers")).unwrap_or_default();
        text.split_whitespace().map(str::to_owned).collect()
    } else {
        hierarchies::look().v1.into_iter().flat_map(|one| one.controllers).collect()
    };
    let lacks = |controller: &str| !there.iter().any(|name| name == controller);
    let mut found: Vec<_> = wanted
        .into_iter()
        .filter_map(|(field, controller)| Some((field?, controller)))
        .filter(|(_, controller)| lacks(controller))
        .map(|(field, controller)| (field, no_controller(controller, controller)))
        .collect();
    let other = |name: &str, reason: &str| Error::new(Step::Cgroup, name, reason);
    if places.is_v2() {
        if resources.cpu_realtime_runtime.is_some_and(|runtime| runtime != 0) {
            found.push(("cpu.realtimeRuntime", other("cpu", "cgroup v2 does not have it")));
        }
        if resources.network_class.is_some_and(|class| class != 0) || !resources.network_priorities.is_empty() {
            found.push(("network", other("network", "cgroup v2 does not have it")));
        }
    } else if let Some((file, _)) = resources.unified.first() {
        found.push(("unified", other(file, "is a file of cgroup v2, and this host has cgroup v1")));
    }
    found
}
