//! The cgroups of a container and their limits.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// The cgroups of a container.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ContainerCgroup {
    /// `cgroupsPath` of the configuration.
    pub path: String,
    /// Whether systemd creates it.
    pub systemd: bool,
    /// Properties for systemd, from annotations: name and value in systemd's notation.
    pub systemd_properties: Vec<(String, String)>,
    /// Whether the container has no cgroups.
    pub disabled: bool,
    /// The limits.
    pub resources: Resources,
}

/// The container's cgroups as a mount shows them.
#[derive(Clone, Debug, Default)]
pub struct CgroupView {
    /// The directories: that of cgroup v2 with an empty name, or one for each hierarchy of v1 under its name.
    pub directories: Vec<(String, PathBuf)>,
    /// Symlinks for hierarchies with several controllers: further names.
    pub links: Vec<(String, String)>,
    /// Whether the container has a cgroup namespace of its own.
    pub own_namespace: bool,
}

impl CgroupView {
    /// Adds a directory under the names of its controllers: `cpu,cpuacct`, or that of a named hierarchy. One without controllers is
    /// that of cgroup v2 beside v1.
    pub fn add(&mut self, controllers: &[String], path: &Path) {
        let name = match controllers {
            [] => "unified".to_owned(), // systemd's name for it
            [name] => name.strip_prefix("name=").unwrap_or(name).to_owned(),
            several => several.join(","),
        };
        if controllers.len() > 1 {
            self.links.extend(controllers.iter().map(|link| (link.clone(), name.clone())));
        }
        self.directories.push((name, path.to_owned()));
    }

    /// The directory of cgroup v2 alone.
    pub fn of_v2(path: &Path) -> Self {
        Self { directories: vec![(String::new(), path.to_owned())], ..Self::default() }
    }
}

/// Resource limits in the terms of the runtime specification, from which both versions of cgroups are configured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
#[allow(missing_docs)]
pub struct Resources {
    pub memory_limit: Option<i64>,
    pub memory_reservation: Option<i64>,
    pub memory_swap: Option<i64>,
    pub memory_kernel_tcp: Option<i64>,
    pub memory_swappiness: Option<u64>,
    pub disable_oom_killer: bool,
    pub check_before_update: bool,
    pub cpu_shares: Option<u64>,
    pub cpu_quota: Option<i64>,
    pub cpu_period: Option<u64>,
    pub cpu_burst: Option<u64>,
    pub cpu_realtime_runtime: Option<i64>,
    pub cpu_realtime_period: Option<u64>,
    pub cpu_idle: Option<i64>,
    pub cpus: Option<String>,
    pub mems: Option<String>,
    pub pids: Option<i64>,
    pub block_weight: Option<u16>,
    pub block_leaf_weight: Option<u16>,
    /// `MAJOR:MINOR`, weight and leaf weight.
    pub block_weights: Vec<(String, Option<u16>, Option<u16>)>,
    /// Which of read or write, bytes or operations (`rbps`, `wbps`, `riops`, `wiops`), `MAJOR:MINOR`, and the rate.
    pub block_throttles: Vec<(String, String, u64)>,
    /// Page size as in the kernel's file names, and limit in bytes.
    pub hugepages: Vec<(String, u64)>,
    pub network_class: Option<u32>,
    /// Interface and priority.
    pub network_priorities: Vec<(String, u32)>,
    /// Device, handles and objects.
    pub rdma: Vec<(String, Option<u32>, Option<u32>)>,
    /// Files of cgroup v2, and their contents.
    pub unified: Vec<(String, String)>,
    /// Rules about device nodes, in order: the last that matches decides. `None` does not change device access.
    pub devices: Option<Vec<DeviceRule>>,
}

impl Resources {
    /// Applies the values that `other` sets, and keeps the rest.
    pub fn merge(&mut self, other: &Self) {
        macro_rules! options {
            ($($field:ident)*) => { $(if other.$field.is_some() { self.$field = other.$field.clone(); })* };
        }
        macro_rules! lists {
            ($($field:ident)*) => { $(for item in &other.$field {
                self.$field.retain(|known| known.0 != item.0 || known.1 != item.1 && stringify!($field) == "block_throttles");
                self.$field.push(item.clone());
            })* };
        }
        options! {
            memory_limit memory_reservation memory_swap memory_kernel_tcp memory_swappiness cpu_shares cpu_quota cpu_period
            cpu_burst cpu_realtime_runtime cpu_realtime_period cpu_idle cpus mems pids block_weight block_leaf_weight
            network_class
        }
        lists! { block_weights block_throttles hugepages network_priorities rdma unified }
        self.disable_oom_killer |= other.disable_oom_killer;
        if other.devices.as_ref().is_some_and(|rules| !rules.is_empty()) {
            self.devices.clone_from(&other.devices);
        }
    }
}

/// A rule about device nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DeviceRule {
    /// Whether it allows access.
    pub allow: bool,
    /// `a` (all), `b` (block) or `c` (character).
    pub kind: char,
    /// `None` for all.
    pub major: Option<u32>,
    /// `None` for all.
    pub minor: Option<u32>,
    /// Any of `r`, `w` and `m`.
    pub access: String,
}
