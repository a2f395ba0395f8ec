//! The root of a run: scratch tmpfs, base, mounts, masks.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::{Mode, SFlag, mknodat};
use nix::time::{ClockId, clock_gettime};

use super::host::{Fault, Last, Resolver};
use super::mount_point::{MountPoints, Shape, make_directory};
use super::oom::OomScore;
use super::operation::{BuildResults, Operation};
use super::pivot::BuiltRoot;
use super::powers::Powers;
use super::run_mounts;
use super::scratch_directory::ScratchDirectory;
use super::source::{Source, bind_attributes};
use super::{host_proc, proc};
use crate::error::{Error, Result, Step};
use crate::failure::{Applied, During, Missing, MissingSet};
use crate::plan::container::CgroupView;
use crate::plan::{Facility, MountKind, Root, RunPlan};
use crate::sys::ablate::{Layer, without};
use crate::sys::mount::{self, Attributes, FsContext, NODEV, NOSUID, RDONLY};
use crate::sys::{file::open, process};

/// Everything that the child needs to build the root.
#[derive(Debug)]
pub struct PreparedRoot {
    base: Base,
    scratch_size: CString,
    scratch_inodes: CString,
    mounts: Vec<Operation>,
    /// Which of them shows the cgroups.
    cgroup_at: Option<usize>,
    /// Whether this process clones their sources.
    privileged: bool,
    masked: Vec<CString>,
    read_only: Vec<CString>,
    pub oom_score: OomScore,
    clock: Option<Clock>,
    /// How many namespaces of each kind the workload may create.
    nested: CString,
    /// How many file watches the workload may create.
    watches: CString,
    limits_may_fail: bool,
}

#[derive(Debug)]
enum Base {
    /// No new root: the caller's. The scratch directory, and whether there is a terminal.
    Callers {
        scratch: OwnedFd,
        terminal: bool,
    },
    Tmpfs,
    Directory {
        source: Box<Source>,
        skeleton: Vec<(CString, Shape)>,
    },
}

/// Parent half: opens every source and formats every text.
pub fn prepare(plan: &RunPlan, powers: &mut Powers<'_>) -> Result<PreparedRoot> {
    let mut sources = Resolver::new(plan.follow);
    let rootfs = match &plan.root {
        Root::Synthetic => None,
        Root::Directory(path) => Some(open_rootfs(path.as_path(), powers.privileged, &mut sources)?),
    };
    let mut places = MountPoints::new(rootfs.as_ref().map(|(fd, _)| fd));
    let mut mounts = Vec::with_capacity(plan.mounts.len());
    let mut cgroup_at = None;
    for (index, planned) in plan.mounts.iter().enumerate() {
        if planned.kind == MountKind::Cgroup {
            cgroup_at = Some(mounts.len());
        }
        mounts.extend(run_mounts::prepare(index, planned, &mut places, powers, &mut sources)?);
    }
    sources.check()?;
    let skeleton = places.skeleton;
    let base = match rootfs {
        None => Base::Tmpfs,
        Some((_, source)) => Base::Directory { source: Box::new(source), skeleton },
    };
    let text = |number: u64| CString::new(number.to_string()).expect("digits hold no NUL");
    Ok(PreparedRoot {
        base,
        scratch_size: text(plan.scratch.size_bytes),
        scratch_inodes: text(plan.scratch.nr_inodes),
        mounts,
        cgroup_at,
        privileged: powers.privileged,
        masked: proc::prepare(&plan.confinement.masked_paths)?,
        read_only: proc::prepare(&plan.confinement.readonly_paths)?,
        oom_score: OomScore::default(),
        clock: plan.namespaces.time.then(Clock::at_zero).transpose()?,
        nested: text(plan.namespaces.nested.into()),
        watches: proc::share_of_watches()?,
        limits_may_fail: plan.confinement.allow_degraded.contains(&Facility::NamespaceLimits),
    })
}

