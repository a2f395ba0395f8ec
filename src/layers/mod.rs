//! The layers of confinement, one room each.
pub mod seccomp;
