//! The `[budget]` table: its settings, how they merge, and the planned limits that result.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::merge::joined;
use super::path::DevicePath;
use super::units;
use super::value::{Amount, CpuList, Cpus, Limit, Pids, Size, Value, Weight, text, written};
use crate::error::{Error, Result, Step};
use crate::plan::{Budget, Bytes, CgroupFile, Facility, HugetlbMax, IoMax};

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
}

impl BudgetSettings {
    /// These settings with those of `over` on top.
    #[must_use]
    pub(super) fn overlaid_with(self, over: Self) -> Self {
        let required = over.controllers();
        // Destructured, so that a new setting does not compile until its merging is decided here.
        let Self {
            memory,
            memory_high,
            swap,
            cpus,
            cpu_weight,
            cpuset_cpus,
            cpuset_mems,
            pids,
            mut io_max,
            io_weight,
            mut hugetlb,
            mut set,
            mut if_possible,
        } = self;
        io_max.retain(|bound| over.io_max.iter().all(|above| above.0.device != bound.0.device));
        io_max.extend(over.io_max);
        hugetlb.extend(over.hugetlb);
        set.extend(over.set);
        if_possible.retain(|controller| !required.contains(controller));
        Self {
            // An absolute `memory_high` was chosen for the old memory limit, so a new limit drops it.
            memory_high: over.memory_high.or(memory_high.filter(|high| over.memory.is_none() || high.is_share())),
            memory: over.memory.or(memory),
            swap: over.swap.or(swap),
            cpus: over.cpus.or(cpus),
            cpu_weight: over.cpu_weight.or(cpu_weight),
            cpuset_cpus: over.cpuset_cpus.or(cpuset_cpus),
            cpuset_mems: over.cpuset_mems.or(cpuset_mems),
            pids: over.pids.or(pids),
            io_max,
            io_weight: over.io_weight.or(io_weight),
            hugetlb,
            set,
            if_possible: joined(if_possible, over.if_possible),
        }
    }

    /// The controllers that these settings mention, including those whose limit is `unlimited`.
    fn controllers(&self) -> Vec<Facility> {
        let mut controllers = self.to_budget().controllers();
        // A percentage gives no limit as long as `memory` is unknown, so `to_budget` leaves it out.
        controllers.extend((self.memory.is_some() || self.memory_high.is_some()).then_some(Facility::Memory));
        controllers.extend(self.cpus.is_some().then_some(Facility::Cpu));
        controllers.extend(self.pids.is_some().then_some(Facility::Pids));
        controllers
    }

    /// The planned budget.
    pub(super) fn plan(&self) -> Result<Budget> {
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
        budget.if_possible = self.if_possible.clone();
        // Otherwise the tree could exceed its memory limit by swapping.
        if budget.swap_bytes.is_none() && self.swap.is_none() && budget.memory_bytes.is_some() {
            budget.swap_bytes = Some(0);
        }
        budget
    }
}

/// The memory usage above which memory is reclaimed and the workload slowed down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum High {
    /// This many bytes, at least one.
    Bytes(u64),
    /// This percentage of the memory limit: 1 to 99.
    Share(u8),
}

impl High {
    fn of(self, memory: Option<Limit<Amount>>) -> Option<u64> {
        match self {
            Self::Bytes(bytes) => Some(bytes),
            Self::Share(percent) => {
                let max = memory.and_then(Limit::bound)?.get();
                // Rounded to pages as the kernel does, because the value read back is compared with the one written.
                Some(((u128::from(max) * u128::from(percent) / 100) as u64 / 4096).max(1) * 4096)
            }
        }
    }
}

impl Limit<High> {
    fn is_share(&self) -> bool {
        matches!(self, Self::At(High::Share(_)))
    }
}

impl Value for High {
    const WHAT: &'static str = "a size such as 512M, or a percentage of the memory limit such as 90%";
    const NUMERIC: bool = true;
    fn parse(bytes: &[u8]) -> std::result::Result<Self, String> {
        let Some(percent) = bytes.strip_suffix(b"%") else {
            return Amount::parse(bytes).map(|size| Self::Bytes(size.get()));
        };
        match units::whole(text(percent)?)? {
            percent @ 1..=99 => Ok(Self::Share(percent as u8)),
            other => Err(format!("{other}% is not between 1% and 99% of the memory limit")),
        }
    }
}

