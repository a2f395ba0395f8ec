//! The limits of the whole process tree.

use serde::{Deserialize, Serialize};

use super::{Bytes, Facility};

/// The limits of the whole process tree, by the files of cgroup v2. A limit that is left out is unlimited.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Budget {
    /// `memory.max`, with `memory.oom.group` set: the tree dies as a whole.
    pub memory_bytes: Option<u64>,
    /// `memory.high`: above it the tree is slowed down.
    pub memory_high_bytes: Option<u64>,
    /// `memory.swap.max`.
    pub swap_bytes: Option<u64>,
    /// `cpu.max`, in microseconds of CPU time per 100 ms of wall time (100,000 is one whole CPU).
    pub cpu_quota_us: Option<u64>,
    /// `cpu.weight`, 1 to 10,000; the kernel's default is 100.
    pub cpu_weight: Option<u64>,
    /// `cpuset.cpus`, a list such as `0-3,7`.
    pub cpuset_cpus: Option<String>,
    /// `cpuset.mems`, a list of NUMA nodes.
    pub cpuset_mems: Option<String>,
    /// `pids.max`: processes and threads.
    pub pids: Option<u64>,
    /// `io.max`, for each device.
    pub io_max: Vec<IoMax>,
    /// `io.weight`, 1 to 10,000; the kernel's default is 100.
    pub io_weight: Option<u64>,
    /// `hugetlb.SIZE.max`.
    pub hugetlb: Vec<HugetlbMax>,
    /// Other files of a controller, as `CONTROLLER.FILE`.
    pub files: Vec<CgroupFile>,
    /// Controllers whose limits are only defaults: they apply if the host can enforce them at low cost, and are reported as
    /// degraded otherwise.
    pub if_possible: Vec<Facility>,
}

/// Limits on the traffic with one block device. A limit that is left out is unlimited.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct IoMax {
    /// A whole block device: its host path, or `MAJOR:MINOR`.
    pub device: Bytes,
    /// Bytes read per second.
    pub rbps: Option<u64>,
    /// Bytes written per second.
    pub wbps: Option<u64>,
    /// Reads per second.
    pub riops: Option<u64>,
    /// Writes per second.
    pub wiops: Option<u64>,
}

/// A limit on huge pages of one size.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct HugetlbMax {
    /// The size as in the kernel's file name: `2MB`, `1GB`.
    pub page_size: String,
    /// The limit in bytes.
    pub max_bytes: u64,
}

/// A file of a cgroup, and its content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct CgroupFile {
    /// Its name, which begins with the name of its controller.
    pub name: String,
    /// The content to write.
    pub value: String,
}

impl CgroupFile {
    /// The controller that it belongs to; `None` if a budget cannot use that controller.
    pub fn controller(&self) -> Option<Facility> {
        let facility = self.name.split_once('.')?.0.parse().ok()?;
        Facility::CONTROLLERS.contains(&facility).then_some(facility)
    }
}

impl Budget {
    /// Whether there is no limit, so that no cgroup is needed.
    pub fn is_empty(&self) -> bool {
        self.controllers().is_empty()
    }

    /// The limits that need a controller, as text.
    pub fn describe(&self, controller: Facility) -> String {
        let number = |name: &str, value: Option<u64>| value.map(|value| format!("{name} {value}"));
        let list = |name: &str, value: &Option<String>| value.as_ref().map(|value| format!("{name} {value}"));
        let mut limits: Vec<String> = match controller {
            Facility::Memory => vec![
                number("memory.max", self.memory_bytes),
                number("memory.high", self.memory_high_bytes),
                number("memory.swap.max", self.swap_bytes),
            ],
            Facility::Cpu => {
                vec![number("us of CPU per 100 ms:", self.cpu_quota_us), number("cpu.weight", self.cpu_weight)]
            }
            Facility::Cpuset => vec![list("cpuset.cpus", &self.cpuset_cpus), list("cpuset.mems", &self.cpuset_mems)],
            Facility::Pids => vec![number("pids.max", self.pids)],
            Facility::Io => {
                let devices = self.io_max.iter().map(|io| Some(format!("io.max of {}", io.device)));
                devices.chain([number("io.weight", self.io_weight)]).collect()
            }
            Facility::Hugetlb => self.hugetlb.iter().map(|one| number(&one.page_size, Some(one.max_bytes))).collect(),
            _ => Vec::new(),
        }
        .into_iter()
        .flatten()
        .collect();
        let files = self.files.iter().filter(|file| file.controller() == Some(controller));
        limits.extend(files.map(|file| format!("{} {}", file.name, file.value)));
        limits.join(", ")
    }

    /// The controllers that its limits need, in the order of [`Facility`].
    pub fn controllers(&self) -> Vec<Facility> {
        let memory = [self.memory_bytes, self.memory_high_bytes, self.swap_bytes].iter().any(Option::is_some);
        let named = [
            (Facility::Cpu, self.cpu_quota_us.is_some() || self.cpu_weight.is_some()),
            (Facility::Memory, memory),
            (Facility::Pids, self.pids.is_some()),
            (Facility::Io, !self.io_max.is_empty() || self.io_weight.is_some()),
            (Facility::Cpuset, self.cpuset_cpus.is_some() || self.cpuset_mems.is_some()),
            (Facility::Hugetlb, !self.hugetlb.is_empty()),
        ];
        let named = named.into_iter().filter(|(_, limited)| *limited).map(|(controller, _)| controller);
        let mut controllers: Vec<_> = named.chain(self.files.iter().filter_map(CgroupFile::controller)).collect();
        controllers.sort();
        controllers.dedup();
        controllers
    }
}
