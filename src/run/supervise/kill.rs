//! Signals to a command, and its end.
//!
//! Below a keeper the end is a walk over the processes, again and again until the keeper says that none is left.

use std::ops::Deref;
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use super::Supervised;
use crate::confine::tree::END;
use crate::error::Error;
use crate::plan::RunPlan;
use crate::run::cpu;
use crate::run::outcome::Reason;
use crate::run::processes;
use crate::run::tree::Tree;
use crate::sys::process;

/// How long init may take to end its tree where no pid namespace does.
const LONGEST_END: Duration = Duration::from_secs(5);
/// Between two walks, or kills of a command that starts.
const PAUSE: Duration = Duration::from_millis(5);
/// Processes that escape the walks for so long can be ended only with the sandbox.
const PATIENCE: Duration = Duration::from_secs(10);

impl<P: Deref<Target = RunPlan>> Supervised<P> {
    /// Passes a signal of the caller on.
    pub fn relay(&mut self, signal: libc::c_int) {
        if matches!(signal, libc::SIGINT | libc::SIGTERM | libc::SIGHUP | libc::SIGQUIT) {
            self.outcome.relayed = Some(signal);
        }
        match (&self.tree, signal) {
            // Init would send these to the keeper, which cannot pass them on.
            (Tree::Kept { .. }, libc::SIGKILL) => self.kill(),
            (Tree::Kept { keeper, .. }, libc::SIGSTOP) => {
                if let (Some((keeper, _)), Some(workload)) = (keeper, self.workload) {
                    processes::stop_group(*keeper, workload);
                }
            }
            (tree, _) => tree.signal(signal),
        }
    }

    /// Ends the tree because the caller insists.
    pub fn kill_for_user(&mut self) {
        self.outcome.reason.get_or_insert(Reason::User);
        self.kill();
    }

    /// Ends the tree because of an error of ours.
    pub fn fail(&mut self, error: Error) {
        self.outcome.error.get_or_insert(error);
        self.kill();
    }

    /// Kills every process of the tree, even if stopped.
    pub(super) fn kill(&mut self) {
        self.kill_at = None;
        if self.kept.cgroup.is_none() && self.outcome.scratch.is_none() && !self.outcome.killed {
            // The kernel forgets the time of processes that die with their pid namespace.
            self.outcome.before_kill = self.processes().map(cpu::of_tree).unwrap_or_default();
        }
        let again = std::mem::replace(&mut self.outcome.killed, true);
        match (&self.tree, &self.kept.cgroup) {
            (Tree::Sandbox { orphans: Some(_), .. }, _) if !again => {
                self.kill_at = Some(Instant::now() + LONGEST_END);
                self.tree.signal(END);
            }
            (Tree::Cgroup { .. }, Some(group)) => {
                group.kill();
                self.kill_at = self.starting.then(|| Instant::now() + PAUSE); // init may not have cloned it yet
            }
            (Tree::Kept { .. }, _) => self.kill_kept(),
            _ => self.tree.signal(libc::SIGKILL),
        }
        if let Some(group) = &self.kept.cgroup {
            group.unthrottle();
        }
    }

    /// The first process of the tree that is known.
    pub(super) fn processes(&self) -> Option<i32> {
        self.tree.root().or(self.workload)
    }

    /// Tells init or the keeper that the workload was looked at, so that it may be reaped.
    pub(super) fn release(&mut self) {
        if std::mem::replace(&mut self.released, true) {
            return;
        }
        match &self.tree {
            Tree::Sandbox { .. } if !self.plan.init => {}
            Tree::Sandbox { .. } | Tree::Kept { .. } => self.ends.verified(),
            Tree::Cgroup { number, init, .. } => init.release(*number),
        }
    }

    /// Kills what is below the keeper now.
    pub(super) fn kill_kept(&mut self) {
        let Tree::Kept { keeper, .. } = &self.tree else { return };
        if let Some((pid, pidfd)) = keeper {
            let _ = process::pidfd_send_signal(pidfd.as_fd(), libc::SIGCONT); // the workload can stop it
            processes::kill_below(*pid);
        }
        self.release(); // otherwise the keeper would hold a workload that is never looked at
        let now = Instant::now();
        let until = self.kill_again.map_or(now + PATIENCE, |(_, until)| until);
        self.kill_again = (now < until).then_some((now + PAUSE, until));
        self.lost |= self.kill_again.is_none();
    }

    /// The command failed before it ran, so that its keeper has ended, or was never made.
    pub(super) fn never_began(&self) -> bool {
        matches!(self.tree, Tree::Kept { .. }) && !self.listening && self.outcome.failure.is_some()
    }

    /// Whether its processes can be ended only with the whole sandbox: their keeper is gone, or they escape.
    pub fn is_lost(&self) -> bool {
        let is_kept = matches!(self.tree, Tree::Kept { emptied: false, .. });
        self.lost || (is_kept && !self.listening && !self.starting && self.outcome.failure.is_none())
    }
}
