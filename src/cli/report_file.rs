//! The destination of a report: a file that appears complete or not at all, or a descriptor of the caller.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, FcntlArg, OFlag, fcntl, openat, renameat};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::stat::{Mode, SFlag, fstat, fstatat, stat};
use nix::unistd::{UnlinkatFlags, linkat, unlinkat};

use super::final_write::write;
use crate::error::{Error, Result, Step, errno_of, printable_json};
use crate::launch::signals::Blocked;
use crate::plan::Bytes;
use crate::report::Report;
use crate::sys::inherited;
use crate::sys::process::borrow_standard;
use crate::sys::walk::{self, Trail};

/// A destination that was found writable before the run starts.
#[derive(Debug)]
pub struct ReportFile {
    shown: String,
    /// Whether the report is a single line that follows the lines of `--stats`.
    lines: bool,
    target: Target,
    trail: Trail,
}

#[derive(Debug)]
enum Target {
    /// Written directly.
    Descriptor(OwnedFd),
    /// An O_TMPFILE file, linked when it is complete. If this process is killed, nothing is left behind.
    Nameless { file: OwnedFd, place: Place },
    /// For file systems without O_TMPFILE: a temporary name while the report is written.
    Named { place: Place },
}

/// A name in a directory that was opened before the run.
#[derive(Debug)]
struct Place {
    directory: OwnedFd,
    /// The path of that directory when it was opened.
    parent: PathBuf,
    name: OsString,
}

impl ReportFile {
    /// Makes sure that a report can be written to `FILE` or `fd:N`. Creates no visible file.
    pub fn open(target: &OsStr) -> Result<Self> {
        let shown = Bytes::from(target).to_string();
        let target = match named(target) {
            Named::Descriptor(number) => descriptor(number),
            Named::Dash => {
                Err(reason("standard output belongs to the workload").hint("use fd:3, or ./- for a file of that name"))
            }
            Named::File => file(target),
        };
        let refused = |error: Error| Error { step: Step::Report, object: shown.clone(), ..error };
        target.map_err(refused).map(|(target, trail)| Self { shown, lines: false, target, trail })
    }

    /// Its location; empty if it has none, such as a pipe.
    pub fn trail(&self) -> &Trail {
        &self.trail
    }

    /// Writes the report. Blocked signals are delivered if the reader stalls, see [`write`].
    pub fn write(self, report: &Report, held: Option<&Blocked>) -> Result<()> {
        let json = if self.lines { serde_json::to_string(report) } else { serde_json::to_string_pretty(report) };
        let json = json.map_err(|error| self.failed(error.to_string()))?;
        self.put((printable_json(&json) + "\n").as_bytes(), held)
    }

    /// Writes this text instead.
    pub fn put(self, text: &[u8], held: Option<&Blocked>) -> Result<()> {
        let shown = self.shown;
        let forged = "a file at this path may be forged: put reports where the workload cannot write";
        put(self.target, text, held).map_err(|errno| match errno {
            Errno::ESTALE => Error::new(Step::Report, shown, "its directory was moved during the run").hint(forged),
            Errno::EEXIST => {
                Error::new(Step::Report, shown, "was replaced during the run, and is not a regular file").hint(forged)
            }
            errno => Error::errno(Step::Report, shown, errno),
        })
    }

    /// A second descriptor for the lines of `--stats`, which come before the report. The report is then one line too. A
    /// file cannot be a stream, because it appears only when it is complete.
    pub fn stream(&mut self) -> Result<Stream> {
        let Target::Descriptor(fd) = &self.target else {
            return Err(self
                .failed("is written only when the run is over".to_owned())
                .hint("use --report fd:N with --stats"));
        };
        self.lines = true;
        let fd = fd.try_clone().map_err(|error| self.failed(error.to_string()))?;
        Ok(Stream { fd })
    }

