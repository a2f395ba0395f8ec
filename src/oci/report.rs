//! The annotation `org.stockade.report`: what became of a container is written to a file when it is deleted.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::record::Record;
use super::store::{self, Held};
use crate::error::{Error, Result, Step};
use crate::report::{Report, Status, Usage};

/// The annotation.
const ANNOTATION: &str = "org.stockade.report";

/// How a container ended, as far as we know.
#[derive(Clone, Debug, Default)]
pub enum End {
    /// Whoever waited for it knows.
    #[default]
    Unknown,
    /// With this exit code, or 128 and the signal.
    Code(u8),
    /// It could not be made.
    Failed(Error),
}

/// Where a container's report goes, if there is to be one. Said before anything is made if that cannot be.
pub fn place(record: &Record) -> Result<Option<PathBuf>> {
    let Some(text) = record.annotations.get(ANNOTATION) else { return Ok(None) };
    let wrong = |reason: &str| Error::new(Step::Config, format!("annotation {ANNOTATION}: {text:?}"), reason);
    let path = PathBuf::from(text);
    if !path.is_absolute() || text.contains('\0') || path.file_name().is_none() {
        return Err(wrong("is no absolute path of a file"));
    }
    if !path.parent().is_some_and(Path::is_dir) {
        return Err(wrong("is in no directory that is there"));
    }
    if path.is_dir() {
        return Err(wrong("is a directory"));
    }
    Ok(Some(path))
}

/// Writes it. `usage` is what was counted before the cgroups went.
pub fn write(held: &Held, usage: Usage) -> Result<()> {
    let Some(path) = place(&held.record)? else { return Ok(()) };
    let started = humantime::parse_rfc3339(&held.record.created).unwrap_or_else(|_| SystemTime::now());
    let plan = held.plan().ok();
    let mut report = match &held.end {
        End::Failed(error) => Report::not_started(&held.record.id, plan.as_ref(), started, error),
        End::Code(code) => Report { exit_code: *code, ..Report::blank(&held.record.id, plan.as_ref(), started) },
        End::Unknown => {
            let code = held.record.exit_code();
            Report { exit_code: code.unwrap_or(255), ..Report::blank(&held.record.id, plan.as_ref(), started) }
        }
    };
    let known = !matches!(held.end, End::Unknown) || held.record.exit_code().is_some();
    let oom = usage.memory.oom_kills.is_some_and(|kills| kills > 0);
    if report.status != Status::SetupError {
        (report.status, report.signal) = match report.exit_code {
            _ if !known => (if oom { Status::Oom } else { Status::Unknown }, None),
            0 => (Status::Ok, None),
            137 if oom => (Status::Oom, Some(9)),
            code @ 129..=192 => (Status::Signaled, Some(i32::from(code) - 128)),
            _ => (Status::Nonzero, None),
        };
        report.enforced = held.record.enforced.clone();
    }
    report.usage = usage;
    let text = serde_json::to_vec_pretty(&report).unwrap_or_default();
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let written = store::write(path.parent().unwrap_or(Path::new("/")), name, &text);
    written.map_err(|error| Error { step: Step::Report, ..error })
}

impl Record {
    /// As long as nobody has waited for it: the exit code of its first process, or 128 and the signal.
    fn exit_code(&self) -> Option<u8> {
        if self.pid <= 0 || !self.is_of_this_boot() {
            return None;
        }
        let text = std::fs::read_to_string(format!("/proc/{}/stat", self.pid)).ok()?;
        let fields: Vec<&str> = text.rsplit_once(')')?.1.split_ascii_whitespace().collect();
        // The third field is the first of these; the start time is the 22nd, the wait status the 52nd.
        if fields.first() != Some(&"Z") || fields.get(19)?.parse() != Ok(self.started) {
            return None;
        }
        let status: i32 = fields.get(49)?.parse().ok()?;
        let code = if libc::WIFSIGNALED(status) { 128 + libc::WTERMSIG(status) } else { libc::WEXITSTATUS(status) };
        u8::try_from(code).ok()
    }
}
