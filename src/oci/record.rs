//! What is known of a container: the record that every later command reads, and what it says of the living.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use nix::unistd::{Pid, geteuid};
use serde::{Deserialize, Serialize};

use crate::cgroup;
use crate::cgroup::container::{Groups, Places};
use crate::error::{Error, Result, Step};
use crate::report::Enforced;
use crate::sandbox::container::gate;
use crate::sys::process;

/// Version of the record.
const VERSION: u32 = 1;
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

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
    /// Whether its plan has hooks for after its start or its end; records of before this was written may.
    #[serde(default = "unknown")]
    pub later_hooks: bool,
    /// Its first process, once that is ready; 0 before.
    pub pid: i32,
    /// When that was started, in clock ticks since the boot.
    pub started: u64,
    /// Who made it.
    pub owner: u32,
    /// What confines it.
    #[serde(default)]
    pub enforced: Option<Enforced>,
    /// How many seccomp filters its program has at least, if it was to have one.
    #[serde(default)]
    pub filters: Option<u64>,
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

impl Record {
    /// A new one.
    ///
    /// # Errors
    /// The boot's id cannot be read: whoever comes later would take what there is of the container for gone.
    pub fn new(id: &str, bundle: &Path, rootfs: &Path) -> Result<Self> {
        let boot_id = boot_id().map_err(|error| Error::io(Step::State, BOOT_ID, &error))?;
        Ok(Self {
            version: VERSION,
            id: id.to_owned(),
            oci_version: String::new(),
            boot_id,
            bundle: bundle.to_owned(),
            rootfs: rootfs.to_owned(),
            created: humantime::format_rfc3339_nanos(std::time::SystemTime::now()).to_string(),
            annotations: BTreeMap::new(),
            places: None,
            later_hooks: true,
            pid: 0,
            started: 0,
            owner: geteuid().as_raw(),
            enforced: None,
            filters: None,
        })
    }

    /// What the container of this record and directory is doing, unless somebody is just making it.
    pub(super) fn status(&self, directory: &Path) -> Status {
        if !self.runs() {
            return Status::Stopped;
        }
        let status = if self.groups().is_some_and(|groups| groups.is_frozen()) {
            Status::Paused // also where it waits to be started, which it could not be
        } else if gate::is_closed(directory) {
            Status::Created
        } else {
            Status::Running
        };
        // By now what was looked at may have been that of a process that ends, or of another container of the same name.
        if self.runs() { status } else { Status::Stopped }
    }

    /// Whether it was made since this host was booted: otherwise nothing of it is left but files. Where that cannot be told
    /// it was: what there is has to go, and a process is known by more than this.
    pub fn is_of_this_boot(&self) -> bool {
        boot_id().map_or(true, |now| self.boot_id == now)
    }

    /// Whether its first process is there.
    pub fn is_alive(&self) -> bool {
        self.is_there(cgroup::started)
    }

    /// Whether its first process is there, and not about to be gone.
    pub fn runs(&self) -> bool {
        self.is_there(cgroup::runs_since)
    }

    fn is_there(&self, since: impl FnOnce(u32) -> std::io::Result<Option<u64>>) -> bool {
        self.pid > 0
            && self.is_of_this_boot()
            && since(self.pid.unsigned_abs()).map_or(true, |started| started == Some(self.started))
    }

    /// Its first process, which cannot be another by now; `None` when it is gone.
    pub fn process(&self) -> Option<OwnedFd> {
        let pidfd = process::pidfd_open(Pid::from_raw(self.pid)).ok()?;
        self.is_alive().then_some(pidfd)
    }

    /// Its cgroups, if they are there.
    pub fn groups(&self) -> Option<Groups> {
        self.needed_groups().ok().flatten()
    }

    /// As [`Self::groups`], for a process that must not be outside of them: `None` only where it has none.
    ///
    /// # Errors
    /// They cannot be opened.
    pub fn needed_groups(&self) -> Result<Option<Groups>> {
        // After a boot they would be somebody else's of the same name.
        if !self.is_of_this_boot() {
            return Ok(None);
        }
        self.places.clone().map(Groups::open).transpose()
    }
}

fn unknown() -> bool {
    true
}

/// Reads a record's text; the error is the reason why it is none.
pub fn parse(bytes: &[u8]) -> std::result::Result<Record, String> {
    #[derive(Deserialize)]
    struct Version {
        version: u32,
    }
    let damaged = |error: serde_json::Error| format!("{DAMAGED}: {error}");
    // Another version may have other fields: that is said first.
    match serde_json::from_slice(bytes).map_err(damaged)? {
        Version { version: VERSION } => serde_json::from_slice(bytes).map_err(damaged),
        Version { version } => Err(format!("is of version {version}; this program knows {VERSION}")),
    }
}

/// How the reason begins why a record cannot be read.
pub(super) const DAMAGED: &str = "is damaged";

/// Whether an error says that a container's record cannot be read.
pub fn is_damaged(error: &Error) -> bool {
    matches!(&error.cause, crate::error::Cause::Reason(reason) if reason.starts_with(DAMAGED))
}

fn boot_id() -> std::io::Result<String> {
    std::fs::read_to_string(BOOT_ID).map(|text| text.trim().to_owned())
}
