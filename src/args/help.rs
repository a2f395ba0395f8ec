//! The text of `--help`, rendered from the table.

use super::{Flag, HELP, Operand, Verb};

/// The widest line.
const WIDTH: usize = 100;

/// The help for a verb, or for the program. `path` is the program and its verbs.
pub fn help(path: &str, verb: &Verb) -> String {
    let mut text = format!("{}\n\n", verb.about);
    if !verb.more.is_empty() {
        wrap(&mut text, 0, verb.more);
        text.push('\n');
    }
    text.push_str(&format!("Usage: {}\n", verb.usage(path)));
    section(&mut text, "Verbs", verb.verbs.iter().map(|verb| (verb.name.to_owned(), verb.about)).collect());
    section(&mut text, "Arguments", verb.operands.iter().filter_map(Operand::row).collect());
    let groups = verb.options.split_last().filter(|(last, _)| last.0 == "Options");
    let (options, groups) = groups.map_or((&[][..], verb.options), |(last, groups)| (last.1, groups));
    for (heading, flags) in groups {
        section(&mut text, heading, flags.iter().map(Flag::row).collect());
    }
    section(&mut text, "Options", options.iter().chain([&HELP]).map(Flag::row).collect());
    text
}

impl Verb {
    /// The synopsis, in one line.
    pub fn usage(&self, path: &str) -> String {
        let options = if self.options.is_empty() { "" } else { " [OPTIONS]" };
        if !self.verbs.is_empty() {
            return format!("{path}{options} VERB ...");
        }
        let operand = |operand: &Operand| match operand {
            Operand::Word(name, _) => format!(" {name}"),
            Operand::Words(name, _) => format!(" {name}..."),
            Operand::Optional(name, _) => format!(" [{name}]"),
            Operand::Choice(_, _, known) => format!(" {}", known.join("|")),
            Operand::Numbers(name, ..) => format!(" [{name}]..."),
            Operand::Command(name) if self.operands.len() == 1 => format!(" [--] {name} [ARG]..."),
            Operand::Command(name) => format!(" [--] {name} [ARG]..."),
        };
        format!("{path}{options}{}", self.operands.iter().map(operand).collect::<String>())
    }
}

impl Operand {
    /// Its name and its help, if it has one.
    fn row(&self) -> Option<(String, &'static str)> {
        match self {
            Self::Word(name, help) | Self::Choice(name, help, _) if !help.is_empty() => {
                Some(((*name).to_owned(), help))
            }
            Self::Words(name, help) => Some((format!("{name}..."), help)),
            Self::Optional(name, help) if !help.is_empty() => Some((format!("[{name}]"), help)),
            Self::Numbers(name, help, _) => Some((format!("[{name}]..."), help)),
            _ => None,
        }
    }
}

impl Flag {
    fn row(&self) -> (String, &'static str) {
        let short = self.short.map_or("    ".to_owned(), |letter| format!("-{letter}, "));
        let again = if self.many { "..." } else { "" };
        let value = self.value.map(|value| format!(" <{value}>{again}")).unwrap_or_default();
        (format!("{short}--{}{value}", self.long), self.help)
    }
}

/// A heading and its rows in two columns; nothing without rows.
fn section(text: &mut String, heading: &str, rows: Vec<(String, &str)>) {
    let Some(width) = rows.iter().map(|(left, _)| left.chars().count()).max() else { return };
    text.push_str(&format!("\n{heading}:\n"));
    for (left, right) in rows {
        text.push_str(&if right.is_empty() { format!("  {left}\n") } else { format!("  {left:width$}  ") });
        wrap(text, width + 4, right);
    }
}

/// Adds the words, in lines of at most [`WIDTH`]; the first one starts at column `indent`.
fn wrap(text: &mut String, indent: usize, words: &str) {
    let mut column = indent;
    for word in words.split_ascii_whitespace() {
        let length = word.chars().count();
        if column > indent && column + 1 + length > WIDTH {
            text.push_str(&format!("\n{:indent$}", ""));
            column = indent;
        } else if column > indent {
            text.push(' ');
            column += 1;
        }
        text.push_str(word);
        column += length;
    }
    if column > indent {
        text.push('\n');
    }
}
