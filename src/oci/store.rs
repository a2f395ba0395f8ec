//! The state directory: one directory for each container, with what every later command has to know.
//!
//! The record is written, and flushed to the disk, before the first thing of a container is made, so that whoever comes
//! later can take it away again. A process is known by its number, its start time and the boot; a command holds the lock of
//! its container while it changes it.

use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg, OFlag, open};
use nix::sys::stat::Mode;
use nix::unistd::geteuid;

use super::record::{DAMAGED, Record, Status, parse};
use super::report::End;
use crate::cgroup::container::find;
use crate::error::{Error, Result, Step, errno_of};
use crate::plan::ContainerPlan;
use crate::sys::{process, schedule};

const RECORD: &str = "state.json";
const PLAN: &str = "plan.json";
/// No record of ours is longer.
const MAX_BYTES: u64 = 64 << 20;
/// How long a container's directory may have a lock and no record; it takes some system calls.
const PATIENCE: Duration = Duration::from_secs(2);

/// All containers.
#[derive(Debug)]
pub struct Store {
    root: PathBuf,
}

/// One of them, locked as long as this lives.
#[derive(Debug)]
pub struct Held {
    /// Its directory.
    pub directory: PathBuf,
    /// What is known of it.
    pub record: Record,
    /// How it ended.
    pub end: End,
    _lock: Flock<File>,
}

impl Store {
    /// In this directory, or where the caller's kind of user has it.
    pub fn new(root: Option<PathBuf>) -> Self {
        let root =
            root.unwrap_or_else(|| match std::env::var_os("XDG_RUNTIME_DIR").filter(|_| !process::is_hosts_root()) {
                Some(runtime) => PathBuf::from(runtime).join("stockade-oci"),
                None => "/run/stockade-oci".into(),
            });
        Self { root }
    }

    /// A new container's directory, with its lock; the record is not written yet.
    pub fn create(&self, record: Record) -> Result<Held> {
        valid_id(&record.id)?;
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.root)
            .map_err(|error| io(&self.root, &error))?;
        self.trusted()?;
        let (directory, lock) = self.claim(&record.id)?;
        Ok(Held { directory, record, end: End::default(), _lock: lock })
    }

    /// Makes a container's directory and locks it.
    fn claim(&self, id: &str) -> Result<(PathBuf, Flock<File>)> {
        let directory = self.root.join(id);
        let exists = || Error::new(Step::State, id, "container with given ID already exists");
        loop {
            match std::fs::DirBuilder::new().mode(0o700).create(&directory) {
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => return Err(exists()),
                made => made.map_err(|error| io(&directory, &error))?,
            }
            // Until it is locked it looks like one that was given up: somebody may have taken it away, and another made one of
            // that name, and a container in it.
            match self.lock(id) {
                Err(error) if is_missing(&error) => {}
                Err(error) => {
                    let _ = std::fs::remove_dir(&directory);
                    return Err(error);
                }
                Ok(_) if directory.join(RECORD).exists() => return Err(exists()),
                locked => return locked,
            }
        }
    }

    /// A container that is there, locked.
    pub fn hold(&self, id: &str) -> Result<Held> {
        let (directory, lock) = self.lock(id)?;
        let record = read_record(&directory, id)?;
        Ok(Held { directory, record, end: End::default(), _lock: lock })
    }

    /// A container whose record cannot be read, as far as its plan still says what there is of it.
    pub fn salvage(&self, id: &str) -> Result<Held> {
        let (directory, lock) = self.lock(id)?;
        let mut record = Record::new(id, Path::new(""), Path::new(""))?;
        let planned = read_plan(&directory).ok().map(|plan| plan.cgroup);
        record.places = planned.filter(|cgroup| !cgroup.disabled).and_then(|cgroup| find(&cgroup, id).ok());
        Ok(Held { directory, record, end: End::default(), _lock: lock })
    }

    fn lock(&self, id: &str) -> Result<(PathBuf, Flock<File>)> {
        let directory = self.directory(id)?;
        loop {
            let lock = match lock_own(&directory) {
                Err(error) if is_missing(&error) => return Err(missing(id)),
                lock => lock?,
            };
            // Whoever held it may have deleted it, and somebody made another.
            let identity = |found: std::fs::Metadata| (found.dev(), found.ino());
            let ours = lock.metadata().map_err(|error| io(&directory, &error))?;
            let now = match std::fs::metadata(&directory) {
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Err(missing(id)),
                found => found.map_err(|error| io(&directory, &error))?,
            };
            if identity(ours) == identity(now) {
                return Ok((directory, lock));
            }
        }
    }

    /// What is known of a container, without waiting for whoever changes it.
    pub fn look(&self, id: &str) -> Result<(PathBuf, Record)> {
        let directory = self.directory(id)?;
        match open_own(&directory) {
            Err(error) if is_missing(&error) => return Err(missing(id)),
            opened => drop(opened?),
        }
        let record = read_record(&directory, id)?;
        Ok((directory, record))
    }

    /// What is known of a container and what it is doing, without waiting for whoever changes it.
    pub fn seen(&self, id: &str) -> Result<(Record, Status)> {
        let patience = Instant::now() + PATIENCE;
        loop {
            let (directory, record) = self.look(id)?;
            if record.pid != 0 {
                let status = record.status(&directory);
                return Ok((record, status));
            }
            if !is_locked(&directory) {
                // Nobody makes it; but somebody may have, since the record was read.
                let (_, again) = self.look(id)?;
                if again.pid == 0 {
                    return Ok((again, Status::Stopped));
                }
            } else if directory.join(RECORD).exists() || Instant::now() > patience {
                return Ok((record, Status::Creating));
            } else {
                // The record is about to be written, or was the last of it to go: it will be known at once.
                schedule::pause(Duration::from_millis(1));
            }
        }
    }

    /// The ids of all.
    pub fn ids(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.root).into_iter().flatten().flatten();
        let mut ids: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        ids.sort();
        ids
    }

    fn directory(&self, id: &str) -> Result<PathBuf> {
        valid_id(id)?;
        Ok(self.root.join(id))
    }

    /// Nobody else may write where we read what to do.
    fn trusted(&self) -> Result<()> {
        let found = std::fs::metadata(&self.root).map_err(|error| io(&self.root, &error))?;
        if found.uid() != geteuid().as_raw() || found.mode() & 0o022 != 0 {
            return Err(Error::new(Step::State, self.root.display().to_string(), "can be written by somebody else")
                .hint("--root must name a directory of the caller's own"));
        }
        Ok(())
    }
}

