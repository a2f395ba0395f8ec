//! Operations: each makes one entry of the new root, a mount or a generated file or symlink. The mounts of runs and containers
//! become operations. The parent opens sources and formats texts; the child creates and attaches the mounts by descriptor.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::AtFlags;
use nix::sys::stat::{Mode, fstat, mkdirat};
use nix::sys::statfs::{PROC_SUPER_MAGIC, fstatfs};
use nix::unistd::{Gid, Uid, fchownat, symlinkat};

use super::content::Content;
use super::dev::Dev;
use super::mount_point::{LastParent, MountPointPlan, Shape, make_directory};
use super::read_back::{self, Expected};
use super::source::Source;
use super::{copy_up, proc, within};
use crate::error::Step;
use crate::failure::{Applied, During, Missing, MissingSet};
use crate::sys::mount::{self, Attributes, FsContext, IN_ROOT, NO_MAGICLINKS, RDONLY};

/// One entry, prepared.
#[derive(Debug)]
#[allow(clippy::large_enum_variant)] // a plan has some thirty, nearly all mounts
pub enum Operation {
    /// A mount.
    Mount(Mount),
    /// A generated entry, on a file system of the sandbox.
    Entry {
        /// The index of the plan's mount.
        index: usize,
        /// Its mount point.
        place: MountPointPlan,
        /// Its content.
        content: Content,
    },
}

/// A mount, prepared.
#[derive(Debug)]
pub struct Mount {
    /// The index of the plan's mount.
    pub index: usize,
    /// Its mount point.
    pub point: MountPoint,
    /// Its source.
    pub what: What,
    /// Its final attributes, `MOUNT_ATTR_*`.
    pub set: u64,
    /// The attributes that every mount below it must have too.
    pub set_below: u64,
    /// Propagation changes, in order: `MS_*`, with `MS_REC` for all mounts below too.
    pub propagation: Vec<u64>,
}

/// A mount point.
#[derive(Debug)]
pub enum MountPoint {
    /// A planned mount point. Entries are created only on file systems of the sandbox.
    Planned(MountPointPlan),
    /// A path in a container's root: resolved within the root, created if it does not exist. Other processes may share these
    /// mounts, and hooks run meanwhile, so the mounts are read back at the end.
    InRoot(CString),
}

