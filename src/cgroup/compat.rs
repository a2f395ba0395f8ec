//! cgroup v1, alone or on hybrid hosts: the same budget, as far as v1 has it, for root.
//!
//! Through cgroups-rs, with two precautions. It writes wherever it is told, so what it is told was checked to be a cgroup
//! file system. And several of its errors are swallowed, so every value, and every process moved, is read back.
//!
//! What v1 lacks: kill of a whole group (when memory runs out the kernel kills one process), `memory.high`, pressure,
//! `pids.peak`; and a process cannot be born into a cgroup, it is moved there before it goes on.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use cgroups_rs::CgroupPid;
use cgroups_rs::fs::cpu::CpuController;
use cgroups_rs::fs::cpuacct::CpuAcctController;
use cgroups_rs::fs::cpuset::CpuSetController;
use cgroups_rs::fs::memory::MemController;
use cgroups_rs::fs::pid::PidController;
use cgroups_rs::fs::{Controller, MaxValue};
use nix::errno::Errno;

use super::budget::{CPU_PERIOD_US, Limit, members};
use super::files::{Dir, keyed};
use super::find::{Hierarchies, V1};
use super::leaf::{new_path, remove_tree, rmdir};
use super::{Asked, failed};
use crate::error::{Error, Result, Step};
use crate::plan::{Budget, Facility};
use crate::report::Usage;
use crate::sys::schedule;

/// How long a dead tree may take to leave its cgroups.
const EMPTY_DEADLINE: Duration = Duration::from_secs(5);

/// A controller of v1 that is used here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Memory,
    Cpu,
    Cpuacct,
    Cpuset,
    Pids,
}

/// Each with its name, and the budget that it enforces.
const KINDS: [(Kind, &str, Option<Facility>); 5] = [
    (Kind::Memory, "memory", Some(Facility::Memory)),
    (Kind::Cpu, "cpu", Some(Facility::Cpu)),
    (Kind::Cpuacct, "cpuacct", None),
    (Kind::Cpuset, "cpuset", Some(Facility::Cpuset)),
    (Kind::Pids, "pids", Some(Facility::Pids)),
];

/// The budgets that these hierarchies have a controller for.
pub fn available(hierarchies: &Hierarchies) -> Vec<Facility> {
    let has = |name: &str| hierarchies.v1.iter().any(|v1| v1.controllers.iter().any(|controller| controller == name));
    KINDS.into_iter().filter(|(_, name, _)| has(name)).filter_map(|(_, _, facility)| facility).collect()
}

/// A run's cgroups, one in each hierarchy that counts or limits something, that go when this does.
#[derive(Debug)]
pub struct Leaves {
    leaves: Vec<One>,
    removed: bool,
}

#[derive(Debug)]
struct One {
    kinds: Vec<Kind>,
    dir: Dir,
}

impl Leaves {
    /// Makes them, below this process's own cgroups, so that what bounds us bounds them too.
    pub fn make(hierarchies: &Hierarchies, id: &str, wanted: &[Facility]) -> Result<Self> {
        let mut leaves = Self { leaves: Vec::new(), removed: false };
        for v1 in &hierarchies.v1 {
            let kinds: Vec<_> = KINDS
                .into_iter()
                .filter(|(kind, name, facility)| {
                    // Memory, CPU time and processes are counted in any case; the others only limit.
                    let counts = matches!(kind, Kind::Memory | Kind::Cpuacct | Kind::Pids);
                    let limits = facility.is_some_and(|facility| wanted.contains(&facility));
                    (counts || limits) && v1.controllers.iter().any(|controller| controller == name)
                })
                .map(|(kind, ..)| kind)
                .collect();
            if !kinds.is_empty() {
                leaves.leaves.push(One::make(v1, kinds, id)?);
            }
        }
        Ok(leaves)
    }

    fn with(&self, kind: Kind) -> Result<&One> {
        with(&self.leaves, kind)
            .ok_or_else(|| Error::new(Step::Cgroup, format!("{kind:?}"), "no cgroup v1 hierarchy has this controller"))
    }

