//! Determines which trees of the host a sandbox sees, and whether a file lies in one of them.
//!
//! Trees are compared by inode, and by file system and path on it. So a bind mount elsewhere of a directory below or above the
//! tree is recognised. If one file system shows another (an overlay its layers, a network file system its server's disk), the
//! kernel offers no way to tell.

use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::stat::fstat;

use crate::plan::container::MountSource;
use crate::plan::{Bytes, ContainerPlan, MountKind, Root, RunPlan};
use crate::sys::mountinfo;
use crate::sys::walk::{Trail, name_of};
use crate::sys::{
    file,
    mount::{self, RDONLY},
};

/// The host's trees that a plan shows.
#[derive(Debug)]
pub struct Reach {
    trees: Vec<Tree>,
    mounts: Vec<Mount>,
}

/// A file or directory of the host, with everything below it.
#[derive(Debug)]
pub struct Tree {
    /// Its path on the host.
    pub source: Bytes,
    /// Whether it is writable inside.
    pub writable: bool,
    /// Its device and inode. `None` for mounts below another tree.
    inode: Option<(u64, u64)>,
    /// Its locations.
    locations: Vec<Location>,
}

/// A path on a file system, which the device number identifies.
#[derive(Debug)]
struct Location {
    device: String,
    path: PathBuf,
}

/// A mount of this process.
#[derive(Debug, PartialEq)]
struct Mount {
    id: u64,
    device: String,
    /// The part of its file system that it shows.
    root: PathBuf,
    /// Its mount point.
    point: PathBuf,
}

impl Mount {
    fn of(mount: mountinfo::Mount<'_>) -> Self {
        Self { id: mount.id, device: mount.device.to_owned(), root: mount.root(), point: mount.point() }
    }
}

impl Reach {
    /// The trees of these sources, or only the writable ones. A source that does not exist or cannot be opened is skipped:
    /// mounting it reports that, if it is not optional.
    pub fn of(sources: impl Iterator<Item = Source>, writable_only: bool) -> Result<Self, Errno> {
        let wanted = |source: &Source| source.writable || source.writable_below || !writable_only;
        let sources: Vec<_> = sources.filter(wanted).collect();
        let mut reach = Self { trees: Vec::new(), mounts: Vec::new() };
        if sources.is_empty() {
            return Ok(reach);
        }
        let text = file::read(mountinfo::OWN)?;
        reach.mounts = mountinfo::parse(&text).map(Mount::of).collect();
        for Source { source, writable, writable_below } in sources {
            let Ok(opened) = file::open(source.as_path(), OFlag::O_PATH) else { continue };
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

    /// The tree that contains a file or a link on the way to it. A tree also counts if the file may have another name in it.
    /// Writable trees come first, except those whose source is one in which something else protects the file.
    pub fn find(&self, trail: &Trail, writable_only: bool, is_protected: impl Fn(&Bytes) -> bool) -> Option<&Tree> {
        let locations: Vec<Location> = trail.paths.iter().filter_map(|(id, path)| self.location(*id, path)).collect();
        let holds = |tree: &&Tree| {
            tree.inode.is_some_and(|inode| trail.inodes.contains(&inode))
                || tree.writable && tree.inode.is_some_and(|inode| trail.elsewhere == Some(inode.0))
                || tree.locations.iter().any(|tree| locations.iter().any(|location| location.is_below(tree)))
        };
        let writable = self.trees.iter().filter(|tree| tree.writable && !is_protected(&tree.source)).find(holds);
        writable.or_else(|| self.trees.iter().find(holds).filter(|_| !writable_only))
    }

    fn location(&self, mount: u64, path: &Path) -> Option<Location> {
        let mount = self.mounts.iter().find(|found| found.id == mount)?;
        let rest = path.strip_prefix(&mount.point).ok()?;
        // Joining an empty path would append a slash, and turn a file's path into a directory's.
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
    /// Whether mounts below it are writable.
    writable_below: bool,
}

impl Source {
    fn new(source: &Bytes, read_only: bool) -> Self {
        Self { source: source.clone(), writable: !read_only, writable_below: !read_only }
    }
}

/// The sources of a run.
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

/// The sources of a container.
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
    fn a_location_is_found_through_another_mount() {
        let mounts = vec![mount(1, "8:1", "/", "/"), mount(2, "8:1", "/w/sub", "/b"), mount(3, "0:9", "/", "/b/in")];
        let mut reach = Reach { trees: Vec::new(), mounts };
        let tree = |reach: &Reach, id, path: &str, writable| {
            let locations = reach.location(id, Path::new(path)).into_iter().collect();
            Tree { source: path.into(), writable, inode: None, locations }
        };
        reach.trees = vec![tree(&reach, 1, "/usr", false), tree(&reach, 1, "/w", true)];
        let found = |id, path: &str, all: bool| {
            let trail = Trail { paths: vec![(id, path.into())], ..Trail::default() };
            reach.find(&trail, !all, |_| false).map(|tree| tree.source.to_string())
        };
        assert_eq!(found(2, "/b/p", false).as_deref(), Some("/w"), "a bind of a directory below");
        assert_eq!(found(2, "/b", false).as_deref(), Some("/w"));
        assert_eq!(found(1, "/wx/p", false), None, "a name with the same prefix");
        assert_eq!(found(3, "/b/in/p", false), None, "another file system");
        assert_eq!(found(1, "/usr/p", false), None, "read-only");
        assert_eq!(found(1, "/usr/p", true).as_deref(), Some("/usr"));
        reach.trees = vec![tree(&reach, 2, "/b/deep", true)];
        let found = |path: &str| {
            let trail = Trail { paths: vec![(1, path.into())], ..Trail::default() };
            reach.find(&trail, true, |_| false).is_some()
        };
        assert!(found("/w/sub/deep/x") && !found("/w/sub/x") && !found("/w/x"), "a bind of a directory above");
    }
}