/// The source of a mount.
#[derive(Debug)]
pub enum What {
    /// A tree of the host, with these attribute changes.
    Tree { source: Source, changes: Vec<Attributes<'static>> },
    /// A tree of the container's root as the earlier mounts show it, with these attribute changes.
    Inside { path: CString, recursive: bool, changes: Vec<Attributes<'static>> },
    /// A new instance of a file system.
    FileSystem { kind: CString, options: Vec<(CString, Option<CString>)>, strict: bool, copy_up: bool },
    /// A new procfs, or, where the kernel refuses one because part of the caller's own is covered, what the run accepts instead.
    Proc { options: Vec<(CString, Option<CString>)>, instead: Option<Instead> },
    /// A directory of the scratch tmpfs.
    Scratch { name: CString, mode: Mode },
    /// A new `/dev`.
    Dev(Dev),
    /// The mount that exists there, with other attributes.
    Existing { clear: u64, options: Vec<(CString, Option<CString>)> },
    /// A tmpfs with the sandbox's own hierarchies of cgroup v1, each with these attribute changes.
    CgroupV1 { hierarchies: Vec<(CString, Source)>, changes: Vec<Attributes<'static>>, links: Vec<(CString, CString)> },
}

/// What `/proc` holds if no new procfs may be mounted.
#[derive(Debug)]
pub struct Instead {
    /// Its entries.
    pub entries: Vec<Operation>,
    /// What is missing then.
    pub missing: Missing,
}

/// Results of the operations, for later steps.
#[derive(Debug, Default)]
pub struct BuildResults<'a> {
    /// Where the last entry was created.
    last: LastParent<'a>,
    /// File systems that become read-only when the root is complete.
    pub freeze: Vec<OwnedFd>,
    /// The new devpts instance at `/dev/pts`.
    pub devpts: Option<OwnedFd>,
    /// The new procfs at `/proc`, if it is unrestricted.
    pub proc: Option<OwnedFd>,
    /// The expected final state of the mounts.
    pub expected: Vec<Expected>,
    /// What could not be mounted and may be missing.
    pub missing: MissingSet,
}

impl Operation {
    /// Parent half, after the clone: closes inherited mounts. Closing the last copy takes time, and so happens in the child.
    pub fn drop_parent_copies(&mut self) {
        match self {
            Self::Mount(Mount { what: What::Tree { source, .. }, .. }) => source.drop_parent_copies(),
            Self::Mount(Mount { what: What::Dev(dev), .. }) => dev.drop_parent_copies(),
            Self::Mount(Mount { what: What::Proc { instead: Some(instead), .. }, .. }) => {
                instead.entries.iter_mut().for_each(Self::drop_parent_copies);
            }
            _ => {}
        }
    }

    /// Child half: creates the mount point if necessary, and then the entry.
    pub fn apply<'a>(
        &'a self,
        root: BorrowedFd<'_>,
        scratch: BorrowedFd<'_>,
        results: &mut BuildResults<'a>,
    ) -> Applied {
        match self {
            Self::Mount(mount) => mount.apply(root, scratch, results),
            Self::Entry { index, place, content } => {
                place.create(root, &mut results.last).during(Step::MountPoint, *index)?;
                let make = |parent: BorrowedFd<'_>, name: &CStr| content.create(parent, name);
                place.entry.create(root, &mut results.last, make).during(Step::Mount, *index)
            }
        }
    }

    /// The path of the device node of a [`Step::Device`] failure.
    pub fn device(&self, at: usize) -> Option<String> {
        if let Self::Mount(Mount { what: What::Dev(dev), .. }) = self { dev.node_path(at) } else { None }
    }
}

impl Mount {
    fn apply<'a>(&'a self, root: BorrowedFd<'_>, scratch: BorrowedFd<'_>, results: &mut BuildResults<'a>) -> Applied {
        let existed = self.covers_a_directory(root);
        let inside = self.clone_inside(root)?;
        let target = self.target(root, inside.as_ref(), &mut results.last).during(Step::MountPoint, self.index)?;
        match &self.what {
            What::Inside { .. } => inside.map_or(Ok(()), |tree| self.attach(tree.as_fd(), &target, results)),
            What::Tree { source, changes } => {
                let tree = source.tree(changes).during(Step::Mount, self.index)?;
                self.attach(tree.as_fd(), &target, results)
            }
            What::FileSystem { kind, options, copy_up, .. } => {
                let tree = self.file_system(kind, options, &target, existed).during(Step::Mount, self.index)?;
                if *copy_up {
                    let (from, to) = (within::directory(&target), within::directory(&tree));
                    from.and_then(|from| copy_up::copy(from.as_fd(), to?.as_fd(), 0))
                        .during(Step::Mount, self.index)?;
                }
                self.attach(tree.as_fd(), &target, results)?;
                self.keep(kind, options, tree, results);
                Ok(())
            }
            What::Proc { options, instead } => match (self.file_system(c"proc", options, &target, existed), instead) {
                (Err(Errno::EPERM), Some(instead)) => {
                    results.missing.add(instead.missing);
                    instead.entries.iter().try_for_each(|entry| entry.apply(root, scratch, results))
                }
                (made, _) => {
                    let tree = made.during(Step::Mount, self.index)?;
                    self.attach(tree.as_fd(), &target, results)?;
                    self.keep(c"proc", options, tree, results);
                    Ok(())
                }
            },
            What::Scratch { name, mode } => {
                mkdirat(scratch, name.as_c_str(), *mode).during(Step::MountPoint, self.index)?;
                let tree = mount::clone_tree(scratch, name, false).during(Step::MountClone, self.index)?;
                let change = Attributes { set: self.set, ..Attributes::default() };
                mount::set_attributes(&tree, change).during(Step::MountAttributes, self.index)?;
                self.attach(tree.as_fd(), &target, results)
            }
            What::Dev(dev) => {
                let (tmpfs, devpts) = dev.apply(target.as_fd())?;
                results.freeze.push(tmpfs);
                results.devpts = Some(devpts);
                Ok(())
            }
            What::Existing { clear, options } => {
                self.change(&target, *clear, options).during(Step::MountAttributes, self.index)?;
                self.set_propagation(target.as_fd(), results)
            }
            What::CgroupV1 { hierarchies, changes, links } => {
                let top = self.cgroup_v1(&target, hierarchies, changes, links).during(Step::Mount, self.index)?;
                self.set_propagation(top.as_fd(), results)?;
                if self.set & RDONLY != 0 || hierarchies.is_empty() {
                    results.freeze.push(top); // a later mount may be in it
                }
                Ok(())
            }
        }
    }

