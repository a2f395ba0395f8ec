//! The fd-based mount API (`fsopen(2)`, `open_tree(2)`, `move_mount(2)`, `mount_setattr(2)`), `openat2(2)`, `pivot_root(2)`.

use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use super::{Result, ablate, check, check_fd};

/// `MOUNT_ATTR_RDONLY`.
pub const RDONLY: u64 = libc::MOUNT_ATTR_RDONLY;
/// `MOUNT_ATTR_NOSUID`.
pub const NOSUID: u64 = libc::MOUNT_ATTR_NOSUID;
/// `MOUNT_ATTR_NODEV`.
pub const NODEV: u64 = libc::MOUNT_ATTR_NODEV;
/// `MOUNT_ATTR_NOEXEC`.
pub const NOEXEC: u64 = libc::MOUNT_ATTR_NOEXEC;
/// `MOUNT_ATTR_IDMAP`.
pub const IDMAP: u64 = libc::MOUNT_ATTR_IDMAP;

/// `RESOLVE_IN_ROOT`: the descriptor is `/` for the whole lookup, also for absolute symlinks and `..`.
pub const IN_ROOT: u64 = libc::RESOLVE_IN_ROOT;
/// `RESOLVE_NO_MAGICLINKS`: `/proc/PID/fd/N` and its like are not followed.
pub const NO_MAGICLINKS: u64 = libc::RESOLVE_NO_MAGICLINKS;

/// `RESOLVE_NO_SYMLINKS`: no symlink is followed, in whatever component.
pub const NO_SYMLINKS: u64 = libc::RESOLVE_NO_SYMLINKS;
/// `RESOLVE_BENEATH`: the lookup stays below the descriptor.
pub const BENEATH: u64 = libc::RESOLVE_BENEATH;
/// `RESOLVE_NO_XDEV`: no mount point is crossed.
pub const NO_XDEV: u64 = libc::RESOLVE_NO_XDEV;

const MOVE_EMPTY_TO_EMPTY: libc::c_uint = 0x04 | 0x40; // MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH
const MOVE_EMPTY_TO_PATH: libc::c_uint = 0x04;
const FSCONFIG_SET_FLAG: libc::c_uint = 0;
const FSCONFIG_SET_STRING: libc::c_uint = 1;
const FSCONFIG_CMD_CREATE: libc::c_uint = 6;
const FSCONFIG_CMD_RECONFIGURE: libc::c_uint = 7;

/// A file system that is being configured, from `fsopen(2)`.
#[derive(Debug)]
pub struct FsContext(OwnedFd);

impl FsContext {
    /// Starts configuring a new file system of this type.
    pub fn open(fs_type: &CStr) -> Result<Self> {
        // SAFETY: the name is NUL-terminated and outlives the call.
        check_fd(unsafe { libc::syscall(libc::SYS_fsopen, fs_type.as_ptr(), libc::FSOPEN_CLOEXEC) }).map(Self)
    }

    /// Starts changing the options of the file system with this root, `fspick(2)`.
    pub fn pick(root: impl AsFd) -> Result<Self> {
        const FSPICK_CLOEXEC: libc::c_uint = 1;
        const FSPICK_EMPTY_PATH: libc::c_uint = 8;
        let flags = FSPICK_CLOEXEC | FSPICK_EMPTY_PATH;
        // SAFETY: an open descriptor and an empty NUL-terminated path.
        check_fd(unsafe { libc::syscall(libc::SYS_fspick, root.as_fd().as_raw_fd(), c"".as_ptr(), flags) }).map(Self)
    }

    /// Applies the changes to a file system from [`Self::pick`].
    pub fn reconfigure(self) -> Result<()> {
        self.config(FSCONFIG_CMD_RECONFIGURE, None, None)
    }

    /// Sets an option to a value.
    pub fn set(&self, key: &CStr, value: &CStr) -> Result<()> {
        self.config(FSCONFIG_SET_STRING, Some(key), Some(value))
    }

    /// Sets an option without a value.
    pub fn set_flag(&self, key: &CStr) -> Result<()> {
        self.config(FSCONFIG_SET_FLAG, Some(key), None)
    }

