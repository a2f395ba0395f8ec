//! `stockade learn`: runs a command once, sees what it uses, and writes a narrow policy under which it ran.

mod check;
mod collapse;
mod narrow;
mod paths;

use std::cell::RefCell;
use std::fs::File;
use std::io::{Read as _, Seek as _};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::SystemTime;

use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};

use self::check::{Again, Check};
use self::narrow::Narrowed;
use self::paths::Lesson;
use super::ending::{Ending, Limits};
use super::records::Records;
use super::report_file::ReportFile;
use super::why::view::{Found, View};
use super::{flags, id, notice, planning, print_text, run as running, warn};
use crate::args::Args;
use crate::error::{Error, Result, Step};
use crate::launch::signals::Blocked;
use crate::plan::{Bytes, RunPlan};
use crate::policy::Settings;
use crate::policy::trust::Guarded;
use crate::report::{Report, Status};
use crate::run::{self, Examined, Extras, Touched};

/// Most of the network log that is read.
const MOST_LOG: i64 = 16 << 20;

/// What cannot be used with `stockade learn`.
const NOT_HERE: [&str; 6] = ["detach", "lifetime", "idle-stop", "lease", "stats", "net-log"];

/// What the run begins with.
struct Beginning {
    policy: ReportFile,
    shown: String,
    settings: Settings,
    again: Again,
    plan: RunPlan,
    examined: Examined,
    first: Option<PathBuf>,
    signals: Blocked,
}

/// Runs the command, writes the policy, and returns 0 if it holds.
pub fn main(args: &Args, readable: Result<()>) -> Result<u8> {
    let started = SystemTime::now();
    // First, because a run that cannot be recorded does not start.
    let (mut records, writable) = Records::open(args);
    let id = id::of(args);
    let known_id = id.clone().unwrap_or_default();
    let ready = writable.and(readable).and_then(|()| begin(args, id?, &mut records));
    let begun = match ready {
        Err(error) => return Err(running::refuse(records, &known_id, started, &error)),
        Ok(begun) => begun,
    };
    let log = match network_log(&begun.plan) {
        Err(error) => return Err(running::refuse(records, &known_id, started, &error)),
        Ok(log) => log,
    };
    let touched = Rc::new(RefCell::new(Touched::default()));
    let (log, net_log) = log.unzip();
    let extras = Extras { net_log, touched: Some(Rc::clone(&touched)), ..Extras::default() };
    let (quiet, lists_limits) = (args.is_on("quiet"), records.report.is_some());
    let ending = Ending::of_learning(args, Limits::from(&begun.plan));
    let report = run::run(&begun.plan, &begun.signals, extras, |told| running::tell(&told, lists_limits, quiet));
    let lesson = report.clone();
    let code = running::finish(report, records, &begun.signals, ending);
    begun.signals.let_through();
    // A run that could not be recorded has failed, too.
    if code != lesson.exit_code || matches!(lesson.status, Status::SetupError | Status::InternalError) {
        return Ok(code);
    }
    let touched = touched.take();
    write(args, begun, &lesson, &touched, log)
}

fn begin(args: &Args, id: String, records: &mut Records<'_>) -> Result<Beginning> {
    if let Some(flag) = NOT_HERE.into_iter().find(|flag| args.is_on(flag)) {
        return Err(Error::new(Step::Usage, format!("--{flag}"), "cannot be used with `stockade learn`"));
    }
    let Some(output) = args.value("output") else {
        let error = Error::new(Step::Usage, "--output <FILE>", "is missing");
        return Err(error.hint("-o FILE names the file for the policy"));
    };
    let policy = ReportFile::open(output).map_err(|error| Error { step: Step::Learn, ..error })?;
    let mut loaded = planning::load(args)?;
    let settings = loaded.settings.clone();
    let proxy = settings.network.0.upstream_proxy.clone();
    loaded.settings.explain_denials = Some(true);
    records.open_audit_of(&loaded.settings)?;
    let cwd = std::env::current_dir().ok();
    let given = flags::settings(args, cwd.as_deref())?.settings.env;
    let mut files = records.guarded();
    files.push(Guarded::learned(policy.trail().clone()));
    let guarded = files.clone();
    files.extend(loaded.files.iter().cloned());
    let mut resolved = planning::resolve(args, id, loaded, guarded)?;
    resolved.plan.stdio.relay =
        [Some(&policy), records.report.as_ref()].into_iter().flatten().any(ReportFile::is_in_a_stream);
    if resolved.plan.confinement.landlock.is_none() {
        let error =
            Error::new(Step::Plan, "Landlock", "is off, and the paths of a learned policy are rules of Landlock");
        return Err(error.hint("run without --landlock off"));
    }
    let examined = run::examine(&resolved.plan)?;
    if !examined.has_namespaces {
        let reason = "this host makes no namespaces, and without them it cannot be seen which paths are used";
        return Err(Error::new(Step::Host, "namespaces", reason));
    }
    let first = program(&resolved.plan, &View::of(&resolved.plan, examined)?);
    if !args.is_on("quiet") {
        resolved.warnings.iter().for_each(|warning| warn(warning));
    }
    let (plan, shown) = (resolved.plan, Bytes::from(output).to_string());
    let again = Again { env: given, files, proxy };
    Ok(Beginning { policy, shown, settings, again, plan, examined, first, signals: Blocked::block()? })
}

