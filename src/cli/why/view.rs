//! What the sandbox has at the start of a run: the plan's mounts are looked up on this host, and nothing is mounted. Questions
//! about files of the host are put to the kernel, with the ids that the workload would have.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, openat, readlinkat};
use nix::sys::stat::{FileStat, Mode, fstat};
use nix::unistd::{AccessFlags, faccessat};

use crate::confine::landlock::{Grant, grants};
use crate::error::{Error, Result, Step};
use crate::plan::{Bytes, Mount, MountKind, Root, RunPlan};
use crate::rootfs::{LINKS, MOST_COPIED, NODES, is_public};
use crate::run::Examined;
use crate::sys::credentials;

/// The kernel's limit on symlinks.
const MOST_LINKS: usize = 40;
const DIRECTORY: libc::mode_t = libc::S_IFDIR | 0o755;

/// The root and the mounts of a plan.
pub struct View<'a> {
    examined: Examined,
    mounts: Vec<Mounted<'a>>,
    /// Paths of the plan that are read-only with everything below them.
    frozen: Vec<PathBuf>,
}

/// A mount.
pub struct Mounted<'a> {
    /// Its place, without symlinks.
    pub at: PathBuf,
    entry: Entry,
    /// What it is.
    pub what: What<'a>,
    /// The owner of the files that it shows as the workload's own.
    shown_as_own: Option<(u32, u32)>,
}

