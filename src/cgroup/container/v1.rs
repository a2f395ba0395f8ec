//! A container's limits as files of cgroup v1, each in the hierarchy of its controller.

use std::path::Path;

use nix::errno::Errno;
use nix::sys::stat::Mode;

use super::super::budget::{Limit, has_swap, members};
use super::super::failed;
use super::super::files::Dir;
use super::{Groups, make_directory, no_controller};
use crate::error::{Error, Result, Step};
use crate::plan::container::Resources;

/// Makes a cgroup and what is above it; whether it was not there. A new cpuset is empty, and takes no process until it is
/// filled from the one above.
pub fn make(path: &Path, controllers: &[String]) -> Result<bool> {
    if !controllers.iter().any(|name| name == "cpuset") {
        match nix::unistd::mkdir(path, Mode::from_bits_truncate(0o755)) {
            Ok(()) => return Ok(true),
            Err(Errno::EEXIST) => return Ok(false),
            Err(_) => {} // something above it, then
        }
    }
    let missing: Vec<_> = path.ancestors().take_while(|path| !path.exists()).collect();
    let cpuset = controllers.iter().any(|name| name == "cpuset");
    let made = !missing.is_empty();
    for path in missing.into_iter().rev() {
        make_directory(path)?;
        let Some(above) = path.parent().filter(|_| cpuset) else { continue };
        for file in ["cpuset.cpus", "cpuset.mems"] {
            let text = std::fs::read_to_string(above.join(file)).unwrap_or_default();
            let dir = Dir::open(path).map_err(|errno| failed(path, errno))?;
            dir.write(file, text.trim()).map_err(|errno| failed(&path.join(file), errno))?;
        }
    }
    Ok(made)
}

/// Puts them in force, each read back.
pub fn limit(groups: &Groups, resources: &Resources) -> Result<()> {
    if let Some((file, _)) = resources.unified.first() {
        return Err(Error::new(Step::Cgroup, file.clone(), "is a file of cgroup v2, and this host has cgroup v1"));
    }
    memory(groups, resources)?;
    let number = |value: u64| value.to_string();
    let some = |value: Option<u64>| value.filter(|value| *value != 0).map(number);
    let signed = |value: Option<i64>| value.filter(|value| *value != 0).map(|value| value.to_string());
    let single = [
        ("cpu", "cpu.shares", some(resources.cpu_shares)),
        ("cpu", "cpu.cfs_period_us", some(resources.cpu_period)),
        ("cpu", "cpu.cfs_quota_us", signed(resources.cpu_quota)),
        ("cpu", "cpu.cfs_burst_us", resources.cpu_burst.map(number)),
        ("cpu", "cpu.rt_period_us", some(resources.cpu_realtime_period)),
        ("cpu", "cpu.rt_runtime_us", signed(resources.cpu_realtime_runtime)),
        ("cpu", "cpu.idle", resources.cpu_idle.map(|idle| idle.to_string())),
        ("cpuset", "cpuset.cpus", resources.cpus.clone().filter(|list| !list.is_empty())),
        ("cpuset", "cpuset.mems", resources.mems.clone().filter(|list| !list.is_empty())),
        (
            "pids",
            "pids.max",
            signed(resources.pids).map(|limit| if limit.starts_with('-') { "max".into() } else { limit }),
        ),
        (
            "blkio",
            "blkio.weight",
            resources.block_weight.filter(|weight| *weight != 0).map(|weight| weight.to_string()),
        ),
        (
            "blkio",
            "blkio.leaf_weight",
            resources.block_leaf_weight.filter(|weight| *weight != 0).map(|weight| weight.to_string()),
        ),
        (
            "net_cls",
            "net_cls.classid",
            resources.network_class.filter(|class| *class != 0).map(|class| class.to_string()),
        ),
    ];
    for (controller, file, value) in single {
        if let Some(value) = value {
            set(groups, controller, file, &value)?;
        }
    }
    several(groups, resources)
}