    /// Puts a budget in force, except the limits that had to be left out.
    pub fn limit(&self, budget: &Budget, asked: &mut Asked<'_>) -> Result<()> {
        type Apply = fn(&Leaves, &Budget) -> Result<()>;
        let steps: [(Facility, Apply); 4] = [
            (Facility::Memory, Self::limit_memory),
            (Facility::Cpu, Self::limit_cpu),
            (Facility::Cpuset, Self::limit_cpuset),
            (Facility::Pids, Self::limit_pids),
        ];
        for (controller, apply) in steps {
            if asked.has(controller)
                && let Err(error) = apply(self, budget)
            {
                asked.excuse(controller, error)?;
            }
        }
        Ok(())
    }

    fn limit_memory(&self, budget: &Budget) -> Result<()> {
        if budget.memory_high_bytes.is_some() {
            return Err(lacking("memory.high"));
        }
        refuse_files(budget, Facility::Memory)?;
        let leaf = self.with(Kind::Memory)?;
        let Some(bytes) = budget.memory_bytes else {
            return Err(Error::new(Step::Cgroup, "swap", "cgroup v1 bounds swap only together with memory")
                .hint("give a memory budget too"));
        };
        let memory = MemController::new(leaf.dir.path().to_owned(), PathBuf::from("/"), false);
        let number = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
        leaf.set("memory.limit_in_bytes", bytes, memory.set_limit(number(bytes)).is_ok())?;
        if let Some(swap) = budget.swap_bytes {
            let both = bytes.saturating_add(swap);
            match leaf.dir.read("memory.memsw.limit_in_bytes") {
                Err(Errno::ENOENT) if swap == 0 && !super::budget::has_swap() => {}
                _ => leaf.set("memory.memsw.limit_in_bytes", both, memory.set_memswap_limit(number(both)).is_ok())?,
            }
        }
        Ok(())
    }

    fn limit_cpu(&self, budget: &Budget) -> Result<()> {
        refuse_files(budget, Facility::Cpu)?;
        let leaf = self.with(Kind::Cpu)?;
        let cpu = CpuController::new(leaf.dir.path().to_owned(), PathBuf::from("/"), false);
        if let Some(quota) = budget.cpu_quota_us {
            let number = i64::try_from(quota).unwrap_or(i64::MAX);
            let written = cpu.set_cfs_quota_and_period(Some(number), Some(CPU_PERIOD_US)).is_ok();
            leaf.set("cpu.cfs_quota_us", quota, written)?;
            leaf.set("cpu.cfs_period_us", CPU_PERIOD_US, written)?;
        }
        if let Some(weight) = budget.cpu_weight {
            // 100 is what everybody has in v2, and 1024 in v1.
            let shares = (weight * 1024 / 100).max(2);
            leaf.set("cpu.shares", shares, cpu.set_shares(shares).is_ok())?;
        }
        Ok(())
    }

    fn limit_cpuset(&self, budget: &Budget) -> Result<()> {
        refuse_files(budget, Facility::Cpuset)?;
        let leaf = self.with(Kind::Cpuset)?;
        let cpuset = CpuSetController::new(leaf.dir.path().to_owned(), PathBuf::from("/"), false);
        for (file, list) in [("cpuset.cpus", &budget.cpuset_cpus), ("cpuset.mems", &budget.cpuset_mems)] {
            let Some(list) = list else { continue };
            let _ = if file == "cpuset.cpus" { cpuset.set_cpus(list) } else { cpuset.set_mems(list) };
            let read = leaf.dir.read(file).unwrap_or_default();
            if members(&read) != members(list) {
                return Err(weaker(file, list, &read));
            }
        }
        Ok(())
    }

    fn limit_pids(&self, budget: &Budget) -> Result<()> {
        refuse_files(budget, Facility::Pids)?;
        let leaf = self.with(Kind::Pids)?;
        let pids = PidController::new(leaf.dir.path().to_owned(), PathBuf::from("/"), false);
        let Some(limit) = budget.pids else { return Ok(()) };
        let written = pids.set_pid_max(MaxValue::Value(i64::try_from(limit).unwrap_or(i64::MAX))).is_ok();
        leaf.set("pids.max", limit, written)
    }