    /// Whether the report goes to a file that is also the workload's standard output or error. The workload could then
    /// overwrite it.
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

/// The destination of the lines that are written during a run.
#[derive(Debug)]
pub struct Stream {
    fd: OwnedFd,
}

impl Stream {
    /// Writes one line if that does not block. A slow reader misses lines.
    pub fn line(&self, value: &impl serde::Serialize) {
        let mut ready = [PollFd::new(self.fd.as_fd(), PollFlags::POLLOUT)];
        let is_ready = poll(&mut ready, PollTimeout::ZERO).is_ok_and(|count| count == 1)
            && ready[0].revents().is_some_and(|events| events == PollFlags::POLLOUT);
        if let (true, Ok(mut json)) = (is_ready, serde_json::to_vec(value)) {
            json.push(b'\n'); // less than PIPE_BUF, so the write is atomic
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

/// The kinds of destination that `--report` can name.
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

/// The location that a report of this name would have. The file is not opened. `None` if the name does not name a file.
pub fn locate(target: &OsStr) -> Result<Option<Trail>> {
    let refused = |error: Error| Error { object: Bytes::from(target).to_string(), ..error };
    match named(target) {
        Named::File => place(target).map(|place| Some(Trail::of_place(&place))).map_err(refused),
        Named::Descriptor(_) | Named::Dash => Ok(None),
    }
}

fn descriptor(number: &[u8]) -> Result<(Target, Trail)> {
    inherited_descriptor(number).map(|(fd, trail)| (Target::Descriptor(fd), trail))
}

/// A duplicate of a descriptor of the caller that is open for writing, and its location.
pub fn inherited_descriptor(number: &[u8]) -> Result<(OwnedFd, Trail)> {
    let number = std::str::from_utf8(number).ok().and_then(|text| crate::policy::units::whole(text).ok());
    let number = number.and_then(|number| i32::try_from(number).ok()).ok_or_else(|| reason("fd: takes a number"))?;
    match number {
        0 => return Err(reason("standard input cannot be written")),
        1 => return Err(reason("standard output belongs to the workload").hint("use `--report fd:3 3>FILE`")),
        _ => {}
    }
    let fd = inherited::duplicate(number).map_err(errno)?;
    let flags = OFlag::from_bits_truncate(fcntl(&fd, FcntlArg::F_GETFL).map_err(errno)?);
    if flags & OFlag::O_ACCMODE == OFlag::O_RDONLY || flags.contains(OFlag::O_PATH) {
        return Err(reason("it is not open for writing"));
    }
    let trail = Trail::of_file(fd.as_fd()).map_err(errno)?;
    Ok((fd, trail))
}

/// The place that a name names, without following links that others could have made.
pub fn place(target: &OsStr) -> Result<walk::Place> {
    let no_name = || reason("it does not name a file");
    if target.as_bytes().ends_with(b"/") {
        return Err(no_name());
    }
    walk::to_place(Path::new(target)).map_err(|failed| match failed {
        Errno::EINVAL => no_name(),
        Errno::EPERM => {
            reason("another user could have made a symlink in its path").hint("name the directory without symlinks")
        }
        failed => errno(failed),
    })
}

fn file(target: &OsStr) -> Result<(Target, Trail)> {
    let place = place(target)?;
    let trail = Trail::of_place(&place);
    let walk::Place { directory, name, way: _ } = place;
    replaceable(&directory, &name)?;
    let parent = Path::new(target).parent().filter(|parent| !parent.as_os_str().is_empty());
    // Absolute, because the supervisor of a session leaves this directory.
    let parent = std::path::absolute(parent.unwrap_or(Path::new("."))).map_err(|error| errno(errno_of(&error)))?;
    let place = Place { directory, parent, name };
    let flags = OFlag::O_WRONLY | OFlag::O_TMPFILE | OFlag::O_CLOEXEC;
    match openat(&place.directory, ".", flags, Mode::from_bits_truncate(0o644)) {
        Ok(file) => Ok((Target::Nameless { file, place }, trail)),
        // O_TMPFILE is not supported. A kernel without it sees a directory that is opened for writing.
        Err(Errno::EOPNOTSUPP | Errno::EISDIR | Errno::ENOENT) => {
            let (temporary, _) = temporary(&place.directory).map_err(errno)?;
            unlinkat(&place.directory, temporary.as_os_str(), UnlinkatFlags::NoRemoveDir).map_err(errno)?;
            Ok((Target::Named { place }, trail))
        }
        Err(error) => Err(errno(error)),
    }
}

/// Only a regular file is replaced. A rename would destroy a symlink, a FIFO or a device that another program uses.
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
        _ => Err(reason("it exists and is not a regular file")),
    }
}

fn put(target: Target, json: &[u8], held: Option<&Blocked>) -> nix::Result<()> {
    let (Place { directory, parent, name }, temporary) = match target {
        Target::Descriptor(fd) => return write(fd, json, held),
        Target::Nameless { file, place } => {
            // linkat cannot replace a file, so the file first gets a temporary name and is then renamed.
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
    // A workload that can write to a parent directory could have moved this one and put another in its place.
    let (opened, there) = (fstat(&directory)?, stat(&parent)?);
    if (opened.st_dev, opened.st_ino) == (there.st_dev, there.st_ino) { Ok(()) } else { Err(Errno::ESTALE) }
}

/// Checked again at the end: the workload may have replaced the file during the run.
fn is_file_or_absent(directory: &OwnedFd, name: &OsStr) -> bool {
    replaceable(directory, name).is_ok()
}

fn temporary_name() -> OsString {
    format!(".stockade-report.{}", super::id::fresh()).into()
}

fn temporary(directory: &OwnedFd) -> nix::Result<(OsString, OwnedFd)> {
    let name = temporary_name();
    let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let file = openat(directory, name.as_os_str(), flags, Mode::from_bits_truncate(0o644))?;
    Ok((name, file))
}