    /// Creates the file system and a detached mount of it with these attributes.
    pub fn mount(self, attributes: u64) -> Result<OwnedFd> {
        self.config(FSCONFIG_CMD_CREATE, None, None)?;
        let attributes = ablate::attributes(attributes) as libc::c_uint; // fsmount takes the low 32 bits; no higher ones exist
        // SAFETY: plain numbers.
        check_fd(unsafe { libc::syscall(libc::SYS_fsmount, self.0.as_raw_fd(), libc::FSMOUNT_CLOEXEC, attributes) })
    }

    fn config(&self, command: libc::c_uint, key: Option<&CStr>, value: Option<&CStr>) -> Result<()> {
        let key = key.map_or(std::ptr::null(), CStr::as_ptr);
        let value = value.map_or(std::ptr::null(), CStr::as_ptr);
        // SAFETY: both are null or NUL-terminated strings that outlive the call.
        check(unsafe { libc::syscall(libc::SYS_fsconfig, self.0.as_raw_fd(), command, key, value, 0) }).map(drop)
    }
}

/// A detached copy of the mount tree at `path` (or, if empty, at `dir`), with all mounts below it if `recursive`.
pub fn clone_tree(dir: BorrowedFd<'_>, path: &CStr, recursive: bool) -> Result<OwnedFd> {
    let how = if path.is_empty() { libc::AT_EMPTY_PATH } else { libc::AT_NO_AUTOMOUNT };
    let how = if recursive { how | libc::AT_RECURSIVE } else { how } as libc::c_uint;
    let flags = libc::OPEN_TREE_CLONE | libc::OPEN_TREE_CLOEXEC | how;
    // SAFETY: the path is NUL-terminated and outlives the call.
    check_fd(unsafe { libc::syscall(libc::SYS_open_tree, dir.as_raw_fd(), path.as_ptr(), flags) })
}

/// Attaches a detached mount at `target`.
pub fn attach(mount: impl AsFd, target: impl AsFd) -> Result<()> {
    // SAFETY: empty NUL-terminated paths and two open descriptors.
    check(unsafe {
        libc::syscall(
            libc::SYS_move_mount,
            mount.as_fd().as_raw_fd(),
            c"".as_ptr(),
            target.as_fd().as_raw_fd(),
            c"".as_ptr(),
            MOVE_EMPTY_TO_EMPTY,
        )
    })
    .map(drop)
}

/// Attaches a detached mount on top of this process's `/`.
pub fn attach_over_root(mount: impl AsFd) -> Result<()> {
    move_onto(mount, c"/")
}

/// Moves a mount, detached or of this namespace, with all mounts on it, onto a directory of this process's root.
pub fn move_onto(mount: impl AsFd, path: &CStr) -> Result<()> {
    // SAFETY: NUL-terminated paths that outlive the call, and an open descriptor.
    check(unsafe {
        libc::syscall(
            libc::SYS_move_mount,
            mount.as_fd().as_raw_fd(),
            c"".as_ptr(),
            libc::AT_FDCWD,
            path.as_ptr(),
            MOVE_EMPTY_TO_PATH,
        )
    })
    .map(drop)
}

/// The changes of [`set_attributes`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Attributes<'a> {
    /// Attributes to set.
    pub set: u64,
    /// Attributes to clear: only those that a container's configuration clears.
    pub clear: u64,
    /// Propagation between this mount and its origin (`MS_PRIVATE` etc.); 0 leaves it unchanged.
    pub propagation: u64,
    /// Whether all mounts below are changed too.
    pub recursive: bool,
    /// User namespace with the mapping of the mount ([`IDMAP`] is set with it).
    pub idmap: Option<BorrowedFd<'a>>,
}

/// Sets and clears attributes of a mount.
pub fn set_attributes(mount: impl AsFd, change: Attributes<'_>) -> Result<()> {
    let attr = libc::mount_attr {
        attr_set: ablate::attributes(change.set) | if change.idmap.is_some() { IDMAP } else { 0 },
        attr_clr: change.clear,
        propagation: change.propagation,
        userns_fd: change.idmap.map_or(0, |fd| fd.as_raw_fd() as u64),
    };
    let flags = libc::AT_EMPTY_PATH | if change.recursive { libc::AT_RECURSIVE } else { 0 };
    // SAFETY: `attr` is a plain structure of the given size and outlives the call; the path is empty.
    check(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_fd().as_raw_fd(),
            c"".as_ptr(),
            flags,
            &raw const attr,
            size_of::<libc::mount_attr>(),
        )
    })
    .map(drop)
}

