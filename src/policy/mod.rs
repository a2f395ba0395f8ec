//! Policies: text becomes a plan, or an error.
//!
//! A policy is layers of partial [`Settings`]: the built-in `default`, each `-p NAME|FILE` after what it extends, and the
//! flags. [`load`] reads and merges them, [`resolve`] makes the [`Plan`](crate::plan::Plan) of them without a system call,
//! and [`trust::check`] makes sure that the workload cannot write what was read. Every value is parsed once, into a type
//! that cannot hold a bad one; behind this door nobody checks again.

pub mod budget;
pub mod builtin;
mod confinement;
mod default;
mod diagnose;
pub mod env_file;
mod environment;
mod file;
mod load;
mod merge;
pub mod mount;
pub mod path;
mod resolve;
pub mod rules;
mod settings;
pub mod trust;
pub mod ulimit;
pub mod units;
pub mod value;
mod view;

pub use budget::BudgetSettings;
pub use diagnose::nearest;
pub use load::{Loaded, load, parse};
pub use resolve::{Caller, Resolved, resolve};
pub use settings::{
    CapabilitySettings, DeadlineSettings, EnvSettings, LandlockSettings, ProcView, ScratchSettings, SeccompSettings,
    Settings, StdioSettings, UserSettings,
};
