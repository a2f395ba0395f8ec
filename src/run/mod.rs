//! The sandbox: from a plan to a report.
//!
//! # Theory of operation
//!
//! ```text
//! process                ids                              namespaces                    lifetime
//! ─────────────────────  ───────────────────────────────  ────────────────────────────  ─────────────────────────────
//! supervisor: called     the caller's                     the caller's                  until the report is complete
//!   `run`
//! pid 1: the sandbox's   the sandbox's user, only         its own: user, mount, pid;    dies with the supervisor;
//!   init                   planned capabilities             the others as planned         ends after the workload
//! network thread of      pid 1's, before capabilities     creates the network           ends before pid 1 enters
//!   pid 1                  are dropped                      namespace                     that namespace
//! gateway, if hosts are   as the workload's, or the        the caller's                  dies with the supervisor
//!   allowed                caller's; no files
//! workload: pid 2        pid 1's; restricted by seccomp   pid 1's                       until it exits or the run
//!                          and Landlock                                                   ends
//!
//! channel                between                          carries
//! ─────────────────────  ───────────────────────────────  ───────────────────────────────────────────────────────────
//! control socket         supervisor, pid 1 and, until     "go" twice and "verified"; back: terminal, missing
//!                          execve, the workload             facilities, pidfd, listener, program, exit status
//! failure pipe           pid 1 or workload to supervisor  {step, index, errno}; end of file: the workload was executed
//! ```
//!
//! ```text
//! supervisor                               pid 1 of the sandbox                      workload, pid 2
//! ────────────────────────────────────     ─────────────────────────────────────     ─────────────────────────────
//! prepare: open, parse, compile, allocate
//! clone3 with the new namespaces ────────► wait; meanwhile a thread creates the network namespace
//! write id maps, go ─────────────────────► ids, parent-death signal, root and mounts, network, pivot,
//! verify namespaces, go ─────────────────► host name, keyring, groups, capabilities, no_new_privs,
//! supervise: pidfd, signals, deadlines,    not dumpable
//!   messages, streams                      vfork, wait ──────────────────────────► session, streams, cwd,
//!                                                                                     Landlock, umask, limits,
//!                                                                                     signals, read back,
//!                          ◄──── pidfd ─── init: reap, forward signals ◄─────────── seccomp, execve
//! verify /proc/PID/status                                                            (closes the failure pipe)
//!                          ◄─── status ─── workload ended; unverified, it stays a zombie until it is verified
//! SIGKILL to pid 1, unless it has ended:
//!   every process in the sandbox is dead
//! drain the streams, read the usage, report
//! ```
//!
//! The child is copied from a process without threads. It formats no text and takes no lock. Its failures are reported as
//! `{step, index, errno}`; the supervisor has the plan and names the object. Pid 1 dies with its supervisor
//! (`PR_SET_PDEATHSIG`; before that is set, pid 1 notices the end of the control socket). The kernel kills every process in the pid
//! namespace when pid 1 ends. Without init the workload is pid 1.

mod bare;
mod bounds;
mod child;
mod command;
pub(crate) mod cpu;
mod denials;
pub mod egress;
mod examine;
pub mod files;
mod fork_server;
mod hint;
mod init;
mod keeper;
pub(crate) mod kernel_audit;
pub mod missing;
mod network;
mod no_process;
mod observer;
mod order;
mod outcome;
mod prepare;
mod processes;
mod program;
pub mod sandbox;
mod supervise;
mod tree;
mod verify;

use std::cell::RefCell;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::time::Instant;

use nix::errno::Errno;
use nix::sys::signal::SigSet;
use nix::unistd::Pid;

use self::bare::{Bare, Orphans};
use self::egress::PreparedEgress;
pub use self::examine::{Examined, examine, examined};
pub use self::observer::KEPT;
pub use self::observer::touched::{Touched, Use};
use self::outcome::Beginning;
pub use self::outcome::signal_name;
use self::prepare::{Kept, Prepared, Purpose};
use self::supervise::alone::Alone;
pub use self::supervise::alone::Sampler;
use self::supervise::{Supervised, Watches};
use self::tree::Tree;
use crate::confine::user;
use crate::error::{Error, Result, Step};
use crate::launch::channels::{self, ParentEnds};
use crate::launch::namespaces::Inhabited;
pub use crate::launch::signals::Blocked;
use crate::launch::steps::{self, step};
use crate::launch::streams::ChildStream;
use crate::plan::RunPlan;
use crate::report::{Enforced, Report};
use crate::sys::ablate::{Layer, without};
use crate::sys::clone::{Cloned, clone3};
use crate::sys::process;
use crate::sys::stack::Stack;

