//! Resolves paths on the host. A symlink is followed only if no user except root and the caller could have placed it.

use std::ffi::{CString, OsStr, OsString};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, openat, readlinkat};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat, fstatat};

use super::file::open;
use super::{Result, mount};

/// The kernel's limit on symlinks.
const MOST_LINKS: usize = 40;

/// More directories than a path can contain.
const MOST_DIRECTORIES: usize = 4096;

const DIRECTORY: OFlag = OFlag::O_PATH.union(OFlag::O_DIRECTORY).union(OFlag::O_CLOEXEC);

/// A name in a resolved directory.
#[derive(Debug)]
pub struct Place {
    /// The directory (`O_PATH`).
    pub directory: OwnedFd,
    /// The name, which need not exist.
    pub name: OsString,
    /// The directories of the links on the path.
    pub way: Vec<OwnedFd>,
}

/// Resolves a path except for its last name. `EPERM` for a link that another user could have placed.
pub fn to_place(path: &Path) -> Result<Place> {
    let (parent, name) = split(path)?;
    let directory = quickly(parent).map(|directory| Place { directory, name: name.to_owned(), way: Vec::new() });
    directory.map_or_else(|| slowly(path, false), Ok)
}

/// As [`to_place`], but follows the last name too if it is a link.
pub fn to_file(path: &Path) -> Result<Place> {
    let place = to_place(path)?;
    if is_link(&place.directory, &place.name) { slowly(path, true) } else { Ok(place) }
}

/// A path without links is resolved with one call.
fn quickly(path: &Path) -> Option<OwnedFd> {
    let path = CString::new(path.as_os_str().as_bytes()).ok()?;
    mount::open_beneath(AT_FDCWD, &path, libc::O_PATH | libc::O_DIRECTORY, mount::NO_SYMLINKS).ok()
}

fn slowly(path: &Path, through_last: bool) -> Result<Place> {
    let start = if path.is_absolute() { "/" } else { "." };
    let mut walker = Walker { at: open(start, DIRECTORY)?, way: Vec::new(), links: 0, sure: true };
    let mut path = path.to_owned();
    loop {
        let (parent, name) = split(&path)?;
        walker.follow(parent)?;
        if through_last && let Some(target) = walker.link(name)? {
            path = target;
            continue;
        }
        return Ok(Place { directory: walker.at, name: name.to_owned(), way: walker.way });
    }
}

/// Parent directory and last name. `EINVAL` if there is no last name.
fn split(path: &Path) -> Result<(&Path, &OsStr)> {
    let name = path.file_name().ok_or(Errno::EINVAL)?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    Ok((parent.unwrap_or(Path::new(".")), name))
}

fn is_link(directory: &OwnedFd, name: &OsStr) -> bool {
    fstatat(directory, name, AtFlags::AT_SYMLINK_NOFOLLOW).is_ok_and(|stat| kind(&stat) == SFlag::S_IFLNK)
}

fn kind(stat: &FileStat) -> SFlag {
    SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT
}

struct Walker {
    at: OwnedFd,
    way: Vec<OwnedFd>,
    links: usize,
    /// Whether no other user could have placed the links so far.
    sure: bool,
}

impl Walker {
    fn follow(&mut self, path: &Path) -> Result<()> {
        for component in path.components() {
            match component {
                Component::RootDir => self.at = open("/", DIRECTORY)?,
                Component::CurDir | Component::Prefix(_) => {}
                Component::ParentDir => self.at = openat(&self.at, "..", DIRECTORY, Mode::empty())?,
                Component::Normal(name) => self.enter(name)?,
            }
        }
        Ok(())
    }

    fn enter(&mut self, name: &OsStr) -> Result<()> {
        match self.link(name)? {
            Some(target) => self.follow(&target),
            None => {
                self.at = openat(&self.at, name, DIRECTORY | OFlag::O_NOFOLLOW, Mode::empty())?;
                Ok(())
            }
        }
    }

    /// The target of a link of this name, relative to its directory or the root. `None` if it is not a link.
    fn link(&mut self, name: &OsStr) -> Result<Option<PathBuf>> {
        let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let found = match openat(&self.at, name, flags, Mode::empty()) {
            Ok(found) => found,
            Err(Errno::ENOENT) => return Ok(None),
            Err(errno) => return Err(errno),
        };
        let stat = fstat(&found)?;
        self.sure &= only_ours(&fstat(&self.at)?, &stat);
        if kind(&stat) != SFlag::S_IFLNK {
            return Ok(None);
        }
        self.links += 1;
        if !self.sure {
            return Err(Errno::EPERM);
        }
        if self.links > MOST_LINKS {
            return Err(Errno::ELOOP);
        }
        self.way.push(openat(&self.at, ".", DIRECTORY, Mode::empty())?);
        readlinkat(&found, "").map(|target| Some(target.into()))
    }
}

