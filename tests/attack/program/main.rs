//! `attack ID`: one attempt to get out of a sandbox, or to harm what is outside, as raw system calls. Each attempt is made in
//! several ways; a line for each says what came of it. Whether it got anywhere is judged outside, by tests/attack/all, which
//! makes the rig that this refuses to run without: a directory with secrets and listeners, and namespaces around it.

#![allow(clippy::print_stdout, missing_docs)]

mod files;
mod kernel;
mod network;
mod privileges;
mod resources;
mod shared;
mod start;

/// Where the rig is, inside and outside.
pub const RIG: &str = "/srv/rig";

/// What was got, or why not.
pub type Outcome = Result<String, Stop>;

/// Why a way led nowhere.
pub enum Stop {
    /// The kernel said no.
    Errno(i32),
    /// Who tried was killed.
    Signal(i32),
    /// It cannot be tried here.
    Absent(String),
}

impl From<i32> for Stop {
    fn from(number: i32) -> Self {
        Self::Errno(number)
    }
}

/// Tries one way in a child, and tells.
pub fn attempt(name: &str, way: impl FnOnce() -> Outcome) {
    tell(name, kernel::in_child(way));
}

/// Tells what came of a way.
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
        || resources::run(&id, &way)
        || shared::run(&id, &way)
        || start::run(&id, &way);
    println!("{}\t{id}", if known { "done" } else { "unknown" });
}
