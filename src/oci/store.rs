//! The state directory: one directory for each container, with what every later command has to know.
//!
//! The record is written, and flushed to the disk, before the first thing of a container is made, so that whoever comes
//! later can take it away again. A process is known by its number, its start time and the boot; a command holds the lock of
//! its container while it changes it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg, OFlag, open};
use nix::sys::stat::Mode;
use nix::unistd::{Pid, geteuid};
use serde::{Deserialize, Serialize};

use crate::cgroup;
use crate::cgroup::container::{Groups, Places};
use crate::error::{Error, Result, Step};
use crate::plan::Plan;
use crate::sandbox::container::gate;
use crate::sys::process;

/// Version of the record.
const VERSION: u32 = 1;
const RECORD: &str = "state.json";
const PLAN: &str = "plan.json";
/// No record of ours is longer.
const MAX_BYTES: usize = 64 << 20;

/// What is known of a container.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Record {
    /// Of the record.
    pub version: u32,
    /// The container's id.
    pub id: String,
    /// Of the specification that its configuration was written for.
    pub oci_version: String,
    /// The boot it was made in.
    pub boot_id: String,
    /// Its bundle.
    pub bundle: PathBuf,
    /// Its root on the host.
    pub rootfs: PathBuf,
    /// When it was made.
    pub created: String,
    /// Notes of whoever configured it.
    pub annotations: BTreeMap<String, String>,
    /// Where its cgroups are, or will be.
    pub places: Option<Places>,
    /// Its first process, once that is ready; 0 before.
    pub pid: i32,
    /// When that was started, in clock ticks since the boot.
    pub started: u64,
    /// Who made it.
    pub owner: u32,
}

/// What a container is doing, in the specification's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Status {
    Creating,
    Created,
    Running,
    Paused,
    Stopped,
}

