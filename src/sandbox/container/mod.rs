//! A container: from a plan to a process that others wait for.
//!
//! # Theory of operation
//!
//! ```text
//! runtime (create, run or exec)            go-between                        the container's process, pid 1
//! ────────────────────────────────────     ──────────────────────────────    ─────────────────────────────────────
//! prepare: open, parse, compile
//! clone3 ──────────────────────────────► only where namespaces are entered
//!   moves it into the cgroups              or a clock is set: setns, then
//!                                          clone3 with CLONE_PARENT ──────► waits
//! id maps, limits, OOM score
//! go ────────────────────────────────────────────────────────────────────► root and mounts
//!   hooks of the runtime   ◄──────────────────────────────────── built ───
//! go ────────────────────────────────────────────────────────────────────► hooks of the container, pivot, ids,
//!                                                                          capabilities, no_new_privs
//!   looks at it, writes the state ◄───────────────────────────── ready ───
//! go, and ends ───────────────────────────────────────────────────────────►
//! start ─────────────────────── gate (a FIFO) ───────────────────────────► last hooks, seccomp
//!   looks at that filter  ◄──────────────────────────── due, and reached ───
//! go (a word in shared memory) ───────────────────────────────────────────► execve
//! ```
//!
//! No process of ours stays: the container's own is pid 1, and whoever adopts the runtime's orphans waits for it. It dies
//! with the runtime until that has written down where it is. Without a gate (`exec`, which enters every namespace of a container
//! that is there, takes the same way) it goes on at once. With a filter that is in force before "ready", no look at it follows.

mod child;
mod confined;
mod enter;
mod filter_handshake;
pub mod foreground;
pub mod gate;
pub mod hooks;
pub mod preflight;
mod prepare;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::stat::Mode;
use nix::unistd::Pid;

use self::gate::Gate;
use self::prepare::Prepared;
use super::executed;
use super::sync::{self, FailureEvent, Message, ParentEnds};
use super::verify::Inhabited;
use crate::cgroup::container::Groups;
use crate::error::{Cause, Error, Result, Step};
use crate::layers::seccomp::install::PreparedSeccomp;
use crate::layers::{Failure, net_devices, rdt, schedule, user};
use crate::plan::ContainerPlan;
use crate::plan::container::{IdRange, OCI_VERSION};
use crate::report::Enforced;
use crate::sys::mount::FileOnMount;
use crate::sys::{process, socket};

