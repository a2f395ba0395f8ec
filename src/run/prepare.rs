//! The parent half: prepares everything that the child needs, so that nothing is parsed, opened or allocated after clone3.

use std::ffi::CString;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use stockade_seccomp::builtin::Guard;

use super::bounds;
use super::egress::{self, Gateway, PreparedEgress};
use super::network::{self, PreparedNetwork};
use super::order::Order;
use crate::cgroup::{self, Entrance, Group};
use crate::confine::landlock::PreparedLandlock;
use crate::confine::process::StandIn;
use crate::confine::seccomp::install::PreparedSeccomp;
use crate::confine::tree::{self, Tree};
use crate::confine::user::{self, Users};
use crate::confine::{caps, landlock, privilege, process, seccomp};
use crate::error::{Error, Result, Step};
use crate::plan::{Command, Facility, IdMapping, Landlock, Network, RunPlan};
use crate::report::Degraded;
use crate::rootfs::Powers;
use crate::rootfs::oom::OomScore;
use crate::rootfs::run_root::{self, PreparedRoot};
use crate::sys;
use crate::sys::stack::Stack;

use super::bare::{Bare, Unmapped};
use super::denials::Denials;
use super::verify::Verifier;
use crate::confine::seccomp::listen::Judge;
use crate::launch::namespaces::Inhabited;
use crate::launch::steps::step;
use crate::launch::streams::{self, ChildStream, Pumps};

/// Everything that the child needs.
#[derive(Debug)]
pub struct Prepared {
    /// The id maps.
    pub users: Users,
    /// The root and all mounts.
    pub root: PreparedRoot,
    /// The Landlock rules.
    pub landlock: Option<PreparedLandlock>,
    /// The system call filter.
    pub seccomp: Option<PreparedSeccomp>,
    /// The same with a listener, for the commands of a session whose denials are explained.
    pub listening: Option<PreparedSeccomp>,
    /// The capabilities that it keeps, as a mask.
    pub kept_capabilities: u64,
    /// The capabilities that the init of a session holds to start commands as other users, and no command gets.
    pub held_capabilities: u64,
    /// Without a user namespace: what its bounding set keeps.
    pub undroppable: Option<u64>,
    /// Without a pid namespace: what keeps its tree together.
    pub tree: Option<Tree>,
    /// The command line that other processes see for pid 1.
    pub title: CString,
    /// Whether it gets a cgroup namespace with its own cgroup as the root.
    pub hides_cgroup: bool,
    /// Where pid 1 enters its cgroups of v1.
    pub entrance: Option<Entrance>,
    /// Whether no cgroup counts its CPU time.
    pub counts: bool,
    /// Its network.
    pub network: PreparedNetwork,
    /// The sockets of allowed hosts in that network.
    pub egress: Option<PreparedEgress>,
    /// Whether pid 1 is our init.
    pub init: bool,
    /// Whether the workload shares init's memory until it executes its program, instead of having a copy.
    pub shares_memory: bool,
    /// Whether init stays and starts the commands of a session, instead of the one that is prepared.
    pub stays: bool,
    /// The command.
    pub order: Order,
}

/// What the parent keeps.
#[derive(Debug)]
pub struct Kept {
    /// The supervisor's side of the standard streams.
    pub pumps: Pumps,
    /// The run's cgroup, if there is a budget.
    pub cgroup: Option<Group>,
    /// The limits of each process that replace a budget.
    pub stand_ins: Vec<StandIn>,
    /// The sources of denials.
    pub denials: Option<Denials>,
    /// Optional budgets that could not be set.
    pub degraded: Vec<Degraded>,
    /// What to tell the caller of limits that are not in force for all processes together.
    pub budget_warning: Option<String>,
    /// Serves the sockets of allowed hosts.
    pub gateway: Option<Gateway>,
}

/// What a plan is prepared for.
#[derive(Clone, Copy, Debug)]
pub enum Purpose<'a> {
    /// A run.
    Run,
    /// A run without namespaces, whose plan this is.
    Bare(&'a Bare),
    /// A session. Its command is not prepared: init stays, and starts what it is asked to.
    Session,
}

