//! Reads the container's mounts back from the kernel and compares them with what they must be like.
//!
//! A successful call does not guarantee a lasting effect: hooks run in between, and other processes may share the mounts.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd};

use nix::errno::Errno;

use crate::error::Step;
use crate::failure::{Applied, During};
use crate::sys::ablate;
use crate::sys::mount;
use crate::sys::mountinfo::{Mount, parse};

/// [`Step::Verify`] indexes from here on refer to mounts, in the order of the plan.
pub const FIRST_INDEX: usize = 16;

/// The expected state of a mount.
#[derive(Clone, Copy, Debug)]
pub struct Expected {
    /// Its mount id.
    pub id: u64,
    /// Attributes that it must have, `MOUNT_ATTR_*`.
    pub set: u64,
    /// Whether it may propagate mount events.
    pub shared: bool,
    /// Whether all mounts below it must have the attributes too.
    pub below: bool,
    /// Its index in the plan.
    pub index: usize,
}

/// Fails unless each of these mounts exists as expected. Reads through this procfs, which must be the container's own or one
/// that no other process can reach.
pub fn verify(proc: Option<BorrowedFd<'_>>, expected: &[Expected]) -> Applied {
    let private = match proc {
        Some(_) => None,
        None => Some(mount::private_proc().or_else(|_| super::host_proc()).during(Step::Verify, FIRST_INDEX - 1)?),
    };
    let proc = proc.or(private.as_ref().map(AsFd::as_fd)).ok_or(Errno::ENOENT).during(Step::Verify, FIRST_INDEX - 1)?;
    let text = read(proc).during(Step::Verify, FIRST_INDEX - 1)?;
    let mounts = by_id(&text);
    match expected.iter().find(|expected| !is_met(expected, &mounts)) {
        None => Ok(()),
        Some(failed) => Err(Errno::EPERM).during(Step::Verify, FIRST_INDEX + failed.index),
    }
}

fn read(proc: BorrowedFd<'_>) -> Result<Vec<u8>, Errno> {
    // A mount on top of the file must not be read instead.
    let resolve = libc::RESOLVE_BENEATH | libc::RESOLVE_NO_XDEV | libc::RESOLVE_NO_MAGICLINKS;
    let file = mount::open_beneath(proc, c"self/mountinfo", libc::O_RDONLY, resolve)?;
    let (mut text, mut filled) = (vec![0; 16 << 10], 0);
    loop {
        match nix::unistd::read(&file, &mut text[filled..])? {
            0 => break,
            length => filled += length,
        }
        if filled == text.len() {
            text.resize(text.len() * 2, 0);
        }
    }
    text.truncate(filled);
    Ok(text)
}

fn by_id(text: &[u8]) -> HashMap<u64, Mount<'_>> {
    parse(text).map(|mount| (mount.id, mount)).collect()
}

fn is_met(expected: &Expected, mounts: &HashMap<u64, Mount<'_>>) -> bool {
    // Strict access times are the absence of an option.
    let set = ablate::attributes(expected.set) & !libc::MOUNT_ATTR_STRICTATIME;
    let as_set = |mount: &Mount<'_>| mount.attributes() & set == set && (expected.shared || !mount.shared);
    let is_below = |mut id: u64| {
        // A path to the root has at most as many steps as there are mounts.
        (0..=mounts.len()).any(|_| {
            let parent = mounts.get(&id).map_or(id, |mount| mount.parent);
            let found = parent == expected.id;
            id = parent;
            found
        })
    };
    let itself = mounts.get(&expected.id).is_some_and(as_set);
    itself && (!expected.below || mounts.iter().filter(|(id, _)| is_below(**id)).all(|(_, mount)| as_set(mount)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::mount::{NODEV, NOEXEC, NOSUID, RDONLY};

    const TABLE: &str = "20 1 8:1 / / rw,relatime - ext4 /dev/vda rw\n\
        21 20 0:5 / /a\\040b ro,nosuid,nodev,noexec,noatime shared:7 master:1 - tmpfs tmpfs rw,size=64k\n\
        22 21 0:6 / /a\\040b/c rw,nosuid,nosymfollow - tmpfs - rw\n\
        23 22 0:7 / /a\\040b/c/d rw - ext4 /dev/vdb ro\njunk\n24 x y\n";

    fn met(id: u64, set: u64, shared: bool, below: bool) -> bool {
        is_met(&Expected { id, set, shared, below, index: 0 }, &by_id(TABLE.as_bytes()))
    }

    #[test]
    fn differences_of_a_mount_are_found() {
        assert_eq!(by_id(TABLE.as_bytes()).len(), 4);
        assert!(met(21, RDONLY | NOSUID | NODEV | NOEXEC | libc::MOUNT_ATTR_NOATIME, true, false));
        assert!(!met(21, RDONLY, false, false), "shared");
        assert!(!met(22, NOSUID | NODEV, true, false), "lacks an attribute");
        assert!(!met(99, 0, true, false), "does not exist");
        assert!(met(23, RDONLY, false, false), "its file system is read-only");
    }

    #[test]
    fn differences_below_a_mount_are_found() {
        assert!(met(22, 0, true, true) && met(21, 0, true, true));
        assert!(!met(21, NOSUID, true, true), "one of the two mounts below lacks it");
        assert!(!met(20, RDONLY, true, true));
    }
}
