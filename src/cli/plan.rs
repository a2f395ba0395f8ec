//! `stockade plan`: prints what a run would do, as text or JSON.

use super::{id, plan_text, planning, say, warn};
use crate::args::Args;
use crate::error::{Error, Result, Step, printable_json};
use crate::plan::RunPlan;
use crate::rootfs::resolved::{self, Resolved};

/// The output of `--json`: the plan, and where its sources lead on this host.
#[derive(serde::Serialize)]
struct Shown<'a> {
    #[serde(flatten)]
    plan: &'a RunPlan,
    /// Sources whose paths contain symlinks, with the resolved path.
    resolved_sources: &'a [Resolved],
}

/// Prints the plan. Runs nothing and writes no report.
pub fn main(args: &Args) -> Result<u8> {
    let resolved = planning::plan(args, id::of(args)?)?;
    for warning in &resolved.warnings {
        warn(warning);
    }
    let sources = resolved::sources(&resolved.plan)?;
    if args.is_on("json") {
        let json = serde_json::to_string_pretty(&Shown { plan: &resolved.plan, resolved_sources: &sources });
        let json = json.map_err(|error| Error::new(Step::Plan, "", error.to_string()))?;
        return say(&(printable_json(&json) + "\n"));
    }
    say(&plan_text::text(&resolved.plan, &sources))
}