/// What the caller should know before the workload exists.
#[derive(Clone, Copy, Debug)]
pub struct Warnings<'a> {
    /// About the system call profile.
    pub profile: &'a [String],
    /// That there are no namespaces.
    pub namespaces: Option<&'a str>,
    /// The limits that are not in force for all processes together.
    pub budget: Option<&'a str>,
}

impl<'a> Warnings<'a> {
    fn of(prepared: &'a Prepared, kept: &'a Kept) -> Self {
        let profile = prepared.seccomp.as_ref().map_or(&[][..], |seccomp| &seccomp.warnings);
        Self { profile, namespaces: None, budget: kept.budget_warning.as_deref() }
    }
}

/// What a run may have besides its plan.
#[derive(Default)]
pub struct Extras<'a> {
    /// Receives samples of the usage.
    pub sampler: Option<Sampler<'a>>,
    /// Where the lines of the network log are written, if the plan has rules for hosts.
    pub net_log: Option<OwnedFd>,
    /// The run is killed when the other end of this pipe or socket is closed.
    pub lease: Option<OwnedFd>,
    /// Receives what the calls use, if the plan explains denials.
    pub touched: Option<Rc<RefCell<Touched>>>,
}

/// Runs a plan to its end. There is a report in every case, and nothing is left of the run.
///
/// `warn` is called once, before the workload exists.
///
/// SIGCHLD gets its default disposition. The caller should have no other threads (`clone3(2)` copies only the calling one).
pub fn run(plan: &RunPlan, signals: &Blocked, extras: Extras<'_>, warn: impl FnOnce(Warnings<'_>)) -> Report {
    let begun = Beginning::now();
    process::default_child_signal();
    let report = start(plan, extras, begun, &signals.taken, warn);
    report.unwrap_or_else(|error| Report::not_started(&plan.confinement.id, Some(plan.into()), begun.time, &error))
}

