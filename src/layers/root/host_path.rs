//! Sources on the host: each path is resolved once, by descriptor, and nothing is followed that another user could have put there.
//!
//! A directory is *trusted* when root or the caller owns it and no other user can write it, and all directories above it are
//! trusted. In a trusted directory, links, `..` and mounts are followed. In a *shared* one (trusted but for being writable by
//! others, with the sticky bit, as `/tmp`) no link is followed; what is below an own subdirectory of it is trusted again,
//! because others cannot replace that. Below any other directory the rest of the path is opened with one `openat2(2)` that
//! follows no link, takes no `..` and crosses no mount. Links of the kernel's own (`/proc/self/fd/N`) are never followed.
//!
//! A directory that is bound writable is not trusted either. That is known when all sources are resolved: until then it is
//! noted where a path took a link, a `..` or a mount, and [`Resolver::check`] compares the directories on the way there, by
//! inode, with the writable ones.

use std::cell::OnceCell;
use std::collections::VecDeque;
use std::ffi::{CString, OsString};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, openat, readlinkat};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat};
use nix::sys::statfs::{FUSE_SUPER_MAGIC, PROC_SUPER_MAGIC, fstatfs};

use crate::error::{Error, Result, Step};
use crate::sys::file::attribute_length;
use crate::sys::mount::{self, BENEATH, NO_MAGICLINKS, NO_SYMLINKS, NO_XDEV};

/// As many symlinks as the kernel follows.
const MOST_LINKS: usize = 40;

/// How the rest of a path below an untrusted directory is opened.
const PLAIN: u64 = NO_SYMLINKS | NO_MAGICLINKS | BENEATH | NO_XDEV;

/// A file as the system tells it from others.
type Inode = (libc::dev_t, libc::ino_t);

/// Resolves the sources of one run.
#[derive(Debug)]
pub struct Resolver {
    /// Whether links are followed wherever they are.
    follow: bool,
    /// The caller's user ids.
    caller: [u32; 2],
    /// Whether the ids of other users cannot be told apart here.
    unmapped: OnceCell<bool>,
    ways: Vec<Way>,
    writable: Vec<(Inode, PathBuf)>,
}

/// Whether a path may end at a link.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Last {
    /// It ends where the link leads.
    Followed,
    /// It ends at the link.
    Itself,
}

/// A file that was found.
#[derive(Debug)]
pub struct Found {
    /// The file (`O_PATH`).
    pub file: OwnedFd,
    /// What it is.
    pub stat: FileStat,
    /// How to open it once more.
    pub again: Again,
}

/// How a process in another mount namespace opens the same file: by a path without links.
#[derive(Debug)]
pub struct Again {
    path: CString,
    resolve: u64,
    /// What of the path is below a directory that is not trusted.
    rest: Option<CString>,
}

/// Why a path leads nowhere.
#[derive(Debug)]
pub enum Fault {
    /// The kernel says so.
    Errno(Errno),
    /// It is not followed.
    Refused(Error),
}

/// The directories that a path led through, and where it took a link, a `..` or a mount.
#[derive(Debug)]
struct Way {
    source: PathBuf,
    destination: PathBuf,
    visited: Vec<Inode>,
    /// Each with the number of directories visited before.
    leaps: Vec<(usize, Leap)>,
}

#[derive(Clone, Debug)]
struct Leap {
    kind: Kind,
    at: PathBuf,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Link,
    Up,
    Mount,
}

/// Why a directory is not trusted.
#[derive(Clone, Copy, Debug)]
enum Why {
    Owner(u32),
    Group(u32),
    World,
    Served,
    MountedInShared,
    Workload,
}

#[derive(Clone, Copy, Debug)]
enum Ground {
    Trusted,
    Shared(Why),
    Foreign(Why),
}

/// One directory of a path, or its end.
struct Place {
    file: OwnedFd,
    stat: FileStat,
    name: Vec<u8>,
    mount: u64,
    ground: Ground,
}

impl From<Errno> for Fault {
    fn from(errno: Errno) -> Self {
        Self::Errno(errno)
    }
}

