//! Mount points in a root that other processes may change. Every component is resolved within the root, and missing entries are
//! created in the directory that was reached, by its descriptor and never by a path.

use std::collections::VecDeque;
use std::ffi::{CStr, CString, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat, readlinkat};
use nix::sys::stat::{Mode, SFlag, fstat, mkdirat, mknodat};

use super::mount_point::Shape;
use crate::sys::mount::{IN_ROOT, NO_MAGICLINKS, open_beneath};

/// The kernel's limit on symlinks.
const MOST_LINKS: usize = 40;
/// `PATH_MAX`, minus room for one component.
const LONGEST: usize = 4096 - 256;

type Result<T> = std::result::Result<T, Errno>;

/// Opens a path within the root (`O_PATH`), creating missing directories and, at its end, a `shape`.
///
/// A symlink without a target is followed, and the target is created, within the root.
pub fn create(root: BorrowedFd<'_>, path: &CStr, shape: Shape) -> Result<OwnedFd> {
    match open(root, path) {
        Err(Errno::ENOENT) => {}
        found => return found,
    }
    let (directories, name) = match path.to_bytes().iter().rposition(|byte| *byte == b'/') {
        Some(slash) => (&path.to_bytes()[..slash], &path.to_bytes()[slash + 1..]),
        None => (&b""[..], path.to_bytes()),
    };
    if matches!(name, b"" | b"." | b"..") {
        return Err(Errno::EINVAL);
    }
    let mut left: VecDeque<Vec<u8>> = components(directories).chain([name.to_vec()]).collect();
    // The path that was reached so far, and its descriptor; none is the root.
    let (mut reached, mut here) = (Vec::new(), None);
    let mut links = 0;
    while let Some(component) = left.pop_front() {
        let next = joined(&reached, &component)?;
        match open(root, &c_string(&next)?) {
            Ok(found) => {
                (reached, here) = (next, Some(found));
                continue;
            }
            Err(Errno::ENOENT) => {}
            Err(errno) => return Err(errno),
        }
        let parent = here.as_ref().map_or(root, AsFd::as_fd);
        let name = c_string(&component)?;
        if let Ok(target) = readlinkat(parent, name.as_c_str()) {
            links += 1;
            if links > MOST_LINKS {
                return Err(Errno::ELOOP);
            }
            if target.as_bytes().starts_with(b"/") {
                (reached, here) = (Vec::new(), None);
            }
            prepend(&mut left, &target);
            continue;
        }
        let made = match (left.is_empty(), shape) {
            (true, Shape::File) => mknodat(parent, name.as_c_str(), SFlag::S_IFREG, Mode::from_bits_truncate(0o644), 0),
            _ => mkdirat(parent, name.as_c_str(), Mode::from_bits_truncate(0o755)),
        };
        match made {
            // Resolved within the root again: another process may have created it.
            Ok(()) | Err(Errno::EEXIST) => here = Some(open(root, &c_string(&next)?)?),
            Err(errno) => return Err(errno),
        }
        reached = next;
    }
    here.map_or_else(|| open(root, c""), Ok)
}

/// As [`create`], for a mount point that must be a directory and not a symlink. An image with a symlink `/proc` is refused.
pub fn create_directory(root: BorrowedFd<'_>, path: &CStr) -> Result<OwnedFd> {
    let last = open_beneath(root, path, libc::O_PATH | libc::O_NOFOLLOW, IN_ROOT | NO_MAGICLINKS);
    match last.and_then(fstat) {
        Ok(stat) if stat.st_mode & libc::S_IFMT != libc::S_IFDIR => return Err(Errno::ENOTDIR),
        Ok(_) | Err(Errno::ENOENT) => {}
        Err(errno) => return Err(errno),
    }
    let made = create(root, path, Shape::Directory)?;
    // Opened again without following links: another process may have replaced it.
    let flags = libc::O_PATH | libc::O_NOFOLLOW | libc::O_DIRECTORY;
    let again = open_beneath(root, path, flags, IN_ROOT | NO_MAGICLINKS)?;
    let identity = |fd: &OwnedFd| fstat(fd).map(|stat| (stat.st_dev, stat.st_ino));
    if identity(&made)? == identity(&again)? { Ok(again) } else { Err(Errno::ESTALE) }
}

