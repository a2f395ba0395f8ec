//! `linux.cgroupsPath` and `linux.resources`.

use std::collections::BTreeMap;

use oci_spec::runtime::{
    Linux, LinuxBlockIo, LinuxCpu, LinuxDeviceCgroup, LinuxDeviceType, LinuxMemory, LinuxResources,
};

use super::document::{Read, Within as _, each, entries, wrong};
use super::{Flags, ranged, schedule, text};
use crate::plan::container::{ContainerCgroup, DeviceRule, Resources};

/// The prefix of annotations that set properties of the systemd unit.
pub const SYSTEMD_PROPERTY: &str = "org.systemd.property.";

/// Reads the path, the driver and the limits of the cgroup.
pub fn read(linux: &Linux, annotations: &BTreeMap<String, String>, flags: Flags) -> Read<ContainerCgroup> {
    let properties = annotations
        .iter()
        .filter_map(|(name, value)| Some((name.strip_prefix(SYSTEMD_PROPERTY)?.to_owned(), value.clone())));
    let path = linux.cgroups_path().as_ref().map(|path| text("cgroupsPath", path)).transpose()?.unwrap_or_default();
    if path.len() > 4095 || path.split('/').any(|part| part.len() > 255) {
        return Err(wrong("cgroupsPath", "is longer than a path can be"));
    }
    Ok(ContainerCgroup {
        path: path.to_owned(),
        systemd: flags.systemd_cgroup,
        systemd_properties: properties.collect(),
        disabled: flags.no_cgroup,
        resources: linux.resources().as_ref().map(resources).transpose().within("resources")?.unwrap_or_default(),
    })
}

/// Reads the limits of a configuration or of `update`.
pub fn resources(from: &LinuxResources) -> Read<Resources> {
    let mut all = Resources::default();
    if let Some(limits) = from.memory() {
        memory(limits, &mut all).within("memory")?;
    }
    if let Some(limits) = from.cpu() {
        cpu(limits, &mut all).within("cpu")?;
    }
    if let Some(limits) = from.block_io() {
        block_io(limits, &mut all).within("blockIO")?;
    }
    all.pids = from.pids().as_ref().map(|pids| pids.limit());
    all.hugepages = each("hugepageLimits", from.hugepage_limits(), |item| {
        let name = item.page_size();
        let digits = name.trim_end_matches(['K', 'M', 'G', 'B']);
        if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) || !name.ends_with('B') {
            return Err(wrong("pageSize", "is not a page size, for example 2MB"));
        }
        Ok((name.clone(), ranged("limit", item.limit(), 0..=i64::MAX)?))
    })?;
    if let Some(network) = from.network() {
        all.network_class = network.class_id();
        let priorities = network.priorities().iter().flatten();
        all.network_priorities = priorities.map(|one| (one.name().clone(), one.priority())).collect();
    }
    all.rdma = entries("rdma", from.rdma(), |device, limits| {
        Ok((device.to_owned(), limits.hca_handles(), limits.hca_objects()))
    })?;
    all.unified = entries("unified", from.unified(), |file, value| {
        let named = file.contains('.') && !file.starts_with("cgroup.") && !file.contains(['/', '\0', '\n']);
        if !named || file.starts_with('.') {
            return Err(wrong("", "is not a file of a controller"));
        }
        Ok((file.to_owned(), value.clone()))
    })?;
    if from.devices().is_some() {
        all.devices = Some(each("devices", from.devices(), device_rule)?);
    }
    Ok(all)
}

fn memory(memory: &LinuxMemory, all: &mut Resources) -> Read<()> {
    let limit = |field, value: Option<i64>| match value {
        Some(..=-2) => Err(wrong(field, "is negative; only -1 means unlimited")),
        value => Ok(value),
    };
    all.memory_limit = limit("limit", memory.limit())?;
    all.memory_reservation = limit("reservation", memory.reservation())?;
    all.memory_swap = limit("swap", memory.swap())?;
    all.memory_kernel_tcp = limit("kernelTCP", memory.kernel_tcp())?;
    // Some engines write the largest number if they do not want to set the value.
    let swappiness = memory.swappiness().filter(|value| *value != u64::MAX);
    all.memory_swappiness = swappiness.map(|value| ranged("swappiness", value, 0..=200)).transpose()?;
    all.disable_oom_killer = memory.disable_oom_killer().unwrap_or(false);
    all.check_before_update = memory.check_before_update().unwrap_or(false);
    Ok(())
}

fn cpu(cpu: &LinuxCpu, all: &mut Resources) -> Read<()> {
    all.cpu_shares = cpu.shares();
    all.cpu_quota = cpu.quota();
    all.cpu_period = cpu.period();
    all.cpu_burst = cpu.burst();
    all.cpu_realtime_runtime = cpu.realtime_runtime();
    all.cpu_realtime_period = cpu.realtime_period();
    all.cpu_idle = cpu.idle();
    for (field, list, to) in [("cpus", cpu.cpus(), &mut all.cpus), ("mems", cpu.mems(), &mut all.mems)] {
        if schedule::list(field, list)?.is_some() {
            to.clone_from(list);
        }
    }
    Ok(())
}

fn block_io(block: &LinuxBlockIo, all: &mut Resources) -> Read<()> {
    let weight = |field, weight: Option<u16>| weight.map(|weight| ranged(field, weight, 0..=1000)).transpose();
    let number = |major, minor| -> Read<String> {
        let part = |field, number: i64| ranged::<_, u32>(field, number, 0..=u32::MAX.into());
        Ok(format!("{}:{}", part("major", major)?, part("minor", minor)?))
    };
    all.block_weight = weight("weight", block.weight())?;
    all.block_leaf_weight = weight("leafWeight", block.leaf_weight())?;
    all.block_weights = each("weightDevice", block.weight_device(), |item| {
        let leaf_weight = weight("leafWeight", item.leaf_weight())?;
        Ok((number(item.major(), item.minor())?, weight("weight", item.weight())?, leaf_weight))
    })?;
    for (field, short, list) in [
        ("throttleReadBpsDevice", "rbps", block.throttle_read_bps_device()),
        ("throttleWriteBpsDevice", "wbps", block.throttle_write_bps_device()),
        ("throttleReadIOPSDevice", "riops", block.throttle_read_iops_device()),
        ("throttleWriteIOPSDevice", "wiops", block.throttle_write_iops_device()),
    ] {
        all.block_throttles.extend(each(field, list, |item| {
            Ok((short.to_owned(), number(item.major(), item.minor())?, item.rate()))
        })?);
    }
    Ok(())
}

fn device_rule(rule: &LinuxDeviceCgroup) -> Read<DeviceRule> {
    let kind = match rule.typ() {
        None | Some(LinuxDeviceType::A) => 'a',
        Some(LinuxDeviceType::B) => 'b',
        Some(LinuxDeviceType::C | LinuxDeviceType::U) => 'c',
        Some(LinuxDeviceType::P) => return Err(wrong("type", "is not one of a, b and c")),
    };
    let number = |field, number: Option<i64>| {
        let number = number.filter(|number| *number != -1);
        number.map(|number| ranged(field, number, 0..=u32::MAX.into())).transpose()
    };
    let access = rule.access().as_deref().filter(|access| !access.is_empty()).unwrap_or("rwm");
    if access.chars().any(|letter| !"rwm".contains(letter)) {
        return Err(wrong("access", "may contain only r, w and m"));
    }
    let (major, minor) = (number("major", rule.major())?, number("minor", rule.minor())?);
    Ok(DeviceRule { allow: rule.allow(), kind, major, minor, access: access.to_owned() })
}