impl Held {
    /// Writes the record, all or nothing, and its name, to the disk: before anything is made.
    pub fn write(&self) -> Result<()> {
        write(&self.directory, RECORD, &serde_json::to_vec(&self.record).unwrap_or_default())
    }

    /// Writes the record to the disk, where nobody looks for it yet.
    pub fn write_aside(&self) -> Result<()> {
        write_aside(&self.directory, RECORD, &serde_json::to_vec(&self.record).unwrap_or_default(), true)
    }

    /// Puts what [`Self::write_aside`] wrote in the place of the record. After a power failure it may be the old one again,
    /// and is as right: nothing of a container outlives its boot.
    pub fn put_in_place(&self) -> Result<()> {
        put_in_place(&self.directory, RECORD)
    }

    /// Writes the plan, for `exec` and for naming what fails at the start. Only its later hooks matter after this boot.
    pub fn write_plan(&self, plan: &ContainerPlan) -> Result<()> {
        let bytes = serde_json::to_vec(plan).unwrap_or_default();
        write_aside(&self.directory, PLAN, &bytes, self.record.later_hooks)?;
        put_in_place(&self.directory, PLAN)
    }

    /// What it is doing.
    pub fn status(&self) -> Status {
        // Nobody but us is making it, as we have the lock.
        self.record.status(&self.directory)
    }

    /// The plan it was made by.
    pub fn plan(&self) -> Result<ContainerPlan> {
        read_plan(&self.directory)
    }

    /// Removes all that is known of it; the record goes last.
    pub fn remove(self) -> Result<()> {
        for entry in std::fs::read_dir(&self.directory).into_iter().flatten().flatten() {
            if entry.file_name() != RECORD {
                let _ = std::fs::remove_file(entry.path());
            }
        }
        match std::fs::remove_dir_all(&self.directory) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(io(&self.directory, &error)),
            _ => Ok(()),
        }
    }
}

fn is_locked(directory: &Path) -> bool {
    let Ok(file) = open_directory(directory) else { return false };
    matches!(Flock::lock(file, FlockArg::LockExclusiveNonblock), Err((_, Errno::EWOULDBLOCK)))
}

fn open_directory(directory: &Path) -> nix::Result<File> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    open(directory, flags, Mode::empty()).map(File::from)
}

fn lock(directory: &Path) -> Result<Flock<File>> {
    let failed = |errno| Error::errno(Step::State, directory.display().to_string(), errno);
    let mut file = open_directory(directory).map_err(failed)?;
    loop {
        match Flock::lock(file, FlockArg::LockExclusive) {
            Ok(lock) => return Ok(lock),
            Err((back, Errno::EINTR)) => file = back,
            Err((_, errno)) => return Err(failed(errno)),
        }
    }
}

/// As [`lock`], of a directory that nobody else could have put there.
fn lock_own(directory: &Path) -> Result<Flock<File>> {
    open_own(directory)?;
    lock(directory)
}

