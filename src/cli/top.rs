//! `stockade top`: prints the running sandboxes and their resource usage, as a table or as lines of JSON, once a period.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::io::{ErrorKind, IsTerminal as _, Write as _};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use serde::Serialize;

use super::amounts::about;
use super::grammar::STOCKADE;
use super::ps::{self, labels_text};
use crate::args::{Args, Dialect};
use crate::cgroup::running::{Running, look};
use crate::error::{Error, Result, Step, printable};
use crate::plan::{Bytes, Network};
use crate::policy::label;
use crate::policy::value::{Deadline, Value as _};
use crate::report::timestamp;
use crate::run::egress::traffic;
use crate::sys::terminal;

/// The value of [`Frame::schema`].
const SCHEMA: &str = "stockade/top/v1";

/// One sample: a line of `--json`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(title = "Top"))]
pub struct Frame {
    /// Always [`SCHEMA`].
    schema: String,
    /// Time of the sample, RFC 3339 in UTC.
    taken_at: String,
    /// The sandboxes that have a cgroup, by name.
    sandboxes: Vec<Row>,
    /// Which other sandboxes may exist that cannot be seen; `null` if all can be seen.
    unseen: Option<String>,
}

/// A sandbox. `null` means not known, or not limited.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Row {
    /// Its name.
    id: String,
    /// The labels of its command line; those of a policy are in its report.
    labels: BTreeMap<String, String>,
    /// Process id of its supervisor.
    pid: Option<u32>,
    /// Time since the supervisor was started.
    age_us: Option<u64>,
    /// CPU time in percent of one CPU, since the last sample; in the first sample, since the start of the sandbox.
    cpu_percent: Option<f64>,
    /// CPU time so far.
    cpu_us: Option<u64>,
    /// Memory in use.
    memory_bytes: Option<u64>,
    /// Its memory limit.
    memory_limit_bytes: Option<u64>,
    /// Processes and threads.
    pids: Option<u64>,
    /// Its limit on processes and threads.
    pids_limit: Option<u64>,
    /// Its network: `egress` if it has rules for hosts, otherwise as given on the command line; `null` if a policy may say it.
    network: Option<&'static str>,
    /// Open connections to hosts and published ports; `null` without rules for hosts, and for another user's sandbox.
    connections: Option<u64>,
    /// Bytes that it has sent over such connections.
    bytes_sent: Option<u64>,
    /// Bytes that it has received over them.
    bytes_received: Option<u64>,
    /// Its cgroup.
    cgroup: String,
    /// The command that it runs, as given on the command line; empty for a session without one.
    command: Option<Vec<Bytes>>,
    /// `run`, or `session` for one that stays.
    kind: Option<&'static str>,
    /// How many commands of the session run, as `ps` says.
    commands: Option<u64>,
}

/// Prints samples until it is killed or the reader closes the pipe.
pub fn main(args: &Args) -> Result<u8> {
    let period = match args.value("interval") {
        None => Duration::from_secs(1),
        Some(word) => {
            let period = Deadline::parse(word.as_bytes());
            Duration::from_micros(period.map_err(|reason| Error::new(Step::Usage, "--interval", reason))?.get())
        }
    };
    let (once, json) = (args.is_on("once"), args.is_on("json"));
    let in_place = !once && !json && std::io::stdout().is_terminal();
    let mut before = Before::default();
    for number in 0.. {
        let frame = before.take_frame();
        let text = match (json, in_place) {
            (true, _) => serde_json::to_string(&frame).unwrap_or_default() + "\n",
            (false, true) => on_screen(&frame, number == 0),
            (false, false) => frame.lines().join("\n") + if once { "\n" } else { "\n\n" },
        };
        if !print(&text)? || once {
            break;
        }
        std::thread::sleep(period);
    }
    Ok(0)
}

/// Prints the text. Returns false if the reader closed the pipe.
fn print(text: &str) -> Result<bool> {
    let mut out = std::io::stdout();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Error::io(Step::Output, "standard output", &error)),
    }
}

/// The CPU time of each cgroup in the last sample, and the time of that sample.
#[derive(Debug, Default)]
struct Before(HashMap<PathBuf, (u64, Instant)>);

impl Before {
    fn take_frame(&mut self) -> Frame {
        let found = look();
        let mut now = HashMap::new();
        let sandboxes = found.sandboxes.iter().map(|one| self.row(one, &mut now)).collect();
        self.0 = now;
        Frame {
            schema: SCHEMA.to_owned(),
            taken_at: timestamp(SystemTime::now()),
            sandboxes,
            unseen: found.unseen.map(str::to_owned),
        }
    }