/// What is mounted.
#[derive(Clone, Copy)]
pub enum What<'a> {
    /// The root.
    Root(&'a Root),
    /// A mount of the plan.
    Planned(&'a Mount),
    /// The cover of a masked path.
    Cover,
}

/// A file or directory of the sandbox.
#[derive(Clone)]
pub struct Node {
    /// Its path, without symlinks.
    pub path: PathBuf,
    /// The number of its mount.
    pub mount: usize,
    /// What it is.
    pub entry: Entry,
}

/// What there is at a path.
#[derive(Clone)]
pub enum Entry {
    /// A file of the host.
    Host(Rc<OwnedFd>, FileStat),
    /// Made for the sandbox, with this type and mode. It is the workload's own.
    Made(libc::mode_t),
    /// A symlink.
    Link(OsString),
    /// Only the run knows.
    Unknown,
}

/// Where a path leads: the root, each directory, and for what exists the file.
pub enum Found {
    /// To something.
    There(Vec<Node>),
    /// To nothing: the way to the last directory, the path without symlinks, and whether only the last name is missing.
    Missing(Vec<Node>, PathBuf, bool),
    /// The last of these is no directory, or may not be entered.
    Blocked(Vec<Node>, Errno),
    /// To what only the run knows.
    Unknown,
}

/// What Landlock recognises: an inode of the host, or a directory that is made.
#[derive(PartialEq, Eq)]
pub enum Key {
    Inode(libc::dev_t, libc::ino_t),
    Place(PathBuf),
}

impl Node {
    pub fn mode(&self) -> libc::mode_t {
        match &self.entry {
            Entry::Host(_, stat) => stat.st_mode,
            Entry::Made(mode) => *mode,
            Entry::Link(_) | Entry::Unknown => 0,
        }
    }

    pub fn is_dir(&self) -> bool {
        self.mode() & libc::S_IFMT == libc::S_IFDIR
    }

    pub fn key(&self) -> Key {
        match &self.entry {
            Entry::Host(_, stat) => Key::Inode(stat.st_dev, stat.st_ino),
            _ => Key::Place(self.path.clone()),
        }
    }
}

impl<'a> View<'a> {
    /// The view of a plan that a run would accept.
    pub fn of(plan: &'a RunPlan, examined: Examined) -> Result<Self> {
        let mut view = Self { examined, mounts: Vec::new(), frozen: Vec::new() };
        let root = match &plan.root {
            Root::Synthetic => Entry::Made(DIRECTORY),
            Root::Directory(path) => host(path.as_path(), OFlag::empty()).map_err(failed(path))?,
        };
        view.add("/".into(), root, What::Root(&plan.root));
        for mount in &plan.mounts {
            if let Some(entry) = entry_of(mount)? {
                let at = view.place(mount.destination.as_path());
                view.add(at, entry, What::Planned(mount));
            }
        }
        for path in &plan.confinement.masked_paths {
            if let Found::There(way) = view.locate(path.as_path(), false)
                && let Some(node) = way.last()
            {
                let cover = if node.is_dir() { libc::S_IFDIR | 0o555 } else { libc::S_IFREG | 0o444 };
                view.add(node.path.clone(), Entry::Made(cover), What::Cover);
            }
        }
        for path in &plan.confinement.readonly_paths {
            if let Found::There(way) = view.locate(path.as_path(), false) {
                view.frozen.extend(way.into_iter().last().map(|node| node.path));
            }
        }
        Ok(view)
    }

    fn add(&mut self, at: PathBuf, entry: Entry, what: What<'a>) {
        let writable = matches!(what, What::Planned(mount) if !mount.read_only);
        let shown_as_own = match &entry {
            Entry::Host(_, stat) if writable && self.examined.is_privileged => Some((stat.st_uid, stat.st_gid)),
            _ => None,
        };
        // Only files of another owner are mapped, see `rootfs::run_mounts`.
        let shown_as_own = shown_as_own.filter(|owner| *owner != self.examined.host_ids && !is_kernels(what));
        self.mounts.push(Mounted { at, entry, what, shown_as_own });
    }

    /// Whether the workload's user was chosen with privilege.
    pub fn is_privileged(&self) -> bool {
        self.examined.is_privileged
    }

    /// The mount of a node.
    pub fn mount(&self, node: &Node) -> &Mounted<'a> {
        &self.mounts[node.mount]
    }

    /// Whether the mount of a node, or the plan for its path, refuses writes.
    pub fn is_read_only(&self, node: &Node) -> bool {
        let by_mount = match self.mount(node).what {
            What::Root(_) | What::Cover => true,
            // What is in it is bound there, and can be written.
            What::Planned(Mount { kind: MountKind::Dev { .. }, .. }) => node.is_dir(),
            What::Planned(mount) => mount.read_only || matches!(mount.kind, MountKind::Sysfs | MountKind::Cgroup),
        };
        by_mount || self.frozen.iter().any(|path| node.path.starts_with(path))
    }

    /// Landlock's rules, by what they are about. `None` if there are none.
    pub fn rules(&self, plan: &RunPlan) -> Result<Option<Vec<(Key, Grant)>>> {
        let Some(wanted) = &plan.confinement.landlock else { return Ok(None) };
        let Some(grants) = grants(wanted, &plan.mounts)? else { return Ok(None) };
        let key = |grant: &Grant| match self.locate(grant.path.as_path(), false) {
            Found::There(way) => way.last().map(Node::key),
            _ => None,
        };
        Ok(Some(grants.into_iter().filter_map(|grant| Some((key(&grant)?, grant))).collect()))
    }

    /// Whether the workload's user may use a file so.
    pub fn permits(&self, node: &Node, wanted: AccessFlags) -> std::result::Result<(), Errno> {
        let (file, stat) = match &node.entry {
            Entry::Host(file, stat) => (file, stat),
            Entry::Made(mode) => {
                let bits = AccessFlags::from_bits_truncate((*mode >> 6 & 7) as i32);
                return if bits.contains(wanted) { Ok(()) } else { Err(Errno::EACCES) };
            }
            Entry::Link(_) | Entry::Unknown => return Ok(()),
        };
        let own = self.mount(node).shown_as_own;
        // An owner that the mount does not map cannot be written back.
        if wanted.contains(AccessFlags::W_OK) && own.is_some_and(|own| own != (stat.st_uid, stat.st_gid)) {
            return Err(Errno::EACCES);
        }
        let ask = || faccessat(file.as_ref(), c"", wanted, AtFlags::AT_EACCESS | AtFlags::AT_EMPTY_PATH);
        let (uid, gid) = own.unwrap_or(self.examined.host_ids);
        match self.examined.is_privileged {
            true => credentials::as_user(uid, gid, ask)?,
            false => ask(),
        }
    }

    /// Follows a path, and every symlink in it. With `enters` the workload's user must be allowed to enter each directory.
    pub fn locate(&self, path: &Path, enters: bool) -> Found {
        let mut left: VecDeque<OsString> = parts(path.as_os_str()).collect();
        let root = Node { path: "/".into(), mount: 0, entry: self.mounts[0].entry.clone() };
        let (mut way, mut links) = (vec![root], 0);
        while let Some(name) = left.pop_front() {
            let here = &way[way.len() - 1];
            if !here.is_dir() {
                return Found::Blocked(way, Errno::ENOTDIR);
            }
            if enters && let Err(errno) = self.permits(here, AccessFlags::X_OK) {
                return Found::Blocked(way, errno);
            }
            if name == ".." {
                way.truncate((way.len() - 1).max(1));
                continue;
            }
            let Some(next) = self.child(here, &name) else {
                let path = left.iter().fold(here.path.join(name), |path, part| path.join(part));
                return Found::Missing(way, path, left.is_empty());
            };
            match &next.entry {
                Entry::Unknown => return Found::Unknown,
                Entry::Link(target) => {
                    links += 1;
                    if links > MOST_LINKS {
                        return Found::Blocked(way, Errno::ELOOP);
                    }
                    if target.as_bytes().starts_with(b"/") {
                        way.truncate(1);
                    }
                    parts(target).rev().for_each(|part| left.push_front(part));
                }
                _ => way.push(next),
            }
        }
        let ends_in_directory = [&b"/"[..], b"/."].iter().any(|end| path.as_os_str().as_bytes().ends_with(end));
        match ends_in_directory && !way[way.len() - 1].is_dir() {
            true => Found::Blocked(way, Errno::ENOTDIR),
            false => Found::There(way),
        }
    }

    /// The path of a mount point: without the symlinks above it.
    fn place(&self, destination: &Path) -> PathBuf {
        let (parent, name) = (destination.parent().unwrap_or(destination), destination.file_name().unwrap_or_default());
        match self.locate(parent, false) {
            Found::There(way) => way[way.len() - 1].path.join(name),
            Found::Missing(_, path, _) => path.join(name),
            Found::Blocked(..) | Found::Unknown => destination.to_owned(),
        }
    }

    fn child(&self, directory: &Node, name: &OsStr) -> Option<Node> {
        let path = directory.path.join(name);
        if let Some(mount) = self.mounts.iter().rposition(|mount| mount.at == path) {
            return Some(Node { entry: self.mounts[mount].entry.clone(), mount, path });
        }
        let planned = match self.mount(directory).what {
            What::Planned(mount) => Some(&mount.kind),
            _ => None,
        };
        let entry = match (&directory.entry, planned) {
            (_, Some(MountKind::Proc { .. })) if is_of_process(name) => Some(Entry::Unknown),
            (Entry::Host(file, _), _) => entry_at(file, name),
            (Entry::Made(_), Some(MountKind::Dev { devices })) => device(devices, &path),
            _ => None,
        };
        entry.or_else(|| self.on_the_way(&path)).map(|entry| Node { entry, mount: directory.mount, path })
    }

    /// A directory that is made because a mount point lies below it.
    fn on_the_way(&self, path: &Path) -> Option<Entry> {
        let mut below = self.mounts.iter().filter(|mount| mount.at.starts_with(path)).peekable();
        below.peek()?;
        let is_known = below.any(|mount| !matches!(mount.entry, Entry::Unknown));
        Some(if is_known { Entry::Made(DIRECTORY) } else { Entry::Unknown })
    }
}

