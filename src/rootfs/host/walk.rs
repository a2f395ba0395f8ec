//! Resolves a path component by component: each is opened through its directory's descriptor, and links are read by descriptor.

use std::collections::VecDeque;
use std::ffi::CString;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, openat, readlinkat};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat};
use nix::sys::statfs::{FUSE_SUPER_MAGIC, PROC_SUPER_MAGIC, fstatfs};

use super::alias::Location;
use super::trust::{DirectoryTrust, Trust, Why};
use super::way::{Kind, Redirection, Way, loops};
use super::{Again, Fault, Found, Last, PLAIN, c_string, components, kind};
use crate::sys::mount::{self, NO_MAGICLINKS, NO_SYMLINKS};

type Result<T, E = Fault> = std::result::Result<T, E>;

/// The kernel's limit on symlinks.
const MOST_LINKS: usize = 40;

/// One component of a path.
struct Component {
    file: OwnedFd,
    stat: FileStat,
    name: Vec<u8>,
    mount: u64,
    trust: DirectoryTrust,
}

/// The resolution of one path.
pub struct Walk<'a> {
    trust: &'a Trust,
    /// The root and the entered components: the path so far, without links.
    entered: Vec<Component>,
    way: Way,
    links: usize,
}

impl<'a> Walk<'a> {
    /// Starts at this path, which will be at `destination` in the sandbox.
    pub fn new(trust: &'a Trust, path: &Path, destination: &Path) -> Self {
        let (source, destination) = (path.to_owned(), destination.to_owned());
        let way = Way { source, destination, visited: Vec::new(), redirections: Vec::new() };
        Self { trust, entered: Vec::new(), way, links: 0 }
    }

    /// Resolves the path.
    pub fn run(mut self, last: Last) -> Result<(Found, Way)> {
        let path = self.way.source.as_os_str().as_bytes();
        let mut left: VecDeque<Vec<u8>> = components(path).map(<[u8]>::to_vec).collect();
        let mut directory = names_directory(path);
        self.enter(Vec::new(), mount::open_beneath(AT_FDCWD, c"/", libc::O_PATH | libc::O_DIRECTORY, 0)?)?;
        while let Some(name) = left.pop_front() {
            let here = self.entered.last().expect("the root stays");
            if let DirectoryTrust::Foreign(why) = here.trust {
                left.push_front(name);
                return self.rest(&left.make_contiguous().join(&b'/'), directory, last, why);
            }
            if name == b".." {
                self.note_redirection(Kind::Up, &name);
                if self.entered.len() > 1 {
                    self.entered.pop();
                }
                continue;
            }
            let file = open_entry(here.file.as_fd(), &name, !left.is_empty())?;
            let found = kind(&fstat(&file)?);
            if found == SFlag::S_IFLNK && (last == Last::Followed || directory || !left.is_empty()) {
                let target = self.follow(&name, &file)?;
                directory |= left.is_empty() && names_directory(&target);
                if target.starts_with(b"/") {
                    self.entered.truncate(1);
                }
                components(&target).map(<[u8]>::to_vec).rev().for_each(|name| left.push_front(name));
                continue;
            }
            self.enter(name, file)?;
            if found != SFlag::S_IFDIR && (directory || !left.is_empty()) {
                return Err(Errno::ENOTDIR.into());
            }
        }
        let path = self.path()?;
        let end = self.entered.pop().expect("the root stays");
        let again = Again { path, resolve: NO_SYMLINKS | NO_MAGICLINKS, rest: None };
        Ok((Found { file: end.file, stat: end.stat, again }, self.way))
    }

    /// Enters a component.
    fn enter(&mut self, name: Vec<u8>, file: OwnedFd) -> Result<()> {
        let stat = fstat(&file)?;
        let mount = mount::id_of(&file)?;
        let here = self.entered.last();
        let crossed = here.is_some_and(|here| here.mount != mount);
        let trust = match here.map_or(DirectoryTrust::Trusted, |here| here.trust) {
            DirectoryTrust::Shared(_) if crossed => DirectoryTrust::Foreign(Why::MountedInShared),
            // A FUSE server can claim any owner.
            _ if crossed && fstatfs(&file)?.filesystem_type() == FUSE_SUPER_MAGIC => {
                DirectoryTrust::Foreign(Why::Served)
            }
            _ => self.trust.classify(file.as_fd(), &stat),
        };
        if crossed {
            self.note_redirection(Kind::Mount, &name);
        }
        let path = self.shown(&[&name]);
        self.way.visited.push(Location { path, device: stat.st_dev, inode: stat.st_ino, mount });
        self.entered.push(Component { file, stat, name, mount, trust });
        Ok(())
    }

    /// The target of a link in a trusted directory.
    fn follow(&mut self, name: &[u8], link: &OwnedFd) -> Result<Vec<u8>> {
        let here = self.entered.last().expect("the root stays");
        if let DirectoryTrust::Shared(why) = here.trust {
            let redirection = Redirection { kind: Kind::Link, at: self.shown(&[name]) };
            return Err(Fault::Refused(self.way.refuse(&redirection, &self.shown(&[]), why)));
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
        self.note_redirection(Kind::Link, name);
        let target = readlinkat(link, c"")?.into_vec();
        if target.is_empty() { Err(Errno::ENOENT.into()) } else { Ok(target) }
    }

    /// Resolves the rest of a path below an untrusted directory.
    fn rest(self, rest: &[u8], directory: bool, last: Last, why: Why) -> Result<(Found, Way)> {
        let here = self.entered.last().expect("the root stays");
        let refuse = |kind, at: &[u8]| {
            let redirection = Redirection { kind, at: self.shown(&[at]) };
            Err(Fault::Refused(self.way.refuse(&redirection, &self.shown(&[]), why)))
        };
        if components(rest).any(|name| name == b"..") {
            return refuse(Kind::Up, rest);
        }
        let no_follow = if last == Last::Itself && !directory { libc::O_NOFOLLOW } else { 0 };
        let text = c_string(&[rest, if directory { b"/" } else { b"" }].concat())?;
        match mount::open_beneath(&here.file, &text, libc::O_PATH | no_follow, PLAIN) {
            Ok(file) => {
                let again = Again { path: self.path()?, resolve: NO_SYMLINKS | NO_MAGICLINKS, rest: Some(text) };
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
                refuse(Kind::Link, rest) // the entry was replaced meanwhile
            }
            Err(errno) => Err(errno.into()),
        }
    }

    fn note_redirection(&mut self, kind: Kind, name: &[u8]) {
        let redirection = Redirection { kind, at: self.shown(&[name]) };
        self.way.redirections.push((self.way.visited.len(), redirection));
    }

    /// The path so far, followed by `more`.
    fn shown(&self, more: &[&[u8]]) -> PathBuf {
        let names = self.entered.iter().map(|place| &place.name[..]).chain(more.iter().copied());
        let mut path = PathBuf::from("/");
        path.extend(names.map(|name| Path::new(std::ffi::OsStr::from_bytes(name))));
        path
    }

    fn path(&self) -> Result<CString, Errno> {
        c_string(self.shown(&[]).as_os_str().as_bytes())
    }
}

/// Opens an entry without following it. If it is not the last component, O_DIRECTORY triggers an automount.
fn open_entry(directory: BorrowedFd<'_>, name: &[u8], on_the_way: bool) -> Result<OwnedFd, Errno> {
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

/// Whether the path can only name a directory.
fn names_directory(path: &[u8]) -> bool {
    path.ends_with(b"/") || path.ends_with(b"/.")
}
