//! Mounts exactly as a container's configuration describes them.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use nix::errno::Errno;
use nix::sys::stat::fstat;
use nix::sys::statfs::{PROC_SUPER_MAGIC, fstatfs};
use nix::unistd::symlinkat;

use super::copy_up;
use super::mounts::make_directory;
use super::place::{Shape, relative};
use super::read_back::{self, Expected};
use super::source::Source;
use super::within;
use crate::error::{Error, Result, Step};
use crate::layers::{Applied, During};
use crate::plan::Bytes;
use crate::plan::container::{CgroupView, ContainerMount, IdRange, MountSource};
use crate::sys::mount::{self, Attributes, FsContext, RDONLY};

/// What preparing a container's mounts takes beside the plan.
pub struct Surroundings<'a> {
    /// Whether mounts can be cloned before the new namespaces exist.
    pub privileged: bool,
    /// Makes the user namespace of an idmapped mount.
    pub idmap: fn(&[IdRange], &[IdRange]) -> Result<OwnedFd>,
    /// The container's own maps, which an idmapped mount without any takes.
    pub maps: (&'a [IdRange], &'a [IdRange]),
    /// The user namespace that the container enters, which an idmapped mount takes instead of those.
    pub users: Option<BorrowedFd<'a>>,
    /// The container's cgroups.
    pub cgroups: &'a CgroupView,
    /// SELinux label of what is mounted.
    pub label: Option<&'a str>,
}

/// One mount, ready to be made.
#[derive(Debug)]
pub struct Given {
    index: usize,
    destination: CString,
    what: What,
    set: u64,
    /// What of `set` every mount below has to have too.
    set_below: u64,
    propagation: Vec<u64>,
}

