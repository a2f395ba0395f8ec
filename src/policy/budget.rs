//! The `[budget]` table: its settings, and the planned limits that result.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::budget_values::{FileName, FileValue, High, IoBound, PageSize};
use super::value::{Amount, CpuList, Cpus, Limit, Pids, Size, Weight};
use crate::error::{Error, Result, Step};
use crate::plan::{Budget, Facility};

/// Limits of the whole process tree, enforced by a cgroup.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct BudgetSettings {
    /// Limit on memory, including tmpfs contents.
    pub memory: Option<Limit<Amount>>,
    /// Memory usage above which the workload is slowed down instead of killed; `"90%"` is 90% of `memory`.
    pub memory_high: Option<Limit<High>>,
    /// Limit on swap. Without this setting, a memory limit also forbids swap.
    pub swap: Option<Limit<Size>>,
    /// CPU time per wall-clock time.
    pub cpus: Option<Limit<Cpus>>,
    /// Share of the CPUs under contention.
    pub cpu_weight: Option<Weight>,
    /// The CPUs that the tree may run on.
    pub cpuset_cpus: Option<CpuList>,
    /// The NUMA nodes that its memory may come from.
    pub cpuset_mems: Option<CpuList>,
    /// Limit on processes and threads.
    pub pids: Option<Limit<Pids>>,
    /// Limits on the traffic with block devices: `DEVICE:rbps=10M,wbps=5M,riops=100,wiops=100`. Adds; replaces the limits of
    /// the same device.
    #[serde(default)]
    pub io_max: Vec<IoBound>,
    /// Share of the block devices under contention.
    pub io_weight: Option<Weight>,
    /// Limits on huge pages in bytes, by page size: `{ "2M" = "64M" }`. Adds.
    #[serde(default)]
    #[cfg_attr(test, schemars(with = "BTreeMap<String, Size>"))]
    pub hugetlb: BTreeMap<PageSize, Size>,
    /// Any other file of a cgroup v2 controller: `{ "memory.low" = "64M" }`. Adds.
    #[serde(default)]
    #[cfg_attr(test, schemars(with = "BTreeMap<String, String>"))]
    pub set: BTreeMap<FileName, FileValue>,
    /// Controllers whose limits in this file apply only if the host can enforce them; the report lists those that it could
    /// not. A limit that a policy on top, or a flag, sets again is required.
    #[serde(default)]
    pub if_possible: Vec<Facility>,
    /// Whether every limit is enforced or the run refused: `if_possible` of all policies then counts for nothing.
    pub required: Option<bool>,
}

impl BudgetSettings {
    /// The controllers that these settings mention, including those whose limit is `unlimited`.
    pub(super) fn controllers(&self) -> Vec<Facility> {
        let mut controllers = self.to_budget().controllers();
        // A percentage gives no limit as long as `memory` is unknown, so `to_budget` leaves it out.
        controllers.extend((self.memory.is_some() || self.memory_high.is_some()).then_some(Facility::Memory));
        controllers.extend(self.cpus.is_some().then_some(Facility::Cpu));
        controllers.extend(self.pids.is_some().then_some(Facility::Pids));
        controllers
    }

    /// The planned budget.
    pub fn plan(&self) -> Result<Budget> {
        let budget = self.to_budget();
        if budget.memory_high_bytes.is_none()
            && let Some(Limit::At(High::Share(percent))) = self.memory_high
        {
            let reason = format!("{percent}% needs a memory limit, and none is set");
            return Err(Error::new(Step::Plan, "memory-high", reason).hint("set one with --memory SIZE"));
        }
        if let (Some(high), Some(max)) = (budget.memory_high_bytes, budget.memory_bytes)
            && high > max
        {
            let reason = format!("{high} bytes is above the memory limit of {max} bytes and would have no effect");
            return Err(Error::new(Step::Plan, "memory-high", reason));
        }
        let known = |facility: &&Facility| !Facility::CONTROLLERS.contains(facility);
        if let Some(other) = self.if_possible.iter().find(known) {
            let reason = format!("{} is not a cgroup controller", other.name());
            return Err(Error::new(Step::Plan, "budget.if_possible", reason));
        }
        Ok(budget)
    }