/// Whether only root and the caller could have placed `entry` in a directory. In a sticky directory, only the entry's owner
/// could.
fn only_ours(directory: &FileStat, entry: &FileStat) -> bool {
    let caller = nix::unistd::geteuid().as_raw();
    let ours = |stat: &FileStat| stat.st_uid == 0 || stat.st_uid == caller;
    // Many systems create a group with the user's number for each user.
    let by_group = directory.st_mode & 0o020 != 0 && directory.st_gid != 0 && directory.st_gid != caller;
    let by_others = by_group || directory.st_mode & 0o002 != 0;
    ours(directory) && (!by_others || directory.st_mode & 0o1000 != 0 && ours(entry))
}

/// The locations of a file as far as the kernel shows them. They are compared with the trees that a sandbox sees.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trail {
    /// Device and inode of the file itself, if it exists, and of every directory above it.
    pub inodes: Vec<(u64, u64)>,
    /// Its path on the mount with this id, and the paths of the links on the way to it.
    pub paths: Vec<(u64, PathBuf)>,
    /// The device on which it may have further, unknown names.
    pub elsewhere: Option<u64>,
}

impl Trail {
    /// The trail of a resolved place.
    pub fn of_place(place: &Place) -> Self {
        let mut trail = Self::default();
        for link in &place.way {
            trail.add_directory(link.as_fd(), None);
        }
        trail.add_directory(place.directory.as_fd(), Some(&place.name));
        if let Ok(stat) = fstatat(&place.directory, place.name.as_os_str(), AtFlags::AT_SYMLINK_NOFOLLOW) {
            trail.inodes.push((stat.st_dev, stat.st_ino));
            trail.elsewhere = (kind(&stat) == SFlag::S_IFREG && stat.st_nlink > 1).then_some(stat.st_dev);
        }
        trail
    }

    /// The trail of an open file. Empty for a file without a name that a sandbox could reach.
    pub fn of_file(file: BorrowedFd<'_>) -> Result<Self> {
        let stat = fstat(file)?;
        let path = name_of(file);
        let named = matches!(kind(&stat), SFlag::S_IFREG | SFlag::S_IFIFO) && stat.st_nlink > 0;
        let Some(path) = path.filter(|path| named && path.as_os_str() != "" && !is_anonymous(path)) else {
            return Ok(Self::default());
        };
        let itself = (stat.st_dev, stat.st_ino);
        let place = to_place(&path).ok().filter(|place| {
            let found = fstatat(&place.directory, place.name.as_os_str(), AtFlags::AT_SYMLINK_NOFOLLOW);
            found.is_ok_and(|found| (found.st_dev, found.st_ino) == itself)
        });
        let mut trail = place.as_ref().map(Self::of_place).unwrap_or_default();
        trail.inodes.push(itself);
        if place.is_none() || stat.st_nlink > 1 {
            trail.elsewhere = Some(stat.st_dev);
        }
        Ok(trail)
    }

    fn add_directory(&mut self, directory: BorrowedFd<'_>, name: Option<&OsStr>) {
        if let (Ok(id), Some(path)) = (mount::id_of(directory), name_of(directory)) {
            self.paths.push((id, name.map_or(path.clone(), |name| path.join(name))));
        }
        // As far up as the directories are searchable. Above that, the path must suffice.
        let Ok(mut at) = directory.try_clone_to_owned() else { return };
        for _ in 0..MOST_DIRECTORIES {
            let Ok(here) = fstat(&at) else { return };
            self.inodes.push((here.st_dev, here.st_ino));
            let Ok(above) = openat(&at, "..", DIRECTORY, Mode::empty()) else { return };
            let same = fstat(&above).is_ok_and(|stat| (stat.st_dev, stat.st_ino) == (here.st_dev, here.st_ino));
            if same && mount::id_of(&above) == mount::id_of(&at) {
                return;
            }
            at = above;
        }
    }
}

/// The kernel's path of an open file.
pub fn name_of(fd: impl AsFd) -> Option<PathBuf> {
    readlinkat(AT_FDCWD, format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd()).as_str()).ok().map(PathBuf::from)
}

