//! Which trees of the host a sandbox gets to see, and whether a file lies in one of them.
//!
//! Trees are compared by inode, and by file system and path on it: a bind mount elsewhere of a directory below or above the
//! tree is the same place. What a file system shows of another (an overlay its layers, a network file system its server's
//! disk) the kernel tells nobody.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::{Mode, fstat};

use crate::plan::container::GivenSource;
use crate::plan::{Bytes, MountKind, Plan, Root};
use crate::sys::mount::{self, RDONLY};
use crate::sys::walk::{Trail, name_of};

/// What of the host a plan shows.
#[derive(Debug)]
pub struct Reach {
    trees: Vec<Tree>,
    mounts: Vec<Mount>,
}

/// A file or directory of the host, with all below it.
#[derive(Debug)]
pub struct Tree {
    /// Where it is on the host.
    pub source: Bytes,
    /// Whether it is writable inside.
    pub writable: bool,
    /// Its device and inode; none for what is mounted below another.
    inode: Option<(u64, u64)>,
    /// Where it lies.
    spots: Vec<Spot>,
}

/// A path on a file system, which is told by its device number.
#[derive(Debug)]
struct Spot {
    device: String,
    path: PathBuf,
}

/// A line of `proc_pid_mountinfo(5)`.
#[derive(Debug, PartialEq)]
struct Mount {
    id: u64,
    device: String,
    /// What of its file system it shows.
    root: PathBuf,
    /// Where that is.
    point: PathBuf,
}

impl Reach {
    /// What the plan shows, or only what it makes writable. A source that is not there, or not to be opened, is left to the
    /// mounting, which knows whether it may be missing.
    pub fn of(plan: &Plan, writable_only: bool) -> Result<Self, Errno> {
        let wanted = |source: &Source| source.writable || source.writable_below || !writable_only;
        let sources: Vec<_> = sources(plan).filter(wanted).collect();
        let mut reach = Self { trees: Vec::new(), mounts: Vec::new() };
        if sources.is_empty() {
            return Ok(reach);
        }
        let text = std::fs::read("/proc/self/mountinfo").map_err(|error| crate::error::errno_of(&error))?;
        reach.mounts = text.split(|byte| *byte == b'\n').filter_map(parse).collect();
        for Source { source, writable, writable_below } in sources {
            let Ok(opened) = open(source.as_path(), OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty()) else { continue };
            let stat = fstat(&opened)?;
            let inode = Some((stat.st_dev, stat.st_ino));
            let path = name_of(&opened).ok_or(Errno::ENOENT)?;
            let spots = reach.spot(mount::id_of(&opened)?, &path).into_iter().collect();
            let below = reach.mounts.iter().filter(|mount| mount.point.starts_with(&path));
            let below = below.map(|mount| Spot { device: mount.device.clone(), path: mount.root.clone() }).collect();
            reach.trees.push(Tree { source: source.clone(), writable, inode, spots });
            reach.trees.push(Tree { source, writable: writable_below, inode: None, spots: below });
        }
        Ok(reach)
    }

    /// The tree that a file lies in, a link on the way to it does, or of which nobody can tell that it does not have a name
    /// of the file. The writable ones first.
    pub fn find(&self, trail: &Trail, writable_only: bool) -> Option<&Tree> {
        let spots: Vec<Spot> = trail.paths.iter().filter_map(|(id, path)| self.spot(*id, path)).collect();
        let holds = |tree: &&Tree| {
            tree.inode.is_some_and(|inode| trail.inodes.contains(&inode))
                || tree.writable && tree.inode.is_some_and(|inode| trail.elsewhere == Some(inode.0))
                || tree.spots.iter().any(|tree| spots.iter().any(|spot| spot.is_below(tree)))
        };
        let writable = self.trees.iter().filter(|tree| tree.writable).find(holds);
        writable.or_else(|| self.trees.iter().find(holds).filter(|_| !writable_only))
    }

    fn spot(&self, mount: u64, path: &Path) -> Option<Spot> {
        let mount = self.mounts.iter().find(|found| found.id == mount)?;
        let rest = path.strip_prefix(&mount.point).ok()?;
        // Joining nothing would add a slash, and make a file's path that of a directory.
        let path = if rest.as_os_str().is_empty() { mount.root.clone() } else { mount.root.join(rest) };
        Some(Spot { device: mount.device.clone(), path })
    }
}

impl Spot {
    fn is_below(&self, other: &Self) -> bool {
        self.device == other.device && self.path.starts_with(&other.path)
    }
}

/// A host path that a plan binds.
struct Source {
    source: Bytes,
    writable: bool,
    /// Whether what is mounted below it is.
    writable_below: bool,
}

