//! The plan's mounts: sources opened and texts made in the parent, mounts made and attached in the child.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::rc::Rc;

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::{Mode, SFlag, mkdirat, mknodat};
use nix::unistd::symlinkat;

use super::dev::{self, Dev};
use super::host::{Fault, Found, Last, Resolver};
use super::place::{Ground, Place, Places, Shape};
use super::source::{Source, bind_attributes};
use crate::error::{Error, Result, Step};
use crate::layers::{Applied, During};
use crate::plan::{Mount, MountKind};
use crate::sys::mount::{self, Attributes, FsContext, IN_ROOT, NO_MAGICLINKS, NODEV, NOEXEC, NOSUID, RDONLY};

/// What the parent knows about its own powers, and how to map the owner of a writable bind to the sandbox's user.
pub struct Powers<'a> {
    /// Whether mounts can be cloned and idmapped before the new namespaces exist.
    pub privileged: bool,
    /// Makes the user namespace of an idmapped mount for files of this host user and group.
    pub idmap: &'a mut dyn FnMut((u32, u32)) -> Result<Rc<OwnedFd>>,
}

/// One mount, ready to be made.
#[derive(Debug)]
pub struct Ready {
    index: usize,
    place: Place,
    what: What,
    attributes: u64,
}

#[derive(Debug)]
enum What {
    Tree(Source),
    Tmpfs { size: CString, inodes: CString, mode: CString },
    Scratch { name: CString, mode: Mode },
    Proc { pid_only: bool },
    Sysfs,
    Dev(Dev),
    Mqueue,
    File { content: Vec<u8>, mode: Mode },
    Symlink { target: CString },
}

/// Descriptors that the child's later steps need.
#[derive(Debug, Default)]
pub struct Made {
    /// The full procfs of the new pid namespace, if there is one.
    pub proc: Option<OwnedFd>,
    /// The tmpfs at /dev, made read-only when all is mounted.
    pub dev: Option<OwnedFd>,
    /// The new devpts instance.
    pub devpts: Option<OwnedFd>,
}

/// Parent half: `None` for an optional mount whose source is not there.
pub fn prepare(
    index: usize,
    mount: &Mount,
    places: &mut Places<'_>,
    powers: &mut Powers<'_>,
    sources: &mut Resolver,
) -> Result<Option<Ready>> {
    let destination = mount.destination.as_path();
    let mut attributes = NOSUID | NODEV;
    attributes |= if mount.read_only { RDONLY } else { 0 };
    attributes |= if mount.noexec { NOEXEC } else { 0 };
    let what = match &mount.kind {
        MountKind::Bind { source } => {
            let path = source.as_path();
            match present(sources.resolve(path, destination, Last::Followed), path, mount)? {
                Some(found) => Some(tree(path, found, mount, attributes, powers, sources)?),
                None => None,
            }
        }
        MountKind::AsHost => as_host(destination, mount, attributes, powers, sources)?,
        MountKind::Tmpfs { size_bytes, nr_inodes, mode } => Some(What::Tmpfs {
            size: number(*size_bytes),
            inodes: number(*nr_inodes),
            mode: c_string(format!("{mode:o}").as_bytes(), destination)?,
        }),
        MountKind::Scratch { mode } => {
            Some(What::Scratch { name: number(index as u64), mode: Mode::from_bits_truncate(*mode) })
        }
        MountKind::Proc { pid_only } => Some(What::Proc { pid_only: *pid_only }),
        MountKind::Sysfs => Some(What::Sysfs),
        MountKind::Dev { devices } => Some(What::Dev(dev::prepare(index, devices, powers.privileged, sources)?)),
        MountKind::Mqueue => Some(What::Mqueue),
        MountKind::File { content, mode } => {
            Some(What::File { content: content.as_bytes().to_vec(), mode: Mode::from_bits_truncate(*mode) })
        }
        MountKind::Symlink { target } => Some(What::Symlink { target: c_string(target.as_bytes(), destination)? }),
    };
    let Some(what) = what else { return Ok(None) };
    let (shape, ground) = match &what {
        What::Tree(source) if !source.is_dir() => (Shape::File, Ground::Theirs),
        What::Tmpfs { .. } | What::Scratch { .. } | What::Dev(_) => (Shape::Directory, Ground::Ours),
        What::File { .. } => (Shape::Absent, Ground::Ours),
        What::Symlink { .. } => (Shape::Absent, Ground::Theirs),
        _ => (Shape::Directory, Ground::Theirs),
    };
    let place = places.add(destination, shape, ground)?;
    Ok(Some(Ready { index, place, what, attributes }))
}

