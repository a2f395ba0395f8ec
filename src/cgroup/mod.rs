//! The budget of a run: its own cgroup, in which the workload starts. Every limit is read back, and resource usage is read from
//! the cgroup at the end.
//!
//! [`prepare`] finds a parent cgroup ([`hierarchies`], [`parent`]), creates the cgroup below it ([`leaf`], or [`leaves`] on
//! hosts with the controllers in cgroup v1) and applies the budget ([`budget`], [`v1`]). If a requested limit cannot be
//! enforced, the run fails with an error that names it. A default limit is applied where that is cheap, and reported as
//! degraded elsewhere. Dropping the [`Group`] removes the cgroup; [`gc`] removes it if the supervisor was killed. [`running`]
//! reads the cgroups of other runs.

pub mod availability;
mod budget;
pub mod commands;
pub mod container;
mod files;
pub mod gc;
pub mod hierarchies;
mod leaf;
mod leaves;
mod name;
mod parent;
pub mod running;
mod systemd;
mod usage;
mod v1;

use std::os::fd::BorrowedFd;
use std::path::Path;

use nix::errno::Errno;
use nix::unistd::Pid;

pub use self::name::{runs_since, started};
pub use self::v1::Entrance;

use self::hierarchies::{Hierarchies, Memberships};
use self::leaf::Leaf;
use self::leaves::Leaves;
use self::parent::Parent;
use crate::error::{Error, Result, Step};
use crate::plan::container::CgroupView;
use crate::plan::{Budget, Facility};
use crate::report::{Cgroup, Degraded, Usage};
use crate::sys::process::is_hosts_root;

/// The cgroup of a run, or its cgroups on hosts with cgroup v1. Removed on drop.
#[derive(Debug)]
pub struct Group {
    kind: Kind,
    controllers: Vec<Facility>,
}

#[derive(Debug)]
enum Kind {
    V2(Leaf),
    V1(Leaves),
}

/// Creates the cgroup that a budget needs, if it needs one, and returns the parts that had to be left out: only parts that
/// `may_lack` lists or that are defaults. `id` names the run.
pub fn prepare(id: &str, budget: &Budget, may_lack: &[Facility]) -> Result<(Option<Group>, Vec<Degraded>)> {
    let mut request = Request { id, budget, may_lack, wanted: budget.controllers(), degraded: Vec::new() };
    if request.wanted.is_empty() {
        return Ok((None, Vec::new()));
    }
    let memberships = Memberships::read().unwrap_or_default();
    // Does not read the mount table: for defaults alone that takes too long.
    if !request.is_explicit() && request.wanted.iter().all(|one| memberships.has_on_v1(*one)) && is_hosts_root() {
        request.degrade_all(|_| true, ONLY_ON_V1)?;
        return Ok((None, request.degraded));
    }
    let hierarchies = memberships.look().unwrap_or_default();
    let group = match on_v2(&hierarchies, &mut request)? {
        Some(parent) => Some(make_v2(&parent, &mut request)?),
        None if request.wanted.is_empty() => None,
        None => Some(make_v1(&hierarchies, &mut request)?),
    };
    // The cgroup would limit nothing, and no requested controller would measure anything in it.
    let group = group.filter(|group| !group.controllers.is_empty());
    Ok((group, request.degraded))
}

/// Why a default budget is not enforced by cgroup v1: stockade decided that; the host does not lack it.
pub const ONLY_ON_V1: &str = "cgroup v1 takes longer than a start, so it is used only for a requested budget";

/// Why no budget is enforced by cgroup v1.
const NOT_OURS_ON_V1: &str = "cgroup v1 has the controller, and only root of the host can use it";

