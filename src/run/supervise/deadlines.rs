//! Deadlines of a run: its time, samples of its CPU time, periodic reports, and the kill after the grace period.

use std::time::{Duration, Instant};

use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{Expiration, TimerSetTimeFlags};

use super::Supervisor;
use crate::cgroup::Group;
use crate::error::{Error, Result, Step};
use crate::report::{SAMPLE_SCHEMA, Sample, Usage};
use crate::run::cpu;
use crate::run::outcome::Reason;

impl Supervisor<'_> {
    pub(super) fn check_deadlines(&mut self, now: Instant) {
        let deadlines = &self.plan.deadlines;
        let after = |start: Instant, us: Option<u64>| us.map(|us| start + Duration::from_micros(us));
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
            let counted = match self.cgroup.and_then(Group::cpu_us) {
                Some(counted) => counted,
                None => cpu::of_tree(self.pid.as_raw()).total_us(),
            };
            let used = self.outcome.without_set_up(counted);
            self.next_sample = Some(now + sample_pause(limit.saturating_sub(used)));
            if used >= limit {
                self.end(Reason::Cpu, now);
            }
        }
        if is_due(self.next_report) {
            self.report_usage(now);
        }
        if is_due(self.kill_at) {
            self.kill();
        }
    }

    fn report_usage(&mut self, now: Instant) {
        let Some(begun) = self.outcome.executed_at else { return };
        let mut usage = Usage::default();
        match self.cgroup {
            Some(group) => group.usage(&mut usage),
            None => {
                usage.cpu.total_us = Some(cpu::of_tree(self.pid.as_raw()).total_us());
                usage.cpu.source = Some("proc".to_owned());
            }
        }
        self.outcome.subtract_set_up(&mut usage.cpu);
        let elapsed_us = u64::try_from((now - begun).as_micros()).unwrap_or(u64::MAX);
        usage.wall_us = Some(elapsed_us);
        if let Some(sampler) = &mut self.sampler {
            self.next_report = Some(now + sampler.period);
            let (schema, id) = (SAMPLE_SCHEMA.to_owned(), self.plan.confinement.id.clone());
            (sampler.sink)(&Sample { schema, id, elapsed_us, usage });
        }
    }

    /// Asks the workload to end. After the grace period [`Self::kill`] ends it.
    fn end(&mut self, reason: Reason, now: Instant) {
        if self.outcome.reason.is_some() {
            return;
        }
        self.outcome.reason = Some(reason);
        self.kill_at = Some(now + self.grace());
        self.signal(libc::SIGTERM);
    }

    pub(super) fn grace(&self) -> Duration {
        Duration::from_micros(self.plan.deadlines.kill_after_us)
    }

    /// Arms the timer for the nearest deadline, if that changed.
    pub(super) fn arm_timer(&mut self) -> Result<()> {
        let deadlines = &self.plan.deadlines;
        let after = |start: Instant, us: Option<u64>| us.map(|us| start + Duration::from_micros(us));
        let ending = self.outcome.reason.is_some();
        let wall = after(self.outcome.executed_at.unwrap_or(self.cloned_at), deadlines.wall_us).filter(|_| !ending);
        let idle = after(self.last_output, deadlines.idle_us).filter(|_| !ending);
        let sample = self.next_sample.filter(|_| !ending);
        self.arm([wall, idle, sample, self.next_report, self.kill_at].into_iter().flatten().min())
    }

    pub(super) fn arm(&mut self, nearest: Option<Instant>) -> Result<()> {
        if nearest == self.armed {
            return Ok(());
        }
        self.armed = nearest;
        let failed = |errno| Error::errno(Step::Supervise, "timer", errno);
        let Some(nearest) = nearest else { return self.timer.unset().map_err(failed) };
        let left = nearest.saturating_duration_since(Instant::now()).max(Duration::from_nanos(1)); // zero would disarm the timer
        let expiration = Expiration::OneShot(TimeSpec::from_duration(left));
        self.timer.set(expiration, TimerSetTimeFlags::empty()).map_err(failed)
    }
}

/// How long the tree can run before it could have used this much CPU time, within bounds.
pub(super) fn sample_pause(left_us: u64) -> Duration {
    let cpus = std::thread::available_parallelism().map_or(1, |cpus| cpus.get() as u64);
    Duration::from_micros(left_us / cpus).clamp(Duration::from_millis(10), Duration::from_secs(1))
}