/// `None` where an optional source is not there.
fn present(found: std::result::Result<Found, Fault>, path: &Path, mount: &Mount) -> Result<Option<Found>> {
    match found {
        Err(fault) if mount.optional && fault.is_missing() => Ok(None),
        found => found.map(Some).map_err(|fault| fault.error(Step::Source, path.display().to_string())),
    }
}

fn tree(
    path: &Path,
    found: Found,
    mount: &Mount,
    attributes: u64,
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
            .hint("devices are given with --device; sockets and pipes are not bound"));
    }
    if powers.privileged {
        if !mount.read_only {
            let namespace = (powers.idmap)((source.stat().st_uid, source.stat().st_gid))?;
            let change = Attributes { idmap: Some(namespace.as_fd()), ..Attributes::default() };
            source.set_attributes(change).map_err(|errno| {
                failed(errno).hint(
                    "its file system may not support idmapped mounts, which keep the owner of files that a sandbox of root \
                     writes: bind it read-only, use another file system, or run stockade as the owner of the files",
                )
            })?;
        }
        source.set_attributes(bind_attributes(attributes)).map_err(failed)?;
    }
    Ok(What::Tree(source))
}

fn as_host(
    path: &Path,
    mount: &Mount,
    attributes: u64,
    powers: &mut Powers<'_>,
    sources: &mut Resolver,
) -> Result<Option<What>> {
    let Some(found) = present(sources.resolve(path, path, Last::Itself), path, mount)? else { return Ok(None) };
    match found.link_target() {
        Some(Ok(target)) => Ok(Some(What::Symlink { target: c_string(target.as_bytes(), path)? })),
        Some(Err(errno)) => Err(Error::errno(Step::Source, path.display().to_string(), errno)),
        None => tree(path, found, mount, attributes, powers, sources).map(Some),
    }
}

fn number(value: u64) -> CString {
    CString::new(value.to_string()).expect("digits hold no NUL")
}

fn c_string(bytes: &[u8], about: &Path) -> Result<CString> {
    CString::new(bytes).map_err(|_| Error::new(Step::Mount, about.display().to_string(), "contains a NUL byte"))
}

impl Ready {
    /// Parent half: lets go of what the child has by now.
    pub fn let_go(&mut self) {
        match &mut self.what {
            What::Tree(source) => source.let_go(),
            What::Dev(dev) => dev.let_go(),
            _ => {}
        }
    }

    /// Child half: makes the mount point if need be, and the mount on it.
    pub fn apply(&self, root: BorrowedFd<'_>, scratch: BorrowedFd<'_>, made: &mut Made) -> Applied {
        self.create_place(root).during(Step::MountPoint, self.index)?;
        match &self.what {
            What::Symlink { target } => {
                let link = |parent: BorrowedFd<'_>, name: &CStr| symlinkat(target.as_c_str(), parent, name);
                self.place.entry.create(root, link).during(Step::Mount, self.index)
            }
            What::File { content, mode } => {
                let write = |parent: BorrowedFd<'_>, name: &CStr| write_new(parent, name, content, *mode);
                self.place.entry.create(root, write).during(Step::Mount, self.index)
            }
            What::Dev(dev) => {
                let target = self.target(root)?;
                dev.apply(target.as_fd(), made)
            }
            what => {
                let target = self.target(root)?;
                self.mount(what, target.as_fd(), scratch, made).during(Step::Mount, self.index)
            }
        }
    }

