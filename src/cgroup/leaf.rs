//! A run's cgroup in v2, from mkdir to rmdir.

use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::stat::Mode;
use nix::unistd::{Pid, UnlinkatFlags, unlinkat};

use super::files::{Dir, content, keyed};
use super::{failed, name};
use crate::error::{Error, Result, Step, errno_of};
use crate::sys::{file, process, schedule};

/// The time limit for a killed cgroup to become empty. After that, `stockade gc` has to remove it.
const EMPTY_DEADLINE: Duration = Duration::from_secs(5);

/// A cgroup of v2. Removed on drop.
#[derive(Debug)]
pub struct Leaf {
    dir: Dir,
    removed: bool,
}

impl Leaf {
    /// Creates the cgroup below `base`, and forbids cgroups below it.
    pub fn make(base: &Path, id: &str) -> Result<Self> {
        let path = new_path(base, id)?;
        nix::unistd::mkdir(&path, Mode::from_bits_truncate(0o755)).map_err(|errno| failed(&path, errno))?;
        let leaf = Self::of_new(&path)?;
        match leaf.dir.write("cgroup.max.descendants", "0") {
            Ok(()) | Err(Errno::ENOENT) => Ok(leaf),
            Err(errno) => Err(failed(&path.join("cgroup.max.descendants"), errno)),
        }
    }

    /// A cgroup that was just created.
    pub fn of_new(path: &Path) -> Result<Self> {
        let dir = Dir::open(path).map_err(|errno| {
            let _ = std::fs::remove_dir(path);
            failed(path, errno)
        })?;
        Ok(Self { dir, removed: false })
    }

    /// Leaves it to [`remove`].
    pub fn keep(mut self) {
        self.removed = true;
    }

    /// The open directory.
    pub fn dir(&self) -> &Dir {
        &self.dir
    }

    /// The descriptor for `CLONE_INTO_CGROUP`.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.dir.fd()
    }

    /// Kills the remaining processes and removes the cgroup.
    pub fn remove(mut self) -> Result<()> {
        self.removed = true;
        remove(self.dir.path())
    }
}

impl Drop for Leaf {
    fn drop(&mut self) {
        if !self.removed {
            let _ = remove(self.dir.path()); // reached only after another error
        }
    }
}

/// A path for a new cgroup of this process.
pub fn new_path(base: &Path, id: &str) -> Result<PathBuf> {
    let name = name::own(id).ok_or_else(|| Error::errno(Step::Cgroup, "/proc/self/stat", Errno::ENOENT))?;
    Ok(base.join(name))
}

