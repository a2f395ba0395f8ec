//! `stockade-oci`: containers as engines and configurations require them.

#[path = "../common/mod.rs"]
mod common;

mod beyond;
mod bundle;
mod cgroups;
mod checkpoint;
mod config;
mod conformance;
mod cve;
mod edges;
mod fields;
mod filters;
mod input;
mod labels;
mod lifecycle;
mod limits;
mod mounts;
mod notify;
mod options;
mod refused_calls;
mod rootless;
mod steps;
mod streams;
mod verbs;