    /// The detached mount of a source in the root itself.
    fn clone_inside(&self, root: BorrowedFd<'_>) -> Applied<Option<OwnedFd>> {
        let What::Inside { path, recursive, changes } = &self.what else { return Ok(None) };
        let path = if path.is_empty() { c"." } else { path.as_c_str() };
        let source = mount::open_beneath(root, path, libc::O_PATH, IN_ROOT | NO_MAGICLINKS);
        let source = source.during(Step::Source, self.index)?;
        let tree = mount::clone_tree(source.as_fd(), c"", *recursive).during(Step::MountClone, self.index)?;
        for change in changes {
            mount::set_attributes(&tree, *change).during(Step::MountAttributes, self.index)?;
        }
        Ok(Some(tree))
    }

    fn target<'a>(
        &'a self,
        root: BorrowedFd<'_>,
        inside: Option<&OwnedFd>,
        last: &mut LastParent<'a>,
    ) -> Result<OwnedFd, Errno> {
        let destination = match &self.point {
            MountPoint::Planned(place) => {
                place.create(root, last)?;
                return mount::open_beneath(root, &place.path, libc::O_PATH, IN_ROOT | NO_MAGICLINKS);
            }
            MountPoint::InRoot(destination) => destination,
        };
        let target = match &self.what {
            What::FileSystem { strict: true, .. } => within::create_directory(root, destination),
            What::Existing { .. } => mount::open_beneath(root, destination, libc::O_PATH, IN_ROOT | NO_MAGICLINKS),
            _ if self.wants_directory(inside)? == Some(false) => within::create(root, destination, Shape::File),
            _ => within::create(root, destination, Shape::Directory),
        }?;
        let is_directory = fstat(&target)?.st_mode & libc::S_IFMT == libc::S_IFDIR;
        if self.wants_directory(inside)?.is_some_and(|wanted| wanted != is_directory) {
            return Err(if is_directory { Errno::EISDIR } else { Errno::ENOTDIR });
        }
        // Checked after resolving links. Most files of procfs must not be covered, because only the kernel may provide their
        // contents.
        let covers = !matches!(self.what, What::Existing { .. }) && !proc::may_be_covered(destination.to_bytes());
        if covers && fstatfs(&target)?.filesystem_type() == PROC_SUPER_MAGIC {
            return Err(Errno::EPERM);
        }
        Ok(target)
    }

    /// Whether the mount point must be a directory (or must not). `None` accepts what exists.
    fn wants_directory(&self, inside: Option<&OwnedFd>) -> Result<Option<bool>, Errno> {
        Ok(match (&self.what, inside) {
            (What::Existing { .. }, _) => None,
            (What::Tree { source, .. }, _) => Some(source.is_dir()),
            (_, Some(inside)) => Some(fstat(inside)?.st_mode & libc::S_IFMT == libc::S_IFDIR),
            _ => Some(true),
        })
    }

    fn attach(&self, tree: BorrowedFd<'_>, target: &OwnedFd, results: &mut BuildResults<'_>) -> Applied {
        mount::attach(tree, target).during(Step::Mount, self.index)?;
        self.set_propagation(tree, results)
    }

    /// Sets the propagation and records the expected final state.
    fn set_propagation(&self, mounted: BorrowedFd<'_>, results: &mut BuildResults<'_>) -> Applied {
        for kind in &self.propagation {
            let (propagation, recursive) = (kind & !libc::MS_REC, kind & libc::MS_REC != 0);
            let change = Attributes { propagation, recursive, ..Attributes::default() };
            mount::set_attributes(mounted, change).during(Step::MountAttributes, self.index)?;
        }
        if matches!(self.point, MountPoint::Planned(_)) {
            return Ok(());
        }
        let last = self.propagation.last().copied().unwrap_or(0);
        let id = mount::id_of(mounted).during(Step::Mount, self.index)?;
        let before = results.expected.iter().find(|other| other.id == id).map_or(0, |other| other.set);
        let kept = if let What::Existing { clear, .. } = &self.what { before & !clear } else { 0 };
        let expected =
            Expected { id, set: self.set | kept, shared: last & libc::MS_SHARED != 0, below: false, index: self.index };
        if self.set_below != 0 && matches!(self.what, What::Tree { .. } | What::Inside { .. } | What::Existing { .. }) {
            // Verified at once, because these attributes are not required of mounts that are attached below later.
            let below = Expected { set: self.set_below, below: true, shared: true, ..expected };
            read_back::verify(results.proc.as_ref().map(AsFd::as_fd), &[below])?;
        }
        results.expected.retain(|other| other.id != expected.id);
        results.expected.push(expected);
        Ok(())
    }

    /// Keeps what later steps need.
    fn keep(&self, kind: &CStr, options: &[(CString, Option<CString>)], tree: OwnedFd, results: &mut BuildResults<'_>) {
        let destination = match &self.point {
            MountPoint::Planned(place) => &place.path,
            MountPoint::InRoot(destination) => destination,
        };
        let shows_all = !options.iter().any(|(name, _)| name.as_c_str() == c"subset");
        match (kind.to_bytes(), destination.to_bytes()) {
            (b"tmpfs", _) if self.set & RDONLY != 0 => results.freeze.push(tree),
            (b"proc", b"proc") if shows_all => results.proc = Some(tree),
            (b"devpts", b"dev/pts") => results.devpts = Some(tree),
            _ => {}
        }
    }

    fn file_system(
        &self,
        kind: &CStr,
        options: &[(CString, Option<CString>)],
        target: &OwnedFd,
        existed: bool,
    ) -> Result<OwnedFd, Errno> {
        let context = FsContext::open(kind)?;
        set_options(&context, options)?;
        if kind != c"tmpfs" {
            return context.mount(self.set);
        }
        let has = |wanted: &CStr| options.iter().any(|(name, _)| name.as_c_str() == wanted);
        let covered = existed.then(|| fstat(target)).transpose()?;
        if let Some(covered) = covered.filter(|_| !has(c"mode")) {
            let mode = format!("{:o}", covered.st_mode & 0o7777);
            context.set(c"mode", &CString::new(mode).unwrap_or_default())?;
        }
        let tree = context.mount(self.set & !RDONLY)?; // files are added after it is mounted
        if let Some(covered) = covered.filter(|_| !has(c"uid") && !has(c"gid")) {
            // An owner outside the user namespace stays the mounter: the kernel takes no other.
            let (uid, gid) = (Uid::from_raw(covered.st_uid), Gid::from_raw(covered.st_gid));
            let _ = fchownat(&tree, c"", Some(uid), Some(gid), AtFlags::AT_EMPTY_PATH);
        }
        Ok(tree)
    }

    /// Whether this is a tmpfs on a directory that exists, which then gives the tmpfs its mode and owner. On a new one it has the
    /// kernel's default, 1777.
    fn covers_a_directory(&self, root: BorrowedFd<'_>) -> bool {
        match (&self.what, &self.point) {
            (What::FileSystem { kind, .. }, MountPoint::InRoot(path)) => {
                kind.as_c_str() == c"tmpfs" && within::exists(root, path)
            }
            _ => false,
        }
    }

    fn change(&self, target: &OwnedFd, clear: u64, options: &[(CString, Option<CString>)]) -> Result<(), Errno> {
        // Fails if nothing is mounted there.
        mount::set_attributes(target, Attributes { set: self.set, clear, ..Attributes::default() })?;
        if self.set_below != 0 {
            let below = Attributes { set: self.set_below, recursive: true, ..Attributes::default() };
            mount::set_attributes(target, below)?;
        }
        if options.is_empty() {
            return Ok(());
        }
        let context = FsContext::pick(target)?;
        set_options(&context, options)?;
        context.reconfigure()
    }

    fn cgroup_v1(
        &self,
        target: &OwnedFd,
        hierarchies: &[(CString, Source)],
        changes: &[Attributes<'static>],
        links: &[(CString, CString)],
    ) -> Result<OwnedFd, Errno> {
        let context = FsContext::open(c"tmpfs")?;
        context.set(c"mode", c"755")?;
        let top = context.mount(self.set & !RDONLY)?;
        mount::attach(&top, target)?;
        let directory = within::directory(&top)?;
        for (name, source) in hierarchies {
            make_directory(directory.as_fd(), name, Mode::from_bits_truncate(0o755))?;
            let place = within::create(top.as_fd(), name, Shape::Directory)?;
            mount::attach(source.tree(changes)?, &place)?;
        }
        for (name, target) in links {
            symlinkat(target.as_c_str(), &directory, name.as_c_str())?;
        }
        Ok(top)
    }
}

fn set_options(context: &FsContext, options: &[(CString, Option<CString>)]) -> Result<(), Errno> {
    options.iter().try_for_each(|(name, value)| match value {
        Some(value) => context.set(name, value),
        None => context.set_flag(name),
    })
}