    fn row(&self, one: &Running, now: &mut HashMap<PathBuf, (u64, Instant)>) -> Row {
        let usage = one.usage();
        let cpu_us = usage.cpu.total_us;
        let taken = Instant::now();
        let (used_us, within) = match (cpu_us, self.0.get(&one.path)) {
            (Some(cpu_us), Some((before, at))) => (cpu_us.saturating_sub(*before), Some(taken - *at)),
            (cpu_us, _) => (cpu_us.unwrap_or(0), one.age),
        };
        if let Some(cpu_us) = cpu_us {
            now.insert(one.path.clone(), (cpu_us, taken));
        }
        let words: Option<Vec<OsString>> = one.words().map(|words| words.into_iter().map(OsString::from_vec).collect());
        let (kind, command) = words.as_deref().map(command).unzip();
        let counted = one.pid.and_then(traffic::of);
        let network = if counted.is_some() { Some(Network::Egress) } else { words.as_deref().and_then(network) };
        let percent = |within: Duration| (used_us as f64 / within.as_micros().max(1) as f64 * 1000.0).round() / 10.0;
        Row {
            id: one.id.clone(),
            labels: words.as_deref().map(labels).unwrap_or_default(),
            pid: one.pid,
            age_us: one.age.map(|age| u64::try_from(age.as_micros()).unwrap_or(u64::MAX)),
            cpu_percent: cpu_us.and(within).map(percent),
            cpu_us,
            memory_bytes: usage.memory.current_bytes,
            memory_limit_bytes: usage.memory.limit_bytes,
            pids: usage.pids.current,
            pids_limit: usage.pids.limit,
            network: network.map(Network::name),
            connections: counted.map(|counted| counted.connections),
            bytes_sent: counted.map(|counted| counted.sent_bytes),
            bytes_received: counted.map(|counted| counted.received_bytes),
            cgroup: one.path.display().to_string(),
            command,
            kind,
            commands: kind.filter(|kind| *kind == SESSION).and_then(|_| ps::commands(&one.id, one.pid?)),
        }
    }
}

/// The kind of a sandbox.
const RUN: &str = "run";
const SESSION: &str = "session";

/// What the words of `stockade run` make, and the command among them; all words if they are not those of `stockade run`.
fn command(words: &[OsString]) -> (&'static str, Vec<Bytes>) {
    let (args, _) = Args::read(&STOCKADE, Dialect::Stockade, words.get(1..).unwrap_or_default());
    let is_session = args.name() == "run" && args.is_on("detach");
    let is_run = args.name() == "run" && !args.words.is_empty();
    let words = if is_run || is_session { &args.words[..] } else { words };
    (if is_session { SESSION } else { RUN }, words.iter().map(Bytes::from).collect())
}

/// The network that the words of `stockade run` ask for, if no policy can ask for another.
fn network(words: &[OsString]) -> Option<Network> {
    let (args, _) = Args::read(&STOCKADE, Dialect::Stockade, words.get(1..)?);
    let has_rules = ["allow-net", "publish"].iter().any(|option| args.value(option).is_some());
    match (args.name().as_str(), super::network::mode(&args)) {
        ("run", _) if has_rules => Some(Network::Egress),
        ("run", Ok(Some(mode))) => Some(mode),
        ("run", Ok(None)) if args.value("profile").is_none() => Some(Network::Loopback),
        _ => None,
    }
}

/// The labels among the words of `stockade run`.
fn labels(words: &[OsString]) -> BTreeMap<String, String> {
    let (args, _) = Args::read(&STOCKADE, Dialect::Stockade, words.get(1..).unwrap_or_default());
    let labels = args.all("label").filter_map(|word| label::parse(word.as_encoded_bytes()).ok());
    labels.map(|(name, value)| (name.0, value.0)).collect()
}

impl Frame {
    fn lines(&self) -> Vec<String> {
        let shown: Vec<&Column> =
            COLUMNS.iter().filter(|column| self.sandboxes.iter().any(|row| column.is_shown(row))).collect();
        let head = shown.iter().map(|column| column.title.to_owned()).collect();
        let cells = |row: &Row| shown.iter().map(|column| column.cell(row)).collect();
        let rows: Vec<Vec<String>> = std::iter::once(head).chain(self.sandboxes.iter().map(cells)).collect();
        let widths: Vec<usize> = (0..shown.len())
            .map(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0))
            .collect();
        let of_row = |row: &Vec<String>| {
            let padded = row.iter().zip(&widths).enumerate().map(|(at, (cell, width))| match at {
                0 => format!("{cell:<width$}"),
                _ if at + 1 == row.len() => cell.clone(),
                _ => format!("{cell:>width$}"),
            });
            padded.collect::<Vec<_>>().join("  ")
        };
        let mut lines = match self.sandboxes.is_empty() {
            true => vec!["no sandboxes with a cgroup are running".to_owned()],
            false => rows.iter().map(of_row).collect(),
        };
        lines.extend(self.unseen.clone());
        lines
    }
}

