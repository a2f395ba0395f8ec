//! Writes errors and warnings to standard error and to the file of `--log`, whose last record engines read.

use std::io::Write as _;
use std::path::PathBuf;

use crate::error::{Error, printable};

/// The log.
#[derive(Debug, Default)]
pub struct Log {
    path: Option<PathBuf>,
    json: bool,
}

impl Log {
    /// Logs to this file, or only to standard error.
    pub fn new(path: Option<PathBuf>, json: bool) -> Self {
        Self { path, json }
    }

    /// Logs the error that ends the command.
    pub fn error(&self, error: &Error) {
        let text = sentence(error);
        self.write("error", &text);
        let _ = std::io::stderr().write_all(format!("{}\n", printable(&text)).as_bytes());
    }

    /// Logs a warning.
    pub fn warn(&self, text: &str) {
        if self.path.is_none() {
            let _ = std::io::stderr().write_all(format!("stockade-oci: warning: {}\n", printable(text)).as_bytes());
        }
        self.write("warning", text);
    }

    fn write(&self, level: &str, text: &str) {
        let Some(path) = &self.path else { return };
        let time = humantime::format_rfc3339_seconds(std::time::SystemTime::now());
        let line = match self.json {
            true => format!("{}\n", serde_json::json!({ "level": level, "msg": text, "time": time.to_string() })),
            false => format!("time=\"{time}\" level={level} msg={text:?}\n"),
        };
        let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
        let _ = file.and_then(|mut file| file.write_all(line.as_bytes()));
    }
}

/// An error on one line, with its hint.
pub fn sentence(error: &Error) -> String {
    let text = match &error.hint {
        Some(hint) => format!("{error} ({hint})"),
        None => error.to_string(),
    };
    text.replace('\n', " ")
}
