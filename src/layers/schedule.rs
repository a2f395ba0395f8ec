//! How the workload is scheduled: `sched_setattr(2)`, `ioprio_set(2)`, `sched_setaffinity(2)`, `set_mempolicy(2)`, and its
//! `personality(2)`. The plan's numbers are the kernel's. A direct run has no such plan; it only gives up what its caller has.

use nix::errno::Errno;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

use super::{Applied, During};
use crate::error::Step;
use crate::plan::ContainerPlan;
use crate::plan::container::Process;
use crate::sys::schedule;

/// The names of what can fail here, by the index of a failure.
pub const NAMES: [&str; 6] =
    ["scheduler", "I/O priority", "final CPU affinity", "memory policy", "personality", "initial CPU affinity"];

/// Child half of a direct run: gives up what the caller has and others do not. That is real-time scheduling, a negative nice
/// value, the real-time I/O class, and an execution domain, which can switch address space randomisation off. Each is looked
/// at first, which is cheaper than setting it.
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

/// The CPUs of a process of `exec` until it is in the container's cgroups.
pub fn bind_initially(process: &Process) -> Applied {
    let Some(cpus) = &process.initial_cpu_affinity else { return Ok(()) };
    schedule::set_affinity(cpus).during(Step::Scheduling, 5)
}

/// The CPUs of a process of `exec` from then on: those that it is given, or those that the runtime had.
pub fn bind_finally(process: &Process, own: Option<&CpuSet>) -> Applied {
    match (&process.cpu_affinity, own) {
        (Some(cpus), _) => schedule::set_affinity(cpus).during(Step::Scheduling, 2),
        (None, Some(own)) => sched_setaffinity(Pid::from_raw(0), own).during(Step::Scheduling, 2),
        (None, None) => Ok(()),
    }
}

/// Whether it is to run before everything that is not of its kind: a process that never sleeps would then stop the others.
pub fn is_real_time(process: &Process) -> bool {
    process.scheduler.is_some_and(|planned| REAL_TIME.contains(&planned.policy))
}

/// Sets the policy of a process; 0 is this one. Some cannot be handed on to a child.
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

/// Sets all else that the plan names, which a child inherits.
pub fn apply(plan: &ContainerPlan) -> Applied {
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
