//! The device nodes of a container and the usual links in its `/dev`.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::AtFlags;
use nix::sys::stat::{FchmodatFlags, Mode, SFlag, fchmodat, fstatat, makedev, mkdirat, mknodat};
use nix::unistd::{Gid, Uid, fchownat, symlinkat};

use super::dev::LINKS;
use super::mount_point::{Shape, relative};
use super::source::{SLAVE, Source};
use super::within;
use crate::error::{Error, Result, Step};
use crate::failure::{Applied, During};
use crate::plan::ContainerPlan;
use crate::plan::container::{Device, IdRange, NamespaceKind};
use crate::sys::mount::{self, BENEATH, FsContext, NO_SYMLINKS, NOEXEC, NOSUID};

/// All device nodes, prepared.
#[derive(Debug)]
pub struct Devices {
    nodes: Vec<Node>,
    /// A tmpfs with nodes that the parent made, by their index. No node can be made in a user namespace, or used on a file system
    /// that was mounted there.
    made: Option<OwnedFd>,
}

#[derive(Debug)]
struct Node {
    /// The index of the plan's device.
    index: usize,
    path: CString,
    device: Device,
    /// Its name in the parent's tmpfs, if it could be made.
    made: Option<CString>,
    /// The host's node with the same number, in case no node can be made.
    host: Option<Source>,
}

impl Devices {
    /// Parent half.
    pub fn prepare(plan: &ContainerPlan, privileged: bool) -> Result<Self> {
        let makes = privileged && plan.makes(NamespaceKind::User);
        let made = makes.then(|| FsContext::open(c"tmpfs").and_then(|context| context.mount(NOSUID | NOEXEC)));
        let made = made.transpose().map_err(|errno| Error::errno(Step::Device, "tmpfs for nodes", errno))?;
        // The container's own terminals are opened through its devpts: `/dev/ptmx` is a link, whatever device is listed there.
        let listed = plan.devices.iter().enumerate().filter(|(_, device)| device.path.as_bytes() != b"/dev/ptmx");
        // Nearly always a node can be made, and an unused clone takes long to close. Without a user namespace the child clones.
        let clones = privileged && (plan.has_own(NamespaceKind::User) || plan.joins(NamespaceKind::Mount));
        let nodes = listed.map(|(index, device)| {
            let name = made.as_ref().map(|tmpfs| make(tmpfs.as_fd(), index, device, plan)).transpose();
            let name = name.map_err(|errno| Error::errno(Step::Device, device.path.to_string(), errno))?.flatten();
            Ok(Node {
                index,
                path: relative(device.path.as_path())?,
                device: device.clone(),
                host: if name.is_none() { host_node(device, clones) } else { None },
                made: name,
            })
        });
        Ok(Self { nodes: nodes.collect::<Result<_>>()?, made })
    }

    /// Child half. `scratch` is a directory of ours.
    pub fn apply(&self, root: BorrowedFd<'_>, scratch: BorrowedFd<'_>) -> Applied {
        // Only a mount of our own namespace can be cloned.
        let made = self.made.as_ref().map(|tmpfs| attach_at(tmpfs, scratch)).transpose().during(Step::Device, 0)?;
        for node in &self.nodes {
            node.apply(root, made).during(Step::Device, node.index)?;
        }
        link_streams(root).during(Step::Device, usize::MAX)
    }
}

/// Makes a node with the owner that the configuration names. `None` if that owner does not exist in the container, or if this
/// process may not make nodes.
fn make(
    tmpfs: BorrowedFd<'_>,
    index: usize,
    device: &Device,
    plan: &ContainerPlan,
) -> std::result::Result<Option<CString>, Errno> {
    let (uid, gid) = (IdRange::host_id(&plan.uid_map, device.uid), IdRange::host_id(&plan.gid_map, device.gid));
    let (Some(uid), Some(gid)) = (uid, gid) else { return Ok(None) };
    let name = CString::new(index.to_string()).map_err(|_| Errno::EINVAL)?;
    match create(tmpfs, &name, device) {
        Err(Errno::EPERM) => return Ok(None),
        created => created?,
    }
    give(tmpfs, &name, device, (uid, gid)).map(|()| Some(name))
}

