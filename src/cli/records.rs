//! The records of a run: its report, and its line in the audit log. A refused run has both too.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use stockade_egress::change::Change;

use super::net_log::NetLog;
use super::origin;
use super::report_file::{self, ReportFile};
use crate::args::Args;
use crate::audit::{Line, Log, locate};
use crate::error::{Error, Result, Step};
use crate::launch::signals::Blocked;
use crate::plan::Bytes;
use crate::policy::Settings;
use crate::policy::path::HostPath;
use crate::policy::trust::Guarded;
use crate::report::{ErrorRecord, Report, Status, argv_sha256};
use crate::sys::walk::Trail;

/// Records that were opened before the run starts, so that a run that cannot be recorded does not start.
#[derive(Debug)]
pub struct Records<'a> {
    /// The destination of the report.
    pub report: Option<ReportFile>,
    /// The destination of the network log.
    pub net_log: Option<NetLog>,
    audit: Option<Log>,
    /// The words, for the audit line of a run that was refused before it had a plan, and for the option of an error.
    args: &'a Args,
}

impl<'a> Records<'a> {
    /// Opens the records that the words name. If one fails, the other is still opened, to record that error.
    pub fn open(args: &'a Args) -> (Self, Result<()>) {
        let mut records = Self { report: None, net_log: None, audit: None, args };
        let report = args.value("report").map(ReportFile::open).transpose().map(|file| records.report = file);
        let sync = args.is_on("audit-sync");
        let audit = args.value("audit").map(|path| Log::open(path, sync)).transpose().map(|log| records.audit = log);
        let net_log = args.value("net-log").map(NetLog::open).transpose().map(|log| records.net_log = log);
        (records, report.and(audit).and(net_log))
    }

    /// Opens the audit log that a policy names, unless a flag named one.
    pub fn open_audit_of(&mut self, settings: &Settings) -> Result<()> {
        let sync = settings.audit_sync == Some(true);
        if sync && settings.audit.is_none() {
            let reason = "there is no audit log to sync";
            return Err(Error::new(Step::Plan, "audit_sync", reason).hint("name one with --audit FILE"));
        }
        if let (None, Some(HostPath(path))) = (&self.audit, &settings.audit) {
            self.audit = Some(Log::open(path.as_path().as_os_str(), sync)?);
        } else if let Some(log) = &mut self.audit {
            log.set_sync(sync);
        }
        Ok(())
    }

    /// Appends a change of a session's rules to the audit log, if there is one.
    pub fn add_change(&self, id: &str, change: &Change) -> Result<()> {
        self.audit.as_ref().map_or(Ok(()), |log| log.append(Line::of_change(id, change)))
    }

    /// The locations of the records, which the workload must not be able to write.
    pub fn guarded(&self) -> Vec<Guarded> {
        let report = self.report.iter().map(|file| Guarded::report(file.trail().clone()));
        let net_log = self.net_log.iter().map(|log| Guarded::net_log(log.trail().clone()));
        report.chain(net_log).chain(self.audit.iter().map(|log| Guarded::audit(log.trail().clone()))).collect()
    }

    /// Appends to the log, then writes the report, so that an error of the log is in the report: a run that is not
    /// recorded has failed. Blocked signals are delivered if writing stalls.
    pub fn write(self, report: &mut Report, held: Option<&Blocked>) -> Result<()> {
        if let Some(error) = &mut report.error {
            error.option = origin::of(self.args, error.step, &error.object);
        }
        let mut line = Line::of(report);
        if line.argv_sha256.is_none() && !self.args.words.is_empty() {
            line.argv_sha256 = Some(argv_sha256(self.args.words.iter().map(|word| word.as_bytes())));
        }
        if let Some(Err(error)) = self.audit.map(|log| log.append(line)) {
            add_error(report, &error);
        }
        self.report.map_or(Ok(()), |file| file.write(report, held))
    }
}

/// The locations that the records would have. No record is opened.
pub fn located(args: &Args, settings: &Settings) -> Result<Vec<Guarded>> {
    let report = args.value("report").map(report_file::locate).transpose()?.flatten();
    let policys = settings.audit.as_ref().map(|HostPath(path)| path.as_path().as_os_str());
    let refused = |error: Error, path: &OsStr| Error { object: Bytes::from(path).to_string(), ..error };
    let audit = policys.map(|path| locate(path).map_err(|error| refused(error, path))).transpose()?;
    let audit = audit.map(|place| Guarded::audit(Trail::of_place(&place)));
    Ok(report.map(Guarded::report).into_iter().chain(audit).collect())
}

/// Adds the error of the log to the report. An earlier error stays the main one.
fn add_error(report: &mut Report, error: &Error) {
    match &mut report.error {
        Some(first) => first.hint = Some(and_also(first.hint.take(), error)),
        None => {
            (report.status, report.exit_code) = (Status::InternalError, error.exit_code());
            report.error = Some(ErrorRecord::from(error));
        }
    }
}

/// Appends a second error to a hint.
pub fn and_also(hint: Option<String>, second: &Error) -> String {
    format!("{}also: {second}", hint.map(|hint| hint + "; ").unwrap_or_default())
}
