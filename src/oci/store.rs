//! The state directory: one directory for each container, with its record and plan.
//!
//! The record is written and synced to the disk before anything of a container is created, so that a later command can clean
//! up. A process is identified by its pid, its start time and the boot id. A command holds the lock of a container while it
//! changes it.

use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg, OFlag};
use nix::unistd::geteuid;

use super::record::{DAMAGED, End, Record, Status, parse};
use crate::cgroup::container::find;
use crate::error::{Error, Result, Step, errno_of};
use crate::plan::ContainerPlan;
use crate::sys::{file, process, schedule};

const RECORD: &str = "state.json";
const PLAN: &str = "plan.json";
/// The size limit of a record.
const MAX_BYTES: u64 = 64 << 20;
/// How long a container's directory may be locked without a record. Writing the record takes a few system calls.
const RECORD_TIMEOUT: Duration = Duration::from_secs(2);

/// All containers.
#[derive(Debug)]
pub struct Store {
    root: PathBuf,
}

/// A locked container. Dropping it releases the lock.
#[derive(Debug)]
pub struct Held {
    /// Its directory.
    pub directory: PathBuf,
    /// Its record.
    pub record: Record,
    /// How it ended.
    pub end: End,
    _lock: Flock<File>,
}

impl Store {
    /// In this directory, or in the default one for root or for other users.
    pub fn new(root: Option<PathBuf>) -> Self {
        let root =
            root.unwrap_or_else(|| match std::env::var_os("XDG_RUNTIME_DIR").filter(|_| !process::is_hosts_root()) {
                Some(runtime) => PathBuf::from(runtime).join("stockade-oci"),
                None => "/run/stockade-oci".into(),
            });
        Self { root }
    }

    /// Creates and locks a container's directory. The record is not written yet.
    pub fn create(&self, record: Record) -> Result<Held> {
        valid_id(&record.id)?;
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.root)
            .map_err(|error| io(&self.root, &error))?;
        self.check_owner()?;
        let (directory, lock) = self.claim(&record.id)?;
        Ok(Held { directory, record, end: End::default(), _lock: lock })
    }

    /// Creates a container's directory and locks it.
    fn claim(&self, id: &str) -> Result<(PathBuf, Flock<File>)> {
        let directory = self.root.join(id);
        let exists = || Error::new(Step::Status, id, "container with given ID already exists");
        loop {
            match std::fs::DirBuilder::new().mode(0o700).create(&directory) {
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => return Err(exists()),
                made => made.map_err(|error| io(&directory, &error))?,
            }
            // Before it is locked, the directory looks abandoned: another command may have removed it, and a third may
            // have created a container of the same name.
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

    /// Locks an existing container.
    pub fn hold(&self, id: &str) -> Result<Held> {
        let (directory, lock) = self.lock(id)?;
        let record = read_record(&directory, id)?;
        Ok(Held { directory, record, end: End::default(), _lock: lock })
    }

    /// Locks a container whose record cannot be parsed. Its cgroups are found by its plan, if that is readable.
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
            // The previous holder may have deleted the container, and another may have been created.
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

    /// Reads the record of a container without taking its lock.
    pub fn read(&self, id: &str) -> Result<(PathBuf, Record)> {
        let directory = self.directory(id)?;
        match open_own(&directory) {
            Err(error) if is_missing(&error) => return Err(missing(id)),
            opened => drop(opened?),
        }
        let record = read_record(&directory, id)?;
        Ok((directory, record))
    }

    /// Reads the record and status of a container without taking its lock.
    pub fn status(&self, id: &str) -> Result<(Record, Status)> {
        let deadline = Instant::now() + RECORD_TIMEOUT;
        loop {
            let (directory, record) = self.read(id)?;
            if record.pid != 0 {
                let status = record.status(&directory);
                return Ok((record, status));
            }
            if !is_locked(&directory) {
                // No command is creating it now, but one may have finished since the record was read.
                let (_, again) = self.read(id)?;
                if again.pid == 0 {
                    return Ok((again, Status::Stopped));
                }
            } else if directory.join(RECORD).exists() || Instant::now() > deadline {
                return Ok((record, Status::Creating));
            } else {
                // The record is about to be written, or the directory is about to be removed.
                schedule::pause(Duration::from_millis(1));
            }
        }
    }

    /// The ids of all containers.
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

    /// Refuses a state directory that another user can write.
    fn check_owner(&self) -> Result<()> {
        let found = std::fs::metadata(&self.root).map_err(|error| io(&self.root, &error))?;
        if found.uid() != geteuid().as_raw() || found.mode() & 0o022 != 0 {
            return Err(Error::new(Step::State, self.root.display().to_string(), "another user can write it")
                .hint("--root must name a directory that belongs to the caller"));
        }
        Ok(())
    }
}

impl Held {
    /// Writes the record atomically and syncs it, before anything is created.
    pub fn write(&self) -> Result<()> {
        write(&self.directory, RECORD, &serde_json::to_vec(&self.record).unwrap_or_default())
    }

    /// Writes and syncs the record under a temporary name, where it is not visible yet.
    pub fn write_aside(&self) -> Result<()> {
        write_aside(&self.directory, RECORD, &serde_json::to_vec(&self.record).unwrap_or_default(), true)
    }

    /// Replaces the record by the one of [`Self::write_aside`]. After a power failure the old record may be back, which is
    /// harmless: no container survives a reboot.
    pub fn put_in_place(&self) -> Result<()> {
        put_in_place(&self.directory, RECORD)
    }

    /// Writes the plan, for `exec` and for the errors of `start`. It is synced only if it has later hooks, which are the only
    /// part that is used after a reboot.
    pub fn write_plan(&self, plan: &ContainerPlan) -> Result<()> {
        let bytes = serde_json::to_vec(plan).unwrap_or_default();
        write_aside(&self.directory, PLAN, &bytes, self.record.later_hooks)?;
        put_in_place(&self.directory, PLAN)
    }

    /// Its status.
    pub fn status(&self) -> Status {
        // No other command is creating it, because this one holds the lock.
        self.record.status(&self.directory)
    }

    /// Its plan.
    pub fn plan(&self) -> Result<ContainerPlan> {
        read_plan(&self.directory)
    }

    /// Removes its directory; the record is removed last.
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
    file::open(directory, flags).map(File::from)
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

/// As [`lock`], for a directory that no other user could have created.
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
            "another user created it or can write it",
        )
        .hint("it does not belong to a container: remove it by hand"));
    }
    Ok(file)
}

