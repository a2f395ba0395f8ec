//! One directory at two places of the host: bind mounts hide that one lies below another, but their file system knows.

use std::cell::OnceCell;
use std::collections::HashMap;
use std::ffi::OsString;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::sys::stat::FileStat;

use crate::sys::mount;

/// A directory of the host, or a file.
#[derive(Debug)]
pub struct Spot {
    /// Its path, without links.
    pub path: PathBuf,
    /// What `stat(2)` says of it.
    pub device: libc::dev_t,
    /// And this.
    pub inode: libc::ino_t,
    /// The number of the mount that it was reached by.
    pub mount: u64,
}

/// The mounts of this process, read when they are needed: where each is, and what of its file system it shows.
#[derive(Debug, Default)]
pub struct Mounts(OnceCell<HashMap<u64, Mount>>);

#[derive(Debug, PartialEq, Eq)]
struct Mount {
    device: String,
    root: PathBuf,
    place: PathBuf,
}

impl Spot {
    /// The one that is open.
    pub fn of(file: impl AsFd, stat: &FileStat, path: PathBuf) -> Result<Self, Errno> {
        Ok(Self { path, device: stat.st_dev, inode: stat.st_ino, mount: mount::id_of(file)? })
    }

    /// Whether this is the same directory as `other` or, on another mount of its file system, lies below it. One whose place
    /// in its file system cannot be told may.
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
    /// Which file system it is on, and where there.
    fn locate(&self, spot: &Spot) -> Option<(&str, PathBuf)> {
        let read = || std::fs::read("/proc/self/mountinfo").map_or_else(|_| HashMap::new(), |text| parse(&text));
        let mount = self.0.get_or_init(read).get(&spot.mount)?;
        Some((&mount.device, mount.root.join(spot.path.strip_prefix(&mount.place).ok()?)))
    }
}

/// `proc_pid_mountinfo(5)`: `ID PARENT MAJOR:MINOR ROOT PLACE …`.
fn parse(text: &[u8]) -> HashMap<u64, Mount> {
    let of_line = |line: &[u8]| {
        let mut fields = line.split(|byte| *byte == b' ');
        let id = std::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
        let device = String::from_utf8(fields.nth(1)?.to_vec()).ok()?;
        let (root, place) = (unescaped(fields.next()?), unescaped(fields.next()?));
        Some((id, Mount { device, root, place }))
    };
    text.split(|byte| *byte == b'\n').filter_map(of_line).collect()
}

/// Spaces, tabs, line ends and backslashes are three octal digits after a backslash.
fn unescaped(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let [first, more @ ..] = rest {
        match (first, more) {
            (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', after @ ..]) => {
                bytes.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                rest = after;
            }
            _ => {
                bytes.push(*first);
                rest = more;
            }
        }
    }
    Path::new(&OsString::from_vec(bytes)).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bind_mount_of_what_is_below_is_below() {
        let text = b"20 1 8:1 / / rw - ext4 /dev/vda rw\n\
            21 20 8:1 /home/me/w/a\\040b /mnt rw - ext4 /dev/vda rw\n22 20 8:1 /home/me/wide /srv rw - ext4 /dev/vda rw\njunk\n";
        let mounts = Mounts(OnceCell::from(parse(text)));
        let spot = |mount, inode, path: &str| Spot { path: path.into(), device: 1, inode, mount };
        let work = spot(20, 2, "/home/me/w");
        assert!(spot(21, 3, "/mnt").is_within(&work, &mounts));
        assert!(spot(21, 4, "/mnt/c").is_within(&work, &mounts));
        assert!(spot(21, 2, "/x").is_within(&work, &mounts), "the same directory");
        assert!(!spot(22, 5, "/srv").is_within(&work, &mounts), "a name that begins the same");
        assert!(!spot(20, 6, "/home/me").is_within(&spot(21, 3, "/mnt"), &mounts), "above");
        assert!(spot(99, 7, "/y").is_within(&work, &mounts), "nothing is known of that mount");
        assert_eq!(parse(text)[&21].root, Path::new("/home/me/w/a b"));
    }
}
