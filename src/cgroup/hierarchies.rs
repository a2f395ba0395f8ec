//! Finds the mounted cgroup hierarchies, and the position of this process in them.
//!
//! A mount is identified by its file system type, never by its path: on a hybrid host `/sys/fs/cgroup` is a tmpfs, where a file
//! `memory.max` can be created, written and read back without limiting anything.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::sys::statfs::{CGROUP_SUPER_MAGIC, CGROUP2_SUPER_MAGIC, statfs};

use crate::error::Result;
use crate::plan::Facility;
use crate::sys::{file, mountinfo};

const DEFAULT_MOUNT: &str = "/sys/fs/cgroup";

/// The hierarchies of this host.
#[derive(Debug, Default, PartialEq)]
pub struct Hierarchies {
    /// The hierarchy of cgroup v2, if it is mounted.
    pub v2: Option<V2>,
    /// The hierarchies of cgroup v1 that have a controller, `cgroups(7)`.
    pub v1: Vec<V1>,
    /// The named hierarchies of cgroup v1, which have no controller and limit nothing (systemd's on hybrid hosts).
    pub named: Vec<V1>,
}

/// The hierarchy of cgroup v2.
#[derive(Debug, PartialEq)]
pub struct V2 {
    /// Its topmost visible directory.
    pub mount: PathBuf,
    /// The directory of this process.
    pub own: PathBuf,
}

/// A hierarchy of cgroup v1.
#[derive(Debug, PartialEq)]
pub struct V1 {
    /// Its controllers, or `name=` and its name.
    pub controllers: Vec<String>,
    /// Its topmost visible directory.
    pub mount: PathBuf,
    /// The directory of this process.
    pub own: PathBuf,
}

impl Hierarchies {
    /// Whether v1 has a controller. Then v2 cannot have it.
    pub fn has_on_v1(&self, controller: Facility) -> bool {
        self.v1.iter().flat_map(|v1| &v1.controllers).any(|taken| taken == v1_name(controller))
    }
}

/// Finds the hierarchies from this process's mounts and memberships. A failure counts as an absent hierarchy.
pub fn look() -> Hierarchies {
    try_look().unwrap_or_default()
}

/// As [`look`], for callers that depend on every hierarchy: a hierarchy that is overlooked confines nothing.
///
/// # Errors
///
/// Fails if an existing or possibly existing hierarchy cannot be read.
pub fn try_look() -> Result<Hierarchies> {
    Memberships::read()?.look()
}

/// The hierarchies of the kernel, mounted or not, with the position of this process.
#[derive(Debug, Default)]
pub struct Memberships(Vec<Membership>);

impl Memberships {
    /// Reads them from procfs.
    pub fn read() -> Result<Self> {
        Ok(Self(memberships(&String::from_utf8_lossy(&read("/proc/self/cgroup")?))))
    }

    /// Whether v1 has a controller. Then v2 cannot have it.
    pub fn has_on_v1(&self, controller: Facility) -> bool {
        self.0.iter().flat_map(|of| &of.controllers).any(|taken| taken == v1_name(controller))
    }

    /// As [`try_look`].
    pub fn look(self) -> Result<Hierarchies> {
        let Self(memberships) = self;
        // The common case, without reading the whole mount table.
        if is_v2(Path::new(DEFAULT_MOUNT))?
            && let [Membership { controllers, path }] = memberships.as_slice()
            && controllers.is_empty()
        {
            let own = below(Path::new(DEFAULT_MOUNT), "/", path);
            if is_dir(&own)? {
                let v2 = Some(V2 { mount: DEFAULT_MOUNT.into(), own });
                return Ok(Hierarchies { v2, ..Hierarchies::default() });
            }
        }
        let mounts = mounts(&read(mountinfo::OWN)?);
        let mut found = Hierarchies::default();
        for Membership { controllers, path } in memberships {
            let (version, is_real): (_, fn(&Path) -> Result<bool>) =
                if controllers.is_empty() { (2, is_v2) } else { (1, is_v1) };
            let mut real = None;
            for mount in &mounts {
                if mount.version == version
                    && controllers.iter().all(|controller| mount.options.contains(controller))
                    && is_real(&mount.at)?
                {
                    real = Some(mount);
                    break;
                }
            }
            let Some(mount) = real else { continue };
            let own = below(&mount.at, &mount.root, &path);
            if !is_dir(&own)? {
                continue;
            }
            if controllers.is_empty() {
                found.v2 = Some(V2 { mount: mount.at.clone(), own });
                continue;
            }
            let named = controllers.iter().any(|name| name.starts_with("name="));
            let list = if named { &mut found.named } else { &mut found.v1 };
            list.push(V1 { controllers, mount: mount.at.clone(), own });
        }
        Ok(found)
    }
}

fn v1_name(controller: Facility) -> &'static str {
    if controller == Facility::Io { "blkio" } else { controller.name() }
}

fn is_v2(path: &Path) -> Result<bool> {
    has(path, statfs(path).map(|fs| fs.filesystem_type() == CGROUP2_SUPER_MAGIC))
}

fn is_v1(path: &Path) -> Result<bool> {
    has(path, statfs(path).map(|fs| fs.filesystem_type() == CGROUP_SUPER_MAGIC))
}

