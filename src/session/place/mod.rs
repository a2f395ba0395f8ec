//! Where sessions are: a directory for each user, and in it one for each session, with its socket, lock and record,
//! and when it has ended what its own command printed.
//!
//! Each directory is opened by descriptor, without links, and must belong to this user alone. Who holds the lock is the
//! session: a supervisor that is killed releases it, so that its directory is known to be dead.

mod directory;
mod output;
#[cfg(test)]
mod tests;

use std::ffi::OsStr;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::dir::{Dir, Type};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl, openat};
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, connect, listen, setsockopt, socket, sockopt,
};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat, fstatat};
use nix::sys::time::TimeVal;
use nix::unistd::{UnlinkatFlags, geteuid, unlinkat};

use self::directory::{DIRECTORY, directory, kind, location, planted};
use crate::error::{Error, Result, Step};

const LOCK: &str = "lock";
const SOCKET: &str = "socket";
const RECORD: &str = "record.json";
const NEW_RECORD: &str = "record.json.new";

/// The longest record: it has the plan and a report.
const MOST_RECORD: usize = 16 << 20;

/// How long a session may delay a client: until it accepts, and until it reads.
const PEER_TIMEOUT: TimeVal = TimeVal::new(10, 0);

/// How long the removal of a dead place may take.
const SWEEP: Duration = Duration::from_millis(100);

/// The directory of this user's sessions.
#[derive(Debug)]
pub struct Home {
    path: PathBuf,
    directory: OwnedFd,
}

/// The directory of a session.
#[derive(Debug)]
pub struct Place {
    /// The session's name.
    pub name: String,
    path: PathBuf,
    directory: OwnedFd,
}

/// A place that this process has locked: no supervisor has it, or this process is the supervisor.
#[derive(Debug)]
pub struct Held {
    /// The place.
    pub place: Place,
    home: Home,
    _lock: OwnedFd,
}

impl Home {
    /// Makes the directory if necessary, and opens it.
    pub fn make() -> Result<Self> {
        Self::reach(true).map(|home| home.expect("it was made"))
    }

    /// Opens the directory. `None` if this user has never made a session.
    pub fn open() -> Result<Option<Self>> {
        Self::reach(false)
    }

    fn reach(make: bool) -> Result<Option<Self>> {
        let (base, name) = location();
        Self::below(&base, &name, make)
    }

