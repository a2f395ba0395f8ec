//! Turns the mounts of a run into operations: opens sources, maps ids and plans mount points.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, AsRawFd as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::stat::{FileStat, Mode, SFlag};

use super::content::Content;
use super::dev;
use super::host::{Fault, Found, Last, Resolver};
use super::mount_point::{MountOwner, MountPoints, Shape};
use super::operation::{self, MountPoint, Operation, What};
use super::outer_proc;
use super::powers::Powers;
use super::source::{Source, bind_attributes};
use crate::error::{Error, Result, Step};
use crate::plan::container::CgroupView;
use crate::plan::{Mount, MountKind};
use crate::sys::file;
use crate::sys::mount::{Attributes, NODEV, NOEXEC, NOSUID, RDONLY};

/// The largest file that is copied.
pub const MOST_COPIED: usize = 16 << 10;

/// Parent half. `None` for an optional mount whose source does not exist.
pub fn prepare(
    index: usize,
    mount: &Mount,
    places: &mut MountPoints<'_>,
    powers: &mut Powers<'_>,
    sources: &mut Resolver,
) -> Result<Option<Operation>> {
    let destination = mount.destination.as_path();
    let mut set = NOSUID | NODEV;
    set |= if mount.read_only { RDONLY } else { 0 };
    set |= if mount.noexec { NOEXEC } else { 0 };
    let text = |bytes: &[u8]| c_string(bytes, destination);
    let new = |kind: &CStr, options| What::FileSystem { kind: kind.to_owned(), options, strict: false, copy_up: false };
    let what = match &mount.kind {
        MountKind::Bind { source } => {
            let path = source.as_path();
            let found = present(sources.resolve(path, destination, Last::Followed), path, mount)?;
            let Some(found) = found else { return Ok(None) };
            tree(path, found, mount, set, powers, sources)?
        }
        MountKind::AsHost if mount.optional && sources.is_missing_in_etc(destination) => return Ok(None),
        MountKind::AsHost => {
            let found = present(sources.resolve(destination, destination, Last::Itself), destination, mount)?;
            let Some(found) = found else { return Ok(None) };
            let failed = |errno| Error::errno(Step::Source, destination.display().to_string(), errno);
            let content = match found.link_target() {
                Some(target) => Some(Content::Symlink(text(target.map_err(failed)?.as_bytes())?)),
                None if !is_public(&found.stat) => return Ok(None),
                None => small_file(&found).map_err(failed)?,
            };
            match content {
                Some(content) => return generated(index, destination, content, places).map(Some),
                None => tree(destination, found, mount, set, powers, sources)?,
            }
        }
        MountKind::Tmpfs { size_bytes, nr_inodes, mode } => {
            let mode = text(format!("{mode:o}").as_bytes())?;
            let options = [(c"size", number(*size_bytes)), (c"nr_inodes", number(*nr_inodes)), (c"mode", mode)];
            new(c"tmpfs", options.map(|(name, value)| (name.to_owned(), Some(value))).into())
        }
        MountKind::Scratch { mode } => {
            What::Scratch { name: number(index as u64), mode: Mode::from_bits_truncate(*mode) }
        }
        MountKind::Proc { pid_only } => {
            set |= NOEXEC;
            let subset = pid_only.then(|| (c"subset".to_owned(), Some(c"pid".to_owned())));
            let instead = outer_proc::prepare(index, destination, *pid_only, powers, sources)?;
            What::Proc { options: subset.into_iter().collect(), instead }
        }
        MountKind::Sysfs => {
            set |= NOEXEC | RDONLY;
            new(c"sysfs", Vec::new())
        }
        MountKind::Cgroup => {
            set |= NOEXEC | RDONLY;
            What::CgroupV1 { hierarchies: Vec::new(), changes: Vec::new(), links: Vec::new() } // see `cgroup`
        }
        MountKind::Mqueue => {
            set |= NOEXEC;
            new(c"mqueue", Vec::new())
        }
        MountKind::Dev { devices } => What::Dev(dev::prepare(index, devices, powers.privileged, sources)?),
        MountKind::File { content, mode } => {
            let content = Content::File(content.as_bytes().to_vec(), Mode::from_bits_truncate(*mode));
            return generated(index, destination, content, places).map(Some);
        }
        MountKind::Symlink { target } => {
            let content = Content::Symlink(text(target.as_bytes())?);
            return generated(index, destination, content, places).map(Some);
        }
    };
    let (shape, owner) = match &what {
        What::Tree { source, .. } if !source.is_dir() => (Shape::File, MountOwner::Host),
        What::FileSystem { kind, .. } if kind.as_c_str() == c"tmpfs" => (Shape::Directory, MountOwner::Sandbox),
        What::Scratch { .. } | What::Dev(_) => (Shape::Directory, MountOwner::Sandbox),
        _ => (Shape::Directory, MountOwner::Host),
    };
    let point = MountPoint::Planned(places.add(destination, shape, owner)?);
    let propagation = Vec::new(); // the clone is already private
    Ok(Some(Operation::Mount(operation::Mount { index, point, what, set, set_below: 0, propagation })))
}

