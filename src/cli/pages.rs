//! `stockade completions` and `stockade man`. The texts are generated from the table of verbs and checked in.

use std::path::Path;

use super::say;
use crate::args::Args;
use crate::error::{Error, Result, Step};

macro_rules! pages {
    ($($name:literal)+) => { &[$((concat!($name, ".1"), include_str!(concat!("../../docs/man/", $name, ".1")))),+] };
}

/// The manual pages, by file name.
pub const PAGES: &[(&str, &str)] = pages! {
    "stockade" "stockade-run" "stockade-exec" "stockade-ps" "stockade-inspect" "stockade-logs" "stockade-attach" "stockade-cp" "stockade-wait" "stockade-stop"
    "stockade-kill" "stockade-pause" "stockade-unpause" "stockade-net" "stockade-net-allow" "stockade-net-deny" "stockade-net-log" "stockade-rm" "stockade-plan" "stockade-doctor" "stockade-top" "stockade-gc" "stockade-audit"
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

/// `stockade man [DIR]`.
pub fn man(args: &Args) -> Result<u8> {
    let Some(directory) = args.words.first() else { return say(PAGES[0].1) };
    for (name, text) in PAGES {
        let path = Path::new(directory).join(name);
        std::fs::write(&path, text).map_err(|error| Error::io(Step::Output, path.display().to_string(), &error))?;
    }
    Ok(0)
}