fn open_own(directory: &Path) -> Result<File> {
    let failed = |errno| Error::errno(Step::State, directory.display().to_string(), errno);
    let file = open_directory(directory).map_err(failed)?;
    let found = file.metadata().map_err(|error| io(directory, &error))?;
    if found.uid() != geteuid().as_raw() || found.mode() & 0o022 != 0 {
        return Err(Error::new(
            Step::State,
            directory.display().to_string(),
            "was made by somebody else, or could be written to",
        )
        .hint("it is no container's: remove it by hand"));
    }
    Ok(file)
}

/// Writes a file, all or nothing, to the disk.
pub fn write(directory: &Path, name: &str, bytes: &[u8]) -> Result<()> {
    write_aside(directory, name, bytes, true)?;
    put_in_place(directory, name)?;
    open_directory(directory)
        .map_err(|errno| Error::errno(Step::State, directory.display().to_string(), errno))?
        .sync_all()
        .map_err(|error| io(directory, &error))
}

fn aside(directory: &Path, name: &str) -> PathBuf {
    directory.join(format!(".{name}.new"))
}

fn write_aside(directory: &Path, name: &str, bytes: &[u8], synced: bool) -> Result<()> {
    let new = aside(directory, name);
    let written = (|| {
        // What lies there, from a command that was killed or a link of a container's, is not written through.
        match std::fs::remove_file(&new) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        file.write_all(bytes)?;
        if synced { file.sync_all() } else { Ok(()) }
    })();
    written.map_err(|error| io(&new, &error))
}

fn put_in_place(directory: &Path, name: &str) -> Result<()> {
    let path = directory.join(name);
    std::fs::rename(aside(directory, name), &path).map_err(|error| io(&path, &error))
}

fn read_record(directory: &Path, id: &str) -> Result<Record> {
    let path = directory.join(RECORD);
    let bytes = match read_own(&path) {
        // Begun, and given up before anything was made.
        Err(Errno::ENOENT) => return Record::new(id, Path::new(""), Path::new("")),
        read => read.map_err(|errno| Error::errno(Step::State, path.display().to_string(), errno))?,
    };
    let damaged = "delete --force removes what is left";
    let record = parse(&bytes).map_err(|reason| {
        let hint = if reason.starts_with(DAMAGED) {
            damaged
        } else {
            "the stockade-oci that wrote it can manage the container"
        };
        Error::new(Step::State, path.display().to_string(), reason).hint(hint)
    })?;
    if record.id != id {
        let reason = format!("is that of another container, {:?}", record.id);
        return Err(Error::new(Step::State, path.display().to_string(), reason));
    }
    Ok(record)
}

/// A file of ours: never waits, follows nothing, and is not longer than any of ours.
fn read_own(path: &Path) -> std::result::Result<Vec<u8>, Errno> {
    use std::io::Read as _;
    let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    let file = File::from(open(path, flags, Mode::empty())?);
    let found = file.metadata().map_err(|error| errno_of(&error))?;
    if !found.is_file() || found.uid() != geteuid().as_raw() {
        return Err(Errno::EPERM);
    }
    let mut bytes = Vec::new();
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(|error| errno_of(&error))?;
    if bytes.len() as u64 > MAX_BYTES { Err(Errno::EFBIG) } else { Ok(bytes) }
}

/// The plan that the container of a directory was made by.
pub fn read_plan(directory: &Path) -> Result<ContainerPlan> {
    let path = directory.join(PLAN);
    let bytes = read_own(&path).map_err(|errno| Error::errno(Step::State, path.display().to_string(), errno))?;
    serde_json::from_slice(&bytes)
        .map_err(|error| Error::new(Step::State, path.display().to_string(), error.to_string()))
}

fn missing(id: &str) -> Error {
    Error::new(Step::State, id, "container does not exist")
}

/// Whether an error says that there is no such container.
pub fn is_missing(error: &Error) -> bool {
    use crate::error::Cause;
    match &error.cause {
        Cause::Errno(errno) => *errno == Errno::ENOENT && error.step == Step::State,
        Cause::Reason(reason) => reason == "container does not exist",
    }
}

fn io(path: &Path, error: &std::io::Error) -> Error {
    Error::io(Step::State, path.display().to_string(), error)
}

/// Letters, digits and `_+-.`; no `.` or `..`, no dash in front.
pub fn valid_id(id: &str) -> Result<()> {
    let fine = |byte: u8| byte.is_ascii_alphanumeric() || b"_+-.".contains(&byte);
    if id.is_empty() || id.len() > 255 || id == "." || id == ".." || id.starts_with('-') || !id.bytes().all(fine) {
        return Err(Error::new(Step::State, format!("{id:?}"), "invalid container ID format")
            .hint("letters, digits, and _ + - . are allowed"));
    }
    Ok(())
}
