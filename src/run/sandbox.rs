//! A sandbox that stays, for the commands of a session. The start is that of a run up to its command; then init serves
//! (`fork_server.rs`), and each command is supervised as the one command of a run is, with a cgroup of its own as its tree.

mod egress;
mod running;

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::time::Instant;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags};
use nix::unistd::Pid;

pub use self::egress::Event;
pub use self::running::Running;
use super::denials::Denials;
use super::order::{Order, RunAs};
use super::outcome::Beginning;
use super::prepare::{self, Kept, Prepared, Purpose};
use super::supervise::Supervised;
pub use super::supervise::{Places, Ready, Watches, wait};
use super::tree::Tree;
use super::verify::Verifier;
use super::{Warnings, bare, bounds, cpu, files, hint, processes};
use crate::cgroup::commands::Commands;
use crate::cgroup::{self, Group};
use crate::confine::privilege;
use crate::confine::seccomp::listen::Judge;
use crate::error::{Error, Result, Step};
use crate::launch::channels::{self, Message, ParentEnds};
use crate::launch::requests::Outbox;
use crate::launch::streams;
use crate::plan::{Budget, Deadlines, RunPlan, Stdio};
use crate::report::{Enforced, Usage};
use crate::sys::terminal::Size;
use crate::sys::{file, process};

/// A sandbox with its init, without a command. Dropping it ends every process in it.
pub struct Sandbox {
    plan: RunPlan,
    prepared: Prepared,
    kept: Kept,
    /// `None` where no cgroup can hold the processes of a command. Then each has a keeper.
    commands: Option<Commands>,
    judge: Option<Rc<Judge>>,
    init: Rc<Outbox>,
    pid: Pid,
    pidfd: OwnedFd,
    verifier: Verifier,
    enforced: Enforced,
    began: u64,
    ended: bool,
}

