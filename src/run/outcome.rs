//! The end of a run: from the outcome to the report.

use std::time::{Instant, SystemTime};

use nix::sys::signal::Signal;

use super::egress::{self, Gateway};
use super::hint;
use super::prepare::{Kept, Prepared};
use super::program::Program;
use crate::confine::process::PreparedProcess;
use crate::confine::seccomp::install::PreparedSeccomp;
use crate::error::{Error, Step};
use crate::failure::{Failure, Missing};
use crate::launch::channels::Exited;
use crate::launch::times::{CpuTime, Reaped};
use crate::plan::{Facility, RunPlan};
use crate::report::{self, Degraded, Enforced, NetworkRecord, Report, Status, Timings, Usage};

/// When a run began, on both clocks.
#[derive(Clone, Copy, Debug)]
pub struct Beginning {
    /// For durations.
    pub instant: Instant,
    /// For the report.
    pub time: SystemTime,
}

impl Beginning {
    /// Reads both clocks.
    pub fn now() -> Self {
        Self { instant: Instant::now(), time: SystemTime::now() }
    }
}

/// Why the supervisor ended the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The wall-clock deadline.
    Wall,
    /// The CPU time.
    Cpu,
    /// No output for too long.
    Idle,
    /// Too much output.
    Output,
    /// Too much network traffic.
    NetBudget,
    /// A signal sent to the supervisor.
    User,
}

/// The findings of the supervisor.
#[derive(Debug, Default)]
pub struct Outcome {
    /// How the workload ended, as `wait(2)` encodes it.
    pub wait_status: Option<i32>,
    /// Why the supervisor ended the run, if it did.
    pub reason: Option<Reason>,
    /// The forwarded signal that may have ended the workload.
    pub relayed: Option<i32>,
    /// Whether the supervisor killed pid 1, for any reason.
    pub killed: bool,
    /// The system call for which the workload was killed, if that was reported.
    pub killed_for_call: Option<String>,
    /// The failure in the child.
    pub failure: Option<Failure>,
    /// The error in the supervisor.
    pub error: Option<Error>,
    /// Whether a line of the network log was lost.
    pub net_log_failed: bool,
    /// Optional facilities that the child had to do without.
    pub missing: Vec<Missing>,
    /// The use of the scratch tmpfs, as init saw it.
    pub scratch: Option<Exited>,
    /// The executed file.
    pub program: Option<Program>,
    /// The resource usage of the tree, as far as its processes were reaped.
    pub rusage: Option<Reaped>,
    /// The CPU time that the workload's process used before the program.
    pub set_up: CpuTime,
    /// The CPU time of init, as it said at the workload's start.
    pub init: CpuTime,
    /// The CPU time of the tree just before it was killed, if no cgroup counts it.
    pub before_kill: CpuTime,
    /// Whether the kernel limits the CPU time of each process.
    pub cpu_limited: bool,
    /// Whether a workload existed. If it shares init's memory: whether it executed its program or died of the execve.
    pub started: bool,
    /// Whether the running workload was verified from outside.
    pub verified: bool,
    /// When the workload's execve succeeded.
    pub executed_at: Option<Instant>,
    /// When the workload ended.
    pub ended_at: Option<Instant>,
    /// When every process of the tree was dead.
    pub dead_at: Option<Instant>,
}

impl Outcome {
    /// The CPU time of the set-up and of init. That of init to its end is what its usage has besides its children's.
    fn not_the_workloads(&self) -> CpuTime {
        let used = self.scratch.map(|exited| exited.used).filter(|used| *used != CpuTime::default());
        let init = self.rusage.zip(used).map_or(self.init, |(all, used)| all.cpu.minus(used));
        self.set_up.plus(init)
    }

    /// CPU time without that of init and the set-up, in microseconds.
    pub fn without_set_up(&self, counted_us: u64) -> u64 {
        counted_us.saturating_sub(self.not_the_workloads().total_us())
    }