    fn to_budget(&self) -> Budget {
        let mut budget = Budget {
            memory_bytes: self.memory.and_then(Limit::bound).map(|size| size.get()),
            memory_high_bytes: self.memory_high.and_then(Limit::bound).and_then(|high| high.of(self.memory)),
            swap_bytes: self.swap.and_then(Limit::bound).map(|size| size.get()),
            cpu_quota_us: self.cpus.and_then(Limit::bound).map(|cpus| cpus.get()),
            cpu_weight: self.cpu_weight.map(|weight| weight.get()),
            cpuset_cpus: self.cpuset_cpus.as_ref().map(|list| list.0.clone()),
            cpuset_mems: self.cpuset_mems.as_ref().map(|list| list.0.clone()),
            pids: self.pids.and_then(Limit::bound).map(|pids| pids.get()),
            io_max: self.io_max.iter().map(|bound| bound.0.clone()).collect(),
            io_weight: self.io_weight.map(|weight| weight.get()),
            hugetlb: self.hugetlb.iter().map(|(size, max)| size.limited_to(max.get())).collect(),
            files: self.set.iter().map(|(name, value)| name.holding(value)).collect(),
            if_possible: Vec::new(),
        };
        if self.required != Some(true) {
            budget.if_possible = self.if_possible.clone();
        }
        // Otherwise the tree could exceed its memory limit by swapping.
        if budget.swap_bytes.is_none() && self.swap.is_none() && budget.memory_bytes.is_some() {
            budget.swap_bytes = Some(0);
        }
        budget
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::value::Value as _;

    #[test]
    fn memory_high_may_be_a_percentage_of_the_memory_limit() {
        let budget = |memory, high: &str| {
            let memory_high = Some(Limit::At(High::parse(high.as_bytes()).expect(high)));
            BudgetSettings { memory, memory_high, ..Default::default() }
        };
        let memory = |bytes| Some(Limit::At(Amount(bytes)));
        let high = |settings: &BudgetSettings| settings.plan().unwrap().memory_high_bytes;
        let settings = budget(memory(100 << 20), "90%");
        assert_eq!(high(&settings), Some(90 << 20));
        let smaller = BudgetSettings { memory: memory(10 << 20), ..Default::default() };
        assert_eq!(high(&settings.overlaid_with(smaller.clone())), Some(9 << 20), "a percentage stays one");
        assert_eq!(
            high(&budget(memory(100 << 20), "90M").overlaid_with(smaller)),
            None,
            "a size belonged to the old limit"
        );
        assert_eq!(high(&budget(memory(10_000), "99%")), Some(8192), "rounded to pages");
        assert_eq!(high(&budget(memory(u64::MAX), "1%")).map(|bytes| bytes % 4096), Some(0));
        for none in [None, Some(Limit::Unlimited)] {
            assert!(
                budget(none, "90%")
                    .plan()
                    .unwrap_err()
                    .to_string()
                    .contains("90% needs a memory limit, and none is set")
            );
        }
        for wrong in ["0%", "100%", "%", "-1%", "90.5%", "1K%", "0", "90 %"] {
            High::parse(wrong.as_bytes()).expect_err(wrong);
        }
    }

    #[test]
    fn a_default_limit_that_is_set_again_is_required() {
        let memory = |bytes| Some(Limit::At(Amount(bytes)));
        let pids = Some(Limit::At(Pids(9)));
        let if_possible = vec![Facility::Memory, Facility::Pids];
        let below =
            || BudgetSettings { memory: memory(1 << 30), pids, if_possible: if_possible.clone(), ..Default::default() };
        let merged = below().overlaid_with(BudgetSettings { memory: memory(1 << 20), ..Default::default() });
        assert_eq!(merged.plan().unwrap().if_possible, [Facility::Pids]);
        let share = Some(Limit::At(High::Share(90)));
        let merged = below().overlaid_with(BudgetSettings { memory_high: share, ..Default::default() });
        assert_eq!(merged.plan().unwrap().if_possible, [Facility::Pids]);
        let low = BTreeMap::from([(FileName("pids.x".into()), FileValue("1".into()))]);
        let merged = below().overlaid_with(BudgetSettings { set: low, ..Default::default() });
        assert_eq!(merged.plan().unwrap().if_possible, [Facility::Memory]);
        let merged = below().overlaid_with(BudgetSettings { memory: Some(Limit::Unlimited), ..Default::default() });
        let plan = merged.plan().unwrap();
        assert_eq!((plan.memory_bytes, plan.swap_bytes, plan.controllers()), (None, None, vec![Facility::Pids]));
    }

    #[test]
    fn a_required_budget_has_no_optional_limits() {
        let pids = Some(Limit::At(Pids(9)));
        let default = BudgetSettings { pids, if_possible: vec![Facility::Pids], ..Default::default() };
        assert_eq!(default.plan().unwrap().if_possible, [Facility::Pids]);
        let required = BudgetSettings { required: Some(true), ..Default::default() };
        assert_eq!(default.clone().overlaid_with(required.clone()).plan().unwrap().if_possible, []);
        let above = BudgetSettings { if_possible: vec![Facility::Pids], ..Default::default() };
        assert_eq!(default.overlaid_with(required).overlaid_with(above).plan().unwrap().if_possible, []);
    }

    #[test]
    fn a_memory_limit_forbids_swap_by_default() {
        let with =
            |swap| BudgetSettings { memory: Some(Limit::At(Amount(4096))), swap, ..Default::default() }.plan().unwrap();
        assert_eq!(with(None).swap_bytes, Some(0));
        assert_eq!(with(Some(Limit::At(Size(5)))).swap_bytes, Some(5));
        assert_eq!(with(Some(Limit::Unlimited)).swap_bytes, None);
    }
}
