//! Appends to the log. Everything that can be checked is checked before the run starts; appending happens under a lock.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{AtFlags, FallocateFlags, Flock, FlockArg, OFlag, fallocate, openat};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat, fstatat};
use nix::sys::statvfs::fstatvfs;
use sha2::{Digest as _, Sha256};

use super::line::Line;
use super::{MAX_LINE, is_torn};
use crate::error::{Error, Result, Step, errno_of};
use crate::plan::{Bytes, hex};
use crate::sys::walk::{self, Place, Trail};
use crate::sys::{process, schedule};

/// At most this much of the end is read to find the last complete line.
const TAIL: u64 = 4 * MAX_LINE as u64;

/// The free space that is required before a run starts.
const RESERVED: u64 = 4096;

/// How long another process that can open the file may hold its lock.
const LOCK_DEADLINE: Duration = Duration::from_secs(10);

/// A log that was found valid and writable.
#[derive(Debug)]
pub struct Log {
    shown: String,
    file: File,
    sync: bool,
    trail: Trail,
}

impl Log {
    /// Opens or creates a log and makes sure that a line can be appended. With `sync`, [`Self::append`] syncs each line to the
    /// disk.
    pub fn open(path: &OsStr, sync: bool) -> Result<Self> {
        let shown = Bytes::from(path).to_string();
        let opened = open_file(path, sync).and_then(|(file, trail)| {
            check_owner(&fstat(&file).map_err(errno)?)?;
            reserve(&file)?;
            // A lock that another process keeps is detected now, not after the run.
            let locked = lock(&file, FlockArg::LockExclusiveNonblock)?;
            Tail::read(&file, size(&file)?)?;
            drop(locked);
            Ok((file, trail))
        });
        let refused = |error: Error| Error { object: shown.clone(), ..error };
        opened.map_err(refused).map(|(file, trail)| Self { shown, file, sync, trail })
    }

    /// Its location.
    pub fn trail(&self) -> &Trail {
        &self.trail
    }

    /// Sets whether [`Self::append`] syncs each line to the disk.
    pub fn set_sync(&mut self, sync: bool) {
        self.sync = sync;
    }

    /// Appends the line, with the hash of the last one.
    pub fn append(&self, line: Line) -> Result<()> {
        self.append_locked(line).map_err(|error| Error { object: self.shown.clone(), ..error })
    }

    fn append_locked(&self, mut line: Line) -> Result<()> {
        let _lock = lock(&self.file, FlockArg::LockExclusiveNonblock)?;
        if fstat(&self.file).map_err(errno)?.st_nlink == 0 {
            return Err(reason("it was removed during the run"));
        }
        let size = size(&self.file)?;
        let tail = Tail::read(&self.file, size)?;
        (line.torn_bytes, line.prev_sha256) = (tail.torn_bytes, tail.sha256);
        let mut bytes = if tail.unfinished { b"\n".to_vec() } else { Vec::new() };
        serde_json::to_writer(&mut bytes, &line).map_err(|error| reason(&error.to_string()))?;
        bytes.push(b'\n');
        if let Err(error) = (&self.file).write_all(&bytes) {
            // Removes the partial line. On an append-only file that fails, and the next writer terminates the line.
            let _ = self.file.set_len(size);
            return Err(errno(errno_of(&error)));
        }
        if self.sync { self.file.sync_data().map_err(|error| errno(errno_of(&error))) } else { Ok(()) }
    }
}

fn reason(reason: &str) -> Error {
    Error::new(Step::Audit, "", reason)
}

fn errno(errno: Errno) -> Error {
    Error::errno(Step::Audit, "", errno)
}

fn size(file: &File) -> Result<u64> {
    file.metadata().map(|metadata| metadata.len()).map_err(|error| errno(errno_of(&error)))
}

/// The location that a log of this path would have. The file is not opened.
pub fn locate(path: &OsStr) -> Result<Place> {
    if path.as_bytes().ends_with(b"/") {
        return Err(reason("it does not name a file"));
    }
    walk::to_place(Path::new(path)).map_err(|failed| match failed {
        Errno::EINVAL => reason("it does not name a file"),
        Errno::EPERM => {
            reason("another user could have made a symlink in its path").hint("name the directory without symlinks")
        }
        failed => errno(failed),
    })
}

