//! Limits as files of cgroup v1, each in the hierarchy of its controller.

use std::path::PathBuf;

use cgroups_rs::MaxValue;
use cgroups_rs::blkio::BlkIoController;
use cgroups_rs::cpu::CpuController;
use cgroups_rs::cpuset::CpuSetController;
use cgroups_rs::error::Result as Written;
use cgroups_rs::memory::MemController;
use cgroups_rs::net_cls::NetClsController;
use cgroups_rs::net_prio::NetPrioController;
use cgroups_rs::pid::PidController;
use cgroups_rs::rdma::RdmaController;

use super::super::budget::has_swap;
use super::Cgroup;
use crate::error::{Error, Result, Step};
use crate::plan::container::Resources;

/// The limit on memory alone, and the limit on the sum of memory and swap.
const MEMORY: &str = "memory.limit_in_bytes";
pub const SWAP: &str = "memory.memsw.limit_in_bytes";

/// Sets two limits that depend on each other: while they change, only one of the two orders works.
fn in_either_order(first: impl Fn() -> Result<()>, second: impl Fn() -> Result<()>) -> Result<()> {
    match first() {
        Ok(()) => second(),
        Err(_) => second().and_then(|()| first()),
    }
}

impl Cgroup {
    /// Applies the limits and reads each back. A missing limit or 0 changes nothing.
    pub fn limit(&self, resources: &Resources) -> Result<()> {
        if let Some((file, _)) = resources.unified.first() {
            return Err(Error::new(Step::Cgroup, file.clone(), "is a file of cgroup v2, and this host has cgroup v1"));
        }
        self.limit_memory(resources)?;
        self.limit_cpu(resources)?;
        if let Some(list) = resources.cpus.as_ref().filter(|list| !list.is_empty()) {
            self.set("cpuset.cpus", list, |at| cpuset(at).set_cpus(list))?;
        }
        if let Some(list) = resources.mems.as_ref().filter(|list| !list.is_empty()) {
            self.set("cpuset.mems", list, |at| cpuset(at).set_mems(list))?;
        }
        if let Some(limit) = some(resources.pids) {
            let limit = if limit < 0 { MaxValue::Max } else { MaxValue::Value(limit) };
            self.set("pids.max", limit.to_string(), |at| PidController::new(at, false).set_pid_max(limit))?;
        }
        self.limit_block_devices(resources)?;
        for (size, limit) in &resources.hugepages {
            // cgroups-rs finds page sizes with regular expressions, which adds a megabyte to the program. So the file is
            // written directly.
            self.set_directly(&format!("hugetlb.{size}.limit_in_bytes"), limit)?;
        }
        if let Some(class) = some(resources.network_class) {
            self.set("net_cls.classid", class, |at| NetClsController::new(at).set_class(class.into()))?;
        }
        for (interface, priority) in &resources.network_priorities {
            self.set("net_prio.ifpriomap", format!("{interface} {priority}"), |at| {
                NetPrioController::new(at).set_if_prio(interface, (*priority).into())
            })?;
        }
        for (device, handles, objects) in &resources.rdma {
            let part = |name, value: &Option<u32>| value.map(|value| format!(" {name}={value}")).unwrap_or_default();
            let line = format!("{device}{}{}", part("hca_handle", handles), part("hca_object", objects));
            self.set("rdma.max", &line, |at| RdmaController::new(at).set_max(&line))?;
        }
        Ok(())
    }

    fn limit_memory(&self, resources: &Resources) -> Result<()> {
        let limit = some(resources.memory_limit);
        let mut swap = some(resources.memory_swap);
        if limit == Some(-1) && swap.is_none() {
            swap = Some(-1); // a swap limit may not be below the memory limit
        }
        if resources.check_before_update
            && let Some(limit) = limit
            && let Some(used) = self.with("memory").and_then(|dir| dir.number("memory.usage_in_bytes"))
            && u64::try_from(limit).is_ok_and(|limit| limit < used)
        {
            return Err(Error::new(Step::Cgroup, "memory.limit", format!("{limit} is below the {used} bytes in use")));
        }
        // A kernel without swap has nothing to limit.
        let swap = swap.filter(|swap| self.counts_swap() || (*swap > 0 && has_swap()));
        let memory = |at| MemController::new(at, false);
        let set_limit = || limit.map_or(Ok(()), |limit| self.set(MEMORY, limit, |at| memory(at).set_limit(limit)));
        let set_swap = || swap.map_or(Ok(()), |swap| self.set(SWAP, swap, |at| memory(at).set_memswap_limit(swap)));
        in_either_order(set_limit, set_swap)?; // the memory limit may never exceed the sum of memory and swap
        if let Some(bytes) = some(resources.memory_reservation) {
            self.set("memory.soft_limit_in_bytes", bytes, |at| memory(at).set_soft_limit(bytes))?;
        }
        if let Some(bytes) = some(resources.memory_kernel_tcp) {
            self.set("memory.kmem.tcp.limit_in_bytes", bytes, |at| memory(at).set_tcp_limit(bytes))?;
        }
        if let Some(swappiness) = resources.memory_swappiness {
            self.set("memory.swappiness", swappiness, |at| memory(at).set_swappiness(swappiness))?;
        }
        if resources.disable_oom_killer {
            self.set("memory.oom_control", "oom_kill_disable 1", |at| memory(at).disable_oom_killer())?;
        }
        Ok(())
    }

