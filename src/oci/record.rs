//! The record of a container, which every later command reads, and the status that follows from it.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use nix::unistd::{Pid, geteuid};
use serde::{Deserialize, Serialize};

use crate::cgroup;
use crate::cgroup::container::{Groups, Places};
use crate::container::gate;
use crate::error::{Error, Result, Step};
use crate::plan::container::OCI_VERSION;
use crate::report::Enforced;
use crate::sys::{file, process};

/// The version of the record's format.
const VERSION: u32 = 1;
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// The record of a container.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Record {
    /// The version of the record's format.
    pub version: u32,
    /// The container's id.
    pub id: String,
    /// The version of the specification that its configuration names.
    pub oci_version: String,
    /// The boot id of the host when it was created.
    pub boot_id: String,
    /// Whether the host has booted since. Determined when the record is read. False if the boot id cannot be read: what is left
    /// of the container must still be removed, and its process is also identified by its start time.
    #[serde(skip)]
    pub is_of_earlier_boot: bool,
    /// Its bundle.
    pub bundle: PathBuf,
    /// Its root on the host.
    pub rootfs: PathBuf,
    /// When it was created.
    pub created: String,
    /// Annotations of its configuration.
    pub annotations: BTreeMap<String, String>,
    /// The paths of its cgroups, which may not exist yet.
    pub places: Option<Places>,
    /// Whether its plan has poststart or poststop hooks; true for records that lack this field.
    #[serde(default = "unknown")]
    pub later_hooks: bool,
    /// Its first process; 0 until the container is created.
    pub pid: i32,
    /// Start time of that process, in clock ticks since the boot.
    pub started: u64,
    /// The user id of its creator.
    pub owner: u32,
    /// Its verified confinement.
    #[serde(default)]
    pub enforced: Option<Enforced>,
    /// The least number of seccomp filters that its program has, if a filter was configured.
    #[serde(default)]
    pub filters: Option<u64>,
}

/// The status of a container, as the specification defines it.
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
    /// Its name.
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
    /// A new record.
    ///
    /// # Errors
    /// The boot id cannot be read. Without it, later commands would assume that the container is gone.
    pub fn new(id: &str, bundle: &Path, rootfs: &Path) -> Result<Self> {
        let boot_id = boot_id().map_err(|errno| Error::errno(Step::State, BOOT_ID, errno))?;
        Ok(Self {
            version: VERSION,
            id: id.to_owned(),
            oci_version: String::new(),
            boot_id,
            is_of_earlier_boot: false,
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

    /// The status of the container with this record and directory, unless another command is creating it.
    pub(super) fn status(&self, directory: &Path) -> Status {
        if !self.runs() {
            return Status::Stopped;
        }
        let status = if self.freezer().is_some_and(|freezer| freezer.is_frozen()) {
            Status::Paused // also before the start: a frozen container cannot be started
        } else if gate::is_closed(directory) {
            Status::Created
        } else {
            Status::Running
        };
        // Checked again: the process may have ended meanwhile, or another container may have the same name now.
        if self.runs() { status } else { Status::Stopped }
    }

    /// Compares the boot id with the host's, for a record that was read.
    pub fn find_boot(&mut self) {
        self.is_of_earlier_boot = boot_id().is_ok_and(|now| self.boot_id != now);
    }

    /// Whether its first process exists.
    pub fn is_alive(&self) -> bool {
        self.is_there(cgroup::started)
    }

    /// Whether its first process exists and is not exiting.
    pub fn runs(&self) -> bool {
        self.is_there(cgroup::runs_since)
    }

    fn is_there(&self, since: impl FnOnce(u32) -> nix::Result<Option<u64>>) -> bool {
        self.pid > 0
            && !self.is_of_earlier_boot
            && since(self.pid.unsigned_abs()).map_or(true, |started| started == Some(self.started))
    }

    /// A pidfd of its first process; `None` if it has exited. The pid cannot have been reused.
    pub fn process(&self) -> Option<OwnedFd> {
        let pidfd = process::pidfd_open(Pid::from_raw(self.pid)).ok()?;
        self.is_alive().then_some(pidfd)
    }

    /// Its cgroups, if they exist.
    pub fn groups(&self) -> Option<Groups> {
        self.needed_groups().ok().flatten()
    }

    /// The cgroup that freezes it, if there is one. In cgroup v1 the other cgroups are not opened.
    pub fn freezer(&self) -> Option<Groups> {
        let places = self.places.as_ref().filter(|_| !self.is_of_earlier_boot)?;
        Groups::open(places.only("freezer")).ok()
    }

    /// As [`Self::groups`], for a process that must not run outside of them: `None` only if the container has no cgroups.
    ///
    /// # Errors
    /// They cannot be opened.
    pub fn needed_groups(&self) -> Result<Option<Groups>> {
        // After a reboot, cgroups of the same name belong to another container.
        if self.is_of_earlier_boot {
            return Ok(None);
        }
        self.places.clone().map(Groups::open).transpose()
    }
}

fn unknown() -> bool {
    true
}

/// Parses a record. The error is the reason.
pub fn parse(bytes: &[u8]) -> std::result::Result<Record, String> {
    #[derive(Deserialize)]
    struct Version {
        version: u32,
    }
    let damaged = |error: serde_json::Error| format!("{DAMAGED}: {error}");
    // The version is checked first, because another version may have other fields.
    match serde_json::from_slice(bytes).map_err(damaged)? {
        Version { version: VERSION } => serde_json::from_slice(bytes).map_err(damaged),
        Version { version } => Err(format!("is of version {version}; this program supports {VERSION}")),
    }
}

/// The beginning of the reason for a record that cannot be parsed.
pub(super) const DAMAGED: &str = "is damaged";

/// Whether an error means that a container's record cannot be parsed.
pub fn is_damaged(error: &Error) -> bool {
    matches!(&error.cause, crate::error::Cause::Reason(reason) if reason.starts_with(DAMAGED))
}

fn boot_id() -> nix::Result<String> {
    file::read_text(BOOT_ID).map(|text| text.trim().to_owned())
}

impl Record {
    /// The state in the specification's format, for hooks.
    pub fn state_text(&self, pid: i32, status: &str) -> String {
        self.state(pid, status).to_string()
    }

    /// The same for `state`, which says more.
    pub fn state(&self, pid: i32, status: &str) -> serde_json::Value {
        let annotations = Some(&self.annotations).filter(|annotations| !annotations.is_empty());
        let mut state = oci_spec::runtime::State::default();
        state
            .set_version(OCI_VERSION.to_owned())
            .set_id(self.id.clone())
            .set_pid(Some(pid))
            .set_bundle(self.bundle.clone())
            .set_annotations(annotations.map(|annotations| annotations.clone().into_iter().collect()));
        let mut state = serde_json::json!(state);
        state["status"] = status.into(); // the type does not have "paused"
        state
    }
}

/// How a container ended, as far as it is known.
#[derive(Clone, Debug, Default)]
pub enum End {
    /// Unknown: another process waited for it.
    #[default]
    Unknown,
    /// With this exit code, or 128 and the signal.
    Code(u8),
    /// It could not be created.
    Failed(Error),
}