/// Finds the parent in cgroup v2. `None` if v1 serves better, or no hierarchy serves.
fn on_v2(hierarchies: &Hierarchies, request: &mut Request<'_>) -> Result<Option<Parent>> {
    let on_v1 = leaves::available(hierarchies);
    // On a hybrid host v2 has only the controllers that v1 does not use.
    let v1_is_better = request.wanted.iter().any(|controller| hierarchies.has_on_v1(*controller));
    if v1_is_better && !on_v1.is_empty() && !request.is_explicit() {
        request.degrade_all(|_| true, ONLY_ON_V1)?;
        return Ok(None);
    }
    if v1_is_better && !on_v1.is_empty() {
        request.degrade_all(
            |controller| !on_v1.contains(&controller),
            "cgroup v1 does not have it, and has other controllers that are needed",
        )?;
        return Ok(None);
    }
    let Some(v2) = &hierarchies.v2 else {
        let why = if hierarchies.v1.is_empty() { "no cgroup file system is mounted" } else { NOT_OURS_ON_V1 };
        request.degrade_all(|_| true, why)?;
        return Ok(None);
    };
    let systemd = |has_top: bool| {
        // Root has the top of the hierarchy, at no cost.
        let needed = request.is_explicit() || !has_top;
        if needed { systemd::scope(request.id) } else { Err(systemd::NOT_REQUESTED.to_owned()) }
    };
    let found = parent::find(v2, &request.wanted, systemd);
    match found {
        Ok(parent) => {
            request.degrade_all(|controller| !parent.enabled.contains(&controller), &parent.without)?;
            Ok(Some(parent))
        }
        Err(why) => {
            let why = if v1_is_better { NOT_OURS_ON_V1.to_owned() } else { why };
            request.degrade_all(|_| true, &why)?;
            Ok(None)
        }
    }
}

fn make_v2(parent: &Parent, request: &mut Request<'_>) -> Result<Group> {
    let leaf = Leaf::make(&parent.path, request.id)?; // on failure, dropping it removes it
    for limit in budget::limits(request.budget)? {
        if request.has(limit.controller)
            && let Err(error) = limit.apply(leaf.dir())
        {
            request.degrade(limit.controller, error)?;
        }
    }
    Ok(Group { kind: Kind::V2(leaf), controllers: std::mem::take(&mut request.wanted) })
}

fn make_v1(hierarchies: &Hierarchies, request: &mut Request<'_>) -> Result<Group> {
    let leaves = Leaves::make(hierarchies, request.id, &request.wanted)?;
    leaves.limit(request.budget, request)?;
    Ok(Group { kind: Kind::V1(leaves), controllers: std::mem::take(&mut request.wanted) })
}

impl Group {
    /// The directory for `CLONE_INTO_CGROUP`. `None` if processes can only be moved into the cgroup.
    pub fn dir(&self) -> Option<BorrowedFd<'_>> {
        match &self.kind {
            Kind::V2(leaf) => Some(leaf.fd()),
            Kind::V1(_) => None,
        }
    }

    /// Where a new process enters it, unless it is created there.
    pub fn entrance(&self) -> Result<Option<Entrance>> {
        match &self.kind {
            Kind::V2(_) => Ok(None),
            Kind::V1(leaves) => leaves.cgroup().entrance().map(Some),
        }
    }

    /// Moves a newly cloned process into the cgroup, unless it started there or enters it itself.
    pub fn add_cloned(&self, pid: Pid, is_there: bool) -> Result<()> {
        match &self.kind {
            Kind::V2(leaf) if !is_there => {
                let failed = |errno| Error::errno(Step::Cgroup, leaf.dir().path().display().to_string(), errno);
                leaf.dir().write("cgroup.procs", &pid.to_string()).map_err(failed)
            }
            Kind::V2(_) | Kind::V1(_) => Ok(()),
        }
    }

    /// Fails unless a process that entered it itself, or is a child of such a process, is in it.
    pub fn verify(&self, pid: Pid) -> Result<()> {
        match &self.kind {
            Kind::V2(_) => Ok(()), // the kernel has created it there
            Kind::V1(leaves) => leaves.cgroup().verify(pid),
        }
    }

    /// The enforced limits, for the report.
    pub fn record(&self) -> Cgroup {
        let path = match &self.kind {
            Kind::V2(leaf) => leaf.dir().path(),
            Kind::V1(leaves) => leaves.cgroup().main().map_or(Path::new(""), |dir| dir.path()),
        };
        Cgroup {
            path: path.display().to_string(),
            controllers: self.controllers.iter().map(|controller| controller.name().to_owned()).collect(),
        }
    }

    /// Whether it enforces the limits of a controller.
    pub fn enforces(&self, controller: Facility) -> bool {
        self.controllers.contains(&controller)
    }

    /// Its directories, for a mount in the sandbox.
    pub fn view(&self) -> CgroupView {
        match &self.kind {
            Kind::V2(leaf) => CgroupView::of_v2(leaf.dir().path()),
            Kind::V1(leaves) => leaves.cgroup().view(),
        }
    }

    /// Fills in the kernel's current counters.
    pub fn usage(&self, usage: &mut Usage) {
        match &self.kind {
            Kind::V2(leaf) => usage::fill_in(leaf.dir(), usage),
            Kind::V1(leaves) => leaves.cgroup().fill_in(usage),
        }
    }

    /// How often the kernel killed a process of a cgroup of v1 for lack of memory. A cgroup of v2 counts that by command.
    pub fn oom_kills(&self) -> Option<u64> {
        match &self.kind {
            Kind::V2(_) => None,
            Kind::V1(leaves) => leaves.cgroup().oom_kills(),
        }
    }

    /// The CPU time of the whole tree so far, in microseconds.
    pub fn cpu_us(&self) -> Option<u64> {
        match &self.kind {
            Kind::V2(leaf) => usage::cpu_us(leaf.dir()),
            Kind::V1(leaves) => leaves.cgroup().cpu_us(),
        }
    }

    /// Removes the limit on CPU time after the kill: thousands of processes that share a hundredth of a CPU take minutes to
    /// exit.
    pub fn unthrottle(&self) {
        if !self.enforces(Facility::Cpu) {
            return;
        }
        match &self.kind {
            Kind::V2(leaf) => drop(leaf.dir().write("cpu.max", "max")), // a failure only delays their exit
            Kind::V1(leaves) => leaves.cgroup().unthrottle(),
        }
    }

    /// Kills the remaining processes, waits until the cgroup is empty, and removes it.
    pub fn remove(self) -> Result<()> {
        match self.kind {
            Kind::V2(leaf) => leaf.remove(),
            Kind::V1(leaves) => leaves.remove(),
        }
    }
}

