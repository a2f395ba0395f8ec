//! The command line.

pub mod doctor;
