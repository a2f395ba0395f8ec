//! Faults, deaths and signals at any moment, in sandboxes and in containers.

#[path = "../common/mod.rs"]
mod common;

mod histories;
mod intermediate;
mod oci;
mod oci_calls;
mod oci_signals;
mod run;
mod signals;
mod survives;
