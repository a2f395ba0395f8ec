//! What is printed on standard error about the end of a run: that stockade ended it or that it reached a limit, its denials, and a
//! summary.

use std::fmt::Write as _;

use super::amounts::{about, size, time};
use super::{denials, final_write, notice};
use crate::args::Args;
use crate::plan::{Keep, OutputLimit, RunPlan};
use crate::report::{Report, Status, Stream};
use crate::run::signal_name;
use crate::session::protocol::Run;
use crate::session::record::Cause;

/// What is printed at the end.
#[derive(Clone, Copy, Debug)]
pub struct Ending {
    quiet: bool,
    lists_denials: bool,
    summary: bool,
    limits: Limits,
    /// Why the session of the command ends, if it does.
    session: Option<Cause>,
}

/// The limits that only the plan has. Those of the cgroup are in the report, as they were read back.
#[derive(Clone, Copy, Debug, Default)]
pub struct Limits {
    wall_us: Option<u64>,
    cpu_us: Option<u64>,
    idle_us: Option<u64>,
    output: Option<OutputLimit>,
    traffic_bytes: Option<u64>,
}

impl From<&RunPlan> for Limits {
    fn from(plan: &RunPlan) -> Self {
        let deadlines = plan.deadlines;
        Self {
            wall_us: deadlines.wall_us,
            cpu_us: deadlines.cpu_us,
            idle_us: deadlines.idle_us,
            output: plan.stdio.output_limit,
            traffic_bytes: plan.egress.as_ref().and_then(|egress| egress.budget_bytes),
        }
    }
}

impl From<&Run> for Limits {
    fn from(run: &Run) -> Self {
        let output = run.output_limit.map(|limit| OutputLimit { bytes: limit.bytes, keep: limit.keep });
        Self { wall_us: run.timeout_us, cpu_us: run.cpu_us, idle_us: run.idle_us, output, traffic_bytes: None }
    }
}

impl Ending {
    /// As the words ask for.
    pub fn new(args: &Args, limits: Limits) -> Self {
        let (quiet, summary) = (args.is_on("quiet"), args.is_on("summary"));
        Self { quiet, lists_denials: true, summary, limits, session: None }
    }

    /// The same for a run that is learned from, whose denials are recorded without being asked for.
    pub fn of_learning(args: &Args, limits: Limits) -> Self {
        let new = Self::new(args, limits);
        Self { lists_denials: !new.quiet || args.is_on("explain-denials"), ..new }
    }

    /// The same for a command whose session is ending.
    pub fn with_session(self, session: Option<Cause>) -> Self {
        Self { session, ..self }
    }

    /// The messages about a run that has ended, without its error.
    pub fn messages(&self, report: &Report) -> String {
        let mut text = String::new();
        if !self.quiet {
            // The error of a run that did not start says why. A reader that stalls must not hold up one that its deadline has ended.
            if report.status != Status::SetupError && final_write::is_writable(std::io::stderr()) {
                text.extend(self.limits.reached(report).iter().map(|line| notice(line)));
                text.extend(self.session.and_then(|cause| by_session(cause, report)).map(|line| notice(&line)));
            }
            if report.status == Status::SeccompKilled {
                text.push_str(&notice(&denials::kill_reason(report)));
            }
        }
        text.extend(denials::table(report).filter(|_| self.lists_denials).map(|table| notice(&table)));
        if self.summary {
            text.push_str(&notice(&summary(report)));
        }
        text
    }
}

/// A line about a command that its session ended.
fn by_session(cause: Cause, report: &Report) -> Option<String> {
    let what = match cause {
        _ if report.exit_code == 0 => return None,
        Cause::Lifetime => "the lifetime of the session is over (run -d --lifetime)",
        Cause::NetBudget => "the network budget of the session is used up (run -d --net-budget)",
        Cause::Stopped => "the session was stopped",
        Cause::Command => "the session's own command has ended",
        Cause::Idle | Cause::Failed => return None, // no command runs; or the error says why
    };
    Some(format!("{what}; {}", end(report)))
}