impl Fault {
    /// As the error of this step.
    pub fn error(self, step: Step, object: impl Into<String>) -> Error {
        match self {
            Self::Errno(errno) => Error::errno(step, object, errno),
            Self::Refused(error) => error,
        }
    }

    /// Whether there is nothing at that path.
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::Errno(Errno::ENOENT | Errno::ENOTDIR))
    }
}

impl Resolver {
    /// For the sources of one run of this process; `follow` is the word of the caller to follow links wherever they are.
    pub fn new(follow: bool) -> Self {
        let caller = [nix::unistd::geteuid().as_raw(), nix::unistd::getuid().as_raw()];
        Self { follow, caller, unmapped: OnceCell::new(), ways: Vec::new(), writable: Vec::new() }
    }

    /// Finds the file at an absolute path. `destination` is where it is to be inside.
    pub fn resolve(&mut self, path: &Path, destination: &Path, last: Last) -> std::result::Result<Found, Fault> {
        let text = CString::new(path.as_os_str().as_bytes()).map_err(|_| Errno::EINVAL)?;
        let no_follow = if last == Last::Itself { libc::O_NOFOLLOW } else { 0 };
        // No link, no `..`, no mount: nothing on the way can lead out of a directory that another user writes.
        let straight = match (self.follow, components(path.as_os_str().as_bytes()).any(|name| name == b"..")) {
            (true, _) => Some(NO_MAGICLINKS),
            (false, false) => Some(NO_SYMLINKS | NO_MAGICLINKS | NO_XDEV),
            (false, true) => None,
        };
        if let Some(resolve) = straight {
            match mount::open_beneath(AT_FDCWD, &text, libc::O_PATH | no_follow, resolve) {
                Ok(file) => return Found::new(file, Again { path: text, resolve, rest: None }),
                Err(Errno::ELOOP | Errno::EXDEV) if !self.follow => {}
                Err(Errno::ELOOP) => return Err(Fault::Refused(loops(path))),
                Err(errno) => return Err(errno.into()),
            }
        }
        let way = Way {
            source: path.to_owned(),
            destination: destination.to_owned(),
            visited: Vec::new(),
            leaps: Vec::new(),
        };
        Walk { resolver: self, places: Vec::new(), way, links: 0 }.run(path, last).map(|(found, way)| {
            if !way.leaps.is_empty() {
                self.ways.push(way);
            }
            found
        })
    }

    /// Notes that the workload can write this source and what is below it.
    pub fn is_writable(&mut self, source: &Path, stat: &FileStat) {
        self.writable.push(((stat.st_dev, stat.st_ino), source.to_owned()));
    }

    /// Refuses sources whose way took a link, a `..` or a mount below what the workload of this run can write. To be called when
    /// all are resolved.
    pub fn check(&self) -> Result<()> {
        for way in &self.ways {
            for (before, leap) in &way.leaps {
                let writable = |inode: &Inode| self.writable.iter().find(|(other, _)| inode == other);
                if let Some((_, directory)) = way.visited[..*before].iter().find_map(writable) {
                    return Err(way.refuse(leap, directory, Why::Workload));
                }
            }
        }
        Ok(())
    }

    fn is_trusted(&self, uid: u32) -> bool {
        uid == 0 || self.caller.contains(&uid) || (uid == OVERFLOW && *self.unmapped.get_or_init(overflow_is_unmapped))
    }

    /// Whether a directory is trusted, if all above it are.
    fn ground(&self, directory: BorrowedFd<'_>, stat: &FileStat) -> Ground {
        let why = if !self.is_trusted(stat.st_uid) {
            return Ground::Foreign(Why::Owner(stat.st_uid));
        } else if stat.st_mode & libc::S_IWOTH != 0 {
            Why::World
        } else if stat.st_mode & libc::S_IWGRP != 0 && !self.is_private(directory, stat) {
            Why::Group(stat.st_gid)
        } else {
            return Ground::Trusted;
        };
        if stat.st_mode & libc::S_ISVTX != 0 { Ground::Shared(why) } else { Ground::Foreign(why) }
    }

