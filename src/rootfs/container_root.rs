//! The root of a container: the directory of its bundle, its mounts in the configured order, its device nodes, masked paths and
//! read-only paths.

use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt as _;

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;

use super::container_devices::Devices;
use super::container_mounts::{self, Surroundings};
use super::mount_point::{Shape, relative};
use super::operation::{BuildResults, Operation};
use super::pivot::BuiltRoot;
use super::read_back::{self, Expected, FIRST_INDEX};
use super::source::{SLAVE, Source};
use super::{proc, within};
use crate::error::{Error, Result, Step};
use crate::failure::{Applied, During};
use crate::plan::container::{ContainerMount, MountSource};
use crate::plan::{Bytes, ContainerPlan};
use crate::sys::mount::{self, Attributes, FsContext, NODEV, NOEXEC, NOSUID, RDONLY};
use crate::sys::mountinfo;

/// Everything that the child needs to build a container's root.
#[derive(Debug)]
pub struct PreparedContainerRoot {
    source: Source,
    propagation: u64,
    read_only: bool,
    mounts: Vec<Operation>,
    masked: Vec<CString>,
    frozen: Vec<CString>,
    /// `None` if `/dev` is the host's.
    devices: Option<Devices>,
    sysctl: Vec<(CString, Vec<u8>)>,
    cwd: CString,
    /// Whether a process outside the container's pid namespace builds the root.
    built_outside: bool,
    /// If the old root stays mounted: its unrestricted procfs and sysfs mounts, which must be detached.
    revealing: Option<Vec<CString>>,
}

/// A problem with the root or with one of its mounts.
#[derive(Debug)]
pub struct Problem {
    /// The index of the plan's mount; `None` for the root itself.
    pub mount: Option<usize>,
    /// The problem.
    pub error: Error,
}

/// Parent half. `None` if an existing mount namespace is entered, which has a root. On failure all problems, at least one, in
/// the order of the plan.
pub fn prepare(
    plan: &ContainerPlan,
    around: &mut Surroundings<'_>,
) -> std::result::Result<Option<PreparedContainerRoot>, Vec<Problem>> {
    let Some(path) = &plan.root else { return Ok(None) };
    let of_root = |error| Problem { mount: None, error };
    let source = open_root(path, around.privileged).map_err(|error| vec![of_root(error)])?;
    let (mut mounts, mut problems) = (Vec::with_capacity(plan.mounts.len()), Vec::new());
    for (index, planned) in plan.mounts.iter().enumerate() {
        match container_mounts::prepare(index, planned, around) {
            Ok(mount) => mounts.push(mount),
            Err(error) => problems.push(Problem { mount: Some(index), error }),
        }
    }
    match complete(plan, source, mounts, around) {
        Ok(root) if problems.is_empty() => return Ok(Some(root)),
        Ok(_) => {}
        Err(error) => problems.push(of_root(error)),
    }
    Err(problems)
}

fn open_root(path: &Bytes, privileged: bool) -> Result<Source> {
    let failed = |errno| Error::errno(Step::Source, path.to_string(), errno);
    let source = Source::following(path.as_path(), privileged, true).map_err(failed)?;
    if !source.is_dir() {
        return Err(failed(Errno::ENOTDIR));
    }
    source.set_attributes(SLAVE).map_err(failed)?;
    Ok(source)
}

fn complete(
    plan: &ContainerPlan,
    source: Source,
    mounts: Vec<Operation>,
    around: &Surroundings<'_>,
) -> Result<PreparedContainerRoot> {
    let is_dev = |mount: &ContainerMount| {
        mount.destination.as_bytes() == b"/dev" && matches!(mount.source, MountSource::Bind { .. })
    };
    let devices = Devices::prepare(plan, around.privileged)?;
    let sysctl = plan.sysctl.iter().map(|one| {
        let path = CString::new(format!("sys/{}", one.path));
        let path = path.map_err(|_| Error::new(Step::Sysctl, one.path.clone(), "contains a NUL byte"))?;
        Ok((path, one.value.as_bytes().to_vec()))
    });
    Ok(PreparedContainerRoot {
        source,
        propagation: plan.root_propagation,
        read_only: plan.read_only,
        mounts,
        masked: proc::prepare(&plan.confinement.masked_paths)?,
        frozen: proc::prepare(&plan.confinement.readonly_paths)?,
        devices: (!plan.mounts.iter().any(is_dev)).then_some(devices),
        sysctl: sysctl.collect::<Result<_>>()?,
        cwd: relative(plan.process.command.cwd.as_path())?,
        built_outside: around.pids.is_some(),
        revealing: plan.no_pivot.then(revealing_mounts).transpose()?,
    })
}

