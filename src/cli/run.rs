//! `stockade run`: words → plan → run → report.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::SystemTime;

use nix::errno::Errno;

use super::report_file::ReportFile;
use super::{grammar, intake, warn};
use crate::error::{Error, Result, Step};
use crate::plan::{MountKind, Plan, Root};
use crate::report::Report;
use crate::sandbox;

/// Runs what the words say; the exit code is the report's. A report is written also when the words are wrong.
pub fn main(words: &[OsString]) -> Result<ExitCode> {
    let started = SystemTime::now();
    let fallback_id = intake::fresh_id();
    let matches = match super::read("run", words) {
        Ok(Some(matches)) => matches,
        Ok(None) => return Ok(ExitCode::SUCCESS),
        Err(error) => {
            let file = report_among(words).map(|target| ReportFile::open(&target)).transpose()?;
            return Err(refuse(file, &fallback_id, None, started, error));
        }
    };
    // Before anything else is looked at: a run whose report cannot be written does not start.
    let file = matches.get_one::<OsString>("report").map(|target| ReportFile::open(target)).transpose()?;
    let id = intake::id(&matches);
    let resolved = match id.clone().and_then(|id| intake::plan(&matches, id)) {
        Ok(resolved) => resolved,
        Err(error) => return Err(refuse(file, id.as_ref().unwrap_or(&fallback_id), None, started, error)),
    };
    for warning in &resolved.warnings {
        warn(warning);
    }
    finish(sandbox::run(&resolved.plan), &resolved.plan, file)
}

/// Writes the report of a run that never came to be, and hands the error on.
fn refuse(file: Option<ReportFile>, id: &str, plan: Option<&Plan>, started: SystemTime, error: Error) -> Error {
    let Some(file) = file else { return error };
    match file.write(&Report::not_started(id, plan, started, &error)) {
        Ok(()) => error,
        // The first error is the one to tell; the second is added to it.
        Err(second) => Error { hint: Some(format!("also: {second}")), ..error },
    }
}

/// Writes the report and turns it into an exit code.
fn finish(mut report: Report, plan: &Plan, file: Option<ReportFile>) -> Result<ExitCode> {
    if let Some(record) = report.error.as_mut().filter(|record| record.step == Step::Exec && record.hint.is_none()) {
        record.hint = outside_the_view(plan, record.errno);
    }
    let written = file.map_or(Ok(()), |file| file.write(&report));
    match (&report.error, written) {
        (Some(record), written) => {
            let mut error = Error::from(record);
            if let Err(second) = written {
                error.hint = Some(format!("{}also: {second}", error.hint.map(|hint| hint + "; ").unwrap_or_default()));
            }
            super::complain(&error);
            Ok(ExitCode::from(report.exit_code))
        }
        (None, Ok(())) => Ok(ExitCode::from(report.exit_code)),
        // The workload's own failure is worth more than ours.
        (None, Err(error)) if report.exit_code != 0 => {
            super::complain(&error);
            Ok(ExitCode::from(report.exit_code))
        }
        (None, Err(error)) => Err(error),
    }
}

/// For a command that is not in the sandbox but on the caller's PATH: the flag that would bring it in.
fn outside_the_view(plan: &Plan, errno: Option<i32>) -> Option<String> {
    if errno != Some(Errno::ENOENT as i32) || plan.root != Root::Synthetic {
        return None;
    }
    let name = Path::new(OsStr::from_bytes(plan.command.argv.first()?.as_bytes()));
    let found = match name.components().count() {
        1 => std::env::split_paths(&std::env::var_os("PATH")?)
            .map(|directory| directory.join(name))
            .find(|path| is_program(path))?,
        _ => Some(name.to_path_buf()).filter(|path| path.is_absolute() && is_program(path))?,
    };
    let seen = |path: &Path| {
        plan.mounts.iter().any(|mount| {
            matches!(mount.kind, MountKind::Bind { .. } | MountKind::AsHost)
                && path.starts_with(mount.destination.as_path())
        })
    };
    // What is behind a symlink has to be there too.
    let real = found.canonicalize().ok()?;
    if seen(&found) && seen(&real) {
        return None;
    }
    let directory = |path: &Path| path.parent().map(Path::to_path_buf).filter(|directory| directory != Path::new("/"));
    let mut missing: Vec<PathBuf> =
        [&found, &real].into_iter().filter(|path| !seen(path)).filter_map(|path| directory(path)).collect();
    missing.dedup();
    let flags: Vec<String> = missing.iter().map(|path| format!("--ro {}", path.display())).collect();
    let first = missing.first()?.display().to_string();
    let path = if name.components().count() == 1 { format!(" -e PATH={first}:/usr/bin:/bin") } else { String::new() };
    Some(format!("{} is on this host but outside the sandbox's view: {}{path}", found.display(), flags.join(" ")))
}

fn is_program(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    path.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

/// The value of `--report` in words that clap could not read: looked for where options are, by the grammar's own account
/// of which of them take a value, and never among the words of the command.
fn report_among(words: &[OsString]) -> Option<OsString> {
    let grammar = grammar::verb("run")?;
    let takes_value = |arg: Option<&clap::Arg>| arg.is_some_and(|arg| arg.get_action().takes_values());
    let mut found = None;
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let text = word.as_bytes();
        if let Some(value) = text.strip_prefix(b"--report=") {
            found = Some(OsStr::from_bytes(value).to_owned());
        } else if text == b"--report" {
            found = words.next().cloned();
        } else if text == b"--" || !text.starts_with(b"-") || text == b"-" {
            break;
        } else if let Some(long) = text.strip_prefix(b"--") {
            let long = grammar.get_arguments().find(|arg| arg.get_long().is_some_and(|name| name.as_bytes() == long));
            if takes_value(long) {
                words.next();
            }
        } else {
            // A cluster such as -itv: the first that takes a value has the rest of the word, or the next word.
            for (at, byte) in text.iter().enumerate().skip(1) {
                let short = grammar.get_arguments().find(|arg| arg.get_short() == Some(char::from(*byte)));
                if takes_value(short) {
                    if at + 1 == text.len() {
                        words.next();
                    }
                    break;
                }
            }
        }
    }
    found
}
