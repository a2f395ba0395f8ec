//! The view of a run without a mount namespace. The root stays the caller's; what the plan's mounts would show is opened here, at
//! its own path, for Landlock to allow.
//!
//! What only a mount can do is refused: showing a file at another path, or covering a part of what is shown.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::sys::stat::{SFlag, makedev};

use super::dev;
use super::host::{Found, Last, Resolver};
use super::host_proc;
use super::run_mounts::{is_public, present};
use super::scratch_directory::ScratchDirectory;
use crate::error::{Error, Result, Step};
use crate::plan::{Facility, Mount, MountKind, RunPlan};

/// A file or tree of the host that the workload may use.
#[derive(Debug)]
pub struct Shown {
    /// Its path in a sandbox with mounts.
    pub destination: PathBuf,
    /// Its path here.
    pub path: PathBuf,
    /// What it is.
    pub kind: Kind,
    file: OwnedFd,
    owner: (u32, u32),
}

/// The kinds of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Files of the host.
    Tree {
        /// Whether they may be changed.
        writable: bool,
        /// Whether they may be executed.
        executable: bool,
    },
    /// A directory of the run, which is removed after it.
    Scratch {
        /// Whether its files may be executed.
        executable: bool,
    },
    /// A device node.
    Device,
    /// The caller's procfs, read-only.
    Proc,
}

/// All of it, and the scratch directory.
#[derive(Debug)]
pub struct View {
    /// What the workload may use.
    pub shown: Vec<Shown>,
    /// Holds those of the kind scratch.
    pub scratch: ScratchDirectory,
}

/// Where a run's workspace is mounted. Here it stays at its own path.
const WORKSPACE: &str = "/workspace";

/// Opens everything. `refuse` makes the error for an option that takes mounts.
pub fn view(plan: &RunPlan, refuse: &dyn Fn(String, &str) -> Error) -> Result<View> {
    let mut sources = Resolver::new(plan.follow);
    let mut shown = Vec::with_capacity(plan.mounts.len() + dev::NODES.len());
    for mount in &plan.mounts {
        show(mount, plan, refuse, &mut sources, &mut shown)?;
    }
    sources.check()?;
    nothing_is_covered(&shown, refuse)?;
    let scratch = ScratchDirectory::new(|path| shown.iter().any(|one| path.starts_with(&one.path)))?;
    let home = plan.identity.home.as_path();
    for mount in &plan.mounts {
        let MountKind::Scratch { .. } = mount.kind else { continue };
        let destination = mount.destination.as_path();
        let name = match destination {
            path if path == home => "home",
            path if path == Path::new("/tmp") => "tmp",
            _ => continue, // /dev/shm
        };
        let (file, path) = (scratch.make(name)?, scratch.path().join(name));
        let kind = Kind::Scratch { executable: !mount.noexec };
        shown.push(Shown { destination: destination.to_owned(), path, kind, file, owner: (0, 0) });
    }
    Ok(View { shown, scratch })
}

fn show(
    mount: &Mount,
    plan: &RunPlan,
    refuse: &dyn Fn(String, &str) -> Error,
    sources: &mut Resolver,
    shown: &mut Vec<Shown>,
) -> Result<()> {
    let destination = mount.destination.as_path();
    let kind = Kind::Tree { writable: !mount.read_only, executable: !mount.noexec };
    match &mount.kind {
        MountKind::Bind { source } => {
            if source != &mount.destination && destination != Path::new(WORKSPACE) {
                return Err(refuse(format!("-v {source}:{}", mount.destination), "files stay at their own path"));
            }
            let path = source.as_path();
            let Some(found) = present(sources.resolve(path, destination, Last::Followed), path, mount)? else {
                return Ok(());
            };
            if !matches!(kind_of(&found), SFlag::S_IFDIR | SFlag::S_IFREG) {
                let reason = "is neither a directory nor a regular file";
                return Err(Error::new(Step::Source, path.display().to_string(), reason));
            }
            if !mount.read_only {
                let failed = |errno| Error::errno(Step::Source, path.display().to_string(), errno);
                sources.is_writable(&found).map_err(failed)?;
            }
            shown.push(Shown::of(destination, found, kind));
        }
        // The host has its own file of that name.
        MountKind::AsHost | MountKind::File { .. } => {
            if sources.is_missing_in_etc(destination) {
                return Ok(());
            }
            let optional = Mount { optional: true, ..mount.clone() };
            let found = present(sources.resolve(destination, destination, Last::Itself), destination, &optional)?;
            // A link's target is shown by another mount or not at all.
            let wanted =
                |found: &Found| matches!(kind_of(found), SFlag::S_IFDIR | SFlag::S_IFREG) && is_public(&found.stat);
            shown.extend(found.filter(wanted).map(|found| Shown::of(destination, found, kind)));
        }
        MountKind::Proc { pid_only: true } => {
            if !plan.confinement.allow_degraded.contains(&Facility::Proc) {
                let error = refuse("--proc pids".to_owned(), "the caller's /proc shows the machine too");
                return Err(error.hint("--allow-degraded proc shows no /proc at all"));
            }
        }
        MountKind::Proc { pid_only: false } => {
            let failed = |errno| Error::errno(Step::Source, "/proc", errno);
            let (file, path) = (host_proc().map_err(failed)?, destination.to_owned());
            shown.push(Shown { destination: path.clone(), path, kind: Kind::Proc, file, owner: (0, 0) });
        }
        MountKind::Dev { devices } => {
            for (_, path, major, minor) in dev::NODES {
                let found = device(Path::new(path), sources.resolve_known(Path::new(path)).map_err(opening(path))?)?;
                if found.stat.st_rdev != makedev(major, minor) {
                    return Err(Error::new(Step::Device, path, "is not the device of that name on this host"));
                }
                shown.push(Shown::of(Path::new(path), found, Kind::Device));
            }
            for path in devices {
                let text = path.to_string();
                let path = path.as_path();
                let found = sources.resolve(path, path, Last::Followed).map_err(opening(&text))?;
                shown.push(Shown::of(path, device(path, found)?, Kind::Device));
            }
        }
        MountKind::Tmpfs { .. } => {
            return Err(refuse(format!("--tmpfs {}", mount.destination), "it would be a mount"));
        }
        MountKind::Sysfs => return Err(refuse("--sysfs".to_owned(), "the caller's /sys would be shown whole")),
        MountKind::Mqueue => return Err(refuse("mqueue".to_owned(), "it would be a mount")),
        MountKind::Scratch { .. } | MountKind::Cgroup | MountKind::Symlink { .. } => {}
    }
    Ok(())
}