/// Kills all processes in a cgroup of v2, waits until it is empty, and removes it with all cgroups below it. A missing cgroup
/// counts as removed.
pub fn remove(path: &Path) -> Result<()> {
    // Usually all processes have exited already.
    match rmdir(path) {
        Ok(()) | Err(Errno::ENOENT) => return Ok(()),
        Err(_) => {}
    }
    let deadline = Instant::now() + EMPTY_DEADLINE;
    let dir = match Dir::open(path) {
        Ok(dir) => dir,
        Err(Errno::ENOENT) => return Ok(()),
        Err(errno) => return Err(failed(path, errno)),
    };
    match dir.write("cgroup.kill", "1") {
        Ok(()) | Err(Errno::ENOENT | Errno::ENODEV) => {} // before Linux 5.14 the processes are killed one by one
        Err(errno) => return Err(failed(&path.join("cgroup.kill"), errno)),
    }
    wait_until_empty(&dir, deadline);
    let mut pause = Duration::from_micros(100);
    loop {
        match remove_tree(path) {
            Ok(()) => return Ok(()),
            // The last process may not have exited completely.
            Err(Errno::EBUSY) if Instant::now() < deadline => schedule::pause(pause),
            Err(errno) => {
                let hint = "something in it cannot be killed yet; `stockade gc` removes it later";
                return Err(failed(path, errno).hint(hint));
            }
        }
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}

/// Waits for `populated 0` in `cgroup.events`. The kernel signals changes with POLLPRI.
fn wait_until_empty(dir: &Dir, deadline: Instant) {
    let Ok(events) = dir.file("cgroup.events", OFlag::O_RDONLY) else { return };
    loop {
        // The file is read before each wait. The kernel signals every change after that.
        let populated = content(&events).is_ok_and(|text| keyed(&text, "populated") == Some(1));
        let left = deadline.saturating_duration_since(Instant::now());
        if !populated || left.is_zero() {
            return;
        }
        let timeout = PollTimeout::try_from(left.as_millis().max(1)).unwrap_or(PollTimeout::MAX);
        let _ = poll(&mut [PollFd::new(events.as_fd(), PollFlags::POLLPRI)], timeout);
    }
}

/// Removes a tree, depth first. Another process may remove parts of it meanwhile.
pub fn remove_tree(path: &Path) -> nix::Result<()> {
    let removed = match rmdir(path) {
        // Usually there is nothing below.
        Err(Errno::EBUSY | Errno::ENOTEMPTY) => remove_below(path).and_then(|()| rmdir(path)),
        removed => removed,
    };
    match removed {
        Err(Errno::ENOENT) => Ok(()),
        removed => removed,
    }
}

/// Removes all cgroups below with a single descriptor that moves down and up. A container can create paths that are too long
/// for a call, and more levels than descriptors can be open. Kills the processes of a cgroup that still has some, and returns
/// `EBUSY`.
fn remove_below(path: &Path) -> nix::Result<()> {
    let mut at = file::open(path, DIRECTORY)?;
    let mut names: Vec<CString> = Vec::new();
    loop {
        if let Some(name) = subdirectory(&at)? {
            at = openat(&at, name.as_c_str(), DIRECTORY, Mode::empty())?;
            names.push(name);
            continue;
        }
        let Some(name) = names.pop() else { return Ok(()) };
        let above = openat(&at, c"..", DIRECTORY, Mode::empty())?;
        let emptied = std::mem::replace(&mut at, above);
        match unlinkat(&at, name.as_c_str(), UnlinkatFlags::RemoveDir) {
            Ok(()) | Err(Errno::ENOENT) => {}
            Err(errno) => {
                kill_in(&emptied);
                return Err(errno);
            }
        }
    }
}

const DIRECTORY: OFlag = OFlag::O_RDONLY.union(OFlag::O_DIRECTORY).union(OFlag::O_NOFOLLOW).union(OFlag::O_CLOEXEC);

/// The first subdirectory.
fn subdirectory(at: &OwnedFd) -> nix::Result<Option<CString>> {
    let mut directory = nix::dir::Dir::from_fd(openat(at, c".", DIRECTORY, Mode::empty())?)?;
    for entry in directory.iter() {
        let entry = entry?;
        let name = entry.file_name();
        if entry.file_type() == Some(nix::dir::Type::Directory) && name != c"." && name != c".." {
            return Ok(Some(name.to_owned()));
        }
    }
    Ok(None)
}

/// Kills every process in a cgroup of either version.
pub fn kill_in(dir: impl AsFd) {
    let processes = || {
        let file = openat(dir.as_fd(), c"cgroup.procs", OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty());
        file.and_then(|file| content(&file)).unwrap_or_default()
    };
    for pid in processes().lines() {
        let Ok(number) = pid.parse() else { continue };
        let Ok(held) = process::pidfd_open(Pid::from_raw(number)) else { continue };
        // The pid is looked up again after the pidfd is open, because the pid could have been reused.
        if processes().lines().any(|line| line == pid) {
            let _ = process::pidfd_send_signal(held.as_fd(), libc::SIGKILL);
        }
    }
}

/// Calls `rmdir(2)`.
pub fn rmdir(path: &Path) -> nix::Result<()> {
    std::fs::remove_dir(path).map_err(|error| errno_of(&error))
}
