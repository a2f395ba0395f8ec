//! Where a report goes: a file that appears whole or not at all, or a descriptor of the caller's.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, FcntlArg, OFlag, fcntl, openat, renameat};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::stat::{Mode, SFlag, fstat, fstatat, stat};
use nix::unistd::{UnlinkatFlags, linkat, unlinkat};

use super::patience::write;
use crate::error::{Error, Result, Step, printable_json};
use crate::plan::Bytes;
use crate::report::Report;
use crate::sandbox::Blocked;
use crate::sys::inherited;
use crate::sys::process::borrow_standard;
use crate::sys::walk::{self, Trail};

/// A place that is known to be writable before the run starts.
#[derive(Debug)]
pub struct ReportFile {
    shown: String,
    /// Whether the report is one line, after others.
    lines: bool,
    target: Target,
    trail: Trail,
}

#[derive(Debug)]
enum Target {
    /// Written as it comes.
    Descriptor(OwnedFd),
    /// A nameless file, which gets its name when it is complete; nothing is left behind if we are killed.
    Nameless { file: OwnedFd, place: Place },
    /// Where the file system has no nameless files: a temporary name for as long as the writing takes.
    Named { place: Place },
}

/// A name in a directory that was opened before the run.
#[derive(Debug)]
struct Place {
    directory: OwnedFd,
    /// Where that directory was then.
    parent: PathBuf,
    name: OsString,
}

impl ReportFile {
    /// Makes sure that a report can be written to `FILE` or `fd:N`. Nothing is visible yet.
    pub fn open(target: &OsStr) -> Result<Self> {
        let shown = Bytes::from(target).to_string();
        let target = match named(target) {
            Named::Descriptor(number) => descriptor(number),
            Named::Dash => {
                Err(reason("standard output is the workload's").hint("fd:3, or ./- for a file of that name"))
            }
            Named::File => file(target),
        };
        let refused = |error: Error| Error { step: Step::Report, object: shown.clone(), ..error };
        target.map_err(refused).map(|(target, trail)| Self { shown, lines: false, target, trail })
    }

    /// Where it lies; nowhere if that is a pipe, say.
    pub fn trail(&self) -> &Trail {
        &self.trail
    }

    /// Writes the report, with the patience that [`write`] has.
    pub fn write(self, report: &Report, held: Option<&Blocked>) -> Result<()> {
        let json = if self.lines { serde_json::to_string(report) } else { serde_json::to_string_pretty(report) };
        let json = json.map_err(|error| self.failed(error.to_string()))?;
        let json = (printable_json(&json) + "\n").into_bytes();
        let shown = self.shown;
        let forged = "what is found there now may be forged: put reports where the workload cannot write";
        put(self.target, &json, held).map_err(|errno| match errno {
            Errno::ESTALE => {
                Error::new(Step::Report, shown, "is in a directory that was moved away during the run").hint(forged)
            }
            Errno::EEXIST => {
                Error::new(Step::Report, shown, "something that is no file was put there during the run").hint(forged)
            }
            errno => Error::errno(Step::Report, shown, errno),
        })
    }

    /// A second descriptor for lines that come before the report, which is then a line too. A file cannot have them: it
    /// appears when it is complete.
    pub fn stream(&mut self) -> Result<Stream> {
        let Target::Descriptor(fd) = &self.target else {
            return Err(self.failed("is written when the run is over".to_owned()).hint("--report fd:N takes --stats"));
        };
        self.lines = true;
        let fd = fd.try_clone().map_err(|error| self.failed(error.to_string()))?;
        Ok(Stream { fd })
    }

    /// Whether it goes to a file that is also a stream of the workload's, which could then write over it.
    pub fn is_in_a_stream(&self) -> bool {
        let Target::Descriptor(fd) = &self.target else { return false };
        let identity = |fd: BorrowedFd<'_>| fstat(fd).map(|stat| (stat.st_dev, stat.st_ino));
        let own = identity(fd.as_fd());
        own.is_ok() && [1, 2].into_iter().any(|number| identity(borrow_standard(number)) == own)
    }

