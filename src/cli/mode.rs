//! Which kind of run this place can have: found by running a program that does nothing.

use std::ffi::OsStr;

use super::id;
use crate::doctor::Mode;
use crate::error::{Error, Result};
use crate::launch::signals::Blocked;
use crate::plan::{Budget, Facility, Keep, OutputLimit};
use crate::policy::{self, Caller};
use crate::report::{Report, Status};
use crate::{run, run::signal_name};

/// How long a trial may take.
const TIMEOUT_US: u64 = 3_000_000;

/// Tries the default policy, then the one that may lack what containers lack.
pub fn tried() -> Mode {
    let refused = match attempt(&[]) {
        Ok(_) => return Mode { name: "full".to_owned(), options: String::new(), lacks: Vec::new(), why: None },
        Err(error) => error,
    };
    match attempt(&["nested"]) {
        Ok(lacks) => {
            let (bare, nested) = (Facility::Namespaces.name(), "nested");
            let name = if lacks.iter().any(|lack| lack == bare) { "no namespaces" } else { nested };
            Mode { name: name.to_owned(), options: "-p nested".to_owned(), lacks, why: Some(refused.to_string()) }
        }
        Err(error) => {
            Mode { name: "none".to_owned(), options: String::new(), lacks: Vec::new(), why: Some(error.to_string()) }
        }
    }
}

/// One line.
pub fn line(mode: &Mode) -> String {
    let (lacks, options) = (mode.lacks.join(", "), &mode.options);
    match mode.name.as_str() {
        "full" => "Runs here: full, with every layer.".to_owned(),
        "nested" => format!("Runs here: nested, without {lacks} ({options})."),
        "none" => format!("Runs here: none ({}).", mode.why.as_deref().unwrap_or_default()),
        name => format!("Runs here: {name}, with Landlock, seccomp and limits alone ({options}); missing: {lacks}."),
    }
}

/// Runs `true` and returns what the run lacked. Budgets are left out: they depend on the run.
fn attempt(profiles: &[&str]) -> Result<Vec<String>> {
    let profiles: Vec<_> = profiles.iter().map(OsStr::new).collect();
    let settings = policy::load(&profiles, Default::default(), None)?.settings;
    let caller = Caller { env: Vec::new(), profile_sha256: None, id: id::fresh() };
    let mut plan = policy::resolve(settings, &["true".into()], &caller)?.plan;
    plan.budget = Budget::default();
    plan.deadlines.wall_us = Some(TIMEOUT_US);
    plan.stdio.output_limit = Some(OutputLimit { bytes: 0, keep: Keep::Head });
    let signals = Blocked::block()?;
    let report = run::run(&plan, &signals, run::Extras::default(), |_| {});
    signals.let_through();
    lacking(report)
}

fn lacking(report: Report) -> Result<Vec<String>> {
    use crate::error::Step;
    if let Some(record) = &report.error {
        return match record.step {
            Step::Exec | Step::Interpreter => Ok(Vec::new()), // this place has no `true`, but everything up to it worked
            _ => Err(Error::from(record)),
        };
    }
    if report.status == Status::TimeoutWall {
        return Err(Error::new(Step::Supervise, "true", "did not end"));
    }
    if let Some(signal) = report.signal {
        return Err(Error::new(Step::Exec, "true", format!("died of {}", signal_name(signal))));
    }
    let mut lacks: Vec<_> =
        report.enforced.into_iter().flat_map(|enforced| enforced.degraded).map(|one| one.what).collect();
    lacks.sort();
    lacks.dedup();
    Ok(lacks)
}