    /// Leaves the workload's own CPU time in a reading that includes init and the set-up.
    pub fn subtract_set_up(&self, cpu: &mut report::Cpu) {
        cpu.total_us = cpu.total_us.map(|counted| self.without_set_up(counted));
        // The kernel counts these at different moments. The sum must be the total.
        let user_us = cpu.user_us.map(|counted| counted.saturating_sub(self.not_the_workloads().user_us));
        cpu.user_us = user_us.zip(cpu.total_us).map(|(user, total)| user.min(total));
        cpu.system_us = cpu.system_us.and(cpu.total_us.zip(cpu.user_us).map(|(total, user)| total - user));
    }
}

/// A run that was started.
pub struct Start<'a> {
    /// Its plan.
    pub plan: &'a RunPlan,
    /// What its sandbox was made from.
    pub prepared: &'a Prepared,
    /// What its command was made from.
    pub process: &'a PreparedProcess,
    /// When it began.
    pub begun: Beginning,
    /// When the clone returned.
    pub cloned_at: Instant,
}

impl Start<'_> {
    /// Completes the blank report, and removes the run's cgroup. `enforced` is what was verified from outside.
    pub fn report(&self, mut report: Report, outcome: &Outcome, mut kept: Kept, mut enforced: Enforced) -> Report {
        let ran = outcome.executed_at.is_some();
        let traffic = kept.gateway.take().map(Gateway::finish).transpose();
        report.timings_us = self.timings(outcome);
        report.output = kept.pumps.record();
        self.add_enforced(outcome, &mut enforced);
        if let Some(group) = kept.cgroup {
            group.usage(&mut report.usage);
            if self.plan.init && outcome.scratch.is_none() && !outcome.killed {
                leave_out_init(&mut report.usage.memory.oom_kills); // it was killed with the workload, not by us
            }
            enforced.cgroup = Some(group.record());
            if let Err(error) = group.remove() {
                let (what, wanted, got) = ("cgroup".to_owned(), "removed".to_owned(), "left behind".to_owned());
                enforced.degraded.push(Degraded { what, wanted, got, why: error.to_string() });
            }
        }
        report.finished_at = report::timestamp(SystemTime::now());
        report.usage.wall_us = report.timings_us.run;
        let error = self.error(outcome, &report.usage, || kept.pumps.failure());
        let error =
            error.or_else(|| traffic.as_ref().err().cloned().or_else(|| outcome.net_log_failed.then(lost_lines)));
        fill_rusage(&mut report.usage, outcome);
        if ran && self.plan.namespaces.own {
            report.usage.disk.scratch_limit_bytes = Some(self.plan.scratch.size_bytes);
            fill_scratch(&mut report.usage, outcome);
        }
        match error {
            Some(error) => {
                report.error = Some((&error).into());
                report.exit_code = error.exit_code();
                report.status = if ran { Status::InternalError } else { Status::SetupError };
                report.enforced = ran.then_some(enforced);
            }
            None => {
                report.enforced = Some(enforced);
                classify_end(&mut report, self.plan, outcome);
            }
        }
        if report.enforced.is_some() {
            let mode = self.plan.namespaces.network;
            report.network = Some(NetworkRecord { mode, egress: traffic.ok().flatten() });
        }
        if let (Some(command), Some(program)) = (&mut report.command, outcome.program.as_ref().filter(|_| ran)) {
            command.exe_sha256 = program.sha256();
        }
        if let Some(denials) = kept.denials {
            report.denials_unheard = Some(denials.unheard());
            let totals = report.network.iter().filter_map(|network| network.egress.as_ref());
            report.denials = Some(denials.into_listed().into_iter().chain(totals.flat_map(egress::denials)).collect());
        }
        report
    }

    fn timings(&self, outcome: &Outcome) -> Timings {
        let between = |from: Option<Instant>, to: Option<Instant>| Some(micros(to?.saturating_duration_since(from?)));
        Timings {
            setup: between(Some(self.begun.instant), Some(self.cloned_at)),
            exec_wait: between(Some(self.cloned_at), outcome.executed_at),
            run: between(outcome.executed_at, outcome.ended_at),
            teardown: between(outcome.ended_at, outcome.dead_at),
        }
    }

    /// Adds what the child itself has verified or had to do without.
    fn add_enforced(&self, outcome: &Outcome, enforced: &mut Enforced) {
        enforced.degraded.extend(outcome.missing.iter().map(degraded));
        if outcome.executed_at.is_none() {
            return; // the child has verified the rest, or it would not have executed the workload
        }
        let later = [("net", self.prepared.network.is_own()), ("time", self.plan.namespaces.time)];
        enforced.namespaces.extend(later.into_iter().filter(|(_, own)| *own).map(|(name, _)| name.to_owned()));
        if let Some(landlock) = &self.prepared.landlock {
            landlock.record(enforced);
        }
        if outcome.verified {
            enforced.seccomp = self.prepared.seccomp.as_ref().map(PreparedSeccomp::record);
        }
    }

    /// Why the run failed, if it did. `lost_output` is the error of a stream.
    fn error(&self, outcome: &Outcome, usage: &Usage, lost_output: impl FnOnce() -> Option<Error>) -> Option<Error> {
        // Pid 1 sent no exit status and we did not kill it: init failed, unless the kernel killed it for lack of memory.
        let oom_killed = usage.memory.oom_kills.is_some_and(|kills| kills > 0);
        let init_failed = self.plan.init && !outcome.killed && outcome.scratch.is_none() && !oom_killed;
        // Init that shares the workload's memory does not report a workload that has not executed its program.
        let started = outcome.started && !self.plan.namespaces.time;
        let never_ran = outcome.executed_at.is_none() && !(oom_killed && started);
        let unasked = outcome.reason.is_none() && outcome.relayed.is_none();
        // If the kernel killed the child for lack of memory, an error that we met while checking it is not the cause.
        let unexplained = outcome.error.is_none() || oom_killed;
        let died_silently = (never_ran || init_failed) && unasked && unexplained;
        match &outcome.failure {
            Some(failure) => Some(hint::error_of(self.plan, self.prepared, self.process, *failure)),
            None if died_silently => Some(silent_death(outcome.wait_status, usage)),
            None => outcome.error.clone().or_else(|| lost_output().filter(|_| unasked)),
        }
    }
}

