//! `stockade run`: words → plan → run → report.

use std::ffi::OsString;
use std::mem::ManuallyDrop;
use std::os::unix::ffi::OsStrExt as _;
use std::time::{Duration, SystemTime};

use super::records::{Records, and_also};
use super::report_file::{ReportFile, Stream};
use super::words::Words;
use super::{complaint, denials, grammar, intake, patience, told, warn};
use crate::error::{Error, Result, Step};
use crate::policy::value::{Deadline, Value as _};
use crate::report::{Report, Sample, Status};
use crate::sandbox::{self, Blocked, Sampler};

/// Runs what the words say; the exit code is the report's. A report is written also when the words are wrong.
pub fn main(words: &[OsString]) -> Result<u8> {
    let started = SystemTime::now();
    let Some(verb) = grammar::verb("run") else { return super::help(None) };
    let (words, readable) = Words::read(verb, words);
    if let Some(help) = words.help {
        return super::say(&verb.help(help));
    }
    // Before anything else is looked at: a run that cannot be recorded does not start.
    let (mut records, writable) = Records::open(&words);
    let id = intake::id(&words);
    let stats = stats(&words, records.report.as_mut());
    let known_id = id.clone().unwrap_or_default();
    let ready = writable.and(readable).and(id).and_then(|id| {
        let loaded = intake::load(&words)?;
        records.open_audit_of(&loaded.settings)?;
        let mut resolved = intake::resolve(&words, id, loaded, records.guarded())?;
        resolved.plan.stdio.relay = records.report.as_ref().is_some_and(ReportFile::is_in_a_stream);
        resolved.warnings.iter().for_each(|warning| warn(warning)); // while a signal still ends who waits for a reader
        Ok((resolved.plan, stats?, Blocked::block()?))
    });
    match ready {
        Err(error) => Err(refuse(records, &known_id, started, &error)),
        Ok((plan, stats, signals)) => {
            // Who waits for us waits until it is freed piece by piece, or for the end of the process, which frees it at once.
            let plan = ManuallyDrop::new(plan);
            let report = match stats {
                None => sandbox::run(&plan, &signals, None, warn_of_all),
                Some((period, stream)) => {
                    let sink = Box::new(|sample: &Sample| stream.line(sample));
                    sandbox::run(&plan, &signals, Some(Sampler { period, sink }), warn_of_all)
                }
            };
            Ok(finish(report, records, &signals))
        }
    }
}

/// Most warnings about one file that are shown.
const MOST_WARNINGS: usize = 8;

/// Says what should not go unnoticed about the files that a run is made of, and how much more there is to say.
fn warn_of_all(warnings: &[String]) {
    warnings.iter().take(MOST_WARNINGS).for_each(|warning| warn(warning));
    if let Some(more @ 1..) = warnings.len().checked_sub(MOST_WARNINGS) {
        warn(&format!("{more} more: `stockade seccomp check FILE` lists them"));
    }
}

/// What `--stats` asks for: a line a period, on the report's descriptor.
fn stats(words: &Words<'_>, file: Option<&mut ReportFile>) -> Result<Option<(Duration, Stream)>> {
    let Some(period) = words.one("stats") else { return Ok(None) };
    let wrong = |reason: String| Error::new(Step::Usage, "--stats", reason);
    let period = Deadline::parse(period.as_bytes()).map_err(wrong)?;
    let file = file.ok_or_else(|| wrong("needs --report fd:N, where its lines go".to_owned()))?;
    Ok(Some((Duration::from_micros(period.get()), file.stream()?)))
}

/// Records a run that never came to be, and hands the error on.
fn refuse(records: Records<'_>, id: &str, started: SystemTime, error: &Error) -> Error {
    let mut report = Report::not_started(id, None, started, error);
    let written = records.write(&mut report, None);
    let mut error = error.clone();
    error.hint = report.error.and_then(|record| record.hint); // with what became of the log
    if let Err(second) = written {
        error.hint = Some(and_also(error.hint, &second));
    }
    error
}

/// Records the run, says what there is to say of it, and turns its report into an exit code. Signals stay held back to the
/// end: those that still come are for a run that is over.
fn finish(report: Report, records: Records<'_>, signals: &Blocked) -> u8 {
    let mut report = ManuallyDrop::new(report); // as the plan
    let mut words = String::new();
    if report.status == Status::SeccompKilled {
        words.push_str(&told(&denials::of_the_killed(&report)));
    }
    if let Some(table) = denials::table(&report) {
        words.push_str(&told(&table));
    }
    let written = records.write(&mut report, Some(signals));
    match (&report.error, written) {
        (None, Ok(())) => {}
        (None, Err(error)) => {
            // Whatever the workload returned: what is found in the report's place is not this run's.
            report.exit_code = error.exit_code();
            words.push_str(&complaint(&error));
        }
        (Some(record), written) => {
            let mut error = Error::from(record);
            if let Err(second) = written {
                error.hint = Some(and_also(error.hint, &second));
            }
            words.push_str(&complaint(&error));
        }
    }
    if !words.is_empty() {
        let _ = patience::write(std::io::stderr(), words.as_bytes(), Some(signals));
    }
    report.exit_code
}
