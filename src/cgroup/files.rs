//! A cgroup's directory, opened once, and the small files in it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;
use nix::sys::uio::pread;

/// An open directory of a cgroup file system.
#[derive(Debug)]
pub struct Dir {
    fd: OwnedFd,
    path: PathBuf,
}

impl Dir {
    /// Opens it; a symlink is none.
    pub fn open(path: &Path) -> nix::Result<Self> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        Ok(Self { fd: nix::fcntl::open(path, flags, Mode::empty())?, path: path.to_owned() })
    }

    /// For `CLONE_INTO_CGROUP` and xattrs.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Where it was opened: for messages, and for removing it.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens one of its files.
    pub fn file(&self, name: &str, access: OFlag) -> nix::Result<OwnedFd> {
        openat(&self.fd, name, access | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW, Mode::empty())
    }

    /// What a file holds.
    pub fn read(&self, name: &str) -> nix::Result<String> {
        content(&self.file(name, OFlag::O_RDONLY)?)
    }

    /// Writes to a file, in one call, as the kernel's files want it.
    pub fn write(&self, name: &str, text: &str) -> nix::Result<()> {
        nix::unistd::write(self.file(name, OFlag::O_WRONLY)?, text.as_bytes()).map(drop)
    }

    /// Writes to a file and says what it holds then.
    pub fn write_and_read(&self, name: &str, text: &str) -> nix::Result<String> {
        let file = self.file(name, OFlag::O_RDWR)?;
        nix::unistd::write(&file, text.as_bytes())?;
        content(&file)
    }

    /// The number that a file consists of; `None` when it is not there, or holds something else (`max`).
    pub fn number(&self, name: &str) -> Option<u64> {
        self.read(name).ok()?.trim().parse().ok()
    }
}

/// All of a file, from its beginning. Those of cgroups are a page or so.
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
    fn a_key_is_the_whole_word() {
        let text = "oom 1\noom_kill 22\noom_group_kill x\nlow 0";
        assert_eq!((keyed(text, "oom_kill"), keyed(text, "oom"), keyed(text, "low")), (Some(22), Some(1), Some(0)));
        assert_eq!((keyed(text, "oom_group_kill"), keyed(text, "oom_"), keyed("", "x")), (None, None, None));
    }
}
