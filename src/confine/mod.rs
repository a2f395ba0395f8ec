//! What restricts a process, one file or directory for each layer: ids, capabilities, limits and streams, scheduling, labels,
//! Landlock, seccomp.
//!
//! A layer's parent half does everything that can fail by opening, parsing or allocating. Its child half applies the result
//! between clone3 and execve, with system calls alone. Layers do not import each other.

pub mod caps;
pub mod label;
pub mod landlock;
pub mod privilege;
pub mod process;
pub mod schedule;
pub mod seccomp;
pub mod tree;
pub mod user;