/// Every procfs and sysfs of the old root. The kernel lets a process mount a new, unrestricted one if one is visible, whatever
/// is masked in the container's.
fn revealing_mounts() -> Result<Vec<CString>> {
    let failed = |error: std::io::Error| Error::new(Step::Pivot, mountinfo::OWN, error.to_string());
    let text = std::fs::read(mountinfo::OWN).map_err(failed)?;
    let revealing = mountinfo::parse(&text).rev().filter(|mount| matches!(mount.kind, "proc" | "sysfs"));
    Ok(revealing.filter_map(|mount| CString::new(mount.point().into_os_string().into_vec()).ok()).collect())
}

impl PreparedContainerRoot {
    /// Whether a process outside the pid namespace that the container joins can build it.
    pub fn is_built_outside(&self) -> bool {
        self.built_outside
    }

    /// Child half: builds the root on top of the old one.
    pub fn build(&self) -> Applied<BuiltRoot> {
        isolate_old_root().during(Step::MountRoot, 0)?;
        let mut hidden = 0;
        let scratch = mount_scratch(&mut hidden).during(Step::MountRoot, 0)?;
        let root = self.mount_base().during(Step::MountRoot, 1)?;
        let mut results = BuildResults::default();
        for operation in &self.mounts {
            operation.apply(root.as_fd(), scratch.as_fd(), &mut results)?;
        }
        if !self.cwd.is_empty() {
            let _ = within::create(root.as_fd(), &self.cwd, Shape::Directory); // an error shows when the directory is entered
        }
        if let Some(devices) = &self.devices {
            devices.apply(root.as_fd(), scratch.as_fd())?;
        }
        let BuildResults { freeze, devpts, proc, expected, .. } = results;
        // If the container has no procfs and none can be mounted, the old root's is used. In the procfs of a pid namespace that
        // only our children enter, this process has no `self`.
        let other = || mount::private_proc().or_else(|_| super::host_proc());
        let proc = match (self.built_outside, proc) {
            (true, _) => super::host_proc(),
            (false, proc) => proc.map_or_else(other, Ok),
        };
        let proc = proc.during(Step::Verify, FIRST_INDEX - 1)?;
        let (is_callers, proc, limits) = (false, Some(proc), None);
        Ok(BuiltRoot { is_callers, root, hidden, scratch, devpts, freeze, expected, proc, limits, oom_score: None })
    }

    /// Child half, after the hooks and the console: masks paths, makes them read-only, makes the root `/`, and reads all mounts
    /// back.
    pub fn protect_and_pivot(&self, built: BuiltRoot) -> Applied {
        let root = built.root.as_fd();
        let mut expected = built.expected.clone();
        let (covers, frozen) = (self.mounts.len(), self.mounts.len() + self.masked.len());
        let cover = RDONLY | NOSUID | NODEV | NOEXEC;
        let covered = &mut |index, fd: BorrowedFd<'_>| expect(&mut expected, fd, cover, false, covers + index);
        proc::mask(root, built.scratch.as_fd(), &self.masked, covered)?;
        let froze = &mut |index, fd: BorrowedFd<'_>| expect(&mut expected, fd, RDONLY, true, frozen + index);
        proc::freeze(root, &self.frozen, froze)?;
        let read_only = Attributes { set: RDONLY, ..Attributes::default() };
        for mounted in &built.freeze {
            mount::set_attributes(mounted, read_only).during(Step::MountRoot, 2)?;
        }
        if self.read_only {
            mount::set_attributes(&built.root, read_only).during(Step::MountRoot, 3)?;
        }
        let set = if self.read_only { RDONLY } else { 0 };
        expect(&mut expected, root, set, false, frozen + self.frozen.len()).during(Step::MountRoot, 3)?;
        match &self.revealing {
            None => built.pivot()?,
            Some(mounts) => built.cover(mounts)?,
        }
        if self.propagation != 0 {
            let (propagation, recursive) = (self.propagation & !libc::MS_REC, self.propagation & libc::MS_REC != 0);
            mount::set_attributes(&built.root, Attributes { propagation, recursive, ..Attributes::default() })
                .during(Step::MountRoot, 3)?;
            let shared = propagation & libc::MS_SHARED != 0;
            expected.iter_mut().for_each(|one| one.shared = if recursive { shared } else { one.shared });
        }
        read_back::verify(built.proc.as_ref().map(AsFd::as_fd), &expected)
    }