/// Whether a path leads to something within the root.
pub fn exists(root: BorrowedFd<'_>, path: &CStr) -> bool {
    open(root, path).is_ok()
}

/// The parent directory of a path, created if necessary, and the last component.
pub fn parent_of(root: BorrowedFd<'_>, path: &CStr) -> Result<(OwnedFd, CString)> {
    let bytes = path.to_bytes();
    let (directory, name) = match bytes.iter().rposition(|byte| *byte == b'/') {
        Some(slash) => (&bytes[..slash], &bytes[slash + 1..]),
        None => (&b""[..], bytes),
    };
    if matches!(name, b"" | b"." | b"..") {
        return Err(Errno::EINVAL);
    }
    let parent = if directory.is_empty() {
        root.try_clone_to_owned().map_err(|_| Errno::EMFILE)?
    } else {
        create(root, &c_string(directory)?, Shape::Directory)?
    };
    Ok((parent, c_string(name)?))
}

/// Opens a directory for creating entries in it.
pub fn directory(dir: impl AsFd) -> Result<OwnedFd> {
    openat(dir, c".", OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty())
}

fn open(root: BorrowedFd<'_>, path: &CStr) -> Result<OwnedFd> {
    let path = if path.is_empty() { c"." } else { path };
    open_beneath(root, path, libc::O_PATH, IN_ROOT | NO_MAGICLINKS)
}

fn components(path: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    path.split(|byte| *byte == b'/').filter(|part| !matches!(*part, b"" | b".")).map(<[u8]>::to_vec)
}

fn prepend(left: &mut VecDeque<Vec<u8>>, target: &OsString) {
    let parts: Vec<_> = components(target.as_bytes()).collect();
    for part in parts.into_iter().rev() {
        left.push_front(part);
    }
}

fn joined(reached: &[u8], component: &[u8]) -> Result<Vec<u8>> {
    let path = if reached.is_empty() { component.to_vec() } else { [reached, b"/", component].concat() };
    if path.len() > LONGEST { Err(Errno::ENAMETOOLONG) } else { Ok(path) }
}

fn c_string(bytes: &[u8]) -> Result<CString> {
    CString::new(bytes).map_err(|_| Errno::EINVAL)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::path::{Path, PathBuf};

    use super::*;

    struct Scene(PathBuf);

    impl Scene {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("stockade-within-{}-{name}", std::process::id()));
            std::fs::create_dir_all(path.join("root/etc")).unwrap();
            Self(path)
        }
        fn root(&self) -> OwnedFd {
            nix::fcntl::open(&self.0.join("root"), OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty()).unwrap()
        }
    }

    impl Drop for Scene {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn missing_entries_are_created_within_the_root() {
        let scene = Scene::new("links");
        let root = scene.0.join("root");
        symlink("../../../../../../run/resolv.conf", root.join("etc/resolv.conf")).unwrap();
        symlink(&scene.0, root.join("out")).unwrap();
        symlink("loop", root.join("loop")).unwrap();
        let fd = scene.root();
        create(fd.as_fd(), c"etc/resolv.conf", Shape::File).unwrap();
        assert!(root.join("run/resolv.conf").is_file());
        create(fd.as_fd(), c"out/made", Shape::Directory).unwrap();
        assert!(!scene.0.join("made").exists(), "not outside the root");
        assert!(root.join(scene.0.strip_prefix("/").unwrap()).join("made").is_dir());
        assert_eq!(create(fd.as_fd(), c"loop/x", Shape::Directory).unwrap_err(), Errno::ELOOP);
        assert_eq!(create(fd.as_fd(), c"a/..", Shape::Directory).unwrap_err(), Errno::EINVAL);
    }

    #[test]
    fn a_directory_that_is_a_symlink_is_refused() {
        let scene = Scene::new("proc");
        let root = scene.0.join("root");
        symlink("etc", root.join("proc")).unwrap();
        let fd = scene.root();
        assert_eq!(create_directory(fd.as_fd(), c"proc").unwrap_err(), Errno::ENOTDIR);
        create_directory(fd.as_fd(), c"sys").unwrap();
        assert!(Path::new(&root.join("sys")).is_dir());
    }
}
