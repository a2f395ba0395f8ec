//! The supervisor: one poll loop over pidfd, signals, deadlines, messages and streams, until the whole tree is dead.

mod deadlines;
mod events;

use std::os::fd::{AsFd as _, OwnedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::signal::SigSet;
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::timerfd::{ClockId, TimerFd, TimerFlags};
use nix::unistd::Pid;

use self::deadlines::sample_pause;
use self::events::Event;
use crate::cgroup::Group;
use crate::error::{Error, Result, Step};
use crate::launch::channels::{Message, ParentEnds};
use crate::launch::pump::Pump;
use crate::launch::steps::step;
use crate::launch::streams::Pumps;
use crate::launch::terminal::{RawMode, follow_size};
use crate::launch::times::monotonic_ns;
use crate::plan::RunPlan;
use crate::report::Sample;
use crate::run::cpu;
use crate::run::denials::Denials;
use crate::run::outcome::{Outcome, Reason};
use crate::run::prepare::Kept;
use crate::run::program::Program;
use crate::sys::mount::FileOnMount;
use crate::sys::process;

/// A process tree under supervision.
pub struct Supervisor<'a> {
    plan: &'a RunPlan,
    ends: ParentEnds,
    pid: Pid,
    pidfd: OwnedFd,
    signals: SignalFd,
    timer: TimerFd,
    armed: Option<Instant>,
    pumps: &'a mut Pumps,
    denials: Option<&'a mut Denials>,
    cgroup: Option<&'a Group>,
    sampler: Option<Sampler<'a>>,
    next_report: Option<Instant>,
    raw: Option<RawMode>,
    cloned_at: Instant,
    workload: Option<i32>,
    executed: Option<FileOnMount>,
    started_at: Option<Instant>,
    starting: bool,
    listening: bool,
    ending: bool,
    verified: bool,
    last_output: Instant,
    next_sample: Option<Instant>,
    kill_at: Option<Instant>,
    drain_until: Option<Instant>,
    outcome: Outcome,
}

/// A receiver of usage samples while the workload runs.
pub struct Sampler<'a> {
    /// The period.
    pub period: Duration,
    /// Receives a sample. Must not block.
    pub sink: Box<dyn FnMut(&Sample) + 'a>,
}

/// Called once when the workload runs, with its id on the host and the program that it looked up. An error is fatal. `false`
/// means that it ended before it executed anything.
pub type Verify<'a> = &'a mut dyn FnMut(i32, Option<FileOnMount>) -> Result<bool>;

/// Sources of signals and deadlines. Created before there is a process to watch.
#[derive(Debug)]
pub struct Watches {
    signals: SignalFd,
    timer: TimerFd,
}

impl Watches {
    /// For these signals, which are blocked.
    pub fn new(signals: &SigSet) -> Result<Self> {
        let failed = |errno| Error::errno(Step::Supervise, "signals and timer", errno);
        Ok(Self {
            signals: SignalFd::with_flags(signals, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK).map_err(failed)?,
            timer: TimerFd::new(ClockId::CLOCK_MONOTONIC, TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK)
                .map_err(failed)?,
        })
    }
}

/// The instant at which the monotonic clock had this value.
fn instant_of(at_ns: u64) -> Instant {
    let (now, passed) = (Instant::now(), monotonic_ns().saturating_sub(at_ns));
    now.checked_sub(Duration::from_nanos(passed)).unwrap_or(now)
}

impl<'a> Supervisor<'a> {
    /// Supervises a freshly cloned child.
    pub fn new(
        plan: &'a RunPlan,
        ends: ParentEnds,
        (pid, pidfd): (Pid, OwnedFd),
        watches: Watches,
        kept: &'a mut Kept,
    ) -> Self {
        let now = Instant::now();
        Self {
            plan,
            ends,
            pid,
            pidfd,
            signals: watches.signals,
            timer: watches.timer,
            armed: None,
            pumps: &mut kept.pumps,
            denials: kept.denials.as_mut(),
            cgroup: kept.cgroup.as_ref(),
            sampler: None,
            next_report: None,
            raw: None,
            cloned_at: now,
            workload: (!plan.init).then_some(pid.as_raw()),
            executed: None,
            started_at: None,
            starting: true,
            listening: true,
            ending: false,
            verified: false,
            last_output: now,
            next_sample: None,
            kill_at: None,
            drain_until: None,
            outcome: Outcome { cpu_limited: plan.deadlines.cpu_us.is_some(), ..Outcome::default() },
        }
    }

    /// Adds a receiver of usage samples.
    pub fn sampled(mut self, sampler: Option<Sampler<'a>>) -> Self {
        self.sampler = sampler;
        self
    }