fn start(
    plan: &RunPlan,
    Extras { sampler, net_log, lease, touched }: Extras<'_>,
    begun: Beginning,
    signals: &SigSet,
    warn: impl FnOnce(Warnings<'_>),
) -> Result<Report> {
    #[cfg(feature = "ablate")]
    let plan = &crate::launch::ablate::thinned(plan);
    let (requested, bare) = (plan, bare::settle(plan)?);
    let plan = bare.as_ref().map_or(plan, |bare| &bare.plan);
    let purpose = bare.as_ref().map_or(Purpose::Run, Purpose::Bare);
    let (mut prepared, mut kept, stack) = prepare::prepare(plan, purpose)?;
    if let (Some(touched), Some(denials)) = (&touched, &mut kept.denials) {
        denials.note_uses(touched)?;
    }
    prepared.start_gateway(plan, net_log, &mut kept)?;
    warn(Warnings { namespaces: bare.as_ref().map(Bare::warning), ..Warnings::of(&prepared, &kept) });
    let watches = Watches::new(signals)?;
    let orphans = bare.as_ref().map(|_| Orphans::adopt()).transpose()?;
    let (child, ends) = clone(plan, &mut prepared, stack, kept.cgroup.as_ref().and_then(|group| group.dir()))?;
    let cloned_at = Instant::now();
    let mut enforced = Enforced {
        degraded: std::mem::take(&mut kept.degraded),
        budget: bounds::record(&plan.budget, kept.cgroup.as_ref(), &kept.stand_ins),
        ..Enforced::default()
    };
    let mut inhabited = None;
    let admitted = admit(plan, &prepared, &child, &ends, &mut kept, &mut inhabited, &mut enforced);
    let tree = Tree::Sandbox { pid: child.pid, pidfd: child.pidfd, orphans };
    let verifier = prepared.verifier(plan, inhabited);
    let command = Supervised::new(plan, ends, tree, kept, verifier, enforced);
    // The report is begun and resources are released while the workload runs, so that neither delays the end.
    let blank = || Report::blank(&requested.confinement.id, Some(requested.into()), begun.time);
    let (mut early, mut stack) = (None, Some(child.stack));
    let mut meanwhile = || {
        early = Some(blank());
        prepared.root.drop_parent_copies();
        drop(stack.take());
    };
    let (_, outcome, kept, enforced) = Alone::new(command, watches, sampler, lease).run(admitted, &mut meanwhile);
    kept.pumps.restore();
    let start = outcome::Start { plan, prepared: &prepared, process: &prepared.order.process, begun, cloned_at };
    let mut report = start.report(early.unwrap_or_else(blank), &outcome, kept, enforced);
    if let (Some(left), Some(enforced)) = (bare.and_then(|bare| bare.remove_scratch()), &mut report.enforced) {
        enforced.degraded.push(left);
    }
    step("ended", || format!("exit code {}", report.exit_code));
    Ok(report)
}

/// The first process of a sandbox, as its parent sees it.
struct Child {
    pid: Pid,
    pidfd: OwnedFd,
    /// The parent's copy of the stack that the child uses.
    stack: Stack,
    /// Whether it was created in its cgroup.
    is_in_cgroup: bool,
}

/// Creates the first process. In the child this does not return.
fn clone(
    plan: &RunPlan,
    prepared: &mut Prepared,
    stack: Stack,
    cgroup: Option<BorrowedFd<'_>>,
) -> Result<(Child, ParentEnds)> {
    let (ends, child_ends) = channels::channels()?;
    let flags = namespace_flags(plan);
    let mut is_in_cgroup = cgroup.is_some();
    let cloned = match clone3(flags, cgroup) {
        // clone(2) stands in, which has no flag for a cgroup. A session cannot do without: its commands are created in theirs.
        Err(Errno::ENOSYS) if is_in_cgroup && !prepared.stays => {
            is_in_cgroup = false;
            clone3(flags, None)
        }
        cloned => cloned,
    };
    let (pid, pidfd) = match cloned {
        Ok(Cloned::Child) => child::run(prepared, stack, ends, &child_ends),
        Ok(Cloned::Parent { pid, pidfd }) => (pid, pidfd),
        Err(errno) => return Err(clone_error(errno, plan)),
    };
    step("clone", || format!("pid {pid} with {}", steps::namespaces(flags)));
    prepared.egress.as_mut().map(PreparedEgress::drop_channel);
    prepared.order.streams = [ChildStream::Null, ChildStream::Null, ChildStream::Null]; // closes the child's ends of the pipes
    Ok((Child { pid, pidfd, stack, is_in_cgroup }, ends))
}

fn namespace_flags(plan: &RunPlan) -> u64 {
    let namespaces = &plan.namespaces;
    if !namespaces.own {
        return 0;
    }
    let optional = [
        (namespaces.ipc, libc::CLONE_NEWIPC),
        (namespaces.uts, libc::CLONE_NEWUTS),
        (namespaces.cgroup, libc::CLONE_NEWCGROUP),
        (!without(Layer::UserNamespace), libc::CLONE_NEWUSER),
    ];
    let always = libc::CLONE_NEWNS | libc::CLONE_NEWPID;
    let wanted = optional.into_iter().filter(|(wanted, _)| *wanted).fold(always, |flags, (_, flag)| flags | flag);
    wanted as u64
}

fn clone_error(errno: Errno, plan: &RunPlan) -> Error {
    let error = Error::errno(Step::Clone, "", errno);
    match errno {
        Errno::EPERM | Errno::EACCES | Errno::ENOSPC | Errno::EUSERS | Errno::EINVAL | Errno::ENOSYS
            if plan.namespaces.own =>
        {
            error.hint(hint::NO_NAMESPACES)
        }
        Errno::EAGAIN => error.hint(no_process::reason(plan)),
        _ => error,
    }
}

/// Prepares the child from outside: cgroup, limits and id maps. Then checks its namespaces.
fn admit(
    plan: &RunPlan,
    prepared: &Prepared,
    child: &Child,
    ends: &ParentEnds,
    kept: &mut Kept,
    inhabited: &mut Option<Inhabited>,
    enforced: &mut Enforced,
) -> Result<()> {
    let pid = child.pid;
    kept.cgroup.as_ref().map_or(Ok(()), |group| group.add_cloned(pid, child.is_in_cgroup))?;
    let proc_pid = user::open_proc_pid(pid)?;
    enforced.degraded.extend(prepared.order.process.raise_limits(pid)?);
    prepared.users.write_maps(&proc_pid, pid)?;
    step("id map", || format!("of pid {pid} written"));
    ends.go()?;
    if !plan.namespaces.own {
        return ends.go(); // it has none of its own
    }
    // Checked while the child builds its root. Later it is not dumpable, and it waits for this before it becomes so.
    let now = *inhabited.insert(Inhabited::by(&proc_pid)?);
    enforced.namespaces = verify::differing(now, &plan.namespaces)?;
    step("namespaces", || format!("verified: {}", enforced.namespaces.join(",")));
    if let Some(gateway) = &mut kept.gateway {
        gateway.ready()?;
    }
    ends.go()?;
    step("released", || format!("pid {pid} confines itself"));
    Ok(())
}
