//! The resource limits of the workload's process.

use crate::error::{Error, Result, Step};
use crate::plan::{Rlimit, RlimitResource};
use crate::report::Degraded;
use crate::sys::{file, process};

/// A resource limit of the workload, `getrlimit(2)`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Limit {
    pub resource: u32,
    pub soft: u64,
    pub hard: u64,
    /// The limit is above the caller's hard limit, so the parent must set it with CAP_SYS_RESOURCE.
    pub raised: bool,
    /// If the parent may not raise it, the caller's limit is kept.
    pub optional: bool,
    /// The limit replaces a budget and is read back, because the report claims it.
    pub verified: bool,
}

/// The limits that were planned, and one of CPU time if no cgroup counts it.
pub fn limits(planned: &[Rlimit], cpu_us: Option<u64>, core_is_a_guard: bool) -> Result<Vec<Limit>> {
    let limit = |planned| limit(planned, core_is_a_guard);
    let mut limits = planned.iter().map(limit).collect::<Result<Vec<_>>>()?;
    // Backs up the supervisor's own count, for a supervisor that is stopped. The kernel compares this limit with ticks, which on
    // a busy host can be a quarter more than the time that was used.
    if let Some(cpu_us) = cpu_us {
        let (seconds, cpu) = ((cpu_us + cpu_us / 4).div_ceil(1_000_000) + 1, RlimitResource::Cpu.number());
        let (_, own_hard) = process::rlimit(cpu).map_err(|errno| Error::errno(Step::Rlimit, "cpu", errno))?;
        if !limits.iter().any(|limit| limit.resource == cpu && limit.soft <= seconds) {
            limits.retain(|limit| limit.resource != cpu);
            let (soft, hard) = (seconds.min(own_hard), (seconds + 1).min(own_hard));
            limits.push(Limit { resource: cpu, soft, hard, ..Limit::default() });
        }
    }
    Ok(limits)
}

fn limit(planned: &Rlimit, core_is_a_guard: bool) -> Result<Limit> {
    let resource = planned.resource.number();
    let failed = |errno| Error::errno(Step::Rlimit, planned.resource.name(), errno);
    let (_, own_hard) = process::rlimit(resource).map_err(failed)?;
    let (mut soft, mut hard) =
        (planned.soft.unwrap_or(libc::RLIM_INFINITY), planned.hard.unwrap_or(libc::RLIM_INFINITY));
    // A limit of 0 would not keep the kernel from starting the host's crash helper.
    let no_core = core_is_a_guard && planned.resource == RlimitResource::Core && hard == 1;
    if planned.clamp && !no_core {
        (soft, hard) = (soft.min(own_hard), hard.min(own_hard));
    }
    Ok(Limit { resource, soft, hard, raised: hard > own_hard, optional: no_core, verified: false })
}

/// The program or socket in `core_pattern` that receives core dumps, `core(5)`.
pub fn core_helper() -> Option<String> {
    let pattern = file::read("/proc/sys/kernel/core_pattern").ok()?;
    let pattern = String::from_utf8_lossy(&pattern).trim_end().to_owned();
    pattern.starts_with(['|', '@']).then_some(pattern)
}

/// For a workload whose core limit is 0 because its caller's is.
pub fn crashes_reach_a_helper() -> Option<Degraded> {
    core_helper().map(|pattern| Degraded {
        what: "core-limit".to_owned(),
        wanted: "no program of the host is started for a crash".to_owned(),
        got: format!("core_pattern is {pattern:?}"),
        why: "the caller's hard limit on core files is 0, and only 1 keeps the kernel from starting it".to_owned(),
    })
}

/// The name of a resource.
pub fn name_of(resource: u32) -> &'static str {
    RlimitResource::ALL.iter().find(|item| item.number() == resource).map_or("?", |item| item.name())
}
