//! A run's cgroups in v1, on hosts with v1 only or both versions. Only root uses them.
//!
//! cgroup v1 lacks the kill of a whole group (when memory runs out the kernel kills one process), `memory.high`, pressure and
//! `pids.peak`. A process cannot be created in a cgroup of v1: it enters it before it does anything else.

use nix::errno::Errno;
use nix::unistd::{AccessFlags, access, geteuid};

use super::hierarchies::{Hierarchies, V1};
use super::leaf::{new_path, rmdir};
use super::{Request, failed, v1};
use crate::error::{Error, Result, Step};
use crate::plan::container::Resources;
use crate::plan::{Budget, Facility};

/// The budgets that v1 can enforce, in the order in which they are applied.
const LIMITED: [Facility; 4] = [Facility::Memory, Facility::Cpu, Facility::Cpuset, Facility::Pids];

/// Controllers that are used even without a limit: three measure usage, and the JVM looks for its memory limit only where it
/// finds cpu and cpuset too.
const ALWAYS: [&str; 5] = ["memory", "cpuacct", "pids", "cpu", "cpuset"];

/// The budgets for which root has a hierarchy with the controller. Root of a container or of another user namespace may be unable
/// to write to it.
pub fn available(hierarchies: &Hierarchies) -> Vec<Facility> {
    if !geteuid().is_root() {
        return Vec::new();
    }
    let usable: Vec<_> =
        hierarchies.v1.iter().filter(|one| is_writable(one)).flat_map(|one| &one.controllers).collect();
    LIMITED.into_iter().filter(|facility| usable.iter().any(|name| *name == facility.name())).collect()
}

fn is_writable(hierarchy: &V1) -> bool {
    access(&hierarchy.own, AccessFlags::W_OK).is_ok()
}

/// A run's cgroup in each hierarchy that measures or limits something. Removed on drop.
#[derive(Debug, Default)]
pub struct Leaves {
    cgroup: v1::Cgroup,
    removed: bool,
}

impl Leaves {
    /// Creates them below this process's own cgroups, so that the caller's limits apply to them too.
    pub fn make(hierarchies: &Hierarchies, id: &str, wanted: &[Facility]) -> Result<Self> {
        let mut leaves = Self::default(); // dropped, and so removed, on failure
        let limits = |name: &str| LIMITED.iter().any(|one| one.name() == name && wanted.contains(one));
        for hierarchy in &hierarchies.v1 {
            let used = hierarchy.controllers.iter().filter(|name| ALWAYS.contains(&name.as_str()) || limits(name));
            let used: Vec<_> = used.cloned().collect();
            if used.is_empty() || !is_writable(hierarchy) {
                continue;
            }
            let path = new_path(&hierarchy.own, id)?;
            let made = v1::make(&path, &used).and_then(|_| leaves.cgroup.open(&used, &path));
            if let Err(error) = made {
                let _ = rmdir(&path);
                return Err(error);
            }
        }
        Ok(leaves)
    }

    /// Applies a budget, except the limits that were dropped.
    pub fn limit(&self, budget: &Budget, request: &mut Request<'_>) -> Result<()> {
        for facility in LIMITED {
            if request.has(facility)
                && let Err(error) = self.limit_one(facility, budget)
            {
                request.degrade(facility, error)?;
            }
        }
        Ok(())
    }

    fn limit_one(&self, facility: Facility, budget: &Budget) -> Result<()> {
        let resources = resources(facility, budget)?;
        if let Some(memory) = self.cgroup.with("memory")
            && facility == Facility::Memory
            && budget.swap_bytes.is_some_and(|bytes| bytes > 0)
            && !self.cgroup.counts_swap()
        {
            return Err(failed(&memory.path().join(v1::SWAP), Errno::ENOENT)); // a budget that allows some swap needs the file
        }
        self.cgroup.limit(&resources)
    }

    /// The open directories.
    pub fn cgroup(&self) -> &v1::Cgroup {
        &self.cgroup
    }

    /// Removes them. Their processes have exited or are exiting.
    pub fn remove(mut self) -> Result<()> {
        self.removed = true;
        self.remove_all()
    }

    fn remove_all(&self) -> Result<()> {
        let mut result = Ok(());
        for dir in self.cgroup.dirs() {
            result = v1::remove(dir.path()).and(result); // tries all of them, even if one fails
        }
        result
    }
}

impl Drop for Leaves {
    fn drop(&mut self) {
        if !self.removed {
            let _ = self.remove_all(); // reached only after another error
        }
    }
}

/// Converts one facility's part of a budget to limits of v1. No part of a budget is 0, which means unlimited in v1.
fn resources(facility: Facility, budget: &Budget) -> Result<Resources> {
    let lacking = |file: &str| {
        Error::new(Step::Cgroup, file, "cgroup v1 does not have it, and this host has its controller there")
    };
    let signed = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    let mut resources = Resources::default();
    match facility {
        Facility::Memory if budget.memory_high_bytes.is_some() => return Err(lacking("memory.high")),
        Facility::Memory => {
            resources.memory_limit = budget.memory_bytes.map(signed);
            let with_swap = |swap| Some(signed(budget.memory_bytes?.saturating_add(swap)));
            resources.memory_swap = budget.swap_bytes.and_then(with_swap);
        }
        Facility::Cpu => {
            resources.cpu_quota = budget.cpu_quota_us.map(signed);
            resources.cpu_period = budget.cpu_quota_us.map(|_| super::budget::CPU_PERIOD_US);
            // The default weight is 100 in v2 and 1024 in v1.
            resources.cpu_shares = budget.cpu_weight.map(|weight| (weight * 1024 / 100).max(2));
        }
        Facility::Cpuset => {
            resources.cpus.clone_from(&budget.cpuset_cpus);
            resources.mems.clone_from(&budget.cpuset_mems);
        }
        _ => resources.pids = budget.pids.map(signed),
    }
    if let Some(file) = budget.files.iter().find(|file| file.controller() == Some(facility)) {
        return Err(lacking(&file.name));
    }
    if facility == Facility::Memory && resources.memory_limit.is_none() {
        return Err(Error::new(Step::Cgroup, "swap", "cgroup v1 bounds swap only together with memory")
            .hint("give a memory budget too"));
    }
    Ok(resources)
}
