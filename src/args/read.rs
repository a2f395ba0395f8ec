//! Splits the words of a command line into verbs, options and operands. Words may be any bytes.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use super::{Dialect, Flag, Foreign, HELP, Meaning, Operand, Verb};
use crate::error::{Error, Result, Step};
use crate::plan::Bytes;

/// A command line, read by a table.
#[derive(Debug)]
pub struct Args {
    dialect: Dialect,
    /// The program, and the verbs below it that the words name.
    verbs: Vec<&'static Verb>,
    given: Vec<(&'static str, OsString)>,
    /// Whether help is requested.
    pub help: bool,
    /// The words that are not options.
    pub words: Vec<OsString>,
}

impl Args {
    /// Reads the words after the program's name. A command's own words are not read. `stockade` reads on after a wrong word,
    /// so that the error is written to the report that another word names. `stockade-oci` stops there, like runc, with
    /// the options before it, such as `--log`.
    pub fn read(program: &'static Verb, dialect: Dialect, words: &[OsString]) -> (Self, Result<()>) {
        let mut args = Self { dialect, verbs: vec![program], given: Vec::new(), help: false, words: Vec::new() };
        let result = args.take(words);
        (args, result)
    }

    fn take(&mut self, mut rest: &[OsString]) -> Result<()> {
        let mut first_error = Ok(());
        let mut options = true;
        while let Some((word, after)) = rest.split_first() {
            rest = after;
            if !options || self.is_operand(word.as_bytes()) {
                match self.verb().verbs {
                    [] => self.words.push(word.clone()),
                    verbs => match verbs.iter().find(|verb| word == verb.name) {
                        Some(verb) => self.verbs.push(verb),
                        None => {
                            let unknown = self.dialect.unknown_verb(&self.full_name(), &shown(word), verbs);
                            return first_error.and(Err(unknown));
                        }
                    },
                }
            } else if word == "--" {
                options = false;
            } else {
                let read = self.option(word.as_bytes(), &mut rest);
                if self.dialect == Dialect::Oci {
                    read?;
                } else {
                    first_error = first_error.and(read);
                }
            }
        }
        first_error.and_then(|()| self.check_words())
    }

    fn is_operand(&self, text: &[u8]) -> bool {
        match text {
            // The words in front of the command may be set off from it.
            b"--" if self.dialect == Dialect::Stockade && self.words.len() < self.verb().operands.len() => false,
            [b'-', _, ..] if self.verb().takes_command() && !self.words.is_empty() => true,
            [b'-', second, ..] => {
                matches!(self.verb().operands.last(), Some(Operand::Numbers(..))) && second.is_ascii_digit()
            }
            _ => true,
        }
    }

    fn option(&mut self, text: &[u8], rest: &mut &[OsString]) -> Result<()> {
        match (self.dialect, text.strip_prefix(b"--")) {
            (Dialect::Stockade, None) => self.letters(&text[1..], rest),
            (Dialect::Stockade, Some(name)) => self.named(name, rest),
            (Dialect::Oci, _) => {
                let dashes = text.iter().take_while(|byte| **byte == b'-').count();
                self.named(&text[dashes..], rest)
            }
        }
    }

    /// `name`, `name=value`, or `name` and the next word.
    fn named(&mut self, text: &[u8], rest: &mut &[OsString]) -> Result<()> {
        let mut parts = text.splitn(2, |byte| *byte == b'=');
        let mut name = Bytes::from(parts.next().unwrap_or_default().to_vec()).to_string();
        let attached = parts.next();
        if let Some(foreign) = self.verb().foreign.iter().find(|foreign| name == foreign.name) {
            match foreign.meaning {
                Meaning::Option(ours) => ours.clone_into(&mut name),
                Meaning::Always => return Ok(()),
                Meaning::Other(said) => {
                    // Its values are not the start of the command, so the options after them are still read.
                    let values = if attached.is_some() { 0 } else { foreign.values };
                    *rest = rest.get(values..).unwrap_or_default();
                    return Err(self.dialect.foreign_option(&self.full_name(), &format!("--{name}"), said));
                }
            }
        }
        let (dialect, flags) = (self.dialect, self.flags());
        let is_letter =
            |flag: &Flag| dialect == Dialect::Oci && flag.short.is_some_and(|short| name == short.to_string());
        let Some(flag) = flags.iter().find(|flag| flag.long == name || is_letter(flag)) else {
            return Err(dialect.unknown_option(&self.full_name(), "--", &name, flags.iter().map(|flag| flag.long)));
        };
        let value = match (flag.value, attached, dialect) {
            (None, None, _) | (None, Some(b"true" | b"1"), Dialect::Oci) => OsStr::new(""),
            (None, Some(b"false" | b"0"), Dialect::Oci) => return Ok(()),
            (None, Some(_), _) => return Err(dialect.value_not_taken(&self.full_name(), &name)),
            (Some(_), Some(value), _) => OsStr::from_bytes(value),
            (Some(_), None, _) => next(rest).ok_or_else(|| dialect.value_missing(&self.full_name(), &name))?,
        };
        self.add(flag, value);
        Ok(())
    }

