//! User namespaces of idmapped mounts, `mount_setattr(2)`.

use std::os::fd::OwnedFd;

use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;

use super::{Extent, Users, map_text, open_proc_pid, write_file};
use crate::error::{Error, Result, Step};
use crate::plan::container::IdRange;
use crate::sys::clone::{Cloned, clone3};
use crate::sys::process;

/// A user namespace for an idmapped mount: it maps the host ids `owner` to the sandbox's ids.
pub fn idmap_namespace(owner: (u32, u32), users: &Users) -> Result<OwnedFd> {
    let one = |inside, outside| [Extent { inside, outside, count: 1 }];
    mapped_namespace(&one(owner.0, users.host_uid), &one(owner.1, users.host_gid))
}

/// A user namespace with these maps and without processes.
pub fn idmap_namespace_of(uids: &[IdRange], gids: &[IdRange]) -> Result<OwnedFd> {
    let extents = |ranges: &[IdRange]| ranges.iter().map(Extent::from).collect::<Vec<_>>();
    mapped_namespace(&extents(uids), &extents(gids))
}

fn mapped_namespace(uid_map: &[Extent], gid_map: &[Extent]) -> Result<OwnedFd> {
    let failed = |errno| Error::errno(Step::Identity, "user namespace of the idmapped mounts", errno);
    let parent = nix::unistd::getpid();
    match clone3(libc::CLONE_NEWUSER as u64, None).map_err(failed)? {
        Cloned::Child => loop {
            // Only the namespace is needed. The parent kills this process; if the parent dies first, this process dies too.
            if process::set_parent_death_signal(libc::SIGKILL).is_err() || nix::unistd::getppid() != parent {
                process::exit(1);
            }
            nix::unistd::pause();
        },
        Cloned::Parent { pid, pidfd } => {
            let result = (|| {
                let proc_pid = open_proc_pid(pid)?;
                write_file(&proc_pid, "uid_map", &map_text(uid_map))?;
                write_file(&proc_pid, "gid_map", &map_text(gid_map))?;
                openat(&proc_pid, "ns/user", OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty()).map_err(failed)
            })();
            // A filter around us may refuse pidfds. The child is not reaped yet, so its id cannot belong to another process.
            if process::pidfd_send_signal(std::os::fd::AsFd::as_fd(&pidfd), libc::SIGKILL).is_err() {
                let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL);
            }
            let _ = process::wait4(pid);
            result
        }
    }
}
