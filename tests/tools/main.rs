//! The commands beside `run`, the package, and the structure of the source.

#[path = "../common/mod.rs"]
mod common;

mod architecture;
mod audit;
mod cli;
mod cookbook;
mod doctor;
mod evidence;
mod package;
mod policy;
mod top;
mod words;
mod workspace;
