//! The parent half: from a plan to everything the child needs, so that nothing is parsed, opened or allocated after clone3.

use std::ffi::CString;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::rc::Rc;

use crate::cgroup::{self, Group};
use crate::error::{Error, Result, Step};
use crate::layers::landlock::PreparedLandlock;
use crate::layers::net::{self, PreparedNetwork};
use crate::layers::process::PreparedProcess;
use crate::layers::root::{self, Powers, PreparedRoot};
use crate::layers::seccomp::install::PreparedSeccomp;
use crate::layers::user::{self, Users};
use crate::layers::{caps, landlock, process, seccomp};
use crate::plan::{Facility, RunPlan};
use crate::report::Degraded;
use crate::sys::clone::Stack;
use crate::sys::terminal::Size;

use super::denials::Denials;
use super::output::{self, Pumps};

/// What the child needs.
#[derive(Debug)]
pub struct Prepared {
    /// The id maps.
    pub users: Users,
    /// The root and all mounts.
    pub root: PreparedRoot,
    /// The program and what it inherits.
    pub process: PreparedProcess,
    /// Its path and port rules.
    pub landlock: Option<PreparedLandlock>,
    /// Its system call filter.
    pub seccomp: Option<PreparedSeccomp>,
    /// Capabilities it keeps, as a mask by number.
    pub kept_capabilities: u64,
    /// What its first process is called where processes are listed.
    pub title: CString,
    /// Whether it sees its own cgroup as the top.
    pub hides_cgroup: bool,
    /// Its network.
    pub network: PreparedNetwork,
    /// Whether pid 1 is our init.
    pub init: bool,
    /// Whether the workload shares its init's memory until it executes its program, or gets a copy of it.
    pub shares_memory: bool,
    /// Whether pid 1 hands over what listens to refused calls.
    pub explain_denials: bool,
    /// Whether the supervisor gets to see what is executed.
    pub hash_program: bool,
    /// The size of its own terminal, if it gets one.
    pub terminal: Option<Size>,
    /// What its standard streams become.
    pub streams: [ChildStream; 3],
}

/// What one of the workload's standard streams becomes.
#[derive(Debug)]
pub enum ChildStream {
    /// The sandbox's own /dev/null.
    Null,
    /// The caller's, as it is.
    Inherited(BorrowedFd<'static>),
    /// One that nobody else has: an end of a pipe.
    Own(OwnedFd),
}

/// What the parent keeps for itself.
#[derive(Debug)]
pub struct Kept {
    /// The supervisor's side of the standard streams.
    pub pumps: Pumps,
    /// The cgroup that bounds the run, if it has a budget.
    pub cgroup: Option<Group>,
    /// What is heard of refused calls.
    pub denials: Option<Denials>,
    /// Budgets that were allowed to be missing, and are.
    pub degraded: Vec<Degraded>,
}

/// Prepares everything that can fail without a new namespace. On the stack runs what shares the memory of the first process:
/// the thread that makes its network, then the workload.
pub fn prepare(plan: &RunPlan) -> Result<(Prepared, Kept, Stack)> {
    if plan.namespaces.time && !plan.init {
        // A time namespace is entered by being born into it, which pid 1 cannot do for itself.
        return Err(Error::new(Step::Plan, "time namespace", "cannot be had without init")
            .hint("leave --no-init or --time-namespace out"));
    }
    if plan.explain_denials && (plan.namespaces.time || !plan.init) {
        // The listener comes to us by way of an init that shares the workload's memory until it executes its program.
        return Err(Error::new(Step::Plan, "explain-denials", "takes an init, and the clocks of the host")
            .hint("leave --explain-denials, or --no-init and --time-namespace out"));
    }
    let privileged = user::is_privileged()?;
    let users = user::prepare(&plan.identity, privileged)?;
    let mut namespaces = Vec::new();
    let mut idmap = |owner| idmap(&mut namespaces, owner, &users);
    let mut root = root::prepare(plan, &mut Powers { privileged, idmap: &mut idmap })?;
    let rules = process::Rules {
        cpu_us: plan.deadlines.cpu_us,
        core_is_a_guard: true,
        keyring_may_fail: plan.confinement.allow_degraded.contains(&Facility::Keyring),
    };
    let mut process = process::prepare(&plan.command, plan.confinement.hostname.as_ref(), rules)?;
    let (streams, terminal, pumps) = output::prepare(plan)?;
    let mut degraded = Vec::new();
    let landlock = landlock::prepare(
        plan.confinement.landlock.as_ref(),
        &landlock::Implied {
            mounts: Some(&plan.mounts),
            network: plan.namespaces.network,
            logs: plan.explain_denials,
            may_be_missing: plan.confinement.allow_degraded.contains(&Facility::Landlock),
        },
        &mut degraded,
    )?;
    let (seccomp, judge) = seccomp::install::prepare(plan.confinement.seccomp.as_ref(), &plan.into())?;
    let denials = plan.explain_denials.then(|| Denials::prepare(plan, judge));
    let network = net::prepare(plan)?;
    let stack = Stack::new().map_err(|errno| Error::errno(Step::Fork, "stack", errno))?;
    let (cgroup, mut missing) = cgroup::prepare(&plan.confinement.id, &plan.budget, &plan.confinement.allow_degraded)?; // last, because it is the first thing that would have to be taken back
    if process.stand_in(&plan.budget, &mut missing)? {
        root.prefer_for_oom(plan)?;
    }
    degraded.extend(missing);
    let prepared = Prepared {
        users,
        root,
        process,
        landlock,
        seccomp,
        kept_capabilities: caps::mask(&plan.capabilities),
        title: CString::new(format!("stockade: init {}", plan.confinement.id))
            .map_err(|_| Error::new(Step::Plan, "id", "contains a NUL byte"))?,
        hides_cgroup: plan.namespaces.cgroup && cgroup.is_some(),
        network,
        init: plan.init,
        // It saves copying page tables and faulting pages in. But who shares memory shares its clocks, too.
        shares_memory: plan.init && !plan.namespaces.time,
        explain_denials: plan.explain_denials,
        hash_program: plan.hash_program,
        terminal,
        streams,
    };
    Ok((prepared, Kept { pumps, cgroup, denials, degraded }, stack))
}

/// One idmapping namespace per owner, however many binds have it.
fn idmap(known: &mut Vec<((u32, u32), Rc<OwnedFd>)>, owner: (u32, u32), users: &Users) -> Result<Rc<OwnedFd>> {
    if let Some((_, namespace)) = known.iter().find(|(of, _)| *of == owner) {
        return Ok(Rc::clone(namespace));
    }
    let namespace = Rc::new(user::idmap_namespace(owner, users)?);
    known.push((owner, Rc::clone(&namespace)));
    Ok(namespace)
}
