//! The record of a session: what is known of it when no supervisor can be asked.

use serde::{Deserialize, Serialize};

use super::place::Place;
use crate::error::{Error, Result, Step};
use crate::plan::{Bytes, RunPlan};
use crate::report::Report;

/// The value of [`Record::schema`].
pub const SCHEMA: &str = "stockade/session-record/v1";

/// The record of a session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Always [`SCHEMA`].
    pub schema: String,
    /// The session's name.
    pub name: String,
    /// Host process id of its supervisor.
    pub pid: i32,
    /// When it was made, RFC 3339 in UTC.
    pub created_at: String,
    /// Its plan.
    pub plan: RunPlan,
    /// How it ended; `null` as long as it runs, and if its supervisor was killed.
    pub end: Option<End>,
}

/// The end of a session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct End {
    /// Why it ended.
    pub cause: Cause,
    /// The report of its own command; without one, of the sandbox.
    pub report: Report,
    /// What is kept of the output of its own command; `null` without one.
    pub output: Option<Output>,
}

/// The output of a session's own command, for `stockade logs`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Output {
    /// Standard output.
    pub stdout: Stream,
    /// Standard error.
    pub stderr: Stream,
    /// Why nothing of it could be kept; `null` if it is.
    pub lost: Option<String>,
}

/// One stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stream {
    /// The last bytes, which are kept.
    pub kept_bytes: u64,
    /// Those that came before them, and are not.
    pub dropped_bytes: u64,
}

/// Why a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// Its own command ended.
    Command,
    /// A request or a signal stopped it.
    Stopped,
    /// Its lifetime was over.
    Lifetime,
    /// It was not used for too long.
    Idle,
    /// Its network traffic reached the budget.
    NetBudget,
    /// Its sandbox died, or its supervisor failed.
    Failed,
}

impl Cause {
    /// As in the record.
    pub fn name(self) -> &'static str {
        match self {
            Self::Command => "command",
            Self::Stopped => "stopped",
            Self::Lifetime => "lifetime",
            Self::Idle => "idle",
            Self::NetBudget => "net_budget",
            Self::Failed => "failed",
        }
    }
}

impl Record {
    /// The record of a place; `None` if its session never was ready.
    pub fn of(place: &Place) -> Result<Option<Self>> {
        let wrong = |error: serde_json::Error| {
            Error::new(Step::SessionPlace, &place.name, format!("its record is damaged: {error}"))
        };
        place.read_record()?.map(|json| serde_json::from_slice(&json).map_err(wrong)).transpose()
    }

    /// As JSON.
    pub fn json(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// The command with which the session was made.
    pub fn argv(&self) -> &[Bytes] {
        &self.plan.command.argv
    }
}
