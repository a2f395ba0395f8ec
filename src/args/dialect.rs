//! The two dialects of a command line, and the errors in their words.

use super::Verb;
use crate::error::{Error, Step, nearest};

/// How the words of a command line are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// That of `stockade`: `--long`, `-abc`, options after their verb.
    Stockade,
    /// That of `stockade-oci`, as engines write it: long options also with one dash, a switch also as `--switch=true`, and
    /// options of the program also after a verb. Engines search errors for "flag needs an argument" and "not defined".
    Oci,
}

impl Dialect {
    /// The error for a command line. `path` is the program and its verbs.
    pub fn error(self, path: &str, object: &str, reason: impl Into<String>) -> Error {
        let hint = match self {
            Self::Stockade => format!("see `{path} --help`"),
            Self::Oci => "see stockade-oci --help".to_owned(),
        };
        Error::new(Step::Usage, object, reason).hint(hint)
    }

    /// `name` is not an option; `known` are the options.
    pub fn unknown_option<'k>(
        self,
        path: &str,
        dashes: &str,
        name: &str,
        known: impl Iterator<Item = &'k str>,
    ) -> Error {
        if self == Self::Oci {
            return self.error(path, "", format!("flag provided but not defined: -{name}"));
        }
        let error = self.error(path, &format!("{dashes}{name}"), format!("is not an option of `{path}`"));
        match nearest(name, known) {
            Some(near) if dashes == "--" => error.hint(format!("did you mean --{near}? see `{path} --help`")),
            _ => error,
        }
    }

    /// `name` is an option of another program; `said` is what it is here.
    pub fn foreign_option(self, path: &str, option: &str, said: &str) -> Error {
        self.error(path, option, format!("is not an option of `{path}`")).hint(said)
    }

    /// The option stands last, without its value.
    pub fn value_missing(self, path: &str, name: &str) -> Error {
        match self {
            Self::Stockade => self.error(path, &format!("--{name}"), "needs a value"),
            Self::Oci => self.error(path, "", format!("flag needs an argument: -{name}")),
        }
    }

    /// A switch has a value that it cannot have.
    pub fn value_not_taken(self, path: &str, name: &str) -> Error {
        match self {
            Self::Stockade => self.error(path, &format!("--{name}"), "takes no value"),
            Self::Oci => self.error(path, "", format!("invalid boolean value for -{name}")),
        }
    }

    /// The value of an option is not text.
    pub fn not_text(self, path: &str, name: &str) -> Error {
        match self {
            Self::Stockade => self.error(path, &format!("--{name}"), "is not UTF-8"),
            Self::Oci => self.error(path, "", format!("-{name} is not UTF-8")),
        }
    }

    /// The value of an option is not a number.
    pub fn not_a_number(self, path: &str, name: &str, text: &str) -> Error {
        match self {
            Self::Stockade => self.error(path, &format!("--{name}"), format!("{text:?} is not a number")),
            Self::Oci => self.error(path, "", format!("invalid value {text:?} for flag -{name}: not a number")),
        }
    }

    /// There is one word too many.
    pub fn unexpected(self, path: &str, word: &str) -> Error {
        match self {
            Self::Stockade => self.error(path, word, "unexpected argument"),
            Self::Oci => self.error(path, "", format!("unexpected argument {word:?}")),
        }
    }

    /// No verb of `verbs` has this name.
    pub fn unknown_verb(self, path: &str, word: &str, verbs: &[Verb]) -> Error {
        if self == Self::Oci {
            return self.error(path, "", format!("unknown command {word:?}"));
        }
        match nearest(word, verbs.iter().map(|verb| verb.name)) {
            Some(near) => self.error(path, word, "unknown verb").hint(format!("did you mean `{path} {near}`?")),
            None => {
                let runs = verbs.iter().any(|verb| verb.name == "run");
                let run = if runs { format!("`{path} run {word}` runs a program; ") } else { String::new() };
                self.error(path, word, "unknown verb").hint(run + &one_of(path, verbs))
            }
        }
    }

    /// No verb is named.
    pub fn verb_missing(self, path: &str, verbs: &[Verb]) -> Error {
        self.error(path, "", "a verb is missing").hint(one_of(path, verbs))
    }
}

fn one_of(path: &str, verbs: &[Verb]) -> String {
    let names: Vec<_> = verbs.iter().map(|verb| verb.name).collect();
    format!("{path} {} … ; see `{path} --help`", names.join("|"))
}
