//! `stockade run`: words → plan → run → report.

use std::io::Write as _;
use std::mem::ManuallyDrop;
use std::os::unix::ffi::OsStrExt as _;
use std::time::{Duration, SystemTime};

use super::ending::{Ending, Limits};
use super::net_log::NetLog;
use super::records::{Records, and_also};
use super::report_file::{ReportFile, Stream};
use super::{error_text, final_write, id, lease, planning, warn};
use crate::args::Args;
use crate::error::{Error, Result, Step};
use crate::launch::signals::Blocked;
use crate::launch::steps::{self, step};
use crate::plan::RunPlan;
use crate::policy::value::{Deadline, Value as _};
use crate::report::{Report, Sample};
use crate::run;
use crate::run::{Extras, Sampler};

/// Runs the command and returns the exit code of its report. A report is written also if the command line is wrong.
pub fn main(args: &Args, readable: Result<()>) -> Result<u8> {
    let started = SystemTime::now();
    if args.is_on("debug") {
        steps::show(|line| drop(std::io::stderr().write_all(format!("{line}\n").as_bytes())));
    }
    let readable = readable.and_then(|()| without_session(args));
    let lease = lease::open(args);
    // First, because a run that cannot be recorded does not start.
    let (mut records, writable) = Records::open(args);
    let id = id::of(args);
    let stats = stats(args, records.report.as_mut());
    let known_id = id.clone().unwrap_or_default();
    let quiet = args.is_on("quiet");
    let ready = writable.and(readable).and(id).and_then(|id| Ok((id, lease?))).and_then(|(id, lease)| {
        let loaded = planning::load(args)?;
        records.open_audit_of(&loaded.settings)?;
        let mut resolved = planning::resolve(args, id, loaded, records.guarded())?;
        resolved.plan.stdio.relay = records.report.as_ref().is_some_and(ReportFile::is_in_a_stream);
        only_with_rules(&records, &resolved.plan)?;
        // Before signals are blocked: if the reader stalls, a signal can still end this process.
        resolved.warnings.iter().filter(|_| !quiet).for_each(|warning| warn(warning));
        step("plan", || format!("sandbox {known_id}"));
        Ok((resolved.plan, stats?, lease, Blocked::block()?))
    });
    match ready {
        Err(error) => Err(refuse(records, &known_id, started, &error)),
        Ok((plan, stats, lease, signals)) => {
            // Not freed: the exit of the process frees the memory faster, and the caller waits for that exit.
            let plan = ManuallyDrop::new(plan);
            let net_log = records.net_log.take().map(NetLog::into_fd);
            let lists_limits = records.report.is_some();
            let tell = |warnings: run::Warnings<'_>| tell(&warnings, lists_limits, quiet);
            let ending = Ending::new(args, Limits::from(&*plan));
            let report = match stats {
                None => run::run(&plan, &signals, Extras { net_log, lease, ..Extras::default() }, tell),
                Some((period, stream)) => {
                    let sink = Box::new(|sample: &Sample| stream.line(sample));
                    let sampler = Some(Sampler { period, sink });
                    run::run(&plan, &signals, Extras { net_log, lease, sampler, touched: None }, tell)
                }
            };
            Ok(finish(report, records, &signals, ending))
        }
    }
}

/// Refuses a network log of a run without rules for hosts.
pub fn only_with_rules(records: &Records<'_>, plan: &RunPlan) -> Result<()> {
    if records.net_log.is_none() || plan.egress.is_some() {
        return Ok(());
    }
    let reason = "no host is allowed, so there is nothing to log";
    Err(Error::new(Step::Usage, "--net-log", reason).hint("--allow-net names hosts that may be reached"))
}

/// Refuses what only a session has.
fn without_session(args: &Args) -> Result<()> {
    let given = ["lifetime", "idle-stop"].into_iter().find(|flag| args.value(flag).is_some());
    let wrong = |flag: &str| Error::new(Step::Usage, format!("--{flag}"), "is about a session").hint("-d makes one");
    given.map_or(Ok(()), |flag| Err(wrong(flag)))
}

/// At most this many warnings about one file are shown.
const MOST_WARNINGS: usize = 8;

/// Prints the warnings of a start. A report lists what is not limited.
pub fn tell(warnings: &run::Warnings<'_>, lists_limits: bool, quiet: bool) {
    if quiet {
        return;
    }
    warnings.namespaces.iter().for_each(|line| warn(line));
    warn_all(warnings.profile);
    warnings.budget.iter().filter(|_| !lists_limits).for_each(|line| warn(line));
}

/// Prints the first warnings, and how many more there are.
fn warn_all(warnings: &[String]) {
    warnings.iter().take(MOST_WARNINGS).for_each(|warning| warn(warning));
    if let Some(more @ 1..) = warnings.len().checked_sub(MOST_WARNINGS) {
        warn(&format!("{more} more: `stockade seccomp check FILE` lists them"));
    }
}

/// The period of `--stats`, and the report's descriptor as the stream for its lines.
fn stats(args: &Args, file: Option<&mut ReportFile>) -> Result<Option<(Duration, Stream)>> {
    let Some(period) = args.value("stats") else { return Ok(None) };
    let wrong = |reason: String| Error::new(Step::Usage, "--stats", reason);
    let period = Deadline::parse(period.as_bytes()).map_err(wrong)?;
    let file = file.ok_or_else(|| wrong("needs --report fd:N, which receives its lines".to_owned()))?;
    Ok(Some((Duration::from_micros(period.get()), file.stream()?)))
}

/// Records a refused run, and returns the error.
pub fn refuse(records: Records<'_>, id: &str, started: SystemTime, error: &Error) -> Error {
    let mut report = Report::not_started(id, None, started, error);
    let written = records.write(&mut report, None);
    let mut error = error.clone();
    if let Some(record) = report.error {
        (error.option, error.hint) = (record.option, record.hint); // now also has the error of the audit log
    }
    if let Err(second) = written {
        error.hint = Some(and_also(error.hint, &second));
    }
    error
}

/// Records the run, prints its errors and what is said about its end, and returns its exit code. Signals stay blocked to
/// the end: those that arrive now are for a run that is over.
pub fn finish(report: Report, records: Records<'_>, signals: &Blocked, ending: Ending) -> u8 {
    let mut report = ManuallyDrop::new(report); // not freed, as the plan
    let mut messages = ending.messages(&report);
    let written = records.write(&mut report, Some(signals));
    match (&report.error, written) {
        (None, Ok(())) => {}
        (None, Err(error)) => {
            // Even if the workload succeeded: the file at the report's path is not this run's report.
            report.exit_code = error.exit_code();
            messages.push_str(&error_text(&error));
        }
        (Some(record), written) => {
            let mut error = Error::from(record);
            if let Err(second) = written {
                error.hint = Some(and_also(error.hint, &second));
            }
            messages.push_str(&error_text(&error));
        }
    }
    if !messages.is_empty() {
        let _ = final_write::write(std::io::stderr(), messages.as_bytes(), Some(signals));
    }
    report.exit_code
}
