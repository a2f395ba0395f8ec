//! The cgroups of a session in v2: one for init and one for each command, below the session's own.
//!
//! `CLONE_INTO_CGROUP` takes write permission for `cgroup.procs` of the command's cgroup and of their common parent. So these two
//! files belong to the sandbox's user, for its init; no process inside has a directory of this hierarchy to use them with.

use std::os::fd::BorrowedFd;
use std::path::Path;

use nix::errno::Errno;
use nix::sys::stat::Mode;
use nix::unistd::{Pid, Uid, fchownat, geteuid};

use super::hierarchies;
use super::leaf::{self, Leaf};
use super::parent;
use super::{Group, Kind, Request, failed};
use crate::error::{Error, Result, Step};
use crate::plan::{Budget, Facility};
use crate::report::{Degraded, Usage};

/// What to do where a command cannot have limits of its own.
const FOR_ALL: &str = "leave the limit out, or give it to the session, for all its commands together: stockade run -d";

/// The controllers that commands have where they can be had, for limits of their own.
const OFFERED: [Facility; 3] = [Facility::Cpu, Facility::Memory, Facility::Pids];

/// The cgroups of a session's processes.
#[derive(Debug)]
pub struct Commands {
    /// The parent of all, if it is not that of the budget.
    own: Option<Leaf>,
    base: super::files::Dir,
    /// The controllers of the commands' cgroups.
    controllers: Vec<Facility>,
    user: Uid,
}

impl Commands {
    /// Below the cgroup of the session's budget, or below one of its own where v2 has no controllers. `None` if this user
    /// cannot create cgroups of v2. `user` is the sandbox's on the host.
    pub fn prepare(id: &str, budget: Option<&Group>, user: u32) -> Result<Option<Self>> {
        let (own, path) = match budget.map(|group| &group.kind) {
            Some(Kind::V2(leaf)) => (None, leaf.dir().path().to_owned()),
            _ => {
                let Some(v2) = hierarchies::look().v2 else { return Ok(None) };
                let parent = if geteuid().is_root() { Some(v2.mount.clone()) } else { parent::delegated(&v2) };
                let Some(parent) = parent else { return Ok(None) };
                let leaf = Leaf::make(&parent, id)?;
                let path = leaf.dir().path().to_owned();
                (Some(leaf), path)
            }
        };
        let controllers = match own {
            None => budget.map(|group| group.controllers.clone()).unwrap_or_default(),
            Some(_) => Vec::new(),
        };
        if own.is_none() {
            parent::offer(&path, &OFFERED);
        }
        let base = super::files::Dir::open(&path).map_err(|errno| failed(&path, errno))?;
        let commands = Self { own, base, controllers, user: Uid::from_raw(user) };
        commands.write("cgroup.max.descendants", "max")?;
        Ok(Some(commands))
    }

    fn write(&self, name: &str, text: &str) -> Result<()> {
        self.base.write(name, text).map_err(|errno| failed(&self.base.path().join(name), errno))
    }