/// Whether a mount's files are the kernel's.
fn is_kernels(what: What<'_>) -> bool {
    matches!(what, What::Planned(Mount { kind: MountKind::Proc { .. } | MountKind::Sysfs | MountKind::Dev { .. }, .. }))
}

/// What a mount shows at its place. `None` if a run would leave it out.
fn entry_of(mount: &Mount) -> Result<Option<Entry>> {
    let destination = mount.destination.as_path();
    let found = match &mount.kind {
        MountKind::Bind { source } => (host(source.as_path(), OFlag::empty()), source),
        MountKind::AsHost => (host(destination, OFlag::O_NOFOLLOW), &mount.destination),
        MountKind::Proc { pid_only: false } | MountKind::Sysfs => {
            (host(destination, OFlag::empty()), &mount.destination)
        }
        kind => return Ok(Some(made(kind))),
    };
    Ok(match found {
        (Err(Errno::ENOENT | Errno::ENOTDIR), _) if mount.optional => None,
        (entry, source) => copied(entry.map_err(failed(source))?, &mount.kind),
    })
}

/// Of the host's own files, a run leaves out those that not everyone may read, and copies small ones.
fn copied(entry: Entry, kind: &MountKind) -> Option<Entry> {
    let Entry::Host(_, stat) = &entry else { return Some(entry) };
    let is_file = stat.st_mode & libc::S_IFMT == libc::S_IFREG;
    match kind {
        MountKind::AsHost if !is_public(stat) => None,
        MountKind::AsHost if is_file && stat.st_size <= MOST_COPIED as i64 => Some(Entry::Made(libc::S_IFREG | 0o644)),
        _ => Some(entry),
    }
}

