//! Thin wrappers of the system calls that nix lacks, and the only `unsafe` of the crate.
//!
//! Each wrapper makes one call, turns -1 into an [`Errno`], and takes and returns typed descriptors. Wrappers neither allocate
//! nor lock, so they may be used between clone3 and execve.

#![allow(unsafe_code)]

pub mod ablate;
pub mod alarm;
pub mod bpf;
pub mod clone;
pub mod credentials;
pub mod directory;
pub mod entry;
pub mod file;
#[cfg(target_env = "musl")]
mod heap;
pub mod helper;
pub mod image;
pub mod inherited;
pub mod landlock;
pub mod mount;
pub mod mountinfo;
pub mod namespace;
pub mod net;
pub mod pack;
pub mod packet;
pub mod pidfd;
pub mod process;
pub mod regex;
pub mod schedule;
pub mod seccomp;
pub mod shared;
pub mod socket;
pub mod stack;
pub mod status;
pub mod terminal;
mod thread;
pub mod walk;

use std::os::fd::{FromRawFd, OwnedFd, RawFd};

use nix::errno::Errno;

/// The result of a system call.
pub type Result<T> = std::result::Result<T, Errno>;

/// Turns the kernel's -1 into an error.
fn check(returned: libc::c_long) -> Result<libc::c_long> {
    if returned == -1 { Err(Errno::last()) } else { Ok(returned) }
}

/// As [`check`], for calls that return a new descriptor.
fn check_fd(returned: libc::c_long) -> Result<OwnedFd> {
    let fd = check(returned)? as RawFd;
    // SAFETY: the kernel has just created this descriptor, and only this code knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
