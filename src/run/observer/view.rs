//! Where a path leads within a root, as seen from outside: for explanations alone, nothing is decided by it. Only file systems
//! of this machine are looked into: a lookup on another one could wait for ever, and this process with it.

use std::collections::VecDeque;
use std::ffi::{CString, OsStr, OsString};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat, readlinkat};
use nix::sys::stat::{FileStat, Mode, fstat};

use super::credentials::{Credentials, EXECUTE};
use crate::sys::mount::{NOEXEC, RDONLY};
use crate::sys::{file, mountinfo};

/// The kernel's limit on symlinks.
const MOST_LINKS: usize = 40;
/// More steps than an ordinary path takes, with its links. A longer one is not looked at.
const MOST_STEPS: usize = 256;
/// File systems whose lookups end by themselves. Without procfs, whose links lead elsewhere than they say.
const LOCAL: [&str; 19] = [
    "bcachefs", "btrfs", "cgroup", "cgroup2", "devpts", "devtmpfs", "erofs", "ext2", "ext3", "ext4", "f2fs", "hostfs",
    "overlay", "ramfs", "squashfs", "sysfs", "tmpfs", "xfs", "zfs",
];

/// A root, and the mounts below it.
#[derive(Debug)]
pub struct View {
    root: OwnedFd,
    mounts: Vec<Mounted>,
}

/// A mount, as it was when the view was opened.
#[derive(Clone, Debug)]
pub struct Mounted {
    /// Where it is.
    pub point: PathBuf,
    /// Whether writes are refused.
    pub read_only: bool,
    /// Whether that is because the whole file system is read-only. The kernel asks for this before it looks at modes.
    pub frozen: bool,
    /// Whether executing is refused.
    pub noexec: bool,
    /// Whether paths are looked up in it.
    pub is_local: bool,
}

/// A file or directory on the way.
#[derive(Debug)]
pub struct Node {
    file: OwnedFd,
    /// Its status.
    pub stat: FileStat,
}

/// The way that a path took, from the root on.
#[derive(Debug)]
pub struct Way {
    /// What was passed. The last one is where it ended.
    pub nodes: Vec<Node>,
    /// Its end, without links.
    pub path: PathBuf,
}

/// Where a path leads.
#[derive(Debug)]
pub enum Place {
    /// To something.
    Found(Way),
    /// To something that does not exist: the last directory, and what it does not have.
    Missing(Way, PathBuf),
    /// To a directory that the caller may not search, and what was to be found there.
    Closed(Way, PathBuf),
}

impl Node {
    fn new(file: OwnedFd) -> Option<Self> {
        let stat = fstat(&file).ok()?;
        Some(Self { file, stat })
    }

    /// Its type, `S_IF*`.
    pub fn kind(&self) -> u32 {
        self.stat.st_mode & libc::S_IFMT
    }

    /// Whether its mode refuses one of these. An access control list decides for itself.
    pub fn refuses(&self, credentials: &Credentials, wanted: u32) -> bool {
        let decides = || credentials.user == self.stat.st_uid || !self.has_access_list();
        credentials.is_refused_by(&self.stat, wanted) && decides()
    }

    /// Whether it has an access control list, `acl(5)`.
    fn has_access_list(&self) -> bool {
        let path = CString::new(format!("/proc/self/fd/{}", self.file.as_raw_fd()));
        path.is_ok_and(|path| file::attribute_length(&path, c"system.posix_acl_access").is_ok())
    }
}

impl Way {
    /// Where it ended. There is always a root.
    pub fn end(&self) -> Option<&Node> {
        self.nodes.last()
    }

    /// The directory of where it ended.
    pub fn directory(&self) -> Option<&Node> {
        self.nodes.len().checked_sub(2).map(|at| &self.nodes[at])
    }
}

impl View {
    /// The root of a process: `self`, or its id.
    pub fn of(process: &str) -> nix::Result<Self> {
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let root = file::open(format!("/proc/{process}/root").as_str(), flags)?;
        let text = file::read(format!("/proc/{process}/mountinfo").as_str())?;
        let mounted = |mount: mountinfo::Mount<'_>| Mounted {
            point: mount.point(),
            read_only: mount.attributes() & RDONLY != 0,
            frozen: mount.super_options().any(|option| option == b"ro"),
            noexec: mount.attributes() & NOEXEC != 0,
            is_local: LOCAL.contains(&mount.kind),
        };
        Ok(Self { root, mounts: mountinfo::parse(&text).map(mounted).collect() })
    }

    /// The mount of a path without links.
    pub fn mount_of(&self, path: &Path) -> Option<&Mounted> {
        let length = |mount: &&Mounted| mount.point.as_os_str().len();
        // The last of several at the same point covers the others.
        self.mounts.iter().filter(|mount| path.starts_with(&mount.point)).max_by_key(length)
    }

    /// Looks an absolute path up, as a thread with these credentials would if they are given. A link at its end is followed on
    /// request. `None` if that cannot be known.
    pub fn look_up(&self, path: &[u8], follow: bool, credentials: Option<&Credentials>) -> Option<Place> {
        let mut left: VecDeque<OsString> = components(path).collect();
        let (mut links, mut steps) = (0, 0);
        let mut way = Way { nodes: vec![self.root()?], path: PathBuf::from("/") };
        while let Some(name) = left.pop_front() {
            steps += 1;
            let here = way.nodes.last()?;
            if steps > MOST_STEPS || here.kind() != libc::S_IFDIR {
                return None;
            }
            if credentials.is_some_and(|credentials| here.refuses(credentials, EXECUTE)) {
                let beyond = std::iter::once(name).chain(left).collect();
                return Some(Place::Closed(way, beyond));
            }
            if name == ".." {
                if way.path.pop() {
                    way.nodes.pop();
                }
                continue;
            }
            let next = way.path.join(&name);
            if !self.mount_of(&next)?.is_local {
                return None;
            }
            let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
            let found = match openat(here.file.as_fd(), name.as_os_str(), flags, Mode::empty()) {
                Ok(found) => Node::new(found)?,
                Err(Errno::ENOENT) => {
                    let missing = std::iter::once(name).chain(left).collect();
                    return Some(Place::Missing(way, missing));
                }
                Err(_) => return None,
            };
            if found.kind() == libc::S_IFLNK && (follow || !left.is_empty()) {
                links += 1;
                let target = readlinkat(&found.file, c"").ok().filter(|_| links <= MOST_LINKS)?;
                if target.as_bytes().starts_with(b"/") {
                    way = Way { nodes: vec![self.root()?], path: PathBuf::from("/") };
                }
                components(target.as_bytes()).rev().for_each(|part| left.push_front(part));
                continue;
            }
            way.path = next;
            way.nodes.push(found);
        }
        Some(Place::Found(way))
    }

    fn root(&self) -> Option<Node> {
        Node::new(self.root.try_clone().ok()?)
    }
}

/// Most components are looked at only as far as [`MOST_STEPS`]; one more shows that there are more.
fn components(path: &[u8]) -> impl DoubleEndedIterator<Item = OsString> {
    let parts = path.split(|byte| *byte == b'/').filter(|part| !matches!(*part, b"" | b"."));
    let parts: Vec<OsString> = parts.take(MOST_STEPS + 1).map(|part| OsStr::from_bytes(part).to_owned()).collect();
    parts.into_iter()
}
