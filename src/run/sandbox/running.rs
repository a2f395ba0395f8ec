//! A command of a sandbox that stays, while it runs.

use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Instant;

use nix::poll::PollFd;

use super::Sandbox;
use crate::cgroup::Group;
use crate::confine::process::PreparedProcess;
use crate::error::{Error, Step};
use crate::plan::RunPlan;
use crate::report::{Report, Usage};
use crate::run::outcome::{Beginning, Start, blame_memory};
use crate::run::supervise::{Places, Ready, Supervised};

/// A command under supervision, without a loop of its own.
pub struct Running {
    pub(super) one: Supervised<Rc<RunPlan>>,
    pub(super) process: PreparedProcess,
    pub(super) begun: Beginning,
    pub(super) cloned_at: Instant,
    pub(super) dead: bool,
    pub(super) drain_until: Option<Instant>,
    pub(super) over: bool,
    pub(super) oom_kills: Option<u64>, // of the sandbox, before
}

impl Running {
    /// Adds everything to poll for.
    pub fn interests<'a>(&'a self, polled: &mut Vec<PollFd<'a>>) -> Places {
        if self.dead {
            self.one.output_interests(polled);
            return Places::default();
        }
        self.one.interests(polled)
    }

    /// Its nearest deadline.
    pub fn due(&self) -> Option<Instant> {
        if self.dead { self.drain_until } else { self.one.due() }
    }

    /// Does what can be done now. Never blocks.
    pub fn turn(&mut self, ready: Ready) {
        let now = Instant::now();
        if !self.dead {
            self.one.check_deadlines(now);
            match self.one.turn(ready) {
                Ok(dead) => self.dead = dead,
                Err(error) => self.one.fail(error),
            }
            if !self.dead {
                return;
            }
            self.one.reap();
            self.drain_until = self.one.was_asked_to_end().then(|| now + self.one.grace());
        }
        self.over = self.one.drain(self.drain_until.is_some_and(|until| until <= now));
    }

    /// Sends it a signal.
    pub fn signal(&mut self, signal: libc::c_int) {
        self.one.relay(signal);
    }

    /// Ends its whole tree.
    pub fn kill(&mut self) {
        self.one.kill_for_user();
    }

    /// The sandbox has ended, and every process with it.
    pub fn lose(&mut self) {
        if !self.dead {
            let error = match self.one.is_lost() {
                true => {
                    Error::new(Step::Supervise, "command", "its processes could be ended only with the whole sandbox")
                }
                false => Error::new(Step::Supervise, "session", "ended while the command ran"),
            };
            self.one.fail(error);
            self.one.reap();
            self.dead = true;
        }
        self.over = self.one.drain(true);
    }

    /// Whether its processes can be ended only with the whole sandbox.
    pub fn is_lost(&self) -> bool {
        !self.dead && self.one.is_lost()
    }

    /// Its id on the host, once it was verified.
    pub fn started(&self) -> Option<i32> {
        self.one.verified()
    }

    /// Its user and group in the sandbox, once they were verified.
    pub fn user(&self) -> Option<(u32, u32)> {
        self.one.user()
    }

    /// The master side of its terminal, once.
    pub fn terminal(&mut self) -> Option<OwnedFd> {
        self.one.take_terminal()
    }

    /// Whether every process of it is dead and its output relayed.
    pub fn is_over(&self) -> bool {
        self.over
    }

    /// Its usage so far.
    pub fn usage(&self) -> Option<Usage> {
        self.one.sample(Instant::now()).map(|sample| sample.usage)
    }

    /// Its report, when it is over.
    pub fn report(self, sandbox: &Sandbox) -> Report {
        let (plan, outcome, kept, enforced) = self.one.conclude();
        let blank = Report::blank(&plan.confinement.id, Some((&*plan).into()), self.begun.time);
        let start = Start {
            plan: &plan,
            prepared: &sandbox.prepared,
            process: &self.process,
            begun: self.begun,
            cloned_at: self.cloned_at,
        };
        let mut report = start.report(blank, &outcome, kept, enforced);
        let oom_kills = sandbox.kept.cgroup.as_ref().and_then(Group::oom_kills);
        blame_memory(&mut report, oom_kills > self.oom_kills);
        report
    }
}
