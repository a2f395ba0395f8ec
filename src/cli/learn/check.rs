//! Whether a learned policy holds.

use crate::args::Args;
use crate::cli::ending::{Ending, Limits};
use crate::cli::{id, planning, print_text, run as running};
use crate::error::{Error, Result, Step};
use crate::launch::signals::Blocked;
use crate::policy::network::ProxySetting;
use crate::policy::trust::Guarded;
use crate::policy::{self, EnvSettings, Loaded, Settings};
use crate::report::{Report, Status};
use crate::run::{self, Extras};

/// A policy as the next run reads it.
pub struct Check {
    settings: Settings,
}

/// What a learned policy does not say, and a run under it takes from the run that it was learned from.
pub struct Again {
    /// Variables that were given with words.
    pub env: EnvSettings,
    /// Files that the command must not write.
    pub files: Vec<Guarded>,
    /// The way out of the host's network.
    pub proxy: Option<ProxySetting>,
}

/// What came of it.
pub struct Outcome {
    /// Whether a run under it starts and, if that was tried, does the same.
    pub holds: bool,
    /// In words.
    pub said: String,
}

impl Check {
    /// Reads the text of a policy, which must say exactly what was meant.
    pub fn of(name: &str, text: &str, meant: &Settings) -> Result<Self> {
        let settings = policy::load(&[], policy::parse(name, text)?, None)?.settings;
        let comparable = |settings: &Settings| {
            let mut one = settings.clone();
            one.budget.if_possible.sort();
            one
        };
        match comparable(&settings) == comparable(meant) {
            true => Ok(Self { settings }),
            false => {
                Err(Error::new(Step::Learn, name, "is not written: a setting of this run cannot be said in a policy"))
            }
        }
    }

    /// Plans a run under it, and makes one with `--check`.
    pub fn outcome(self, args: &Args, again: Again, learned: &Report) -> Outcome {
        match self.tried(args, again, learned) {
            Ok(outcome) => outcome,
            Err(error) => Outcome { holds: false, said: format!("does not hold: {error}") },
        }
    }

    fn tried(self, args: &Args, again: Again, learned: &Report) -> Result<Outcome> {
        let does_run = args.is_on("check");
        let mut settings = self.settings.overlaid_with(Settings { env: again.env, ..Settings::default() });
        settings.explain_denials = Some(does_run);
        if !settings.network.0.allow.is_empty() {
            settings.network.0.upstream_proxy = again.proxy; // without rules it is an error
        }
        let loaded = Loaded { settings, files: again.files };
        let plan = planning::resolve(args, id::fresh(), loaded, Vec::new())?.plan;
        if !does_run {
            run::examine(&plan)?;
            let said = "written; a run under it would start (--check runs the command under it)".to_owned();
            return Ok(Outcome { holds: true, said });
        }
        let signals = Blocked::block()?;
        let report = run::run(&plan, &signals, Extras::default(), |told| running::tell(&told, true, true));
        signals.let_through();
        print_text(&Ending::of_learning(args, Limits::from(&plan)).messages(&report));
        if let Some(error) = &report.error {
            return Err(Error::from(error));
        }
        let denied = |report: &Report| {
            let denials = report.denials.iter().flatten().filter(|denial| denial.layer != "view");
            denials.map(|denial| (denial.layer.clone(), denial.op.clone(), denial.target.clone())).collect::<Vec<_>>()
        };
        let before = denied(learned);
        let new = denied(&report).into_iter().filter(|denial| !before.contains(denial)).count();
        let same = (report.status, report.exit_code) == (learned.status, learned.exit_code);
        Ok(Outcome { holds: same && new == 0, said: said(same, new, report.status, report.exit_code) })
    }
}

fn said(same: bool, new: usize, status: Status, code: u8) -> String {
    match (same, new) {
        (true, 0) => {
            "written and checked: under it the command ended as before, and nothing more was denied".to_owned()
        }
        (true, new) => format!("written; under it the command ended as before, but {new} operations were newly denied"),
        (false, _) => {
            format!("written, but does not hold: under it the command ended with exit code {code} ({status:?})")
        }
    }
}
