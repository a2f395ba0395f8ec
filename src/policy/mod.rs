//! Policies: turns their text into a plan, or into an error.
//!
//! A policy consists of layers of partial [`Settings`]: the built-in `default`, each `-p NAME|FILE` after the policy that it
//! extends, and the flags. [`load`] reads and merges them. [`resolve`] turns them into a
//! [`RunPlan`](crate::plan::RunPlan) without a system call. [`trust::check`] makes sure that the workload cannot write the
//! files that were read. Every value is parsed once, into a type that cannot hold a bad value, and is not checked again.

pub mod budget;
pub mod budget_values;
pub mod builtin;
mod confinement;
mod default;
mod diagnose;
pub mod env_file;
mod environment;
mod etc;
mod file;
pub mod label;
mod load;
mod merge;
pub mod mount;
pub mod named;
pub mod network;
pub mod path;
mod resolve;
pub mod rules;
#[cfg(test)]
mod schema;
mod settings;
pub mod toml_text;
pub mod trust;
pub mod ulimit;
pub mod units;
pub mod value;
mod view;
mod workspace;
pub mod write;

pub use budget::BudgetSettings;
pub use load::{Loaded, load, parse};
pub use resolve::{Caller, Resolved, resolve};
pub use settings::{
    CapabilitySettings, DeadlineSettings, EnvSettings, LandlockSettings, ProcView, ScratchSettings, SeccompSettings,
    Settings, StdioSettings, UserSettings,
};