/// Prepares everything that can fail without a new namespace. The stack is for code that shares the first process's memory: the
/// network thread, then the workload.
pub fn prepare(plan: &RunPlan, purpose: Purpose<'_>) -> Result<(Prepared, Kept, Stack)> {
    let (stays, bare) = match purpose {
        Purpose::Run => (false, None),
        Purpose::Bare(bare) => (false, Some(bare)),
        Purpose::Session => (true, None),
    };
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
    let may_lack = &plan.confinement.allow_degraded;
    let mut degraded = Vec::new();
    let (users, mut root) = ids_and_root(plan, bare, &mut degraded)?;
    let users = if let Some(bare) = bare { bare.take_users(users, &mut degraded)? } else { users };
    step("mounts", || format!("{} prepared", plan.mounts.len()));
    let none = stays.then(|| Command { argv: vec!["-".into()], ..plan.command.clone() });
    let mut process =
        process::prepare(none.as_ref().unwrap_or(&plan.command), plan.confinement.hostname.as_ref(), rules(plan))?;
    let (streams, terminal, pumps) = match stays {
        true => ([ChildStream::Null, ChildStream::Null, ChildStream::Null], None, Pumps::default()),
        false => streams::prepare(&plan.stdio, plan.deadlines.idle_us.is_some(), (users.host_uid, users.host_gid))?,
    };
    step("streams", || if terminal.is_some() { "a terminal" } else { "prepared" });
    let landlock = rules_of_paths(plan, bare, &mut degraded)?;
    let lists_ports = plan.confinement.landlock.as_ref().is_some_and(Landlock::lists_ports);
    if lists_ports && plan.namespaces.network == Network::Host && may_lack.contains(&Facility::Udp) {
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
        if stays {
            landlock.allow_null()?; // a client's stream may be that
        }
    }
    if let (Some(bare), Some(landlock)) = (bare, &landlock) {
        bare.allow(landlock)?;
    }
    step("landlock", || if landlock.is_some() { "ruleset made" } else { "no ruleset" });
    let (seccomp, judge) = filter(plan, bare, &users)?;
    step("seccomp", || format!("{} instructions", seccomp.as_ref().map_or(0, PreparedSeccomp::instructions)));
    let denials = plan.explain_denials.then(|| Denials::prepare(plan, judge.map(Rc::new)));
    let network = network::prepare(plan)?;
    let stack = Stack::new().map_err(|errno| Error::errno(Step::Fork, "stack", errno))?;
    let (cgroup, mut missing) = cgroup::prepare(&plan.confinement.id, &plan.budget, may_lack)?; // last: the first step that would have to be undone
    step("cgroup", || cgroup.as_ref().map_or("none".to_owned(), |group| format!("created {}", group.record().path)));
    // With a directory of v2, a command of a session could start processes in the cgroup of another.
    let shown = cgroup.as_ref().filter(|group| plan.namespaces.cgroup && !(stays && group.dir().is_some()));
    let shown = shown.map(Group::view);
    root.show_cgroup(shown.as_ref())?;
    let lacking: Vec<Facility> = missing.iter().filter_map(|one| one.what.parse().ok()).collect();
    let is_root_outside = privilege::may_be_root_outside(users.host_uid);
    let stand_ins = process.stand_in(&plan.budget, &lacking, is_root_outside)?;
    let has_budget = stand_ins.iter().all(|one| one.controller != Facility::Memory);
    root.oom_score = OomScore::prepare(plan.command.oom_score_adj, has_budget, stays)?;
    for one in &mut missing {
        if let Some(stand_in) = stand_ins.iter().find(|stand_in| stand_in.controller.name() == one.what) {
            one.got = stand_in.to_string();
        }
    }
    let budget_warning = bounds::warning(&plan.budget, &missing, &stand_ins, may_lack);
    degraded.extend(missing);
    let held_capabilities = if stays && users.has_others() { caps::OF_OTHER_USERS } else { 0 };
    let prepared = Prepared {
        users,
        root,
        landlock,
        seccomp,
        listening: None,
        kept_capabilities: caps::mask(&plan.capabilities),
        held_capabilities,
        undroppable: bare.map(|_| caps::undroppable()),
        tree: bare.map(|_| tree::prepare()).transpose()?,
        title: CString::new(format!("stockade: init {}", plan.confinement.id))
            .map_err(|_| Error::new(Step::Plan, "id", "contains a NUL byte"))?,
        hides_cgroup: plan.namespaces.cgroup && (stays || cgroup.is_some()),
        entrance: cgroup.as_ref().map(Group::entrance).transpose()?.flatten(),
        counts: cgroup.is_none(),
        network,
        egress: None,
        init: plan.init,
        // Sharing avoids copying page tables and page faults. But processes that share memory also share a time namespace.
        shares_memory: plan.init && !plan.namespaces.time,
        stays,
        order: Order {
            process,
            explain_denials: plan.explain_denials,
            hash_program: plan.hash_program,
            terminal,
            streams,
            user: None,
            files: None,
        },
    };
    Ok((prepared, Kept { pumps, cgroup, stand_ins, denials, degraded, budget_warning, gateway: None }, stack))
}

