//! A new /dev: a tmpfs with the safe device nodes, a new devpts and the usual symlinks. Each node is bound from a host node
//! whose number was checked.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::{Mode, makedev};
use nix::unistd::symlinkat;

use super::host::{Fault, Found, Last, Resolver};
use super::mount_point::make_directory;
use super::source::{Source, bind_attributes};
use crate::error::{Error, Result, Step};
use crate::failure::{Applied, During};
use crate::plan::Bytes;
use crate::sys::mount::{self, FsContext, NODEV, NOEXEC, NOSUID};

/// The nodes of every sandbox, with the numbers that they must have on the host, Documentation/admin-guide/devices.txt.
pub const NODES: [(&CStr, &str, u64, u64); 6] = [
    (c"null", "/dev/null", 1, 3),
    (c"zero", "/dev/zero", 1, 5),
    (c"full", "/dev/full", 1, 7),
    (c"random", "/dev/random", 1, 8),
    (c"urandom", "/dev/urandom", 1, 9),
    (c"tty", "/dev/tty", 5, 0),
];

const NODE_ATTRIBUTES: u64 = NOSUID | NOEXEC;

/// The links in every `/dev`: name and target.
pub const LINKS: [(&CStr, &CStr); 5] = [
    (c"fd", c"/proc/self/fd"),
    (c"stdin", c"/proc/self/fd/0"),
    (c"stdout", c"/proc/self/fd/1"),
    (c"stderr", c"/proc/self/fd/2"),
    (c"ptmx", c"pts/ptmx"),
];

/// The contents of the new /dev.
#[derive(Debug)]
pub struct Dev {
    index: usize,
    nodes: Vec<Node>,
}

#[derive(Debug)]
struct Node {
    directories: Vec<CString>,
    name: CString,
    source: Source,
}

/// Parent half: opens and checks the host's nodes.
pub fn prepare(index: usize, devices: &[Bytes], privileged: bool, sources: &mut Resolver) -> Result<Dev> {
    let mut nodes = Vec::with_capacity(NODES.len() + devices.len());
    for (name, path, major, minor) in NODES {
        let source = open_node(Path::new(path), sources.resolve_known(Path::new(path)), privileged)?;
        if source.stat().st_rdev != makedev(major, minor) {
            return Err(Error::new(Step::Device, path, "is not the device of that name on this host"));
        }
        nodes.push(Node { directories: Vec::new(), name: name.to_owned(), source });
    }
    for device in devices {
        let path = device.as_path();
        let below = path.strip_prefix("/dev").map_err(|_| {
            Error::new(Step::Device, path.display().to_string(), "is not below /dev").hint("bind other files with -v")
        })?;
        let name = |path: &Path| {
            CString::new(path.as_os_str().as_bytes())
                .map_err(|_| Error::new(Step::Device, path.display().to_string(), "contains a NUL byte"))
        };
        let mut directories: Vec<_> =
            below.ancestors().skip(1).filter(|path| !path.as_os_str().is_empty()).map(name).collect::<Result<_>>()?;
        directories.reverse();
        let source = open_node(path, sources.resolve(path, path, Last::Followed), privileged)?;
        nodes.push(Node { directories, name: name(below)?, source });
    }
    Ok(Dev { index, nodes })
}

fn open_node(path: &Path, found: std::result::Result<Found, Fault>, privileged: bool) -> Result<Source> {
    let object = || path.display().to_string();
    let found = found.map_err(|fault| fault.error(Step::Device, object()))?;
    let source = Source::of(path, found, privileged).map_err(|errno| Error::errno(Step::Device, object(), errno))?;
    source
        .set_attributes(bind_attributes(NODE_ATTRIBUTES))
        .map_err(|errno| Error::errno(Step::Device, object(), errno))?;
    if !source.is_char_device() {
        return Err(
            Error::new(Step::Device, object(), "is not a character device").hint("a sandbox never gets block devices")
        );
    }
    Ok(source)
}

impl Dev {
    /// Parent half: closes mounts that the child has inherited.
    pub fn drop_parent_copies(&mut self) {
        self.nodes.iter_mut().for_each(|node| node.source.drop_parent_copies());
    }

    /// Child half: mounts and fills it. Returns its tmpfs, which is still writable, and its devpts.
    pub fn apply(&self, target: BorrowedFd<'_>) -> Applied<(OwnedFd, OwnedFd)> {
        let tmpfs = (|| {
            let context = FsContext::open(c"tmpfs")?;
            context.set(c"size", c"64k")?;
            context.set(c"nr_inodes", c"256")?;
            context.set(c"mode", c"755")?;
            let tmpfs = context.mount(NOSUID | NODEV | NOEXEC)?;
            mount::attach(&tmpfs, target)?;
            Ok::<_, Errno>(tmpfs)
        })()
        .during(Step::Mount, self.index)?;
        for (at, node) in self.nodes.iter().enumerate() {
            node.apply(tmpfs.as_fd()).during(Step::Device, at)?;
        }
        let devpts = self.add_links_and_devpts(tmpfs.as_fd()).during(Step::Mount, self.index)?;
        Ok((tmpfs, devpts))
    }

    /// The path of the node of a [`Step::Device`] failure.
    pub fn node_path(&self, at: usize) -> Option<String> {
        self.nodes.get(at).map(|node| node.source.path().to_string_lossy().into_owned())
    }

    fn add_links_and_devpts(&self, tmpfs: BorrowedFd<'_>) -> std::result::Result<OwnedFd, Errno> {
        for (name, target) in LINKS {
            symlinkat(target, tmpfs, name)?;
        }
        make_directory(tmpfs, c"shm", Mode::from_bits_truncate(0o1777))?;
        make_directory(tmpfs, c"pts", Mode::from_bits_truncate(0o755))?;
        let context = FsContext::open(c"devpts")?;
        context.set(c"ptmxmode", c"0666")?;
        context.set(c"mode", c"0620")?;
        context.set(c"max", c"64")?;
        let devpts = context.mount(NOSUID | NOEXEC)?;
        let directory = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        mount::attach(&devpts, openat(tmpfs, c"pts", directory, Mode::empty())?)?;
        Ok(devpts)
    }
}

impl Node {
    fn apply(&self, tmpfs: BorrowedFd<'_>) -> std::result::Result<(), Errno> {
        for directory in &self.directories {
            make_directory(tmpfs, directory, Mode::from_bits_truncate(0o755))?;
        }
        let flags = OFlag::O_RDONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_CLOEXEC;
        let place = openat(tmpfs, self.name.as_c_str(), flags, Mode::from_bits_truncate(0o444))?;
        mount::attach(self.source.tree(&[bind_attributes(NODE_ATTRIBUTES)])?, place)
    }
}