/// Parent half of a run without a mount namespace.
pub fn of_caller(plan: &RunPlan, scratch: &ScratchDirectory) -> Result<PreparedRoot> {
    let failed = |errno| Error::errno(Step::Scratch, scratch.path().display().to_string(), errno);
    let scratch = scratch.fd().try_clone_to_owned().map_err(|_| failed(Errno::EMFILE))?;
    let empty = || c"".to_owned();
    Ok(PreparedRoot {
        base: Base::Callers { scratch, terminal: plan.stdio.tty },
        scratch_size: empty(),
        scratch_inodes: empty(),
        mounts: Vec::new(),
        cgroup_at: None,
        privileged: false,
        masked: Vec::new(),
        read_only: Vec::new(),
        oom_score: OomScore::default(),
        clock: None,
        nested: empty(),
        watches: empty(),
        limits_may_fail: false,
    })
}

fn open_rootfs(path: &Path, privileged: bool, sources: &mut Resolver) -> Result<(OwnedFd, Source)> {
    let failed = |errno| {
        Error::errno(Step::Source, path.display().to_string(), errno)
            .hint("--rootfs takes a directory that you can enter")
    };
    let found = sources.resolve(path, Path::new("/"), Last::Followed).map_err(|fault| match fault {
        Fault::Errno(errno) => failed(errno),
        Fault::Refused(error) => error,
    })?;
    let directory = duplicate(&found.file).map_err(failed)?;
    let source = Source::of(path, found, privileged).map_err(failed)?;
    if !source.is_dir() {
        return Err(failed(Errno::ENOTDIR));
    }
    source.set_attributes(bind_attributes(ROOTFS_ATTRIBUTES)).map_err(failed)?;
    Ok((directory, source))
}

const ROOTFS_ATTRIBUTES: u64 = RDONLY | NOSUID | NODEV;

/// The clocks of a new time namespace.
#[derive(Debug)]
struct Clock {
    offsets: CString,
    /// The monotonic clock outside, in seconds, when this was created.
    outside: i64,
}

impl Clock {
    /// Offsets that set the monotonic and boot clocks of the new namespace to about zero.
    fn at_zero() -> Result<Self> {
        let now = |clock| clock_gettime(clock).map_err(|errno| Error::errno(Step::TimeNamespace, "", errno));
        let (monotonic, boot) = (now(ClockId::CLOCK_MONOTONIC)?, now(ClockId::CLOCK_BOOTTIME)?);
        // Whole seconds, so that the clocks are never negative.
        let text = format!("monotonic {} 0\nboottime {} 0\n", -monotonic.tv_sec(), -boot.tv_sec());
        Ok(Self { offsets: CString::new(text).expect("digits hold no NUL"), outside: monotonic.tv_sec() })
    }
}

impl PreparedRoot {
    /// Parent half: shows the sandbox its own cgroups, or nothing if it has none.
    pub fn show_cgroup(&mut self, view: Option<&CgroupView>) -> Result<()> {
        let Some(at) = self.cgroup_at else { return Ok(()) };
        match (view, &mut self.mounts[at]) {
            (Some(view), Operation::Mount(mount)) => mount.what = run_mounts::cgroup(view, mount.set, self.privileged)?,
            _ => drop(self.mounts.remove(at)),
        }
        Ok(())
    }

    /// Parent half, after the clone: closes the mounts that the child has inherited.
    pub fn drop_parent_copies(&mut self) {
        self.mounts.iter_mut().for_each(Operation::drop_parent_copies);
    }

    /// Child half: builds the root on top of the old one.
    pub fn build(&self, missing: &mut MissingSet) -> Applied<BuiltRoot> {
        if let Base::Callers { scratch, terminal } = &self.base {
            return self.keep_callers(scratch, *terminal);
        }
        let mut hidden = 0;
        let scratch = self.mount_scratch(&mut hidden).during(Step::MountRoot, 0)?;
        let root = self.mount_base(scratch.as_fd(), &mut hidden).during(Step::MountRoot, 1)?;
        let mut results = BuildResults::default();
        for operation in &self.mounts {
            operation.apply(root.as_fd(), scratch.as_fd(), &mut results)?;
        }
        missing.add_all(results.missing);
        proc::mask(root.as_fd(), scratch.as_fd(), &self.masked, &mut |_, _| Ok(()))?;
        let proc = self.open_proc(results.proc)?;
        let oom_score = self.write_settings(proc.as_fd())?;
        let limits = proc::open_limits(proc.as_fd())?;
        proc::freeze(root.as_fd(), &self.read_only, &mut |_, _| Ok(()))?;
        let read_only = Attributes { set: RDONLY, ..Attributes::default() };
        for mounted in &results.freeze {
            mount::set_attributes(mounted, read_only).during(Step::MountRoot, 2)?;
        }
        mount::set_attributes(&root, read_only).during(Step::MountRoot, 3)?;
        let (expected, proc) = (Vec::new(), None);
        let limits = Some(limits);
        let (devpts, freeze) = (results.devpts, Vec::new());
        Ok(BuiltRoot { is_callers: false, root, hidden, scratch, devpts, freeze, expected, proc, limits, oom_score })
    }