    fn failed(&self, reason: String) -> Error {
        Error::new(Step::Report, &self.shown, reason)
    }
}

/// Where lines go while a run lasts.
#[derive(Debug)]
pub struct Stream {
    fd: OwnedFd,
}

impl Stream {
    /// Writes one line if it can be had without waiting; a reader that lags behind misses some.
    pub fn line(&self, value: &impl serde::Serialize) {
        let mut ready = [PollFd::new(self.fd.as_fd(), PollFlags::POLLOUT)];
        let is_ready = poll(&mut ready, PollTimeout::ZERO).is_ok_and(|count| count == 1)
            && ready[0].revents().is_some_and(|events| events == PollFlags::POLLOUT);
        if let (true, Ok(mut json)) = (is_ready, serde_json::to_vec(value)) {
            json.push(b'\n'); // less than PIPE_BUF, so never in parts
            let _ = nix::unistd::write(&self.fd, &json);
        }
    }
}

fn reason(reason: &str) -> Error {
    Error::new(Step::Report, "", reason)
}

fn errno(errno: Errno) -> Error {
    Error::errno(Step::Report, "", errno)
}

/// What the words of `--report` name.
enum Named<'a> {
    File,
    Descriptor(&'a [u8]),
    Dash,
}

fn named(target: &OsStr) -> Named<'_> {
    match (target.as_bytes(), target.as_bytes().strip_prefix(b"fd:")) {
        (_, Some(number)) => Named::Descriptor(number),
        (b"-", _) => Named::Dash,
        _ => Named::File,
    }
}

/// Where a report of this name would lie, without looking for it; `None` if the name is not that of a file.
pub fn locate(target: &OsStr) -> Result<Option<Trail>> {
    let refused = |error: Error| Error { object: Bytes::from(target).to_string(), ..error };
    match named(target) {
        Named::File => place(target).map(|place| Some(Trail::of_place(&place))).map_err(refused),
        Named::Descriptor(_) | Named::Dash => Ok(None),
    }
}

fn descriptor(number: &[u8]) -> Result<(Target, Trail)> {
    let number = std::str::from_utf8(number).ok().and_then(|text| crate::policy::units::whole(text).ok());
    let number = number.and_then(|number| i32::try_from(number).ok()).ok_or_else(|| reason("fd: takes a number"))?;
    match number {
        0 => return Err(reason("standard input cannot be written")),
        1 => return Err(reason("standard output is the workload's").hint("`--report fd:3 3>FILE`")),
        _ => {}
    }
    let fd = inherited::duplicate(number).map_err(errno)?;
    let flags = OFlag::from_bits_truncate(fcntl(&fd, FcntlArg::F_GETFL).map_err(errno)?);
    if flags & OFlag::O_ACCMODE == OFlag::O_RDONLY || flags.contains(OFlag::O_PATH) {
        return Err(reason("it is not open for writing"));
    }
    let trail = Trail::of_file(fd.as_fd()).map_err(errno)?;
    Ok((Target::Descriptor(fd), trail))
}

fn place(target: &OsStr) -> Result<walk::Place> {
    let no_name = || reason("it does not name a file");
    if target.as_bytes().ends_with(b"/") {
        return Err(no_name());
    }
    walk::to_place(Path::new(target)).map_err(|failed| match failed {
        Errno::EINVAL => no_name(),
        Errno::EPERM => reason("a symlink on the way to it could have been put there by another")
            .hint("name the directory without symlinks"),
        failed => errno(failed),
    })
}

