//! A container: from a plan to a process that waits for `start` or runs.
//!
//! # Theory of operation
//!
//! ```text
//! process                ids                              namespaces                    lifetime
//! ─────────────────────  ───────────────────────────────  ────────────────────────────  ─────────────────────────────
//! runtime: create,       the caller's                     the caller's                  one command
//!   start, run, exec
//! intermediate process,  the runtime's, until it joins    enters those that are         until it has created the
//!   only if namespaces     a user namespace                 joined; sets the clocks       container's process
//!   are joined or
//!   clocks are set
//! container's process,   root of a new user namespace     new and joined ones; pid 1    dies with the runtime until
//!   a child of the         during set-up, then the          of a new pid namespace        that has recorded it;
//!   runtime                configured ids                                                 becomes the program
//!
//! channel                between                          carries
//! ─────────────────────  ───────────────────────────────  ───────────────────────────────────────────────────────────
//! control socket         runtime, container's process     "go"; back: "built", terminal, seccomp listener, "ready"
//! failure pipe           container's process to runtime   {step, index, errno} and a message; end of file: the
//!                                                           program was executed
//! intermediate socket    runtime, intermediate process    the go-ahead; back: the new process's pidfd, or a failure
//! gate: two FIFOs        `start`, container's process     one byte to start; back: as on the failure pipe
//! shared memory          `start` or exec, container's     the filter handshake: "filter installed", "go"
//!                          process
//! ```
//!
//! Only a child of the caller can enter a pid or time namespace, so the intermediate process enters the namespaces and creates
//! the container's process with `CLONE_PARENT`, as a child of the runtime.
//!
//! ```text
//! runtime (create, run or exec)            intermediate process              container's process
//! ────────────────────────────────────     ──────────────────────────────    ─────────────────────────────────────
//! prepare: open, parse, compile
//! clone3 ──────────────────────────────► only if needed (see above):
//!                                          enter cgroups and namespaces,
//!                                          clone3 with CLONE_PARENT ──────► wait
//! limits, id maps, OOM score
//! go ────────────────────────────────────────────────────────────────────► cgroups of v1, unless done; root, mounts
//!   run the runtime's hooks ◄─────────────────────────────────── built ───
//! go ────────────────────────────────────────────────────────────────────► hooks inside, pivot, ids, capabilities,
//!                                                                          no_new_privs; early: Landlock, seccomp
//!   verify it, write the record ◄─────────────────────────────── ready ───
//! go, end of `create` ───────────────────────────────────────────────────► wait at the gate
//!
//! `start`: one byte into the gate ───────────────────────────────────────► last hooks; late: Landlock, seccomp
//!   late: verify the filter ◄──────────────────── filter due, installed ───
//! late: go (in shared memory) ───────────────────────────────────────────► execve
//! ```
//!
//! No process of ours remains afterwards. The process that adopts the runtime's orphans (an engine's shim) reaps the container's
//! process. Until the runtime has recorded the container, its process dies with the runtime. Without a gate, as in `exec`,
//! the process continues right after "ready". The filter is installed early if the profile allows the calls that remain
//! ([`remaining_calls`]), and needs no handshake then.

mod admit;
mod child;
mod confined;
mod enter;
mod errors;
mod failed_step;
mod filter_handshake;
pub mod foreground;
pub mod gate;
pub mod hook_output;
pub mod hooks;
pub mod listener;
mod net_devices;
mod parts;
mod path_rules;
pub mod preflight;
mod prepare;
pub mod rdt;
mod remaining_calls;
mod stream_owner;
mod streams;
mod takeover;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::{Gid, Pid};

pub use self::errors::start_error;
use self::errors::with_message;
use self::failed_step::name_failure;
pub use self::filter_handshake::Rest;
use self::gate::Gate;
use self::prepare::Prepared;
use crate::cgroup::container::Groups;
use crate::confine::schedule;
use crate::confine::seccomp::install::PreparedSeccomp;
use crate::error::{Error, Result, Step};
use crate::launch::channels::{self, Message, ParentEnds};
use crate::launch::failures::{self, FailureEvent};
use crate::launch::steps::{self, step};
use crate::launch::terminal::pass_newlines;
use crate::launch::{executed, verify};
use crate::plan::ContainerPlan;
use crate::plan::container::IdRange;
use crate::report::Enforced;
use crate::sys::mount::FileOnMount;
use crate::sys::process;

