//! A root that is built, and the change to it.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::mount::{MntFlags, umount2};
use nix::sys::stat::fstat;

use super::read_back;
use crate::error::Step;
use crate::failure::{Applied, During};
use crate::sys::mount::{self, FsContext, IN_ROOT, NO_MAGICLINKS, NODEV, NOEXEC, NOSUID, RDONLY};
use crate::sys::{
    ablate::{Layer, without},
    file::open,
};

/// The descriptors that the child needs while and after it builds the root.
#[derive(Debug)]
pub struct BuiltRoot {
    /// Whether it is the caller's root, which stays.
    pub is_callers: bool,
    pub root: OwnedFd,
    /// How many mounts lie hidden between the new root and the old root.
    pub hidden: usize,
    /// The scratch tmpfs.
    pub scratch: OwnedFd,
    /// The devpts instance, for a terminal.
    pub devpts: Option<OwnedFd>,
    /// Mounts that become read-only when the root is complete.
    pub freeze: Vec<OwnedFd>,
    /// The expected state of a container's mounts, and a procfs to verify it with.
    pub expected: Vec<read_back::Expected>,
    pub proc: Option<OwnedFd>,
    /// The directory of the namespace limits. `None` for a container, which has no such limits.
    pub limits: Option<OwnedFd>,
    /// Init's own OOM score adjustment, in a session.
    pub oom_score: Option<OwnedFd>,
}

impl BuiltRoot {
    /// Child half: makes the new root `/` and detaches the old root.
    pub fn pivot(&self) -> Applied {
        if self.is_callers {
            return nix::unistd::chdir(c"/").during(Step::Pivot, 2);
        }
        nix::unistd::fchdir(&self.root).during(Step::Pivot, 0)?;
        // Every umount2(2) waits for all CPUs. So the mount between the roots is moved, with the new root on it, onto a
        // directory of the old root, and is detached with the old root. `/proc` exists in every old root, and no path is
        // resolved there any more.
        let moved = self.hidden == 1 && mount::move_onto(&self.scratch, c"/proc").is_ok();
        mount::pivot_to_cwd().during(Step::Pivot, 0)?;
        // The old root now lies on top of the new one, and the hidden mounts on top of the old root.
        for _ in usize::from(moved) + usize::from(without(Layer::Root))..=self.hidden {
            umount2(c".", MntFlags::MNT_DETACH).during(Step::Pivot, 1)?;
        }
        nix::unistd::chdir(c"/").during(Step::Pivot, 2)?;
        self.verify_root().during(Step::Pivot, 3)
    }

    /// Child half, instead of a pivot: makes the new root `/` with chroot(2). The old root stays mounted, without `mounts`.
    pub fn cover(&self, mounts: &[CString]) -> Applied {
        for mount in mounts {
            // Paths of the old root, which is still ours. A mount below another one is detached with it.
            match umount2(mount.as_c_str(), MntFlags::MNT_DETACH) {
                Ok(()) | Err(Errno::ENOENT) => {}
                // In a user namespace the host's mounts are locked.
                Err(Errno::EINVAL) => cover_one(mount).during(Step::Pivot, 1)?,
                Err(errno) => return Err(errno).during(Step::Pivot, 1),
            }
        }
        nix::unistd::fchdir(&self.root).during(Step::Pivot, 0)?;
        nix::unistd::chroot(c".").during(Step::Pivot, 0)?;
        nix::unistd::chdir(c"/").during(Step::Pivot, 2)?;
        self.verify_root().during(Step::Pivot, 3)
    }

    /// Checks that `/` and `/..` are the new root.
    fn verify_root(&self) -> std::result::Result<(), Errno> {
        let identity = |fd: OwnedFd| fstat(fd).map(|stat| (stat.st_dev, stat.st_ino));
        let flags = OFlag::O_PATH | OFlag::O_CLOEXEC;
        let expected = fstat(&self.root).map(|stat| (stat.st_dev, stat.st_ino))?;
        let above = identity(open(c"/..", flags)?)?;
        let root = identity(open(c"/", flags)?)?;
        if (above, root) == (expected, expected) { Ok(()) } else { Err(Errno::EXDEV) }
    }

    /// All descriptors that it holds.
    pub fn fds(&self) -> impl Iterator<Item = RawFd> {
        let optional = [&self.devpts, &self.proc, &self.limits, &self.oom_score].into_iter().flatten();
        [&self.root, &self.scratch].into_iter().chain(optional).chain(&self.freeze).map(AsRawFd::as_raw_fd)
    }

    /// The new root.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    /// Child half, after the pivot: enters a working directory. Symlinks on the path are resolved within the root.
    pub fn enter(&self, cwd: &CStr) -> Applied {
        let cwd = self.open(cwd, libc::O_PATH | libc::O_DIRECTORY).during(Step::Cwd, 0)?;
        nix::unistd::fchdir(cwd).during(Step::Cwd, 0)
    }

    /// Opens a path inside. Symlinks and `..` are resolved within the root.
    pub fn open(&self, path: &CStr, flags: libc::c_int) -> std::result::Result<OwnedFd, Errno> {
        mount::open_beneath(&self.root, path, flags, IN_ROOT | NO_MAGICLINKS)
    }
}

/// Mounts an empty directory at a path of the old root.
fn cover_one(path: &CStr) -> std::result::Result<(), Errno> {
    let place = match open(path, OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC) {
        Err(Errno::ENOENT | Errno::ENOTDIR) => return Ok(()), // another mount hides it
        place => place?,
    };
    mount::attach(FsContext::open(c"tmpfs")?.mount(RDONLY | NOSUID | NODEV | NOEXEC)?, place)
}
