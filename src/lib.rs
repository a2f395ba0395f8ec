//! Stockade runs untrusted code in a sandbox, limits its resources and reports what it used.
//!
//! A door (one of the two command lines) turns text into a plan. [`sandbox::run`] turns a [`plan::RunPlan`] into a supervised
//! tree of processes, and at its end into a [`report::Report`]. The modules, from the doors down to the system calls:
//!
//! - `policy`: turns policy files and flags into a plan, or into an error that names the field.
//! - [`doctor`]: tries what this host can enforce, and says how to fix what it cannot.
//! - [`sandbox`]: the start-up sequence, in the parent and in the child, and supervision. It begins with the theory of
//!   operation.
//! - `layers`: one file per layer of confinement. Each has a part that prepares and a part that applies.
//! - `cgroup`: resource limits and accounting of a whole tree of processes.
//! - [`audit`]: the log of runs. Each line has the hash of the line before.
//! - `fuzzing`: properties that every parser must keep for any input; not in a shipped program.
//! - [`plan`], [`report`], [`error`]: plain data.
//! - `sys`: system calls, and all of the `unsafe` code.
//!
//! Two crates of the workspace are below all of these and make no system calls: `stockade_json` reads JSON, and
//! `stockade_seccomp` compiles seccomp profiles to BPF.

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