    /// Whether the group that may write is the caller's own, of the same number, as many systems give each user one. With an
    /// access control list these bits are its mask, and it can name anyone.
    fn is_private(&self, directory: BorrowedFd<'_>, stat: &FileStat) -> bool {
        let listed = || {
            let path = CString::new(format!("/proc/self/fd/{}", directory.as_raw_fd())).expect("digits hold no NUL");
            attribute_length(&path, c"system.posix_acl_access")
        };
        self.caller.contains(&stat.st_gid) && matches!(listed(), Err(Errno::ENODATA | Errno::EOPNOTSUPP))
    }
}

/// What `stat(2)` shows of a user that this user namespace does not know.
const OVERFLOW: u32 = 65_534;

/// Whether this user namespace lacks that id. Then all users that it does not know look the same, root of the host among them,
/// and count as root: nothing else could be trusted there.
fn overflow_is_unmapped() -> bool {
    let covers = |line: &str| {
        let numbers: Vec<u64> = line.split_ascii_whitespace().filter_map(|word| word.parse().ok()).collect();
        matches!(numbers[..], [first, _, count] if (first..first.saturating_add(count)).contains(&OVERFLOW.into()))
    };
    std::fs::read_to_string("/proc/self/uid_map").is_ok_and(|map| !map.lines().any(covers))
}

impl Found {
    fn new(file: OwnedFd, again: Again) -> std::result::Result<Self, Fault> {
        let stat = fstat(&file)?;
        Ok(Self { file, stat, again })
    }

    /// The target of what was found, if that is a link.
    pub fn link_target(&self) -> Option<std::result::Result<OsString, Errno>> {
        (kind(&self.stat) == SFlag::S_IFLNK).then(|| readlinkat(&self.file, c""))
    }

    /// Where it is, without links.
    pub fn path(&self) -> PathBuf {
        if self.again.resolve & NO_SYMLINKS == 0 {
            let link = format!("/proc/self/fd/{}", self.file.as_raw_fd());
            return std::fs::read_link(link).unwrap_or_default();
        }
        let mut path = PathBuf::new();
        for bytes in [Some(&self.again.path), self.again.rest.as_ref()].into_iter().flatten() {
            path.push(Path::new(std::ffi::OsStr::from_bytes(bytes.as_bytes())).components().as_path());
        }
        path
    }
}

impl Again {
    /// By this path, with all its links.
    pub fn following(path: CString) -> Self {
        Self { path, resolve: 0, rest: None }
    }

    /// Opens what is there now (`O_PATH`). The child's half too: it allocates nothing.
    pub fn open(&self) -> std::result::Result<OwnedFd, Errno> {
        let start = mount::open_beneath(AT_FDCWD, &self.path, libc::O_PATH, self.resolve)?;
        match &self.rest {
            None => Ok(start),
            Some(rest) => mount::open_beneath(start, rest, libc::O_PATH, PLAIN),
        }
    }
}

/// One path, component by component.
struct Walk<'a> {
    resolver: &'a Resolver,
    /// The root, and what was entered since: the path without links.
    places: Vec<Place>,
    way: Way,
    links: usize,
}