    /// Moves a process that has no threads into all of them, and makes sure that it is there.
    pub fn take_in(&self, pid: i32) -> Result<()> {
        let number = CgroupPid::from(u64::try_from(pid).unwrap_or_default());
        for leaf in &self.leaves {
            let path = leaf.dir.path().to_owned();
            // Any controller writes the same file.
            let moved = PidController::new(path.clone(), PathBuf::from("/"), false).add_task_by_tgid(&number);
            moved.map_err(|error| Error::new(Step::Cgroup, path.display().to_string(), error.to_string()))?;
        }
        let memberships = std::fs::read(format!("/proc/{pid}/cgroup")).unwrap_or_default();
        let memberships = String::from_utf8_lossy(&memberships);
        // The name is the same in every hierarchy.
        let name = self.path().file_name().and_then(|name| name.to_str()).unwrap_or("/");
        if memberships.lines().filter(|line| line.ends_with(name)).count() == self.leaves.len() {
            return Ok(());
        }
        let reason = "the workload was moved there, and is elsewhere";
        Err(Error::new(Step::Cgroup, self.path().display().to_string(), reason))
    }

    /// Where they are: the directory that limits memory, or the first.
    pub fn path(&self) -> &Path {
        let first = self.leaves.first().map(|leaf| leaf.dir.path());
        self.with(Kind::Memory).ok().map(|leaf| leaf.dir.path()).or(first).unwrap_or(Path::new(""))
    }

    /// CPU time so far, in microseconds.
    pub fn cpu_us(&self) -> Option<u64> {
        Some(self.with(Kind::Cpuacct).ok()?.dir.number("cpuacct.usage")? / 1_000)
    }

    /// Lifts the limit on CPU time.
    pub fn unthrottle(&self) {
        if let Ok(leaf) = self.with(Kind::Cpu) {
            let _ = leaf.dir.write("cpu.cfs_quota_us", "-1");
        }
    }

    /// Fills in what the kernel counted.
    pub fn fill_in(&self, usage: &mut Usage) {
        fill_in(&self.leaves, usage);
    }

    /// Removes them; what is in them is dead or dying.
    pub fn remove(mut self) -> Result<()> {
        self.removed = true;
        let mut result = Ok(());
        for leaf in &self.leaves {
            result = remove(leaf.dir.path()).and(result); // all of them, whatever becomes of one
        }
        result
    }
}

/// The one that has this controller.
fn with(leaves: &[One], kind: Kind) -> Option<&One> {
    leaves.iter().find(|leaf| leaf.kinds.contains(&kind))
}

fn fill_in(leaves: &[One], usage: &mut Usage) {
    let source = || Some("cgroup1".to_owned());
    if let Some(leaf) = with(leaves, Kind::Cpuacct) {
        let micros = |name: &str| leaf.dir.number(name).map(|nanos| nanos / 1_000);
        usage.cpu.user_us = micros("cpuacct.usage_user");
        usage.cpu.system_us = micros("cpuacct.usage_sys");
        usage.cpu.total_us = micros("cpuacct.usage");
        usage.cpu.source = source();
    }
    if let Some(leaf) = with(leaves, Kind::Cpu)
        && let Ok(text) = leaf.dir.read("cpu.stat")
    {
        usage.cpu.throttled_us = keyed(&text, "throttled_time").map(|nanos| nanos / 1_000);
        usage.cpu.throttled_periods = keyed(&text, "nr_throttled");
    }
    if let Some(leaf) = with(leaves, Kind::Memory) {
        let control = leaf.dir.read("memory.oom_control").unwrap_or_default();
        // No limit is a number too, next to the largest one.
        let limit = leaf.dir.number("memory.limit_in_bytes").filter(|bytes| *bytes < 1 << 62);
        usage.memory.current_bytes = leaf.dir.number("memory.usage_in_bytes");
        usage.memory.peak_bytes = leaf.dir.number("memory.max_usage_in_bytes");
        usage.memory.limit_bytes = limit;
        usage.memory.oom_kills = keyed(&control, "oom_kill");
        usage.memory.max_events = leaf.dir.number("memory.failcnt");
        usage.memory.source = source();
    }
    if let Some(leaf) = with(leaves, Kind::Pids) {
        usage.pids.current = leaf.dir.number("pids.current");
        usage.pids.limit = leaf.dir.number("pids.max");
        let events = leaf.dir.read("pids.events").unwrap_or_default();
        usage.pids.max_events = keyed(&events, "max");
    }
}

/// The cgroups of somebody else's run, to look at.
#[derive(Debug)]
pub struct View(Vec<One>);