fn made(kind: &MountKind) -> Entry {
    match kind {
        MountKind::Tmpfs { mode, .. } | MountKind::Scratch { mode } => Entry::Made(libc::S_IFDIR | mode),
        MountKind::File { mode, .. } => Entry::Made(libc::S_IFREG | mode),
        MountKind::Symlink { target } => Entry::Link(target.as_path().into()),
        MountKind::Cgroup => Entry::Unknown,
        MountKind::Proc { .. } => Entry::Made(libc::S_IFDIR | 0o555),
        MountKind::Mqueue => Entry::Made(libc::S_IFDIR | 0o1777),
        MountKind::Dev { .. } | MountKind::Bind { .. } | MountKind::AsHost | MountKind::Sysfs => Entry::Made(DIRECTORY),
    }
}

/// What the new `/dev` has at a path.
fn device(devices: &[Bytes], path: &Path) -> Option<Entry> {
    let name = path.strip_prefix("/dev").ok()?.as_os_str().as_bytes();
    if let Some((_, target)) = LINKS.iter().find(|(link, _)| link.to_bytes() == name) {
        return Some(Entry::Link(OsStr::from_bytes(target.to_bytes()).to_owned()));
    }
    if NODES.iter().any(|(node, ..)| node.to_bytes() == name) || devices.iter().any(|device| device.as_path() == path) {
        return host(path, OFlag::empty()).ok();
    }
    if devices.iter().any(|device| device.as_path().starts_with(path)) {
        return Some(Entry::Made(DIRECTORY));
    }
    (name == b"pts").then_some(Entry::Unknown)
}

/// Whether this name in `/proc` is about a process, or leads to one.
fn is_of_process(name: &OsStr) -> bool {
    let name = name.as_bytes();
    name.iter().all(u8::is_ascii_digit) || [&b"self"[..], b"thread-self", b"mounts", b"net"].contains(&name)
}

fn host(path: &Path, flags: OFlag) -> std::result::Result<Entry, Errno> {
    let file = openat(AT_FDCWD, path, OFlag::O_PATH | OFlag::O_CLOEXEC | flags, Mode::empty())?;
    entry_of_file(file)
}

fn entry_at(directory: &OwnedFd, name: &OsStr) -> Option<Entry> {
    let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    openat(directory, name, flags, Mode::empty()).and_then(entry_of_file).ok()
}

fn entry_of_file(file: OwnedFd) -> std::result::Result<Entry, Errno> {
    let stat = fstat(&file)?;
    Ok(match stat.st_mode & libc::S_IFMT {
        libc::S_IFLNK => Entry::Link(readlinkat(&file, c"")?),
        _ => Entry::Host(Rc::new(file), stat),
    })
}

fn failed(path: &Bytes) -> impl Fn(Errno) -> Error + '_ {
    move |errno| Error::errno(Step::Source, path.to_string(), errno)
}

fn parts(path: &OsStr) -> impl DoubleEndedIterator<Item = OsString> {
    let parts = path.as_bytes().split(|byte| *byte == b'/').filter(|part| !matches!(*part, b"" | b"."));
    parts.map(|part| OsStr::from_bytes(part).to_owned())
}
