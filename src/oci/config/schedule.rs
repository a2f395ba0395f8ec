//! `process.scheduler`, `process.ioPriority`, `process.execCPUAffinity`, `linux.personality`, `linux.memoryPolicy`: names
//! become the kernel's numbers.

use stockade_json::At;

use super::{Read, signed, unsigned};
use crate::plan::container::Scheduler;

const POLICIES: [(&str, u32); 7] = [
    ("SCHED_OTHER", 0),
    ("SCHED_FIFO", 1),
    ("SCHED_RR", 2),
    ("SCHED_BATCH", 3),
    ("SCHED_ISO", 4),
    ("SCHED_IDLE", 5),
    ("SCHED_DEADLINE", 6),
];
const FLAGS: [(&str, u64); 7] = [
    ("SCHED_FLAG_RESET_ON_FORK", 0x01),
    ("SCHED_FLAG_RECLAIM", 0x02),
    ("SCHED_FLAG_DL_OVERRUN", 0x04),
    ("SCHED_FLAG_KEEP_POLICY", 0x08),
    ("SCHED_FLAG_KEEP_PARAMS", 0x10),
    ("SCHED_FLAG_UTIL_CLAMP_MIN", 0x20),
    ("SCHED_FLAG_UTIL_CLAMP_MAX", 0x40),
];
const CLASSES: [(&str, u32); 3] = [("IOPRIO_CLASS_RT", 1), ("IOPRIO_CLASS_BE", 2), ("IOPRIO_CLASS_IDLE", 3)];
const MODES: [(&str, i32); 7] = [
    ("MPOL_DEFAULT", 0),
    ("MPOL_PREFERRED", 1),
    ("MPOL_BIND", 2),
    ("MPOL_INTERLEAVE", 3),
    ("MPOL_LOCAL", 4),
    ("MPOL_PREFERRED_MANY", 5),
    ("MPOL_WEIGHTED_INTERLEAVE", 6),
];
const MODE_FLAGS: [(&str, i32); 3] =
    [("MPOL_F_NUMA_BALANCING", 1 << 13), ("MPOL_F_RELATIVE_NODES", 1 << 14), ("MPOL_F_STATIC_NODES", 1 << 15)];

fn named<T: Copy>(at: &At, table: &[(&str, T)]) -> Read<T> {
    let text = at.text()?;
    let found = table.iter().find(|(name, _)| *name == text);
    found.map(|(_, value)| *value).ok_or_else(|| {
        let names: Vec<&str> = table.iter().map(|(name, _)| *name).collect();
        at.wrong(format!("is none of {}", names.join(", ")))
    })
}

pub fn scheduler(process: &At) -> Read<Option<Scheduler>> {
    let Some(at) = process.get("scheduler")? else { return Ok(None) };
    let policy = at.get("policy")?.ok_or_else(|| at.lacks("policy is missing"))?;
    let mut flags = 0;
    if let Some(list) = at.get("flags")? {
        for item in list.items()? {
            flags |= named(&item, &FLAGS)?;
        }
    }
    let nanos = |key| unsigned(&at, key, u64::MAX).map(Option::unwrap_or_default);
    let number = |key, range: std::ops::RangeInclusive<i64>| -> Read<i64> {
        match signed(&at, key)? {
            Some(value) if !range.contains(&value) => Err(at.lacks(format!("{key} {value} is out of range"))),
            value => Ok(value.unwrap_or(0)),
        }
    };
    Ok(Some(Scheduler {
        policy: named(&policy, &POLICIES)?,
        flags,
        nice: number("nice", -20..=19)? as i32,
        priority: number("priority", 0..=99)? as u32,
        runtime: nanos("runtime")?,
        deadline: nanos("deadline")?,
        period: nanos("period")?,
    }))
}

pub fn io_priority(process: &At) -> Read<Option<(u32, u32)>> {
    let Some(at) = process.get("ioPriority")? else { return Ok(None) };
    let class = at.get("class")?.ok_or_else(|| at.lacks("class is missing"))?;
    let level = unsigned(&at, "priority", 7)?.unwrap_or(0) as u32;
    Ok(Some((named(&class, &CLASSES)?, level)))
}

/// CPUs, if any are said.
type Cpus = Option<Vec<u32>>;

/// CPUs before and after the process is in the container's cgroups.
pub fn affinity(process: &At) -> Read<(Cpus, Cpus)> {
    let Some(at) = process.get("execCPUAffinity")? else { return Ok((None, None)) };
    let list = |key| -> Read<Cpus> {
        match at.get(key)? {
            Some(list) if !list.text()?.is_empty() => numbers(&list).map(Some),
            _ => Ok(None),
        }
    };
    Ok((list("initial")?, list("final")?))
}

/// The numbers of a list such as `0-3,7`.
pub fn numbers(at: &At) -> Read<Vec<u32>> {
    let text = at.text()?;
    let range = |part: &str| -> Option<std::ops::RangeInclusive<u32>> {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        (first <= last && last < 65_536).then_some(first..=last)
    };
    let ranges: Option<Vec<_>> = text.split(',').map(range).collect();
    let ranges = ranges.ok_or_else(|| at.wrong("is no list such as 0-3,7"))?;
    Ok(ranges.into_iter().flatten().collect())
}

pub fn personality(linux: &At) -> Read<Option<u32>> {
    let Some(at) = linux.get("personality")? else { return Ok(None) };
    if let Some(flags) = at.get("flags")?
        && flags.items()?.next().is_some()
    {
        return Err(flags.lacks("flags are not supported, by the specification itself"));
    }
    let domain = at.get("domain")?.ok_or_else(|| at.lacks("domain is missing"))?;
    named(&domain, &[("LINUX", 0), ("LINUX32", 8)]).map(Some)
}

pub fn memory_policy(linux: &At) -> Read<Option<(i32, Vec<u32>)>> {
    let Some(at) = linux.get("memoryPolicy")? else { return Ok(None) };
    let mode = at.get("mode")?.ok_or_else(|| at.lacks("mode is missing"))?;
    let mut mode = named(&mode, &MODES)?;
    if let Some(list) = at.get("flags")? {
        for item in list.items()? {
            mode |= named(&item, &MODE_FLAGS)?;
        }
    }
    let nodes = match at.get("nodes")? {
        Some(nodes) if !nodes.text()?.is_empty() => numbers(&nodes)?,
        _ => Vec::new(),
    };
    Ok(Some((mode, nodes)))
}

/// The names that `features` lists.
pub fn memory_modes() -> (Vec<&'static str>, Vec<&'static str>) {
    (MODES.iter().map(|(name, _)| *name).collect(), MODE_FLAGS.iter().map(|(name, _)| *name).collect())
}
