//! The parts of the table that describes a command line.

/// A verb; also the program itself, whose verbs are below it.
#[derive(Debug)]
pub struct Verb {
    /// Its name.
    pub name: &'static str,
    /// What it does, in one line.
    pub about: &'static str,
    /// The rest of its description; may be empty.
    pub more: &'static str,
    /// Options by heading.
    pub options: &'static [(&'static str, &'static [Flag])],
    /// The words that are not options.
    pub operands: &'static [Operand],
    /// The verbs below it, one of which the next word names.
    pub verbs: &'static [Verb],
    /// Options of other programs that it knows.
    pub foreign: &'static [Foreign],
}

/// An option that another program has, and what becomes of it here. The help does not list it.
#[derive(Debug)]
pub struct Foreign {
    /// Its name there, after `--`.
    pub name: &'static str,
    /// Its letter there.
    pub letter: Option<char>,
    /// How many words follow it there, unless a value is attached with `=`.
    pub values: usize,
    /// What becomes of it.
    pub meaning: Meaning,
}

/// What an option of another program is here.
#[derive(Debug)]
pub enum Meaning {
    /// The option of this name, whose value has the same form.
    Option(&'static str),
    /// Always so: it changes nothing.
    Always,
    /// Something else: this is said.
    Other(&'static str),
}

/// An option.
#[derive(Debug)]
pub struct Flag {
    /// Its name after `--`.
    pub long: &'static str,
    /// Its letter after `-`.
    pub short: Option<char>,
    /// The name of its value; `None` for a switch.
    pub value: Option<&'static str>,
    /// Whether every occurrence adds a value; otherwise the last one wins.
    pub many: bool,
    /// What it does, in one line.
    pub help: &'static str,
}

/// A word that is not an option: its name and help.
#[derive(Debug)]
pub enum Operand {
    /// Required.
    Word(&'static str, &'static str),
    /// One or more.
    Words(&'static str, &'static str),
    /// May be left out.
    Optional(&'static str, &'static str),
    /// Required, and one of these words.
    Choice(&'static str, &'static str, &'static [&'static str]),
    /// Up to this many numbers. A word such as `-1` is one of them, not an option.
    Numbers(&'static str, &'static str, usize),
    /// A command with arguments of its own, which are not read.
    Command(&'static str),
}

/// The option that every verb has.
pub const HELP: Flag = switch("help", "Print help").short('h');

/// A verb without options, operands and verbs.
pub const fn verb(name: &'static str, about: &'static str) -> Verb {
    Verb { name, about, more: "", options: &[], operands: &[], verbs: &[], foreign: &[] }
}

/// An option with a value.
pub const fn value(long: &'static str, value: &'static str, help: &'static str) -> Flag {
    Flag { long, short: None, value: Some(value), many: false, help }
}

/// An option whose values add up.
pub const fn list(long: &'static str, value: &'static str, help: &'static str) -> Flag {
    Flag { long, short: None, value: Some(value), many: true, help }
}

/// An option without a value.
pub const fn switch(long: &'static str, help: &'static str) -> Flag {
    Flag { long, short: None, value: None, many: false, help }
}

impl Flag {
    /// The option with a letter.
    pub const fn short(self, letter: char) -> Self {
        Self { short: Some(letter), ..self }
    }
}

impl Verb {
    /// With the rest of its description.
    pub const fn more(self, more: &'static str) -> Self {
        Self { more, ..self }
    }

    /// With these options, by heading.
    pub const fn options(self, options: &'static [(&'static str, &'static [Flag])]) -> Self {
        Self { options, ..self }
    }

    /// With these words.
    pub const fn operands(self, operands: &'static [Operand]) -> Self {
        Self { operands, ..self }
    }

    /// With these verbs below it.
    pub const fn verbs(self, verbs: &'static [Verb]) -> Self {
        Self { verbs, ..self }
    }

    /// With these options of other programs.
    pub const fn foreign(self, foreign: &'static [Foreign]) -> Self {
        Self { foreign, ..self }
    }

    /// Every option of its own.
    pub fn flags(&self) -> impl Iterator<Item = &'static Flag> + use<> {
        self.options.iter().flat_map(|(_, flags)| flags.iter())
    }

    /// Whether its words are a command, at least in part.
    pub fn takes_command(&self) -> bool {
        matches!(self.operands.last(), Some(Operand::Command(_)))
    }
}
