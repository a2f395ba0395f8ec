//! Splits the words of a command line into options and operands. Words may be any bytes.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;

use super::grammar::{Flag, Operand, Verb};
use crate::error::{Error, Result, Step};
use crate::plan::Bytes;
use crate::policy;

/// The words after a verb.
#[derive(Debug, Default)]
pub struct Words<'a> {
    given: Vec<(&'static str, &'a OsStr)>,
    /// The help that was requested, if any.
    pub help: Option<Help>,
    /// The words after the options.
    pub operands: &'a [OsString],
}

/// The length of the help text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Help {
    /// `-h`: a line for each option.
    Short,
    /// `--help`: everything.
    Long,
}

impl<'a> Words<'a> {
    /// Parses the words. Options end at `--` or at the first word that is not an option. After a wrong word, parsing goes
    /// on: the run's error is then written to the report that another word names.
    pub fn read(verb: &Verb, words: &'a [OsString]) -> (Self, Result<()>) {
        let mut read = Self::default();
        let mut first_error = Ok(());
        let mut rest = words;
        if let Operand::Act(known, ..) = verb.operand {
            match words.split_first() {
                Some((word, after)) if known.iter().any(|name| word == name) => rest = after,
                Some((word, _)) if word.as_bytes().starts_with(b"-") => first_error = Err(no_action(verb, known)),
                _ => return (read, Err(no_action(verb, known))),
            }
        }
        while let Some((word, after)) = rest.split_first() {
            let text = word.as_bytes();
            if text == b"--" {
                rest = after;
                break;
            }
            if !text.starts_with(b"-") || text == b"-" {
                break;
            }
            rest = after;
            let taken = match text.strip_prefix(b"--") {
                Some(long) => read.long(verb, long, &mut rest),
                None => read.shorts(verb, &text[1..], &mut rest),
            };
            first_error = first_error.and(taken);
        }
        read.operands = rest;
        let fitting = first_error.and_then(|()| read.check_operands(verb));
        (read, fitting)
    }

    /// `name`, `name=value`, or `name` and the next word.
    fn long(&mut self, verb: &Verb, text: &'a [u8], rest: &mut &'a [OsString]) -> Result<()> {
        let equals = text.iter().position(|byte| *byte == b'=');
        let (name, attached) =
            equals.map_or((text, None), |at| (&text[..at], Some(OsStr::from_bytes(&text[at + 1..]))));
        if name == b"help" && attached.is_none() {
            self.help = Some(Help::Long);
            return Ok(());
        }
        let flag = verb.flags().find(|flag| flag.long.as_bytes() == name).ok_or_else(|| unknown(verb, name))?;
        let value = match (flag.value, attached) {
            (None, Some(_)) => return Err(wrong(verb, flag, "takes no value")),
            (None, None) => OsStr::new(""),
            (Some(_), Some(value)) => value,
            (Some(_), None) => next(rest).ok_or_else(|| wrong(verb, flag, "needs a value"))?,
        };
        self.given.push((flag.long, value));
        Ok(())
    }

    /// `it`, `itmVALUE`, `itm=VALUE`, or `itm` and the next word.
    fn shorts(&mut self, verb: &Verb, mut text: &'a [u8], rest: &mut &'a [OsString]) -> Result<()> {
        while let Some((letter, after)) = text.split_first() {
            text = after;
            if *letter == b'h' {
                self.help.get_or_insert(Help::Short);
                continue;
            }
            let flag = verb.flags().find(|flag| flag.short == Some(char::from(*letter)));
            let flag = flag.ok_or_else(|| not_an_option(verb, format!("-{}", Bytes::from(vec![*letter]))))?;
            let value = match (flag.value, text) {
                (None, _) => OsStr::new(""),
                (Some(_), []) => next(rest).ok_or_else(|| wrong(verb, flag, "needs a value"))?,
                (Some(_), attached) => OsStr::from_bytes(attached.strip_prefix(b"=").unwrap_or(attached)),
            };
            self.given.push((flag.long, value));
            if flag.value.is_some() {
                break;
            }
        }
        Ok(())
    }

    fn check_operands(&self, verb: &Verb) -> Result<()> {
        let shown = |word: &OsString| Bytes::from(word).to_string();
        let most = match verb.operand {
            Operand::Command => return Ok(()),
            Operand::None => 0,
            Operand::Act(..) | Operand::Word(..) | Operand::Choice(..) => 1,
        };
        if let Some(word) = self.operands.get(most) {
            return Err(Error::new(Step::Usage, shown(word), "unexpected argument").hint(see(verb)));
        }
        if let Operand::Choice(name, _, known) = verb.operand {
            let known_names = known.join(", ");
            return match self.operands.first() {
                None if self.help.is_some() => Ok(()),
                None => Err(Error::new(Step::Usage, name, format!("is missing: use one of {known_names}"))),
                Some(word) if known.iter().any(|name| word == name) => Ok(()),
                Some(word) => {
                    Err(Error::new(Step::Usage, name, format!("\"{}\" is not one of {known_names}", shown(word))))
                }
            };
        }
        Ok(())
    }

    /// The last value of an option that takes one value.
    pub fn one(&self, long: &str) -> Option<&'a OsStr> {
        self.given.iter().rev().find(|(name, _)| *name == long).map(|(_, value)| *value)
    }

    /// The values of a repeatable option, in order.
    pub fn all<'w>(&'w self, long: &'w str) -> impl Iterator<Item = &'a OsStr> + use<'a, 'w> {
        self.given.iter().filter(move |(name, _)| *name == long).map(|(_, value)| *value)
    }

    /// Whether a switch was given.
    pub fn on(&self, long: &str) -> bool {
        self.given.iter().any(|(name, _)| *name == long)
    }
}