impl View {
    /// Opens one more of them, in a hierarchy with these controllers.
    pub fn add(&mut self, controllers: &[String], path: &Path) {
        let has = |name: &str| controllers.iter().any(|controller| controller == name);
        let kinds = KINDS.into_iter().filter(|(_, name, _)| has(name)).map(|(kind, ..)| kind).collect();
        if let Ok(dir) = Dir::open(path) {
            self.0.push(One { kinds, dir });
        }
    }

    /// Of nothing yet.
    pub const fn empty() -> Self {
        Self(Vec::new())
    }

    /// Their directories.
    pub fn dirs(&self) -> impl Iterator<Item = &Dir> {
        self.0.iter().map(|one| &one.dir)
    }

    /// Fills in what the kernel counted.
    pub fn fill_in(&self, usage: &mut Usage) {
        fill_in(&self.0, usage);
    }
}

impl Drop for Leaves {
    fn drop(&mut self) {
        if !self.removed {
            for leaf in &self.leaves {
                let _ = remove(leaf.dir.path()); // on the way out with another error
            }
        }
    }
}

impl One {
    fn make(v1: &V1, kinds: Vec<Kind>, id: &str) -> Result<Self> {
        let path = new_path(&v1.own, id)?;
        let create = |kind: &Kind| {
            let (path, base) = (path.clone(), PathBuf::from("/"));
            match kind {
                // A new cpuset is empty, and takes no process until it is filled from the one above.
                Kind::Cpuset => CpuSetController::new(path, base, false).create(),
                _ => CpuAcctController::new(path, base).create(),
            }
        };
        let created: std::result::Result<Vec<()>, _> = kinds.iter().map(create).collect();
        let opened = match created {
            Ok(_) => Dir::open(&path),
            // The crate's error does not say which it was.
            Err(_) => Err(std::fs::create_dir(&path)
                .err()
                .and_then(|error| error.raw_os_error())
                .map_or(Errno::EIO, Errno::from_raw)),
        };
        let dir = opened.map_err(|errno| {
            let _ = rmdir(&path);
            failed(&path, errno)
        })?;
        Ok(Self { kinds, dir })
    }

    /// Reads back what was written; rounded down to whole pages is as asked.
    fn set(&self, file: &str, value: u64, written: bool) -> Result<()> {
        let read = self.dir.read(file).map_err(|errno| failed(&self.dir.path().join(file), errno))?;
        let limit = Limit::number_agrees(file, value, &read);
        if written && limit { Ok(()) } else { Err(weaker(file, &value.to_string(), &read)) }
    }
}

fn weaker(file: &str, wrote: &str, read: &str) -> Error {
    Error::new(Step::Cgroup, file, format!("wrote \"{wrote}\", but the kernel has \"{}\"", read.trim()))
}

fn lacking(file: &str) -> Error {
    Error::new(Step::Cgroup, file, "cgroup v1 does not have it, and this host has its controller there")
}

fn refuse_files(budget: &Budget, controller: Facility) -> Result<()> {
    match budget.files.iter().find(|file| file.controller() == Some(controller)) {
        Some(file) => Err(lacking(&file.name)),
        None => Ok(()),
    }
}

/// Kills what is in a cgroup of v1, waits until it is empty, and removes it. One that is not there counts as removed.
pub fn remove(path: &Path) -> Result<()> {
    let deadline = Instant::now() + EMPTY_DEADLINE;
    let mut pause = Duration::from_micros(100);
    loop {
        match remove_tree(path) {
            Ok(()) => return Ok(()),
            Err(Errno::EBUSY) if Instant::now() < deadline => {
                for pid in std::fs::read_to_string(path.join("cgroup.procs")).unwrap_or_default().lines() {
                    kill(pid, path);
                }
                schedule::pause(pause);
                pause = (pause * 2).min(Duration::from_millis(20));
            }
            Err(errno) => return Err(failed(path, errno).hint("`stockade gc` removes it later")),
        }
    }
}

/// Kills a process if it is in that cgroup: looked up again once it is held, or its number could be another's by now.
fn kill(pid: &str, path: &Path) {
    let Ok(number) = pid.parse::<i32>() else { return };
    let Ok(held) = crate::sys::process::pidfd_open(nix::unistd::Pid::from_raw(number)) else { return };
    let still = std::fs::read_to_string(path.join("cgroup.procs")).unwrap_or_default();
    if still.lines().any(|line| line == pid) {
        let _ = crate::sys::process::pidfd_send_signal(std::os::fd::AsFd::as_fd(&held), libc::SIGKILL);
    }
}