    /// The path of the device node that a [`Step::Device`] failure was about.
    pub fn device(&self, at: usize) -> Option<String> {
        if let What::Dev(dev) = &self.what { dev.node_path(at) } else { None }
    }

    fn target(&self, root: BorrowedFd<'_>) -> Applied<OwnedFd> {
        mount::open_beneath(root, &self.place.path, libc::O_PATH, IN_ROOT | NO_MAGICLINKS)
            .during(Step::MountPoint, self.index)
    }

    fn create_place(&self, root: BorrowedFd<'_>) -> std::result::Result<(), Errno> {
        let directory =
            |parent: BorrowedFd<'_>, name: &CStr| make_directory(parent, name, Mode::from_bits_truncate(0o755));
        for entry in &self.place.directories {
            entry.create(root, directory)?;
        }
        let file = |parent: BorrowedFd<'_>, name: &CStr| {
            mknodat(parent, name, SFlag::S_IFREG, Mode::from_bits_truncate(0o444), 0)
        };
        match self.place.create {
            Some(Shape::Directory) => self.place.entry.create(root, directory),
            Some(Shape::File) => self.place.entry.create(root, file),
            Some(Shape::Absent) | None => Ok(()),
        }
    }

    fn mount(
        &self,
        what: &What,
        target: BorrowedFd<'_>,
        scratch: BorrowedFd<'_>,
        made: &mut Made,
    ) -> std::result::Result<(), Errno> {
        match what {
            What::Tree(source) => source.attach(self.attributes, target),
            What::Tmpfs { size, inodes, mode } => {
                let context = FsContext::open(c"tmpfs")?;
                context.set(c"size", size)?;
                context.set(c"nr_inodes", inodes)?;
                context.set(c"mode", mode)?;
                mount::attach(context.mount(self.attributes)?, target)
            }
            What::Scratch { name, mode } => {
                mkdirat(scratch, name.as_c_str(), *mode)?;
                let tree = mount::clone_tree(scratch, name, false)?;
                mount::set_attributes(&tree, Attributes { set: self.attributes, ..Attributes::default() })?;
                mount::attach(tree, target)
            }
            What::Proc { pid_only } => {
                let context = FsContext::open(c"proc")?;
                if *pid_only {
                    context.set(c"subset", c"pid")?;
                }
                let tree = context.mount(self.attributes | NOEXEC)?;
                mount::attach(&tree, target)?;
                if !pid_only {
                    made.proc = Some(tree);
                }
                Ok(())
            }
            What::Sysfs => mount::attach(FsContext::open(c"sysfs")?.mount(self.attributes | NOEXEC | RDONLY)?, target),
            What::Mqueue => mount::attach(FsContext::open(c"mqueue")?.mount(self.attributes | NOEXEC)?, target),
            What::Dev(_) | What::File { .. } | What::Symlink { .. } => Err(Errno::EINVAL), // not mounts
        }
    }
}

/// Creates a directory on a file system of ours; that it is there already is fine.
pub fn make_directory(dir: BorrowedFd<'_>, path: &CStr, mode: Mode) -> std::result::Result<(), Errno> {
    match mkdirat(dir, path, mode) {
        Ok(()) | Err(Errno::EEXIST) => Ok(()),
        Err(errno) => Err(errno),
    }
}

/// Creates a file on a file system of ours.
fn write_new(dir: BorrowedFd<'_>, path: &CStr, mut content: &[u8], mode: Mode) -> std::result::Result<(), Errno> {
    let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let file = openat(dir, path, flags, mode)?;
    while !content.is_empty() {
        let written = nix::unistd::write(&file, content)?;
        content = &content[written..];
    }
    Ok(())
}
