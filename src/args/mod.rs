//! Command lines. A door describes its own as a [`table`] of verbs, options and operands. The reader splits words by it, and
//! the help is rendered from it.
//!
//! Reading by clap took 130 µs of every start, a third of the time before the sandbox is created.

mod dialect;
mod help;
mod read;
mod table;
#[cfg(test)]
mod tests;

pub use dialect::Dialect;
pub use help::help;
pub use read::Args;
pub use table::{Flag, Foreign, HELP, Meaning, Operand, Verb, list, switch, value, verb};
