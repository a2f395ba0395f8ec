//! `process.scheduler`, `process.ioPriority`, `process.execCPUAffinity`, `linux.personality`, `linux.memoryPolicy`: turns names
//! into the kernel's numbers.

use oci_spec::runtime::{
    LinuxIOPriority, LinuxMemoryPolicy, LinuxPersonality, LinuxPersonalityDomain, LinuxSchedulerPolicy,
    MemoryPolicyFlagType, MemoryPolicyModeType,
};
use serde::Deserialize;

use super::document::{Read, wrong};
use super::ranged;
use crate::plan::container::Scheduler;

/// Modes of `set_mempolicy(2)`, in the kernel's order. The type has another order.
pub const MODES: [MemoryPolicyModeType; 7] = [
    MemoryPolicyModeType::MpolDefault,
    MemoryPolicyModeType::MpolPreferred,
    MemoryPolicyModeType::MpolBind,
    MemoryPolicyModeType::MpolInterleave,
    MemoryPolicyModeType::MpolLocal,
    MemoryPolicyModeType::MpolPreferredMany,
    MemoryPolicyModeType::MpolWeightedInterleave,
];
/// The flags of these modes, from bit 13.
pub const MODE_FLAGS: [MemoryPolicyFlagType; 3] = [
    MemoryPolicyFlagType::MpolFNumaBalancing,
    MemoryPolicyFlagType::MpolFRelativeNodes,
    MemoryPolicyFlagType::MpolFStaticNodes,
];

pub fn scheduler(scheduler: &oci_spec::runtime::Scheduler) -> Read<Scheduler> {
    // The type declares policies and flags in the order of the kernel's numbers. A test checks that.
    let flags = scheduler.flags().iter().flatten().fold(0, |flags, flag| flags | 1 << *flag as u64);
    if *scheduler.policy() == LinuxSchedulerPolicy::SchedDeadline {
        deadline(scheduler)?;
    }
    Ok(Scheduler {
        policy: *scheduler.policy() as u32,
        flags,
        nice: ranged("nice", scheduler.nice().unwrap_or(0), -20..=19)?,
        priority: ranged("priority", scheduler.priority().unwrap_or(0), 0..=99)?,
        runtime: scheduler.runtime().unwrap_or(0),
        deadline: scheduler.deadline().unwrap_or(0),
        period: scheduler.period().unwrap_or(0),
    })
}

/// What the kernel requires of `SCHED_DEADLINE`, `sched(7)`. Its own error is EINVAL for each.
fn deadline(scheduler: &oci_spec::runtime::Scheduler) -> Read<()> {
    let (runtime, deadline) = (scheduler.runtime().unwrap_or(0), scheduler.deadline().unwrap_or(0));
    let period = scheduler.period().filter(|period| *period != 0).unwrap_or(deadline);
    let least = 1024; // nanoseconds, the kernel's resolution
    match () {
        () if runtime < least => Err(wrong("runtime", "must be at least 1024 ns with SCHED_DEADLINE")),
        () if deadline < runtime => Err(wrong("deadline", "must not be shorter than the runtime")),
        () if period < deadline => Err(wrong("period", "must not be shorter than the deadline")),
        () => Ok(()),
    }
}

pub fn io_priority(priority: &LinuxIOPriority) -> Read<(u32, u32)> {
    Ok((1 + priority.class() as u32, ranged("ioPriority.priority", priority.priority(), 0..=7)?))
}

/// `execCPUAffinity`.
#[derive(Default, Deserialize)]
pub struct Affinity {
    /// The CPUs before the process enters the container's cgroups.
    pub initial: Option<String>,
    /// The CPUs after that.
    #[serde(rename = "final")]
    pub last: Option<String>,
}

/// The numbers of a list. An empty list counts as not set.
pub fn list(field: &str, list: &Option<String>) -> Read<Option<Vec<u32>>> {
    list.as_ref().filter(|list| !list.is_empty()).map(|list| numbers(field, list)).transpose()
}

/// Parses a list such as `0-3,7`.
fn numbers(field: &str, text: &str) -> Read<Vec<u32>> {
    let range = |part: &str| -> Option<std::ops::RangeInclusive<u32>> {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        (first <= last && last < 65_536).then_some(first..=last)
    };
    // runc takes empty parts too, such as that of a comma at the end.
    let parts = text.split(',').filter(|part| !part.trim().is_empty());
    let ranges: Option<Vec<_>> = parts.map(range).collect();
    let ranges = ranges.filter(|ranges| !ranges.is_empty());
    let ranges = ranges.ok_or_else(|| wrong(field, "is not a list such as 0-3,7"))?;
    Ok(ranges.into_iter().flatten().collect())
}

pub fn personality(personality: &LinuxPersonality) -> Read<u32> {
    if personality.flags().iter().flatten().next().is_some() {
        return Err(wrong("flags", "are not supported; the specification defines none"));
    }
    Ok(match personality.domain() {
        LinuxPersonalityDomain::PerLinux => 0,
        LinuxPersonalityDomain::PerLinux32 => 8,
    })
}

pub fn memory_policy(policy: &LinuxMemoryPolicy) -> Read<(i32, Vec<u32>)> {
    let mode = MODES.iter().position(|mode| *mode == policy.mode()).unwrap_or_default() as i32;
    let flag = |flag| MODE_FLAGS.iter().position(|known| known == flag).map_or(0, |bit| 1 << (13 + bit));
    let mode = policy.flags().iter().flatten().fold(mode, |mode, one| mode | flag(one));
    Ok((mode, list("nodes", policy.nodes())?.unwrap_or_default()))
}
