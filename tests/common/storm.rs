//! A command under a storm of signals, by `tests/storm`.

use super::PYTHON;

/// The signals of each storm: to the command alone, or to all of its processes. Signals that are forwarded must not kill.
pub const STORMS: [&[&str]; 3] = [&["STOP"], &["WINCH", "URG", "CHLD", "CONT"], &["-t", "STOP", "WINCH", "CONT"]];

/// How often each is sent; more often with `STOCKADE_SWEEP=all`.
pub fn times() -> usize {
    match std::env::var_os("STOCKADE_SWEEP").is_some_and(|wanted| wanted == "all") {
        true => 60,
        false => 1,
    }
}

/// The words in front of a command that start this storm.
pub fn words(what: &[&str]) -> Vec<String> {
    // The tool is passed as text: the caller may be unable to read the checkout.
    let tool = ["timeout", "-s", "KILL", "60", PYTHON, "-IS", "-c", include_str!("../storm")];
    tool.into_iter().chain(what.iter().copied()).chain(["--"]).map(str::to_owned).collect()
}

/// The confinement that a process printed, without its pending signals: some may be the storm's.
pub fn calm(said: &str) -> String {
    said.lines().filter(|line| !line.starts_with("ShdPnd:")).map(|line| format!("{line}\n")).collect()
}