/// Takes the next word as an option's value, even if it starts with `-`.
fn next<'a>(rest: &mut &'a [OsString]) -> Option<&'a OsStr> {
    let (word, after) = rest.split_first()?;
    *rest = after;
    Some(word)
}

fn see(verb: &Verb) -> String {
    format!("see `stockade {} --help`", verb.name)
}

fn no_action(verb: &Verb, known: &[&str]) -> Error {
    Error::new(Step::Usage, "ACTION", format!("is missing: use one of {}", known.join(", "))).hint(see(verb))
}

fn wrong(verb: &Verb, flag: &Flag, reason: &str) -> Error {
    Error::new(Step::Usage, format!("--{}", flag.long), reason).hint(see(verb))
}

fn not_an_option(verb: &Verb, shown: String) -> Error {
    Error::new(Step::Usage, shown, format!("is not an option of `stockade {}`", verb.name)).hint(see(verb))
}

fn unknown(verb: &Verb, name: &[u8]) -> Error {
    let name = Bytes::from(name.to_vec()).to_string();
    let error = not_an_option(verb, format!("--{name}"));
    match policy::nearest(&name, verb.flags().map(|flag| flag.long)) {
        Some(near) => error.hint(format!("did you mean --{near}? {}", see(verb))),
        None => error,
    }
}

#[cfg(test)]
mod tests {
    use super::super::grammar::{VERBS, verb};
    use super::*;

    fn words(text: &str) -> Vec<OsString> {
        text.split(' ').filter(|word| !word.is_empty()).map(OsString::from).collect()
    }

    fn read(words: &[OsString]) -> (Vec<(&'static str, String)>, Vec<String>, Option<String>) {
        let (read, result) = Words::read(verb("run").unwrap(), words);
        let given = read.given.iter().map(|(name, value)| (*name, value.to_string_lossy().into_owned())).collect();
        let operands = read.operands.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        (given, operands, result.err().map(|error| error.object))
    }

    #[test]
    fn options_end_at_the_first_word_that_is_not_an_option() {
        let line = words("-it -m1G --cpus=2 -e A=-x -e -b --timeout 3 cmd -m 5 --cpus 4 -- x");
        let (given, operands, error) = read(&line);
        let given: Vec<String> = given.into_iter().map(|(name, value)| format!("{name}={value}")).collect();
        assert_eq!(given, ["interactive=", "tty=", "memory=1G", "cpus=2", "env=A=-x", "env=-b", "timeout=3"]);
        assert_eq!(operands, ["cmd", "-m", "5", "--cpus", "4", "--", "x"]);
        assert_eq!(error, None);
        assert_eq!(read(&words("-t -- -m x")).1, ["-m", "x"]);
        assert_eq!(read(&words("-")).1, ["-"]);
    }

    #[test]
    fn wrong_words_are_named_and_do_not_hide_the_report() {
        for (line, object) in [
            ("--bogus", "--bogus"),
            ("--bogus=3", "--bogus"),
            ("-tx", "-x"),
            ("-m", "--memory"),
            ("--memory", "--memory"),
            ("--tty=1", "--tty"),
            ("--mem 1G", "--mem"),
            ("--=x", "--"),
        ] {
            assert_eq!(read(&words(line)).2.as_deref(), Some(object), "{line}");
        }
        let line = words("--bogus -z --report r.json cmd --report not-mine");
        let (words, result) = Words::read(verb("run").unwrap(), &line);
        assert_eq!(words.one("report"), Some(OsStr::new("r.json")));
        assert!(result.is_err());
    }

    /// clap prints the help from the same table, so both parsers must read a command line alike.
    #[test]
    fn clap_reads_the_same() {
        for line in
            ["-it -m1G true", "--memory=1G -e A=b -eC=d -v /a:/b -- -x y", "--cpus 2 --cpus 3 a b -c", "-itm=5 x"]
        {
            let line = words(line);
            let (ours, result) = Words::read(verb("run").unwrap(), &line);
            result.unwrap();
            let command = verb("run").unwrap().command().no_binary_name(true).args_override_self(true);
            let clap = command.try_get_matches_from(&line).unwrap();
            for flag in verb("run").unwrap().flags() {
                if flag.value.is_none() {
                    assert_eq!(ours.on(flag.long), clap.get_flag(flag.long), "{}", flag.long);
                    continue;
                }
                let theirs: Vec<&String> = clap.get_many(flag.long).into_iter().flatten().collect();
                let mut given: Vec<&OsStr> = ours.all(flag.long).collect();
                if !flag.many {
                    given.drain(..given.len().saturating_sub(1));
                }
                let theirs: Vec<&OsStr> = theirs.into_iter().map(OsStr::new).collect();
                assert_eq!(given, theirs, "{}", flag.long);
            }
            let theirs: Vec<&String> = clap.get_many("command").into_iter().flatten().collect();
            assert!(ours.operands.iter().eq(theirs.into_iter().map(OsStr::new)));
        }
    }

    #[test]
    fn the_table_has_no_duplicate_name() {
        for verb in VERBS {
            // clap's own assertions: names and letters are unique, and no option hides another.
            verb.command().debug_assert();
        }
    }
}
