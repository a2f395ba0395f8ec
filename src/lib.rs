//! Stockade runs code that is not trusted: contained, bounded and accounted for.
//!
//! (theory of operation: to be written with the sandbox)

pub mod cli;
pub mod doctor;
pub mod error;
mod layers;
pub mod plan;
pub mod report;
mod sys;
