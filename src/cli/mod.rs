//! The command line of `stockade`: verbs, exit codes, and the text of errors.

mod audit;
pub(crate) mod denials;
mod doctor;
mod final_write;
mod flags;
mod gc;
mod generate;
mod grammar;
mod plan;
mod plan_text;
mod planning;
mod records;
mod report_file;
mod run;
mod seccomp;
mod top;
mod words;

use std::ffi::OsString;
use std::io::Write as _;

use words::{Help, Words};

use crate::error::{Error, Result, Step, printable};
use crate::plan::Bytes;
use crate::policy;

/// The program `stockade`: runs the verb that its arguments name, and returns the exit code.
pub fn main(words: &[OsString]) -> u8 {
    match dispatch(words) {
        Ok(code) => code,
        Err(error) => {
            print_error(&error);
            error.exit_code()
        }
    }
}

/// Calls the verb's function.
fn dispatch(words: &[OsString]) -> Result<u8> {
    let Some((verb, rest)) = words.split_first() else {
        return Err(Error::new(Step::Usage, "", "a verb is missing").hint("see `stockade help`"));
    };
    match verb.to_str() {
        Some("run") => run::main(rest),
        Some("plan") => plan::main(rest),
        Some("doctor") => doctor::main(rest),
        Some("seccomp") => seccomp::main(rest),
        Some("top") => top::main(rest),
        Some("gc") => gc::main(rest),
        Some("audit") => audit::main(rest),
        Some("completions") => generate::completions(rest),
        Some("man") => generate::man(rest),
        Some("schema") => generate::schema(rest),
        Some("help" | "--help" | "-h") => help(rest.first()),
        Some("version" | "--version" | "-V") => say(&format!("stockade {}\n", env!("CARGO_PKG_VERSION"))),
        _ => Err(unknown_verb(verb)),
    }
}

/// `stockade help [VERB]`.
fn help(verb: Option<&OsString>) -> Result<u8> {
    let Some(verb) = verb else { return say(&grammar::command().render_help().to_string()) };
    if verb == "seccomp" {
        return say(&seccomp::command().bin_name("stockade seccomp").render_long_help().to_string());
    }
    let found = verb.to_str().and_then(grammar::verb).ok_or_else(|| unknown_verb(verb))?;
    say(&found.help(Help::Long))
}

/// The words of a verb; `None` when they asked for help, which is then printed.
fn read<'a>(verb: &str, words: &'a [OsString]) -> Result<Option<Words<'a>>> {
    let verb = grammar::verb(verb).ok_or_else(|| unknown_verb(&verb.into()))?;
    let (words, result) = Words::read(verb, words);
    match words.help {
        Some(help) => say(&verb.help(help)).map(|_| None),
        None => result.map(|()| Some(words)),
    }
}

fn unknown_verb(verb: &OsString) -> Error {
    let verb = Bytes::from(verb).to_string();
    let names = || grammar::VERBS.iter().map(|verb| verb.name).chain(["seccomp"]);
    let error = Error::new(Step::Usage, &verb, "unknown verb");
    match policy::nearest(&verb, names()) {
        Some(near) => error.hint(format!("did you mean `stockade {near}`?")),
        None => error.hint(format!("stockade {} … ; see `stockade help`", names().collect::<Vec<_>>().join("|"))),
    }
}

/// Prints the output of a verb. A reader that closes the pipe early is not an error.
fn say(text: &str) -> Result<u8> {
    match std::io::stdout().write_all(text.as_bytes()).and_then(|()| std::io::stdout().flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Error::io(Step::Output, "standard output", &error))
        }
        _ => Ok(0),
    }
}

/// Prints an error on standard error. A failure to print it is ignored: no other channel is left.
fn print_error(error: &Error) {
    let _ = std::io::stderr().write_all(error_text(error).as_bytes());
}

/// The error and its hint, as printed.
fn error_text(error: &Error) -> String {
    let hint = error.hint.iter().map(|hint| format!("  hint: {}\n", printable(hint)));
    format!("stockade: {error}\n{}", hint.collect::<String>())
}

/// Prints a warning on standard error.
fn warn(warning: &str) {
    let _ = std::io::stderr().write_all(format!("stockade: warning: {}\n", printable(warning)).as_bytes());
}

/// A message about the end of a run: one line, and further lines with details.
fn notice(text: &str) -> String {
    let lines: Vec<String> = text.lines().map(printable).map(|line| line.to_string()).collect();
    format!("stockade: {}\n", lines.join("\n"))
}
