//! The parent half: prepares everything that the child needs, so that nothing is parsed, opened or allocated after clone3.

use std::ffi::CString;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use super::network::{self, PreparedNetwork};
use crate::cgroup::{self, Group};
use crate::confine::landlock::PreparedLandlock;
use crate::confine::process::PreparedProcess;
use crate::confine::seccomp::install::PreparedSeccomp;
use crate::confine::user::{self, Users};
use crate::confine::{caps, landlock, process, seccomp};
use crate::error::{Error, Result, Step};
use crate::plan::{Facility, Landlock, Network, RunPlan};
use crate::report::Degraded;
use crate::rootfs::Powers;
use crate::rootfs::run_root::{self, PreparedRoot};
use crate::sys::clone::Stack;
use crate::sys::terminal::Size;

use super::denials::Denials;
use crate::launch::steps::step;
use crate::launch::streams::{self, ChildStream, Pumps};

/// Everything that the child needs.
#[derive(Debug)]
pub struct Prepared {
    /// The id maps.
    pub users: Users,
    /// The root and all mounts.
    pub root: PreparedRoot,
    /// The program and its inherited settings.
    pub process: PreparedProcess,
    /// Its Landlock rules.
    pub landlock: Option<PreparedLandlock>,
    /// Its system call filter.
    pub seccomp: Option<PreparedSeccomp>,
    /// The capabilities that it keeps, as a mask.
    pub kept_capabilities: u64,
    /// The command line that other processes see for pid 1.
    pub title: CString,
    /// Whether it gets a cgroup namespace with its own cgroup as the root.
    pub hides_cgroup: bool,
    /// Its network.
    pub network: PreparedNetwork,
    /// Whether pid 1 is our init.
    pub init: bool,
    /// Whether the workload shares init's memory until it executes its program, instead of having a copy.
    pub shares_memory: bool,
    /// Whether pid 1 sends the seccomp listener.
    pub explain_denials: bool,
    /// Whether the executed file is sent to the supervisor, which hashes it.
    pub hash_program: bool,
    /// The size of its own terminal, if it has one.
    pub terminal: Option<Size>,
    /// Its standard streams.
    pub streams: [ChildStream; 3],
}

/// What the parent keeps.
#[derive(Debug)]
pub struct Kept {
    /// The supervisor's side of the standard streams.
    pub pumps: Pumps,
    /// The run's cgroup, if there is a budget.
    pub cgroup: Option<Group>,
    /// The sources of denials.
    pub denials: Option<Denials>,
    /// Optional budgets that could not be set.
    pub degraded: Vec<Degraded>,
}

/// Prepares everything that can fail without a new namespace. The stack is for code that shares the first process's memory: the
/// network thread, then the workload.
pub fn prepare(plan: &RunPlan) -> Result<(Prepared, Kept, Stack)> {
    if plan.namespaces.time && !plan.init {
        // A process enters a new time namespace only at its creation, so pid 1 cannot enter its own.
        return Err(
            Error::new(Step::Plan, "time namespace", "requires init").hint("leave --no-init or --time-namespace out")
        );
    }
    if plan.explain_denials && (plan.namespaces.time || !plan.init) {
        // The listener reaches the supervisor through init, which shares the workload's memory until execve.
        return Err(Error::new(Step::Plan, "explain-denials", "requires init and no time namespace")
            .hint("leave --explain-denials, or --no-init and --time-namespace out"));
    }
    let privileged = user::is_privileged()?;
    let users = user::prepare(&plan.identity, privileged)?;
    step("ids", || format!("{}:{} on the host", users.host_uid, users.host_gid));
    let mut namespaces = Vec::new();
    let mut idmap = |owner| idmap(&mut namespaces, owner, &users);
    let mut root = run_root::prepare(plan, &mut Powers { privileged, idmap: &mut idmap })?;
    step("mounts", || format!("{} prepared", plan.mounts.len()));
    let rules = process::Rules {
        cpu_us: plan.deadlines.cpu_us,
        core_is_a_guard: true,
        keyring_may_fail: plan.confinement.allow_degraded.contains(&Facility::Keyring),
    };
    let mut process = process::prepare(&plan.command, plan.confinement.hostname.as_ref(), rules)?;
    let (streams, terminal, pumps) = streams::prepare(&plan.stdio, plan.deadlines.idle_us.is_some())?;
    step("streams", || if terminal.is_some() { "a terminal" } else { "prepared" });
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
    let lists_ports = plan.confinement.landlock.as_ref().is_some_and(Landlock::lists_ports);
    if lists_ports
        && plan.namespaces.network == Network::Host
        && plan.confinement.allow_degraded.contains(&Facility::Udp)
    {
        degraded.push(Degraded {
            what: Facility::Udp.name().to_owned(),
            wanted: "TCP to the listed ports alone".to_owned(),
            got: "sockets of every kind".to_owned(),
            why: "Landlock restricts the ports of TCP alone".to_owned(),
        });
    }
    streams::let_open_anew(&streams, users.host_uid);
    if let Some(landlock) = &landlock {
        (0..).zip(&streams).try_for_each(|(number, stream)| match stream {
            ChildStream::Inherited(file) => landlock.allow_stream(*file, number != 0),
            _ => Ok(()),
        })?;
    }
    step("landlock", || if landlock.is_some() { "ruleset made" } else { "no ruleset" });
    let (seccomp, judge) = seccomp::install::prepare(plan.confinement.seccomp.as_ref(), &plan.into())?;
    step("seccomp", || format!("{} instructions", seccomp.as_ref().map_or(0, PreparedSeccomp::instructions)));
    let denials = plan.explain_denials.then(|| Denials::prepare(plan, judge));
    let network = network::prepare(plan)?;
    let stack = Stack::new().map_err(|errno| Error::errno(Step::Fork, "stack", errno))?;
    let (cgroup, mut missing) = cgroup::prepare(&plan.confinement.id, &plan.budget, &plan.confinement.allow_degraded)?; // last: the first step that would have to be undone
    step("cgroup", || cgroup.as_ref().map_or("none".to_owned(), |group| format!("created {}", group.record().path)));
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
        // Sharing avoids copying page tables and page faults. But processes that share memory also share a time namespace.
        shares_memory: plan.init && !plan.namespaces.time,
        explain_denials: plan.explain_denials,
        hash_program: plan.hash_program,
        terminal,
        streams,
    };
    Ok((prepared, Kept { pumps, cgroup, denials, degraded }, stack))
}

/// One idmapped-mount namespace per owner, shared by all binds of that owner.
fn idmap(known: &mut Vec<((u32, u32), Rc<OwnedFd>)>, owner: (u32, u32), users: &Users) -> Result<Rc<OwnedFd>> {
    if let Some((_, namespace)) = known.iter().find(|(of, _)| *of == owner) {
        return Ok(Rc::clone(namespace));
    }
    let namespace = Rc::new(user::idmap_namespace(owner, users)?);
    known.push((owner, Rc::clone(&namespace)));
    Ok(namespace)
}
