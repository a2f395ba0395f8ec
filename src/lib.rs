//! Stockade runs code that is not trusted: contained, bounded and accounted for.
//!
//! A door (the command line) turns text into a [`plan::Plan`]; [`sandbox::run`] turns a plan into a running, supervised tree of
//! processes and at its end into a [`report::Report`]. The modules, from the doors down to the floor:
//!
//! - `policy`: policy files and flags become a plan, or an error that names the field.
//! - [`doctor`]: tries what this host can do, and names the way out.
//! - [`sandbox`]: the start-up sequence, in the parent and in the child, and supervision. Its first screen is the theory of
//!   operation.
//! - `layers`: one file per layer of confinement, each with a half that prepares and a half that applies.
//! - `cgroup`: the budget.
//! - [`audit`]: the log of runs, each line with the hash of the one before.
//! - `fuzzing`: what holds whatever each parser is given; not in a shipped program.
//! - [`plan`], [`report`], [`error`]: plain data.
//! - `sys`: system calls, and the only `unsafe`.
//!
//! Two crates of the workspace are below all of these and make no system calls: `stockade_json` reads JSON, `stockade_seccomp`
//! turns seccomp profiles into programs.

pub mod audit;
mod cgroup;
pub mod cli;
pub mod doctor;
pub mod error;
mod file;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod layers;
pub mod oci;
pub mod plan;
pub mod policy;
pub mod report;
pub mod sandbox;
mod sys;

pub use layers::seccomp;
pub use sys::entry::enter;