/// Everything that a start needs besides the plan.
pub struct Request<'a> {
    /// The container's cgroups; `None` if the process stays in the runtime's own cgroups.
    pub groups: Option<&'a Groups>,
    /// For `exec`: the container whose namespaces are entered.
    pub entered: Option<Entered<'a>>,
    /// The process's standard streams.
    pub streams: [BorrowedFd<'a>; 3],
    /// How many descriptors from 3 on the process inherits.
    pub preserved: u32,
    /// Whether this process relays the terminal to its own.
    pub relays_terminal: bool,
    /// Where the process waits for `start`; `None` if it does not wait.
    pub gate: Option<Gate>,
    /// The state that hooks read, for a process id and a status.
    pub state: &'a dyn Fn(i32, &str) -> String,
    /// The state directory, which records host resources that outlive the process. `None` for `exec`.
    pub notes: Option<&'a std::path::Path>,
    /// Called while the process builds its root.
    pub cloned: &'a mut dyn FnMut(Pid, &Enforced) -> Result<()>,
    /// Called when the root is built and the old root is still reachable.
    pub built: &'a mut dyn FnMut(Pid) -> Result<()>,
}

/// A running container that another process enters.
#[derive(Clone, Copy, Debug)]
pub struct Entered<'a> {
    /// Its first process.
    pub first: BorrowedFd<'a>,
    /// Which of its namespaces (`CLONE_NEW*`) are entered.
    pub namespaces: i32,
    /// Its process id.
    pub pid: i32,
}

/// A container that waits for `start` or, without a gate, runs.
#[derive(Debug)]
pub struct Launched {
    /// Its first process.
    pub pid: Pid,
    /// The same process. A pidfd never refers to a later process with the same id.
    pub pidfd: OwnedFd,
    /// The master side of its terminal, if it has one.
    pub terminal: Option<OwnedFd>,
    /// Optional settings that could not be applied.
    pub warnings: Vec<String>,
    /// Until [`Self::release`], the process dies with this one.
    lifeline: Option<ParentEnds>,
}

impl Launched {
    /// A container that another program created.
    pub fn adopted(pid: Pid, pidfd: OwnedFd, terminal: Option<OwnedFd>) -> Self {
        Self { pid, pidfd, terminal, warnings: Vec::new(), lifeline: None }
    }

    /// Lets the container outlive this process. The state directory must be complete, so that later commands find the
    /// container.
    pub fn release(&mut self) -> Result<()> {
        self.lifeline.take().map_or(Ok(()), |ends| ends.go())
    }
}

