//! The options of `why`: those of `plan`, with an output of its own.

use crate::args::{Flag, Operand, switch, value};

/// A heading, and its options.
pub type Group = (&'static str, &'static [Flag]);

/// The last group.
pub const OUTPUT: Group = (
    "Output",
    &[
        value("to", "read|write|execute", "What the exit code says about a path: read by default"),
        switch("json", "Print the answers as JSON"),
    ],
);

/// The question.
pub const QUESTION: &[Operand] = &[Operand::Word(
    "PATH|HOST:PORT|SYSCALL",
    "A path in the sandbox, a host and a TCP port, or the name of a system call",
)];

/// All groups of `plan`, of which the last is replaced.
pub const fn options<const N: usize>(plan: &'static [Group], last: Group) -> [Group; N] {
    let mut groups = [last; N];
    let mut at = 0;
    while at + 1 < N {
        groups[at] = plan[at];
        at += 1;
    }
    groups
}
