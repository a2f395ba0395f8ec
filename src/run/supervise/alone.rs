//! The loop of a run: one command that has its sandbox, its supervisor and the caller's terminal for itself.

use std::ops::Deref;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags};

use super::{Supervised, Watches, wait};
use crate::error::Result;
use crate::launch::pump::Pump;
use crate::launch::terminal::{RawMode, follow_size};
use crate::plan::RunPlan;
use crate::report::{Enforced, Sample};
use crate::run::outcome::Outcome;
use crate::run::prepare::Kept;

/// A command with the loop around it.
pub struct Alone<'a, P> {
    one: Supervised<P>,
    watches: Watches,
    sampler: Option<Sampler<'a>>,
    lease: Option<OwnedFd>,
    next_report: Option<Instant>,
    raw: Option<RawMode>,
    drain_until: Option<Instant>,
}

/// A receiver of usage samples while the workload runs.
pub struct Sampler<'a> {
    /// The period.
    pub period: Duration,
    /// Receives a sample. Must not block.
    pub sink: Box<dyn FnMut(&Sample) + 'a>,
}

impl<'a, P: Deref<Target = RunPlan>> Alone<'a, P> {
    /// The loop around a command.
    pub fn new(one: Supervised<P>, watches: Watches, sampler: Option<Sampler<'a>>, lease: Option<OwnedFd>) -> Self {
        Self { one, watches, sampler, lease, next_report: None, raw: None, drain_until: None }
    }

    /// Supervises until the tree is dead and its output is relayed.
    ///
    /// A child that was not `admitted` is killed at once. `meanwhile` is called when the workload runs, so that its work delays
    /// neither start nor end.
    pub fn run(mut self, admitted: Result<()>, meanwhile: &mut dyn FnMut()) -> (P, Outcome, Kept, Enforced) {
        if let Err(error) = admitted.and_then(|()| self.watch(meanwhile)) {
            self.one.fail(error);
        }
        self.one.reap();
        if self.one.was_asked_to_end() {
            self.drain_until = self.drain_until.or(Some(Instant::now() + self.one.grace()));
        }
        if let Err(error) = self.drain() {
            self.one.outcome.error.get_or_insert(error);
        }
        drop(self.raw.take());
        self.one.conclude()
    }

    fn watch(&mut self, meanwhile: &mut dyn FnMut()) -> Result<()> {
        loop {
            let now = Instant::now();
            self.one.check_deadlines(now);
            if self.next_report.is_some_and(|at| at <= now) {
                self.report_usage(now);
            }
            self.watches.arm([self.one.due(), self.next_report].into_iter().flatten().min())?;
            let mut polled = self.watches.interests().to_vec();
            let lease = polled.len();
            polled.extend(self.lease.iter().map(|lease| PollFd::new(lease.as_fd(), PollFlags::POLLIN)));
            let places = self.one.interests(&mut polled);
            wait(&mut polled)?;
            let ready = places.ready(&polled);
            let signalled = polled[0].any().unwrap_or(true);
            let lapsed = self.lease.is_some() && polled[lease].any().unwrap_or(true);
            drop(polled);
            let before = self.one.is_looked_at();
            let dead = self.one.turn(ready)?;
            self.take_terminal()?;
            if self.one.is_looked_at() && !before {
                self.next_report = self.sampler.as_ref().map(|sampler| Instant::now() + sampler.period);
                meanwhile();
            }
            if signalled {
                self.take_signals()?;
            }
            if lapsed {
                self.lease = None;
                self.one.kill_for_user();
                self.drain_until = Some(Instant::now());
            }
            if dead {
                return Ok(());
            }
        }
    }

    /// Bridges the command's terminal to the caller's.
    fn take_terminal(&mut self) -> Result<()> {
        if let Some(master) = self.one.terminal.take() {
            self.one.kept.pumps.attach_terminal(master)?;
            if self.one.plan.stdio.stdin {
                self.raw = RawMode::enter();
            }
        }
        Ok(())
    }

    fn report_usage(&mut self, now: Instant) {
        let Some(sampler) = &mut self.sampler else { return };
        if let Some(sample) = self.one.sample(now) {
            self.next_report = Some(now + sampler.period);
            (sampler.sink)(&sample);
        }
    }

    fn take_signals(&mut self) -> Result<()> {
        while let Some(signal) = self.watches.signal()? {
            match signal {
                libc::SIGWINCH if self.one.kept.pumps.terminal => {
                    if let Some(master) = self.one.kept.pumps.output.as_ref().and_then(Pump::source_fd) {
                        follow_size(master);
                    }
                }
                libc::SIGINT if self.one.outcome.relayed == Some(libc::SIGINT) => {
                    self.one.kill_for_user();
                    self.drain_until = Some(Instant::now());
                }
                signal => self.one.relay(signal),
            }
        }
        Ok(())
    }

    /// Relays the rest of the pipes. Without a deadline, a reader that does not read is waited for.
    fn drain(&mut self) -> Result<()> {
        loop {
            if self.one.drain(self.drain_until.is_some_and(|until| until <= Instant::now())) {
                return Ok(());
            }
            self.watches.arm(self.drain_until)?;
            let mut polled = self.watches.interests().to_vec();
            self.one.output_interests(&mut polled);
            wait(&mut polled)?;
            let signalled = polled[0].any().unwrap_or(true);
            drop(polled);
            if signalled {
                self.take_signals()?;
            }
        }
    }
}
