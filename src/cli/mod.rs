//! The command line of `stockade`: verbs, exit codes, and the text of errors.

mod amounts;
mod attach;
mod audit;
mod bridge;
mod cp;
pub(crate) mod denials;
mod detached;
mod doctor;
mod ending;
mod exec;
mod final_write;
mod flags;
mod gc;
#[cfg(test)]
mod generated;
mod grammar;
mod id;
mod inspect;
mod learn;
mod lease;
mod logs;
#[cfg(test)]
mod manual;
mod mode;
mod net_log;
mod network;
mod origin;
mod pages;
mod plan;
mod plan_text;
mod planning;
mod ps;
mod records;
mod report_file;
mod run;
mod seccomp;
mod session;
mod session_net;
mod toolchain;
mod top;
mod usage;
mod values;
mod why;

use std::ffi::OsString;
use std::io::Write as _;

use self::grammar::STOCKADE;
use crate::args::{Args, Dialect, help};
use crate::error::{Error, Result, Step, printable};

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

/// Reads the words and calls the verb's function.
fn dispatch(words: &[OsString]) -> Result<u8> {
    let words = match words.split_first() {
        Some((first, rest)) if first == "help" => [rest, &["--help".into()]].concat(),
        Some((first, _)) if first == "version" => vec!["--version".into()],
        _ => words.to_vec(),
    };
    let (args, read) = Args::read(&STOCKADE, Dialect::Stockade, &words);
    let name = args.name();
    if args.help {
        return say(&help(&args.full_name(), args.verb()));
    }
    if let Some(short) = usage::short(&name).filter(|_| words.len() == usize::from(!name.is_empty())) {
        print_text(short);
        return Ok(Error::new(Step::Usage, "", "").exit_code());
    }
    if name == "run" {
        return match args.is_on("detach") {
            true => detached::main(&args, read),
            false => run::main(&args, read),
        };
    }
    if name == "exec" {
        return exec::main(&args, read);
    }
    if name == "learn" {
        return learn::main(&args, read);
    }
    read?;
    match name.as_str() {
        "ps" => ps::main(&args),
        "inspect" => inspect::main(&args),
        "logs" => logs::main(&args),
        "attach" => attach::main(&args),
        "cp" => cp::main(&args),
        "wait" => session::wait(&args),
        "stop" => session::stop(&args),
        "kill" => session::kill(&args),
        "pause" => session::freeze(&args, true),
        "unpause" => session::freeze(&args, false),
        "net allow" => session_net::change(&args, true),
        "net deny" => session_net::change(&args, false),
        "net log" => session_net::log(&args),
        "rm" => session::remove(&args),
        "plan" => plan::main(&args),
        "why" => why::main(&args),
        "doctor" => doctor::main(&args),
        "top" => top::main(&args),
        "gc" => gc::main(),
        "audit verify" => audit::main(&args),
        "completions" => pages::completions(&args),
        "man" => pages::man(&args),
        "" => say(&format!(
            "stockade {}
",
            env!("CARGO_PKG_VERSION")
        )),
        _ => seccomp::main(&args),
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

/// Prints text on standard error.
fn print_text(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// Prints an error on standard error. A failure to print it is ignored: no other channel is left.
fn print_error(error: &Error) {
    print_text(&error_text(error));
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
