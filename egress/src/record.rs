//! What is recorded of the traffic: a line of JSON for each connection and refused name, and the totals.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// The value of [`Line::schema`].
pub const SCHEMA: &str = "stockade/net-log/v1";

/// A line of the network log: a connection, or a name that was refused.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Line {
    /// Always [`SCHEMA`].
    pub schema: String,
    /// When the connection or the question came, RFC 3339 in UTC.
    pub time: String,
    /// Name of the sandbox.
    pub id: String,
    /// The command: `main`, or in a session its id; `null` if it is not known for certain.
    pub command: Option<String>,
    /// What it was.
    pub event: Event,
    /// The name; `null` if the workload connected to an address.
    pub name: Option<String>,
    /// The rule that allowed it; `null` if none did.
    pub rule: Option<String>,
    /// The address that was dialled, or that the workload connected to.
    pub address: Option<IpAddr>,
    /// The TCP port; `null` for a question.
    pub port: Option<u16>,
    /// The server name of TLS that the workload sent.
    pub server_name: Option<String>,
    /// Bytes from the workload.
    pub bytes_sent: u64,
    /// Bytes to the workload.
    pub bytes_received: u64,
    /// From its beginning to its end.
    pub duration_us: u64,
    /// How it ended.
    pub result: Outcome,
    /// Why it was refused, or failed.
    pub reason: Option<String>,
    /// Lines before this one that were dropped, because the reader of the log was too slow.
    pub lost: u64,
}

/// The kinds of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// A connection of the workload.
    Connection,
    /// A question for a name.
    Name,
    /// A connection from outside to a published port: `address` is the client's, `port` the sandbox's.
    Published,
}

/// How an event ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Both sides closed it.
    Closed,
    /// It was not allowed.
    Refused,
    /// It was allowed, but failed.
    Failed,
}

/// The totals of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Totals {
    /// Connections to hosts outside.
    pub connections: u64,
    /// Connections to published ports.
    #[serde(default)]
    pub published: u64,
    /// Connections and names that were refused.
    pub refused: u64,
    /// Bytes from the workload.
    pub bytes_sent: u64,
    /// Bytes to the workload.
    pub bytes_received: u64,
    /// The same for each rule, in the order of the rules.
    pub rules: Vec<RuleTotals>,
    /// What was refused, each once.
    pub refusals: Vec<Refusal>,
    /// Refusals of more names and addresses than are listed.
    pub refusals_unlisted: u64,
    /// Lines of the network log that were dropped, because its reader was too slow.
    #[serde(default)]
    pub log_lines_lost: u64,
}

/// The totals of a rule.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RuleTotals {
    /// The rule.
    pub rule: String,
    /// Connections that it allowed.
    pub connections: u64,
    /// Bytes from the workload.
    pub bytes_sent: u64,
    /// Bytes to the workload.
    pub bytes_received: u64,
}

/// A name or address that was refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Refusal {
    /// The name or address.
    pub host: String,
    /// The TCP port; `null` if only the name was asked for.
    pub port: Option<u16>,
    /// Why.
    pub reason: String,
    /// How often.
    pub count: u64,
}