/// Parses `KEY=VALUE`, the form of `--hugetlb` and `--cgroup-set`.
pub fn pair<K: Value, V: Value>(bytes: &[u8]) -> std::result::Result<(K, V), String> {
    let at = bytes.iter().position(|byte| *byte == b'=').ok_or("lacks a value: NAME=VALUE")?;
    Ok((K::parse(&bytes[..at])?, V::parse(&bytes[at + 1..])?))
}

/// Bounds on the traffic with one block device.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(try_from = "String")]
#[cfg_attr(test, schemars(with = "String"))]
pub struct IoBound(IoMax);

impl Value for IoBound {
    const WHAT: &'static str = "DEVICE:KEY=VALUE[,…], with keys rbps, wbps, riops and wiops";
    fn parse(bytes: &[u8]) -> std::result::Result<Self, String> {
        let line = text(bytes)?;
        let wrong = || format!("{line:?} is not {}", Self::WHAT);
        // The device may contain a colon, as 8:0 does.
        let colon = line.find('=').and_then(|equals| line[..equals].rfind(':')).ok_or_else(wrong)?;
        let (device, bounds) = (&line[..colon], &line[colon + 1..]);
        let numbers = |device: &str| {
            let (major, minor) = device.split_once(':')?;
            (units::whole(major).ok()? < 4_096 && units::whole(minor).ok()? < 1 << 20).then_some(())
        };
        if numbers(device).is_none() {
            DevicePath::parse(device.as_bytes())?;
        }
        let mut io = IoMax { device: Bytes::from(device), ..IoMax::default() };
        for bound in bounds.split(',') {
            let (key, value) = bound.split_once('=').ok_or_else(wrong)?;
            let slot = match key {
                "rbps" => &mut io.rbps,
                "wbps" => &mut io.wbps,
                "riops" => &mut io.riops,
                "wiops" => &mut io.wiops,
                _ => return Err(wrong()),
            };
            if slot.is_some() {
                return Err(format!("{key} is given twice"));
            }
            let number = if key.ends_with("iops") { units::whole(value)? } else { units::size(value)? };
            // The kernel rejects 0, and its error does not name the key.
            *slot = Some(number).filter(|number| *number > 0);
            if slot.is_none() {
                return Err(format!("{key}=0 is not a limit: use at least 1"));
            }
        }
        Ok(Self(io))
    }
}

/// The size of a huge page.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub struct PageSize(u64);

impl Value for PageSize {
    const WHAT: &'static str = "the size of a huge page, such as 2M or 1G";
    fn parse(bytes: &[u8]) -> std::result::Result<Self, String> {
        let size = text(bytes)?;
        // The kernel's names end in B: 2MB.
        let bytes = units::size(size.strip_suffix(['B', 'b']).unwrap_or(size))?;
        if bytes.is_power_of_two() && bytes >= 1 << 14 {
            Ok(Self(bytes))
        } else {
            Err(format!("{size:?} is not {}", Self::WHAT))
        }
    }
}

impl PageSize {
    fn limited_to(&self, max_bytes: u64) -> HugetlbMax {
        let (shift, unit) = match self.0 {
            size if size >= 1 << 30 => (30, "GB"),
            size if size >= 1 << 20 => (20, "MB"),
            _ => (10, "KB"),
        };
        HugetlbMax { page_size: format!("{}{unit}", self.0 >> shift), max_bytes }
    }
}

/// The name of a controller's file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub struct FileName(String);

impl Value for FileName {
    const WHAT: &'static str = "a file of a cgroup v2 controller, such as memory.low";
    fn parse(bytes: &[u8]) -> std::result::Result<Self, String> {
        let name = text(bytes)?;
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-');
        let file = CgroupFile { name: name.to_owned(), value: String::new() };
        if name.starts_with("cgroup.") {
            return Err(format!("{name} is reserved for stockade: only files of controllers can be set"));
        }
        if file.controller().is_none() || name.len() > 64 || name.ends_with('.') || !name.bytes().all(allowed) {
            let known: Vec<_> = Facility::CONTROLLERS.iter().map(|controller| controller.name()).collect();
            return Err(format!("{name:?} is not {}; known controllers: {}", Self::WHAT, known.join(", ")));
        }
        Ok(Self(name.to_owned()))
    }
}

