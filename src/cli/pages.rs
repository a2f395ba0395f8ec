//! `stockade completions` and `stockade man`. The texts are generated from the table of verbs and checked in.

use std::io::{IsTerminal as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use super::say;
use super::values::shown;
use crate::args::Args;
use crate::error::{Error, Result, Step};

macro_rules! pages {
    ($($name:literal)+) => { &[
        $((concat!($name, ".1"), include_str!(concat!("../../docs/man/", $name, ".1"))),)+
        ("stockade-oci.1", include_str!("../../docs/man/stockade-oci.1")),
        ("stockade-policy.5", include_str!("../../docs/man/stockade-policy.5")),
    ] };
}

/// The manual pages, by file name.
pub const PAGES: &[(&str, &str)] = pages! {
    "stockade" "stockade-run" "stockade-exec" "stockade-ps" "stockade-inspect" "stockade-logs" "stockade-attach" "stockade-cp" "stockade-wait" "stockade-stop"
    "stockade-kill" "stockade-pause" "stockade-unpause" "stockade-net" "stockade-net-allow" "stockade-net-deny" "stockade-net-log" "stockade-rm" "stockade-plan" "stockade-why" "stockade-learn" "stockade-doctor" "stockade-top" "stockade-gc" "stockade-audit"
    "stockade-audit-verify" "stockade-completions" "stockade-man" "stockade-seccomp" "stockade-seccomp-check"
    "stockade-seccomp-compile" "stockade-seccomp-dump" "stockade-seccomp-explain"
};

/// `stockade completions SHELL`.
pub fn completions(args: &Args) -> Result<u8> {
    say(match args.words[0].as_encoded_bytes() {
        b"zsh" => include_str!("../../docs/completions/_stockade"),
        b"fish" => include_str!("../../docs/completions/stockade.fish"),
        _ => include_str!("../../docs/completions/stockade.bash"),
    })
}

/// `stockade man [DIR|VERB...]`: the page of a verb, or all pages into a directory. A page may also have its full name.
pub fn man(args: &Args) -> Result<u8> {
    let Some(word) = args.words.first() else { return show(PAGES[0].1) };
    let words: Vec<_> = args.words.iter().map(|word| word.to_string_lossy()).collect();
    let wanted = words.join("-");
    let is_wanted = |page: &str| {
        let page = page.rsplit_once('.').map_or(page, |(page, _section)| page);
        page == wanted || page.strip_prefix("stockade-") == Some(wanted.as_str())
    };
    if let Some((_, text)) = PAGES.iter().find(|(page, _)| is_wanted(page)) {
        return show(text);
    }
    args.at_most(1)?;
    if !word.as_bytes().contains(&b'/') && !Path::new(word).is_dir() {
        let error = Error::new(Step::Usage, shown(word), "is neither a page nor a directory");
        return Err(error.hint(
            "`stockade man run`, `stockade man policy` and `stockade man oci` show pages, `stockade man DIR` writes all",
        ));
    }
    for (name, text) in PAGES {
        let path = Path::new(word).join(name);
        std::fs::write(&path, text).map_err(|error| Error::io(Step::Output, path.display().to_string(), &error))?;
    }
    Ok(0)
}

/// Shows a page with man(1) on a terminal, if there is one. Otherwise prints its source, as for a file.
fn show(page: &str) -> Result<u8> {
    if !std::io::stdout().is_terminal() {
        return say(page);
    }
    let man = Command::new("man").args(["-l", "-"]).stdin(Stdio::piped()).spawn();
    let Ok(mut man) = man else { return say(page) };
    if let Some(mut input) = man.stdin.take() {
        let _ = input.write_all(page.as_bytes());
    }
    man.wait()
        .map(|status| status.code().map_or(1, |code| code as u8))
        .map_err(|error| Error::io(Step::Output, "man", &error))
}
