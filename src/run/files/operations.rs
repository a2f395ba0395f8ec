//! What the file server does with files. Every path is resolved here, in the sandbox. The links of `/proc` that lead to open
//! files and programs are not followed: this process's own program is a file of the host.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt as _;

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, FcntlArg, OFlag, fcntl, readlinkat};
use nix::sys::stat::{FileStat as Stat, Mode, SFlag, UtimensatFlags, fstat, fstatat, mkdirat, utimensat};
use nix::sys::time::TimeSpec;
use nix::unistd::{Whence, linkat, lseek, symlinkat};

use super::message::{Answer, Attributes, FileStat, Follow, MOST_ENTRIES, MOST_LISTED, Open, Parents, Request};
use super::removal;
use crate::sys::directory;
use crate::sys::file::{change_mode, rename};
use crate::sys::mount::{NO_MAGICLINKS, open_beneath, open_or_create};

/// Without waiting for the other end of a FIFO, the carrier of a terminal, or the holder of a lease.
const NEVER_WAIT: i32 = libc::O_NONBLOCK | libc::O_NOCTTY;
const PATH: i32 = libc::O_PATH;
const DIRECTORY: i32 = libc::O_DIRECTORY;

type Answered = Result<Answer, Errno>;

/// Answers a request. The descriptor is that of an opened file.
pub fn perform(request: &Request) -> (Answer, Option<OwnedFd>) {
    let answered = match request {
        Request::Open(how) => match open(how) {
            Ok((answer, file)) => return (answer, file),
            Err(errno) => Err(errno),
        },
        Request::Stat(path, follow) => stat(path, *follow),
        Request::List(path, from, most) => list(path, *from, (*most).min(MOST_ENTRIES)),
        Request::MakeDir(path, mode, parents) => make_dir(path, *mode, *parents),
        Request::Rename(path, to, replace) => {
            let (from, to) = (Place::of(path), Place::of(to));
            from.and_then(|from| {
                to.and_then(|to| rename(&from.directory, from.name, &to.directory, to.name, replace.0))
            })
            .map(|()| Answer::Done)
        }
        Request::Remove(path, below) => {
            Place::of(path).and_then(|place| removal::remove(&place.directory, place.name, *below))
        }
        Request::Symlink(path, target) => Place::of(path)
            .and_then(|place| symlinkat(target.as_c_str(), &place.directory, place.name))
            .map(|()| Answer::Done),
        Request::HardLink(path, to) => {
            let (from, to) = (Place::of(path), Place::of(to));
            from.and_then(|from| {
                to.and_then(|to| linkat(&from.directory, from.name, &to.directory, to.name, AtFlags::empty()))
            })
            .map(|()| Answer::Done)
        }
        Request::Set(path, attributes) => set(path, attributes),
    };
    (answered.unwrap_or_else(Answer::Failed), None)
}

/// A name in a directory.
struct Place<'a> {
    directory: OwnedFd,
    name: &'a CStr,
}

impl<'a> Place<'a> {
    /// The place of an absolute path, whose last name is not followed. The root, `.` and `..` have none.
    fn of(path: &'a CStr) -> Result<Self, Errno> {
        let bytes = path.to_bytes();
        let at = bytes.iter().rposition(|byte| *byte == b'/').ok_or(Errno::EINVAL)?;
        let name = &path[at + 1..];
        if matches!(name.to_bytes(), b"" | b"." | b"..") {
            return Err(Errno::EINVAL);
        }
        let parent = CString::new(&bytes[..at.max(1)]).map_err(|_| Errno::EINVAL)?;
        Ok(Self { directory: find(&parent, PATH | DIRECTORY)?, name })
    }
}

fn find(path: &CStr, flags: i32) -> Result<OwnedFd, Errno> {
    open_beneath(AT_FDCWD, path, flags, NO_MAGICLINKS)
}

fn open(how: &Open) -> Result<(Answer, Option<OwnedFd>), Errno> {
    let mode = if how.flags & libc::O_CREAT == 0 { 0 } else { how.mode };
    let attempt = || open_or_create(AT_FDCWD, &how.path, how.flags | NEVER_WAIT, mode, NO_MAGICLINKS);
    let opened = match attempt() {
        Err(Errno::ENOENT) if mode != 0 && how.parents.0 => make_parents(&how.path).and_then(|_| attempt()),
        opened => opened,
    };
    let file = match opened {
        // A FIFO without a reader, a socket, a device without a driver.
        Err(Errno::ENXIO) => {
            let found = fstat(find(&how.path, PATH)?)?;
            return Ok((Answer::WrongType(found.st_mode), None));
        }
        opened => opened?,
    };
    let found = fstat(&file)?;
    if kind(&found) != SFlag::S_IFREG {
        return Ok((Answer::WrongType(found.st_mode), None));
    }
    fcntl(&file, FcntlArg::F_SETFL(OFlag::from_bits_truncate(how.flags & libc::O_APPEND)))?;
    Ok((Answer::File(describe(&found, None)), Some(file)))
}

fn stat(path: &CStr, follow: Follow) -> Answered {
    let file = find(path, PATH | if follow.0 { 0 } else { libc::O_NOFOLLOW })?;
    let found = fstat(&file)?;
    let target = if kind(&found) == SFlag::S_IFLNK { target(&file, c"")? } else { None };
    Ok(Answer::File(describe(&found, target)))
}

