//! Scheduling of the workload: `sched_setattr(2)`, `ioprio_set(2)`, `sched_setaffinity(2)`, `set_mempolicy(2)`, and its
//! `personality(2)`. The plan contains the kernel's numbers. A direct run has no such plan and only drops the caller's
//! privileges.

use nix::errno::Errno;

use crate::error::Step;
use crate::failure::{Applied, During};
use crate::plan::ContainerPlan;
use crate::plan::container::Process;
use crate::sys::schedule;

/// Names of the settings, by the index of a failure.
pub const NAMES: [&str; 6] =
    ["scheduler", "I/O priority", "final CPU affinity", "memory policy", "personality", "initial CPU affinity"];

/// Child half of a direct run: resets privileged scheduling of the caller. That is real-time scheduling, a negative nice value,
/// the real-time I/O class, and an execution domain, which can switch off address space randomisation. Each is read first,
/// which is cheaper than setting it.
pub fn renounce() -> Applied {
    const REAL_TIME_CLASS: u32 = 1;
    let (policy, nice) = schedule::policy_and_nice().during(Step::Scheduling, 0)?;
    if REAL_TIME.contains(&policy) || nice < 0 {
        let policy = if REAL_TIME.contains(&policy) { libc::SCHED_OTHER as u32 } else { policy };
        let attributes = schedule::Attributes { policy, nice: nice.max(0), ..Default::default() };
        schedule::set(0, attributes).during(Step::Scheduling, 0)?;
    }
    match schedule::io_class() {
        Ok(REAL_TIME_CLASS) => schedule::set_io_priority(0, 0).during(Step::Scheduling, 1)?,
        Err(Errno::ENOSYS) => {} // a kernel without block devices
        class => drop(class.during(Step::Scheduling, 1)?),
    }
    if schedule::personality().during(Step::Scheduling, 4)? != 0 {
        schedule::set_personality(0).during(Step::Scheduling, 4)?;
    }
    Ok(())
}

const SCHED_DEADLINE: u32 = 6;
const REAL_TIME: [u32; 3] = [libc::SCHED_FIFO as u32, libc::SCHED_RR as u32, SCHED_DEADLINE];

/// Sets the CPUs of a process of `exec` until it is in the container's cgroups.
pub fn bind_initially(process: &Process) -> Applied {
    let Some(cpus) = &process.initial_cpu_affinity else { return Ok(()) };
    schedule::set_affinity(cpus).during(Step::Scheduling, 5)
}

/// Whether the process would run before all others. A real-time process that never sleeps starves them.
pub fn is_real_time(process: &Process) -> bool {
    process.scheduler.is_some_and(|planned| REAL_TIME.contains(&planned.policy))
}

/// Sets the scheduling policy of a process; 0 means the caller. A child does not inherit every policy.
pub fn set_policy(process: &Process, pid: i32) -> Applied {
    let Some(planned) = process.scheduler else { return Ok(()) };
    let attributes = schedule::Attributes {
        policy: planned.policy,
        flags: planned.flags,
        nice: planned.nice,
        priority: planned.priority,
        runtime: planned.runtime,
        deadline: planned.deadline,
        period: planned.period,
        ..Default::default()
    };
    schedule::set(pid, attributes).during(Step::Scheduling, 0)
}

/// Sets everything else that the plan configures. Children inherit these settings. A process of `exec` has CPUs of its own. Any
/// other has those of its cgroup, not the CPUs that a caller such as an engine's service is bound to.
pub fn apply(plan: &ContainerPlan, is_exec: bool) -> Applied {
    match &plan.process.cpu_affinity {
        Some(cpus) if is_exec => schedule::set_affinity(cpus).during(Step::Scheduling, 2)?,
        _ => drop(schedule::use_every_cpu()), // refused: the process stays with its caller's CPUs
    }
    if let Some((class, level)) = plan.process.io_priority {
        schedule::set_io_priority(class, level).during(Step::Scheduling, 1)?;
    }
    if let Some((mode, nodes)) = &plan.memory_policy {
        schedule::set_memory_policy(*mode, nodes).during(Step::Scheduling, 3)?;
    }
    if let Some(domain) = plan.personality {
        schedule::set_personality(domain).during(Step::Scheduling, 4)?;
    }
    Ok(())
}