/// The requested budget, and which parts of it are optional.
#[derive(Debug)]
pub struct Request<'a> {
    id: &'a str,
    budget: &'a Budget,
    may_lack: &'a [Facility],
    /// The controllers that the budget needs and that are not known to be unavailable.
    wanted: Vec<Facility>,
    degraded: Vec<Degraded>,
}

impl Request<'_> {
    fn has(&self, controller: Facility) -> bool {
        self.wanted.contains(&controller)
    }

    /// Whether any limit is requested explicitly, not only by default.
    fn is_explicit(&self) -> bool {
        self.wanted.iter().any(|controller| !self.budget.if_possible.contains(controller))
    }

    fn may_lack(&self, controller: Facility) -> bool {
        self.may_lack.contains(&controller) || self.budget.if_possible.contains(&controller)
    }

    /// Drops a controller if the run may lack it. Fails otherwise.
    fn degrade(&mut self, controller: Facility, error: Error) -> Result<()> {
        if !self.may_lack(controller) {
            return Err(error);
        }
        self.drop_controller(controller, error.to_string());
        Ok(())
    }

    /// Drops all these controllers, or fails with an error that names each one that the run may not lack.
    fn degrade_all(&mut self, lacks: impl Fn(Facility) -> bool, why: &str) -> Result<()> {
        let lacking: Vec<_> = self.wanted.iter().copied().filter(|controller| lacks(*controller)).collect();
        let refused: Vec<_> = lacking.iter().copied().filter(|controller| !self.may_lack(*controller)).collect();
        if refused.is_empty() {
            lacking.into_iter().for_each(|controller| self.drop_controller(controller, why.to_owned()));
            return Ok(());
        }
        let names = |separator: &str, prefix: &str| {
            refused.iter().map(|name| format!("{prefix}{}", name.name())).collect::<Vec<_>>().join(separator)
        };
        let budgets = if refused.len() == 1 { "budget" } else { "budgets" };
        Err(Error::new(Step::Cgroup, format!("{} {budgets}", names(", ", "")), format!("cannot be enforced: {why}"))
            .hint(format!(
                "leave the limit (or --require-budget) out, or allow the run to go without: {}; `stockade doctor` says what would change it",
                names(" ", "--allow-degraded ")
            )))
    }

    fn drop_controller(&mut self, controller: Facility, why: String) {
        self.wanted.retain(|wanted| *wanted != controller);
        let (what, wanted) = (controller.name().to_owned(), self.budget.describe(controller));
        self.degraded.push(Degraded { what, wanted, got: "unlimited".to_owned(), why });
    }
}

fn failed(path: &Path, errno: Errno) -> Error {
    Error::errno(Step::Cgroup, path.display().to_string(), errno)
}
