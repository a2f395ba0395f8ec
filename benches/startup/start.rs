//! One start of a contestant.

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::contest::{Contestant, Words};

static NUMBER: AtomicU64 = AtomicU64::new(0);

/// A new number for a container.
pub fn number() -> u64 {
    NUMBER.fetch_add(1, Ordering::Relaxed)
}

/// A contestant's command for the container with this number.
pub fn command(words: &Words, number: u64) -> Command {
    let words: Vec<String> = words.iter().map(|word| word.replace("{}", &number.to_string())).collect();
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).stdin(Stdio::null());
    command
}

/// The same without output.
pub fn quiet(words: &Words, number: u64) -> Command {
    let mut command = command(words, number);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// The time from the first command to the end of the last. `None` if one fails, because failures are fast.
pub fn once(contestant: &Contestant) -> Option<Duration> {
    let number = number();
    let mut commands: Vec<Command> = contestant.steps.iter().map(|words| quiet(words, number)).collect();
    let begun = Instant::now();
    let fine = commands.iter_mut().all(|command| command.status().is_ok_and(|status| status.success()));
    let took = begun.elapsed();
    reap();
    fine.then_some(took)
}

/// Makes this process the parent of orphans.
pub fn adopt_orphans() {
    let _ = nix::sys::prctl::set_child_subreaper(true);
}

/// Reaps orphans that have exited. Must not be called while a child of this process runs.
pub fn reap() {
    use nix::sys::wait::{Id, WaitPidFlag, waitid};
    while waitid(Id::All, WaitPidFlag::WNOHANG | WaitPidFlag::WEXITED)
        .is_ok_and(|status| status != nix::sys::wait::WaitStatus::StillAlive)
    {}
}