fn create(directory: BorrowedFd<'_>, name: &CStr, device: &Device) -> std::result::Result<(), Errno> {
    let mode = Mode::from_bits_truncate(device.mode & 0o7777);
    mknodat(directory, name, SFlag::from_bits_truncate(device.kind), mode, number(device))
}

/// Sets mode and owner of a new node.
fn give(
    directory: BorrowedFd<'_>,
    name: &CStr,
    device: &Device,
    (uid, gid): (u32, u32),
) -> std::result::Result<(), Errno> {
    let mode = Mode::from_bits_truncate(device.mode & 0o7777);
    fchmodat(directory, name, mode, FchmodatFlags::NoFollowSymlink)?;
    fchownat(directory, name, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)), AtFlags::AT_SYMLINK_NOFOLLOW)
}

/// The host's node at this path, if it is the same device. With `clones`, its mount is cloned now.
fn host_node(device: &Device, clones: bool) -> Option<Source> {
    Source::following(device.path.as_path(), clones, false).ok().filter(|source| {
        let stat = source.stat();
        stat.st_mode & libc::S_IFMT == device.kind && stat.st_rdev == number(device)
    })
}

fn number(device: &Device) -> libc::dev_t {
    makedev(device.major.into(), device.minor.into())
}

fn attach_at<'a>(tmpfs: &'a OwnedFd, scratch: BorrowedFd<'_>) -> std::result::Result<BorrowedFd<'a>, Errno> {
    mkdirat(scratch, c"nodes", Mode::from_bits_truncate(0o700))?;
    let place = mount::open_beneath(scratch, c"nodes", libc::O_PATH | libc::O_DIRECTORY, BENEATH | NO_SYMLINKS)?;
    mount::attach(tmpfs, place)?;
    Ok(tmpfs.as_fd())
}

fn link_streams(root: BorrowedFd<'_>) -> std::result::Result<(), Errno> {
    let dev = within::create(root, c"dev", Shape::Directory)?;
    LINKS.iter().try_for_each(|(name, target)| match symlinkat(*target, &dev, *name) {
        Err(Errno::EEXIST) => Ok(()),
        linked => linked,
    })
}

impl Node {
    fn apply(&self, root: BorrowedFd<'_>, made: Option<BorrowedFd<'_>>) -> std::result::Result<(), Errno> {
        let (parent, name) = within::parent_of(root, &self.path)?;
        match create(parent.as_fd(), &name, &self.device) {
            Ok(()) => give(parent.as_fd(), &name, &self.device, (self.device.uid, self.device.gid)),
            Err(Errno::EEXIST) => self.verify(&parent, &name),
            Err(Errno::EPERM) => {
                let place = within::create(root, &self.path, Shape::File)?;
                if let (Some(directory), Some(name)) = (made, &self.made) {
                    let node = mount::open_beneath(directory, name, libc::O_PATH, BENEATH | NO_SYMLINKS)?;
                    return mount::attach(mount::clone_tree(node.as_fd(), c"", false)?, &place);
                }
                let host = self.host.as_ref().ok_or(Errno::EPERM)?;
                mount::attach(host.tree(&[SLAVE])?, &place)
            }
            Err(errno) => Err(errno),
        }
    }

    /// An existing entry must be the same device.
    fn verify(&self, parent: &OwnedFd, name: &CStr) -> std::result::Result<(), Errno> {
        let stat = fstatat(parent, name, AtFlags::AT_SYMLINK_NOFOLLOW)?;
        let same = stat.st_mode & libc::S_IFMT == self.device.kind
            && (stat.st_rdev == number(&self.device) || self.device.kind == libc::S_IFIFO);
        if same { Ok(()) } else { Err(Errno::EEXIST) }
    }
}
