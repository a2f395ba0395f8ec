//! Which trees of the host a sandbox gets to see, and whether a file lies in one of them.
//!
//! Trees are compared by inode, and by file system and path on it: a bind mount elsewhere of a directory below or above the
//! tree is the same place. What a file system shows of another (an overlay its layers, a network file system its server's
//! disk) the kernel tells nobody.

use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::{Mode, fstat};

use crate::plan::container::MountSource;
use crate::plan::{Bytes, ContainerPlan, MountKind, Root, RunPlan};
use crate::sys::mount::{self, RDONLY};
use crate::sys::mountinfo;
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
    locations: Vec<Location>,
}

/// A path on a file system, which is told by its device number.
#[derive(Debug)]
struct Location {
    device: String,
    path: PathBuf,
}

/// A mount of this process's.
#[derive(Debug, PartialEq)]
struct Mount {
    id: u64,
    device: String,
    /// What of its file system it shows.
    root: PathBuf,
    /// Where that is.
    point: PathBuf,
}

impl Mount {
    fn of(mount: mountinfo::Mount<'_>) -> Self {
        Self { id: mount.id, device: mount.device.to_owned(), root: mount.root(), point: mount.point() }
    }
}

impl Reach {
    /// What a plan shows of these, or only what it makes writable. A source that is not there, or not to be opened, is left to the
    /// mounting, which knows whether it may be missing.
    pub fn of(sources: impl Iterator<Item = Source>, writable_only: bool) -> Result<Self, Errno> {
        let wanted = |source: &Source| source.writable || source.writable_below || !writable_only;
        let sources: Vec<_> = sources.filter(wanted).collect();
        let mut reach = Self { trees: Vec::new(), mounts: Vec::new() };
        if sources.is_empty() {
            return Ok(reach);
        }
        let text = std::fs::read(mountinfo::OWN).map_err(|error| crate::error::errno_of(&error))?;
        reach.mounts = mountinfo::parse(&text).map(Mount::of).collect();
        for Source { source, writable, writable_below } in sources {
            let Ok(opened) = open(source.as_path(), OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty()) else { continue };
            let stat = fstat(&opened)?;
            let inode = Some((stat.st_dev, stat.st_ino));
            let path = name_of(&opened).ok_or(Errno::ENOENT)?;
            let locations = reach.location(mount::id_of(&opened)?, &path).into_iter().collect();
            let below = reach.mounts.iter().filter(|mount| mount.point.starts_with(&path));
            let below =
                below.map(|mount| Location { device: mount.device.clone(), path: mount.root.clone() }).collect();
            reach.trees.push(Tree { source: source.clone(), writable, inode, locations });
            reach.trees.push(Tree { source, writable: writable_below, inode: None, locations: below });
        }
        Ok(reach)
    }

    /// The tree that a file lies in, a link on the way to it does, or of which nobody can tell that it does not have a name
    /// of the file. The writable ones first.
    pub fn find(&self, trail: &Trail, writable_only: bool) -> Option<&Tree> {
        let locations: Vec<Location> = trail.paths.iter().filter_map(|(id, path)| self.location(*id, path)).collect();
        let holds = |tree: &&Tree| {
            tree.inode.is_some_and(|inode| trail.inodes.contains(&inode))
                || tree.writable && tree.inode.is_some_and(|inode| trail.elsewhere == Some(inode.0))
                || tree.locations.iter().any(|tree| locations.iter().any(|location| location.is_below(tree)))
        };
        let writable = self.trees.iter().filter(|tree| tree.writable).find(holds);
        writable.or_else(|| self.trees.iter().find(holds).filter(|_| !writable_only))
    }

    fn location(&self, mount: u64, path: &Path) -> Option<Location> {
        let mount = self.mounts.iter().find(|found| found.id == mount)?;
        let rest = path.strip_prefix(&mount.point).ok()?;
        // Joining nothing would add a slash, and make a file's path that of a directory.
        let path = if rest.as_os_str().is_empty() { mount.root.clone() } else { mount.root.join(rest) };
        Some(Location { device: mount.device.clone(), path })
    }
}

impl Location {
    fn is_below(&self, other: &Self) -> bool {
        self.device == other.device && self.path.starts_with(&other.path)
    }
}

/// A host path that a plan binds.
pub struct Source {
    source: Bytes,
    writable: bool,
    /// Whether what is mounted below it is.
    writable_below: bool,
}

impl Source {
    fn new(source: &Bytes, read_only: bool) -> Self {
        Self { source: source.clone(), writable: !read_only, writable_below: !read_only }
    }
}

/// What a run binds.
pub fn of_run(plan: &RunPlan) -> impl Iterator<Item = Source> + '_ {
    let root = match &plan.root {
        Root::Directory(path) => Some(Source::new(path, true)),
        Root::Synthetic => None,
    };
    let mounts = plan.mounts.iter().filter_map(|mount| match &mount.kind {
        MountKind::Bind { source } => Some(Source::new(source, mount.read_only)),
        MountKind::AsHost => Some(Source::new(&mount.destination, mount.read_only)),
        _ => None,
    });
    root.into_iter().chain(mounts)
}

/// What a container binds.
pub fn of_container(plan: &ContainerPlan) -> impl Iterator<Item = Source> + '_ {
    let root = plan.root.as_ref().map(|path| Source::new(path, plan.read_only));
    let mounts = plan.mounts.iter().filter_map(|mount| match &mount.source {
        MountSource::Bind { source, recursive } => Some(Source {
            source: source.clone(),
            writable: mount.set & RDONLY == 0,
            writable_below: *recursive && mount.set_below & RDONLY == 0,
        }),
        _ => None,
    });
    root.into_iter().chain(mounts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(id: u64, device: &str, root: &str, point: &str) -> Mount {
        Mount { id, device: device.into(), root: root.into(), point: point.into() }
    }

    #[test]
    fn the_same_place_is_found_by_another_mount() {
        let mounts = vec![mount(1, "8:1", "/", "/"), mount(2, "8:1", "/w/sub", "/b"), mount(3, "0:9", "/", "/b/in")];
        let mut reach = Reach { trees: Vec::new(), mounts };
        let tree = |reach: &Reach, id, path: &str, writable| {
            let locations = reach.location(id, Path::new(path)).into_iter().collect();
            Tree { source: path.into(), writable, inode: None, locations }
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