    /// The caller's root, as if it had been built.
    fn keep_callers(&self, scratch: &OwnedFd, terminal: bool) -> Applied<BuiltRoot> {
        let mut oom_score = None;
        if !self.oom_score.is_callers() {
            oom_score = self.write_settings(host_proc().during(Step::OomScore, 0)?.as_fd())?;
        }
        let directory = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        Ok(BuiltRoot {
            is_callers: true,
            root: open(c"/", directory).during(Step::MountRoot, 1)?,
            hidden: 0,
            scratch: duplicate(scratch).during(Step::MountRoot, 0)?,
            devpts: terminal.then(|| open(c"/dev", directory)).transpose().during(Step::Terminal, 0)?,
            freeze: Vec::new(),
            expected: Vec::new(),
            proc: None,
            limits: None,
            oom_score,
        })
    }

    /// Child half, when all namespaces and mounts exist.
    pub fn limit_namespaces(&self, built: &mut BuiltRoot, missing: &mut MissingSet) -> Applied {
        let own = !without(Layer::UserNamespace); // otherwise they would be the host's limits
        let Some(limits) = built.limits.take().filter(|_| own) else { return Ok(()) };
        match proc::limit_namespaces(limits.as_fd(), &self.nested, &self.watches) {
            Err(_) if self.limits_may_fail => missing.add(Missing::NamespaceLimits),
            result => result?,
        }
        Ok(())
    }

    fn mount_scratch(&self, hidden: &mut usize) -> std::result::Result<OwnedFd, Errno> {
        let context = FsContext::open(c"tmpfs")?;
        context.set(c"size", &self.scratch_size)?;
        context.set(c"nr_inodes", &self.scratch_inodes)?;
        context.set(c"mode", c"755")?;
        let scratch = context.mount(NOSUID | NODEV)?;
        // Before Linux 6.15 only an attached mount can be cloned. It is attached here, where the workload cannot see it.
        mount::attach_over_root(&scratch)?;
        *hidden += 1;
        Ok(scratch)
    }

    fn mount_base(&self, scratch: BorrowedFd<'_>, hidden: &mut usize) -> std::result::Result<OwnedFd, Errno> {
        let root = match &self.base {
            Base::Callers { .. } => return Err(Errno::EINVAL), // has no mounts
            Base::Tmpfs => {
                let context = FsContext::open(c"tmpfs")?;
                context.set(c"size", c"4m")?;
                context.set(c"nr_inodes", c"4096")?;
                context.set(c"mode", c"755")?;
                context.mount(NOSUID | NODEV)?
            }
            Base::Directory { source, skeleton } if skeleton.is_empty() => {
                let tree = source.tree(&[bind_attributes(ROOTFS_ATTRIBUTES)])?;
                mount::attach_over_root(&tree)?;
                return tree.into_owned();
            }
            Base::Directory { source, skeleton } => {
                let tree = source.tree(&[bind_attributes(ROOTFS_ATTRIBUTES)])?;
                mount::attach_over_root(&tree)?;
                *hidden += 1;
                overlay(tree.as_fd(), scratch, skeleton)?
            }
        };
        mount::attach_over_root(&root)?;
        Ok(root)
    }

