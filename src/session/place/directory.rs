//! Directories that belong to this user alone: where they are, and how they are made and opened.

use std::ffi::OsStr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat, mkdirat};
use nix::unistd::geteuid;

use crate::error::{Error, Result, Step};
use crate::sys::process::is_hosts_root;

/// How a directory is opened.
pub const DIRECTORY: OFlag = OFlag::O_RDONLY.union(OFlag::O_DIRECTORY).union(OFlag::O_NOFOLLOW).union(OFlag::O_CLOEXEC);

/// The directory in which this user's is, and the name of that.
pub fn location() -> (PathBuf, String) {
    if is_hosts_root() {
        return ("/run".into(), "stockade".to_owned());
    }
    let own = |path: &PathBuf| {
        path.is_absolute()
            && nix::sys::stat::stat(path).is_ok_and(|found| {
                kind(&found) == SFlag::S_IFDIR && found.st_uid == geteuid().as_raw() && found.st_mode & 0o022 == 0
            })
    };
    let named = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let usual = PathBuf::from(format!("/run/user/{}", geteuid()));
    match named.into_iter().chain([usual]).find(own) {
        Some(base) => (base, "stockade".to_owned()),
        None => ("/tmp".into(), format!("stockade-{}", geteuid())),
    }
}

/// Opens a directory that must belong to this user alone, and makes it before if requested. `None` if it does not exist.
pub fn directory(above: &OwnedFd, name: &OsStr, path: &Path, make: bool) -> Result<Option<OwnedFd>> {
    let failed = |errno| Error::errno(Step::SessionPlace, path.display().to_string(), errno);
    if make {
        match mkdirat(above, name, Mode::S_IRWXU) {
            Ok(()) | Err(Errno::EEXIST) => {}
            Err(errno) => return Err(failed(errno)),
        }
    }
    let opened = match openat(above, name, DIRECTORY, Mode::empty()) {
        Err(Errno::ENOENT) => return Ok(None),
        Err(Errno::ELOOP | Errno::ENOTDIR) => {
            return Err(planted(path, "is not a directory"));
        }
        Err(Errno::EACCES) => return Err(planted(path, "belongs to another user")),
        opened => opened.map_err(failed)?,
    };
    let found = fstat(opened.as_fd()).map_err(failed)?;
    if found.st_uid != geteuid().as_raw() {
        return Err(planted(path, "belongs to another user"));
    }
    if found.st_mode & 0o777 != 0o700 {
        return Err(planted(
            path,
            &format!("has mode {:03o}, not 700: others could reach its sessions", found.st_mode & 0o777),
        ));
    }
    Ok(Some(opened))
}

/// The error for a file that another user, or a mistake, has put there.
pub fn planted(path: &Path, reason: &str) -> Error {
    Error::new(Step::SessionPlace, path.display().to_string(), reason)
        .hint("remove it, or set XDG_RUNTIME_DIR to a directory that only you can write to")
}

/// The type of a file.
pub fn kind(stat: &FileStat) -> SFlag {
    SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT
}
