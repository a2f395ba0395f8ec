//! The budget of a run: a cgroup v2 leaf of its own, with every limit read back, that the workload is born into.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;
use nix::sys::statfs::{CGROUP2_SUPER_MAGIC, statfs};

use crate::error::{Error, Result, Step};
use crate::plan::{Budget, Facility, Plan};
use crate::report::{Cgroup, Degraded, Usage};

const MOUNT: &str = "/sys/fs/cgroup";
/// Below the mount: where all leaves of this program are.
const PARENT: &str = "stockade";
/// One `cpu.max` period.
const PERIOD_US: u64 = 100_000;
/// How long a killed leaf may take to become empty before it is left to the next run.
const EMPTY_DEADLINE: Duration = Duration::from_secs(5);

/// A cgroup that holds one run.
#[derive(Debug)]
pub struct Leaf {
    path: PathBuf,
    dir: OwnedFd,
    controllers: Vec<&'static str>,
    limits: Budget,
}

/// Makes the leaf that the plan's budget needs, if it has one, and says which budgets had to be left out.
pub fn prepare(plan: &Plan) -> Result<(Option<Leaf>, Vec<Degraded>)> {
    if plan.budget.is_empty() {
        return Ok((None, Vec::new()));
    }
    match Leaf::make(&plan.id, &plan.budget) {
        Ok(leaf) => Ok((Some(leaf), Vec::new())),
        Err(error) if allowed(plan) => {
            let degraded = wanted(&plan.budget).into_iter().map(|(facility, wanted)| Degraded {
                what: facility.name().to_owned(),
                wanted,
                got: "unlimited".to_owned(),
                why: error.to_string(),
            });
            Ok((None, degraded.collect()))
        }
        Err(error) => Err(error),
    }
}

fn wanted(budget: &Budget) -> Vec<(Facility, String)> {
    let of = |facility, value: Option<u64>, unit| value.map(|value| (facility, format!("{value}{unit}")));
    [
        of(Facility::Memory, budget.memory_bytes, " bytes"),
        of(Facility::Cpu, budget.cpu_quota_us, " us per 100 ms"),
        of(Facility::Pids, budget.pids, " processes"),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn allowed(plan: &Plan) -> bool {
    wanted(&plan.budget).iter().all(|(facility, _)| plan.allow_degraded.contains(facility))
}

impl Leaf {
    fn make(id: &str, budget: &Budget) -> Result<Self> {
        require_cgroup2(budget)?;
        let controllers: Vec<_> = wanted(budget).iter().map(|(facility, _)| facility.name()).collect();
        let parent = Path::new(MOUNT).join(PARENT);
        enable(Path::new(MOUNT), &controllers)?;
        make_dir(&parent, true)?;
        enable(&parent, &controllers)?;
        let path = parent.join(format!("{id}-{}", std::process::id()));
        make_dir(&path, false)?;
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let dir = nix::fcntl::open(&path, flags, Mode::empty()).map_err(|errno| failed(&path, errno))?;
        let mut leaf = Self { path, dir, controllers, limits: Budget::default() };
        leaf.limit(budget)?; // on failure, dropping the leaf removes it
        Ok(leaf)
    }

    fn limit(&mut self, budget: &Budget) -> Result<()> {
        if let Some(bytes) = budget.memory_bytes {
            self.limits.memory_bytes = Some(self.set_number("memory.max", bytes)?);
            self.set("memory.oom.group", "1")?;
            if self.exists("memory.swap.max") {
                self.set_number("memory.swap.max", 0)?;
            }
        }
        if let Some(quota) = budget.cpu_quota_us {
            self.set("cpu.max", &format!("{quota} {PERIOD_US}"))?;
            self.limits.cpu_quota_us = Some(quota);
        }
        if let Some(pids) = budget.pids {
            self.limits.pids = Some(self.set_number("pids.max", pids)?);
        }
        Ok(())
    }

    /// Writes a limit and reads it back; the kernel may round down to whole pages, but never up.
    fn set_number(&self, name: &str, value: u64) -> Result<u64> {
        self.write(name, &value.to_string())?;
        let read = self.read(name)?;
        match read.trim().parse::<u64>() {
            Ok(limit) if limit <= value => Ok(limit),
            _ => Err(Error::new(Step::Cgroup, name, format!("wrote {value}, but the kernel has {}", read.trim()))),
        }
    }

    fn set(&self, name: &str, value: &str) -> Result<()> {
        self.write(name, value)?;
        let read = self.read(name)?;
        if read.trim() == value {
            return Ok(());
        }
        Err(Error::new(Step::Cgroup, name, format!("wrote {value}, but the kernel has {}", read.trim())))
    }

    fn exists(&self, name: &str) -> bool {
        self.read(name).is_ok()
    }

    fn write(&self, name: &str, text: &str) -> Result<()> {
        let file = openat(&self.dir, name, OFlag::O_WRONLY | OFlag::O_CLOEXEC, Mode::empty());
        let file = file.map_err(|errno| failed(&self.path.join(name), errno))?;
        File::from(file)
            .write_all(text.as_bytes())
            .map_err(|error| failed(&self.path.join(name), Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO))))
    }

    fn read(&self, name: &str) -> Result<String> {
        let file = openat(&self.dir, name, OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty());
        let mut text = String::new();
        File::from(file.map_err(|errno| failed(&self.path.join(name), errno))?).read_to_string(&mut text).map_err(
            |error| failed(&self.path.join(name), Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO))),
        )?;
        Ok(text)
    }

    /// Its directory, for `CLONE_INTO_CGROUP`.
    pub fn dir(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }

    /// What is in force.
    pub fn record(&self) -> Cgroup {
        let path = self.path.strip_prefix(MOUNT).unwrap_or(&self.path);
        Cgroup {
            path: format!("/{}", path.display()),
            controllers: self.controllers.iter().map(ToString::to_string).collect(),
        }
    }

    /// Fills in what the kernel counted.
    pub fn usage(&self, usage: &mut Usage) {
        let number = |name: &str| self.read(name).ok().and_then(|text| text.trim().parse::<u64>().ok());
        let keyed = |name: &str, key: &str| {
            let text = self.read(name).ok()?;
            text.lines().find_map(|line| line.strip_prefix(key)?.trim().parse::<u64>().ok())
        };
        if let Some(total) = keyed("cpu.stat", "usage_usec ") {
            usage.cpu.user_us = keyed("cpu.stat", "user_usec ");
            usage.cpu.system_us = keyed("cpu.stat", "system_usec ");
            usage.cpu.total_us = Some(total);
            usage.cpu.throttled_us = keyed("cpu.stat", "throttled_usec ");
            usage.cpu.throttled_periods = keyed("cpu.stat", "nr_throttled ");
            usage.cpu.source = Some("cgroup2".to_owned());
        }
        if self.limits.memory_bytes.is_some() {
            usage.memory.peak_bytes = number("memory.peak");
            usage.memory.limit_bytes = self.limits.memory_bytes;
            usage.memory.swap_peak_bytes = number("memory.swap.peak");
            usage.memory.oom_kills = keyed("memory.events", "oom_kill ");
            usage.memory.max_events = keyed("memory.events", "max ");
            usage.memory.source = Some("cgroup2".to_owned());
        }
        if self.limits.pids.is_some() {
            usage.pids.peak = number("pids.peak");
            usage.pids.limit = self.limits.pids;
            usage.pids.max_events = keyed("pids.events", "max ");
        }
    }

    /// CPU time of the whole tree so far, in microseconds.
    pub fn cpu_us(&self) -> Option<u64> {
        let text = self.read("cpu.stat").ok()?;
        text.lines().find_map(|line| line.strip_prefix("usage_usec ")?.trim().parse().ok())
    }
}

