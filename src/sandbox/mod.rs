//! PLACEHOLDER, replaced at merge by the real execution.

use crate::error::{Error, Step};
use crate::plan::Plan;
use crate::report::Report;

/// Runs the plan.
pub fn run(plan: &Plan) -> Report {
    let error = Error::new(Step::Clone, "", "placeholder: nothing can be run yet");
    Report::not_started(&plan.id, Some(plan), std::time::SystemTime::now(), &error)
}
