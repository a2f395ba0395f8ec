//! `stockade run -d`: words → plan → session.

use std::cell::Cell;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::time::{Duration, SystemTime};

use stockade_egress::change::Change;

use super::net_log::NetLog;
use super::records::Records;
use super::{error_text, id, lease, planning, run, say, warn};
use crate::args::Args;
use crate::error::{Error, Result, Step};
use crate::launch::signals::Blocked;
use crate::plan::RunPlan;
use crate::policy::trust::Guarded;
use crate::policy::value::{Deadline, Value as _};
use crate::session::detach::{Announcement, Detached, detach};
use crate::session::place::{Held, Home};
use crate::session::server::{Recorders, Terms, serve};
use crate::sys::walk::{Trail, to_place};

/// Makes a session, and prints its name when it is ready. The supervisor returns when the session has ended.
pub fn main(args: &Args, readable: Result<()>) -> Result<u8> {
    let lease = lease::open(args);
    let kept = lease.as_ref().ok().and_then(Option::as_ref).map(|lease| lease.as_fd());
    // Before anything else is opened or made, which then belongs to the supervisor alone.
    match detach(kept)? {
        Detached::Supervisor(announcement) => Ok(supervise(args, readable, lease, announcement)),
        Detached::Caller(waiting) => {
            let word = waiting.wait()?;
            match word.exit_code {
                0 => say(&word.text),
                code => {
                    super::print_text(&word.text);
                    Ok(code)
                }
            }
        }
    }
}

/// The life of a session, and its exit code, which only its log and record show.
fn supervise(args: &Args, readable: Result<()>, lease: Result<Option<OwnedFd>>, announcement: Announcement) -> u8 {
    let started = SystemTime::now();
    let (mut records, writable) = Records::open(args);
    let name = id::of(args);
    let known_name = name.clone().unwrap_or_default();
    let lease = writable.and(readable).and_then(|()| only_a_session(args)).and(lease);
    let opened = lease.and_then(|lease| Ok((lease, name?))).and_then(|(lease, name)| {
        let home = Home::make()?;
        let place = to_place(home.path());
        let place =
            place.map_err(|errno| Error::errno(Step::SessionPlace, home.path().display().to_string(), errno))?;
        let directory = Guarded::session(Trail::of_place(&place));
        let held = home.claim(&name)?;
        match planned(args, name, &mut records, directory) {
            Ok((plan, terms)) => Ok((held, plan, Terms { lease, ..terms })),
            Err(error) => Err(given_up(held, error)),
        }
    });
    let announcement = Cell::new(Some(announcement));
    let refused = |records: Records<'_>, error: &Error| {
        let error = run::refuse(records, &known_name, started, error);
        if let Some(announcement) = announcement.take() {
            announcement.refuse(error.exit_code(), &error_text(&error));
        }
        error.exit_code()
    };
    let (held, plan, terms) = match opened {
        Err(error) => return refused(records, &error),
        Ok(opened) => opened,
    };
    let signals = match Blocked::block() {
        Err(error) => return refused(records, &given_up(held, error)),
        Ok(signals) => signals,
    };
    let ready = || announcement.take().map_or(Ok(()), |announcement| announcement.ready(&held.place.name));
    let (lists_limits, quiet) = (records.report.is_some(), args.is_on("quiet"));
    let net_log = records.net_log.take().map(NetLog::into_fd);
    let audit = |change: &Change| records.add_change(&held.place.name, change);
    let recorders = Recorders { net_log, audit: &audit };
    match serve(&held, plan, terms, &signals, recorders, |warnings| run::tell(&warnings, lists_limits, quiet), ready) {
        Err(error) => refused(records, &given_up(held, error)),
        Ok(mut report) => {
            let written = records.write(&mut report, Some(&signals));
            if args.is_on("rm") {
                let _ = held.remove();
            }
            written.map_or_else(|error| error.exit_code(), |()| report.exit_code)
        }
    }
}

/// Removes the place of a session that does not come to be.
fn given_up(held: Held, error: Error) -> Error {
    let _ = held.remove();
    error
}

fn planned(args: &Args, name: String, records: &mut Records<'_>, directory: Guarded) -> Result<(RunPlan, Terms)> {
    let terms = Terms { lifetime: time(args, "lifetime")?, idle_stop: time(args, "idle-stop")?, lease: None };
    let loaded = planning::load(args)?;
    records.open_audit_of(&loaded.settings)?;
    let mut guarded = records.guarded();
    guarded.push(directory);
    let mut resolved = planning::resolve(args, name, loaded, guarded)?;
    if !resolved.plan.init {
        return Err(Error::new(Step::Plan, "init", "a session cannot be without its init, which starts its commands"));
    }
    run::only_with_rules(records, &resolved.plan)?;
    resolved.plan.policy_sha256 = resolved.plan.policy_hash();
    resolved.warnings.iter().filter(|_| !args.is_on("quiet")).for_each(|warning| warn(warning));
    Ok((resolved.plan, terms))
}

/// Refuses what a session cannot have.
fn only_a_session(args: &Args) -> Result<()> {
    let wrong = |flag: &str, reason: &str| Err(Error::new(Step::Usage, format!("--{flag}"), reason));
    for flag in ["interactive", "tty"] {
        if args.is_on(flag) {
            return wrong(flag, "cannot be used together with --detach: nobody is at the command's terminal or input");
        }
    }
    if args.is_on("summary") {
        return wrong("summary", "cannot be used together with --detach, which does not wait for the end");
    }
    if args.value("stats").is_some() {
        return wrong("stats", "cannot be used together with --detach");
    }
    for flag in ["report", "net-log"] {
        if args.value(flag).is_some_and(|target| target.as_bytes().starts_with(b"fd:")) {
            return wrong(flag, "cannot be a descriptor of the caller, which is gone when the session ends");
        }
    }
    Ok(())
}

fn time(args: &Args, flag: &str) -> Result<Option<Duration>> {
    let wrong = |reason: String| Error::new(Step::Usage, format!("--{flag}"), reason);
    let time = args.value(flag).map(|word| Deadline::parse(word.as_bytes())).transpose().map_err(wrong)?;
    Ok(time.map(|time| Duration::from_micros(time.get())))
}