/// Kills whatever is left in it, waits until it is empty, and removes it.
impl Drop for Leaf {
    fn drop(&mut self) {
        let _ = self.write("cgroup.kill", "1");
        let deadline = Instant::now() + EMPTY_DEADLINE;
        let mut pause = Duration::from_micros(100);
        while std::fs::remove_dir(&self.path).is_err_and(|error| error.raw_os_error() == Some(libc::EBUSY)) {
            if Instant::now() > deadline {
                return;
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(20));
        }
    }
}

fn require_cgroup2(budget: &Budget) -> Result<()> {
    let names: Vec<_> = wanted(budget).iter().map(|(facility, _)| facility.name()).collect();
    let out = names.iter().map(|name| format!("--allow-degraded {name}")).collect::<Vec<_>>().join(" ");
    let is_v2 = statfs(MOUNT).is_ok_and(|fs| fs.filesystem_type() == CGROUP2_SUPER_MAGIC);
    if is_v2 && nix::unistd::geteuid().is_root() {
        return Ok(());
    }
    let why = if is_v2 { "only root may make cgroups below it" } else { "is not a cgroup v2 file system" };
    Err(Error::new(Step::Cgroup, MOUNT, format!("{why}, so the budget ({}) cannot be enforced", names.join(", ")))
        .hint(format!("leave the budget out, or run without it where it cannot be had: {out}")))
}

fn enable(dir: &Path, controllers: &[&str]) -> Result<()> {
    let file = dir.join("cgroup.subtree_control");
    let enabled = std::fs::read_to_string(&file).unwrap_or_default();
    for controller in controllers {
        if enabled.split_ascii_whitespace().any(|name| name == *controller) {
            continue;
        }
        std::fs::write(&file, format!("+{controller}")).map_err(|error| {
            failed(&file, Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO))).hint(format!(
                "the {controller} controller cannot be had here; --allow-degraded {controller} does without"
            ))
        })?;
    }
    Ok(())
}

fn make_dir(path: &Path, may_exist: bool) -> Result<()> {
    match nix::unistd::mkdir(path, Mode::from_bits_truncate(0o755)) {
        Ok(()) => Ok(()),
        Err(Errno::EEXIST) if may_exist => Ok(()),
        Err(errno) => Err(failed(path, errno)),
    }
}

fn failed(path: &Path, errno: Errno) -> Error {
    Error::errno(Step::Cgroup, path.display().to_string(), errno)
}
