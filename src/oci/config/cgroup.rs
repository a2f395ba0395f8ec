//! `linux.cgroupsPath` and `linux.resources`.

use std::collections::BTreeMap;

use stockade_json::At;

use super::{Flags, Read, flag, signed, small, text, unsigned};
use crate::plan::container::{ContainerCgroup, DeviceRule, Resources};

/// Annotations of this kind are properties of the unit that systemd makes.
const SYSTEMD_PROPERTY: &str = "org.systemd.property.";

/// Where, by whom, and what is in force.
pub fn read(linux: &At, annotations: &BTreeMap<String, String>, flags: Flags) -> Read<ContainerCgroup> {
    let resources = linux.get("resources")?.map(|at| resources(&at)).transpose()?.unwrap_or_default();
    let properties = annotations
        .iter()
        .filter_map(|(name, value)| Some((name.strip_prefix(SYSTEMD_PROPERTY)?.to_owned(), value.clone())));
    let path = text(linux, "cgroupsPath")?.unwrap_or_default();
    if let Some(at) = linux.get("cgroupsPath")?
        && (path.len() > 4095 || path.split('/').any(|part| part.len() > 255))
    {
        return Err(at.wrong("is longer than a path can be"));
    }
    Ok(ContainerCgroup {
        path,
        systemd: flags.systemd_cgroup,
        systemd_properties: properties.collect(),
        disabled: flags.no_cgroup,
        resources,
    })
}

/// Limits, of a configuration or of `update`.
pub fn resources(at: &At) -> Read<Resources> {
    let mut all = Resources::default();
    if let Some(memory) = at.get("memory")? {
        let limit = |key| -> Read<Option<i64>> {
            match signed(&memory, key)? {
                Some(value) if value < -1 => Err(memory.lacks(format!("{key} is {value}; only -1 means unlimited"))),
                value => Ok(value),
            }
        };
        all.memory_limit = limit("limit")?;
        all.memory_reservation = limit("reservation")?;
        all.memory_swap = limit("swap")?;
        all.memory_kernel_tcp = limit("kernelTCP")?;
        // The largest number is how some engines say that they do not care.
        let unset = memory.get("swappiness")?.is_some_and(|at| matches!(at.number(u64::MAX), Ok(u64::MAX)));
        all.memory_swappiness = if unset { None } else { unsigned(&memory, "swappiness", 200)? };
        all.disable_oom_killer = flag(&memory, "disableOOMKiller")?;
        all.check_before_update = flag(&memory, "checkBeforeUpdate")?;
    }
    if let Some(cpu) = at.get("cpu")? {
        all.cpu_shares = unsigned(&cpu, "shares", u64::MAX)?;
        all.cpu_quota = signed(&cpu, "quota")?;
        all.cpu_period = unsigned(&cpu, "period", u64::MAX)?;
        all.cpu_burst = unsigned(&cpu, "burst", u64::MAX)?;
        all.cpu_realtime_runtime = signed(&cpu, "realtimeRuntime")?;
        all.cpu_realtime_period = unsigned(&cpu, "realtimePeriod", u64::MAX)?;
        all.cpu_idle = signed(&cpu, "idle")?;
        all.cpus = list(&cpu, "cpus")?;
        all.mems = list(&cpu, "mems")?;
    }
    if let Some(pids) = at.get("pids")? {
        all.pids = signed(&pids, "limit")?;
    }
    if let Some(block) = at.get("blockIO")? {
        block_io(&block, &mut all)?;
    }
    if let Some(pages) = at.get("hugepageLimits")? {
        for item in pages.items()? {
            let size = item.get("pageSize")?.ok_or_else(|| item.lacks("pageSize is missing"))?;
            let name = size.text()?;
            let digits = name.trim_end_matches(['K', 'M', 'G', 'B']);
            if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) || !name.ends_with('B') {
                return Err(size.wrong("is no page size such as 2MB"));
            }
            all.hugepages.push((name.to_owned(), unsigned(&item, "limit", u64::MAX)?.unwrap_or(0)));
        }
    }
    if let Some(network) = at.get("network")? {
        all.network_class = small(&network, "classID")?;
        if let Some(list) = network.get("priorities")? {
            for item in list.items()? {
                let name = text(&item, "name")?.unwrap_or_default();
                all.network_priorities.push((name, small(&item, "priority")?.unwrap_or(0)));
            }
        }
    }
    if let Some(rdma) = at.get("rdma")? {
        for (device, limits) in rdma.entries()? {
            let (handles, objects) = (small(&limits, "hcaHandles")?, small(&limits, "hcaObjects")?);
            all.rdma.push((device.to_owned(), handles, objects));
        }
    }
    if let Some(unified) = at.get("unified")? {
        for (file, value) in unified.entries()? {
            let named = file.contains('.') && !file.starts_with("cgroup.") && !file.contains(['/', '\0', '\n']);
            if !named || file.starts_with('.') {
                return Err(value.lacks("is no file of a controller"));
            }
            all.unified.push((file.to_owned(), value.text()?.to_owned()));
        }
    }
    if let Some(list) = at.get("devices")? {
        all.devices = Some(list.items()?.map(|item| device_rule(&item)).collect::<Read<_>>()?);
    }
    Ok(all)
}

