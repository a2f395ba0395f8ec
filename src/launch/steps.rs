//! `--debug`: prints the steps of a start while they happen, as milliseconds since the program began, step and object.
//!
//! Only the parent's side prints. The child between clone and execve must not call this module: it formats no text, and it
//! must not write to a file of the host. A line holds no argument of the command except its program, no value of an
//! environment variable and no content of a file.

use std::fmt::Display;
use std::sync::OnceLock;
use std::time::Instant;

use crate::error::printable;

static PRINTER: OnceLock<Printer> = OnceLock::new();

struct Printer {
    began: Instant,
    print: Box<dyn Fn(&str) + Send + Sync>,
}

/// Prints the steps from here on, each at once and without a newline. Called when the command line is read.
pub fn show(print: impl Fn(&str) + Send + Sync + 'static) {
    let _ = PRINTER.set(Printer { began: Instant::now(), print: Box::new(print) });
}

/// Reports a step that was just done. Without [`show`] this only tests a pointer, and the object is not formatted.
pub fn step<T: Display>(name: &str, object: impl FnOnce() -> T) {
    if let Some(printer) = PRINTER.get() {
        printer.line(name, &object());
    }
}

impl Printer {
    #[cold]
    fn line(&self, name: &str, object: &dyn Display) {
        let milliseconds = self.began.elapsed().as_secs_f64() * 1e3;
        (self.print)(&printable(&format!("{milliseconds:.3} ms  {name}  {object}")).replace('\n', " "));
    }
}

/// The names of the namespaces in `CLONE_NEW*` flags, as in `/proc/PID/ns`.
pub fn namespaces(flags: u64) -> String {
    let kinds = [
        (libc::CLONE_NEWUSER, "user"),
        (libc::CLONE_NEWNS, "mnt"),
        (libc::CLONE_NEWPID, "pid"),
        (libc::CLONE_NEWNET, "net"),
        (libc::CLONE_NEWIPC, "ipc"),
        (libc::CLONE_NEWUTS, "uts"),
        (libc::CLONE_NEWCGROUP, "cgroup"),
    ];
    let names = kinds.into_iter().filter(|(flag, _)| flags & *flag as u64 != 0).map(|(_, name)| name);
    names.collect::<Vec<_>>().join(",")
}