impl Walk<'_> {
    fn run(mut self, path: &Path, last: Last) -> std::result::Result<(Found, Way), Fault> {
        let path = path.as_os_str().as_bytes();
        let mut left: VecDeque<Vec<u8>> = components(path).map(<[u8]>::to_vec).collect();
        let mut directory = names_directory(path);
        self.enter(Vec::new(), mount::open_beneath(AT_FDCWD, c"/", libc::O_PATH | libc::O_DIRECTORY, 0)?)?;
        while let Some(name) = left.pop_front() {
            let here = self.places.last().expect("the root stays");
            if let Ground::Foreign(why) = here.ground {
                left.push_front(name);
                return self.rest(&left.make_contiguous().join(&b'/'), directory, last, why);
            }
            if name == b".." {
                self.leap(Kind::Up, &name);
                if self.places.len() > 1 {
                    self.places.pop();
                }
                continue;
            }
            let file = open_entry(here.file.as_fd(), &name, !left.is_empty())?;
            let found = kind(&fstat(&file)?);
            if found == SFlag::S_IFLNK && (last == Last::Followed || directory || !left.is_empty()) {
                let target = self.follow(&name, &file)?;
                directory |= left.is_empty() && names_directory(&target);
                if target.starts_with(b"/") {
                    self.places.truncate(1);
                }
                components(&target).map(<[u8]>::to_vec).rev().for_each(|name| left.push_front(name));
                continue;
            }
            self.enter(name, file)?;
            if found != SFlag::S_IFDIR && (directory || !left.is_empty()) {
                return Err(Errno::ENOTDIR.into());
            }
        }
        let path = self.path(&[])?;
        let end = self.places.pop().expect("the root stays");
        let again = Again { path, resolve: NO_SYMLINKS | NO_MAGICLINKS, rest: None };
        Ok((Found { file: end.file, stat: end.stat, again }, self.way))
    }

    /// Goes on to a directory, or to the end.
    fn enter(&mut self, name: Vec<u8>, file: OwnedFd) -> std::result::Result<(), Fault> {
        let stat = fstat(&file)?;
        let mount = mount::id_of(&file)?;
        let here = self.places.last();
        let crossed = here.is_some_and(|here| here.mount != mount);
        let ground = match here.map_or(Ground::Trusted, |here| here.ground) {
            Ground::Shared(_) if crossed => Ground::Foreign(Why::MountedInShared),
            // What a program serves can claim any owner.
            _ if crossed && fstatfs(&file)?.filesystem_type() == FUSE_SUPER_MAGIC => Ground::Foreign(Why::Served),
            _ => self.resolver.ground(file.as_fd(), &stat),
        };
        if crossed {
            self.leap(Kind::Mount, &name);
        }
        self.way.visited.push((stat.st_dev, stat.st_ino));
        self.places.push(Place { file, stat, name, mount, ground });
        Ok(())
    }

    /// The target of a link in a directory that is trusted.
    fn follow(&mut self, name: &[u8], link: &OwnedFd) -> std::result::Result<Vec<u8>, Fault> {
        let here = self.places.last().expect("the root stays");
        if let Ground::Shared(why) = here.ground {
            let leap = Leap { kind: Kind::Link, at: self.shown(&[name]) };
            return Err(Fault::Refused(self.way.refuse(&leap, &self.shown(&[]), why)));
        }
        if fstatfs(link)?.filesystem_type() == PROC_SUPER_MAGIC {
            let plain = mount::open_beneath(&here.file, &c_string(name)?, libc::O_PATH, NO_MAGICLINKS);
            if plain.is_err_and(|errno| errno == Errno::ELOOP) {
                return Err(Fault::Refused(loops(&self.way.source)));
            }
        }
        self.links += 1;
        if self.links > MOST_LINKS {
            return Err(Errno::ELOOP.into());
        }
        self.leap(Kind::Link, name);
        let target = readlinkat(link, c"")?.into_vec();
        if target.is_empty() { Err(Errno::ENOENT.into()) } else { Ok(target) }
    }

    /// The rest of a path below a directory that is not trusted.
    fn rest(
        self,
        rest: &[u8],
        directory: bool,
        last: Last,
        why: Why,
    ) -> std::result::Result<(Found, Way), Fault> {
        let here = self.places.last().expect("the root stays");
        let refuse = |kind, at: &[u8]| {
            let leap = Leap { kind, at: self.shown(&[at]) };
            Err(Fault::Refused(self.way.refuse(&leap, &self.shown(&[]), why)))
        };
        if components(rest).any(|name| name == b"..") {
            return refuse(Kind::Up, rest);
        }
        let no_follow = if last == Last::Itself && !directory { libc::O_NOFOLLOW } else { 0 };
        let text = c_string(&[rest, if directory { b"/" } else { b"" }].concat())?;
        match mount::open_beneath(&here.file, &text, libc::O_PATH | no_follow, PLAIN) {
            Ok(file) => {
                let again =
                    Again { path: self.path(&[])?, resolve: NO_SYMLINKS | NO_MAGICLINKS, rest: Some(text) };
                Ok((Found::new(file, again)?, self.way))
            }
            Err(Errno::ELOOP | Errno::EXDEV) => {
                let ends = rest.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
                for end in ends.chain([rest.len()]) {
                    let part = c_string(&rest[..end])?;
                    match mount::open_beneath(&here.file, &part, libc::O_PATH | libc::O_NOFOLLOW, PLAIN).map(fstat) {
                        Ok(Ok(stat)) if kind(&stat) == SFlag::S_IFLNK => return refuse(Kind::Link, &rest[..end]),
                        Err(Errno::EXDEV) => return refuse(Kind::Mount, &rest[..end]),
                        _ => {}
                    }
                }
                refuse(Kind::Link, rest) // it was replaced meanwhile
            }
            Err(errno) => Err(errno.into()),
        }
    }

    fn leap(&mut self, kind: Kind, name: &[u8]) {
        let leap = Leap { kind, at: self.shown(&[name]) };
        self.way.leaps.push((self.way.visited.len(), leap));
    }

    /// The path of where it is now, with `more` below.
    fn shown(&self, more: &[&[u8]]) -> PathBuf {
        let names = self.places.iter().map(|place| &place.name[..]).chain(more.iter().copied());
        let mut path = PathBuf::from("/");
        path.extend(names.map(|name| Path::new(std::ffi::OsStr::from_bytes(name))));
        path
    }

    fn path(&self, more: &[&[u8]]) -> std::result::Result<CString, Errno> {
        c_string(self.shown(more).as_os_str().as_bytes())
    }
}