fn file(target: &OsStr) -> Result<(Target, Trail)> {
    let place = place(target)?;
    let trail = Trail::of_place(&place);
    let walk::Place { directory, name, way: _ } = place;
    replaceable(&directory, &name)?;
    let parent = Path::new(target).parent().filter(|parent| !parent.as_os_str().is_empty());
    let place = Place { directory, parent: parent.unwrap_or(Path::new(".")).to_owned(), name };
    let flags = OFlag::O_WRONLY | OFlag::O_TMPFILE | OFlag::O_CLOEXEC;
    match openat(&place.directory, ".", flags, Mode::from_bits_truncate(0o644)) {
        Ok(file) => Ok((Target::Nameless { file, place }, trail)),
        // No such thing on this file system, or on this kernel, which then sees a directory opened for writing.
        Err(Errno::EOPNOTSUPP | Errno::EISDIR | Errno::ENOENT) => {
            let (temporary, _) = temporary(&place.directory).map_err(errno)?;
            unlinkat(&place.directory, temporary.as_os_str(), UnlinkatFlags::NoRemoveDir).map_err(errno)?;
            Ok((Target::Named { place }, trail))
        }
        Err(error) => Err(errno(error)),
    }
}

/// Only a regular file is replaced: a link, a FIFO or a device is somebody's, and a rename would destroy it.
fn replaceable(directory: &OwnedFd, name: &OsStr) -> Result<()> {
    let stat = match fstatat(directory, name, AtFlags::AT_SYMLINK_NOFOLLOW) {
        Ok(stat) => stat,
        Err(Errno::ENOENT) => return Ok(()),
        Err(error) => return Err(errno(error)),
    };
    match SFlag::from_bits_truncate(stat.st_mode & SFlag::S_IFMT.bits()) {
        SFlag::S_IFREG => Ok(()),
        SFlag::S_IFDIR => Err(reason("it is a directory")),
        SFlag::S_IFLNK => Err(reason("it is a symlink, which is not followed")),
        SFlag::S_IFIFO => Err(reason("it is a FIFO").hint("open it in the shell: `--report fd:3 3>FIFO`")),
        _ => Err(reason("it is neither a regular file nor absent")),
    }
}

fn put(target: Target, json: &[u8], held: Option<&Blocked>) -> nix::Result<()> {
    let (Place { directory, parent, name }, temporary) = match target {
        Target::Descriptor(fd) => return write(fd, json, held),
        Target::Nameless { file, place } => {
            // A nameless file can be named but cannot replace: hence first a temporary name, then the rename.
            let own = format!("/proc/self/fd/{}", file.as_raw_fd());
            let temporary = temporary_name();
            write(file.try_clone().map_err(|_| Errno::EMFILE)?, json, None)?;
            linkat(AT_FDCWD, own.as_str(), &place.directory, temporary.as_os_str(), AtFlags::AT_SYMLINK_FOLLOW)?;
            (place, temporary)
        }
        Target::Named { place } => {
            let (temporary, file) = temporary(&place.directory)?;
            let written = write(file, json, None);
            if written.is_err() {
                let _ = unlinkat(&place.directory, temporary.as_os_str(), UnlinkatFlags::NoRemoveDir);
                return written;
            }
            (place, temporary)
        }
    };
    let renamed = match is_file_or_absent(&directory, &name) {
        true => renameat(&directory, temporary.as_os_str(), &directory, name.as_os_str()),
        false => Err(Errno::EEXIST),
    };
    if renamed.is_err() {
        let _ = unlinkat(&directory, temporary.as_os_str(), UnlinkatFlags::NoRemoveDir);
    }
    renamed?;
    // A workload that can write above it could have moved it, and put another in its place.
    let (opened, there) = (fstat(&directory)?, stat(&parent)?);
    if (opened.st_dev, opened.st_ino) == (there.st_dev, there.st_ino) { Ok(()) } else { Err(Errno::ESTALE) }
}

/// It may have been made something else while the run lasted.
fn is_file_or_absent(directory: &OwnedFd, name: &OsStr) -> bool {
    replaceable(directory, name).is_ok()
}

fn temporary_name() -> OsString {
    format!(".stockade-report.{}", super::intake::fresh_id()).into()
}

fn temporary(directory: &OwnedFd) -> nix::Result<(OsString, OwnedFd)> {
    let name = temporary_name();
    let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let file = openat(directory, name.as_os_str(), flags, Mode::from_bits_truncate(0o644))?;
    Ok((name, file))
}