/// What starting a container takes beside its plan.
pub struct Request<'a> {
    /// Where its processes belong; `None` where they stay in the runtime's own cgroups.
    pub groups: Option<&'a Groups>,
    /// The container's first process, and which of its namespaces (`CLONE_NEW*`) are entered: for `exec`.
    pub entered: Option<(BorrowedFd<'a>, i32)>,
    /// What the standard streams become.
    pub streams: [BorrowedFd<'a>; 3],
    /// How many descriptors from 3 on are handed over as well.
    pub preserved: u32,
    /// Where it waits for `start`; `None` for none.
    pub gate: Option<Gate>,
    /// The state as hooks read it, for a process id and a status.
    pub state: &'a dyn Fn(i32, &str) -> String,
    /// Its state directory: where things that outlive it on the host are noted. `None` for `exec`.
    pub notes: Option<&'a std::path::Path>,
    /// Called while it builds its root.
    pub cloned: &'a mut dyn FnMut(Pid, &Enforced) -> Result<()>,
    /// Called when its root is built, before anything of the old one is gone.
    pub built: &'a mut dyn FnMut(Pid) -> Result<()>,
}

/// A container that is ready, or, without a gate, runs.
#[derive(Debug)]
pub struct Launched {
    /// Its first process.
    pub pid: Pid,
    /// The same, for ever.
    pub pidfd: OwnedFd,
    /// The other side of its terminal, if it has one.
    pub terminal: Option<OwnedFd>,
    /// What could not be had and need not be.
    pub warnings: Vec<String>,
    /// As long as this is not given up by [`Self::release`], it dies with us.
    lifeline: Option<ParentEnds>,
}

impl Launched {
    /// One that was made by somebody else.
    pub fn adopted(pid: Pid, pidfd: OwnedFd, terminal: Option<OwnedFd>) -> Self {
        Self { pid, pidfd, terminal, warnings: Vec::new(), lifeline: None }
    }

    /// Lets a container live on without us: whoever comes later can find it.
    pub fn release(&mut self) -> Result<()> {
        self.lifeline.take().map_or(Ok(()), |ends| ends.go())
    }
}

/// Starts a container as far as it goes without `start`. Nothing is left of it if that fails.
pub fn launch(plan: &ContainerPlan, request: Request<'_>) -> Result<Launched> {
    let Request { groups, entered, streams, preserved, gate, state, notes, cloned, built } = request;
    let mut prepared = prepare::prepare(plan, groups, entered.map_or(0, |(_, flags)| flags), streams, preserved, gate)?;
    let warnings = std::mem::take(&mut prepared.warnings);
    let (ends, child_ends) = sync::channels()?;
    if let (Some(handshake), None) = (&prepared.handshake, &prepared.gate) {
        handshake.watch().map_err(|errno| Error::errno(Step::Seccomp, "shared memory", errno))?;
    }
    let first = entered.map(|(pidfd, _)| pidfd);
    let mut messages = Vec::new();
    let (pid, pidfd) = match enter::clone(plan, &prepared, groups, first, (&ends, &child_ends), &mut *built, state)? {
        enter::Side::Child(confined) => {
            if confined.is_some() || prepared.root.is_none() {
                std::mem::forget(ends); // the process that made this one has closed them
            } else {
                drop(ends); // or our own copy would keep the lifeline open
            }
            child::run(&prepared, plan, confined, &child_ends, state)
        }
        enter::Side::Parent(pid, pidfd, before) => {
            messages.extend(before);
            (pid, pidfd)
        }
    };
    drop(child_ends);
    let gated = prepared.gate.is_some();
    let enforced = enforced(plan, &prepared, groups);
    let mut launch = Launch {
        plan,
        prepared: &prepared,
        ends,
        pid,
        terminal: None,
        seen: false,
        executed: None,
        notes,
        built,
        state,
    };
    let told = messages.into_iter().try_for_each(|message| launch.take(message));
    let admitted =
        told.and_then(|()| launch.admit(groups)).and_then(|proc_pid| cloned(pid, &enforced).map(|()| proc_pid));
    match admitted.and_then(|proc_pid| launch.follow(&proc_pid, gated)) {
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

/// What the child has verified, or would not be there.
fn enforced(plan: &ContainerPlan, prepared: &Prepared<'_>, groups: Option<&Groups>) -> Enforced {
    let kinds = plan.namespaces();
    let (uid, gid) = prepared.users.inside();
    let outside = |maps: &[IdRange], id: u32| match maps {
        [] => Some(id),
        maps => {
            maps.iter().find_map(|map| Some(map.outside + id.checked_sub(map.inside).filter(|at| *at < map.count)?))
        }
    };
    let mut enforced = Enforced {
        namespaces: kinds.map(|kind| kind.name().to_owned()).collect(),
        seccomp: prepared.seccomp.as_ref().map(PreparedSeccomp::record),
        cgroup: groups.and_then(Groups::record),
        caps: prepared.capabilities.names(),
        no_new_privs: plan.process.no_new_privs,
        host_uid: outside(&plan.uid_map, uid),
        host_gid: outside(&plan.gid_map, gid),
        supplementary_groups: plan.process.groups.clone(),
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
    terminal: Option<OwnedFd>,
    /// Whether a filter that is put in force last has been seen to be.
    seen: bool,
    /// The file that its program was when it looked for it.
    executed: Option<FileOnMount>,
    notes: Option<&'a std::path::Path>,
    built: &'a mut dyn FnMut(Pid) -> Result<()>,
    state: &'a dyn Fn(i32, &str) -> String,
}

impl Launch<'_> {
    /// What it waits for before it does anything. Gives its directory in `/proc`.
    fn admit(&mut self, groups: Option<&Groups>) -> Result<OwnedFd> {
        if let Some(groups) = groups {
            groups.take_in(self.pid)?;
        }
        let proc_pid = user::open_proc_pid(self.pid)?;
        match Inhabited::by(&proc_pid) {
            // Nobody without privilege may look at a process that cannot be dumped: then clone3's word has to do.
            Err(error) if matches!(error.cause, Cause::Errno(Errno::EACCES)) && !process::is_hosts_root() => {}
            inhabited => inhabited?.expect_new(&self.prepared.new_namespaces)?,
        }
        self.prepared.process.raise_limits(self.pid)?;
        if self.prepared.users.has_maps() {
            self.prepared.users.write_maps(&proc_pid, self.pid)?;
        }
        self.set_oom_score(&proc_pid)?;
        if let Some(notes) = self.notes {
            self.provide(&proc_pid, notes)?;
        }
        self.ends.go()?;
        Ok(proc_pid)
    }

    fn follow(&mut self, proc_pid: &OwnedFd, gated: bool) -> Result<()> {
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
                        if gated {
                            return Ok(());
                        }
                        self.ends.go()?;
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

    /// What the host hands over to a new container: network devices, shares of caches.
    fn provide(&self, proc_pid: &OwnedFd, notes: &std::path::Path) -> Result<()> {
        if !self.plan.net_devices.is_empty() {
            let flags = nix::fcntl::OFlag::O_RDONLY | nix::fcntl::OFlag::O_CLOEXEC;
            let network = nix::fcntl::openat(proc_pid, "ns/net", flags, Mode::empty())
                .map_err(|errno| Error::errno(Step::NetDevice, "network namespace", errno))?;
            net_devices::attach(&self.plan.net_devices, network)?;
        }
        self.plan
            .intel_rdt
            .as_ref()
            .map_or(Ok(()), |wanted| rdt::enter(wanted, &self.plan.confinement.id, self.pid, notes))
    }

    /// The failure pipe has something to say: that the last filter is due, a failure, or by its end that the program was
    /// executed. `Ok(false)` if there is more to come.
    fn handle_failure_event(&mut self, proc_pid: &OwnedFd, gated: bool) -> Result<bool> {
        let handshake = self.prepared.handshake.as_ref().filter(|_| !gated);
        match (sync::read_failure_event(self.ends.failure.as_fd()), handshake) {
            (Err(Errno::EINTR), _) => Ok(false),
            (Ok(FailureEvent::Failed(failure, words)), _) => {
                Err(with_message(name_failure(self.plan, self.prepared, failure), words))
            }
            (Ok(FailureEvent::FilterDue), Some(handshake)) => {
                let filters = confined::filters_with_one_more();
                let schedule = || set_policy(self.plan, self.pid);
                self.seen = handshake.verify_and_release(proc_pid, filters, self.ends.failure.as_fd(), schedule)?;
                Ok(false)
            }
            _ if gated => Err(confined::died("while it was set up")),
            (_, Some(_)) if !self.seen => Err(confined::died("before it executed its program")),
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
                self.terminal = Some(master);
                Ok(())
            }
            Message::Listener(listener) => self.hand_over_listener(listener),
            _ => Ok(()),
        }
    }

    /// Sends what listens to the container's calls to whom the profile names, with the state that the specification wants.
    fn hand_over_listener(&self, listener: OwnedFd) -> Result<()> {
        let Some((path, metadata)) = self.prepared.seccomp.as_ref().and_then(|seccomp| seccomp.listener()) else {
            return Ok(());
        };
        let failed = |errno| Error::errno(Step::Seccomp, path, errno).hint("whoever listens must be there first");
        let state = serde_json::json!({
            "ociVersion": OCI_VERSION,
            "fds": ["seccompFd"],
            "pid": self.pid.as_raw(),
            "metadata": metadata,
            "state": serde_json::from_str::<serde_json::Value>(&(self.state)(self.pid.as_raw(), "creating")).unwrap_or_default(),
        });
        let socket = socket::connect(std::path::Path::new(path)).map_err(failed)?;
        socket::send(&socket, state.to_string().as_bytes(), Some(listener.as_fd())).map_err(failed)
    }

    fn set_oom_score(&self, proc_pid: &OwnedFd) -> Result<()> {
        let Some(score) = self.plan.process.command.oom_score_adj else { return Ok(()) };
        let failed = |errno| Error::errno(Step::OomScore, score.to_string(), errno);
        let flags = nix::fcntl::OFlag::O_WRONLY | nix::fcntl::OFlag::O_CLOEXEC;
        let file = nix::fcntl::openat(proc_pid, "oom_score_adj", flags, Mode::empty()).map_err(failed)?;
        match nix::unistd::write(file, score.to_string().as_bytes()) {
            // Below one's own it takes CAP_SYS_RESOURCE, which nobody without privilege has.
            Err(Errno::EACCES) if user::is_privileged() == Ok(false) && !self.plan.uid_map.is_empty() => Ok(()),
            Err(errno) => Err(failed(errno).hint("an adjustment below the caller's own takes CAP_SYS_RESOURCE")),
            Ok(_) => Ok(()),
        }
    }
}

/// Sets how a container's process is scheduled, from outside.
pub fn set_policy(plan: &ContainerPlan, pid: Pid) -> Result<()> {
    schedule::set_policy(&plan.process, pid.as_raw())
        .map_err(|failure| Error::errno(failure.step, schedule::NAMES[0], failure.errno))
}

/// The child's numbers, with the plan's names.
fn name_failure(plan: &ContainerPlan, prepared: &Prepared<'_>, failure: Failure) -> Error {
    let index = usize::from(failure.index);
    let root = prepared.root.as_ref();
    let object = match failure.step {
        Step::Exec | Step::Interpreter => return exec_error(plan, failure),
        Step::Cwd => Some(plan.process.command.cwd.to_string()),
        Step::Hostname => plan.confinement.hostname.as_ref().map(ToString::to_string),
        Step::Scheduling => schedule::NAMES.get(index).map(ToString::to_string),
        Step::Join => prepared.joined.get(index).map(|join| join.kind.name().to_owned()),
        Step::Landlock => prepared.landlock.as_ref().and_then(|rules| rules.object(index)),
        Step::Hook => hooks::named(&plan.hooks, index),
        step => root.and_then(|root| root.object(plan, step, index)).or_else(|| prepared.process.object(step, index)),
    };
    if let (Step::Verify, Some(object)) = (failure.step, &object) {
        return Error::new(failure.step, object, "is not there as it was made")
            .hint("a createContainer hook, or somebody who shares the mount namespace, may have changed it");
    }
    if failure.step == Step::MountPoint
        && let Some(reason) =
            plan.mounts.get(index).and_then(|mount| unfit(plan, mount.destination.as_path(), failure.errno))
    {
        return Error::new(failure.step, object.unwrap_or_default(), reason);
    }
    Error::errno(failure.step, object.unwrap_or_default(), failure.errno)
}

/// Why what a root has at a place is no mount point, as far as it is still there to be seen.
fn unfit(plan: &ContainerPlan, destination: &std::path::Path, errno: Errno) -> Option<String> {
    let root = plan.root.as_ref()?;
    let path = root.as_path().join(destination.strip_prefix("/").unwrap_or(destination));
    let kind = std::fs::symlink_metadata(&path).ok()?.file_type();
    match errno {
        Errno::ENOTDIR if kind.is_symlink() => {
            Some(format!("{} is a symlink, where there must be a directory", path.display()))
        }
        Errno::ENOTDIR if !kind.is_dir() => {
            let kind = if kind.is_file() { "a file" } else { "a special file" };
            Some(format!("{} is {kind}, where there must be a directory", path.display()))
        }
        Errno::EISDIR => Some(format!("{} is a directory, and what is to be mounted there is none", path.display())),
        _ => None,
    }
}

/// Most of a program's name that an error repeats.
const MOST_SHOWN: usize = 1000;
/// What a program said that failed says more than an error number.
fn with_message(error: Error, words: String) -> Error {
    if words.is_empty() { error } else { Error { cause: Cause::Reason(words), ..error } }
}

/// How many seccomp filters a container's process has before its program is executed, from what is planned for it and what the runtime has itself.
/// `None` if it is to have none.
pub fn filters_of(enforced: &Enforced) -> Option<u64> {
    enforced.seccomp.as_ref().map(|_| confined::filters_with_one_more())
}

/// A failure at the start, after whoever created the container has gone.
pub fn start_error(plan: &ContainerPlan, failure: Failure, words: String) -> Error {
    if failure.step != Step::Hook {
        return exec_error(plan, failure);
    }
    let named = hooks::named(&plan.hooks, usize::from(failure.index));
    with_message(Error::errno(failure.step, named.unwrap_or_default(), failure.errno), words)
}

/// What engines look for when a program cannot be executed.
pub fn exec_error(plan: &ContainerPlan, failure: Failure) -> Error {
    let mut program = plan.process.command.argv.first().map(ToString::to_string).unwrap_or_default();
    if let Some((end, _)) = program.char_indices().nth(MOST_SHOWN) {
        program.truncate(end);
        program.push('…');
    }
    let by_path = program.contains('/');
    let reason = match (failure.step, failure.errno) {
        (Step::Exec, Errno::ENOENT) if !by_path => "executable file not found in $PATH".to_owned(),
        (Step::Exec, Errno::ENOENT | Errno::ENOTDIR) => format!("stat {program}: no such file or directory"),
        (Step::Exec, Errno::EACCES) => "permission denied".to_owned(),
        (Step::Interpreter, _) => "its interpreter: no such file or directory".to_owned(),
        (_, errno) => errno.desc().to_lowercase(),
    };
    Error::new(failure.step, format!("exec: {program:?}"), reason)
}