impl Status {
    /// As it is written.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Creating => "creating",
            Self::Created => "created",
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Stopped => "stopped",
        }
    }
}

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
        let failed = |path: &Path, error: &std::io::Error| io(path, error);
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.root)
            .map_err(|error| failed(&self.root, &error))?;
        self.trusted()?;
        let directory = self.root.join(&record.id);
        match std::fs::DirBuilder::new().mode(0o700).create(&directory) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                return Err(Error::new(Step::State, record.id, "container with given ID already exists"));
            }
            made => made.map_err(|error| failed(&directory, &error))?,
        }
        let lock = lock(&directory)?;
        Ok(Held { directory, record, _lock: lock })
    }

    /// A container that is there, locked.
    pub fn hold(&self, id: &str) -> Result<Held> {
        let directory = self.directory(id)?;
        loop {
            let lock = match lock(&directory) {
                Err(error) if is_missing(&error) => return Err(missing(id)),
                lock => lock?,
            };
            // Whoever held it may have deleted it, and somebody made another.
            let identity = |found: std::fs::Metadata| (found.dev(), found.ino());
            let same = match (lock.metadata(), std::fs::metadata(&directory)) {
                (Ok(ours), Ok(now)) => identity(ours) == identity(now),
                _ => return Err(missing(id)),
            };
            if same {
                let record = read_record(&directory, id)?;
                return Ok(Held { directory, record, _lock: lock });
            }
        }
    }

    /// What is known of a container, without waiting for whoever changes it.
    pub fn look(&self, id: &str) -> Result<(PathBuf, Record)> {
        let directory = self.directory(id)?;
        if !directory.is_dir() {
            return Err(missing(id));
        }
        let record = read_record(&directory, id)?;
        Ok((directory, record))
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
    /// Writes the record, all or nothing, to the disk.
    pub fn write(&self) -> Result<()> {
        write(&self.directory, RECORD, &serde_json::to_vec(&self.record).unwrap_or_default())
    }

    /// Writes the plan, for `exec` and for naming what fails at the start.
    pub fn write_plan(&self, plan: &Plan) -> Result<()> {
        write(&self.directory, PLAN, &serde_json::to_vec(plan).unwrap_or_default())
    }

    /// What it is doing.
    pub fn status(&self) -> Status {
        // Nobody but us is making it, as we have the lock.
        if self.record.pid == 0 { Status::Stopped } else { self.record.status(&self.directory) }
    }

    /// The plan it was made by.
    pub fn plan(&self) -> Result<Plan> {
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

impl Record {
    /// A new one.
    pub fn new(id: &str, bundle: &Path, rootfs: &Path) -> Self {
        Self {
            version: VERSION,
            id: id.to_owned(),
            oci_version: String::new(),
            boot_id: boot_id(),
            bundle: bundle.to_owned(),
            rootfs: rootfs.to_owned(),
            created: humantime::format_rfc3339_nanos(std::time::SystemTime::now()).to_string(),
            annotations: BTreeMap::new(),
            places: None,
            pid: 0,
            started: 0,
            owner: geteuid().as_raw(),
        }
    }

    /// What the container of this record and directory is doing.
    pub fn status(&self, directory: &Path) -> Status {
        if self.pid == 0 {
            // Whoever makes it holds the lock; without one it was left half-made.
            return if is_locked(directory) { Status::Creating } else { Status::Stopped };
        }
        if !self.is_alive() {
            return Status::Stopped;
        }
        if gate::is_closed(directory) {
            return Status::Created;
        }
        if self.groups().is_some_and(|groups| groups.is_frozen()) { Status::Paused } else { Status::Running }
    }

    /// Whether its first process lives.
    pub fn is_alive(&self) -> bool {
        self.pid > 0
            && self.boot_id == boot_id()
            && cgroup::started(self.pid.unsigned_abs()).map_or(true, |started| started == Some(self.started))
    }

    /// Its first process, which cannot be another by now; `None` when it is gone.
    pub fn process(&self) -> Option<OwnedFd> {
        let pidfd = process::pidfd_open(Pid::from_raw(self.pid)).ok()?;
        self.is_alive().then_some(pidfd)
    }

    /// Its cgroups, if they are there.
    pub fn groups(&self) -> Option<Groups> {
        Groups::open(self.places.clone()?).ok()
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

fn write(directory: &Path, name: &str, bytes: &[u8]) -> Result<()> {
    let (path, new) = (directory.join(name), directory.join(format!(".{name}.new")));
    let written = (|| {
        let mut file = std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        std::fs::rename(&new, &path)?;
        File::open(directory)?.sync_all()
    })();
    written.map_err(|error| io(&path, &error))
}

fn read_record(directory: &Path, id: &str) -> Result<Record> {
    let path = directory.join(RECORD);
    let bytes = match std::fs::read(&path) {
        // Begun, and given up before anything was made.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Ok(Record::new(id, Path::new(""), Path::new("")));
        }
        read => read.map_err(|error| io(&path, &error))?,
    };
    let wrong = |reason: String| Error::new(Step::State, path.display().to_string(), reason);
    if bytes.len() > MAX_BYTES {
        return Err(wrong("is longer than any state is".to_owned()));
    }
    let record: Record = serde_json::from_slice(&bytes).map_err(|error| wrong(error.to_string()))?;
    match record.version {
        VERSION => Ok(record),
        other => Err(wrong(format!("is of version {other}; this program knows {VERSION}"))),
    }
}

/// The plan that the container of a directory was made by.
pub fn read_plan(directory: &Path) -> Result<Plan> {
    let path = directory.join(PLAN);
    let bytes = std::fs::read(&path).map_err(|error| io(&path, &error))?;
    serde_json::from_slice(&bytes)
        .map_err(|error| Error::new(Step::State, path.display().to_string(), error.to_string()))
}

fn boot_id() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
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
    let errno = Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO));
    Error::errno(Step::State, path.display().to_string(), errno)
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
