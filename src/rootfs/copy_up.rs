//! `tmpcopyup`: a tmpfs that starts with a copy of the directory that it covers.

use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat, readlinkat};
use nix::sys::stat::{FileStat, Mode, SFlag, fchmod, fstatat, futimens, mkdirat, mknodat};
use nix::sys::time::TimeSpec;
use nix::unistd::{Gid, Uid, fchown, fchownat, symlinkat};

/// The depth limit. Directories with default configuration are not deeper.
const DEEPEST: u32 = 64;

type Result<T> = std::result::Result<T, Errno>;

/// Copies the contents of a directory into another: symlinks as symlinks, with owners and modes.
pub fn copy(from: BorrowedFd<'_>, to: BorrowedFd<'_>, depth: u32) -> Result<()> {
    if depth > DEEPEST {
        return Err(Errno::ELOOP);
    }
    let mut directory = Dir::from_fd(openat(from, c".", DIRECTORY, Mode::empty())?)?;
    for entry in directory.iter() {
        let entry = entry?;
        let name = entry.file_name();
        if name != c"." && name != c".." {
            copy_entry(from, to, name, depth)?;
        }
    }
    Ok(())
}

const DIRECTORY: OFlag = OFlag::O_RDONLY.union(OFlag::O_DIRECTORY).union(OFlag::O_NOFOLLOW).union(OFlag::O_CLOEXEC);

fn copy_entry(from: BorrowedFd<'_>, to: BorrowedFd<'_>, name: &CStr, depth: u32) -> Result<()> {
    let stat = fstatat(from, name, AtFlags::AT_SYMLINK_NOFOLLOW)?;
    match SFlag::from_bits_truncate(stat.st_mode & libc::S_IFMT) {
        SFlag::S_IFDIR => {
            mkdirat(to, name, Mode::from_bits_truncate(0o700))?;
            let (old, new) =
                (openat(from, name, DIRECTORY, Mode::empty())?, openat(to, name, DIRECTORY, Mode::empty())?);
            copy(old.as_fd(), new.as_fd(), depth + 1)?;
            like(&new, &stat)
        }
        SFlag::S_IFREG => {
            let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
            let old = openat(from, name, flags, Mode::empty())?;
            let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_CLOEXEC;
            let new = openat(to, name, flags, Mode::from_bits_truncate(0o600))?;
            content(&old, &new)?;
            like(&new, &stat)
        }
        SFlag::S_IFLNK => {
            symlinkat(readlinkat(from, name)?.as_os_str(), to, name)?;
            let owner = (Some(Uid::from_raw(stat.st_uid)), Some(Gid::from_raw(stat.st_gid)));
            fchownat(to, name, owner.0, owner.1, AtFlags::AT_SYMLINK_NOFOLLOW)
        }
        SFlag::S_IFIFO => mknodat(to, name, SFlag::S_IFIFO, Mode::from_bits_truncate(stat.st_mode), 0),
        _ => Ok(()), // copies of sockets and devices are useless
    }
}

fn content(from: &OwnedFd, to: &OwnedFd) -> Result<()> {
    let mut buffer = [0; 16 << 10];
    loop {
        let mut rest = match nix::unistd::read(from, &mut buffer)? {
            0 => return Ok(()),
            length => &buffer[..length],
        };
        while !rest.is_empty() {
            rest = &rest[nix::unistd::write(to, rest)?..];
        }
    }
}

fn like(file: &OwnedFd, stat: &FileStat) -> Result<()> {
    fchown(file, Some(Uid::from_raw(stat.st_uid)), Some(Gid::from_raw(stat.st_gid)))?;
    fchmod(file, Mode::from_bits_truncate(stat.st_mode & 0o7777))?;
    let time = |secs, nanos| TimeSpec::new(secs, nanos);
    futimens(file, &time(stat.st_atime, stat.st_atime_nsec), &time(stat.st_mtime, stat.st_mtime_nsec))
}