    fn below(base: &Path, name: &str, make: bool) -> Result<Option<Self>> {
        let path = base.join(name);
        let failed = |errno| Error::errno(Step::SessionPlace, path.display().to_string(), errno);
        let above = nix::fcntl::open(base, OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty());
        let above = above.map_err(|errno| Error::errno(Step::SessionPlace, base.display().to_string(), errno))?;
        let Some(directory) = directory(&above, OsStr::new(name), &path, make)? else { return Ok(None) };
        // Only root or this user could have made an entry of this name in the directory above, or removes it.
        let found = fstat(&above).map_err(failed)?;
        let sticky = found.st_mode & libc::S_ISVTX != 0;
        if ![0, geteuid().as_raw()].contains(&found.st_uid) || (found.st_mode & 0o022 != 0 && !sticky) {
            return Err(Error::new(
                Step::SessionPlace,
                base.display().to_string(),
                "other users can rename what is in it",
            )
            .hint("set XDG_RUNTIME_DIR to a directory that only you can write to"));
        }
        Ok(Some(Self { path, directory }))
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The names of the sessions, sorted.
    pub fn names(&self) -> Result<Vec<String>> {
        let failed = |errno| Error::errno(Step::SessionPlace, self.path.display().to_string(), errno);
        let mut dir = Dir::openat(&self.directory, ".", DIRECTORY, Mode::empty()).map_err(failed)?;
        let mut names = Vec::new();
        for entry in dir.iter() {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name().to_str().unwrap_or_default();
            if is_name(name) && matches!(entry.file_type(), None | Some(Type::Directory)) {
                names.push(name.to_owned());
            }
        }
        names.sort();
        Ok(names)
    }

    /// The place of a session.
    pub fn place(&self, name: &str) -> Result<Place> {
        if !is_name(name) {
            return Err(missing(name));
        }
        let path = self.path.join(name);
        let directory = directory(&self.directory, OsStr::new(name), &path, false)?.ok_or_else(|| missing(name))?;
        Ok(Place { name: name.to_owned(), path, directory })
    }

    /// Makes a session's place and locks it. Fails if a session of this name runs, or has ended and was not removed; what a
    /// killed supervisor left is taken over.
    pub fn claim(self, name: &str) -> Result<Held> {
        let path = self.path.join(name);
        let until = Instant::now() + SWEEP;
        loop {
            // The place may be removed at any time before it is locked.
            let Some(directory) = directory(&self.directory, OsStr::new(name), &path, true)? else { continue };
            let place = Place { name: name.to_owned(), path: path.clone(), directory };
            let exists = |what| Error::new(Step::SessionPlace, name, format!("a session of this name {what}"));
            let lock = match place.lock(true) {
                Err(_) if !self.still_has(&place) => continue,
                lock => lock?,
            };
            let Some(lock) = lock else {
                // Another process may only be about to remove a dead place.
                if !place.has_socket() && Instant::now() < until {
                    std::thread::sleep(Duration::from_millis(2));
                    continue;
                }
                return Err(exists("runs").hint(format!("use another --name, or `stockade rm -f {name}`")));
            };
            if !self.still_has(&place) {
                continue;
            }
            if place.read_record()?.is_some_and(|record| has_ended(&record)) {
                return Err(exists("has ended and was not removed").hint(format!("`stockade rm {name}` removes it")));
            }
            place.clear()?;
            return Ok(Held { place, home: self, _lock: lock });
        }
    }

    /// Locks the place of a session that does not run. `None` if it runs.
    pub fn hold(self, name: &str) -> Result<Option<Held>> {
        let place = self.place(name)?;
        let Some(lock) = place.lock(true)? else { return Ok(None) };
        if !self.still_has(&place) {
            return Err(missing(name));
        }
        Ok(Some(Held { place, home: self, _lock: lock }))
    }

    /// Whether the place is still at its name.
    fn still_has(&self, place: &Place) -> bool {
        let identity = |stat: FileStat| (stat.st_dev, stat.st_ino);
        let there = fstatat(&self.directory, place.name.as_str(), nix::fcntl::AtFlags::AT_SYMLINK_NOFOLLOW);
        there.map(identity).is_ok_and(|there| fstat(&place.directory).map(identity) == Ok(there))
    }
}

/// Removes the places of sessions whose supervisors were killed. Returns their names.
pub fn sweep() -> Result<Vec<String>> {
    let Some(home) = Home::open()? else { return Ok(Vec::new()) };
    let mut removed = Vec::new();
    for name in home.names()? {
        let place = home.place(&name);
        // One that is removed meanwhile, or is not as it should be, is not ours to remove.
        let Ok(false) = place.as_ref().map_or(Ok(true), Place::is_alive) else { continue };
        let Ok(Some(held)) = Home::make()?.hold(&name) else { continue };
        // A record that cannot be read is for its owner to look at, and to remove by name.
        let Ok(record) = held.place.read_record() else { continue };
        if !record.is_some_and(|record| has_ended(&record)) && held.remove().is_ok() {
            removed.push(name);
        }
    }
    Ok(removed)
}

impl Held {
    /// Removes the place. The lock is released with it.
    pub fn remove(self) -> Result<()> {
        self.place.clear()?;
        let failed = |errno| Error::errno(Step::SessionPlace, self.place.path.display().to_string(), errno);
        unlinkat(&self.place.directory, LOCK, UnlinkatFlags::NoRemoveDir).map_err(failed)?;
        unlinkat(&self.home.directory, self.place.name.as_str(), UnlinkatFlags::RemoveDir).map_err(failed)
    }

