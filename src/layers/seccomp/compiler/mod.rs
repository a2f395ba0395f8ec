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
pub mod seccompiler;
mod table;

/// Whether no call can meet all of these conditions.
pub fn ranges_are_empty(conditions: &[model::Condition]) -> bool {
    ranges::of(conditions).is_none()
}