fn list(at: &At, key: &str) -> Read<Option<String>> {
    let Some(value) = at.get(key)?.filter(|value| value.text() != Ok("")) else { return Ok(None) };
    super::schedule::numbers(&value)?;
    Ok(Some(value.text()?.to_owned()))
}

fn block_io(block: &At, all: &mut Resources) -> Read<()> {
    let weight = |at: &At, key| unsigned(at, key, 1000).map(|weight| weight.map(|weight| weight as u16));
    let number = |at: &At| -> Read<String> {
        let part = |key| small(at, key).map(Option::unwrap_or_default);
        Ok(format!("{}:{}", part("major")?, part("minor")?))
    };
    all.block_weight = weight(block, "weight")?;
    all.block_leaf_weight = weight(block, "leafWeight")?;
    if let Some(list) = block.get("weightDevice")? {
        for item in list.items()? {
            all.block_weights.push((number(&item)?, weight(&item, "weight")?, weight(&item, "leafWeight")?));
        }
    }
    for (key, short) in [
        ("throttleReadBpsDevice", "rbps"),
        ("throttleWriteBpsDevice", "wbps"),
        ("throttleReadIOPSDevice", "riops"),
        ("throttleWriteIOPSDevice", "wiops"),
    ] {
        let Some(list) = block.get(key)? else { continue };
        for item in list.items()? {
            let rate = unsigned(&item, "rate", u64::MAX)?.unwrap_or(0);
            all.block_throttles.push((short.to_owned(), number(&item)?, rate));
        }
    }
    Ok(())
}

fn device_rule(at: &At) -> Read<DeviceRule> {
    let kind = at.get("type")?.map_or(Ok("a"), |kind| kind.text())?;
    let kind = match kind {
        "" | "a" => 'a',
        "b" => 'b',
        "c" | "u" => 'c',
        _ => return Err(at.lacks(format!("type {kind:?} is none of a, b and c"))),
    };
    let number = |key| -> Read<Option<u32>> {
        match signed(at, key)? {
            None | Some(-1) => Ok(None),
            Some(value) => u32::try_from(value).map(Some).map_err(|_| at.lacks(format!("{key} is out of range"))),
        }
    };
    let access = text(at, "access")?.filter(|access| !access.is_empty()).unwrap_or_else(|| "rwm".to_owned());
    if access.chars().any(|letter| !"rwm".contains(letter)) {
        return Err(at.lacks(format!("access {access:?} is not made of r, w and m")));
    }
    Ok(DeviceRule { allow: flag(at, "allow")?, kind, major: number("major")?, minor: number("minor")?, access })
}