fn is_dir(path: &Path) -> Result<bool> {
    has(path, nix::sys::stat::stat(path).map(|found| found.st_mode & libc::S_IFMT == libc::S_IFDIR))
}

/// A covered or inaccessible directory counts as absent. Any other error is a failure.
fn has(path: &Path, found: nix::Result<bool>) -> Result<bool> {
    match found {
        Err(Errno::ENOENT | Errno::ENOTDIR | Errno::EACCES) => Ok(false),
        found => found.map_err(|errno| super::failed(path, errno)),
    }
}

fn read(path: &str) -> Result<Vec<u8>> {
    match file::read(path) {
        Err(Errno::ENOENT) => Ok(Vec::new()), // the kernel has no cgroups
        read => read.map_err(|errno| super::failed(Path::new(path), errno)),
    }
}

/// The directory of a cgroup, in a mount that shows the cgroup `root` at `mount`.
fn below(mount: &Path, root: &str, path: &str) -> PathBuf {
    let within = path.strip_prefix(root.trim_end_matches('/')).unwrap_or(path);
    match within.trim_start_matches('/') {
        "" => mount.to_owned(),
        within => mount.join(within),
    }
}

/// A line of `/proc/self/cgroup`. A line without controllers is for cgroup v2.
#[derive(Debug, PartialEq)]
pub struct Membership {
    controllers: Vec<String>,
    path: String,
}

impl Membership {
    /// Whether it is in the hierarchy with these controllers: without any, in cgroup v2.
    pub fn is_of(&self, controllers: &[String]) -> bool {
        self.controllers.is_empty() == controllers.is_empty()
            && controllers.iter().all(|name| self.controllers.contains(name))
    }

    /// The name of the cgroup's directory.
    pub fn name(&self) -> Option<&OsStr> {
        Path::new(&self.path).file_name()
    }
}

/// Parses the lines of `/proc/self/cgroup`.
pub fn memberships(text: &str) -> Vec<Membership> {
    let of_line = |line: &str| {
        let mut fields = line.splitn(3, ':'); // the path may contain colons
        let (id, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        let controllers: Vec<_> = controllers.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect();
        let known = controllers.is_empty() == (id == "0");
        known.then_some(Membership { controllers, path: path.to_owned() })
    };
    text.lines().filter_map(of_line).collect()
}

/// A mount of a cgroup file system.
#[derive(Debug, PartialEq)]
pub struct Mount {
    /// The version of cgroups.
    pub version: u8,
    /// The mounted cgroup. A container without a cgroup namespace sees only its own cgroup, so this is not always `/`.
    root: String,
    /// The mount point.
    pub at: PathBuf,
    options: Vec<String>,
}

/// Parses the mounts of cgroup file systems.
pub fn mounts(text: &[u8]) -> Vec<Mount> {
    let cgroup = |mount: mountinfo::Mount<'_>| {
        let version = match mount.kind {
            "cgroup2" => 2,
            "cgroup" => 1,
            _ => return None,
        };
        let options = mount.super_options().map(|option| String::from_utf8_lossy(option).into_owned()).collect();
        Some(Mount { version, root: mount.root().to_string_lossy().into_owned(), at: mount.point(), options })
    };
    mountinfo::parse(text).filter_map(cgroup).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memberships_of_a_hybrid_host() {
        let found = memberships("9:name=systemd:/s\n8:pids:/\n3:cpu,cpuacct:/a\n0::/user.slice/x:y\nx\n5::/z\n");
        let of = |controllers: &[&str], path: &str| Membership {
            controllers: controllers.iter().map(ToString::to_string).collect(),
            path: path.into(),
        };
        let v2 = of(&[], "/user.slice/x:y");
        assert_eq!(found, [of(&["name=systemd"], "/s"), of(&["pids"], "/"), of(&["cpu", "cpuacct"], "/a"), v2]);
        let are_of = |names: &[&str]| {
            let names: Vec<_> = names.iter().map(ToString::to_string).collect();
            found.iter().map(|one| one.is_of(&names)).collect::<Vec<_>>()
        };
        assert_eq!(are_of(&[]), [false, false, false, true]);
        assert_eq!(are_of(&["cpu"]), [false, false, true, false]);
    }

    #[test]
    fn mounts_are_identified_by_type() {
        let text = b"36 25 0:30 /a /sys/fs/cgroup/unified rw shared:9 - cgroup2 cgroup2 rw\n\
            37 25 0:31 / /sys/fs/cgroup/pi\\040ds rw - cgroup cgroup rw,pids\n38 25 0:32 / /mnt rw - tmpfs cgroup2 rw\nx - y\n";
        let mounts = mounts(text);
        assert_eq!(mounts.len(), 2);
        assert_eq!((mounts[0].version, mounts[0].root.as_str()), (2, "/a"));
        assert_eq!(mounts[1].at, Path::new("/sys/fs/cgroup/pi ds"));
        assert_eq!(mounts[1].options, ["rw", "pids"]);
        assert_eq!(below(&mounts[0].at, "/a", "/a/b"), Path::new("/sys/fs/cgroup/unified/b"));
        assert_eq!(below(&mounts[0].at, "/a", "/a"), Path::new("/sys/fs/cgroup/unified"));
        assert_eq!(below(Path::new(DEFAULT_MOUNT), "/", "/"), Path::new(DEFAULT_MOUNT));
    }
}
