//! The end of a run: from the outcome to the report.

use std::time::{Instant, SystemTime};

use nix::sys::signal::Signal;

use super::program::Program;
use crate::error::{Error, Step};
use crate::failure::{Failure, Missing};
use crate::launch::channels::Exited;
use crate::plan::RunPlan;
use crate::report::{self, Enforced, NetworkRecord, Output, Report, Status, Timings, Usage};

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
    /// Optional facilities that the child had to do without.
    pub missing: Vec<Missing>,
    /// The use of the scratch tmpfs, as init saw it.
    pub scratch: Option<Exited>,
    /// The executed file.
    pub program: Option<Program>,
    /// The resource usage of the tree, as far as its processes were reaped.
    pub rusage: Option<libc::rusage>,
    /// Whether the kernel limits the CPU time of each process.
    pub cpu_limited: bool,
    /// Whether a workload existed. If it shares init's memory: whether it executed its program or died of the execve.
    pub started: bool,
    /// When the workload's execve succeeded.
    pub executed_at: Option<Instant>,
    /// When the workload ended.
    pub ended_at: Option<Instant>,
    /// When every process of the tree was dead.
    pub dead_at: Option<Instant>,
}

/// Further facts for the report.
pub struct Findings {
    /// When the clone returned.
    pub cloned_at: Instant,
    /// The verified confinement.
    pub enforced: Enforced,
    /// The cgroup's counters.
    pub usage: Usage,
    /// The relayed output.
    pub output: Option<Output>,
}

/// Completes the blank report of a run that was started. `error` is the error that stands for the outcome's failure or error.
pub fn complete_report(
    mut report: Report,
    plan: &RunPlan,
    begun: Beginning,
    outcome: &Outcome,
    findings: Findings,
    error: Option<&Error>,
) -> Report {
    report.finished_at = report::timestamp(SystemTime::now());
    let between = |from: Option<Instant>, to: Option<Instant>| Some(micros(to?.saturating_duration_since(from?)));
    report.timings_us = Timings {
        setup: between(Some(begun.instant), Some(findings.cloned_at)),
        exec_wait: between(Some(findings.cloned_at), outcome.executed_at),
        run: between(outcome.executed_at, outcome.ended_at),
        teardown: between(outcome.ended_at, outcome.dead_at),
    };
    report.usage = findings.usage;
    report.usage.wall_us = report.timings_us.run;
    report.usage.disk.scratch_limit_bytes = outcome.executed_at.map(|_| plan.scratch.size_bytes);
    fill_rusage(&mut report.usage, outcome);
    report.output = findings.output;
    if let Some(error) = error {
        report.error = Some(error.into());
        report.exit_code = error.exit_code();
        let ran = outcome.executed_at.is_some();
        report.status = if ran { Status::InternalError } else { Status::SetupError };
        report.enforced = ran.then_some(findings.enforced);
        return report;
    }
    report.network = Some(NetworkRecord { mode: plan.namespaces.network });
    report.enforced = Some(findings.enforced);
    classify_end(&mut report, plan, outcome);
    report
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

fn fill_rusage(usage: &mut Usage, outcome: &Outcome) {
    if let Some(rusage) = &outcome.rusage {
        let count = |value: libc::c_long| u64::try_from(value).ok();
        usage.rusage = report::Rusage {
            minor_faults: count(rusage.ru_minflt),
            major_faults: count(rusage.ru_majflt),
            ctx_voluntary: count(rusage.ru_nvcsw),
            ctx_involuntary: count(rusage.ru_nivcsw),
        };
        if usage.cpu.source.is_none() {
            let micros = |time: libc::timeval| Some(time.tv_sec as u64 * 1_000_000 + time.tv_usec as u64);
            usage.cpu.user_us = micros(rusage.ru_utime);
            usage.cpu.system_us = micros(rusage.ru_stime);
            usage.cpu.total_us = usage.cpu.user_us.zip(usage.cpu.system_us).map(|(user, system)| user + system);
            usage.cpu.source = Some("rusage".to_owned());
        }
    }
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
pub fn silent_death(status: Option<i32>, usage: &Usage) -> Error {
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