/// Writes a file atomically and syncs it.
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
        // A file of a killed command, or a symlink that a container made, is removed and not written to.
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
        // The directory was created, but no container yet.
        Err(Errno::ENOENT) => return Record::new(id, Path::new(""), Path::new("")),
        read => read.map_err(|errno| Error::errno(Step::State, path.display().to_string(), errno))?,
    };
    let damaged = "delete --force removes what is left";
    let mut record = parse(&bytes).map_err(|reason| {
        let hint = if reason.starts_with(DAMAGED) {
            damaged
        } else {
            "the stockade-oci that wrote it can manage the container"
        };
        Error::new(Step::State, path.display().to_string(), reason).hint(hint)
    })?;
    if record.id != id {
        let reason = format!("belongs to another container, {:?}", record.id);
        return Err(Error::new(Step::State, path.display().to_string(), reason));
    }
    record.find_boot();
    Ok(record)
}

/// Reads a file of the state directory. Never blocks, follows no symlink, and limits the size.
fn read_own(path: &Path) -> std::result::Result<Vec<u8>, Errno> {
    use std::io::Read as _;
    let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    let file = File::from(file::open(path, flags)?);
    let found = file.metadata().map_err(|error| errno_of(&error))?;
    if !found.is_file() || found.uid() != geteuid().as_raw() {
        return Err(Errno::EPERM);
    }
    let mut bytes = Vec::with_capacity(8 << 10);
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(|error| errno_of(&error))?;
    if bytes.len() as u64 > MAX_BYTES { Err(Errno::EFBIG) } else { Ok(bytes) }
}

/// The plan of the container in this directory.
pub fn read_plan(directory: &Path) -> Result<ContainerPlan> {
    let path = directory.join(PLAN);
    let bytes = read_own(&path).map_err(|errno| Error::errno(Step::State, path.display().to_string(), errno))?;
    serde_json::from_slice(&bytes)
        .map_err(|error| Error::new(Step::State, path.display().to_string(), error.to_string()))
}

fn missing(id: &str) -> Error {
    Error::new(Step::Status, id, "container does not exist")
}

/// Whether an error means that the container does not exist.
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

/// Checks a container id: letters, digits and `_+-.`; not `.` or `..`, and no leading dash.
pub fn valid_id(id: &str) -> Result<()> {
    let fine = |byte: u8| byte.is_ascii_alphanumeric() || b"_+-.".contains(&byte);
    if id.is_empty() || id.len() > 255 || id == "." || id == ".." || id.starts_with('-') || !id.bytes().all(fine) {
        return Err(Error::new(Step::Status, format!("{id:?}"), "invalid container ID format")
            .hint("letters, digits, and _ + - . are allowed"));
    }
    Ok(())
}
