//! Stockade runs untrusted code in a sandbox, limits its resources and reports what it used.
//!
//! A door (one of the two command lines) turns text into a plan. [`run::run`] turns a [`plan::RunPlan`] into a supervised tree
//! of processes, and at its end into a [`report::Report`]. The modules, from the doors down to the system calls:
//!
//! - `cli`, `oci`: the doors `stockade` and `stockade-oci`.
//! - `policy`: turns policy files and flags into a plan, or into an error that names the field.
//! - [`doctor`]: tries what this host can enforce, and says how to fix what it cannot.
//! - [`run`]: the start of a run, in the parent and in the child, and its supervision. It begins with the theory of operation.
//! - [`session`]: sandboxes that stay, and the control socket through which commands are run in them.
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
//! # Example
//!
//! The policy `default` with one change becomes a plan, the plan a run, and the run a report:
//!
//! ```
//! use std::ffi::OsString;
//!
//! use stockade::policy::{self, Caller};
//! use stockade::report::Status;
//! use stockade::run::{self, Blocked};
//!
//! let changes = policy::parse("changes", "version = 1\ndeadlines.timeout = '10s'")?;
//! let settings = policy::load(&[], changes, None)?.settings;
//! let command = ["/bin/sh", "-c", "exit 3"].map(OsString::from);
//! let caller = Caller { env: std::env::vars_os().collect(), profile_sha256: None, id: "example".to_owned() };
//! let plan = policy::resolve(settings, &command, &caller)?.plan;
//!
//! let signals = Blocked::block()?; // the run forwards them to the command
//! let report = run::run(&plan, &signals, run::Extras::default(), |warnings| warnings.profile.iter().for_each(|text| eprintln!("{text}")));
//! signals.let_through();
//!
//! match &report.error {
//!     None => assert_eq!((report.status, report.exit_code), (Status::Nonzero, 3)),
//!     // This host cannot make the sandbox: `stockade doctor` explains why.
//!     Some(error) => eprintln!("{}: {}", error.object, error.reason),
//! }
//! # Ok::<(), stockade::error::Error>(())
//! ```
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
pub mod session;
mod sys;

pub use confine::seccomp;
pub use sys::entry::enter;