impl Sandbox {
    /// Makes the sandbox of this plan, whose command is not started. `warn` receives warnings about the files that the plan names.
    /// `net_log` receives the lines of the network log.
    pub fn open(plan: &RunPlan, net_log: Option<OwnedFd>, warn: impl FnOnce(Warnings<'_>)) -> Result<Self> {
        process::default_child_signal();
        #[cfg(feature = "ablate")]
        let plan = &crate::launch::ablate::thinned(plan);
        bare::refuse_session(plan)?;
        let (mut prepared, mut kept, stack) = prepare::prepare(plan, Purpose::Session)?;
        prepared.start_gateway(plan, net_log, &mut kept)?;
        warn(Warnings::of(&prepared, &kept));
        let judge = prepared.listen(plan)?;
        let mut commands = Commands::prepare(&plan.confinement.id, kept.cgroup.as_ref(), prepared.users.host_uid)?;
        if commands.is_none() && !processes::can_be_found() {
            let reason = "needs cgroup v2 for its commands, or a kernel with CONFIG_PROC_CHILDREN";
            return Err(Error::new(Step::Cgroup, "session", reason)
                .hint("start it in a delegated cgroup: systemd-run --user --scope -p Delegate=yes stockade run -d …"));
        }
        let born_in = commands.as_ref().map(Commands::dir).or(kept.cgroup.as_ref().and_then(|group| group.dir()));
        let (child, ends) = super::clone(plan, &mut prepared, stack, born_in)?;
        let mut enforced = Enforced {
            degraded: std::mem::take(&mut kept.degraded),
            budget: bounds::record(&plan.budget, kept.cgroup.as_ref(), &kept.stand_ins),
            ..Enforced::default()
        };
        let mut inhabited = None;
        let ready = super::admit(plan, &prepared, &child, &ends, &mut kept, &mut inhabited, &mut enforced)
            .and_then(|()| until_serving(plan, &prepared, &ends, &child.pidfd))
            .and_then(|missing| commands.as_mut().map_or(Ok(()), |one| one.settle(child.pid)).map(|()| missing))
            .map(|missing| (missing, Outbox::new(ends.control)));
        let (missing, init) = ready.inspect_err(|_| {
            process::end_child(child.pidfd.as_fd(), child.pid);
            let _ = commands.as_mut().map(Commands::remove);
        })?;
        enforced.degraded.extend(missing.iter().map(super::outcome::degraded));
        prepared.root.drop_parent_copies();
        let verifier = prepared.verifier(plan, inhabited);
        let plan = plan.clone();
        let (init, pid, pidfd) = (Rc::new(init), child.pid, child.pidfd);
        let (began, ended) = (0, false);
        Ok(Self { plan, prepared, kept, commands, judge, init, pid, pidfd, verifier, enforced, began, ended })
    }

    /// The plan of the sandbox.
    pub fn plan(&self) -> &RunPlan {
        &self.plan
    }

    /// Readable when the sandbox is dead.
    pub fn pidfd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    /// The id of its init on the host.
    pub fn pid(&self) -> i32 {
        self.pid.as_raw()
    }

    /// Starts a command. `plan` is that of the sandbox with another command, and other deadlines, streams and limits. The
    /// command gets these descriptors as they are, unless its output is limited: then the supervisor relays.
    /// With `terminal` it gets a terminal of this size instead of the streams. The network log knows it by its id.
    pub fn begin(&mut self, id: &str, plan: RunPlan, streams: [OwnedFd; 3], terminal: Option<Size>) -> Result<Running> {
        self.start(Some(id), plan, streams, terminal, None)
    }

    /// Starts a file server, which answers the requests that come over this socket (`files/mod.rs`).
    pub fn begin_files(&mut self, socket: OwnedFd) -> Result<Running> {
        let mut plan = self.plan.clone();
        plan.command.argv = vec!["stockade-files".into()];
        (plan.command.cwd, plan.command.env) = ("/".into(), Vec::new());
        plan.deadlines = Deadlines { wall_us: None, cpu_us: None, idle_us: None, ..plan.deadlines };
        plan.stdio = Stdio { stdin: true, tty: false, output_limit: None, relay: false };
        plan.budget = Budget::default();
        (plan.explain_denials, plan.hash_program) = (false, false);
        let null =
            || file::open("/dev/null", OFlag::O_RDWR).map_err(|errno| Error::errno(Step::Streams, "/dev/null", errno));
        self.start(None, plan, [socket, null()?, null()?], None, Some(files::filter()?))
    }

    fn start(
        &mut self,
        id: Option<&str>,
        plan: RunPlan,
        streams: [OwnedFd; 3],
        terminal: Option<Size>,
        files: Option<Vec<libc::sock_filter>>,
    ) -> Result<Running> {
        let begun = Beginning::now();
        let user = self.prepared.users.other(plan.identity.uid, plan.identity.gid)?;
        let (uid, _) = user.map_or((self.prepared.users.host_uid, 0), |other| other.host_ids);
        let mut process = crate::confine::process::prepare(&plan.command, None, prepare::rules(&plan))?;
        let lacking: Vec<_> = self.kept.stand_ins.iter().map(|one| one.controller).collect();
        let is_root_outside = privilege::may_be_root_outside(uid);
        process.stand_in(&self.plan.budget, &lacking, is_root_outside)?;
        let (streams, pumps) = streams::passed(streams, plan.stdio.output_limit, plan.deadlines.idle_us.is_some())?;
        streams::let_open_anew(&streams, uid);
        let number = self.began + 1;
        let may_lack = &plan.confinement.allow_degraded;
        let (group, degraded) = match &self.commands {
            Some(commands) => {
                commands.begin(number, &plan.budget, may_lack).map(|(group, lacking)| (Some(group), lacking))
            }
            None => cgroup::commands::none(&plan.budget, may_lack).map(|lacking| (None, lacking)),
        }?;
        let (explain_denials, hash_program) = (plan.explain_denials, plan.hash_program);
        let verifier = if files.is_some() { self.verifier.of_own_program() } else { self.verifier.of_user(user) };
        let at_home = plan.command.cwd == self.plan.identity.home; // which another user may not enter
        let user = user.map(|user| RunAs { user, at_home });
        let order = Order { process, explain_denials, hash_program, terminal, streams, user, files };
        let (ends, child_ends) = channels::channels()?;
        let failed = |errno| Error::errno(Step::Fork, "request to init", errno);
        let descriptors = order.descriptors().ok_or_else(|| failed(Errno::EBADF))?;
        let dir = group.as_ref().and_then(|group| group.dir());
        let events = group.as_ref().map(Group::events).transpose()?;
        id.map_or(Ok(()), |id| self.announce(id, group.as_ref()))?;
        let oom_kills = self.kept.cgroup.as_ref().and_then(Group::oom_kills);
        self.init.begin(number, &order.pack(), &child_ends, descriptors, dir).map_err(failed)?;
        self.began = number;
        let init = Rc::clone(&self.init);
        let tree = match events {
            Some(events) => Tree::Cgroup { number, init, events },
            None => Tree::Kept { number, init, keeper: None, emptied: false },
        };
        let judge = self.judge.clone().filter(|_| explain_denials);
        let denials = explain_denials.then(|| Denials::prepare(&plan, judge));
        let mut enforced = self.enforced.clone();
        enforced.degraded.extend(degraded);
        let stand_ins = self.kept.stand_ins.clone();
        let kept = Kept {
            pumps,
            cgroup: group,
            stand_ins,
            denials,
            degraded: Vec::new(),
            budget_warning: None,
            gateway: None,
        };
        let one = Supervised::new(Rc::new(plan), ends, tree, kept, verifier, enforced);
        Ok(Running {
            one,
            process: order.process,
            begun,
            cloned_at: Instant::now(),
            dead: false,
            drain_until: None,
            over: false,
            oom_kills,
        })
    }

    /// The usage of all its processes so far.
    pub fn usage(&self) -> Usage {
        let mut usage = Usage::default();
        match (&self.kept.cgroup, &self.commands) {
            (Some(group), _) => group.usage(&mut usage),
            (None, Some(commands)) => commands.usage(&mut usage),
            (None, None) => {
                usage.cpu.total_us = Some(cpu::of_tree(self.pid()).total_us());
                usage.cpu.source = Some("proc".to_owned());
            }
        }
        usage
    }

    /// Stops or continues every process in it.
    pub fn freeze(&self, frozen: bool) -> Result<()> {
        let unable = || Error::new(Step::Cgroup, "session", "cannot be paused without cgroup v2");
        self.commands.as_ref().ok_or_else(unable)?.freeze(frozen)
    }

    /// What to wait for if init was too busy for requests.
    pub fn room(&self) -> Option<PollFd<'_>> {
        self.init.room()
    }