impl FileName {
    fn holding(&self, value: &FileValue) -> CgroupFile {
        CgroupFile { name: self.0.clone(), value: value.0.clone() }
    }
}

/// The content of a controller's file: one line.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct FileValue(String);

impl Value for FileValue {
    const WHAT: &'static str = "one line of printable text";
    fn parse(bytes: &[u8]) -> std::result::Result<Self, String> {
        let value = text(bytes)?;
        let printable = value.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic());
        match printable && !value.trim().is_empty() && value.len() <= 256 {
            true => Ok(Self(value.trim().to_owned())),
            false => Err(format!("{value:?} is not {}", Self::WHAT)),
        }
    }
}

macro_rules! from_text {
    ($($type:ident)+) => {$(
        impl TryFrom<String> for $type {
            type Error = String;
            fn try_from(text: String) -> std::result::Result<Self, String> {
                Self::parse(text.as_bytes())
            }
        }
    )+};
}

written! { High }

from_text! { IoBound PageSize FileName FileValue }

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn io_bounds_name_a_device_and_at_least_one_rate() {
        let bound = IoBound::parse(b"/dev/sda:rbps=1M,wiops=5").unwrap().0;
        assert_eq!((bound.device, bound.rbps, bound.wiops), ("/dev/sda".into(), Some(1 << 20), Some(5)));
        assert_eq!(IoBound::parse(b"8:16:wbps=7").unwrap().0.device, "8:16".into());
        for wrong in ["", "8:0", "/dev/sda", "sda:rbps=1", "/dev/sda:", "/dev/sda:x=1", "8:0:rbps", "8:0:rbps=0"] {
            IoBound::parse(wrong.as_bytes()).expect_err(wrong);
        }
        for wrong in
            ["8:0:rbps=1,rbps=2", "8:0:riops=1K", "8:0:rbps=1,", "/dev/../sda:rbps=1", "8:0:rbps=-1", "a:b:rbps=1"]
        {
            IoBound::parse(wrong.as_bytes()).expect_err(wrong);
        }
    }

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
    fn only_files_of_controllers_can_be_set() {
        for name in ["memory.low", "cpu.weight.nice", "hugetlb.2MB.rsvd.max", "misc.max", "io.latency"] {
            FileName::parse(name.as_bytes()).expect(name);
        }
        for wrong in
            ["", "memory", "memory.", ".max", "cgroup.procs", "cgroup.freeze", "memory./../x", "memory.a/b", "tasks"]
        {
            FileName::parse(wrong.as_bytes()).expect_err(wrong);
        }
        for wrong in ["landlock.max", "keyring.x", "memory.low\n", "memory.low\0", "Memory.low"] {
            FileName::parse(wrong.as_bytes()).expect_err(wrong);
        }
        for wrong in ["", " ", "1\n2", "\x1b"] {
            FileValue::parse(wrong.as_bytes()).expect_err(wrong);
        }
    }

    #[test]
    fn huge_pages_have_the_kernels_names() {
        for (text, name) in [("2M", "2MB"), ("2MB", "2MB"), ("1G", "1GB"), ("64K", "64KB"), ("16777216", "16MB")] {
            assert_eq!(PageSize::parse(text.as_bytes()).unwrap().limited_to(1).page_size, name);
        }
        for wrong in ["3M", "0", "1", "", "2MX"] {
            PageSize::parse(wrong.as_bytes()).expect_err(wrong);
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
    fn a_memory_limit_forbids_swap_by_default() {
        let with =
            |swap| BudgetSettings { memory: Some(Limit::At(Amount(4096))), swap, ..Default::default() }.plan().unwrap();
        assert_eq!(with(None).swap_bytes, Some(0));
        assert_eq!(with(Some(Limit::At(Size(5)))).swap_bytes, Some(5));
        assert_eq!(with(Some(Limit::Unlimited)).swap_bytes, None);
    }
}
