//! Reading a command line: clap finds the words, and what is wrong with them is said in our own.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{ArgMatches, Command};

use crate::error::{Error, Result, Step};

/// What a command line is.
pub enum Read {
    /// Its words.
    Matches(ArgMatches),
    /// A request for help; this is the text.
    Help(String),
}

/// The words after the verb.
pub fn read(grammar: Command, words: &[OsString]) -> Result<Read> {
    let name = grammar.get_bin_name().unwrap_or("stockade").to_owned();
    let grammar = grammar.no_binary_name(true);
    match grammar.try_get_matches_from(words) {
        Ok(matches) => Ok(Read::Matches(matches)),
        Err(error) if error.kind() == ErrorKind::DisplayHelp => Ok(Read::Help(error.render().to_string())),
        Err(error) => Err(explain(&name, &error)),
    }
}

fn explain(name: &str, error: &clap::Error) -> Error {
    let said = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        Some(ContextValue::Strings(texts)) => texts.first().cloned(),
        _ => None,
    };
    // clap shows an argument as `--memory <SIZE>`.
    let shown = said(ContextKind::InvalidArg).unwrap_or_default();
    let argument = shown.split([' ', '=']).next().unwrap_or_default().to_owned();
    let see = format!("see `{} --help`", name);
    match error.kind() {
        ErrorKind::UnknownArgument => {
            let error = Error::new(Step::Usage, shown, format!("is not an option of `{name}`"));
            match said(ContextKind::SuggestedArg) {
                Some(near) => error.hint(format!("did you mean {near}? {see}")),
                None => error.hint(see),
            }
        }
        ErrorKind::InvalidValue | ErrorKind::NoEquals => match said(ContextKind::InvalidValue) {
            Some(value) if !value.is_empty() => {
                Error::new(Step::Usage, argument, format!("{value:?} is not known")).hint(see)
            }
            _ => Error::new(Step::Usage, argument, "needs a value").hint(see),
        },
        ErrorKind::TooManyValues => Error::new(Step::Usage, argument, "takes no value").hint(see),
        ErrorKind::MissingRequiredArgument => Error::new(Step::Usage, argument, "is missing").hint(see),
        _ => {
            let text = error.render().to_string();
            let line = text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned();
            Error::new(Step::Usage, "", line).hint(see)
        }
    }
}
