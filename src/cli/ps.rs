//! `stockade ps`: lists the sessions of this user.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::{Duration, SystemTime};

use serde::Serialize;
use serde_json::Value;

use super::say;
use crate::args::Args;
use crate::error::{Error, Result, Step, printable};
use crate::plan::Bytes;
use crate::session::client::Client;
use crate::session::place::{Home, Place, sweep};
use crate::session::protocol::Operation;
use crate::session::record::Record;

/// The value of [`Row::schema`].
const SCHEMA: &str = "stockade/ps/v1";
/// How long a session may delay the list.
const PATIENCE: Duration = Duration::from_secs(2);

/// A session.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(title = "Ps"))]
pub struct Row {
    /// Always [`SCHEMA`].
    schema: String,
    /// Its name.
    name: String,
    /// Its labels.
    labels: BTreeMap<String, String>,
    /// `starting`, `running`, `paused`, `ending`, `ended`, `silent` if it does not answer, or `damaged` if its record cannot be
    /// read.
    state: String,
    /// Host process id of its supervisor.
    pid: Option<i32>,
    /// When it was made, RFC 3339 in UTC.
    created_at: Option<String>,
    /// How many commands run.
    commands: Option<u64>,
    /// Memory in use.
    memory_bytes: Option<u64>,
    /// The exit code, if it has ended.
    exit_code: Option<u8>,
    /// Why it ended.
    cause: Option<String>,
    /// The command with which it was made; empty without one.
    command: Option<Vec<Bytes>>,
}

/// Prints the table, or lines of JSON.
pub fn main(args: &Args) -> Result<u8> {
    sweep()?;
    let Some(home) = Home::open()? else { return table(args, &[]) };
    let mut rows = Vec::new();
    for name in home.names()? {
        // A session that is removed meanwhile is left out.
        if let Ok(place) = home.place(&name) {
            rows.push(row(&place));
        }
    }
    table(args, &rows)
}

fn row(place: &Place) -> Row {
    let (record, locked) = (Record::of(place), place.is_alive());
    let damaged = record.is_err() || locked.is_err(); // which hides no other session
    let (record, alive) = (record.unwrap_or_default(), locked.unwrap_or_default());
    let end = record.as_ref().and_then(|record| record.end.as_ref());
    let mut row = Row {
        schema: SCHEMA.to_owned(),
        name: place.name.clone(),
        labels: record.as_ref().map(|record| record.plan.labels.clone()).unwrap_or_default(),
        state: if alive && end.is_none() { "starting" } else { "ended" }.to_owned(),
        pid: record.as_ref().map(|record| record.pid).filter(|_| alive),
        created_at: record.as_ref().map(|record| record.created_at.clone()),
        commands: None,
        memory_bytes: None,
        exit_code: end.map(|end| end.report.exit_code),
        cause: end.map(|end| end.cause.name().to_owned()),
        command: record.as_ref().map(|record| record.argv().to_vec()),
    };
    if damaged {
        row.state = "damaged".to_owned();
    }
    if alive && record.is_some() && end.is_none() {
        row.state = if place.has_socket() { "silent" } else { "ending" }.to_owned();
        if let Ok(status) = status(place) {
            let is = |name: &str| status.get(name).and_then(Value::as_bool) == Some(true);
            row.state = if is("ending") {
                "ending"
            } else if is("paused") {
                "paused"
            } else {
                "running"
            }
            .to_owned();
            row.commands = running(&status);
            row.memory_bytes = status.pointer("/usage/memory/current_bytes").and_then(Value::as_u64);
        }
    }
    row
}

fn running(status: &Value) -> Option<u64> {
    status.get("running").and_then(Value::as_array).map(|commands| commands.len() as u64)
}

/// How many commands run in the session of this user that has this name and this supervisor.
pub fn commands(name: &str, supervisor: u32) -> Option<u64> {
    let place = Home::open().ok()??.place(name).ok()?;
    let record = Record::of(&place).ok()??;
    if record.pid.cast_unsigned() != supervisor || record.end.is_some() || !place.is_alive().ok()? {
        return None;
    }
    running(&status(&place).ok()?)
}

/// What a session says about itself.
pub fn status(place: &Place) -> Result<Value> {
    let mut client = Client::over(place.connect()?, &place.name)?;
    client.patience(PATIENCE)?;
    let reply = client.ask(Operation::Status)?;
    let json = reply.status.as_ref().map_or("", |status| status.get());
    serde_json::from_str(json).map_err(|error| Error::new(Step::SessionConnect, &place.name, error.to_string()))
}

fn table(args: &Args, rows: &[Row]) -> Result<u8> {
    let mut text = String::new();
    if args.is_on("json") {
        for row in rows {
            let json = serde_json::to_string(row).unwrap_or_default();
            let _ = writeln!(text, "{}", crate::error::printable_json(&json));
        }
        return say(&text);
    }
    if args.is_on("quiet") {
        return say(&rows.iter().map(|row| format!("{}\n", row.name)).collect::<String>());
    }
    let width = rows.iter().map(|row| row.name.len()).max().unwrap_or(0).max(7);
    // Only if there are any.
    let labels: Vec<String> = rows.iter().map(|row| labels_text(&row.labels)).collect();
    let labels_width = labels.iter().map(|labels| labels.chars().count()).max().filter(|width| *width > 0);
    let labels_cell = |labels: &str| match labels_width {
        Some(width) => format!("  {labels:width$}", width = width.max(6)),
        None => String::new(),
    };
    let _ = writeln!(
        text,
        "{:width$}  {:12}  {:>8}  {:>8}  {:>8}{}  COMMAND",
        "SESSION",
        "STATE",
        "AGE",
        "COMMANDS",
        "MEMORY",
        labels_cell("LABELS")
    );
    for (row, labels) in rows.iter().zip(&labels) {
        let state = match (row.exit_code, row.state.as_str()) {
            (Some(code), "ended") => format!("ended ({code})"),
            (_, state) => state.to_owned(),
        };
        let words = row.command.iter().flatten().map(Bytes::to_string).collect::<Vec<_>>().join(" ");
        let words: String = words.chars().take(40).collect();
        let number = |number: Option<u64>| number.map_or("-".to_owned(), |number| number.to_string());
        let memory = row.memory_bytes.map_or("-".to_owned(), |bytes| format!("{}M", bytes >> 20));
        let _ = writeln!(
            text,
            "{:width$}  {state:12}  {:>8}  {:>8}  {memory:>8}{}  {}",
            row.name,
            age(row.created_at.as_deref()),
            number(row.commands),
            labels_cell(labels),
            printable(&words),
        );
    }
    say(&text)
}

/// Labels in one cell.
pub fn labels_text(labels: &BTreeMap<String, String>) -> String {
    let text =
        |(name, value): (&String, &String)| if value.is_empty() { name.clone() } else { format!("{name}={value}") };
    printable(&labels.iter().map(text).collect::<Vec<_>>().join(",")).replace(char::is_whitespace, " ")
}

fn age(created_at: Option<&str>) -> String {
    let created = created_at.and_then(|text| humantime::parse_rfc3339(text).ok());
    let Some(seconds) =
        created.and_then(|created| SystemTime::now().duration_since(created).ok()).map(|age| age.as_secs())
    else {
        return "-".to_owned();
    };
    match seconds {
        0..=99 => format!("{seconds}s"),
        100..=5999 => format!("{}m", seconds / 60),
        6000..=172_799 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}
