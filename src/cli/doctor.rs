//! `stockade doctor`: prints what this host can enforce, what it cannot, and how to fix that.

use std::io::{IsTerminal as _, Write};

use super::mode;
use crate::args::Args;
use crate::cgroup::availability;
use crate::doctor::{Examination, Finding, Group, State, examine};
use crate::error::{Error, Result, Step, printable};
use crate::plan::Facility;

/// Examines the host and prints the findings. Returns 1 if a default run cannot be fully enforced.
pub fn main(args: &Args) -> Result<u8> {
    let examination = Examination { mode: Some(mode::tried()), ..examine() };
    let mut text = Vec::new();
    if args.is_on("json") {
        let json = serde_json::to_string_pretty(&examination);
        text.extend(json.map_err(|error| Error::new(Step::Host, "", error.to_string()))?.into_bytes());
        text.push(b'\n');
    } else {
        let colour =
            std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        let written = write_table(&mut text, &examination, Style { width: width(), colour });
        written.map_err(|error| Error::new(Step::Host, "", error.to_string()))?;
    }
    super::say(&String::from_utf8_lossy(&text))?;
    Ok(u8::from(!examination.default_run_enforceable))
}

/// Lines longer than this are hard to read.
const WIDEST: usize = 100;
/// Below this width the columns leave no room for text.
const NARROWEST: usize = 60;

#[derive(Clone, Copy)]
struct Style {
    width: usize,
    colour: bool,
}

fn width() -> usize {
    let columns = std::env::var("COLUMNS").ok().and_then(|text| text.parse().ok()).unwrap_or(WIDEST);
    columns.clamp(NARROWEST, WIDEST)
}

const STATE_WIDTH: usize = 10;
const TITLE_WIDTH: usize = 33;

fn write_table(out: &mut impl Write, examination: &Examination, style: Style) -> std::io::Result<()> {
    let user = match (examination.privileged, examination.uid) {
        (true, _) => "root",
        (false, 0) => "root without its capabilities",
        (false, _) => "an unprivileged user",
    };
    let head = format!(
        "stockade {} on Linux {} ({}), as {user} (uid {})",
        examination.version, examination.kernel, examination.architecture, examination.uid
    );
    if let Some(mode) = &examination.mode {
        write_wrapped(out, "", &mode::line(mode), 0, style.width)?;
    }
    write_wrapped(out, "", &head, 0, style.width)?;
    for group in GROUPS {
        writeln!(out, "\n{}", title(group))?;
        for finding in examination.findings.iter().filter(|finding| finding.group == group) {
            write_finding(out, finding, style)?;
        }
    }
    writeln!(out)?;
    let failing: Vec<_> = examination
        .findings
        .iter()
        .filter(|finding| finding.prevents_default_run())
        .map(|finding| finding.title.as_str())
        .collect();
    let budgets = [Facility::Memory, Facility::Pids].map(availability::by_default);
    let verdict = if failing.is_empty() && budgets == [true; 2] {
        "A default run can be fully enforced here.".to_owned()
    } else if failing.is_empty() {
        let on_request = [Facility::Memory, Facility::Pids].into_iter().all(|one| availability::of(one).is_ok());
        let unless = match on_request {
            true => " unless it asks for limits: default limits need cgroup v2, and root or a delegated cgroup.",
            false => "; a run that asks for such limits is refused.",
        };
        format!(
            "A default run can be fully enforced here, except that its memory and processes are not limited{unless}"
        )
    } else {
        format!("A default run can NOT be fully enforced here. It needs: {}.", failing.join("; "))
    };
    write_wrapped(out, "", &verdict, 0, style.width)?;
    out.flush()
}

const GROUPS: [Group; 8] = [
    Group::Kernel,
    Group::Users,
    Group::Namespaces,
    Group::Mounts,
    Group::Confinement,
    Group::Budgets,
    Group::Host,
    Group::Network,
];

fn title(group: Group) -> &'static str {
    match group {
        Group::Kernel => "System calls",
        Group::Users => "Users",
        Group::Namespaces => "Namespaces",
        Group::Mounts => "Mounts",
        Group::Confinement => "Confinement",
        Group::Budgets => "Budgets (for runs that ask for one)",
        Group::Host => "Host",
        Group::Network => "Network access by name (for runs with --allow-net)",
    }
}

fn write_finding(out: &mut impl Write, finding: &Finding, style: Style) -> std::io::Result<()> {
    // Upper case marks what a default run lacks, also without colour.
    let (word, colour) = match finding.state {
        State::Ok => ("ok", "32"),
        State::Degraded => ("degraded", "33"),
        State::Missing if finding.required => ("MISSING", "31"),
        State::Missing => ("missing", "33"),
        State::Unknown if finding.required => ("UNKNOWN", "31"),
        State::Unknown => ("unknown", "2"),
    };
    let word = format!("{word:STATE_WIDTH$}");
    let word = if style.colour { format!("\x1b[{colour}m{word}\x1b[0m") } else { word };
    let indent = 2 + STATE_WIDTH + TITLE_WIDTH;
    let start = format!("  {word}{:TITLE_WIDTH$}", finding.title);
    write_wrapped(out, &start, &finding.detail, indent, style.width)?;
    // A finding is unknown because another one failed, and that one states the consequence.
    let consequence = finding.consequence.as_ref().filter(|_| finding.state != State::Unknown);
    for (label, text) in [("so: ", consequence), ("fix: ", finding.remedy.as_ref())] {
        if let Some(text) = text.filter(|text| !text.is_empty()) {
            let start = format!("{:1$}{label}", "", 2 + STATE_WIDTH);
            // Words are not broken, so that a command can still be copied.
            write_wrapped(out, &start, text, 2 + STATE_WIDTH + label.len(), style.width)?;
        }
    }
    Ok(())
}

/// Writes `start`, which takes `indent` columns, then the text, wrapped to the width and indented by as much.
fn write_wrapped(out: &mut impl Write, start: &str, text: &str, indent: usize, width: usize) -> std::io::Result<()> {
    write!(out, "{start}")?;
    let mut column = indent;
    for word in printable(text).split_ascii_whitespace() {
        let length = word.chars().count();
        if column > indent && column + 1 + length > width {
            write!(out, "\n{:indent$}", "")?;
            column = indent;
        }
        if column > indent {
            write!(out, " ")?;
            column += 1;
        }
        write!(out, "{word}")?;
        column += length;
    }
    writeln!(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(width: usize) -> String {
        let finding = Finding {
            name: "x".into(),
            group: Group::Mounts,
            title: "a thing".into(),
            state: State::Missing,
            required: true,
            detail: "one two three four five six seven eight nine ten eleven twelve \x1b[2J thirteen".into(),
            consequence: Some("nothing works".into()),
            remedy: Some("make it work".into()),
        };
        let examination = Examination {
            schema: "stockade/doctor/v1".into(),
            version: "0".into(),
            kernel: "6".into(),
            architecture: "x".into(),
            uid: 1,
            privileged: false,
            default_run_enforceable: false,
            mode: None,
            findings: vec![finding],
        };
        let mut out = Vec::new();
        write_table(&mut out, &examination, Style { width, colour: false }).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn the_table_keeps_to_its_width_and_escapes_what_it_shows() {
        for width in [60, 80, 100] {
            let text = table(width);
            assert!(text.lines().all(|line| line.chars().count() <= width), "{text}");
            assert!(!text.contains('\x1b'), "{text:?}");
        }
        assert!(table(100).contains("MISSING   a thing"));
        assert!(table(100).contains("fix: make it work"));
        assert!(table(100).contains("NOT be fully enforced here. It needs: a thing."));
    }
}