impl Way {
    fn refuse(&self, leap: &Leap, directory: &Path, why: Why) -> Error {
        let what = match leap.kind {
            Kind::Link => "is a symlink",
            Kind::Up => "goes up by \"..\"",
            Kind::Mount => "is another mount",
        };
        let why = match why {
            Why::Owner(uid) => format!("belongs to user {uid}"),
            Why::Group(gid) => format!("can be written by group {gid}"),
            Why::World => "can be written by anyone".into(),
            Why::Served => "is on a file system that a program serves (FUSE)".into(),
            Why::MountedInShared => "is mounted in a directory that others can write".into(),
            Why::Workload => "can be written by the workload of this run".into(),
        };
        let object = format!("{} (for {})", self.source.display(), self.destination.display());
        let reason = format!("{} {what} below {}, which {why}", leap.at.display(), directory.display());
        Error::new(Step::Source, object, reason)
            .hint("give the path that it leads to, if that is what you mean, or --follow to follow what others can change")
    }
}

fn loops(path: &Path) -> Error {
    Error::new(Step::Source, path.display().to_string(), "leads through a loop of links, or a link of the kernel's own")
        .hint("give the path that it leads to: links such as /proc/self/fd/3 are never followed")
}

/// Opens an entry without following it. A directory on the way is mounted if it is to be on demand.
fn open_entry(directory: BorrowedFd<'_>, name: &[u8], on_the_way: bool) -> std::result::Result<OwnedFd, Errno> {
    let name = c_string(name)?;
    let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    if on_the_way {
        match openat(directory, name.as_c_str(), flags | OFlag::O_DIRECTORY, Mode::empty()) {
            Err(Errno::ENOTDIR) => {}
            opened => return opened,
        }
    }
    openat(directory, name.as_c_str(), flags, Mode::empty())
}

fn components(path: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> {
    path.split(|byte| *byte == b'/').filter(|name| !matches!(*name, b"" | b"."))
}

/// Whether what the path names must be a directory.
fn names_directory(path: &[u8]) -> bool {
    path.ends_with(b"/") || path.ends_with(b"/.")
}

fn kind(stat: &FileStat) -> SFlag {
    SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT
}

fn c_string(bytes: &[u8]) -> std::result::Result<CString, Errno> {
    CString::new(bytes).map_err(|_| Errno::EINVAL)
}