fn leave_out_init(oom_kills: &mut Option<u64>) {
    *oom_kills = oom_kills.map(|kills| kills.saturating_sub(1).max(kills.min(1)));
}

fn lost_lines() -> Error {
    Error::new(Step::Egress, "network log", "a line could not be written")
}

const COVERED: &str = "the caller's own /proc is partly covered";

/// The report's entry for a facility that the child had to do without.
pub fn degraded(missing: &Missing) -> Degraded {
    let (facility, wanted, got, why) = match missing {
        Missing::NamespaceLimits => {
            (Facility::NamespaceLimits, "no nested namespaces", "nested namespaces", "/proc/sys/user is not writable")
        }
        Missing::Keyring => {
            (Facility::Keyring, "a new session keyring", "the caller's", "the kernel refused to create one")
        }
        Missing::Hostname => {
            (Facility::Hostname, "a host name of its own", "the caller's", "the kernel refused to change it")
        }
        Missing::Proc => (Facility::Proc, "a new procfs", "a /proc without processes", COVERED),
        Missing::OuterProc => {
            (Facility::OuterProc, "a new procfs", "the caller's, read-only, with the caller's processes", COVERED)
        }
    };
    let (wanted, got, why) = (wanted.to_owned(), got.to_owned(), why.to_owned());
    Degraded { what: facility.name().to_owned(), wanted, got, why }
}