fn list(path: &CStr, from: i64, most: usize) -> Answered {
    let opened = find(path, libc::O_RDONLY | DIRECTORY | NEVER_WAIT)?;
    if from != 0 {
        lseek(&opened, from, Whence::SeekSet)?;
    }
    let (mut entries, mut size, mut next) = (Vec::new(), 0, from);
    let mut buffer = [0; 32 << 10];
    loop {
        let length = directory::read(&opened, &mut buffer)?;
        if length == 0 {
            return Ok(Answer::Entries(entries, None));
        }
        for entry in directory::entries(&buffer[..length]) {
            if entries.len() == most || size >= MOST_LISTED {
                return Ok(Answer::Entries(entries, Some(next)));
            }
            next = entry.next;
            let found = match fstatat(&opened, entry.name, AtFlags::AT_SYMLINK_NOFOLLOW) {
                Err(Errno::ENOENT) => continue, // removed meanwhile
                found => found?,
            };
            let target =
                if kind(&found) == SFlag::S_IFLNK { target(&opened, entry.name).unwrap_or(None) } else { None };
            let found = describe(&found, target);
            size += found.packed(entry.name);
            entries.push((entry.name.to_owned(), found));
        }
    }
}

fn make_dir(path: &CStr, mode: u32, parents: Parents) -> Answered {
    let mode = Mode::from_bits_truncate(mode);
    let make = |place: Place<'_>| mkdirat(&place.directory, place.name, mode);
    match Place::of(path) {
        Err(Errno::ENOENT) if parents.0 => {
            make_parents(path)?;
            make(Place::of(path)?)?;
        }
        place => match make(place?) {
            Err(Errno::EEXIST) if parents.0 => drop(find(path, PATH | DIRECTORY)?), // `mkdir -p`
            made => made?,
        },
    }
    Ok(Answer::Done)
}

/// Makes the missing directories above a file, as the umask has them.
fn make_parents(path: &CStr) -> Result<(), Errno> {
    let mut at = find(c"/", PATH | DIRECTORY)?;
    let names: Vec<&[u8]> = path.to_bytes().split(|byte| *byte == b'/').filter(|name| !name.is_empty()).collect();
    for name in &names[..names.len().saturating_sub(1)] {
        let name = CString::new(*name).map_err(|_| Errno::EINVAL)?;
        match mkdirat(&at, name.as_c_str(), Mode::from_bits_truncate(0o755)) {
            Ok(()) | Err(Errno::EEXIST) => {}
            // A directory that exists may be on a file system that cannot be written to.
            Err(errno) => drop(open_beneath(&at, &name, PATH | DIRECTORY, NO_MAGICLINKS).map_err(|_| errno)?),
        }
        at = open_beneath(&at, &name, PATH | DIRECTORY, NO_MAGICLINKS)?;
    }
    Ok(())
}

/// The descriptor or the name is used once the link was not followed, so that nothing is changed but what has this name.
fn set(path: &CStr, attributes: &Attributes) -> Answered {
    let place = Place::of(path)?;
    if let Some(mode) = attributes.mode {
        let flags = libc::O_NOFOLLOW;
        let file = open_beneath(&place.directory, place.name, PATH | flags, NO_MAGICLINKS)?;
        let found = fstat(&file)?;
        if kind(&found) == SFlag::S_IFLNK {
            return Ok(Answer::WrongType(found.st_mode));
        }
        match change_mode(&file, mode) {
            // Before Linux 6.6 a file must be opened for this.
            Err(Errno::ENOSYS) => {
                let file = open_beneath(&place.directory, place.name, flags | NEVER_WAIT, NO_MAGICLINKS)?;
                nix::sys::stat::fchmod(&file, Mode::from_bits_truncate(mode))?;
            }
            changed => changed?,
        }
    }
    if attributes.modified_ns.is_some() || attributes.accessed_ns.is_some() {
        let [accessed, modified] = [attributes.accessed_ns, attributes.modified_ns].map(time);
        utimensat(&place.directory, place.name, &accessed, &modified, UtimensatFlags::NoFollowSymlink)?;
    }
    Ok(Answer::Done)
}

fn time(ns: Option<i64>) -> TimeSpec {
    ns.map_or(TimeSpec::UTIME_OMIT, |ns| TimeSpec::new(ns.div_euclid(1_000_000_000), ns.rem_euclid(1_000_000_000) as _))
}

fn kind(found: &Stat) -> SFlag {
    SFlag::from_bits_truncate(found.st_mode) & SFlag::S_IFMT
}

fn describe(found: &Stat, target: Option<CString>) -> FileStat {
    FileStat {
        mode: found.st_mode,
        size: found.st_size as u64,
        allocated: found.st_blocks as u64 * 512,
        modified_ns: found.st_mtime.saturating_mul(1_000_000_000).saturating_add(found.st_mtime_nsec),
        uid: found.st_uid,
        gid: found.st_gid,
        links: found.st_nlink as _,
        target,
    }
}

fn target(directory: impl AsFd, name: &CStr) -> Result<Option<CString>, Errno> {
    readlinkat(directory, name).map(|target| CString::new(target.into_vec()).ok())
}