/// The Landlock ruleset.
pub(super) fn rules_of_paths(
    plan: &RunPlan,
    bare: Option<&Bare>,
    degraded: &mut Vec<Degraded>,
) -> Result<Option<PreparedLandlock>> {
    let implied = landlock::Implied {
        mounts: Some(if bare.is_none() { &plan.mounts } else { &[] }),
        network: plan.namespaces.network,
        logs: plan.explain_denials,
        may_be_missing: plan.confinement.allow_degraded.contains(&Facility::Landlock),
    };
    landlock::prepare(plan.confinement.landlock.as_ref(), &implied, degraded)
}

/// The guards of the plan, and the one that a workload needs whose files are those of other processes, too.
pub(super) fn guards(plan: &RunPlan, is_bare: bool, users: &Users) -> Vec<String> {
    let mut guards = plan.confinement.guards.clone();
    if is_bare && !users.is_alone() {
        guards.push(Guard::Attributes.name().to_owned());
    }
    guards
}

/// The filter of system calls.
pub(super) fn filter(
    plan: &RunPlan,
    bare: Option<&Bare>,
    users: &Users,
) -> Result<(Option<PreparedSeccomp>, Option<Judge>)> {
    let guards = guards(plan, bare.is_some(), users);
    let implied = seccomp::install::Implied { guards: &guards, ..plan.into() };
    seccomp::install::prepare(plan.confinement.seccomp.as_ref(), &implied)
}

/// What a run adds to the limits of its command.
pub fn rules(plan: &RunPlan) -> process::Rules {
    let may_lack = &plan.confinement.allow_degraded;
    process::Rules {
        cpu_us: plan.deadlines.cpu_us,
        core_is_a_guard: true,
        keyring_may_fail: may_lack.contains(&Facility::Keyring),
        hostname_may_fail: may_lack.contains(&Facility::Hostname),
    }
}

impl Prepared {
    /// What must be found in the running command.
    pub fn verifier(&self, plan: &RunPlan, sandbox: Option<Inhabited>) -> Verifier {
        Verifier {
            kept_capabilities: self.kept_capabilities,
            undroppable: self.undroppable,
            ids: self.users.inside(),
            host_ids: (self.users.host_uid, self.users.host_gid),
            no_groups: false, // an unprivileged caller cannot drop its own
            filtered: self.seccomp.is_some(),
            sandbox,
            may_nest: plan.namespaces.nested > 0,
            executes: true,
        }
    }