/// Where the command is found, without symlinks.
fn program(plan: &RunPlan, view: &View<'_>) -> Option<PathBuf> {
    let name = plan.command.argv.first()?.as_path();
    let cwd = plan.command.cwd.as_path();
    let path = plan.command.env.iter().find_map(|variable| variable.as_bytes().strip_prefix(b"PATH="));
    let candidates: Vec<PathBuf> = match name.as_os_str().as_encoded_bytes().contains(&b'/') {
        true => vec![cwd.join(name)],
        false => {
            let directories = path.unwrap_or_default().split(|byte| *byte == b':');
            directories.map(|one| cwd.join(Bytes::from(one.to_vec()).as_path()).join(name)).collect()
        }
    };
    candidates.iter().find_map(|candidate| match view.locate(candidate, false) {
        Found::There(way) => way.last().filter(|node| !node.is_dir()).map(|node| node.path.clone()),
        _ => None,
    })
}

/// A file in memory for the lines of the network log, if the run has one, twice. It cannot grow beyond what is read of it: a line
/// that does not fit is an error of the log.
fn network_log(plan: &RunPlan) -> Result<Option<(File, OwnedFd)>> {
    if plan.egress.is_none() {
        return Ok(None);
    }
    let failed = |errno| Error::errno(Step::Egress, "network log", errno);
    let made = memfd_create(c"network log", MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING).map_err(failed)?;
    nix::unistd::ftruncate(&made, MOST_LOG).map_err(failed)?;
    fcntl(&made, FcntlArg::F_ADD_SEALS(SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SHRINK)).map_err(failed)?;
    let log = made.try_clone().map_err(|error| Error::io(Step::Egress, "network log", &error))?;
    Ok(Some((File::from(made), log)))
}

fn write(args: &Args, begun: Beginning, report: &Report, touched: &Touched, log: Option<File>) -> Result<u8> {
    let Beginning { policy, shown, settings, again, plan, examined, first, .. } = begun;
    let failed = |reason: &str| Error::new(Step::Learn, shown.clone(), reason);
    if touched.overflowed {
        return Err(failed("is not written: the command used more paths than are remembered"));
    }
    let mut lines = Vec::new();
    if let Some(mut log) = log {
        let read = log.rewind().and_then(|()| log.read_to_end(&mut lines));
        read.map_err(|error| Error::io(Step::Egress, "network log", &error))?;
    }
    let view = View::of(&plan, examined)?;
    let lists = Lesson { plan: &plan, view: &view, touched, first }.lists()?;
    let collapsed = lists.collapsed.clone();
    let mut narrowed = Narrowed::of(settings);
    if report.exit_code != 0 {
        narrowed.notes.push(format!(
            "The run ended with exit code {}: the policy lacks what it would have used after that.",
            report.exit_code
        ));
    }
    narrowed.without_secrets(again.env.set.keys());
    narrowed.paths(lists);
    narrowed.mounts(&plan, touched);
    narrowed.network(&plan, touched, &String::from_utf8_lossy(&lines));
    narrowed.limits(&report.usage);
    let program = plan.command.argv.first().cloned().unwrap_or_default();
    let text = narrowed.text(&program, &shown)?;
    let check = Check::of(&shown, &text, &narrowed.settings)?;
    policy.put(text.as_bytes(), None).map_err(|error| Error { step: Step::Learn, ..error })?;
    let quiet = args.is_on("quiet");
    if !quiet {
        let stands_for = |(directory, count): (&PathBuf, &usize)| {
            notice(&format!("{} stands for {count} paths below it", Bytes::from(directory.as_path())))
        };
        let notes = narrowed.notes.iter().map(|note| notice(note));
        print_text(&collapsed.iter().map(stands_for).chain(notes).collect::<String>());
    }
    let outcome = check.outcome(args, again, report);
    if !quiet || !outcome.holds {
        print_text(&notice(&format!("{shown}: {}", outcome.said)));
    }
    Ok(u8::from(!outcome.holds || report.exit_code != 0))
}
