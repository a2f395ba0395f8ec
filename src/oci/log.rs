//! Writes messages as records, in runc's formats: to the file of `--log`, whose last record engines read, or else to standard
//! error.

use std::fs::File;
use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::args::Args;
use crate::error::{Error, Result, Step, printable};

/// The importance of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// The steps of a start.
    Debug,
    /// No message has this level; engines may ask for it.
    Info,
    /// A setting that has no or another effect.
    #[default]
    Warn,
    /// The error that ends a command.
    Error,
}

/// The values of `--log-level`: those of crun, and the other names of the Go library that engines and runc log with.
const LEVELS: [(&str, Level); 8] = [
    ("trace", Level::Debug),
    ("debug", Level::Debug),
    ("info", Level::Info),
    ("warn", Level::Warn),
    ("warning", Level::Warn),
    ("error", Level::Error),
    ("fatal", Level::Error),
    ("panic", Level::Error),
];

/// The log.
#[derive(Clone, Debug, Default)]
pub struct Log {
    path: Option<PathBuf>,
    json: bool,
    /// Messages below it are left out.
    level: Level,
}

impl Log {
    /// The log that the options ask for. If one of them is wrong, the log has the default instead and the error can be logged.
    pub fn of(args: &Args) -> (Self, Result<()>) {
        let (json, format) = match args.value("log-format") {
            None => (false, Ok(())),
            Some(format) if format == "json" || format == "text" => (format == "json", Ok(())),
            Some(other) => (false, Err(wrong("--log-format", &other.to_string_lossy(), "must be text or json"))),
        };
        let read = match args.value("log-level") {
            None => Ok(Level::default()),
            Some(name) => {
                let known = LEVELS.iter().find(|(known, _)| name.eq_ignore_ascii_case(known));
                known
                    .map(|(_, level)| *level)
                    .ok_or_else(|| wrong("--log-level", &name.to_string_lossy(), "must be debug, info, warn or error"))
            }
        };
        let level = if args.is_on("debug") { Level::Debug } else { *read.as_ref().unwrap_or(&Level::default()) };
        let (path, opened) = match args.path("log").map(destination).transpose() {
            Ok(path) => {
                let opened = path.as_ref().map_or(Ok(()), |path| {
                    open(path).map(drop).map_err(|error| Error::io(Step::Output, path.display().to_string(), &error))
                });
                (path, opened)
            }
            Err(error) => (None, Err(error)),
        };
        (Self { path, json, level }, read.map(drop).and(format).and(opened))
    }

    /// Whether messages of this level are logged.
    pub fn has(&self, level: Level) -> bool {
        level >= self.level
    }

    /// Logs the error that ends the command. With a file, standard error gets the message as well.
    pub fn error(&self, error: &Error) {
        let text = sentence(error);
        self.write("error", &text);
        if self.path.is_some() {
            to_stderr(&printable(&text));
        }
    }

    /// Logs a step of a start.
    pub fn debug(&self, step: &str) {
        self.write("debug", step);
    }

    /// Logs a warning.
    pub fn warn(&self, text: &str) {
        if self.has(Level::Warn) {
            self.write("warning", text);
        }
    }

    fn write(&self, level: &str, text: &str) {
        let Some(path) = &self.path else {
            // A person reads a terminal, and programs read everything else.
            let plain = !self.json && std::io::stderr().is_terminal();
            return to_stderr(&if plain { format!("{level}: {}", printable(text)) } else { self.record(level, text) });
        };
        let _ = open(path).and_then(|mut file| file.write_all(format!("{}\n", self.record(level, text)).as_bytes()));
    }

    /// A record as engines parse it.
    fn record(&self, level: &str, text: &str) -> String {
        let time = humantime::format_rfc3339_seconds(std::time::SystemTime::now());
        match self.json {
            true => json!({ "level": level, "msg": text, "time": time.to_string() }).to_string(),
            false => format!("time=\"{time}\" level={level} msg={}", json!(printable(text))),
        }
    }
}

fn to_stderr(line: &str) {
    let _ = std::io::stderr().write_all(format!("{line}\n").as_bytes());
}

fn open(path: &Path) -> std::io::Result<File> {
    File::options().create(true).append(true).open(path)
}

/// The file that `--log` names: its path, or `file:` and its path as with crun.
fn destination(given: PathBuf) -> Result<PathBuf> {
    let text = given.to_string_lossy();
    if ["journald:", "syslog:"].iter().any(|backend| text.starts_with(backend)) {
        return Err(wrong("--log", &text, "is not supported: name a file"));
    }
    Ok(text.strip_prefix("file:").map(PathBuf::from).unwrap_or(given))
}

fn wrong(option: &str, value: &str, reason: &str) -> Error {
    Error::new(Step::Usage, format!("{option} {value}"), reason)
}

/// An error on one line, with its hint.
pub fn sentence(error: &Error) -> String {
    let text = match &error.hint {
        Some(hint) => format!("{error} ({hint})"),
        None => error.to_string(),
    };
    text.replace('\n', " ")
}
