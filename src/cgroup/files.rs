//! The directory of a cgroup, opened once, and its files.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;
use nix::sys::uio::pread;

use crate::sys::file;

/// An open directory of a cgroup file system.
#[derive(Debug)]
pub struct Dir {
    fd: OwnedFd,
    path: PathBuf,
}

impl Dir {
    /// Opens the directory. Refuses a symlink.
    pub fn open(path: &Path) -> nix::Result<Self> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        Ok(Self { fd: file::open(path, flags)?, path: path.to_owned() })
    }

    /// The descriptor, for `CLONE_INTO_CGROUP` and extended attributes.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// The path at which the directory was opened, for messages and for removal.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens a file.
    pub fn file(&self, name: &str, access: OFlag) -> nix::Result<OwnedFd> {
        openat(&self.fd, name, access | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW, Mode::empty())
    }

    /// Whether it has this file.
    pub fn has(&self, name: &str) -> bool {
        self.file(name, OFlag::O_PATH).is_ok()
    }

    /// Reads a file.
    pub fn read(&self, name: &str) -> nix::Result<String> {
        content(&self.file(name, OFlag::O_RDONLY)?)
    }

    /// Writes a file in a single call, as the kernel requires.
    pub fn write(&self, name: &str, text: &str) -> nix::Result<()> {
        nix::unistd::write(self.file(name, OFlag::O_WRONLY)?, text.as_bytes()).map(drop)
    }

    /// Writes a file and returns its content afterwards.
    pub fn write_and_read(&self, name: &str, text: &str) -> nix::Result<String> {
        let file = self.file(name, OFlag::O_RDWR)?;
        nix::unistd::write(&file, text.as_bytes())?;
        content(&file)
    }

    /// Reads a number. `None` if the file does not exist or has another content, such as `max`.
    pub fn number(&self, name: &str) -> Option<u64> {
        self.read(name).ok()?.trim().parse().ok()
    }
}

/// Reads a whole file from its beginning. The files of cgroups are about a page long.
pub fn content(file: &OwnedFd) -> nix::Result<String> {
    let mut bytes = Vec::new();
    let mut chunk = [0; 4096];
    loop {
        match pread(file, &mut chunk, bytes.len() as libc::off_t) {
            Ok(0) => return Ok(String::from_utf8_lossy(&bytes).into_owned()),
            Ok(length) => bytes.extend_from_slice(&chunk[..length]),
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

/// The number after a key, in a file of lines `KEY NUMBER`.
pub fn keyed(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' ')?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_match_whole_words() {
        let text = "oom 1\noom_kill 22\noom_group_kill x\nlow 0";
        assert_eq!((keyed(text, "oom_kill"), keyed(text, "oom"), keyed(text, "low")), (Some(22), Some(1), Some(0)));
        assert_eq!((keyed(text, "oom_group_kill"), keyed(text, "oom_"), keyed("", "x")), (None, None, None));
    }
}
