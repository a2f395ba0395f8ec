//! What the caller may do on this host: map ids, clone mounts.

use std::os::fd::AsFd as _;

use caps::{CapSet, Capability};
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::stat::{fstat, stat};

use crate::error::{Error, Result, Step};
use crate::sys::{file, namespace};

/// Whether this process may map any id, bind any file and switch to any user: root with the capabilities of one.
///
/// Fails if that cannot be determined. A wrong guess would give the workload the caller's own id on the host.
pub fn is_privileged() -> Result<bool> {
    let mounts = || owns_mounts().map_err(|errno| Error::errno(Step::Identity, "/proc/self/ns", errno));
    Ok(is_root_with(&[Capability::CAP_SETUID, Capability::CAP_SETGID, Capability::CAP_SYS_ADMIN])? && mounts()?)
}

/// Whether this process may map any id: root with the capabilities for that, which it usually keeps in a container.
pub fn maps_ids() -> Result<bool> {
    is_root_with(&[Capability::CAP_SETUID, Capability::CAP_SETGID])
}

/// Whether this process may also end processes of other users and give files to them.
pub fn rules_others() -> Result<bool> {
    is_root_with(&[Capability::CAP_KILL, Capability::CAP_CHOWN, Capability::CAP_DAC_OVERRIDE])
}

fn is_root_with(capabilities: &[Capability]) -> Result<bool> {
    let failed =
        |error: caps::errors::CapsError| Error::new(Step::Identity, "this process's capabilities", error.to_string());
    let has_all = || caps::read(None, CapSet::Effective).map(|own| capabilities.iter().all(|one| own.contains(one)));
    Ok(nix::unistd::geteuid().is_root() && has_all().map_err(failed)?)
}

/// Whether capabilities count for the mounts too: with a user namespace alone (`unshare -U`) the mounts stay the host's.
fn owns_mounts() -> std::result::Result<bool, Errno> {
    const FIRST: u64 = 0xefff_fffd;
    let own = stat("/proc/self/ns/user")?;
    if own.st_ino == FIRST {
        return Ok(true);
    }
    let owner = namespace::owner(file::open("/proc/self/ns/mnt", OFlag::O_RDONLY)?.as_fd());
    let owner = owner.and_then(fstat).map(|owner| (owner.st_dev, owner.st_ino));
    Ok(owner == Ok((own.st_dev, own.st_ino))) // an owner above us is not shown
}

/// Whether an id of this process's user namespace may be the host's root, whom RLIMIT_NPROC does not bound. A nested namespace
/// shows only the ids of the one around it.
pub fn may_be_root_outside(uid: u32) -> bool {
    let map = file::read_text("/proc/self/uid_map").unwrap_or_default();
    let mut first = map.split_ascii_whitespace();
    uid == 0 && !matches!((first.next(), first.next()), (Some("0"), Some(outside)) if outside != "0")
}