impl Limits {
    /// A line for each limit that the run reached, with the option that sets it. Only what was counted is said.
    fn reached(&self, report: &Report) -> Vec<String> {
        let of = |limit: Option<String>| limit.map(|limit| format!(" of {limit}")).unwrap_or_default();
        let how = end(report);
        let mut lines = Vec::new();
        match report.status {
            Status::TimeoutWall => {
                lines.push(format!("time limit{} reached (--timeout); {how}", of(self.wall_us.map(time))));
            }
            Status::TimeoutCpu => {
                lines.push(format!("CPU time limit{} reached (--cpu-time); {how}", of(self.cpu_us.map(time))));
            }
            Status::TimeoutIdle => {
                let long = self.idle_us.map_or("too long".to_owned(), time);
                lines.push(format!("no output for {long} (--idle-timeout); {how}"));
            }
            Status::NetBudget => {
                lines.push(format!("network budget{} used up (--net-budget); {how}", of(self.traffic_bytes.map(size))));
            }
            Status::OutputLimit => {
                let limit = of(self.output.map(|limit| size(limit.bytes)));
                lines.push(format!("output limit{limit} reached (--output-limit); {how}"));
            }
            _ => {}
        }
        let usage = &report.usage;
        if let Some(kills @ 1..) = usage.memory.oom_kills {
            let limit = of(usage.memory.limit_bytes.map(size));
            lines.push(format!("memory limit{limit} reached (--memory); the kernel killed {}", many(kills, "process")));
        }
        if report.status == Status::Oom && usage.memory.oom_kills.is_none() {
            lines.push("the session's memory limit was reached (--memory); the kernel killed the command".to_owned());
        }
        if let Some(refused @ 1..) = usage.pids.max_events {
            let limit = of(usage.pids.limit.map(|limit| many(limit, "process")));
            lines.push(format!("limit{limit} reached (--pids-limit); {} refused", many(refused, "fork")));
        }
        if report.status != Status::OutputLimit
            && let Some(output) = &report.output
        {
            let streams = [("output", &output.stdout), ("error", &output.stderr)];
            lines.extend(streams.into_iter().filter(|(_, stream)| stream.truncated).map(|stream| self.cut(stream)));
        }
        lines
    }

    fn cut(&self, (name, stream): (&str, &Stream)) -> String {
        let end = if self.output.is_some_and(|limit| limit.keep == Keep::Tail) { "last" } else { "first" };
        let (kept, all) = (stream.kept, stream.bytes);
        format!("only the {end} {kept} of {all} bytes of standard {name} were passed on (--output-limit)")
    }
}

/// How a run ended that was asked to.
fn end(report: &Report) -> String {
    match report.signal {
        Some(libc::SIGKILL) => "killed".to_owned(),
        Some(signal) => format!("ended by {}", signal_name(signal)),
        None => "it exited when it was asked to end".to_owned(),
    }
}

fn many(count: u64, thing: &str) -> String {
    let plural = match (count, thing.ends_with('s')) {
        (1, _) => "",
        (_, true) => "es",
        (_, false) => "s",
    };
    format!("{count} {thing}{plural}")
}