fn sources(plan: &Plan) -> impl Iterator<Item = Source> + '_ {
    let same = |source: &Bytes, read_only: bool| Source {
        source: source.clone(),
        writable: !read_only,
        writable_below: !read_only,
    };
    let root = match &plan.root {
        Root::Directory(path) => Some(same(path, true)),
        Root::Bundle(path) => Some(same(path, plan.container.as_ref().is_some_and(|container| container.read_only))),
        Root::Synthetic | Root::Joined => None,
    };
    let mounts = plan.mounts.iter().filter_map(move |mount| match &mount.kind {
        MountKind::Bind { source } => Some(same(source, mount.read_only)),
        MountKind::AsHost => Some(same(&mount.destination, mount.read_only)),
        MountKind::Given(given) => match &given.what {
            GivenSource::Bind { source, recursive } => Some(Source {
                source: source.clone(),
                writable: given.set & RDONLY == 0,
                writable_below: *recursive && given.set_below & RDONLY == 0,
            }),
            _ => None,
        },
        _ => None,
    });
    root.into_iter().chain(mounts)
}

/// `ID PARENT MAJOR:MINOR ROOT PLACE …`; spaces within a field are escaped.
fn parse(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|byte| *byte == b' ');
    let id = std::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
    let device = std::str::from_utf8(fields.nth(1)?).ok()?.to_owned();
    Some(Mount { id, device, root: unescaped(fields.next()?), point: unescaped(fields.next()?) })
}

/// `\040` is a space.
fn unescaped(mut text: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(text.len());
    while let [first, rest @ ..] = text {
        let digits = rest.get(..3).filter(|_| *first == b'\\').and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => (bytes.push(byte), text = &rest[3..]).1,
            None => (bytes.push(*first), text = rest).1,
        }
    }
    OsString::from_vec(bytes).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStrExt as _;

    #[test]
    fn a_line_is_read_totally() {
        let line = b"36 35 98:0 /mnt1\\134x /mnt\\0402 rw,noatime master:1 - ext3 /dev/root rw,errors=continue";
        let mount = Mount { id: 36, device: "98:0".into(), root: "/mnt1\\x".into(), point: "/mnt 2".into() };
        assert_eq!(parse(line), Some(mount));
        for end in 0..line.len() {
            let _ = parse(&line[..end]);
        }
        assert_eq!(unescaped(b"/a\\04"), Path::new("/a\\04"));
        assert_eq!(unescaped(b"/a\\999"), Path::new("/a\\999"));
        assert_eq!(unescaped("/\u{fc}".as_bytes()).as_os_str().as_bytes(), "/\u{fc}".as_bytes());
    }

    fn mount(id: u64, device: &str, root: &str, point: &str) -> Mount {
        Mount { id, device: device.into(), root: root.into(), point: point.into() }
    }

    #[test]
    fn the_same_place_is_found_by_another_mount() {
        let mounts = vec![mount(1, "8:1", "/", "/"), mount(2, "8:1", "/w/sub", "/b"), mount(3, "0:9", "/", "/b/in")];
        let mut reach = Reach { trees: Vec::new(), mounts };
        let tree = |reach: &Reach, id, path: &str, writable| {
            let spots = reach.spot(id, Path::new(path)).into_iter().collect();
            Tree { source: path.into(), writable, inode: None, spots }
        };
        reach.trees = vec![tree(&reach, 1, "/usr", false), tree(&reach, 1, "/w", true)];
        let found = |id, path: &str, all: bool| {
            let trail = Trail { paths: vec![(id, path.into())], ..Trail::default() };
            reach.find(&trail, !all).map(|tree| tree.source.to_string())
        };
        assert_eq!(found(2, "/b/p", false).as_deref(), Some("/w"), "a bind of a directory below");
        assert_eq!(found(2, "/b", false).as_deref(), Some("/w"));
        assert_eq!(found(1, "/wx/p", false), None, "a name that begins alike");
        assert_eq!(found(3, "/b/in/p", false), None, "another file system");
        assert_eq!(found(1, "/usr/p", false), None, "read-only");
        assert_eq!(found(1, "/usr/p", true).as_deref(), Some("/usr"));
        reach.trees = vec![tree(&reach, 2, "/b/deep", true)];
        let found = |path: &str| {
            let trail = Trail { paths: vec![(1, path.into())], ..Trail::default() };
            reach.find(&trail, true).is_some()
        };
        assert!(found("/w/sub/deep/x") && !found("/w/sub/x") && !found("/w/x"), "a bind of a directory above");
    }
}