    /// `it`, `itmVALUE`, `itm=VALUE`, or `itm` and the next word.
    fn letters(&mut self, mut text: &[u8], rest: &mut &[OsString]) -> Result<()> {
        let flags = self.flags();
        while let Some((letter, after)) = text.split_first() {
            text = after;
            let Some(flag) = flags.iter().find(|flag| flag.short == Some(char::from(*letter))) else {
                let same = |foreign: &&Foreign| foreign.letter == Some(char::from(*letter));
                let letter = Bytes::from(vec![*letter]).to_string();
                if let Some(Foreign { values, meaning: Meaning::Other(said), .. }) =
                    self.verb().foreign.iter().find(same)
                {
                    let values = if text.is_empty() { *values } else { 0 };
                    *rest = rest.get(values..).unwrap_or_default();
                    return Err(self.dialect.foreign_option(&self.full_name(), &format!("-{letter}"), said));
                }
                return Err(self.dialect.unknown_option(&self.full_name(), "-", &letter, std::iter::empty()));
            };
            if flag.value.is_none() {
                self.add(flag, OsStr::new(""));
                continue;
            }
            let value = match text {
                [] => next(rest).ok_or_else(|| self.dialect.value_missing(&self.full_name(), flag.long))?,
                attached => OsStr::from_bytes(attached.strip_prefix(b"=").unwrap_or(attached)),
            };
            self.add(flag, value);
            break;
        }
        Ok(())
    }

    fn add(&mut self, flag: &Flag, value: &OsStr) {
        match flag.long == HELP.long {
            true => self.help = true,
            false => self.given.push((flag.long, value.to_owned())),
        }
    }

    /// The options that are known at this word.
    fn flags(&self) -> Vec<&'static Flag> {
        let outer = match self.dialect {
            Dialect::Stockade => &self.verbs[..0],
            Dialect::Oci => &self.verbs[..self.verbs.len() - 1],
        };
        let verbs = std::iter::once(self.verb()).chain(outer.iter().copied());
        verbs.flat_map(Verb::flags).chain([&HELP]).collect()
    }

    /// The commands of `stockade-oci` check their words themselves.
    fn check_words(&self) -> Result<()> {
        if self.dialect == Dialect::Oci || self.help {
            return Ok(());
        }
        let verb = self.verb();
        if !verb.verbs.is_empty() && self.given.is_empty() {
            return Err(self.dialect.verb_missing(&self.full_name(), verb.verbs));
        }
        let mut most = 0;
        for operand in verb.operands {
            match (operand, self.words.get(most)) {
                (Operand::Command(_), _) | (Operand::Words(..), Some(_)) => return Ok(()),
                (Operand::Word(name, _) | Operand::Words(name, _), None) => {
                    return Err(self.dialect.error(&self.full_name(), name, "is missing"));
                }
                (Operand::Choice(name, _, known), word)
                    if !known.iter().any(|one| word.is_some_and(|word| word == one)) =>
                {
                    let known = known.join(", ");
                    let reason = match word {
                        None => format!("is missing: use one of {known}"),
                        Some(word) => format!("\"{}\" is not one of {known}", shown(word)),
                    };
                    return Err(Error::new(Step::Usage, *name, reason));
                }
                _ => most += if let Operand::Numbers(_, _, most) = operand { *most } else { 1 },
            }
        }
        self.at_most(most)
    }

    /// Fails if there are more words.
    pub fn at_most(&self, most: usize) -> Result<()> {
        match self.words.get(most) {
            Some(word) => Err(self.dialect.unexpected(&self.full_name(), &shown(word))),
            None => Ok(()),
        }
    }

    /// The last verb; the program itself if there is none.
    pub fn verb(&self) -> &'static Verb {
        self.verbs[self.verbs.len() - 1]
    }

    /// The verbs: `run`, `seccomp check`.
    pub fn name(&self) -> String {
        names(&self.verbs[1..])
    }

    /// The program and the verbs.
    pub fn full_name(&self) -> String {
        names(&self.verbs)
    }

    /// Whether a switch is on.
    pub fn is_on(&self, name: &str) -> bool {
        self.given.iter().any(|(known, _)| *known == name)
    }

    /// The last value of an option.
    pub fn value(&self, name: &str) -> Option<&OsStr> {
        self.given.iter().rev().find(|(known, _)| *known == name).map(|(_, value)| value.as_os_str())
    }

    /// Every value of a repeatable option, in order.
    pub fn all(&self, name: &str) -> impl Iterator<Item = &OsStr> {
        self.given.iter().filter(move |(known, _)| *known == name).map(|(_, value)| value.as_os_str())
    }

    /// The last value as a path; `None` if it is empty.
    pub fn path(&self, name: &str) -> Option<PathBuf> {
        self.value(name).filter(|value| !value.is_empty()).map(PathBuf::from)
    }

    /// The last value as text.
    pub fn text(&self, name: &str) -> Result<Option<&str>> {
        let Some(value) = self.value(name) else { return Ok(None) };
        value.to_str().map(Some).ok_or_else(|| self.dialect.not_text(&self.full_name(), name))
    }

    /// The last value as a number.
    pub fn number<N: std::str::FromStr>(&self, name: &str) -> Result<Option<N>> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        text.parse().map(Some).map_err(|_| self.dialect.not_a_number(&self.full_name(), name, text))
    }
}

/// Takes the next word as an option's value, even if it starts with `-`.
fn next<'a>(rest: &mut &'a [OsString]) -> Option<&'a OsStr> {
    let (word, after) = rest.split_first()?;
    *rest = after;
    Some(word)
}

fn shown(word: &OsString) -> String {
    Bytes::from(word).to_string()
}

fn names(verbs: &[&Verb]) -> String {
    verbs.iter().map(|verb| verb.name).collect::<Vec<_>>().join(" ")
}
