//! Stockade runs code that is not trusted: contained, bounded and accounted for.
//!
//! (theory of operation: to be written with the sandbox)

pub mod cli;
pub mod error;
mod layers;
pub mod plan;
pub mod policy;
pub mod report;
pub mod sandbox;
mod sys;