    /// Makes the socket and listens on it.
    pub fn listen(&self) -> Result<OwnedFd> {
        let failed = |errno| self.place.failed(SOCKET, errno);
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let listener = socket(AddressFamily::Unix, SockType::SeqPacket, flags, None).map_err(failed)?;
        bind(listener.as_raw_fd(), &self.place.address().map_err(failed)?).map_err(failed)?;
        listen(&listener, Backlog::new(128).map_err(failed)?).map_err(failed)?;
        Ok(listener)
    }

    /// Removes the socket: no client can connect any more.
    pub fn close(&self) {
        let _ = unlinkat(&self.place.directory, SOCKET, UnlinkatFlags::NoRemoveDir);
    }

    /// Writes the record, whole or not at all.
    pub fn write_record(&self, json: &[u8]) -> Result<()> {
        let directory = &self.place.directory;
        let failed = |errno| self.place.failed(RECORD, errno);
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_TRUNC | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let file = openat(directory, NEW_RECORD, flags, Mode::from_bits_truncate(0o600)).map_err(failed)?;
        let mut rest = json;
        while !rest.is_empty() {
            rest = &rest[nix::unistd::write(&file, rest).map_err(failed)?..];
        }
        nix::fcntl::renameat(directory, NEW_RECORD, directory, RECORD).map_err(failed)
    }
}

impl Place {
    /// Whether a supervisor has this place.
    pub fn is_alive(&self) -> Result<bool> {
        let Some(file) = self.lock_file(false)? else { return Ok(false) };
        let mut found = whole_file();
        fcntl(&file, FcntlArg::F_OFD_GETLK(&mut found)).map_err(|errno| self.failed(LOCK, errno))?;
        Ok(i32::from(found.l_type) != libc::F_UNLCK)
    }

    /// Whether it has a socket. A session that takes its last steps has none any more.
    pub fn has_socket(&self) -> bool {
        fstatat(&self.directory, SOCKET, nix::fcntl::AtFlags::AT_SYMLINK_NOFOLLOW).is_ok()
    }

    /// The content of the record; `None` if there is none.
    pub fn read_record(&self) -> Result<Option<Vec<u8>>> {
        let failed = |errno| self.failed(RECORD, errno);
        let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
        let file = match openat(&self.directory, RECORD, flags, Mode::empty()) {
            Err(Errno::ENOENT) => return Ok(None),
            opened => opened.map_err(failed)?,
        };
        let stat = fstat(&file).map_err(failed)?;
        let size = usize::try_from(stat.st_size).unwrap_or(usize::MAX);
        if kind(&stat) != SFlag::S_IFREG || size > MOST_RECORD {
            return Err(failed(Errno::EINVAL));
        }
        crate::sys::file::content_of(&file, size).map(Some).map_err(failed)
    }

    /// Connects to the session.
    pub fn connect(&self) -> Result<OwnedFd> {
        let path = || self.path.join(SOCKET).display().to_string();
        let failed = |errno| match errno {
            Errno::ENOENT | Errno::ECONNREFUSED => self.silence(),
            Errno::EAGAIN => Error::errno(Step::SessionConnect, &self.name, Errno::ETIMEDOUT),
            errno => Error::errno(Step::SessionConnect, &self.name, errno),
        };
        let stat = fstatat(&self.directory, SOCKET, nix::fcntl::AtFlags::AT_SYMLINK_NOFOLLOW).map_err(failed)?;
        if kind(&stat) != SFlag::S_IFSOCK || stat.st_uid != geteuid().as_raw() {
            return Err(Error::new(Step::SessionConnect, path(), "is not a socket of this user"));
        }
        let socket = socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None).map_err(failed)?;
        setsockopt(&socket, sockopt::SendTimeout, &PEER_TIMEOUT).map_err(failed)?;
        connect(socket.as_raw_fd(), &self.address().map_err(failed)?).map_err(failed)?;
        Ok(socket)
    }

