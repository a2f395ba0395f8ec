//! The mounts of a run, made with the same calls in temporary namespaces.

use std::ffi::CStr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, open, openat};
use nix::mount::{MntFlags, umount2};
use nix::sys::stat::{Mode, major, minor, mkdirat, stat};
use nix::sys::statfs::statfs;

use super::trial::{At, Tried, words};
use super::{Finding, Group, Probe, Subject};
use crate::confine::user;
use crate::sys::mount::{self, Attributes, FsContext, NODEV, NOEXEC, NOSUID, RDONLY};
use crate::sys::mountinfo;

const fn subject(name: &'static str, title: &'static str, required: bool, without: &'static str) -> Subject {
    Subject { name, group: Group::Mounts, title, required, without }
}

const NO_RUN: &str = "no run is possible";
const API: Subject = subject("mount_api", "new root: mount API, pivot_root", true, NO_RUN);
const BIND: Subject = subject("bind_mount", "read-only bind of the host", true, NO_RUN);
const PROC: Subject = subject("proc_mount", "new /proc", true, "default runs are refused");
const DEVPTS: Subject = subject("devpts", "new /dev/pts", true, "default runs are refused");
const MQUEUE: Subject = subject("mqueue", "new /dev/mqueue", false, "runs that ask for message queues are refused");
const SYSFS: Subject = subject("sysfs", "/sys", false, "runs that ask for /sys are refused; default runs have none");
const OVERLAY: Subject = subject(
    "overlay",
    "overlay in a user namespace",
    false,
    "a --rootfs directory must already have every mount point that the run needs",
);
const IDMAPPED: &str = "runs of root cannot bind directories of this file system writable; read-only works";
const IDMAPPED_CWD: Subject = subject("idmapped_cwd", "idmapped mount of .", false, IDMAPPED);
const IDMAPPED_TMP: Subject = subject("idmapped_tmp", "idmapped mount of /tmp", false, IDMAPPED);

pub(super) fn examine(probe: &Probe) -> Vec<Finding> {
    let new_mounts = libc::CLONE_NEWNS;
    let works = "mounted";
    vec![
        probe.tried(&API, new_mounts, "built, made read-only, entered, old root detached", &ROOT_STEPS, own_root),
        probe.tried(&BIND, new_mounts, "/usr cloned, made read-only, attached", &BIND_STEPS, bind),
        proc(probe),
        probe.tried(&DEVPTS, new_mounts, works, &["devpts"], devpts),
        probe.tried(&MQUEUE, new_mounts | libc::CLONE_NEWIPC, works, &["mqueue"], || fresh(c"mqueue")),
        probe.tried(&SYSFS, new_mounts | libc::CLONE_NEWNET, works, &["sysfs"], || fresh(c"sysfs")),
        overlay(probe),
        idmapped(&IDMAPPED_CWD, probe, Path::new(".")),
        idmapped(&IDMAPPED_TMP, probe, Path::new("/tmp")),
    ]
}

fn fresh(fs_type: &CStr) -> Tried {
    FsContext::open(fs_type).and_then(|context| context.mount(NOSUID | NODEV | NOEXEC)).map(|_| 0).at(0)
}

const DIRECTORY: OFlag = OFlag::O_PATH.union(OFlag::O_DIRECTORY).union(OFlag::O_CLOEXEC);

/// Mounts a tmpfs over this process's `/`, without changing its root.
fn scratch() -> Result<OwnedFd, Errno> {
    let context = FsContext::open(c"tmpfs")?;
    context.set(c"size", c"64k")?;
    let tmpfs = context.mount(NOSUID | NODEV)?;
    mount::attach_over_root(&tmpfs)?;
    Ok(tmpfs)
}

const ROOT_STEPS: [&str; 7] = [
    "a tmpfs by fsopen, fsmount, move_mount",
    "mkdir",
    "open_tree",
    "mount_setattr",
    "move_mount",
    "writing to a read-only mount was not refused",
    "pivot_root",
];

fn own_root() -> Tried {
    let root = scratch().at(0)?;
    mkdirat(&root, c"below", Mode::S_IRWXU).at(1)?;
    let tree = mount::clone_tree(root.as_fd(), c"below", false).at(2)?;
    mount::set_attributes(&tree, Attributes { set: RDONLY, ..Attributes::default() }).at(3)?;
    mount::attach(&tree, openat(&root, c"below", DIRECTORY, Mode::empty()).at(1)?).at(4)?;
    match mkdirat(&root, c"below/x", Mode::S_IRWXU) {
        Err(Errno::EROFS) => {}
        Ok(()) => return Err(Errno::EEXIST).at(5),
        Err(errno) => return Err(errno).at(5),
    }
    nix::unistd::fchdir(&root).at(6)?;
    mount::pivot_to_cwd().at(6)?;
    umount2(c".", MntFlags::MNT_DETACH).at(6)?;
    Ok(0)
}

const BIND_STEPS: [&str; 3] = ["open_tree of /usr", "mount_setattr, recursive", "move_mount"];

fn bind() -> Tried {
    let tree = mount::clone_tree(AT_FDCWD, c"/usr", true).at(0)?;
    let change = Attributes {
        set: RDONLY | NOSUID | NODEV,
        propagation: libc::MS_PRIVATE,
        recursive: true,
        ..Attributes::default()
    };
    mount::set_attributes(&tree, change).at(1)?;
    mount::attach_over_root(&tree).map(|()| 0).at(2)
}

