//! Mounts exactly as a container's configuration describes them.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use nix::errno::Errno;
use nix::sys::stat::fstat;
use nix::unistd::symlinkat;

use super::copy_up;
use super::mounts::make_directory;
use super::place::{Shape, relative};
use super::source::Source;
use super::within;
use crate::error::{Error, Result, Step};
use crate::layers::{Applied, During};
use crate::plan::Mount;
use crate::plan::container::{CgroupView, GivenMount, GivenSource, IdRange};
use crate::sys::mount::{self, Attributes, FsContext, RDONLY};

/// What preparing a container's mounts takes beside the plan.
pub struct Surroundings<'a> {
    /// Whether mounts can be cloned before the new namespaces exist.
    pub privileged: bool,
    /// Makes the user namespace of an idmapped mount.
    pub idmap: fn(&[IdRange], &[IdRange]) -> Result<OwnedFd>,
    /// The container's own maps, which an idmapped mount without any takes.
    pub maps: (&'a [IdRange], &'a [IdRange]),
    /// The container's cgroups.
    pub cgroups: &'a CgroupView,
}

/// One mount, ready to be made.
#[derive(Debug)]
pub struct Given {
    index: usize,
    destination: CString,
    what: What,
    set: u64,
    propagation: Vec<u64>,
}

#[derive(Debug)]
enum What {
    Tree { source: Source, changes: Vec<Attributes<'static>> },
    FileSystem { kind: CString, options: Vec<(CString, Option<CString>)>, strict: bool, copy_up: bool },
    CgroupV1 { hierarchies: Vec<(CString, Source)>, links: Vec<(CString, CString)> },
}

/// `MS_REC`.
const BELOW: u64 = libc::MS_REC;

/// Parent half.
pub fn prepare(index: usize, planned: &Mount, given: &GivenMount, around: &mut Surroundings<'_>) -> Result<Given> {
    let about = || planned.destination.to_string();
    let destination = relative(planned.destination.as_path())?;
    let what = match &given.what {
        GivenSource::Bind { source, recursive } => tree(source.as_path(), *recursive, given, around)?,
        GivenSource::FileSystem { kind, source, options } => {
            let text = |bytes: &[u8]| {
                CString::new(bytes).map_err(|_| Error::new(Step::Mount, about(), "has an option with a NUL byte"))
            };
            let mut all = Vec::new();
            if let Some(source) = source {
                all.push((c"source".to_owned(), Some(text(source.as_bytes())?)));
            }
            for option in options {
                let mut parts = option.as_bytes().splitn(2, |byte| *byte == b'=');
                let (name, value) = (parts.next().unwrap_or_default(), parts.next());
                all.push((text(name)?, value.map(text).transpose()?));
            }
            // An image must not decide where these are: nothing but a directory at that very place will do.
            let strict = matches!(kind.as_str(), "proc" | "sysfs");
            What::FileSystem { kind: text(kind.as_bytes())?, options: all, strict, copy_up: given.copy_up }
        }
        GivenSource::Cgroup => cgroup(given, around).map_err(|error| Error { object: about(), ..error })?,
    };
    Ok(Given { index, destination, what, set: given.set, propagation: given.propagation.clone() })
}

fn tree(path: &Path, recursive: bool, given: &GivenMount, around: &mut Surroundings<'_>) -> Result<What> {
    let failed = |errno| Error::errno(Step::Source, path.display().to_string(), errno);
    let source = Source::open_tree(path, around.privileged, recursive).map_err(failed)?;
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
        let namespace = (around.idmap)(uids, gids)?;
        let change =
            Attributes { recursive: given.idmap_below, idmap: Some(namespace.as_fd()), ..Attributes::default() };
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

fn cgroup(given: &GivenMount, around: &mut Surroundings<'_>) -> Result<What> {
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
}

impl Given {
    /// Child half: makes the mount point if need be, and the mount on it.
    pub fn apply(&self, root: BorrowedFd<'_>, made: &mut Made) -> Applied {
        let target = self.target(root).during(Step::MountPoint, self.index)?;
        self.mount(&target, made).and_then(|mounted| self.propagate(&mounted)).during(Step::Mount, self.index)
    }

    fn target(&self, root: BorrowedFd<'_>) -> std::result::Result<OwnedFd, Errno> {
        match &self.what {
            What::FileSystem { strict: true, .. } => within::create_directory(root, &self.destination),
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
                if kind.as_c_str() == c"devpts" && self.destination.as_c_str() == c"dev/pts" {
                    made.devpts = Some(tree.try_clone().map_err(|_| Errno::EMFILE)?);
                }
                Ok(tree)
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
                    mount::set_attributes(&top, Attributes { set: RDONLY, ..Attributes::default() })?;
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
        for (name, value) in options {
            match value {
                Some(value) => context.set(name, value)?,
                None => context.set_flag(name)?,
            }
        }
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

/// Whether something is still put into a file system of this type after it is mounted.
fn is_filled(kind: &CStr) -> bool {
    kind == c"tmpfs"
}
