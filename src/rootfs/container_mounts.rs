//! Turns the mounts of a container's configuration into operations.

use std::ffi::CString;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::Path;

use super::mount_point::relative;
use super::operation::{self, MountPoint, Operation, What};
use super::source::{SLAVE, Source};
use crate::error::{Error, Result, Step};
use crate::plan::Bytes;
use crate::plan::container::{CgroupView, ContainerMount, IdRange, MountSource};
use crate::sys::mount::{Attributes, NODEV, NOEXEC, NOSUID, RDONLY};

/// Everything besides the plan that preparing a container's mounts needs.
pub struct Surroundings<'a> {
    /// The container's root on the host, without links.
    pub root: &'a Path,
    /// Whether mounts can be cloned before the new namespaces exist.
    pub privileged: bool,
    /// Whether the container has a user namespace. For it, the restrictions of the host's mounts are locked.
    pub locked: bool,
    /// Creates the user namespace of an idmapped mount.
    pub idmap: fn(&[IdRange], &[IdRange]) -> Result<OwnedFd>,
    /// The container's own id maps, for an idmapped mount without maps.
    pub maps: (&'a [IdRange], &'a [IdRange]),
    /// The user namespace that the container enters. It then replaces those maps.
    pub users: Option<BorrowedFd<'a>>,
    /// The pid namespace that the container joins, if its root is built by a process outside of it.
    pub pids: Option<BorrowedFd<'a>>,
    /// The container's cgroups.
    pub cgroups: &'a CgroupView,
    /// SELinux label of the mounts.
    pub label: Option<&'a str>,
}

/// Parent half.
pub fn prepare(index: usize, mount: &ContainerMount, around: &mut Surroundings<'_>) -> Result<Operation> {
    let about = || mount.destination.to_string();
    let destination = relative(mount.destination.as_path())?;
    let text = |bytes: &[u8]| {
        CString::new(bytes).map_err(|_| Error::new(Step::Mount, about(), "has an option with a NUL byte"))
    };
    let parts_of = |options: &[Bytes]| -> Result<Vec<_>> {
        let parts = options.iter().map(|option| {
            let mut parts = option.as_bytes().splitn(2, |byte| *byte == b'=');
            let (name, value) = (parts.next().unwrap_or_default(), parts.next());
            Ok((text(name)?, value.map(text).transpose()?))
        });
        parts.collect()
    };
    let what = match &mount.source {
        MountSource::Bind { source, recursive } => match inside(source.as_path(), around.root)? {
            Some(_) if mount.idmap => {
                let reason = "lies in the container's root, where only a mount that is not idmapped can begin";
                return Err(Error::new(Step::Source, source.to_string(), reason));
            }
            Some(path) => What::Inside { path, recursive: *recursive, changes: changes(mount, around.locked) },
            None => tree(source.as_path(), *recursive, mount, around)?,
        },
        MountSource::FileSystem { kind, source, options } => {
            let mut all = Vec::new();
            if let Some(source) = source {
                all.push((c"source".to_owned(), Some(text(source.as_bytes())?)));
            }
            all.extend(parts_of(options)?);
            if let Some(label) = around.label.filter(|_| takes_label(kind)) {
                all.push((c"context".to_owned(), Some(text(label.as_bytes())?)));
            }
            // Otherwise a procfs shows the pid namespace of the process that mounts it.
            if let Some(pids) = around.pids.filter(|_| kind == "proc") {
                all.push((c"pidns".to_owned(), Some(text(format!("/proc/self/fd/{}", pids.as_raw_fd()).as_bytes())?)));
            }
            // An image must not redirect these: the mount point must be a directory and not a symlink.
            let strict = matches!(kind.as_str(), "proc" | "sysfs");
            What::FileSystem { kind: text(kind.as_bytes())?, options: all, strict, copy_up: mount.copy_up }
        }
        MountSource::Remount { options } => {
            What::Existing { clear: mount.clear & !mount.set_below | mount.clear_below, options: parts_of(options)? }
        }
        MountSource::Cgroup => cgroup(mount, around).map_err(|error| Error { object: about(), ..error })?,
    };
    // Attributes for all mounts below also apply to this mount, and override its own.
    let set = mount.set & !mount.clear_below & !(atime(mount.set_below)) | mount.set_below;
    if destination.as_bytes() == b"proc" && !is_proc(&what) {
        return Err(Error::new(Step::Mount, about(), "only a procfs can be mounted there"));
    }
    Ok(Operation::Mount(operation::Mount {
        index,
        point: MountPoint::InRoot(destination),
        what,
        set,
        set_below: mount.set_below,
        propagation: mount.propagation.clone(),
    }))
}

/// Whether it is a procfs, new or bound. Later steps read and write files at that place and rely on this.
fn is_proc(what: &What) -> bool {
    match what {
        What::FileSystem { kind, .. } => kind.as_c_str() == c"proc",
        What::Tree { source, .. } => source.is_proc(),
        What::Existing { .. } => true,
        _ => false,
    }
}

/// All bits of the access-time setting if one of them is set, because they form one number.
fn atime(set: u64) -> u64 {
    if set & libc::MOUNT_ATTR__ATIME != 0 { libc::MOUNT_ATTR__ATIME } else { 0 }
}

