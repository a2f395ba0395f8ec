//! Changes in and through procfs: masked and read-only paths, and settings in its files.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::{Mode, SFlag, fstat, mknodat};

use super::mount_point::{make_directory, relative};
use crate::error::{Error, Result, Step};
use crate::failure::{Applied, During};
use crate::plan::Bytes;
use crate::sys::ablate::{Layer, without};
use crate::sys::file;
use crate::sys::mount::{self, Attributes, IN_ROOT, NO_MAGICLINKS, NODEV, NOEXEC, NOSUID, RDONLY};

/// Makes the plan's paths relative to the new root.
pub fn prepare(paths: &[Bytes]) -> Result<Vec<CString>> {
    paths.iter().map(|path| relative(path.as_path())).collect()
}

/// Called for every mount, with the index of its path.
pub type OnMount<'a> = &'a mut dyn FnMut(usize, BorrowedFd<'_>) -> std::result::Result<(), Errno>;

/// Child half: covers each existing path with an empty read-only file or directory.
pub fn mask(root: BorrowedFd<'_>, scratch: BorrowedFd<'_>, paths: &[CString], on_mount: OnMount<'_>) -> Applied {
    if paths.is_empty() {
        return Ok(());
    }
    make_covers(scratch).during(Step::Mask, 0)?;
    for (index, path) in paths.iter().enumerate() {
        let covered = cover(root, scratch, path).during(Step::Mask, index)?;
        covered.map_or(Ok(()), |cover| on_mount(index, cover.as_fd())).during(Step::Mask, index)?;
    }
    Ok(())
}

/// The mode of a file that covers another. Programs read an empty file, and fail at one that they may not read.
pub const COVER_FILE_MODE: Mode = Mode::from_bits_truncate(0o444);
/// The same for a directory.
pub const COVER_DIRECTORY_MODE: Mode = Mode::from_bits_truncate(0o555);

const EMPTY_FILE: &CStr = c"empty-file";
const EMPTY_DIRECTORY: &CStr = c"empty-directory";

fn make_covers(scratch: BorrowedFd<'_>) -> std::result::Result<(), Errno> {
    mknodat(scratch, EMPTY_FILE, SFlag::S_IFREG, COVER_FILE_MODE, 0)?;
    make_directory(scratch, EMPTY_DIRECTORY, COVER_DIRECTORY_MODE)
}

/// Opens what the path leads to within the root. A link is followed, because its target can also be reached by its own name.
fn existing(root: BorrowedFd<'_>, path: &CStr) -> std::result::Result<Option<OwnedFd>, Errno> {
    match mount::open_beneath(root, path, libc::O_PATH, IN_ROOT | NO_MAGICLINKS) {
        Err(Errno::ENOENT | Errno::ENOTDIR) => Ok(None),
        target => target.map(Some),
    }
}

fn cover(root: BorrowedFd<'_>, scratch: BorrowedFd<'_>, path: &CStr) -> std::result::Result<Option<OwnedFd>, Errno> {
    let Some(target) = existing(root, path)? else { return Ok(None) };
    let is_dir = SFlag::from_bits_truncate(fstat(&target)?.st_mode) & SFlag::S_IFMT == SFlag::S_IFDIR;
    let tree = mount::clone_tree(scratch, if is_dir { EMPTY_DIRECTORY } else { EMPTY_FILE }, false)?;
    let set = RDONLY | NOSUID | NODEV | NOEXEC;
    mount::set_attributes(&tree, Attributes { set, ..Attributes::default() })?;
    mount::attach(&tree, target)?;
    Ok(Some(tree))
}

/// Child half: makes each existing path read-only, with all mounts below it.
pub fn freeze(root: BorrowedFd<'_>, paths: &[CString], on_mount: OnMount<'_>) -> Applied {
    for (index, path) in paths.iter().enumerate() {
        let frozen = freeze_one(root, path).during(Step::ReadOnly, index)?;
        frozen.map_or(Ok(()), |tree| on_mount(index, tree.as_fd())).during(Step::ReadOnly, index)?;
    }
    Ok(())
}

fn freeze_one(root: BorrowedFd<'_>, path: &CStr) -> std::result::Result<Option<OwnedFd>, Errno> {
    let Some(target) = existing(root, path)? else { return Ok(None) };
    let tree = mount::clone_tree(target.as_fd(), c"", true)?;
    mount::set_attributes(&tree, Attributes { set: RDONLY, recursive: true, ..Attributes::default() })?;
    mount::attach(&tree, target)?;
    Ok(Some(tree))
}

/// The limits on nested namespaces. If these are forbidden, `user` alone stops unprivileged processes.
const NAMESPACE_LIMITS: [&CStr; 8] = [
    c"max_user_namespaces",
    c"max_mnt_namespaces",
    c"max_pid_namespaces",
    c"max_net_namespaces",
    c"max_ipc_namespaces",
    c"max_uts_namespaces",
    c"max_cgroup_namespaces",
    c"max_time_namespaces",
];

/// Child half: opens the directory of the limits, while it is still writable.
///
/// Every procfs shows the limits of the reader's own user namespace. So the host's procfs serves if the sandbox has none.
pub fn open_limits(proc: BorrowedFd<'_>) -> Applied<OwnedFd> {
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    openat(proc, c"sys/user", flags, Mode::empty()).during(Step::NamespaceLimits, 0)
}

/// The kernel counts these per user, over all of the user's namespaces. A workload could use up what the caller's other
/// processes need, `inotify(7)`, `fanotify(7)`. The default limit is 128 instances of each.
const INSTANCE_LIMITS: [&CStr; 2] = [c"max_inotify_instances", c"max_fanotify_groups"];
const MOST_INSTANCES: &CStr = c"32";
const WATCH_LIMITS: [&CStr; 2] = [c"max_inotify_watches", c"max_fanotify_marks"];

/// Parent half: the workload's limit on watches, half of the host's limit per user.
pub fn share_of_watches() -> Result<CString> {
    const HOST: &str = "/proc/sys/fs/inotify/max_user_watches";
    let failed = |errno| Error::errno(Step::NamespaceLimits, HOST, errno);
    let mut read = [0; 32];
    let length = match file::open(HOST, OFlag::O_RDONLY) {
        Err(Errno::ENOENT) => 0, // a kernel without inotify
        file => nix::unistd::read(file.map_err(failed)?, &mut read).map_err(failed)?,
    };
    let host = std::str::from_utf8(&read[..length]).ok().and_then(|text| text.trim().parse::<u64>().ok());
    Ok(CString::new((host.unwrap_or(0) / 2).to_string()).expect("digits hold no NUL"))
}

/// Child half: limits the namespaces of each kind in this user namespace, `namespaces(7)`, and the file watches.
pub fn limit_namespaces(limits: BorrowedFd<'_>, most: &CStr, watches: &CStr) -> Applied {
    let namespaces = NAMESPACE_LIMITS.iter().map(|name| (name, most, true));
    let instances = INSTANCE_LIMITS.iter().map(|name| (name, MOST_INSTANCES, false));
    let watches = WATCH_LIMITS.iter().map(|name| (name, watches, false));
    let shares = instances.chain(watches).filter(|_| !without(Layer::NamespaceLimits));
    for (index, (name, most, required)) in namespaces.chain(shares).enumerate() {
        match write_setting(limits, name, most.to_bytes()) {
            Err(Errno::ENOENT) if !required => {} // before Linux 5.13 only root has fanotify; inotify may not be built in
            written => written.during(Step::NamespaceLimits, index)?,
        }
    }
    Ok(())
}

/// Child half: sets the offsets of the new time namespace, in the format of `time_namespaces(7)`.
pub fn set_time_offsets(proc: BorrowedFd<'_>, text: &CStr) -> Applied {
    write_setting(proc, c"self/timens_offsets", text.to_bytes()).during(Step::TimeNamespace, 0)
}

pub(super) fn write_setting(proc: BorrowedFd<'_>, name: &CStr, text: &[u8]) -> std::result::Result<(), Errno> {
    let file = openat(proc, name, OFlag::O_WRONLY | OFlag::O_CLOEXEC, Mode::empty())?;
    nix::unistd::write(file, text).map(drop)
}

/// Writes a kernel parameter and verifies its value. No part of its path may be a symlink or another file system.
pub fn write_verified(proc: BorrowedFd<'_>, path: &CStr, value: &[u8]) -> std::result::Result<(), Errno> {
    let resolve = libc::RESOLVE_BENEATH | libc::RESOLVE_NO_SYMLINKS | libc::RESOLVE_NO_XDEV;
    let file = mount::open_beneath(proc, path, libc::O_RDWR, resolve)?;
    nix::unistd::write(&file, value)?;
    let mut read = [0; 4096];
    let length = nix::sys::uio::pread(&file, &mut read, 0)?;
    let words = |text: &[u8]| -> Vec<Vec<u8>> {
        text.split(|byte| byte.is_ascii_whitespace()).filter(|word| !word.is_empty()).map(<[u8]>::to_vec).collect()
    };
    if words(&read[..length]) == words(value) { Ok(()) } else { Err(Errno::EINVAL) }
}

/// Whether this path may be covered even in procfs: the whole procfs by another one, and the files that tools such as lxcfs
/// cover to show a container its own limits.
pub fn may_be_covered(path: &[u8]) -> bool {
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
