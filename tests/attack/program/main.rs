//! `attack ID`: one attempt to escape from a sandbox, or to harm the host, with raw system calls. Each attempt is made in several
//! ways, with a line of output for each. tests/attack/all judges from outside whether it succeeded. It also creates the rig that
//! this program requires: a directory with secrets and listeners, in namespaces of its own.

#![allow(clippy::print_stdout, missing_docs)]

mod egress;
mod files;
mod kernel;
mod network;
mod privileges;
mod resources;
mod shared;
mod start;

/// The path of the rig, inside and outside.
pub const RIG: &str = "/srv/rig";

/// The gain of an attempt, or why it failed.
pub type Outcome = Result<String, Stop>;

/// Why an attempt failed.
pub enum Stop {
    /// The kernel refused it.
    Errno(i32),
    /// The attempting process was killed.
    Signal(i32),
    /// The attempt is impossible here.
    Absent(String),
}

impl From<i32> for Stop {
    fn from(number: i32) -> Self {
        Self::Errno(number)
    }
}

/// Makes one attempt in a child, and prints its outcome.
pub fn attempt(name: &str, way: impl FnOnce() -> Outcome) {
    tell(name, kernel::in_child(way));
}

/// Prints the outcome of an attempt.
pub fn tell(name: &str, outcome: Outcome) {
    use std::io::Write as _;
    let (result, detail) = match outcome {
        Ok(detail) => ("ok".to_owned(), detail),
        Err(Stop::Errno(number)) => (format!("{:?}", nix::errno::Errno::from_raw(number)), String::new()),
        Err(Stop::Signal(number)) => {
            let name = nix::sys::signal::Signal::try_from(number).map_or("none", |signal| signal.as_str());
            (name.to_owned(), String::new())
        }
        Err(Stop::Absent(why)) => ("absent".to_owned(), why),
    };
    println!("try\t{name}\t{result}\t{detail}");
    let _ = std::io::stdout().flush();
}

fn main() {
    let mut words = std::env::args().skip(1);
    let id = words.next().unwrap_or_default();
    let armed = format!("{RIG}/bin/armed");
    if !std::path::Path::new(&armed).exists() {
        println!("attack: {armed} is not there: this runs only in the rig that tests/attack/all makes");
        std::process::exit(2);
    }
    let way = words.next().unwrap_or_default();
    let known = files::run(&id, &way)
        || privileges::run(&id)
        || network::run(&id)
        || egress::run(&id)
        || resources::run(&id, &way)
        || shared::run(&id, &way)
        || start::run(&id, &way);
    println!("{}\t{id}", if known { "done" } else { "unknown" });
}
