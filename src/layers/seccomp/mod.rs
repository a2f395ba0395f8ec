//! Which system calls the workload may make, `seccomp(2)`.
pub mod compare;
pub mod compiler;
pub mod interpret;
pub mod program;
