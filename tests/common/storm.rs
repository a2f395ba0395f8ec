//! A command that is sent signals as fast as they come, by `tests/storm`.

use super::PYTHON;

/// What is sent: to whom it is about alone, and to all that it has made. What is passed on kills nobody.
pub const STORMS: [&[&str]; 3] = [&["STOP"], &["WINCH", "URG", "CHLD", "CONT"], &["-t", "STOP", "WINCH", "CONT"]];

/// How often each is sent; more often with `STOCKADE_SWEEP=all`.
pub fn times() -> usize {
    match std::env::var_os("STOCKADE_SWEEP").is_some_and(|wanted| wanted == "all") {
        true => 60,
        false => 1,
    }
}

/// The words in front of a command that is sent these, as `tests/storm` names them.
pub fn words(what: &[&str]) -> Vec<String> {
    // Whoever runs it may not reach a checkout in somebody's home.
    let tool = ["timeout", "-s", "KILL", "60", PYTHON, "-IS", "-c", include_str!("../storm")];
    tool.into_iter().chain(what.iter().copied()).chain(["--"]).map(str::to_owned).collect()
}

/// What a process says of its confinement, without the signals that wait for it: some of the storm's may.
pub fn calm(said: &str) -> String {
    said.lines().filter(|line| !line.starts_with("ShdPnd:")).map(|line| format!("{line}\n")).collect()
}
