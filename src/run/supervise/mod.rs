//! One command under supervision, as a state machine: what it waits for ([`Supervised::interests`], [`Supervised::due`]) and
//! what it does when something is ready ([`Supervised::turn`]). It never blocks; the loop around it is [`alone`]'s for a run.

pub mod alone;
mod deadlines;
mod kill;
mod watches;

use std::ops::Deref;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags};
use nix::unistd::Pid;

use self::deadlines::sample_pause;
pub use self::watches::{Watches, wait};
use crate::error::{Error, Result, Step};
use crate::launch::channels::{Message, ParentEnds};
use crate::launch::pump::Pump;
use crate::launch::steps::step;
use crate::launch::times::monotonic_ns;
use crate::plan::RunPlan;
use crate::report::Enforced;
use crate::run::bounds;
use crate::run::egress::{Event, Gateway};
use crate::run::outcome::{Outcome, Reason};
use crate::run::prepare::Kept;
use crate::run::program::Program;
use crate::run::tree::Tree;
use crate::run::verify::Verifier;
use crate::sys::mount::FileOnMount;
use crate::sys::{pidfd, process};

/// A command under supervision, with its plan.
pub struct Supervised<P> {
    plan: P,
    ends: ParentEnds,
    tree: Tree,
    kept: Kept,
    verifier: Verifier,
    enforced: Enforced,
    cloned_at: Instant,
    workload: Option<i32>,
    executed: Option<FileOnMount>,
    started_at: Option<Instant>,
    starting: bool,
    listening: bool,
    ending: bool,
    looked_at: bool,
    last_output: Instant,
    next_sample: Option<Instant>,
    kill_at: Option<Instant>,
    /// When what a kill has missed is looked for again, and until when: only below a keeper.
    kill_again: Option<(Instant, Instant)>,
    /// Whether init or the keeper was told that it was looked at.
    released: bool,
    /// Whether it can be ended only with the whole sandbox.
    lost: bool,
    /// The master side of its terminal, until someone takes it.
    terminal: Option<OwnedFd>,
    outcome: Outcome,
}

/// Where a supervised command put what it waits for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Places {
    /// `None`: nothing of the tree is waited for any more.
    first: Option<usize>,
    ending: bool,
    listening: bool,
    starting: bool,
}

/// What is ready.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ready {
    dead: bool,
    message: bool,
    started: bool,
}

impl Places {
    /// What is ready, after the wait.
    pub fn ready(self, polled: &[PollFd<'_>]) -> Ready {
        let is_ready = |at: usize| self.first.is_some_and(|first| polled[first + at].any().unwrap_or(true));
        let (ending, listening) = (usize::from(self.ending), usize::from(self.listening));
        Ready {
            dead: self.ending && is_ready(0),
            message: self.listening && is_ready(ending),
            started: self.starting && is_ready(ending + listening),
        }
    }
}

/// The instant at which the monotonic clock had this value.
fn instant_of(at_ns: u64) -> Instant {
    let (now, passed) = (Instant::now(), monotonic_ns().saturating_sub(at_ns));
    now.checked_sub(Duration::from_nanos(passed)).unwrap_or(now)
}

impl<P: Deref<Target = RunPlan>> Supervised<P> {
    /// Supervises a freshly cloned tree. `enforced` is what is known to be in force already.
    pub fn new(plan: P, ends: ParentEnds, tree: Tree, kept: Kept, verifier: Verifier, enforced: Enforced) -> Self {
        let now = Instant::now();
        Self {
            workload: tree.first().filter(|_| !plan.init).map(Pid::as_raw),
            outcome: Outcome { cpu_limited: plan.deadlines.cpu_us.is_some(), ..Outcome::default() },
            plan,
            ends,
            tree,
            kept,
            verifier,
            enforced,
            cloned_at: now,
            executed: None,
            started_at: None,
            starting: true,
            listening: true,
            ending: false,
            looked_at: false,
            last_output: now,
            next_sample: None,
            kill_at: None,
            kill_again: None,
            released: false,
            lost: false,
            terminal: None,
        }
    }

    /// Adds everything to poll for.
    pub fn interests<'a>(&'a self, polled: &mut Vec<PollFd<'a>>) -> Places {
        let readable = |fd| PollFd::new(fd, PollFlags::POLLIN);
        let (first, end) = (Some(polled.len()), self.tree.end());
        let places = Places { first, ending: end.is_some(), listening: self.listening, starting: self.starting };
        polled.extend(end);
        if self.listening {
            polled.push(readable(self.ends.control.as_fd()));
        }
        if self.starting {
            polled.push(readable(self.ends.failure.as_fd()));
        }
        if let Some(denials) = &self.kept.denials {
            polled.extend(denials.interests());
        }
        polled.extend(self.kept.gateway.iter().filter_map(Gateway::interest));
        polled.extend(self.kept.pumps.input.iter().flat_map(|pump| pump.interests()).flatten());
        self.output_interests(polled);
        places
    }