    /// Sends these requests, as far as there is room.
    pub fn flush(&self) {
        self.init.flush();
    }

    /// Ends every process, because one of them cannot be ended alone.
    pub fn kill(&self) {
        let _ = process::pidfd_send_signal(self.pidfd.as_fd(), libc::SIGKILL);
    }

    /// Ends every process and removes the cgroups.
    pub fn end(mut self) -> Result<Usage> {
        let usage = self.usage();
        self.finish().map(|()| usage)
    }

    fn finish(&mut self) -> Result<()> {
        if std::mem::replace(&mut self.ended, true) {
            return Ok(());
        }
        process::end_child(self.pidfd.as_fd(), self.pid);
        let removed = self.commands.as_mut().map_or(Ok(()), Commands::remove);
        self.kept.cgroup.take().map_or(Ok(()), crate::cgroup::Group::remove).and(removed)
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        let _ = self.finish();
    }
}

/// Waits until init serves, and returns what the sandbox has to do without.
fn until_serving(
    plan: &RunPlan,
    prepared: &Prepared,
    ends: &ParentEnds,
    pidfd: &OwnedFd,
) -> Result<Vec<crate::failure::Missing>> {
    let mut missing = Vec::new();
    loop {
        let readable = |fd| PollFd::new(fd, PollFlags::POLLIN);
        let mut polled = [readable(ends.control.as_fd()), readable(ends.failure.as_fd()), readable(pidfd.as_fd())];
        wait(&mut polled)?;
        loop {
            match ends.receive() {
                Ok(Some(Message::Serving)) => return Ok(missing),
                Ok(Some(Message::Missing(items))) => missing = items,
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(errno) => {
                    return Err(match ends.failure() {
                        Some(failure) => hint::error_of(plan, prepared, &prepared.order.process, failure),
                        None => Error::errno(Step::Supervise, "init", errno),
                    });
                }
            }
        }
    }
}
