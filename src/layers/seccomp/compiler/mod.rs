//! From a profile's text to a program, without a system call and without the rest of the crate: the build script compiles
//! the built-in profiles with these same files.

pub mod action;
pub mod bpf;
pub mod compile;
pub mod json;
pub mod model;
pub mod names;
pub mod oci;
mod ranges;
mod table;
