//! `stockade plan`: prints what a run would do, as text or JSON.

use super::{error_text, id, origin, plan_text, planning, print_text, say, warn};
use crate::args::Args;
use crate::error::{Error, Result, Step, printable_json};
use crate::plan::RunPlan;
use crate::report::ErrorRecord;
use crate::rootfs::resolved::{self, Resolved};
use crate::run;

/// The output of `--json`: the plan, and where its sources lead on this host.
#[derive(serde::Serialize)]
struct Shown<'a> {
    #[serde(flatten)]
    plan: &'a RunPlan,
    /// Sources whose paths contain symlinks, with the resolved path.
    resolved_sources: &'a [Resolved],
    /// Why this host would refuse the run.
    refused: Option<&'a ErrorRecord>,
}

/// Prints the plan. Runs nothing and writes no report.
pub fn main(args: &Args) -> Result<u8> {
    print(args).map_err(|error| with_option(args, error))
}

fn print(args: &Args) -> Result<u8> {
    let resolved = planning::plan(args, id::of(args)?)?;
    resolved.warnings.iter().filter(|_| !args.is_on("quiet")).for_each(|warning| warn(warning));
    let sources = resolved::sources(&resolved.plan)?;
    // The plan is shown all the same: it may be for another host.
    let refused = run::examine(&resolved.plan).err().map(|error| with_option(args, error));
    let code = shown(args, &resolved.plan, &sources, refused.as_ref())?;
    if let Some(error) = refused {
        print_text(&format!(
            "stockade: a run would be refused here: {}",
            error_text(&error).trim_start_matches("stockade: ")
        ));
    }
    Ok(code)
}

fn with_option(args: &Args, error: Error) -> Error {
    Error { option: origin::of(args, error.step, &error.object), ..error }
}

fn shown(args: &Args, plan: &RunPlan, sources: &[Resolved], refused: Option<&Error>) -> Result<u8> {
    if args.is_on("json") {
        let refused = refused.map(ErrorRecord::from);
        let json = serde_json::to_string_pretty(&Shown { plan, resolved_sources: sources, refused: refused.as_ref() });
        let json = json.map_err(|error| Error::new(Step::Plan, "", error.to_string()))?;
        return say(&(printable_json(&json) + "\n"));
    }
    say(&plan_text::text(plan, sources))
}