    /// Where init is born. A cgroup namespace that it creates there has the session's cgroup as its root.
    pub fn dir(&self) -> BorrowedFd<'_> {
        self.base.fd()
    }

    /// Moves init into a cgroup of its own, so that the commands' cgroups can have controllers.
    pub fn settle(&mut self, init: Pid) -> Result<()> {
        let leaf = self.make("init")?;
        let moved = leaf.dir().write("cgroup.procs", &init.to_string());
        moved.map_err(|errno| failed(&leaf.dir().path().join("cgroup.procs"), errno))?;
        leaf.keep();
        self.give(self.base.fd(), self.base.path())?;
        let enable = |one: &Facility| self.write("cgroup.subtree_control", &format!("+{}", one.name()));
        self.controllers.iter().try_for_each(enable)?;
        let is_new = |one: &Facility| !self.controllers.contains(one) && enable(one).is_ok();
        let offered: Vec<_> = OFFERED.into_iter().filter(is_new).collect();
        self.controllers.extend(offered);
        // Of a session that is out of memory one command dies, and not all with init.
        die_as_a_whole(&self.base, false)
    }

    fn make(&self, name: &str) -> Result<Leaf> {
        let path = self.base.path().join(name);
        nix::unistd::mkdir(&path, Mode::from_bits_truncate(0o755)).map_err(|errno| failed(&path, errno))?;
        Leaf::of_new(&path)
    }

    /// Lets init start processes there.
    fn give(&self, dir: BorrowedFd<'_>, path: &Path) -> Result<()> {
        if self.user == geteuid() {
            return Ok(());
        }
        let given = fchownat(dir, "cgroup.procs", Some(self.user), None, nix::fcntl::AtFlags::empty());
        given.map_err(|errno| failed(&path.join("cgroup.procs"), errno))
    }

    /// A cgroup for one command, with limits of its own.
    pub fn begin(&self, number: u64, budget: &Budget, may_lack: &[Facility]) -> Result<(Group, Vec<Degraded>)> {
        let wanted = budget.controllers();
        let mut request = Request { id: "", budget, may_lack, wanted, degraded: Vec::new() };
        let lacks = |controller| !self.controllers.contains(&controller);
        let why = "only cgroup v2 can limit one command, and the session's does not have the controller";
        request.degrade_all(lacks, why).map_err(|error| error.hint(FOR_ALL))?;
        let leaf = self.make(&format!("c{number}"))?;
        self.give(leaf.fd(), leaf.dir().path())?;
        die_as_a_whole(leaf.dir(), true)?;
        for limit in super::budget::limits(budget)? {
            if request.has(limit.controller)
                && let Err(error) = limit.apply(leaf.dir())
            {
                request.degrade(limit.controller, error)?;
            }
        }
        Ok((Group { kind: Kind::V2(leaf), controllers: self.controllers.clone() }, request.degraded))
    }

    /// What all of them have used so far.
    pub fn usage(&self, usage: &mut Usage) {
        super::usage::fill_in(&self.base, usage);
    }

    /// Stops every process, or lets them continue, `cgroup.freeze`.
    pub fn freeze(&self, frozen: bool) -> Result<()> {
        self.write("cgroup.freeze", if frozen { "1" } else { "0" })
    }

    /// Removes what was made. Every process is dead.
    pub fn remove(&mut self) -> Result<()> {
        match self.own.take() {
            Some(leaf) => leaf.remove(),
            None => leaf::remove(&self.base.path().join("init")),
        }
    }
}

/// Whether all processes die together when the kernel kills one for want of memory. Since Linux 4.19.
fn die_as_a_whole(dir: &super::files::Dir, whole: bool) -> Result<()> {
    let name = "memory.oom.group";
    match dir.write(name, if whole { "1" } else { "0" }) {
        Err(errno) if errno != Errno::ENOENT => Err(failed(&dir.path().join(name), errno)),
        _ => Ok(()),
    }
}

/// What a command lacks that has no cgroup, or why it cannot lack that.
pub fn none(budget: &Budget, may_lack: &[Facility]) -> Result<Vec<Degraded>> {
    let mut request = Request { id: "", budget, may_lack, wanted: budget.controllers(), degraded: Vec::new() };
    let why = "this user cannot create a cgroup of v2 for a command";
    request.degrade_all(|_| true, why).map_err(|error| error.hint(FOR_ALL))?;
    Ok(request.degraded)
}

impl Group {
    /// Kills every process in it, `cgroup.kill`.
    pub fn kill(&self) {
        if let Kind::V2(leaf) = &self.kind
            && leaf.dir().write("cgroup.kill", "1").is_err()
        {
            leaf::kill_in(leaf.fd()); // before Linux 5.14
        }
    }

    /// Its `cgroup.events`, which polls as `POLLPRI` when it becomes empty.
    pub fn events(&self) -> Result<std::os::fd::OwnedFd> {
        let Kind::V2(leaf) = &self.kind else {
            return Err(Error::errno(Step::Cgroup, "cgroup.events", Errno::EOPNOTSUPP));
        };
        let events = leaf.dir().file("cgroup.events", nix::fcntl::OFlag::O_RDONLY);
        events.map_err(|errno| failed(&leaf.dir().path().join("cgroup.events"), errno))
    }
}

/// Whether a cgroup has no process any more, from its `cgroup.events`. One that was removed has none either.
pub fn is_empty(events: &std::os::fd::OwnedFd) -> bool {
    match super::files::content(events) {
        Ok(text) => super::files::keyed(&text, "populated") == Some(0),
        Err(errno) => errno == Errno::ENODEV,
    }
}