#[derive(Debug)]
enum What {
    Tree { source: Source, changes: Vec<Attributes<'static>> },
    FileSystem { kind: CString, options: Vec<(CString, Option<CString>)>, strict: bool, copy_up: bool },
    Existing { clear: u64, options: Vec<(CString, Option<CString>)> },
    CgroupV1 { hierarchies: Vec<(CString, Source)>, links: Vec<(CString, CString)> },
}

/// `MS_REC`.
const BELOW: u64 = libc::MS_REC;

/// Parent half.
pub fn prepare(index: usize, given: &ContainerMount, around: &mut Surroundings<'_>) -> Result<Given> {
    let about = || given.destination.to_string();
    let destination = relative(given.destination.as_path())?;
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
    let what = match &given.source {
        MountSource::Bind { source, recursive } => tree(source.as_path(), *recursive, given, around)?,
        MountSource::FileSystem { kind, source, options } => {
            let mut all = Vec::new();
            if let Some(source) = source {
                all.push((c"source".to_owned(), Some(text(source.as_bytes())?)));
            }
            all.extend(parts_of(options)?);
            if let Some(label) = around.label.filter(|_| takes_label(kind)) {
                all.push((c"context".to_owned(), Some(text(label.as_bytes())?)));
            }
            // An image must not decide where these are: nothing but a directory at that very place will do.
            let strict = matches!(kind.as_str(), "proc" | "sysfs");
            What::FileSystem { kind: text(kind.as_bytes())?, options: all, strict, copy_up: given.copy_up }
        }
        MountSource::Remount { options } => {
            What::Existing { clear: given.clear & !given.set_below | given.clear_below, options: parts_of(options)? }
        }
        MountSource::Cgroup => cgroup(given, around).map_err(|error| Error { object: about(), ..error })?,
    };
    // What is said of all mounts below is said of this one too, and last.
    let set = given.set & !given.clear_below & !(atime(given.set_below)) | given.set_below;
    if destination.as_bytes() == b"proc" && !is_proc(&what) {
        return Err(Error::new(Step::Mount, about(), "only a procfs can be mounted there"));
    }
    Ok(Given { index, destination, what, set, set_below: given.set_below, propagation: given.propagation.clone() })
}

/// Whether it is a procfs, new or bound: everything that is written and read there later relies on that.
fn is_proc(what: &What) -> bool {
    match what {
        What::FileSystem { kind, .. } => kind.as_c_str() == c"proc",
        What::Tree { source, .. } => source.is_proc(),
        What::Existing { .. } => true,
        What::CgroupV1 { .. } => false,
    }
}

/// All bits that say which access times are kept, if one of them is set: they are one number.
fn atime(set: u64) -> u64 {
    if set & libc::MOUNT_ATTR__ATIME != 0 { libc::MOUNT_ATTR__ATIME } else { 0 }
}

/// File systems of the kernel's own have labels of their own.
fn takes_label(kind: &str) -> bool {
    !matches!(kind, "proc" | "sysfs" | "mqueue" | "cgroup" | "cgroup2" | "securityfs" | "debugfs" | "tracefs")
}

fn tree(path: &Path, recursive: bool, given: &ContainerMount, around: &mut Surroundings<'_>) -> Result<What> {
    let failed = |errno| Error::errno(Step::Source, path.display().to_string(), errno);
    let source = Source::following(path, around.privileged, recursive).map_err(failed)?;
    // A copy gets no mount events back to the host, unless the configuration says so.
    let mut changes = Vec::new();
    if !given.propagation.iter().any(|kind| kind & libc::MS_SHARED != 0) {
        changes.push(Attributes { propagation: libc::MS_SLAVE, recursive: true, ..Attributes::default() });
    }
    let one = Attributes { set: given.set, clear: given.clear, ..Attributes::default() };
    let below = Attributes { set: given.set_below, clear: given.clear_below, recursive: true, ..Attributes::default() };
    changes.extend([one, below].into_iter().filter(|change| change.set | change.clear != 0));
    if given.idmap {
        if !around.privileged {
            return Err(Error::new(Step::Source, path.display().to_string(), "only root can map the ids of a mount"));
        }
        let own = given.uid_map.is_empty() && given.gid_map.is_empty();
        let (uids, gids) = if own { around.maps } else { (&given.uid_map[..], &given.gid_map[..]) };
        let made = if own && around.users.is_some() { None } else { Some((around.idmap)(uids, gids)?) };
        let namespace = made.as_ref().map(AsFd::as_fd).or(around.users);
        let change = Attributes { recursive: given.idmap_below, idmap: namespace, ..Attributes::default() };
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

fn cgroup(given: &ContainerMount, around: &mut Surroundings<'_>) -> Result<What> {
    let v2 = |name: &str| name.is_empty();
    match around.cgroups.directories.as_slice() {
        // Engines ask for the mount also where there can be no cgroup: an empty directory is all that may be seen then.
        [] => Ok(What::CgroupV1 { hierarchies: Vec::new(), links: Vec::new() }),
        [(name, _)] if v2(name) && around.cgroups.own_namespace => {
            Ok(What::FileSystem { kind: c"cgroup2".to_owned(), options: Vec::new(), strict: false, copy_up: false })
        }
        [(name, directory)] if v2(name) => tree(directory, true, given, around),
        hierarchies => {
            let text = |text: &str| CString::new(text).expect("names of controllers hold no NUL");
            let mut bound = Vec::new();
            for (name, directory) in hierarchies {
                let What::Tree { source, .. } = tree(directory, true, given, around)? else { continue };
                bound.push((text(name), source));
            }
            let links = around.cgroups.links.iter().map(|(name, target)| (text(name), text(target))).collect();
            Ok(What::CgroupV1 { hierarchies: bound, links })
        }
    }
}

/// What later steps have to do with a mount that was made.
#[derive(Debug, Default)]
pub struct Made {
    /// File systems that become read-only when everything is in place.
    pub freeze: Vec<OwnedFd>,
    /// The devpts instance at `/dev/pts`.
    pub devpts: Option<OwnedFd>,
    /// A procfs of the container's own.
    pub proc: Option<OwnedFd>,
    /// What every mount has to be like in the end.
    pub expected: Vec<Expected>,
}

impl Given {
    /// Child half: makes the mount point if need be, and the mount on it.
    pub fn apply(&self, root: BorrowedFd<'_>, made: &mut Made) -> Applied {
        let target = self.target(root).during(Step::MountPoint, self.index)?;
        let mounted = self.mount(&target, made).during(Step::Mount, self.index)?;
        self.propagate(&mounted).during(Step::Mount, self.index)?;
        let last = self.propagation.last().copied().unwrap_or(0);
        let id = mount::id_of(&mounted).during(Step::Mount, self.index)?;
        let before = made.expected.iter().find(|other| other.id == id).map_or(0, |other| other.set);
        let kept = if let What::Existing { clear, .. } = &self.what { before & !clear } else { 0 };
        let expected =
            Expected { id, set: self.set | kept, shared: last & libc::MS_SHARED != 0, below: false, index: self.index };
        if self.set_below != 0 && matches!(self.what, What::Tree { .. } | What::Existing { .. }) {
            // At once: what later mounts lie below was not said to be like this.
            let below = Expected { set: self.set_below, below: true, shared: true, ..expected };
            read_back::verify(made.proc.as_ref().map(AsFd::as_fd), &[below])?;
        }
        made.expected.retain(|other| other.id != expected.id);
        made.expected.push(expected);
        Ok(())
    }

    fn target(&self, root: BorrowedFd<'_>) -> std::result::Result<OwnedFd, Errno> {
        let target = self.find_target(root)?;
        let is_directory = fstat(&target)?.st_mode & libc::S_IFMT == libc::S_IFDIR;
        if self.wants_directory().is_some_and(|wanted| wanted != is_directory) {
            return Err(if is_directory { Errno::EISDIR } else { Errno::ENOTDIR });
        }
        // By whatever links it was reached: most of what procfs says is for the kernel to say alone.
        let covers = !matches!(self.what, What::Existing { .. }) && !may_be_covered(self.destination.to_bytes());
        if covers && fstatfs(&target)?.filesystem_type() == PROC_SUPER_MAGIC {
            return Err(Errno::EPERM);
        }
        Ok(target)
    }

    /// Whether only a directory will do, or only something else; `None` where what is there is what will do.
    fn wants_directory(&self) -> Option<bool> {
        match &self.what {
            What::Existing { .. } => None,
            What::Tree { source, .. } => Some(source.is_dir()),
            _ => Some(true),
        }
    }

    fn find_target(&self, root: BorrowedFd<'_>) -> std::result::Result<OwnedFd, Errno> {
        match &self.what {
            What::FileSystem { strict: true, .. } => within::create_directory(root, &self.destination),
            What::Existing { .. } => {
                mount::open_beneath(root, &self.destination, libc::O_PATH, mount::IN_ROOT | mount::NO_MAGICLINKS)
            }
            What::Tree { source, .. } if !source.is_dir() => within::create(root, &self.destination, Shape::File),
            _ => within::create(root, &self.destination, Shape::Directory),
        }
    }

    fn mount(&self, target: &OwnedFd, made: &mut Made) -> std::result::Result<OwnedFd, Errno> {
        match &self.what {
            What::Tree { source, changes } => source.changed(changes, |tree| {
                mount::attach(tree, target)?;
                tree.try_clone().map_err(|_| Errno::EMFILE)
            }),
            What::FileSystem { kind, options, copy_up, .. } => {
                let tree = self.file_system(kind, options, target)?;
                if *copy_up {
                    copy_up::copy(within::directory(target)?.as_fd(), within::directory(&tree)?.as_fd(), 0)?;
                }
                mount::attach(&tree, target)?;
                if self.set & RDONLY != 0 && is_filled(kind) {
                    made.freeze.push(tree.try_clone().map_err(|_| Errno::EMFILE)?);
                }
                if kind.as_c_str() == c"proc" && self.destination.as_c_str() == c"proc" {
                    made.proc = Some(tree.try_clone().map_err(|_| Errno::EMFILE)?);
                }
                if kind.as_c_str() == c"devpts" && self.destination.as_c_str() == c"dev/pts" {
                    made.devpts = Some(tree.try_clone().map_err(|_| Errno::EMFILE)?);
                }
                Ok(tree)
            }
            What::Existing { clear, options } => {
                // Fails where nothing is mounted.
                let change = Attributes { set: self.set, clear: *clear, ..Attributes::default() };
                mount::set_attributes(target, change)?;
                if self.set_below != 0 {
                    let below = Attributes { set: self.set_below, recursive: true, ..Attributes::default() };
                    mount::set_attributes(target, below)?;
                }
                if !options.is_empty() {
                    let context = FsContext::pick(target)?;
                    set_options(&context, options)?;
                    context.reconfigure()?;
                }
                target.try_clone().map_err(|_| Errno::EMFILE)
            }
            What::CgroupV1 { hierarchies, links } => {
                let context = FsContext::open(c"tmpfs")?;
                context.set(c"mode", c"755")?;
                let top = context.mount(self.set & !RDONLY)?;
                mount::attach(&top, target)?;
                let directory = within::directory(&top)?;
                for (name, source) in hierarchies {
                    make_directory(directory.as_fd(), name, nix::sys::stat::Mode::from_bits_truncate(0o755))?;
                    let place = within::create(top.as_fd(), name, Shape::Directory)?;
                    source.changed(&[], |tree| mount::attach(tree, &place))?;
                }
                for (name, target) in links {
                    symlinkat(target.as_c_str(), &directory, name.as_c_str())?;
                }
                if self.set & RDONLY != 0 || hierarchies.is_empty() {
                    made.freeze.push(top.try_clone().map_err(|_| Errno::EMFILE)?); // a later mount may lie in it
                }
                Ok(top)
            }
        }
    }

    fn file_system(
        &self,
        kind: &CStr,
        options: &[(CString, Option<CString>)],
        target: &OwnedFd,
    ) -> std::result::Result<OwnedFd, Errno> {
        let context = FsContext::open(kind)?;
        set_options(&context, options)?;
        let filled = is_filled(kind);
        if filled && !options.iter().any(|(name, _)| name.as_c_str() == c"mode") {
            // What covers a directory looks like it.
            let mode = format!("{:o}", fstat(target)?.st_mode & 0o7777);
            context.set(c"mode", &CString::new(mode).unwrap_or_default())?;
        }
        context.mount(if filled { self.set & !RDONLY } else { self.set })
    }

    fn propagate(&self, mounted: &OwnedFd) -> std::result::Result<(), Errno> {
        for kind in &self.propagation {
            let (propagation, recursive) = (kind & !BELOW, kind & BELOW != 0);
            mount::set_attributes(mounted, Attributes { propagation, recursive, ..Attributes::default() })?;
        }
        Ok(())
    }
}

fn set_options(context: &FsContext, options: &[(CString, Option<CString>)]) -> std::result::Result<(), Errno> {
    options.iter().try_for_each(|(name, value)| match value {
        Some(value) => context.set(name, value),
        None => context.set_flag(name),
    })
}

/// Whether a place may be covered even in procfs: the whole of it by another, and what tools for showing a container its
/// own size cover.
fn may_be_covered(path: &[u8]) -> bool {
    const SIZES: [&[u8]; 12] = [
        b"cpuinfo",
        b"diskstats",
        b"loadavg",
        b"meminfo",
        b"net/dev",
        b"pressure",
        b"slabinfo",
        b"stat",
        b"swaps",
        b"uptime",
        b"sys/crypto/fips_enabled",
        b"sys/kernel/ns_last_pid",
    ];
    path == b"proc" || path.strip_prefix(b"proc/").is_some_and(|path| SIZES.contains(&path))
}

/// Whether something is still put into a file system of this type after it is mounted.
fn is_filled(kind: &CStr) -> bool {
    kind == c"tmpfs"
}