    /// Moves the child into its cgroups, unless it was cloned into its cgroup.
    pub fn move_into_cgroup(&self) -> Result<()> {
        self.cgroup.map_or(Ok(()), |group| group.add_cloned(self.pid))
    }

    /// Lets the child continue.
    pub fn go(&self) -> Result<()> {
        self.ends.go()
    }

    /// Supervises until the tree is dead and its output is relayed.
    ///
    /// A child that was not `admitted` is killed at once. `meanwhile` is called when the workload runs, so that its work delays
    /// neither start nor end.
    pub fn run(mut self, admitted: Result<()>, verify: Verify<'_>, meanwhile: &mut dyn FnMut()) -> Outcome {
        if let Err(error) = admitted.and_then(|()| self.watch(verify, meanwhile)) {
            self.outcome.error.get_or_insert(error);
            self.kill();
        }
        self.reap();
        if !self.verified {
            self.outcome.executed_at = None; // the failure pipe also closes if all processes die before execve
        }
        if let Err(error) = self.drain() {
            self.outcome.error.get_or_insert(error);
        }
        drop(self.raw.take());
        if let Some(denials) = &mut self.denials {
            denials.take_last(self.outcome.executed_at.unwrap_or(self.cloned_at), self.workload);
            self.outcome.killed_for_call = denials.killed_for(self.workload).map(str::to_owned);
        }
        self.outcome
    }