fn several(groups: &Groups, resources: &Resources) -> Result<()> {
    for (device, weight, leaf_weight) in &resources.block_weights {
        for (file, weight) in [("blkio.weight_device", weight), ("blkio.leaf_weight_device", leaf_weight)] {
            if let Some(weight) = weight {
                set_line(groups, "blkio", file, &format!("{device} {weight}"))?;
            }
        }
    }
    for (key, device, rate) in &resources.block_throttles {
        let file = match key.as_str() {
            "rbps" => "blkio.throttle.read_bps_device",
            "wbps" => "blkio.throttle.write_bps_device",
            "riops" => "blkio.throttle.read_iops_device",
            _ => "blkio.throttle.write_iops_device",
        };
        set_line(groups, "blkio", file, &format!("{device} {rate}"))?;
    }
    for (size, limit) in &resources.hugepages {
        set(groups, "hugetlb", &format!("hugetlb.{size}.limit_in_bytes"), &limit.to_string())?;
    }
    for (interface, priority) in &resources.network_priorities {
        set_line(groups, "net_prio", "net_prio.ifpriomap", &format!("{interface} {priority}"))?;
    }
    for (device, handles, objects) in &resources.rdma {
        let part = |name: &str, value: &Option<u32>| value.map(|value| format!(" {name}={value}")).unwrap_or_default();
        let line = format!("{device}{}{}", part("hca_handle", handles), part("hca_object", objects));
        set_line(groups, "rdma", "rdma.max", &line)?;
    }
    Ok(())
}

fn memory(groups: &Groups, resources: &Resources) -> Result<()> {
    let limit = resources.memory_limit.filter(|limit| *limit != 0);
    let mut swap = resources.memory_swap.filter(|swap| *swap != 0);
    if limit == Some(-1) && swap.is_none() {
        swap = Some(-1); // no memory limit below a swap limit
    }
    if resources.check_before_update
        && let Some(limit) = limit
        && let Some(used) = groups.with("memory").and_then(|dir| dir.number("memory.usage_in_bytes"))
        && u64::try_from(limit).is_ok_and(|limit| limit < used)
    {
        return Err(Error::new(Step::Cgroup, "memory.limit", format!("{limit} is below the {used} bytes in use")));
    }
    let countable = groups.with("memory").is_some_and(|dir| dir.read(SWAP).is_ok());
    let swap = swap.filter(|swap| countable || (*swap > 0 && has_swap())); // without swap there is none to limit
    match (limit, swap) {
        (Some(limit), Some(swap)) => {
            // Each must be within the other at every moment: one of the two orders is right.
            if set(groups, "memory", LIMIT, &limit.to_string()).is_err() {
                set(groups, "memory", SWAP, &swap.to_string())?;
                set(groups, "memory", LIMIT, &limit.to_string())?;
            } else {
                set(groups, "memory", SWAP, &swap.to_string())?;
            }
        }
        (Some(limit), None) => set(groups, "memory", LIMIT, &limit.to_string())?,
        (None, Some(swap)) => set(groups, "memory", SWAP, &swap.to_string())?,
        (None, None) => {}
    }
    let others = [
        ("memory.soft_limit_in_bytes", resources.memory_reservation.filter(|value| *value != 0)),
        ("memory.kmem.tcp.limit_in_bytes", resources.memory_kernel_tcp.filter(|value| *value != 0)),
        ("memory.swappiness", resources.memory_swappiness.and_then(|value| i64::try_from(value).ok())),
    ];
    for (file, value) in others {
        if let Some(value) = value {
            set(groups, "memory", file, &value.to_string())?;
        }
    }
    if resources.disable_oom_killer {
        set_line(groups, "memory", "memory.oom_control", "1")?;
    }
    Ok(())
}

const LIMIT: &str = "memory.limit_in_bytes";
const SWAP: &str = "memory.memsw.limit_in_bytes";

/// Writes a number or a list, and reads it back.
fn set(groups: &Groups, controller: &str, file: &str, value: &str) -> Result<()> {
    let dir = groups.with(controller).ok_or_else(|| no_controller(controller, file))?;
    let fail = |errno: Errno| failed(&dir.path().join(file), errno);
    let read = dir.write_and_read(file, value).map_err(|errno| {
        let error = fail(errno);
        match errno {
            Errno::EINVAL | Errno::ERANGE => error.hint(format!("the kernel does not take {value:?} for it")),
            _ => error,
        }
    })?;
    let agrees = match value.parse::<u64>() {
        Ok(asked) => Limit::number_agrees(file, asked, &read),
        Err(_) if file.starts_with("cpuset.") => members(value) == members(&read),
        Err(_) => value.starts_with('-') || read.trim() == value, // no limit is some large number
    };
    if agrees {
        return Ok(());
    }
    Err(Error::new(Step::Cgroup, file, format!("wrote {value:?}, but the kernel has {:?}", read.trim())))
}

/// Writes a line to a file that does not show it as it was written.
fn set_line(groups: &Groups, controller: &str, file: &str, line: &str) -> Result<()> {
    let dir = groups.with(controller).ok_or_else(|| no_controller(controller, file))?;
    dir.write(file, line).map_err(|errno| failed(&dir.path().join(file), errno))
}