/// The kernel refuses a procfs in a user namespace if parts of the caller's /proc are covered (`mount_too_revealing`).
fn proc(probe: &Probe) -> Finding {
    const WHOLE: u32 = 1;
    const PIDS_ONLY: u32 = 2;
    let tried = probe.attempt(libc::CLONE_NEWNS | libc::CLONE_NEWPID, || {
        let refused = match fresh(c"proc") {
            Ok(_) => return Ok(WHOLE),
            Err(refused) => refused,
        };
        let context = FsContext::open(c"proc").at(0)?;
        match context.set(c"subset", c"pid").and_then(|()| context.mount(NOSUID | NODEV | NOEXEC)) {
            Ok(_) => Ok(PIDS_ONLY),
            Err(_) => Err(refused),
        }
    });
    match tried {
        None => probe.untested(&PROC),
        Some(Ok(WHOLE)) => PROC.ok("mounted in a new pid namespace"),
        Some(Ok(_)) => PROC
            .missing("only a procfs of processes (subset=pid) can be mounted: parts of the caller's /proc are covered")
            .remedy(probe.blockers.unmasked()),
        Some(Err(failure)) if failure.errno() == Some(Errno::EPERM) => PROC
            .missing(format!(
                "{}: parts of the caller's /proc are covered, or it is missing",
                failure.describe(&["proc"])
            ))
            .remedy(probe.blockers.unmasked()),
        Some(Err(failure)) => probe.failed_finding(&PROC, &failure, &["proc"]),
    }
}

fn devpts() -> Tried {
    let context = FsContext::open(c"devpts").at(0)?;
    context.set(c"ptmxmode", c"0666").at(0)?;
    context.mount(NOSUID | NOEXEC).map(|_| 0).at(0)
}

fn overlay(probe: &Probe) -> Finding {
    const READ_ONLY: u32 = 1;
    const WRITABLE: u32 = 2;
    let tried = probe.attempt(libc::CLONE_NEWNS, || {
        let tmpfs = scratch().at(0)?;
        for name in [c"lower", c"upper", c"work"] {
            mkdirat(&tmpfs, name, Mode::S_IRWXU).at(0)?;
        }
        nix::unistd::fchdir(&tmpfs).at(0)?;
        let context = FsContext::open(c"overlay").at(1)?;
        context.set(c"lowerdir", c"lower:upper").at(1)?;
        context.mount(NOSUID | NODEV | RDONLY).at(1)?;
        let writable = || {
            let context = FsContext::open(c"overlay")?;
            context.set(c"lowerdir", c"lower")?;
            context.set(c"upperdir", c"upper")?;
            context.set(c"workdir", c"work")?;
            let overlay = context.mount(NOSUID | NODEV)?;
            mkdirat(&overlay, c"written", Mode::S_IRWXU)
        };
        Ok(if writable().is_ok() { WRITABLE } else { READ_ONLY })
    });
    match tried {
        None => probe.untested(&OVERLAY),
        Some(Ok(WRITABLE)) => OVERLAY.ok("mounted read-only and writable"),
        Some(Ok(_)) => OVERLAY.ok("mounted read-only, as runs use it; writable is refused"),
        Some(Err(failure)) => probe.failed_finding(&OVERLAY, &failure, &["tmpfs", "overlay"]),
    }
}

/// Clones a directory's mount and maps its owner's ids to those of a run, as root's runs do for writable binds.
fn idmapped(subject: &Subject, probe: &Probe, directory: &Path) -> Finding {
    if !probe.privileged {
        let finding = subject.unknown("not tested: runs of an unprivileged user write as that user and do not need it");
        return Finding { consequence: None, ..finding };
    }
    let Some(users) = &probe.users else { return probe.untested(subject) };
    let kind = file_system(directory);
    let namespace = match user::idmap_namespace((0, 0), users) {
        Ok(namespace) => namespace,
        Err(error) => return subject.missing(error.to_string()),
    };
    let tried = open(directory, DIRECTORY, Mode::empty())
        .and_then(|opened| mount::clone_tree(opened.as_fd(), c"", false))
        .and_then(|tree| {
            mount::set_attributes(tree, Attributes { idmap: Some(namespace.as_fd()), ..Attributes::default() })
        });
    match tried {
        Ok(()) => subject.ok(format!("works on {kind}")),
        Err(Errno::EINVAL) => subject
            .missing(format!("{kind} does not support it on this kernel"))
            .remedy("use a directory of ext4, xfs, btrfs or (Linux 6.3) tmpfs, or run as the owner of the files"),
        Err(errno) => subject.missing(format!("on {kind}: {}", words(errno))),
    }
}

/// The type of a directory's file system, by its mount, or else the kernel's number of the type.
fn file_system(directory: &Path) -> String {
    let number =
        || statfs(directory).map_or("this".into(), |found| format!("file system {:#x}", found.filesystem_type().0));
    let by_mount = || {
        let device = stat(directory).ok()?.st_dev;
        type_of(&std::fs::read(mountinfo::OWN).ok()?, &format!("{}:{}", major(device), minor(device)))
    };
    by_mount().unwrap_or_else(number)
}

/// The type of the file system on this device.
fn type_of(text: &[u8], device: &str) -> Option<String> {
    mountinfo::parse(text).find(|mount| mount.device == device).map(|mount| mount.kind.to_owned())
}

#[cfg(test)]
mod tests {
    use super::type_of;

    #[test]
    fn the_type_is_that_of_the_device() {
        let text = b"36 25 0:30 / /a rw shared:9 - tmpfs x rw\n37 25 8:1 / /b rw - ext4 /dev/sda1 rw\n";
        assert_eq!(type_of(text, "8:1").as_deref(), Some("ext4"));
        assert_eq!(type_of(text, "0:30").as_deref(), Some("tmpfs"));
        assert_eq!(type_of(text, "9:9"), None);
    }
}