/// Kernel file systems have labels of their own.
fn takes_label(kind: &str) -> bool {
    !matches!(kind, "proc" | "sysfs" | "mqueue" | "cgroup" | "cgroup2" | "securityfs" | "debugfs" | "tracefs")
}

/// The path within the root, if a source lies there. An earlier mount of the same configuration may cover it, or be its only
/// reason to exist, so the child resolves it when its turn comes, and never leaves the root.
fn inside(source: &Path, root: &Path) -> Result<Option<CString>> {
    if root.as_os_str().is_empty() {
        return Ok(None);
    }
    let mut existing = source;
    loop {
        if let Ok(found) = std::fs::canonicalize(existing) {
            let Ok(within) = found.strip_prefix(root) else { return Ok(None) };
            let rest = source.strip_prefix(existing).unwrap_or(Path::new(""));
            return relative(&within.join(rest)).map(Some);
        }
        match existing.parent() {
            Some(parent) => existing = parent,
            None => return Ok(None),
        }
    }
}

/// The changes that turn a mount of the source into the configured one.
///
/// As mount(2) under runc does: without an option for it, a bind keeps the attributes of its source; with any, it has these
/// alone, and of the access times what is not named. In a user namespace the source's restrictions are locked and stay.
fn changes(mount: &ContainerMount, locked: bool) -> Vec<Attributes<'static>> {
    const ALONE: u64 = RDONLY | NOSUID | NODEV | NOEXEC | libc::MOUNT_ATTR_NOSYMFOLLOW;
    const TIMES: u64 = libc::MOUNT_ATTR__ATIME | libc::MOUNT_ATTR_NODIRATIME;
    // A clone propagates no mount events to the host, unless the configuration requests that.
    let mut changes = Vec::new();
    if !mount.propagation.iter().any(|kind| kind & libc::MS_SHARED != 0) {
        changes.push(SLAVE);
    }
    let (given, clear) = (mount.set | mount.clear, mount.clear);
    let clear = match (locked, given) {
        (true, _) => clear & TIMES,
        (false, 0) => 0,
        (false, given) => clear | ALONE | if given & libc::MOUNT_ATTR__ATIME != 0 { TIMES } else { 0 },
    };
    let one = Attributes { set: mount.set, clear, ..Attributes::default() };
    let below = Attributes { set: mount.set_below, clear: mount.clear_below, recursive: true, ..Attributes::default() };
    changes.extend([one, below].into_iter().filter(|change| change.set | change.clear != 0));
    changes
}

fn tree(path: &Path, recursive: bool, mount: &ContainerMount, around: &mut Surroundings<'_>) -> Result<What> {
    let failed = |errno| Error::errno(Step::Source, path.display().to_string(), errno);
    let source = Source::following(path, around.privileged, recursive).map_err(failed)?;
    let changes = changes(mount, around.locked);
    if mount.idmap {
        if !around.privileged {
            return Err(Error::new(Step::Source, path.display().to_string(), "only root can map the ids of a mount"));
        }
        let own = mount.uid_map.is_empty() && mount.gid_map.is_empty();
        let (uids, gids) = if own { around.maps } else { (&mount.uid_map[..], &mount.gid_map[..]) };
        let made = if own && around.users.is_some() { None } else { Some((around.idmap)(uids, gids)?) };
        let namespace = made.as_ref().map(AsFd::as_fd).or(around.users);
        let change = Attributes { recursive: mount.idmap_below, idmap: namespace, ..Attributes::default() };
        source.set_attributes(change).map_err(|errno| {
            failed(errno)
                .hint("its file system may not support idmapped mounts; leave idmap out, or use another file system")
        })?;
    }
    if around.privileged {
        for change in &changes {
            source.set_attributes(*change).map_err(failed)?;
        }
    }
    Ok(What::Tree { source, changes })
}

fn cgroup(mount: &ContainerMount, around: &mut Surroundings<'_>) -> Result<What> {
    let v2 = |name: &str| name.is_empty();
    match around.cgroups.directories.as_slice() {
        // Engines request this mount even without cgroups. Then the container gets an empty directory.
        [] => Ok(What::CgroupV1 { hierarchies: Vec::new(), changes: Vec::new(), links: Vec::new() }),
        [(name, _)] if v2(name) && around.cgroups.own_namespace => {
            Ok(What::FileSystem { kind: c"cgroup2".to_owned(), options: Vec::new(), strict: false, copy_up: false })
        }
        [(name, directory)] if v2(name) => tree(directory, true, mount, around),
        hierarchies => {
            let text = |text: &str| CString::new(text).expect("names of controllers hold no NUL");
            let mut bound = Vec::new();
            for (name, directory) in hierarchies {
                let What::Tree { source, .. } = tree(directory, true, mount, around)? else { continue };
                bound.push((text(name), source));
            }
            let links = around.cgroups.links.iter().map(|(name, target)| (text(name), text(target))).collect();
            Ok(What::CgroupV1 { hierarchies: bound, changes: changes(mount, around.locked), links })
        }
    }
}
