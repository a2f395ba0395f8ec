//! Recognises a directory that is visible at two paths of the host. A bind mount hides that one path lies below another, but
//! the paths within the file system show it.

use std::cell::OnceCell;
use std::collections::HashMap;
use std::os::fd::AsFd;
use std::path::PathBuf;

use nix::errno::Errno;
use nix::sys::stat::FileStat;

use crate::sys::{file, mount, mountinfo};

/// A file or directory of the host.
#[derive(Debug)]
pub struct Location {
    /// Its path, without links.
    pub path: PathBuf,
    /// Its device.
    pub device: libc::dev_t,
    /// Its inode.
    pub inode: libc::ino_t,
    /// The id of the mount through which it was reached.
    pub mount: u64,
}

/// The mounts of this process, read on first use: the mount point of each, and the part of its file system that it shows.
#[derive(Debug, Default)]
pub struct Mounts(OnceCell<HashMap<u64, Mount>>);

#[derive(Debug, PartialEq, Eq)]
struct Mount {
    device: String,
    root: PathBuf,
    place: PathBuf,
}

impl Location {
    /// The location of an open file.
    pub fn of(file: impl AsFd, stat: &FileStat, path: PathBuf) -> Result<Self, Errno> {
        Ok(Self { path, device: stat.st_dev, inode: stat.st_ino, mount: mount::id_of(file)? })
    }

    /// Whether this is `other` or, through another mount of the same file system, lies below it. Unknown locations count as
    /// within.
    pub fn is_within(&self, other: &Self, mounts: &Mounts) -> bool {
        if (self.device, self.inode) == (other.device, other.inode) {
            return true;
        }
        if self.device != other.device || self.mount == other.mount {
            return false;
        }
        match (mounts.locate(self), mounts.locate(other)) {
            (Some((device, path)), Some((of, above))) => device == of && path.starts_with(above),
            _ => true,
        }
    }
}

impl Mounts {
    /// The file system of a location, and the path in it.
    fn locate(&self, location: &Location) -> Option<(&str, PathBuf)> {
        let read = || file::read(mountinfo::OWN).map_or_else(|_| HashMap::new(), |text| by_id(&text));
        let mount = self.0.get_or_init(read).get(&location.mount)?;
        Some((&mount.device, mount.root.join(location.path.strip_prefix(&mount.place).ok()?)))
    }
}

fn by_id(text: &[u8]) -> HashMap<u64, Mount> {
    let of = |mount: mountinfo::Mount<'_>| Mount {
        device: mount.device.to_owned(),
        root: mount.root(),
        place: mount.point(),
    };
    mountinfo::parse(text).map(|mount| (mount.id, of(mount))).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn a_bind_mount_of_what_is_below_is_below() {
        let text = b"20 1 8:1 / / rw - ext4 /dev/vda rw\n\
            21 20 8:1 /home/me/w/a\\040b /mnt rw - ext4 /dev/vda rw\n22 20 8:1 /home/me/wide /srv rw - ext4 /dev/vda rw\njunk\n";
        let mounts = Mounts(OnceCell::from(by_id(text)));
        let location = |mount, inode, path: &str| Location { path: path.into(), device: 1, inode, mount };
        let work = location(20, 2, "/home/me/w");
        assert!(location(21, 3, "/mnt").is_within(&work, &mounts));
        assert!(location(21, 4, "/mnt/c").is_within(&work, &mounts));
        assert!(location(21, 2, "/x").is_within(&work, &mounts), "the same directory");
        assert!(!location(22, 5, "/srv").is_within(&work, &mounts), "a name with the same prefix");
        assert!(!location(20, 6, "/home/me").is_within(&location(21, 3, "/mnt"), &mounts), "above");
        assert!(location(99, 7, "/y").is_within(&work, &mounts), "an unknown mount");
        assert_eq!(by_id(text)[&21].root, Path::new("/home/me/w/a b"));
    }
}