/// Opens it in its directory, without following a symlink and without blocking.
fn open_file(path: &OsStr, sync: bool) -> Result<(File, Trail)> {
    let place = locate(path)?;
    let (directory, name) = (&place.directory, place.name.as_os_str());
    let is_new = match fstatat(directory, name, AtFlags::AT_SYMLINK_NOFOLLOW) {
        Ok(stat) => check_kind(&stat).map(|()| false)?,
        Err(Errno::ENOENT) => true,
        Err(error) => return Err(errno(error)),
    };
    let flags = OFlag::O_RDWR | OFlag::O_APPEND | OFlag::O_CREAT;
    let flags = flags | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    let file = openat(directory, name, flags, Mode::from_bits_truncate(0o600)).map_err(errno)?;
    check_kind(&fstat(&file).map_err(errno)?)?;
    if sync && is_new {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let directory = openat(directory, ".", flags, Mode::empty()).map_err(errno)?;
        nix::unistd::fsync(&directory).map_err(errno)?; // otherwise a power failure could remove the new file
    }
    Ok((File::from(file), Trail::of_place(&place)))
}

fn check_kind(stat: &FileStat) -> Result<()> {
    match SFlag::from_bits_truncate(stat.st_mode & SFlag::S_IFMT.bits()) {
        SFlag::S_IFREG => Ok(()),
        SFlag::S_IFDIR => Err(reason("it is a directory")),
        SFlag::S_IFLNK => Err(reason("it is a symlink, which is not followed")),
        _ => Err(reason("it is not a regular file")),
    }
}

/// A user who can write the log could rewrite the whole chain.
fn check_owner(stat: &FileStat) -> Result<()> {
    let caller = nix::unistd::geteuid().as_raw();
    if stat.st_mode & 0o022 != 0 {
        return Err(reason("users other than its owner can write it").hint("`chmod 600` it"));
    }
    if stat.st_uid != caller && stat.st_uid != 0 {
        let reason = format!("it belongs to user {}, neither to you nor to root", stat.st_uid);
        return Err(Error::new(Step::Audit, "", reason));
    }
    Ok(())
}

/// Reserves blocks for a line if the file system supports that, so that a full disk or quota is detected before the run.
fn reserve(file: &File) -> Result<()> {
    let size = size(file)?;
    // Beyond this limit the kernel sends SIGXFSZ, which kills the process.
    let (limit, _) = process::rlimit(libc::RLIMIT_FSIZE as u32).map_err(errno)?;
    if limit < size.saturating_add(RESERVED) {
        return Err(
            errno(Errno::EFBIG).hint("the caller's limit on file sizes (`ulimit -f`) leaves no room for a line")
        );
    }
    let full = || errno(Errno::ENOSPC).hint("the command was not run, because the run could not be recorded");
    let offset = libc::off_t::try_from(size).map_err(|_| errno(Errno::EFBIG))?;
    match fallocate(file, FallocateFlags::FALLOC_FL_KEEP_SIZE, offset, RESERVED as libc::off_t) {
        Ok(()) => Ok(()),
        Err(Errno::ENOSPC) => Err(full()),
        Err(Errno::EDQUOT) => Err(errno(Errno::EDQUOT)),
        Err(_) => match fstatvfs(file) {
            Ok(space) if space.blocks_available() * space.fragment_size() < RESERVED => Err(full()),
            Ok(_) => Ok(()),
            Err(error) => Err(errno(error)),
        },
    }
}

/// Takes the lock, which is released when the returned value is dropped.
pub(super) fn lock(file: &File, how: FlockArg) -> Result<Flock<File>> {
    let deadline = Instant::now() + LOCK_DEADLINE;
    let mut pause = Duration::from_micros(50);
    let mut file = file.try_clone().map_err(|error| errno(errno_of(&error)))?;
    loop {
        file = match Flock::lock(file, how) {
            Ok(lock) => return Ok(lock),
            Err((file, Errno::EAGAIN | Errno::EINTR)) if Instant::now() < deadline => file,
            Err((_, Errno::EAGAIN)) => {
                return Err(reason("another process has held its lock for 10 s").hint("`lslocks` shows which one"));
            }
            Err((_, error)) => return Err(errno(error)),
        };
        schedule::pause(pause);
        pause = (pause * 2).min(Duration::from_millis(5));
    }
}