/// Starts a container up to the point where it waits for `start`. On failure, nothing of it is left.
pub fn launch(plan: &ContainerPlan, request: Request<'_>) -> Result<Launched> {
    let Request { groups, entered, streams, preserved, relays_terminal, gate, state, notes, cloned, built } = request;
    let mut prepared = prepare::prepare(plan, groups, entered.as_ref(), streams, preserved, gate)?;
    let warnings = std::mem::take(&mut prepared.warnings);
    let (ends, child_ends) = channels::channels()?;
    if let (Some(handshake), None) = (&prepared.handshake, &prepared.gate) {
        handshake.watch().map_err(|errno| Error::errno(Step::Seccomp, "shared memory", errno))?;
    }
    let first = entered.map(|container| container.first);
    let mut messages = Vec::new();
    let (pid, pidfd) = match enter::clone(plan, &prepared, groups, first, (&ends, &child_ends), &mut *built, state)? {
        enter::Side::Child(confined) => {
            if confined.is_some() || prepared.root.is_none() {
                std::mem::forget(ends); // its creator has closed these descriptors
            } else {
                drop(ends); // the child's copy would keep the lifeline open
            }
            child::run(&prepared, plan, confined, &child_ends, state)
        }
        enter::Side::Parent(pid, pidfd, before) => {
            messages.extend(before);
            (pid, pidfd)
        }
    };
    drop(child_ends);
    step("clone", || format!("pid {pid} with {}", steps::namespaces(prepared.flags)));
    let gated = prepared.gate.is_some();
    let enforced = enforced(plan, &prepared, groups);
    let mut launch = Launch {
        plan,
        prepared: &prepared,
        ends,
        pid,
        relays_terminal,
        terminal: None,
        ready: false,
        seen: false,
        executed: None,
        notes,
        built,
        state,
    };
    let told = messages.into_iter().try_for_each(|message| launch.take(message));
    let admitted = told.and_then(|()| launch.admit()).and_then(|proc_pid| cloned(pid, &enforced).map(|()| proc_pid));
    match admitted.and_then(|proc_pid| launch.follow(&proc_pid, groups, gated)) {
        Ok(()) => {
            let Launch { terminal, ends, .. } = launch;
            Ok(Launched { pid, pidfd, terminal, warnings, lifeline: gated.then_some(ends) })
        }
        Err(error) => {
            process::end_child(pidfd.as_fd(), pid);
            Err(error)
        }
    }
}

/// The settings that the child has verified. It would not have reported "ready" otherwise.
fn enforced(plan: &ContainerPlan, prepared: &Prepared<'_>, groups: Option<&Groups>) -> Enforced {
    let kinds = plan.namespaces();
    let (uid, gid) = prepared.users.inside();
    let mut enforced = Enforced {
        namespaces: kinds.map(|kind| kind.name().to_owned()).collect(),
        seccomp: prepared.seccomp.as_ref().map(PreparedSeccomp::record),
        cgroup: groups.and_then(Groups::record),
        caps: prepared.capabilities.names(),
        no_new_privs: plan.process.no_new_privs,
        host_uid: IdRange::host_id(&plan.uid_map, uid),
        host_gid: IdRange::host_id(&plan.gid_map, gid),
        supplementary_groups: match plan.keep_groups {
            true => nix::unistd::getgroups().unwrap_or_default().into_iter().map(Gid::as_raw).collect(),
            false => plan.process.groups.clone(),
        },
        ..Enforced::default()
    };
    if let Some(landlock) = &prepared.landlock {
        landlock.record(&mut enforced);
    }
    enforced
}

struct Launch<'a> {
    plan: &'a ContainerPlan,
    prepared: &'a Prepared<'a>,
    ends: ParentEnds,
    pid: Pid,
    relays_terminal: bool,
    terminal: Option<OwnedFd>,
    /// Whether the runtime has verified the process and let it execute its program.
    ready: bool,
    /// Whether the runtime has verified a filter that is installed last.
    seen: bool,
    /// The program file that the process found when it looked the program up.
    executed: Option<FileOnMount>,
    notes: Option<&'a std::path::Path>,
    built: &'a mut dyn FnMut(Pid) -> Result<()>,
    state: &'a dyn Fn(i32, &str) -> String,
}