    /// Whether the kernel counts swap, and so can limit it.
    pub fn counts_swap(&self) -> bool {
        self.with("memory").is_some_and(|dir| dir.read(SWAP).is_ok())
    }

    /// Removes the limit on CPU time. A failure only delays the exit of a killed tree.
    pub fn unthrottle(&self) {
        let _ = self.set("cpu.cfs_quota_us", -1, |at| CpuController::new(at, false).set_cfs_quota(-1));
    }

    fn limit_cpu(&self, resources: &Resources) -> Result<()> {
        let cpu = |at| CpuController::new(at, false);
        // The kernel takes no shares for an idle cgroup.
        let set_idle = |wanted| match resources.cpu_idle.filter(|idle| (*idle > 0) == wanted) {
            Some(idle) => self.set_directly("cpu.idle", idle),
            None => Ok(()),
        };
        set_idle(false)?;
        if let Some(shares) = some(resources.cpu_shares) {
            self.set("cpu.shares", shares, |at| cpu(at).set_shares(shares))?;
        }
        let set_period = || match some(resources.cpu_period) {
            Some(period) => self.set("cpu.cfs_period_us", period, |at| cpu(at).set_cfs_period(period)),
            None => Ok(()),
        };
        let set_quota = || match some(resources.cpu_quota) {
            Some(quota) => self.set("cpu.cfs_quota_us", quota, |at| cpu(at).set_cfs_quota(quota)),
            None => Ok(()),
        };
        in_either_order(set_period, set_quota)?; // their ratio may never exceed that of the cgroup above
        if let Some(burst) = resources.cpu_burst {
            self.set_directly("cpu.cfs_burst_us", burst)?;
        }
        let set_period = || match some(resources.cpu_realtime_period) {
            Some(period) => self.set("cpu.rt_period_us", period, |at| cpu(at).set_rt_period_us(period)),
            None => Ok(()),
        };
        let set_runtime = || match some(resources.cpu_realtime_runtime) {
            Some(runtime) => self.set("cpu.rt_runtime_us", runtime, |at| cpu(at).set_rt_runtime(runtime)),
            None => Ok(()),
        };
        // The runtime may never exceed the period, nor its share that of the cgroup above.
        in_either_order(set_period, set_runtime)?;
        set_idle(true)
    }

    fn limit_block_devices(&self, resources: &Resources) -> Result<()> {
        let blkio = |at| BlkIoController::new(at, false);
        // The BFQ scheduler has files of its own. Kernels without CFQ (5.0 and newer) have no others.
        let bfq = self.with("blkio").is_some_and(|dir| !dir.has("blkio.weight") && dir.has("blkio.bfq.weight"));
        if let Some(weight) = some(resources.block_weight) {
            match bfq {
                true => self.set_directly("blkio.bfq.weight", weight)?,
                false => self.set("blkio.weight", weight, |at| blkio(at).set_weight(weight.into()))?,
            }
        }
        if let Some(weight) = some(resources.block_leaf_weight) {
            self.set("blkio.leaf_weight", weight, |at| blkio(at).set_leaf_weight(weight.into()))?;
        }
        type SetDevice = fn(&BlkIoController, u64, u64, u64) -> Written<()>;
        let set = |file: &str, set: SetDevice, device: &str, value: u64| {
            let (major, minor) = numbers(device)?;
            self.set(file, format!("{device} {value}"), |at| set(&blkio(at), major, minor, value))
        };
        for (device, weight, leaf_weight) in &resources.block_weights {
            if let Some(weight) = weight.filter(|_| bfq) {
                self.set_directly("blkio.bfq.weight_device", format!("{device} {weight}"))?;
            } else if let Some(weight) = weight {
                set("blkio.weight_device", BlkIoController::set_weight_for_device, device, (*weight).into())?;
            }
            if let Some(weight) = leaf_weight {
                set("blkio.leaf_weight_device", BlkIoController::set_leaf_weight_for_device, device, (*weight).into())?;
            }
        }
        for (key, device, rate) in &resources.block_throttles {
            let (file, throttle): (_, SetDevice) = match key.as_str() {
                "rbps" => ("blkio.throttle.read_bps_device", BlkIoController::throttle_read_bps_for_device),
                "wbps" => ("blkio.throttle.write_bps_device", BlkIoController::throttle_write_bps_for_device),
                "riops" => ("blkio.throttle.read_iops_device", BlkIoController::throttle_read_iops_for_device),
                _ => ("blkio.throttle.write_iops_device", BlkIoController::throttle_write_iops_for_device),
            };
            set(file, throttle, device, *rate)?;
        }
        Ok(())
    }
}

fn cpuset(at: PathBuf) -> CpuSetController {
    CpuSetController::new(at, false)
}

/// Treats 0 as not set.
fn some<T: Default + PartialEq>(value: Option<T>) -> Option<T> {
    value.filter(|value| *value != T::default())
}

/// Parses `MAJOR:MINOR`.
fn numbers(device: &str) -> Result<(u64, u64)> {
    let parts = device.split_once(':').and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
    parts.ok_or_else(|| Error::new(Step::Cgroup, device, "is not MAJOR:MINOR of a block device"))
}