/// Five lines about a run, below a headline.
fn summary(report: &Report) -> String {
    let not_measured = || "not measured".to_owned();
    let status = serde_json::to_value(report.status).ok();
    let status = status.as_ref().and_then(|status| status.as_str()).unwrap_or_default();
    let seconds = |us: u64| format!("{}.{:03}s", us / 1_000_000, us / 1_000 % 1_000);
    let usage = &report.usage;
    let (cpu, memory) = (&usage.cpu, &usage.memory);
    let parts = cpu.user_us.zip(cpu.system_us);
    let parts = parts.map(|(user, system)| format!(" (user {}, system {})", seconds(user), seconds(system)));
    let limit = memory.limit_bytes.map_or("no limit".to_owned(), |limit| format!("limit {}", size(limit)));
    let peak = memory.peak_bytes.map_or_else(not_measured, |peak| format!("peak {}", about(peak)));
    let denied = match report.denials.as_deref() {
        None => "not recorded: --explain-denials does".to_owned(),
        Some(denials) => format!("{} in all", denials.iter().map(|denial| denial.count).sum::<u64>()),
    };
    let lines = [
        ("status", format!("{status}, exit code {}", report.exit_code)),
        ("wall", usage.wall_us.map_or_else(not_measured, seconds)),
        ("cpu", cpu.total_us.map_or_else(not_measured, |us| seconds(us) + &parts.unwrap_or_default())),
        ("memory", format!("{peak}, {limit}")),
        ("denials", denied),
    ];
    lines.into_iter().fold("summary".to_owned(), |mut text, (name, value)| {
        let _ = write!(text, "\n  {name:<8} {value}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Output;

    fn report(change: impl FnOnce(&mut Report)) -> Report {
        let mut report = Report::blank("one", None, std::time::SystemTime::UNIX_EPOCH);
        change(&mut report);
        report
    }

    #[test]
    fn each_limit_is_named_with_its_option() {
        let limits = Limits {
            wall_us: Some(1_500_000),
            cpu_us: Some(2_000_000),
            idle_us: Some(300_000),
            output: Some(OutputLimit { bytes: 10, keep: Keep::Tail }),
            traffic_bytes: Some(1 << 20),
        };
        type Change = fn(&mut Report);
        let said = |limits: Limits, change: Change| limits.reached(&report(change)).join("\n");
        let cases: [(Change, &str); 9] = [
            (
                |report| (report.status, report.signal) = (Status::TimeoutWall, Some(libc::SIGKILL)),
                "time limit of 1500ms reached (--timeout); killed",
            ),
            (
                |report| (report.status, report.signal) = (Status::TimeoutCpu, Some(libc::SIGTERM)),
                "CPU time limit of 2s reached (--cpu-time); ended by SIGTERM",
            ),
            (
                |report| report.status = Status::TimeoutIdle,
                "no output for 300ms (--idle-timeout); it exited when it was asked to end",
            ),
            (
                |report| (report.status, report.signal) = (Status::NetBudget, Some(libc::SIGKILL)),
                "network budget of 1M used up (--net-budget); killed",
            ),
            (
                |report| (report.status, report.signal) = (Status::OutputLimit, Some(libc::SIGKILL)),
                "output limit of 10 bytes reached (--output-limit); killed",
            ),
            (
                |report| (report.usage.memory.oom_kills, report.usage.memory.limit_bytes) = (Some(2), Some(64 << 20)),
                "memory limit of 64M reached (--memory); the kernel killed 2 processes",
            ),
            (
                |report| (report.usage.pids.max_events, report.usage.pids.limit) = (Some(1), Some(20)),
                "limit of 20 processes reached (--pids-limit); 1 fork refused",
            ),
            (
                |report| {
                    let cut = Stream { bytes: 100, kept: 10, truncated: true, ..Stream::default() };
                    report.output = Some(Output { stdout: Stream::default(), stderr: cut });
                },
                "only the last 10 of 100 bytes of standard error were passed on (--output-limit)",
            ),
            (|report| report.usage.pids.max_events = Some(0), ""),
        ];
        for (change, expected) in cases {
            assert_eq!(said(limits, change), expected);
        }
        assert_eq!(
            said(Limits::default(), |report| report.status = Status::TimeoutWall),
            "time limit reached (--timeout); it exited when it was asked to end"
        );
    }

    #[test]
    fn what_was_not_measured_is_said_as_such() {
        let nothing = summary(&report(|report| report.status = Status::Ok));
        assert_eq!(nothing.lines().count(), 6, "{nothing}");
        assert_eq!(nothing.matches("not measured").count(), 3, "{nothing}");
        assert!(nothing.contains("denials  not recorded"), "{nothing}");
        let full = summary(&report(|report| {
            (report.status, report.exit_code) = (Status::Oom, 137);
            report.usage.wall_us = Some(1_234_567);
            report.usage.cpu.total_us = Some(0);
            (report.usage.memory.peak_bytes, report.usage.memory.limit_bytes) = (Some(0), Some(64 << 20));
            report.denials = Some(Vec::new());
        }));
        let expected =
            ["status   oom, exit code 137", "wall     1.234s", "cpu      0.000s", "peak 0B, limit 64M", "0 in all"];
        assert!(expected.into_iter().all(|line| full.contains(line)), "{full}");
    }
}