fn classify_end(report: &mut Report, plan: &RunPlan, outcome: &Outcome) {
    let status = outcome.wait_status.unwrap_or(libc::SIGKILL);
    report.signal = libc::WIFSIGNALED(status).then(|| libc::WTERMSIG(status));
    report.core_dumped = libc::WIFSIGNALED(status) && libc::WCOREDUMP(status);
    let own_code = match report.signal {
        Some(signal) => 128 + signal as u8,
        None => libc::WEXITSTATUS(status) as u8,
    };
    // Only the kernel's counters count. An exit code of 137 or a message of the workload about memory proves nothing.
    let counted = |events: Option<u64>| events.is_some_and(|events| events > 0);
    let failed = report.signal.is_some() || own_code != 0;
    let oom_killed = failed && counted(report.usage.memory.oom_kills);
    let out_of_pids = failed && counted(report.usage.pids.max_events);
    const TICK_US: u64 = 10_000;
    let used_us = report.usage.cpu.total_us;
    let cpu_used_up = plan.deadlines.cpu_us.is_some_and(|limit| used_us.is_some_and(|used| used + TICK_US >= limit));
    let filtered = report.enforced.as_ref().is_some_and(|enforced| enforced.seccomp.is_some());
    (report.status, report.exit_code) = match (outcome.reason, report.signal) {
        (Some(Reason::Wall), _) => (Status::TimeoutWall, 124),
        (Some(Reason::Cpu), _) => (Status::TimeoutCpu, 124),
        (Some(Reason::Idle), _) => (Status::TimeoutIdle, 124),
        (Some(Reason::NetBudget), _) => (Status::NetBudget, 124),
        (Some(Reason::Output), _) => (Status::OutputLimit, 128 + libc::SIGKILL as u8),
        (Some(Reason::User), _) => (Status::KilledByUser, own_code),
        (None, Some(libc::SIGXCPU)) if outcome.cpu_limited && cpu_used_up => (Status::TimeoutCpu, 124),
        (None, Some(_)) if outcome.killed_for_call.is_some() => (Status::SeccompKilled, own_code),
        (None, Some(libc::SIGSYS)) if filtered => (Status::SeccompKilled, own_code),
        (None, _) if oom_killed => (Status::Oom, own_code),
        (None, Some(signal)) if outcome.relayed == Some(signal) => (Status::KilledByUser, own_code),
        (None, Some(libc::SIGKILL)) if outcome.cpu_limited && cpu_used_up => (Status::TimeoutCpu, 124),
        (None, _) if out_of_pids => (Status::PidsLimit, own_code),
        (None, Some(_)) => (Status::Signaled, own_code),
        (None, None) if own_code == 0 => (Status::Ok, 0),
        (None, None) => (Status::Nonzero, own_code),
    };
}

/// Where the kernel counts OOM kills for the sandbox alone: `killed` is whether it counted one while this command ran.
pub fn blame_memory(report: &mut Report, killed: bool) {
    // SIGKILL, and not from the supervisor.
    if killed && report.status == Status::Signaled && report.signal == Some(libc::SIGKILL) {
        report.status = Status::Oom;
    }
}

fn fill_rusage(usage: &mut Usage, outcome: &Outcome) {
    if let Some(rusage) = &outcome.rusage {
        usage.rusage = report::Rusage {
            minor_faults: Some(rusage.minor_faults),
            major_faults: Some(rusage.major_faults),
            ctx_voluntary: Some(rusage.voluntary_switches),
            ctx_involuntary: Some(rusage.involuntary_switches),
        };
        if usage.cpu.source.is_none() {
            let reaped = rusage.cpu;
            let known = if reaped.total_us() < outcome.before_kill.total_us() { outcome.before_kill } else { reaped };
            usage.cpu.user_us = Some(known.user_us);
            usage.cpu.system_us = Some(known.system_us);
            usage.cpu.total_us = Some(known.total_us());
            usage.cpu.source = Some("rusage".to_owned());
        }
    }
    outcome.subtract_set_up(&mut usage.cpu);
}

fn fill_scratch(usage: &mut Usage, outcome: &Outcome) {
    if let Some(scratch) = outcome.scratch.filter(|scratch| scratch.scratch_bytes != u64::MAX) {
        usage.disk.scratch_used_bytes = Some(scratch.scratch_bytes);
        usage.disk.inodes_used = Some(scratch.scratch_inodes);
    }
}

fn micros(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// The name of a signal, for messages.
pub fn signal_name(number: i32) -> String {
    Signal::try_from(number).map_or_else(|_| format!("signal {number}"), |signal| signal.as_str().to_owned())
}

/// The error for a child that died without reporting a failure.
fn silent_death(status: Option<i32>, usage: &Usage) -> Error {
    if usage.memory.oom_kills.is_some_and(|kills| kills > 0) {
        return Error::new(Step::Cgroup, "memory budget", "is too small to set up the sandbox")
            .hint("raise it with --memory");
    }
    let how = match status {
        Some(status) if libc::WIFSIGNALED(status) => signal_name(libc::WTERMSIG(status)),
        Some(status) => format!("exit code {}", libc::WEXITSTATUS(status)),
        None => "an unknown cause".to_owned(),
    };
    Error::new(Step::Supervise, "sandbox", format!("pid 1 died unexpectedly of {how}"))
}