    /// Starts the gateway, if the plan needs one. `log` receives the lines of the network log.
    pub fn start_gateway(&mut self, plan: &RunPlan, log: Option<OwnedFd>, kept: &mut Kept) -> Result<()> {
        let ids = self.users.is_privileged().then_some((self.users.host_uid, self.users.host_gid));
        if let Some((prepared, gateway)) = egress::start(plan, log, self.stays, ids)? {
            (self.egress, kept.gateway) = (Some(prepared), Some(gateway));
        }
        Ok(())
    }

    /// Adds what the commands of a session need whose denials are explained: a filter with a listener, and the judge of the calls
    /// that it refuses.
    pub fn listen(&mut self, plan: &RunPlan) -> Result<Option<Rc<Judge>>> {
        let implied = seccomp::install::Implied { explain_denials: true, ..plan.into() };
        let (listening, judge) = seccomp::install::prepare(plan.confinement.seccomp.as_ref(), &implied)?;
        self.listening = listening;
        Ok(judge.map(Rc::new))
    }
}

/// The workload's ids on the host, and the root. Files that the workload may write belong to its own id, through idmapped
/// mounts; where these cannot be had and may be missing, the workload gets the id of the files' owner.
pub(super) fn ids_and_root(
    plan: &RunPlan,
    bare: Option<&Bare>,
    degraded: &mut Vec<Degraded>,
) -> Result<(Users, PreparedRoot)> {
    let may_lack = &plan.confinement.allow_degraded;
    // Without a user namespace, the workload's processes and files are those of another user of the host.
    let privileged = privilege::maps_ids()? && (bare.is_none() || privilege::rules_others()?);
    let users = match user::prepare(&plan.identity, privileged) {
        Err(error) if may_lack.contains(&Facility::HostId) && plan.identity.mapping == IdMapping::Single => {
            let users = user::as_caller(&plan.identity);
            degraded.push(as_other_user(Facility::HostId, "the caller's", &users, &error));
            users
        }
        users => users?,
    };
    step("ids", || format!("{}:{} on the host", users.host_uid, users.host_gid));
    let (error, owner) = match prepare_root(plan, bare, &users)? {
        Ok(root) => return Ok((users, root)),
        Err(unmapped) => unmapped,
    };
    if !may_lack.contains(&Facility::Idmap) || !users.has_own_id(&plan.identity) {
        return Err(error);
    }
    let users = users.mapped_to(owner);
    step("ids", || format!("{}:{} on the host, the owner of files", users.host_uid, users.host_gid));
    degraded.push(as_other_user(Facility::Idmap, "that of the owner of the files", &users, &error));
    let root = prepare_root(plan, bare, &users)?.map_err(|(error, _)| error)?;
    Ok((users, root))
}

fn as_other_user(missing: Facility, whose: &str, users: &Users, error: &Error) -> Degraded {
    Degraded {
        what: missing.name().to_owned(),
        wanted: "a host id of its own".to_owned(),
        got: format!("{whose}, {}:{}", users.host_uid, users.host_gid),
        why: error.to_string(),
    }
}

/// The root for a workload with these ids. The inner error has the owner of files that cannot be mapped to them.
fn prepare_root(
    plan: &RunPlan,
    bare: Option<&Bare>,
    users: &Users,
) -> Result<std::result::Result<PreparedRoot, Unmapped>> {
    if let Some(bare) = bare {
        return bare.root(users);
    }
    let mut namespaces = Vec::new();
    let mut idmap = |owner| idmap(&mut namespaces, owner, users);
    let mut powers = Powers {
        privileged: users.is_privileged() && privilege::is_privileged()?,
        idmap: users.is_privileged().then_some(&mut idmap),
        host_ids: (users.host_uid, users.host_gid),
        unmapped: None,
        landlock: plan.confinement.landlock.is_some() && sys::landlock::abi().is_ok(),
        may_lack: &plan.confinement.allow_degraded,
    };
    match (run_root::prepare(plan, &mut powers), powers.unmapped) {
        (Err(error), Some(owner)) => Ok(Err((error, owner))),
        (root, _) => root.map(Ok),
    }
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