    /// The sandbox's own unrestricted procfs or, if it has none, the old root's.
    fn open_proc(&self, made: Option<OwnedFd>) -> Applied<OwnedFd> {
        made.map_or_else(host_proc, Ok).during(Step::NamespaceLimits, 0)
    }

    fn write_settings(&self, proc: BorrowedFd<'_>) -> Applied<Option<OwnedFd>> {
        let oom_score = self.oom_score.set(proc)?;
        if let Some(clock) = &self.clock {
            process::unshare_time().during(Step::TimeNamespace, 0)?;
            proc::set_time_offsets(proc, &clock.offsets)?;
        }
        Ok(oom_score)
    }

    /// The mount or path of a failure of [`Self::build`].
    pub fn object(&self, plan: &RunPlan, step: Step, index: usize) -> Option<String> {
        match step {
            step if step.is_of_mount() => plan.mounts.get(index).map(|mount| match &mount.kind {
                MountKind::Bind { source } if step == Step::Source => source.to_string(),
                _ => mount.destination.to_string(),
            }),
            Step::Mask => plan.confinement.masked_paths.get(index).map(ToString::to_string),
            Step::ReadOnly => plan.confinement.readonly_paths.get(index).map(ToString::to_string),
            Step::Device => self.mounts.iter().find_map(|operation| operation.device(index)),
            Step::MountRoot => Some(["scratch tmpfs", "/", "tmpfs", "/"].get(index)?.to_string()),
            _ => None,
        }
    }
}

impl PreparedRoot {
    /// Whether the workload's clocks are not the host's.
    pub fn has_own_clock(&self) -> bool {
        self.clock.is_some()
    }

    /// Child half, in the workload's process: checks that it reads the clocks of its time namespace.
    pub fn verify_clock(&self) -> Applied {
        let Some(clock) = &self.clock else { return Ok(()) };
        let now = clock_gettime(ClockId::CLOCK_MONOTONIC).during(Step::Verify, 3)?;
        if now.tv_sec() < clock.outside.max(1) { Ok(()) } else { Err(Errno::EPERM).during(Step::Verify, 3) }
    }
}

/// A read-only overlay of the skeleton's mount points on a directory of the host.
fn overlay(
    rootfs: BorrowedFd<'_>,
    scratch: BorrowedFd<'_>,
    skeleton: &[(CString, Shape)],
) -> std::result::Result<OwnedFd, Errno> {
    make_directory(scratch, c"skeleton", Mode::from_bits_truncate(0o755))?;
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let upper = openat(scratch, c"skeleton", flags, Mode::empty())?;
    for (path, shape) in skeleton {
        match shape {
            Shape::File => mknodat(&upper, path.as_c_str(), SFlag::S_IFREG, Mode::from_bits_truncate(0o444), 0)?,
            _ => make_directory(upper.as_fd(), path, Mode::from_bits_truncate(0o755))?,
        }
    }
    let context = FsContext::open(c"overlay")?;
    context.set(c"lowerdir", lower_directories(upper.as_fd(), rootfs).as_c_str())?;
    context.set(c"redirect_dir", c"nofollow")?; // the layers may contain hostile redirects
    context.set(c"metacopy", c"off")?;
    context.mount(NOSUID | NODEV | RDONLY)
}

/// Formats `/proc/self/fd/A:/proc/self/fd/B` without allocating. Before Linux 6.13 overlayfs takes layers only by path.
fn lower_directories(upper: BorrowedFd<'_>, lower: BorrowedFd<'_>) -> LowerDirectories {
    use std::io::Write as _;
    use std::os::fd::AsRawFd as _;
    let mut text = [0; 64];
    let mut rest = &mut text[..63];
    // Two descriptor numbers of at most ten digits always fit.
    let _ = write!(rest, "/proc/self/fd/{}:/proc/self/fd/{}", upper.as_raw_fd(), lower.as_raw_fd());
    LowerDirectories(text)
}

struct LowerDirectories([u8; 64]);

impl LowerDirectories {
    fn as_c_str(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.0).unwrap_or_default()
    }
}

fn duplicate(fd: &OwnedFd) -> std::result::Result<OwnedFd, Errno> {
    fd.try_clone().map_err(|_| Errno::EMFILE)
}