/// The mount id of a descriptor, as in `proc_pid_mountinfo(5)`.
pub fn id_of(mount: impl AsFd) -> Result<u64> {
    FileOnMount::of(mount).map(|file| file.mount)
}

/// The identity of a file: the id of the mount through which it was reached, and its inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileOnMount {
    /// The mount id, as in `proc_pid_mountinfo(5)`.
    pub mount: u64,
    /// The inode on the mounted file system.
    pub inode: u64,
}

impl FileOnMount {
    /// The identity of an open file.
    pub fn of(fd: impl AsFd) -> Result<Self> {
        Self::at(fd.as_fd().as_raw_fd(), c"", libc::AT_EMPTY_PATH)
    }

    /// The identity of the file at a path. Links of `/proc` are followed.
    pub fn by_path(path: &CStr) -> Result<Self> {
        Self::at(libc::AT_FDCWD, path, 0)
    }

    fn at(dir: libc::c_int, path: &CStr, flags: libc::c_int) -> Result<Self> {
        // SAFETY: all-zero is a valid statx.
        let mut found: libc::statx = unsafe { std::mem::zeroed() };
        let wanted = libc::STATX_MNT_ID | libc::STATX_INO;
        // Not libc::statx: std declares it as a weak symbol, which link-time optimization drops from a static program, so that
        // it is null.
        // SAFETY: the path is NUL-terminated, and the result is written to a live local.
        check(unsafe { libc::syscall(libc::SYS_statx, dir, path.as_ptr(), flags, wanted, &raw mut found) })?;
        if found.stx_mask & wanted != wanted {
            return Err(nix::errno::Errno::ENOSYS);
        }
        Ok(Self { mount: found.stx_mnt_id, inode: found.stx_ino })
    }
}

/// Opens a path below `dir` with `openat2(2)`. Close-on-exec is always set.
///
/// A lookup that raced with a rename (`EAGAIN`) is repeated a limited number of times.
pub fn open_beneath(dir: impl AsFd, path: &CStr, flags: libc::c_int, resolve: u64) -> Result<OwnedFd> {
    open_or_create(dir, path, flags, 0, resolve)
}

/// As [`open_beneath`]. With `O_CREAT` a new file has this mode, without it there must be none.
pub fn open_or_create(dir: impl AsFd, path: &CStr, flags: libc::c_int, mode: u32, resolve: u64) -> Result<OwnedFd> {
    // SAFETY: all-zero is a valid open_how.
    let mut how: libc::open_how = unsafe { std::mem::zeroed() };
    how.flags = (flags | libc::O_CLOEXEC) as u64;
    how.mode = mode.into();
    how.resolve = resolve;
    let mut tries = 0;
    loop {
        // SAFETY: the path is NUL-terminated, `how` has the given size, and both outlive the call.
        let result = check_fd(unsafe {
            libc::syscall(
                libc::SYS_openat2,
                dir.as_fd().as_raw_fd(),
                path.as_ptr(),
                &raw const how,
                size_of::<libc::open_how>(),
            )
        });
        match result {
            Err(nix::errno::Errno::EAGAIN) if tries < 128 => tries += 1,
            result => return result,
        }
    }
}

/// `pivot_root(".", ".")`: the working directory, a mount point, becomes `/`, and the old root is stacked on top of it.
pub fn pivot_to_cwd() -> Result<()> {
    // SAFETY: constant NUL-terminated paths.
    check(unsafe { libc::syscall(libc::SYS_pivot_root, c".".as_ptr(), c".".as_ptr()) }).map(drop)
}

/// Whether a new procfs can show another pid namespace than the caller's: the option `pidns`, from Linux 6.17 on.
pub fn can_show_other_pids() -> bool {
    FsContext::open(c"proc").and_then(|context| context.set(c"pidns", c"/proc/self/ns/pid")).is_ok()
}

/// A detached mount of a new procfs, which no other process can reach. Writes through it cannot be redirected.
pub fn private_proc() -> Result<OwnedFd> {
    FsContext::open(c"proc")?.mount(NOSUID | NODEV | NOEXEC)
}
