//! The caller's standard streams: their kinds, and reopened copies where that is possible.

use std::os::fd::OwnedFd;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::stat::{Mode, SFlag, fstat};

use crate::error::{Error, Result, Step};
use crate::sys::{file::open, process::borrow_standard};

/// Whether the stream is a terminal.
pub fn is_terminal(number: i32) -> bool {
    nix::unistd::isatty(borrow_standard(number)).unwrap_or(false)
}

/// A duplicate descriptor of the same open file.
pub fn copy_of(number: i32) -> Result<OwnedFd> {
    borrow_standard(number).try_clone_to_owned().map_err(|error| Error::io(Step::Streams, "", &error))
}

/// The file type, `inode(7)`.
pub fn kind(number: i32) -> SFlag {
    let stat = fstat(borrow_standard(number));
    stat.map_or(SFlag::empty(), |stat| SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT)
}

/// Whether the stream is a regular file.
pub fn is_file(number: i32) -> bool {
    kind(number) == SFlag::S_IFREG
}

/// Whether the mode of the stream's file lets a user and group write to it. An access control list is not looked at.
pub fn may_write(number: i32, (user, group): (u32, u32)) -> bool {
    fstat(borrow_standard(number)).is_ok_and(|stat| {
        let class = match stat {
            _ if stat.st_uid == user => Mode::S_IWUSR,
            _ if stat.st_gid == group => Mode::S_IWGRP,
            _ => Mode::S_IWOTH,
        };
        Mode::from_bits_truncate(stat.st_mode).contains(class)
    })
}

/// Whether both are the same file.
pub fn is_same(one: i32, other: i32) -> bool {
    let identity = |number| fstat(borrow_standard(number)).map(|stat| (stat.st_dev, stat.st_ino));
    identity(one).is_ok_and(|found| identity(other) == Ok(found))
}

/// The mode of the open file, which all processes that share it see.
pub fn mode(number: i32) -> Result<OFlag> {
    let flags = fcntl(borrow_standard(number), FcntlArg::F_GETFL);
    flags.map(OFlag::from_bits_retain).map_err(|errno| Error::errno(Step::Streams, "", errno))
}

/// Reopens the caller's stream, because the mode of the caller's open file is shared. Fails for another user's pipe, a pipe
/// without a reader, and a socket. A regular file is not reopened, because its position must stay shared.
fn anew(number: i32, flags: OFlag) -> Option<OwnedFd> {
    if kind(number) != SFlag::S_IFIFO && !is_terminal(number) {
        return None;
    }
    // O_NONBLOCK: the open must not wait for the other end.
    let flags = flags | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    open(format!("/proc/self/fd/{number}").as_str(), flags).ok()
}

/// The caller's pipe for the workload, reopened in the same mode. `None` if that is impossible.
pub fn own_pipe(number: i32) -> Result<Option<OwnedFd>> {
    let mode = mode(number)?;
    let own = if kind(number) == SFlag::S_IFIFO { anew(number, mode & OFlag::O_ACCMODE) } else { None };
    let set = |own: &OwnedFd| fcntl(own, FcntlArg::F_SETFL(mode & (OFlag::O_NONBLOCK | OFlag::O_DIRECT)));
    Ok(own.filter(|own| set(own).is_ok()))
}

/// The caller's stream, for writing without blocking. A stream that cannot be reopened is written to in pieces that it accepts
/// when it polls writable.
pub fn unblocking(number: i32) -> Result<OwnedFd> {
    anew(number, OFlag::O_WRONLY).map_or_else(|| copy_of(number), Ok)
}
