//! Prints what a run was denied, as a short table on standard error.

use std::fmt::Write as _;

use crate::plan::Bytes;
use crate::report::{Denial, Report};

/// The table shows at most this many lines; the report has all.
const MOST_SHOWN: usize = 20;

/// What calls with paths were not looked at for.
const NOT_FOUND: &str = "\n  what the sandbox does not have is not found (ENOENT) and not listed, such as most of /etc, and all of /run, /var, /opt \
                         and other homes: --ro PATH adds it";

/// The table; `None` if denials were not recorded.
pub fn table(report: &Report) -> Option<String> {
    let denials = report.denials.as_ref()?;
    let mut text = match denials.len() {
        0 => "no denials were recorded".to_owned(),
        1 => "denied:".to_owned(),
        many => format!("{many} different denials:"),
    };
    let rows: Vec<[String; 4]> = denials.iter().take(MOST_SHOWN).map(row).collect();
    let mut widths = [0; 3];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    for [what, error, count, hint] in &rows {
        let [a, b, c] = widths;
        let _ = write!(text, "\n  {what:<a$}  {error:<b$}  {count:>c$}  {hint}");
    }
    if let Some(more @ 1..) = denials.len().checked_sub(MOST_SHOWN) {
        let _ = write!(text, "\n  and {more} more: --report FILE lists all");
    }
    for unheard in report.denials_unheard.iter().flatten() {
        let _ = write!(text, "\n  denials by {} could not be recorded: {}", unheard.layer, unheard.why);
    }
    let unseen = report.denials_unheard.iter().flatten().any(|unheard| unheard.layer.ends_with("view"));
    if report.exit_code != 0 && unseen {
        text.push_str(NOT_FOUND);
    }
    Some(text)
}

fn row(denial: &Denial) -> [String; 4] {
    let target = denial.target.as_ref().map(|target| format!("({})", Bytes::from(target))).unwrap_or_default();
    let error = match denial.errno {
        Some(errno) => format!("{:?}", nix::errno::Errno::from_raw(errno)),
        None => "killed".to_owned(),
    };
    let hint =
        denial.hint.as_ref().or(denial.rule.as_ref()).map(|text| Bytes::from(text).to_string()).unwrap_or_default();
    [format!("{} {}{target}", denial.layer, denial.op), error, format!("{}×", denial.count), hint]
}

/// The message for a workload that a seccomp filter killed.
pub fn kill_reason(report: &Report) -> String {
    let call = report.denials.iter().flatten().find(|denial| denial.layer == "seccomp" && denial.errno.is_none());
    match call {
        Some(denial) => {
            format!("the command was killed for the system call {}", row(denial)[0].replacen("seccomp ", "", 1))
        }
        None if report.denials.is_some() => {
            "the command was killed for a system call by TRAP or KILL_THREAD, which cannot be recorded".to_owned()
        }
        None => "the command was killed for a system call; --explain-denials shows which one".to_owned(),
    }
}
