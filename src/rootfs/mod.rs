//! The root: everything that the workload sees below `/`, and nothing else of the host.
//!
//! The child's mount namespace is a private copy of the caller's. In it, the new root is stacked on the old `/`, and the plan's
//! mounts are attached to the new root by descriptor. Two mounts may lie hidden between the roots, because overlayfs and old
//! kernels need them attached: the directory of a `--rootfs` that lacks mount points, and the scratch tmpfs. `pivot_root(2)`
//! exchanges the top of the stack with the old root, and everything else is detached.

pub mod callers_root;
mod container_devices;
pub mod container_mounts;
pub mod container_root;
mod content;
mod copy_up;
mod dev;
mod host;
pub mod mount_point;
pub mod oom;
mod operation;
mod outer_proc;
pub mod pivot;
mod powers;
pub mod proc;
pub mod reach;
mod read_back;
pub mod resolved;
mod run_mounts;
pub mod run_root;
pub mod scratch_directory;
mod source;
pub mod within;

use std::os::fd::OwnedFd;

use nix::errno::Errno;
use nix::fcntl::AT_FDCWD;
use nix::sys::stat::fstat;
use nix::sys::statfs::{PROC_SUPER_MAGIC, fstatfs};

pub use self::dev::{LINKS, NODES};
pub use self::powers::Powers;
pub use self::run_mounts::{MOST_COPIED, is_public};
use crate::sys::mount::{self, NO_MAGICLINKS};

/// The old root's procfs. Checked to be the root of a procfs: in any other directory `self` could be anything.
pub fn host_proc() -> std::result::Result<OwnedFd, Errno> {
    const PROC_ROOT_INO: u64 = 1;
    let proc = mount::open_beneath(AT_FDCWD, c"/proc", libc::O_PATH | libc::O_DIRECTORY, NO_MAGICLINKS)?;
    let is_whole = fstat(&proc)?.st_ino == PROC_ROOT_INO;
    if is_whole && fstatfs(&proc)?.filesystem_type() == PROC_SUPER_MAGIC { Ok(proc) } else { Err(Errno::ENODEV) }
}