    /// What is left to poll for when the tree is dead: its output.
    pub fn output_interests<'a>(&'a self, polled: &mut Vec<PollFd<'a>>) {
        let outputs = [&self.kept.pumps.output, &self.kept.pumps.error].into_iter().flatten();
        polled.extend(outputs.flat_map(|pump| pump.interests()).flatten());
    }

    /// Does what can be done now. Returns whether the tree is dead.
    pub fn turn(&mut self, ready: Ready) -> Result<bool> {
        if ready.started {
            self.end_of_start();
        }
        if ready.message {
            self.receive()?;
        }
        if let (false, false, None, Some(workload)) =
            (self.looked_at, self.starting, self.outcome.failure, self.workload)
        {
            self.looked_at = true;
            let verified = self.verify(workload);
            self.release(); // in any case: init offers no other command's end before
            verified?;
        }
        self.read_denials();
        self.read_gateway();
        self.pump();
        let reported = self.outcome.scratch.is_some() || self.outcome.failure.is_some();
        // Init closes its end of the channel when it has reaped the workload. Its word may be lost for want of memory.
        let unreported = !reported && !self.listening && matches!(self.tree, Tree::Cgroup { .. });
        if unreported && !self.starting {
            self.outcome
                .error
                .get_or_insert_with(|| Error::new(Step::Supervise, "command", "its end was not reported"));
        }
        let ended = !self.starting && (reported || unreported);
        if ended && matches!(self.tree, Tree::Cgroup { .. }) {
            self.release(); // of one that failed before it ran, too, which nobody looks at
        }
        if self.tree.is_dead(ready.dead, ended) || self.never_began() {
            return Ok(true);
        }
        // A workload that ended before it was verified stays a zombie until it is.
        if !self.ending && ended {
            self.ending = true;
            // Nothing but a keeper's word follows on the socket, and its end of file need not wake the supervisor.
            self.listening &= matches!(self.tree, Tree::Kept { .. });
            self.kill(); // the workload has ended, so everything that it left ends too
        }
        Ok(false)
    }

    /// Whether the running command was looked at from outside.
    pub fn is_looked_at(&self) -> bool {
        self.looked_at
    }

    /// Verifies the running command. An error is fatal.
    fn verify(&mut self, workload: i32) -> Result<()> {
        let verified = self.verifier.verify(workload, self.executed, &mut self.enforced)?;
        if verified {
            bounds::verify(workload, &self.kept.stand_ins)?;
            // Init lives until this is done.
            self.kept.cgroup.as_ref().map_or(Ok(()), |group| bounds::verify_group(group, self.processes()))?;
            self.outcome.verified = true;
            step("executed", || self.plan.command.argv.first().map(ToString::to_string).unwrap_or_default());
        } else {
            self.outcome.executed_at = None; // it ended before it executed anything
        }
        Ok(())
    }

    /// The failure pipe became readable or closed.
    fn end_of_start(&mut self) {
        self.starting = false;
        self.outcome.failure = self.ends.failure();
        if self.outcome.failure.is_none() {
            let now = Instant::now();
            // On a busy host this process may run long after the workload.
            self.outcome.executed_at = Some(self.started_at.unwrap_or(now));
            self.last_output = now;
            self.next_sample = self.plan.deadlines.cpu_us.map(|cpu_us| now + sample_pause(cpu_us));
        }
    }

    fn receive(&mut self) -> Result<()> {
        loop {
            match self.ends.receive() {
                Ok(None) => return Ok(()),
                Err(Errno::ECONNRESET) => {} // it left something unread; what it has sent can still be received
                Err(Errno::EPIPE) => {
                    self.listening = false; // only its death remains
                    return Ok(());
                }
                Err(errno) => return Err(Error::errno(Step::Supervise, "message from the sandbox", errno)),
                Ok(Some(message)) => self.take(message),
            }
        }
    }

    fn take(&mut self, message: Message) {
        match message {
            Message::Terminal(master) => self.terminal = Some(master),
            Message::Missing(missing) => self.outcome.missing = missing,
            Message::Listener(listener) => {
                if let Some(denials) = &mut self.kept.denials {
                    denials.listen(listener);
                }
            }
            Message::Program(file, changed_ns) => {
                self.outcome.program.get_or_insert(Program { file, changed_ns });
            }
            Message::SetUp(cpu, at_ns) => {
                self.outcome.set_up = cpu;
                self.started_at = at_ns.map(instant_of);
                if self.outcome.executed_at.is_some() {
                    self.outcome.executed_at = self.started_at.or(self.outcome.executed_at);
                }
            }
            Message::Started(pidfd, started) => {
                self.outcome.started = true;
                self.executed = started.executed;
                self.outcome.init = started.init;
                self.workload = pidfd::pid_of(pidfd.as_fd());
                step("workload", || format!("pid {}", self.workload.unwrap_or_default()));
            }
            Message::Keeper(pidfd) => {
                if let (Tree::Kept { keeper, .. }, Some(pid)) = (&mut self.tree, pidfd::pid_of(pidfd.as_fd())) {
                    *keeper = Some((pid, pidfd));
                }
            }
            Message::Emptied(reaped) => {
                if let Tree::Kept { emptied, .. } = &mut self.tree {
                    *emptied = true;
                    self.outcome.rusage = Some(reaped);
                }
            }
            Message::Built | Message::Ready(_) | Message::Serving => {} // only containers and sessions send these
            Message::Exited(exited) => {
                self.outcome.ended_at = Some(instant_of(exited.at_ns));
                self.outcome.wait_status = Some(exited.status);
                self.outcome.scratch = Some(exited);
            }
        }
    }

    /// Reads the denials of the workload.
    fn read_denials(&mut self) {
        if let Some(denials) = &mut self.kept.denials {
            denials.take(self.outcome.executed_at.unwrap_or(self.cloned_at), self.workload);
            if denials.escaped && !self.outcome.killed {
                let reason = "a process that its filter kills could not be killed alone";
                self.outcome.error.get_or_insert(Error::new(Step::Supervise, "seccomp", reason));
                self.kill();
            }
        }
    }

    /// Acts on what the gateway has to say.
    fn read_gateway(&mut self) {
        while let Some(event) = self.kept.gateway.as_mut().and_then(Gateway::event) {
            match event {
                Event::Budget => self.end(Reason::NetBudget, Instant::now()),
                Event::LogFailed => self.outcome.net_log_failed = true,
                Event::Changed => {} // only in a session
                Event::Died => step("gateway", || "died"),
            }
        }
    }

    fn pump(&mut self) {
        let mut printed = false;
        for pump in self.kept.pumps.outputs() {
            printed |= pump.take();
            pump.give();
        }
        if printed {
            self.last_output = Instant::now();
        }
        if let Some(input) = &mut self.kept.pumps.input {
            input.take_if_ready();
            input.give();
        }
        if self.kept.pumps.outputs().any(|pump| pump.kills()) && self.outcome.reason.is_none() {
            self.outcome.reason = Some(Reason::Output);
            self.kill();
        }
    }

    /// The end of the tree. Reaps pid 1, if it was that: its status, and the tree's resource usage.
    pub fn reap(&mut self) {
        match self.tree.first().map(process::wait4) {
            Some(Ok((status, rusage))) => {
                self.outcome.rusage = Some((&rusage).into());
                if let Err(error) = self.tree.reap(status) {
                    self.outcome.error.get_or_insert(error);
                }
                if !self.plan.init || !(self.outcome.killed || self.outcome.scratch.is_some()) {
                    self.outcome.wait_status = Some(status); // the workload's status, or that of an init that died by itself
                }
            }
            Some(Err(errno)) => drop(self.outcome.error.get_or_insert(Error::errno(Step::Supervise, "wait4", errno))),
            None => {}
        }
        if self.starting {
            self.outcome.failure = self.ends.failure(); // it may have reported a failure while we verified it
        }
        let now = Instant::now();
        self.outcome.ended_at.get_or_insert(now);
        self.outcome.dead_at = Some(now);
        if !self.looked_at {
            self.outcome.executed_at = None; // the failure pipe also closes if all processes die before execve
        }
    }

    /// Relays the rest of its output as far as the readers take it now, or gives up on it. Returns whether nothing is left.
    pub fn drain(&mut self, give_up: bool) -> bool {
        self.pump();
        if give_up {
            self.kept.pumps.outputs().for_each(Pump::abandon);
        }
        self.kept.pumps.outputs().all(|pump| pump.is_done())
    }

    /// The id of its first process on the host, once that was verified.
    pub fn verified(&self) -> Option<i32> {
        self.workload.filter(|_| self.outcome.verified)
    }

    /// Its user and group inside, once they were verified.
    pub fn user(&self) -> Option<(u32, u32)> {
        self.enforced.uid.zip(self.enforced.gid)
    }

    /// The master side of its terminal, once.
    pub fn take_terminal(&mut self) -> Option<OwnedFd> {
        self.terminal.take()
    }

    /// What was found, after its end and its last output.
    pub fn conclude(mut self) -> (P, Outcome, Kept, Enforced) {
        if let Some(denials) = &mut self.kept.denials {
            denials.take_last(self.outcome.executed_at.unwrap_or(self.cloned_at), self.workload);
            self.outcome.killed_for_call = denials.killed_for(self.workload).map(str::to_owned);
        }
        (self.plan, self.outcome, self.kept, self.enforced)
    }
}
