//! `stockade plan`: what a run would do, as text or JSON.

use std::ffi::OsString;

use super::{intake, plan_text, say, warn};
use crate::error::{Error, Result, Step, printable_json};
use crate::layers::root::resolved::{self, Resolved};
use crate::plan::RunPlan;

/// What `--json` prints: the plan, and what is known of it here.
#[derive(serde::Serialize)]
struct Shown<'a> {
    #[serde(flatten)]
    plan: &'a RunPlan,
    /// Sources that lead elsewhere than their paths say.
    resolved_sources: &'a [Resolved],
}

/// Prints the plan of these words; runs nothing and writes no report.
pub fn main(words: &[OsString]) -> Result<u8> {
    let Some(words) = super::read("plan", words)? else { return Ok(0) };
    let resolved = intake::plan(&words, intake::id(&words)?)?;
    for warning in &resolved.warnings {
        warn(warning);
    }
    let sources = resolved::sources(&resolved.plan)?;
    if words.on("json") {
        let json = serde_json::to_string_pretty(&Shown { plan: &resolved.plan, resolved_sources: &sources });
        let json = json.map_err(|error| Error::new(Step::Plan, "", error.to_string()))?;
        return say(&(printable_json(&json) + "\n"));
    }
    say(&plan_text::text(&resolved.plan, &sources))
}
