//! What is generated from the grammar and the types: completions, manual pages, JSON Schemas.
//!
//! The repository holds copies of all of it; a test compares them and says which command brings them up to date.

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use clap::Command;
use clap_complete::Shell;
use schemars::generate::SchemaSettings;

use super::grammar::{self, grammar};
use super::say;
use crate::error::{Error, Result, Step};
use crate::policy::Settings;
use crate::report::Report;

/// `stockade completions SHELL`.
pub fn completions(words: &[OsString]) -> Result<ExitCode> {
    let Some(matches) = super::read("completions", words)? else { return Ok(ExitCode::SUCCESS) };
    let shell = match matches.get_one::<String>("shell").map(String::as_str) {
        Some("zsh") => Shell::Zsh,
        Some("fish") => Shell::Fish,
        _ => Shell::Bash,
    };
    let mut out = Vec::new();
    clap_complete::generate(shell, &mut grammar(), "stockade", &mut out);
    say(&String::from_utf8_lossy(&out))
}

/// `stockade man [DIR]`.
pub fn man(words: &[OsString]) -> Result<ExitCode> {
    let Some(matches) = super::read("man", words)? else { return Ok(ExitCode::SUCCESS) };
    let Some(directory) = matches.get_one::<OsString>("dir") else { return say(&page(grammar())?) };
    let mut pages = vec![("stockade.1".to_owned(), page(grammar())?)];
    for (name, build) in grammar::VERBS {
        // A page of its own has the whole name: stockade-run(1).
        let command = build().name(format!("stockade-{name}")).bin_name(format!("stockade {name}"));
        pages.push((format!("stockade-{name}.1"), page(command.version(env!("CARGO_PKG_VERSION")))?));
    }
    for (name, text) in pages {
        let path = Path::new(directory).join(name);
        std::fs::write(&path, text).map_err(|error| {
            let errno = nix::errno::Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO));
            Error::errno(Step::Output, path.display().to_string(), errno)
        })?;
    }
    Ok(ExitCode::SUCCESS)
}

/// One manual page. Undated, so that it changes only when the grammar does.
fn page(command: Command) -> Result<String> {
    let mut out = Vec::new();
    let man = clap_mangen::Man::new(command).manual("Stockade").source(concat!("stockade ", env!("CARGO_PKG_VERSION")));
    man.render(&mut out).map_err(|error| Error::new(Step::Output, "manual page", error.to_string()))?;
    Ok(String::from_utf8_lossy(&out).into_owned())
}

/// `stockade schema policy|report`: not in the help, because it is for this repository.
pub fn schema(words: &[OsString]) -> Result<ExitCode> {
    let generator = || SchemaSettings::draft2020_12().into_generator();
    let schema = match words.first().and_then(|word| word.to_str()) {
        Some("policy") => generator().into_root_schema_for::<Settings>(),
        Some("report") => generator().into_root_schema_for::<Report>(),
        _ => return Err(Error::new(Step::Usage, "schema", "is policy or report")),
    };
    let text =
        serde_json::to_string_pretty(&schema).map_err(|error| Error::new(Step::Output, "schema", error.to_string()))?;
    say(&(text + "\n"))
}