    fn watch(&mut self, verify: Verify<'_>, meanwhile: &mut dyn FnMut()) -> Result<()> {
        loop {
            self.check_deadlines(Instant::now());
            self.arm_timer()?;
            let events = self.wait(true)?;
            if events.contains(&Event::Started) {
                self.end_of_start();
            }
            if events.contains(&Event::Message) {
                self.receive()?;
            }
            if let (false, false, None, Some(workload)) =
                (self.verified, self.starting, self.outcome.failure, self.workload)
            {
                self.verified = true;
                if !verify(workload, self.executed)? {
                    self.outcome.executed_at = None;
                }
                if self.plan.init {
                    self.ends.verified();
                }
                meanwhile();
            }
            if events.contains(&Event::Signal) {
                self.take_signals()?;
            }
            self.read_denials();
            self.pump();
            if events.contains(&Event::Dead) {
                return Ok(());
            }
            // A workload that ended before it was verified stays a zombie until it is.
            if !self.ending && !self.starting && (self.outcome.scratch.is_some() || self.outcome.failure.is_some()) {
                self.ending = true;
                self.listening = false; // nothing follows on the socket, and its end of file need not wake the supervisor
                self.kill(); // the workload has ended, so everything that it left ends too
            }
        }
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
            self.next_report = self.sampler.as_ref().map(|sampler| now + sampler.period);
            self.next_sample = self.plan.deadlines.cpu_us.map(|cpu_us| now + sample_pause(cpu_us));
        }
    }

    fn receive(&mut self) -> Result<()> {
        loop {
            match self.ends.receive() {
                Ok(None) => return Ok(()),
                Err(Errno::EPIPE | Errno::ECONNRESET) => {
                    self.listening = false; // only its death remains
                    return Ok(());
                }
                Err(errno) => return Err(Error::errno(Step::Supervise, "message from the sandbox", errno)),
                Ok(Some(Message::Terminal(master))) => {
                    self.pumps.attach_terminal(master)?;
                    if self.plan.stdio.stdin {
                        self.raw = RawMode::enter();
                    }
                }
                Ok(Some(Message::Missing(missing))) => self.outcome.missing = missing,
                Ok(Some(Message::Listener(listener))) => {
                    if let Some(denials) = &mut self.denials {
                        denials.listen(listener);
                    }
                }
                Ok(Some(Message::Program(file, changed_ns))) => {
                    self.outcome.program.get_or_insert(Program { file, changed_ns });
                }
                Ok(Some(Message::SetUp(cpu))) => self.outcome.add_set_up(cpu),
                Ok(Some(Message::Started(pidfd, started))) => {
                    self.outcome.started = true;
                    self.executed = started.executed;
                    self.outcome.add_set_up(started.init);
                    self.started_at = started.at_ns.map(instant_of);
                    if self.outcome.executed_at.is_some() {
                        self.outcome.executed_at = self.started_at.or(self.outcome.executed_at);
                    }
                    self.workload = process::pid_of(pidfd.as_fd());
                    step("workload", || format!("pid {}", self.workload.unwrap_or_default()));
                }
                Ok(Some(Message::Built | Message::Ready(_))) => {} // only containers send these
                Ok(Some(Message::Exited(exited))) => {
                    self.outcome.ended_at = Some(instant_of(exited.at_ns));
                    self.outcome.wait_status = Some(exited.status);
                    self.outcome.scratch = Some(exited);
                }
            }
        }
    }

    /// Reads the denials of the workload.
    fn read_denials(&mut self) {
        if let Some(denials) = &mut self.denials {
            denials.take(self.outcome.executed_at.unwrap_or(self.cloned_at), self.workload);
            if denials.escaped && !self.outcome.killed {
                let reason = "a process that its filter kills could not be killed alone";
                self.outcome.error.get_or_insert(Error::new(Step::Supervise, "seccomp", reason));
                self.kill();
            }
        }
    }

    fn take_signals(&mut self) -> Result<()> {
        loop {
            let info = self.signals.read_signal().map_err(|errno| Error::errno(Step::Supervise, "signals", errno))?;
            let Some(info) = info else { return Ok(()) };
            match info.ssi_signo as libc::c_int {
                libc::SIGWINCH if self.pumps.terminal => {
                    if let Some(master) = self.pumps.output.as_ref().and_then(Pump::source_fd) {
                        follow_size(master);
                    }
                }
                libc::SIGINT if self.outcome.relayed == Some(libc::SIGINT) => {
                    self.outcome.reason.get_or_insert(Reason::User);
                    self.kill();
                    self.drain_until = Some(Instant::now());
                }
                signal => {
                    if matches!(signal, libc::SIGINT | libc::SIGTERM | libc::SIGHUP | libc::SIGQUIT) {
                        self.outcome.relayed = Some(signal);
                    }
                    self.signal(signal);
                }
            }
        }
    }

    /// Sends a signal to pid 1, which forwards it (or is the workload itself).
    fn signal(&self, signal: libc::c_int) {
        if process::pidfd_send_signal(self.pidfd.as_fd(), signal).is_err() {
            // pidfd_send_signal may be refused by a filter around us. Until pid 1 is reaped, the number is our child's.
            let _ = nix::sys::signal::kill(self.pid, nix::sys::signal::Signal::try_from(signal).ok());
        }
    }

    /// Kills pid 1, and with it every process in its pid namespace, even if stopped.
    fn kill(&mut self) {
        self.kill_at = None;
        if self.cgroup.is_none() && self.outcome.scratch.is_none() && !self.outcome.killed {
            // The kernel forgets the time of processes that die with their pid namespace.
            self.outcome.before_kill = cpu::of_tree(self.pid.as_raw());
        }
        self.outcome.killed = true;
        self.signal(libc::SIGKILL);
        if let Some(group) = self.cgroup {
            group.unthrottle();
        }
    }

    fn pump(&mut self) {
        let mut printed = false;
        for pump in self.pumps.outputs() {
            printed |= pump.take();
            pump.give();
        }
        if printed {
            self.last_output = Instant::now();
        }
        if let Some(input) = &mut self.pumps.input {
            input.take_if_ready();
            input.give();
        }
        if self.pumps.outputs().any(|pump| pump.kills()) && self.outcome.reason.is_none() {
            self.outcome.reason = Some(Reason::Output);
            self.kill();
        }
    }

    /// Reaps pid 1: its status, and the tree's resource usage.
    fn reap(&mut self) {
        match process::wait4(self.pid) {
            Ok((status, rusage)) => {
                self.outcome.rusage = Some(rusage);
                if self.starting {
                    self.outcome.failure = self.ends.failure(); // it may have reported a failure while we verified it
                }
                if !self.plan.init || !(self.outcome.killed || self.outcome.scratch.is_some()) {
                    self.outcome.wait_status = Some(status); // the workload's status, or that of an init that died by itself
                }
            }
            Err(errno) => drop(self.outcome.error.get_or_insert(Error::errno(Step::Supervise, "wait4", errno))),
        }
        let now = Instant::now();
        self.outcome.ended_at.get_or_insert(now);
        self.outcome.dead_at = Some(now);
        if self.outcome.reason.is_some() || self.outcome.relayed.is_some() {
            self.drain_until = self.drain_until.or(Some(now + self.grace()));
        }
    }

    /// Relays the rest of the pipes. Without a deadline, a reader that does not read is waited for.
    fn drain(&mut self) -> Result<()> {
        loop {
            self.pump();
            if self.pumps.outputs().all(|pump| pump.is_done()) {
                return Ok(());
            }
            if self.drain_until.is_some_and(|until| until <= Instant::now()) {
                self.pumps.outputs().for_each(Pump::abandon);
                return Ok(());
            }
            self.arm(self.drain_until)?;
            if self.wait(false)?.contains(&Event::Signal) {
                self.take_signals()?;
            }
        }
    }
}
