//! Deadlines of a command: its time, samples of its CPU time, and the kill after the grace period.

use std::ops::Deref;
use std::time::{Duration, Instant};

use super::Supervised;
use crate::cgroup::Group;
use crate::error::{Error, Step};
use crate::plan::RunPlan;
use crate::report::{SAMPLE_SCHEMA, Sample, Usage};
use crate::run::cpu;
use crate::run::outcome::Reason;

/// How long the start of a command in a session may take. What already runs there can stop a process before its execve, and
/// init waits for that process.
const LONGEST_START: Duration = Duration::from_secs(30);

fn after(start: Instant, us: Option<u64>) -> Option<Instant> {
    us.map(|us| start + Duration::from_micros(us))
}

impl<P: Deref<Target = RunPlan>> Supervised<P> {
    /// Does what is due.
    pub fn check_deadlines(&mut self, now: Instant) {
        let deadlines = self.plan.deadlines;
        let is_due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        if is_due(after(self.outcome.executed_at.unwrap_or(self.cloned_at), deadlines.wall_us)) {
            self.end(Reason::Wall, now);
        }
        if is_due(after(self.last_output, deadlines.idle_us)) {
            self.end(Reason::Idle, now);
        }
        if is_due(self.next_sample)
            && let Some(limit) = deadlines.cpu_us
        {
            let counted = match self.kept.cgroup.as_ref().and_then(Group::cpu_us) {
                Some(counted) => counted,
                None => self.processes().map(cpu::of_tree).unwrap_or_default().total_us(),
            };
            let used = self.outcome.without_set_up(counted);
            self.next_sample = Some(now + sample_pause(limit.saturating_sub(used)));
            if used >= limit {
                self.end(Reason::Cpu, now);
            }
        }
        if is_due(self.start_due()) && !self.outcome.killed {
            let reason = "did not start within 30 seconds: another process of the sandbox may have stopped it";
            self.fail(Error::new(Step::Fork, "command", reason));
        }
        if is_due(self.kill_at) {
            self.kill();
        }
        if is_due(self.kill_again.map(|(at, _)| at)) {
            self.kill_kept();
        }
    }

    /// The nearest deadline.
    pub fn due(&self) -> Option<Instant> {
        let deadlines = &self.plan.deadlines;
        let ending = self.outcome.reason.is_some();
        let wall = after(self.outcome.executed_at.unwrap_or(self.cloned_at), deadlines.wall_us).filter(|_| !ending);
        let idle = after(self.last_output, deadlines.idle_us).filter(|_| !ending);
        let sample = self.next_sample.filter(|_| !ending);
        let start = self.start_due().filter(|_| !self.outcome.killed);
        let again = self.kill_again.map(|(at, _)| at);
        [wall, idle, sample, start, self.kill_at, again].into_iter().flatten().min()
    }

    /// When its start has taken too long. The start of a run depends on nothing that is untrusted.
    fn start_due(&self) -> Option<Instant> {
        (self.starting && self.tree.first().is_none()).then(|| self.cloned_at + LONGEST_START)
    }

    /// Its usage so far. `None` before it runs.
    pub fn sample(&self, now: Instant) -> Option<Sample> {
        let begun = self.outcome.executed_at?;
        let mut usage = Usage::default();
        match &self.kept.cgroup {
            Some(group) => group.usage(&mut usage),
            None => {
                usage.cpu.total_us = Some(self.processes().map(cpu::of_tree).unwrap_or_default().total_us());
                usage.cpu.source = Some("proc".to_owned());
            }
        }
        self.outcome.subtract_set_up(&mut usage.cpu);
        let elapsed_us = u64::try_from((now - begun).as_micros()).unwrap_or(u64::MAX);
        usage.wall_us = Some(elapsed_us);
        let (schema, id) = (SAMPLE_SCHEMA.to_owned(), self.plan.confinement.id.clone());
        Some(Sample { schema, id, elapsed_us, usage })
    }

    /// Asks the workload to end. After the grace period [`Self::kill`] ends it.
    pub(super) fn end(&mut self, reason: Reason, now: Instant) {
        if self.outcome.reason.is_some() {
            return;
        }
        self.outcome.reason = Some(reason);
        self.kill_at = Some(now + self.grace());
        self.tree.signal(libc::SIGTERM);
    }

    /// How long it may take to end when it was asked to.
    pub fn grace(&self) -> Duration {
        Duration::from_micros(self.plan.deadlines.kill_after_us)
    }

    /// Whether it was asked to end.
    pub fn was_asked_to_end(&self) -> bool {
        self.outcome.reason.is_some() || self.outcome.relayed.is_some()
    }
}

/// How long the tree can run before it could have used this much CPU time, within bounds.
pub(super) fn sample_pause(left_us: u64) -> Duration {
    let cpus = std::thread::available_parallelism().map_or(1, |cpus| cpus.get() as u64);
    Duration::from_micros(left_us / cpus).clamp(Duration::from_millis(10), Duration::from_secs(1))
}