/// The end of the log, to which a new line is chained.
#[derive(Debug, PartialEq)]
struct Tail {
    /// Hash of all bytes from the beginning of the last complete line on, including the newline that terminates a torn one.
    sha256: Option<String>,
    /// The number of torn bytes among them.
    torn_bytes: u64,
    /// Whether the new line must be preceded by a newline.
    unfinished: bool,
}

impl Tail {
    /// Reads the end of a file of this size.
    fn read(file: &File, size: u64) -> Result<Self> {
        let start = size.saturating_sub(TAIL);
        let mut bytes = vec![0; usize::try_from(size - start).unwrap_or(0)];
        file.read_exact_at(&mut bytes, start).map_err(|error| errno(errno_of(&error)))?;
        Self::of(&bytes, start == 0)
            .ok_or_else(|| reason("it does not end like an audit log").hint("use a separate or new file for the log"))
    }

    /// `None` if the bytes are not the end of a log. Unless `all` is set, they may begin in the middle of a line.
    fn of(bytes: &[u8], all: bool) -> Option<Self> {
        let unfinished = bytes.last().is_some_and(|byte| *byte != b'\n');
        let mut end = bytes.len();
        while end > 0 {
            let start = bytes[..end - 1].iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            if start == 0 && !all {
                return None; // the beginning of the line is unknown
            }
            let piece = &bytes[start..end];
            // A line that lacks only its newline becomes complete with it.
            let ended = if piece.ends_with(b"\n") { None } else { Line::parse(&[piece, b"\n"].concat()) };
            match (Line::parse(piece), ended) {
                (Some(_), _) => return Some(Self::after(&bytes[start..], bytes.len() - end + usize::from(unfinished))),
                (None, Some(_)) => return Some(Self::after(&bytes[start..], 0)),
                (None, None) if is_torn(piece) => end = start,
                (None, None) => return None,
            }
        }
        Some(Self::after(bytes, bytes.len() + usize::from(unfinished)))
    }

    fn after(block: &[u8], torn_bytes: usize) -> Self {
        let mut hash = Sha256::new_with_prefix(block);
        let unfinished = block.last().is_some_and(|byte| *byte != b'\n');
        if unfinished {
            hash.update(b"\n");
        }
        let sha256 = (!block.is_empty()).then(|| hex(&hash.finalize()));
        Self { sha256, torn_bytes: torn_bytes as u64, unfinished }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Report;

    fn line() -> Vec<u8> {
        let error = Error::new(Step::Usage, "", "x");
        let report = Report::not_started("a", None, std::time::SystemTime::now(), &error);
        let mut json = serde_json::to_vec(&Line::of(&report)).unwrap();
        json.push(b'\n');
        json
    }

    fn sha256(bytes: &[u8]) -> Option<String> {
        Some(hex(&Sha256::digest(bytes)))
    }

    #[test]
    fn a_line_is_chained_to_the_last_complete_one_and_the_torn_ones_after_it() {
        let line = line();
        let of = |bytes: &[u8]| Tail::of(bytes, true).unwrap();
        assert_eq!(of(b""), Tail { sha256: None, torn_bytes: 0, unfinished: false });
        let two = [&line[..], &line].concat();
        assert_eq!(of(&two), Tail { sha256: sha256(&line), torn_bytes: 0, unfinished: false });
        let torn = [&line[..], &line, &line[..50]].concat();
        let sum = sha256(&[&line[..], &line[..50], b"\n"].concat());
        assert_eq!(of(&torn), Tail { sha256: sum, torn_bytes: 51, unfinished: true });
        let twice = [&line[..], &line[..50], b"\n", &line[..7]].concat();
        let sum = sha256(&[&twice[..], b"\n"].concat());
        assert_eq!(of(&twice), Tail { sha256: sum, torn_bytes: 59, unfinished: true });
        let without_newline = &line[..line.len() - 1];
        assert_eq!(of(without_newline), Tail { sha256: sha256(&line), torn_bytes: 0, unfinished: true });
    }

    #[test]
    fn a_file_that_is_not_a_log_is_refused() {
        let line = line();
        for other in [&b"root:x:0:0\n"[..], b"{}\n", &[&line[..], b"x\n"].concat(), &[&line[..], b"x"].concat()] {
            assert_eq!(Tail::of(other, true), None);
        }
        assert_eq!(Tail::of(&line, false), None, "its beginning may be missing");
        assert!(Tail::of(&[b"anything\n", &line[..]].concat(), false).is_some());
    }
}