/// The mount of the sandbox's own cgroups, which are made when everything else is prepared.
pub fn cgroup(view: &CgroupView, set: u64, privileged: bool) -> Result<What> {
    let changes = vec![bind_attributes(set)];
    let source = |path: &Path| -> Result<Source> {
        let failed = |errno| Error::errno(Step::Source, path.display().to_string(), errno);
        let source = Source::following(path, privileged, false).map_err(failed)?;
        source.set_attributes(bind_attributes(set)).map_err(failed)?;
        Ok(source)
    };
    if let [(name, path)] = view.directories.as_slice()
        && name.is_empty()
    {
        return Ok(What::Tree { source: source(path)?, changes });
    }
    let about = Path::new("/sys/fs/cgroup");
    let text = |text: &str| c_string(text.as_bytes(), about);
    let named = |(name, path): &(String, PathBuf)| Ok((text(name)?, source(path)?));
    let linked = |(name, target): &(String, String)| Ok((text(name)?, text(target)?));
    let hierarchies = view.directories.iter().map(named).collect::<Result<_>>()?;
    let links = view.links.iter().map(linked).collect::<Result<_>>()?;
    Ok(What::CgroupV1 { hierarchies, changes, links })
}

/// A generated file or symlink.
fn generated(index: usize, destination: &Path, content: Content, places: &mut MountPoints<'_>) -> Result<Operation> {
    // No mount point may lie below a symlink.
    let owner = if matches!(content, Content::Symlink(_)) { MountOwner::Host } else { MountOwner::Sandbox };
    let place = places.add(destination, Shape::Absent, owner)?;
    Ok(Operation::Entry { index, place, content })
}

/// Whether every user of the host may read this file, or list and enter this directory.
pub fn is_public(stat: &FileStat) -> bool {
    let directory = SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT == SFlag::S_IFDIR;
    let needed = if directory { 0o005 } else { 0o004 };
    stat.st_mode & needed == needed
}

/// A copy of a small regular file, which takes less time than a mount. Others are mounted. The copies are in the sandbox's memory.
fn small_file(found: &Found) -> std::result::Result<Option<Content>, Errno> {
    let size = usize::try_from(found.stat.st_size).unwrap_or(usize::MAX);
    if SFlag::from_bits_truncate(found.stat.st_mode) & SFlag::S_IFMT != SFlag::S_IFREG || size > MOST_COPIED {
        return Ok(None);
    }
    let file = file::open(format!("/proc/self/fd/{}", found.file.as_raw_fd()).as_str(), OFlag::O_RDONLY)?;
    let content = file::content_of(&file, size)?;
    // It may have grown meanwhile.
    Ok((content.len() <= MOST_COPIED).then(|| Content::File(content, Mode::from_bits_truncate(0o644))))
}

/// As docker makes missing sources.
const MISSING: &str = "stockade does not create a missing source: create it first, or use -v SRC:DST:optional to skip the mount while it is missing";

/// `None` if an optional source does not exist.
pub(super) fn present(found: std::result::Result<Found, Fault>, path: &Path, mount: &Mount) -> Result<Option<Found>> {
    match found {
        Err(fault) if mount.optional && fault.is_missing() => Ok(None),
        Err(fault) => {
            let is_missing = fault.is_missing();
            let error = fault.error(Step::Source, path.display().to_string());
            Err(if is_missing { error.hint(MISSING) } else { error })
        }
        Ok(found) => Ok(Some(found)),
    }
}

fn tree(
    path: &Path,
    found: Found,
    mount: &Mount,
    set: u64,
    powers: &mut Powers<'_>,
    sources: &mut Resolver,
) -> Result<What> {
    let failed = |errno| Error::errno(Step::Source, path.display().to_string(), errno);
    if !mount.read_only {
        sources.is_writable(&found).map_err(failed)?;
    }
    let source = Source::of(path, found, powers.privileged).map_err(failed)?;
    if !source.is_dir() && SFlag::from_bits_truncate(source.stat().st_mode) & SFlag::S_IFMT != SFlag::S_IFREG {
        return Err(Error::new(Step::Source, path.display().to_string(), "is neither a directory nor a regular file")
            .hint("use --device for devices; sockets and pipes cannot be bound"));
    }
    if !mount.read_only {
        give_to_workload(&source, powers)?;
    }
    source.set_attributes(bind_attributes(set)).map_err(failed)?;
    Ok(What::Tree { source, changes: vec![bind_attributes(set)] })
}

/// Makes files of another owner the workload's, in the clone of their mount, so that both can write them.
fn give_to_workload(source: &Source, powers: &mut Powers<'_>) -> Result<()> {
    let owner = (source.stat().st_uid, source.stat().st_gid);
    let Some(idmap) = powers.idmap.as_mut().filter(|_| owner != powers.host_ids) else { return Ok(()) };
    let mapped = match powers.privileged {
        true => {
            let namespace = idmap(owner)?;
            source.set_attributes(Attributes { idmap: Some(namespace.as_fd()), ..Attributes::default() })
        }
        false => Err(Errno::EPERM),
    };
    mapped.map_err(|errno| {
        powers.unmapped = Some(owner);
        let why = match powers.privileged {
            true => "its file system may not support idmapped mounts (overlayfs does not)",
            false => "idmapped mounts need CAP_SYS_ADMIN, which this process lacks (a container?)",
        };
        Error::errno(Step::Source, source.path().to_string_lossy(), errno).hint(format!(
            "{why}, by which the workload's own user could write files of {}:{}: bind it read-only, use another file system, or \
             run stockade as their owner. --allow-degraded idmap runs the workload as their owner instead",
            owner.0, owner.1
        ))
    })
}

fn number(value: u64) -> CString {
    CString::new(value.to_string()).expect("digits hold no NUL")
}

fn c_string(bytes: &[u8], about: &Path) -> Result<CString> {
    CString::new(bytes).map_err(|_| Error::new(Step::Mount, about.display().to_string(), "contains a NUL byte"))
}
