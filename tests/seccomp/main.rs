//! System call filters: reading profiles, compiling them, and their effect in the kernel.

#[path = "../common/mod.rs"]
mod common;

mod files;
mod input;
mod kernel;
mod oracles;
mod probe;
mod programs;
mod run;
mod runc;
mod tools;

use common::compiled;
