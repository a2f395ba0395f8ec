//! `stockade why`: whether a run may do something, what decides that, and which option would change it. Nothing is run.

mod call;
mod connection;
mod path;
pub(super) mod view;

use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt as _;

use serde::Serialize;

use super::{id, origin, planning, say};
use crate::args::Args;
use crate::error::{Error, Result, Step, printable, printable_json};
use crate::plan::Bytes;
use crate::run;

/// The value of [`Shown::schema`].
const SCHEMA: &str = "stockade/why/v1";

/// The output of `--json`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(title = "Why"))]
pub struct Shown {
    /// Always [`SCHEMA`].
    schema: String,
    /// What was asked about.
    subject: Bytes,
    /// The path without symlinks, if it leads elsewhere.
    leads_to: Option<Bytes>,
    /// What could be done with it: to read, write and execute a path, to connect to a host, to make a system call.
    answers: Vec<Answer>,
}

/// Whether something may be done.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Answer {
    /// `read`, `write`, `execute`, `connect` or `call`.
    what: &'static str,
    /// Whether it is allowed.
    allowed: Verdict,
    /// The error that the caller would get, such as `EROFS`, or the signal; `null` if it is allowed, or is not the kernel's own.
    error: Option<String>,
    /// The mount, rule or profile that decides.
    because: String,
    /// The option that would change it, if there is one.
    hint: Option<String>,
}

/// Whether something is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
enum Verdict {
    /// It is.
    Yes,
    /// It is not.
    No,
    /// It depends on what is not known before the run.
    Depends,
}

impl Answer {
    fn yes(what: &'static str, because: impl Into<String>) -> Self {
        Self { what, allowed: Verdict::Yes, error: None, because: because.into(), hint: None }
    }

    fn no(what: &'static str, error: Option<String>, because: impl Into<String>, hint: Option<String>) -> Self {
        Self { what, allowed: Verdict::No, error, because: because.into(), hint }
    }

    fn depends(what: &'static str, because: impl Into<String>, hint: Option<String>) -> Self {
        Self { what, allowed: Verdict::Depends, error: None, because: because.into(), hint }
    }
}

/// Prints the answers. The exit code is 0 for yes, 1 for no and 2 for neither.
pub fn main(args: &Args) -> Result<u8> {
    let shown = shown(args).map_err(|error| Error { option: origin::of(args, error.step, &error.object), ..error })?;
    let asked = asked(args)?;
    let output = if args.is_on("json") {
        let json = serde_json::to_string_pretty(&shown);
        printable_json(&json.map_err(|error| Error::new(Step::Output, "", error.to_string()))?) + "\n"
    } else {
        text(&shown)
    };
    say(&output)?;
    let of_path = shown.answers.iter().find(|answer| answer.what == asked);
    Ok(match of_path.or(shown.answers.first()).map(|answer| answer.allowed) {
        Some(Verdict::Yes) => 0,
        Some(Verdict::Depends) => 2,
        Some(Verdict::No) | None => 1,
    })
}

fn shown(args: &Args) -> Result<Shown> {
    let word = args.words.first().map(|word| word.as_os_str()).unwrap_or_default();
    let plan = planning::plan(args, id::of(args)?)?.plan;
    let (examined, bare) = run::examined(&plan)?;
    let is_about_call = !word.as_bytes().starts_with(b"/") && !word.as_bytes().contains(&b':');
    if !examined.has_namespaces && !is_about_call {
        let reason = "this host makes no namespaces, so paths and hosts of the run would be the host's own, as far as Landlock lets it";
        let hint = "`stockade plan` shows what such a run has; system calls can be asked about";
        return Err(Error::new(Step::Host, "namespaces", reason).hint(hint));
    }
    let (leads_to, answers) = match word.as_bytes() {
        [b'/', ..] => path::answers(&plan, examined, word.as_ref())?,
        bytes if bytes.contains(&b':') => (None, vec![connection::answer(&plan, word)?]),
        _ => (None, vec![call::answer(bare.as_ref().unwrap_or(&plan), word)?]),
    };
    Ok(Shown { schema: SCHEMA.to_owned(), subject: Bytes::from(word), leads_to, answers })
}

/// What the exit code is about.
fn asked(args: &Args) -> Result<&'static str> {
    let Some(word) = args.value("to") else { return Ok(path::READ) };
    let known = [path::READ, path::WRITE, path::EXECUTE].into_iter().find(|known| word == *known);
    known.ok_or_else(|| Error::new(Step::Usage, "--to", format!("{word:?} is not read, write or execute")))
}

fn text(shown: &Shown) -> String {
    let mut text = shown.subject.to_string();
    if let Some(path) = &shown.leads_to {
        let _ = write!(text, " → {path}");
    }
    text.push('\n');
    // What is the same for several is said once.
    let mut said: Vec<(String, &Answer)> = Vec::new();
    for answer in &shown.answers {
        let same = |other: &&mut (String, &Answer)| Answer { what: answer.what, ..other.1.clone() } == *answer;
        match said.iter_mut().find(same) {
            Some((names, _)) => names.push_str(&format!(", {}", answer.what)),
            None => said.push((answer.what.to_owned(), answer)),
        }
    }
    let width = said.iter().map(|(names, _)| names.len()).max().unwrap_or(0);
    for (names, answer) in said {
        let verdict = match answer.allowed {
            Verdict::Yes => "yes",
            Verdict::No => "no",
            Verdict::Depends => "?",
        };
        let error = answer.error.as_ref().filter(|error| !answer.because.contains(*error));
        let because = error.map_or(answer.because.clone(), |error| format!("{} ({error})", answer.because));
        let lines = because.lines().chain(answer.hint.iter().flat_map(|hint| hint.lines()));
        for (index, line) in lines.enumerate() {
            let (names, verdict) = if index == 0 { (names.as_str(), verdict) } else { ("", "") };
            let _ = writeln!(text, "  {names:<width$}  {verdict:<3}  {}", printable(line));
        }
    }
    text
}