impl Launch<'_> {
    fn follow(&mut self, proc_pid: &OwnedFd, groups: Option<&Groups>, gated: bool) -> Result<()> {
        loop {
            let readable = |fd| PollFd::new(fd, PollFlags::POLLIN);
            let mut polled = [readable(self.ends.control.as_fd()), readable(self.ends.failure.as_fd())];
            match poll(&mut polled, PollTimeout::NONE) {
                Err(Errno::EINTR) => continue,
                Err(errno) => return Err(Error::errno(Step::Supervise, "poll", errno)),
                Ok(_) => {}
            }
            let [message, failure] = polled.map(|fd| fd.any().unwrap_or(true));
            if message {
                match self.ends.receive() {
                    Ok(None) => {}
                    Ok(Some(Message::Ready(executed))) => {
                        self.executed = executed;
                        if self.prepared.confines_first && !self.prepared.scheduled_last {
                            set_policy(self.plan, self.pid)?;
                        }
                        confined::verify(proc_pid, self.plan, self.prepared)?;
                        groups.map_or(Ok(()), |groups| groups.verify(self.pid))?;
                        step("verified", || format!("the confinement of pid {}", self.pid));
                        if gated {
                            return Ok(());
                        }
                        self.ends.go()?;
                        self.ready = true;
                    }
                    Ok(Some(message)) => self.take(message)?,
                    Err(Errno::EPIPE | Errno::ECONNRESET) if self.handle_failure_event(proc_pid, gated)? => {
                        return Ok(());
                    }
                    Err(Errno::EPIPE | Errno::ECONNRESET) => {}
                    Err(errno) => return Err(Error::errno(Step::Supervise, "message from the container", errno)),
                }
            } else if failure && self.handle_failure_event(proc_pid, gated)? {
                return Ok(());
            }
        }
    }

    /// Handles the next event of the failure pipe: the filter announcement, a failure, or end of file, which means that the
    /// program was executed. Returns `Ok(false)` if more events follow.
    fn handle_failure_event(&mut self, proc_pid: &OwnedFd, gated: bool) -> Result<bool> {
        let handshake = self.prepared.handshake.as_ref().filter(|_| !gated);
        match (failures::read_failure_event(self.ends.failure.as_fd()), handshake) {
            (Err(Errno::EINTR), _) => Ok(false),
            (Ok(FailureEvent::Failed(failure, message)), _) => {
                Err(with_message(name_failure(self.plan, self.prepared, failure), message))
            }
            (Ok(FailureEvent::FilterDue), Some(handshake)) => {
                let rest = Rest {
                    schedule: || set_policy(self.plan, self.pid),
                    take_listener: |number| {
                        let pidfd =
                            process::pidfd_open(self.pid).map_err(|errno| Error::errno(Step::Seccomp, "", errno))?;
                        self.hand_over_listener(listener::take(pidfd.as_fd(), number)?)
                    },
                };
                let filters = verify::filters_with_one_more();
                self.seen = handshake.verify_and_release(proc_pid, filters, self.ends.failure.as_fd(), rest)?;
                Ok(false)
            }
            _ if gated || !self.ready => Err(errors::died("while it was set up")),
            (_, Some(handshake)) => match (handshake.failure(), self.seen) {
                (Some(failure), _) => Err(name_failure(self.plan, self.prepared, failure)),
                (None, false) => Err(errors::died("before it executed its program")),
                (None, true) => executed::verify(self.pid.as_raw(), self.executed).map(|()| true),
            },
            _ => executed::verify(self.pid.as_raw(), self.executed).map(|()| true),
        }
    }

    fn take(&mut self, message: Message) -> Result<()> {
        match message {
            Message::Built => {
                (self.built)(self.pid)?;
                self.ends.go()
            }
            Message::Terminal(master) => {
                if self.relays_terminal {
                    pass_newlines(&master); // before the program can write to it
                }
                self.terminal = Some(master);
                Ok(())
            }
            Message::Listener(listener) => self.hand_over_listener(listener),
            _ => Ok(()),
        }
    }

    fn hand_over_listener(&self, listener: OwnedFd) -> Result<()> {
        let state = (self.state)(self.pid.as_raw(), "creating");
        let place = self.prepared.seccomp.as_ref().and_then(PreparedSeccomp::listener);
        place.map_or(Ok(()), |place| listener::hand_over(listener.as_fd(), place, self.pid, &state))
    }
}

/// Sets the scheduling policy of a container's process from outside.
pub fn set_policy(plan: &ContainerPlan, pid: Pid) -> Result<()> {
    schedule::set_policy(&plan.process, pid.as_raw())
        .map_err(|failure| Error::errno(failure.step, schedule::NAMES[0], failure.errno))
}

/// How many seccomp filters a container's process has before it executes its program: the runtime's own and the planned one.
/// `None` if no filter is planned.
pub fn filters_of(enforced: &Enforced) -> Option<u64> {
    enforced.seccomp.as_ref().map(|_| verify::filters_with_one_more())
}
