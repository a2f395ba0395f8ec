//! The budget of a run: a cgroup of its own, every limit read back, that the workload is born into, and what was counted
//! there in the end.
//!
//! [`prepare`] looks where a cgroup can be made ([`hierarchies`], [`parent`]), makes it ([`leaf`], or [`leaves`] on hosts whose
//! controllers are in cgroup v1) and puts the budget in force ([`budget`], [`v1`]). What was asked for and cannot be had is an error
//! that names it; what a default wants is had where that is cheap, and reported where it is not. The cgroup goes with the
//! [`Group`], or by [`gc`] when its supervisor was killed. [`running`] looks at other
//! runs' cgroups.

pub mod availability;
mod budget;
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
use nix::unistd::{Pid, geteuid};

pub use self::name::{runs_since, started};

use self::hierarchies::{Hierarchies, Memberships};
use self::leaf::Leaf;
use self::leaves::Leaves;
use self::parent::Parent;
use crate::error::{Error, Result, Step};
use crate::plan::{Budget, Facility};
use crate::report::{Cgroup, Degraded, Usage};

/// The cgroup, or on older hosts the cgroups, of a run. Removed when this is dropped.
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

/// Makes the cgroup that a budget needs, if it needs one, and says which parts of it had to be left out: those that `may_lack`
/// lists, and those that are nobody's wish. `id` names the run.
pub fn prepare(id: &str, budget: &Budget, may_lack: &[Facility]) -> Result<(Option<Group>, Vec<Degraded>)> {
    let mut asked = Asked { id, budget, may_lack, wanted: budget.controllers(), degraded: Vec::new() };
    if asked.wanted.is_empty() {
        return Ok((None, Vec::new()));
    }
    let memberships = Memberships::read().unwrap_or_default();
    // Without a look at every mount there is, which takes longer than this can be worth.
    if geteuid().is_root() && !asked.is_urgent() && asked.wanted.iter().all(|one| memberships.has_on_v1(*one)) {
        asked.excuse_all(|_| true, ONLY_ON_V1)?;
        return Ok((None, asked.degraded));
    }
    let hierarchies = memberships.look().unwrap_or_default();
    let group = match on_v2(&hierarchies, &mut asked)? {
        Some(parent) => Some(make_v2(&parent, &mut asked)?),
        None if asked.wanted.is_empty() => None,
        None => Some(make_v1(&hierarchies, &mut asked)?),
    };
    // Nothing is limited in it, and nobody asked for what it counts.
    let group = group.filter(|group| !group.controllers.is_empty());
    Ok((group, asked.degraded))
}

const ONLY_ON_V1: &str = "cgroup v1, which takes longer than a start, is used only for a budget that was asked for";

/// Where in cgroup v2 the cgroup is to be made; `None` if it is better made in v1, or nowhere.
fn on_v2(hierarchies: &Hierarchies, asked: &mut Asked<'_>) -> Result<Option<Parent>> {
    let on_v1 = if geteuid().is_root() { leaves::available(hierarchies) } else { Vec::new() };
    // On a hybrid host v2 has what v1 left.
    let better = asked.wanted.iter().any(|controller| hierarchies.has_on_v1(*controller));
    if better && !on_v1.is_empty() && !asked.is_urgent() {
        asked.excuse_all(|_| true, ONLY_ON_V1)?;
        return Ok(None);
    }
    if better && !on_v1.is_empty() {
        asked.excuse_all(
            |controller| !on_v1.contains(&controller),
            "cgroup v1 does not have it, and has other controllers that are needed",
        )?;
        return Ok(None);
    }
    let Some(v2) = &hierarchies.v2 else {
        let why =
            if hierarchies.v1.is_empty() { "no cgroup file system is mounted" } else { "cgroup v1 is for root alone" };
        asked.excuse_all(|_| true, why)?;
        return Ok(None);
    };
    let systemd = || {
        if asked.is_urgent() { systemd::scope(asked.id) } else { Err(systemd::NOT_ASKED.to_owned()) }
    };
    let found = parent::find(v2, &asked.wanted, systemd);
    match found {
        Ok(parent) => {
            asked.excuse_all(|controller| !parent.enabled.contains(&controller), &parent.without)?;
            Ok(Some(parent))
        }
        Err(why) => {
            let why = if better { "cgroup v1 has the controller, and is for root alone".to_owned() } else { why };
            asked.excuse_all(|_| true, &why)?;
            Ok(None)
        }
    }
}

fn make_v2(parent: &Parent, asked: &mut Asked<'_>) -> Result<Group> {
    let leaf = Leaf::make(&parent.path, asked.id)?; // on failure, dropping it removes it
    for limit in budget::limits(asked.budget)? {
        if asked.has(limit.controller)
            && let Err(error) = limit.apply(leaf.dir())
        {
            asked.excuse(limit.controller, error)?;
        }
    }
    Ok(Group { kind: Kind::V2(leaf), controllers: std::mem::take(&mut asked.wanted) })
}