    /// Child half: writes kernel parameters through a procfs that no other process can reach.
    pub fn write_sysctl(&self, proc: BorrowedFd<'_>) -> Applied {
        for (index, (path, value)) in self.sysctl.iter().enumerate() {
            proc::write_verified(proc, path, value).during(Step::Sysctl, index)?;
        }
        Ok(())
    }

    /// Child half: binds the container's terminal, by its descriptor, to `/dev/console`.
    pub fn show_console(&self, built: &BuiltRoot, terminal: BorrowedFd<'_>) -> Applied {
        if self.devices.is_none() {
            return Ok(());
        }
        let show = || {
            let place = within::create(built.root.as_fd(), c"dev/console", Shape::File)?;
            mount::attach(mount::clone_tree(terminal, c"", false)?, place)
        };
        show().during(Step::Terminal, 2)
    }

    /// The name of a failure's object.
    pub fn object(&self, plan: &ContainerPlan, step: Step, index: usize) -> Option<String> {
        match step {
            step if step.is_of_mount() => plan.mounts.get(index).map(|mount| mount.destination.to_string()),
            Step::Mask => plan.confinement.masked_paths.get(index).map(ToString::to_string),
            Step::ReadOnly => plan.confinement.readonly_paths.get(index).map(ToString::to_string),
            Step::Device => Some(plan.devices.get(index).map_or("/dev".to_owned(), |device| device.path.to_string())),
            Step::Sysctl => self.sysctl.get(index).map(|(path, _)| format!("/proc/{}", path.to_string_lossy())),
            Step::Verify => {
                let mounts = plan.mounts.iter().map(|mount| &mount.destination);
                let mut places = mounts
                    .chain(&plan.confinement.masked_paths)
                    .chain(&plan.confinement.readonly_paths)
                    .map(ToString::to_string);
                let index = index.checked_sub(FIRST_INDEX)?;
                Some(format!("mount {}", places.nth(index).unwrap_or_else(|| "/".to_owned())))
            }
            Step::MountRoot => Some(["scratch tmpfs", "/", "tmpfs", "/"].get(index)?.to_string()),
            _ => None,
        }
    }

    /// Mounts the root where its directory is on the host, so that hooks find it there. If the mount namespace does not contain
    /// that directory, the root is mounted on top of the old root.
    fn mount_base(&self) -> std::result::Result<OwnedFd, Errno> {
        let place = self.source.find();
        let tree = self.source.tree(&[SLAVE])?;
        match &place {
            Ok(place) => mount::attach(&tree, place)?,
            Err(_) => mount::attach_over_root(&tree)?,
        }
        tree.into_owned()
    }
}

/// Records what a mount must be like. `shared: true` accepts any propagation, because the source of the
/// clone determines it.
fn expect(
    all: &mut Vec<Expected>,
    mounted: BorrowedFd<'_>,
    set: u64,
    below: bool,
    index: usize,
) -> std::result::Result<(), Errno> {
    all.push(Expected { id: mount::id_of(mounted)?, set, shared: true, below, index });
    Ok(())
}

/// Stops propagation to the host, and makes it possible to detach mounts between the roots.
fn isolate_old_root() -> std::result::Result<(), Errno> {
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let old = openat(nix::fcntl::AT_FDCWD, c"/", flags, Mode::empty())?;
    mount::set_attributes(old, SLAVE)
}

/// The tmpfs that provides the covers of masked paths.
fn mount_scratch(hidden: &mut usize) -> std::result::Result<OwnedFd, Errno> {
    let context = FsContext::open(c"tmpfs")?;
    context.set(c"size", c"64k")?;
    context.set(c"nr_inodes", c"16")?;
    context.set(c"mode", c"755")?;
    let scratch = context.mount(NOSUID | NODEV | NOEXEC)?;
    mount::attach_over_root(&scratch)?;
    *hidden += 1;
    Ok(scratch)
}