/// A column of the table.
struct Column {
    title: &'static str,
    /// Whether it is left out if no sandbox has a value.
    if_any: bool,
    value: fn(&Row) -> Option<String>,
}

const fn column(title: &'static str, value: fn(&Row) -> Option<String>) -> Column {
    Column { title, if_any: false, value }
}

const fn if_any(title: &'static str, value: fn(&Row) -> Option<String>) -> Column {
    Column { title, if_any: true, value }
}

const COLUMNS: &[Column] = &[
    column("ID", |row| Some(printable(&row.id))),
    column("PID", |row| row.pid.map(|pid| pid.to_string())),
    column("AGE", |row| row.age_us.map(age)),
    column("CPU%", |row| row.cpu_percent.map(|percent| format!("{percent:.1}"))),
    column("MEMORY", |row| row.memory_bytes.map(about)),
    column("LIMIT", |row| row.memory_limit_bytes.map(about)),
    column("PIDS", |row| row.pids.map(|count| count.to_string())),
    if_any("COMMANDS", |row| row.commands.map(|count| count.to_string())),
    column("NETWORK", |row| row.network.map(str::to_owned)),
    if_any("OPEN", |row| row.connections.map(|count| count.to_string())),
    if_any("SENT", |row| row.bytes_sent.map(about)),
    if_any("RECEIVED", |row| row.bytes_received.map(about)),
    if_any("LABELS", |row| (!row.labels.is_empty()).then(|| labels_text(&row.labels))),
    column("COMMAND", |row| {
        let words = row.command.as_ref()?.iter().map(ToString::to_string);
        Some(words.collect::<Vec<_>>().join(" "))
    }),
];

impl Column {
    fn is_shown(&self, row: &Row) -> bool {
        !self.if_any || (self.value)(row).is_some()
    }

    fn cell(&self, row: &Row) -> String {
        (self.value)(row).unwrap_or_else(|| "-".to_owned())
    }
}

fn age(us: u64) -> String {
    let seconds = us / 1_000_000;
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{}h{:02}m", seconds / 3600, seconds / 60 % 60),
        _ => format!("{}d{:02}h", seconds / 86_400, seconds / 3600 % 24),
    }
}

/// Redraws the screen in place: lines are cut to its size, and the rest of the old content is erased.
fn on_screen(frame: &Frame, first: bool) -> String {
    let size = terminal::size(std::io::stdout()).unwrap_or(terminal::Size { rows: 24, columns: 80 });
    let (rows, columns) = (usize::from(size.rows).max(2), usize::from(size.columns).max(1));
    let mut text = if first { "\x1b[2J\x1b[H".to_owned() } else { "\x1b[H".to_owned() };
    for line in frame.lines().iter().take(rows - 1) {
        text.extend(line.chars().take(columns));
        text.push_str("\x1b[K\n");
    }
    text + "\x1b[J"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_for_people() {
        let ages = [0, 59, 61, 3600, 90_061].map(|seconds| age(seconds * 1_000_000));
        assert_eq!(ages, ["0s", "59s", "1m01s", "1h00m", "1d01h"]);
    }

    #[test]
    fn a_network_is_known_unless_a_policy_may_name_it() {
        let of = |line: &str| network(&line.split(' ').map(OsString::from).collect::<Vec<_>>());
        assert_eq!(of("stockade run -- sleep 5"), Some(Network::Loopback));
        assert_eq!(of("stockade run --network none -p x.toml -- sleep 5"), Some(Network::None));
        assert_eq!(of("stockade run -p x.toml --allow-net a.example -- sleep 5"), Some(Network::Egress));
        assert_eq!(of("stockade run -p x.toml -- sleep 5"), None);
        assert_eq!(of("my-program x"), None);
    }

    #[test]
    fn the_command_is_what_follows_the_options() {
        let of = |line: &str| {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            let (kind, seen) = command(&words);
            (kind, seen.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "))
        };
        assert_eq!(of("stockade run -m 1G --name x -- sleep 5"), (RUN, "sleep 5".to_owned()));
        assert_eq!(of("/usr/bin/stockade run -it sh -c --"), (RUN, "sh -c --".to_owned()));
        assert_eq!(of("stockade run -d --name x"), (SESSION, String::new()));
        assert_eq!(of("stockade run -d -m 1G sleep -d"), (SESSION, "sleep -d".to_owned()));
        assert_eq!(of("my-program run"), (RUN, "my-program run".to_owned()));
        assert_eq!(of("my-program"), (RUN, "my-program".to_owned()));
    }
}