fn make_v1(hierarchies: &Hierarchies, asked: &mut Asked<'_>) -> Result<Group> {
    let leaves = Leaves::make(hierarchies, asked.id, &asked.wanted)?;
    leaves.limit(asked.budget, asked)?;
    Ok(Group { kind: Kind::V1(leaves), controllers: std::mem::take(&mut asked.wanted) })
}

impl Group {
    /// Its directory, for `CLONE_INTO_CGROUP`; `None` when processes can only be moved into it.
    pub fn dir(&self) -> Option<BorrowedFd<'_>> {
        match &self.kind {
            Kind::V2(leaf) => Some(leaf.fd()),
            Kind::V1(_) => None,
        }
    }

    /// Moves a freshly cloned process in, if it was not born there.
    pub fn take_in(&self, pid: Pid) -> Result<()> {
        match &self.kind {
            Kind::V2(_) => Ok(()),
            Kind::V1(leaves) => leaves.cgroup().add(pid),
        }
    }

    /// What is in force.
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

    /// Fills in what the kernel counted so far.
    pub fn usage(&self, usage: &mut Usage) {
        match &self.kind {
            Kind::V2(leaf) => usage::fill_in(leaf.dir(), usage),
            Kind::V1(leaves) => leaves.cgroup().fill_in(usage),
        }
    }

    /// CPU time of the whole tree so far, in microseconds.
    pub fn cpu_us(&self) -> Option<u64> {
        match &self.kind {
            Kind::V2(leaf) => usage::cpu_us(leaf.dir()),
            Kind::V1(leaves) => leaves.cgroup().cpu_us(),
        }
    }

    /// Lifts the limit on CPU time, for processes that have been killed: thousands that may use a hundredth of a CPU between them
    /// take minutes to end.
    pub fn unthrottle(&self) {
        if !self.controllers.contains(&Facility::Cpu) {
            return;
        }
        match &self.kind {
            Kind::V2(leaf) => drop(leaf.dir().write("cpu.max", "max")), // or they end more slowly
            Kind::V1(leaves) => leaves.cgroup().unthrottle(),
        }
    }

    /// Kills whatever is left in it, waits until it is empty, and removes it.
    pub fn remove(self) -> Result<()> {
        match self.kind {
            Kind::V2(leaf) => leaf.remove(),
            Kind::V1(leaves) => leaves.remove(),
        }
    }
}

/// What is wanted, and how badly.
#[derive(Debug)]
pub struct Asked<'a> {
    id: &'a str,
    budget: &'a Budget,
    may_lack: &'a [Facility],
    /// The controllers that are wanted and, as far as is known, can be had.
    wanted: Vec<Facility>,
    degraded: Vec<Degraded>,
}

impl Asked<'_> {
    fn has(&self, controller: Facility) -> bool {
        self.wanted.contains(&controller)
    }

    /// Whether anything was asked for, and is not only a default.
    fn is_urgent(&self) -> bool {
        self.wanted.iter().any(|controller| !self.budget.if_possible.contains(controller))
    }

    fn may_lack(&self, controller: Facility) -> bool {
        self.may_lack.contains(&controller) || self.budget.if_possible.contains(&controller)
    }

    /// Does without a controller, or fails.
    fn excuse(&mut self, controller: Facility, error: Error) -> Result<()> {
        if !self.may_lack(controller) {
            return Err(error);
        }
        self.lose(controller, error.to_string());
        Ok(())
    }

    /// Does without all these controllers, or fails with an error that names every one that was asked for.
    fn excuse_all(&mut self, lacks: impl Fn(Facility) -> bool, why: &str) -> Result<()> {
        let lacking: Vec<_> = self.wanted.iter().copied().filter(|controller| lacks(*controller)).collect();
        let refused: Vec<_> = lacking.iter().copied().filter(|controller| !self.may_lack(*controller)).collect();
        if refused.is_empty() {
            lacking.into_iter().for_each(|controller| self.lose(controller, why.to_owned()));
            return Ok(());
        }
        let names = |separator: &str, prefix: &str| {
            refused.iter().map(|name| format!("{prefix}{}", name.name())).collect::<Vec<_>>().join(separator)
        };
        let budgets = if refused.len() == 1 { "budget" } else { "budgets" };
        Err(Error::new(Step::Cgroup, format!("{} {budgets}", names(", ", "")), format!("cannot be enforced: {why}"))
            .hint(format!(
                "leave it out, or allow the run to go without: {}; `stockade doctor` says what would change it",
                names(" ", "--allow-degraded ")
            )))
    }

    fn lose(&mut self, controller: Facility, why: String) {
        self.wanted.retain(|wanted| *wanted != controller);
        let (what, wanted) = (controller.name().to_owned(), self.budget.describe(controller));
        self.degraded.push(Degraded { what, wanted, got: "unlimited".to_owned(), why });
    }
}

fn failed(path: &Path, errno: Errno) -> Error {
    Error::errno(Step::Cgroup, path.display().to_string(), errno)
}