/// Names such as `pipe:[7]`.
fn is_anonymous(path: &Path) -> bool {
    let path = path.as_os_str().as_bytes();
    !path.starts_with(b"/") && !path.starts_with(b"(unreachable)")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    struct Scene(PathBuf);

    impl Scene {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("stockade-walk-{name}-{}", std::process::id()));
            let _ = std::fs::remove_dir_all(&path);
            std::fs::create_dir_all(path.join("a/b")).unwrap();
            Self(path)
        }
    }

    impl Drop for Scene {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn inode(directory: &OwnedFd) -> (u64, u64) {
        fstat(directory).map(|stat| (stat.st_dev, stat.st_ino)).unwrap()
    }

    #[test]
    fn a_link_is_followed_where_only_the_caller_could_have_put_it() {
        let scene = Scene::new("links");
        let b = inode(&to_place(&scene.0.join("a/b/x")).unwrap().directory);
        symlink("a/b", scene.0.join("relative")).unwrap();
        symlink(scene.0.join("relative"), scene.0.join("absolute")).unwrap();
        symlink("loop", scene.0.join("loop")).unwrap();
        symlink("../absolute/x", scene.0.join("a/file")).unwrap();
        for (path, links) in [("relative/x", 1), ("absolute/x", 2), ("a/../absolute/../b/x", 2)] {
            let place = to_place(&scene.0.join(path)).unwrap();
            assert_eq!((inode(&place.directory), place.way.len()), (b, links), "{path}");
        }
        let file = to_file(&scene.0.join("a/file")).unwrap();
        assert_eq!((inode(&file.directory), file.name.to_str()), (b, Some("x")));
        assert_eq!(to_place(&scene.0.join("a/file")).unwrap().name, "file");
        assert_eq!(to_place(&scene.0.join("loop/x")).unwrap_err(), Errno::ELOOP);
        assert_eq!(to_place(&scene.0.join("a/..")).unwrap_err(), Errno::EINVAL);
        assert_eq!(to_place(&scene.0.join("none/x")).unwrap_err(), Errno::ENOENT);
        // Another user can place a link where another user can write, and so redirect every path that leads through there.
        std::fs::set_permissions(&scene.0, PermissionsExt::from_mode(0o777)).unwrap();
        assert_eq!(to_place(&scene.0.join("relative/x")).unwrap_err(), Errno::EPERM);
        assert_eq!(to_file(&scene.0.join("a/file")).unwrap_err(), Errno::EPERM);
        assert_eq!(inode(&to_place(&scene.0.join("a/b/x")).unwrap().directory), b, "the path contains no link");
        std::fs::set_permissions(&scene.0, PermissionsExt::from_mode(0o1777)).unwrap();
        assert_eq!(
            inode(&to_place(&scene.0.join("relative/x")).unwrap().directory),
            b,
            "our link in a sticky directory"
        );
    }

    #[test]
    fn a_trail_leads_up_to_the_root() {
        let scene = Scene::new("trail");
        std::fs::write(scene.0.join("a/b/x"), "").unwrap();
        let place = to_place(&scene.0.join("a/b/x")).unwrap();
        let trail = Trail::of_place(&place);
        let root = inode(&open("/", DIRECTORY).unwrap());
        let b = inode(&place.directory);
        assert!(trail.inodes.contains(&root) && trail.inodes.contains(&b) && trail.elsewhere.is_none(), "{trail:?}");
        assert_eq!(trail.paths.len(), 1);
        let file = std::fs::File::open(scene.0.join("a/b/x")).unwrap();
        let of_file = Trail::of_file(file.as_fd()).unwrap();
        assert!(trail.inodes.iter().all(|inode| of_file.inodes.contains(inode)) && of_file.paths == trail.paths);
        std::fs::hard_link(scene.0.join("a/b/x"), scene.0.join("a/y")).unwrap();
        assert_eq!(Trail::of_place(&place).elsewhere, Some(b.0));
        std::fs::remove_file(scene.0.join("a/b/x")).unwrap();
        std::fs::remove_file(scene.0.join("a/y")).unwrap();
        assert_eq!(Trail::of_file(file.as_fd()).unwrap(), Trail::default(), "the file was unlinked");
        let (pipe, _) = nix::unistd::pipe().unwrap();
        assert_eq!(Trail::of_file(pipe.as_fd()).unwrap(), Trail::default());
    }
}