/// Landlock can only add: below a tree, nothing can be taken away.
fn nothing_is_covered(shown: &[Shown], refuse: &dyn Fn(String, &str) -> Error) -> Result<()> {
    let rights = |one: &Shown| match one.kind {
        Kind::Tree { writable, executable } => (writable, executable),
        _ => (true, true),
    };
    for one in shown {
        let less = |above: &&Shown| {
            let (own, more) = (rights(one), rights(above));
            one.path.starts_with(&above.path) && (more.0 && !own.0 || more.1 && !own.1)
        };
        if let Some(above) = shown.iter().find(less) {
            let what = format!("{} with less than {}", one.path.display(), above.path.display());
            return Err(refuse(what, "nothing can be taken away below a tree that is shown"));
        }
    }
    Ok(())
}

fn kind_of(found: &Found) -> SFlag {
    SFlag::from_bits_truncate(found.stat.st_mode) & SFlag::S_IFMT
}

fn opening(path: &str) -> impl Fn(super::host::Fault) -> Error + '_ {
    move |fault| fault.error(Step::Device, path)
}

fn device(path: &Path, found: Found) -> Result<Found> {
    match kind_of(&found) {
        SFlag::S_IFCHR => Ok(found),
        _ => Err(Error::errno(Step::Device, path.display().to_string(), Errno::ENODEV)),
    }
}

impl Shown {
    fn of(destination: &Path, found: Found, kind: Kind) -> Self {
        let (path, owner) = (found.path(), (found.stat.st_uid, found.stat.st_gid));
        Self { destination: destination.to_owned(), path, kind, file: found.file, owner }
    }

    /// Its descriptor.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Its path here, if this path of a sandbox with mounts is in it.
    pub fn translate(&self, path: &Path) -> Option<PathBuf> {
        let rest = path.strip_prefix(&self.destination).ok()?;
        Some(if rest.as_os_str().is_empty() { self.path.clone() } else { self.path.join(rest) })
    }
}

impl View {
    /// The owner of the first files that the workload is to write and that belong to another user.
    pub fn written_of_other(&self, host_ids: (u32, u32)) -> Option<(&Path, (u32, u32))> {
        let other = |one: &&Shown| matches!(one.kind, Kind::Tree { writable: true, .. }) && one.owner != host_ids;
        self.shown.iter().find(other).map(|one| (one.path.as_path(), one.owner))
    }

    /// A shown tree and the directory above it that this user cannot pass. A mount would have led around it.
    pub fn out_of_reach(&self, (uid, gid): (u32, u32)) -> Option<(&Path, &Path)> {
        let passes = |directory: &Path| {
            nix::sys::stat::stat(directory).is_ok_and(|stat| {
                let class = if stat.st_uid == uid {
                    0o100
                } else if stat.st_gid == gid {
                    0o010
                } else {
                    0o001
                };
                stat.st_mode & class != 0
            })
        };
        let asked = self.shown.iter().filter(|one| matches!(one.kind, Kind::Tree { .. }));
        let mut above =
            asked.flat_map(|one| one.path.ancestors().skip(1).map(|directory| (one.path.as_path(), directory)));
        above.find(|(_, directory)| !passes(directory))
    }

    /// Gives the scratch directories to the workload.
    pub fn give_scratch_to(&self, uid: u32, gid: u32) -> Result<()> {
        let made = self.shown.iter().filter(|one| matches!(one.kind, Kind::Scratch { .. }));
        self.scratch.give_to(made.map(Shown::fd), uid, gid)
    }

    /// Which of it would hold this path in a sandbox with mounts, where the nearest mount counts.
    pub fn holding(&self, path: &Path) -> Option<&Shown> {
        let holding = self.shown.iter().filter(|one| path.starts_with(&one.destination));
        holding.max_by_key(|one| one.destination.components().count())
    }

    /// The path here of a path of a sandbox with mounts: the same, unless it is in the workspace or in scratch space.
    pub fn translate(&self, path: &Path) -> PathBuf {
        self.holding(path).and_then(|one| one.translate(path)).unwrap_or_else(|| path.to_owned())
    }
}