    /// The error for a session that does not listen.
    fn silence(&self) -> Error {
        let name = &self.name;
        if self.read_record().ok().flatten().is_some_and(|record| has_ended(&record)) {
            let error = Error::new(Step::SessionConnect, name, "the session has ended");
            return error.hint(format!("`stockade inspect {name}` says how, `stockade rm {name}` removes it"));
        }
        match self.is_alive() {
            Ok(true) => Error::new(Step::SessionConnect, name, "the session does not run yet"),
            _ => killed(name),
        }
    }

    /// The socket's address, by descriptor: a path may be longer than `sun_path`.
    fn address(&self) -> nix::Result<UnixAddr> {
        UnixAddr::new(format!("/proc/self/fd/{}/{SOCKET}", self.directory.as_raw_fd()).as_str())
    }

    /// Takes the lock. `None` if another process has it. It belongs to the open file, so that a probe does not take it.
    fn lock(&self, make: bool) -> Result<Option<OwnedFd>> {
        let file = self.lock_file(make)?.ok_or_else(|| missing(&self.name))?;
        match fcntl(&file, FcntlArg::F_OFD_SETLK(&whole_file())) {
            Ok(_) => Ok(Some(file)),
            Err(Errno::EAGAIN | Errno::EACCES) => Ok(None),
            Err(errno) => Err(self.failed(LOCK, errno)),
        }
    }

    /// Opens the lock. `None` if it is not made yet, or was removed.
    fn lock_file(&self, make: bool) -> Result<Option<OwnedFd>> {
        let create = if make { OFlag::O_CREAT } else { OFlag::empty() };
        let flags = OFlag::O_RDWR | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC | create;
        let file = match openat(&self.directory, LOCK, flags, Mode::from_bits_truncate(0o600)) {
            Err(Errno::ENOENT) => return Ok(None),
            opened => opened.map_err(|errno| self.failed(LOCK, errno))?,
        };
        match kind(&fstat(&file).map_err(|errno| self.failed(LOCK, errno))?) {
            SFlag::S_IFREG => Ok(Some(file)),
            _ => Err(planted(&self.path.join(LOCK), "is not a regular file")),
        }
    }

    fn failed(&self, name: &str, errno: Errno) -> Error {
        Error::errno(Step::SessionPlace, self.path.join(name).display().to_string(), errno)
    }

    /// Removes what an earlier session left. The caller has the lock.
    fn clear(&self) -> Result<()> {
        for name in [SOCKET, RECORD, NEW_RECORD].into_iter().chain(output::STREAMS) {
            match unlinkat(&self.directory, name, UnlinkatFlags::NoRemoveDir) {
                Ok(()) | Err(Errno::ENOENT) => {}
                Err(errno) => return Err(self.failed(name, errno)),
            }
        }
        Ok(())
    }
}

/// An exclusive lock of a whole file.
fn whole_file() -> libc::flock {
    libc::flock { l_type: libc::F_WRLCK as _, l_whence: libc::SEEK_SET as _, l_start: 0, l_len: 0, l_pid: 0 }
}

/// Whether this is a name that a sandbox can have.
pub fn is_name(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'+' | b'-');
    (1..=64).contains(&name.len()) && name.bytes().all(allowed) && !name.starts_with('-') && name != "." && name != ".."
}

/// Whether a record is that of a session that has ended, and that someone may still ask about.
pub fn has_ended(json: &[u8]) -> bool {
    #[derive(serde::Deserialize)]
    struct Ended {
        end: Option<serde::de::IgnoredAny>,
    }
    serde_json::from_slice::<Ended>(json).is_ok_and(|record| record.end.is_some())
}

/// The error for a name that no session has.
pub fn missing(name: &str) -> Error {
    Error::new(Step::SessionConnect, name, "there is no session of this name").hint("`stockade ps` lists them")
}

/// The error for a session whose supervisor was killed.
pub fn killed(name: &str) -> Error {
    Error::new(Step::SessionConnect, name, "its supervisor was killed").hint("`stockade gc` removes what is left")
}
