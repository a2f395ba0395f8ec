//! Stockade runs untrusted code in a sandbox, limits its resources and reports what it used.
//!
//! A door (one of the two command lines) turns text into a plan. [`run::run`] turns a [`plan::RunPlan`] into a supervised tree
//! of processes, and at its end into a [`report::Report`]. The modules, from the doors down to the system calls:
//!
//! - `cli`, `oci`: the doors `stockade` and `stockade-oci`.
//! - `policy`: turns policy files and flags into a plan, or into an error that names the field.
//! - [`doctor`]: tries what this host can enforce, and says how to fix what it cannot.
//! - [`run`]: the start of a run, in the parent and in the child, and its supervision. It begins with the theory of operation.
//! - `container`: the same for a container of `stockade-oci`.
//! - `launch`: what both share: channels, standard streams, verification from outside.
//! - `rootfs`: the root and its mounts.
//! - `confine`: one file for each layer of confinement. Each has a part that prepares and a part that applies.
//! - `cgroup`: resource limits and accounting of a whole tree of processes.
//! - [`audit`]: the log of runs. Each line has the hash of the line before.
//! - `fuzzing`: properties that every parser must keep for any input; not in a shipped program.
//! - `args`: reads a command line by a table of verbs and options, for both doors.
//! - [`plan`], [`report`], [`error`]: plain data.
//! - `sys`: system calls, and all of the `unsafe` code.
//!
//! Two crates of the workspace are below all of these and make no system calls: `stockade_json` reads JSON, and
//! `stockade_seccomp` compiles seccomp profiles to BPF.

mod args;
pub mod audit;
mod cgroup;
pub mod cli;
mod confine;
mod container;
pub mod doctor;
pub mod error;
mod failure;
mod file;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod launch;
pub mod oci;
pub mod plan;
pub mod policy;
pub mod report;
mod rootfs;
pub mod run;
mod sys;

pub use confine::seccomp;
pub use sys::entry::enter;
