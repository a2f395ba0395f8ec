//! Freezes and thaws a container, and signals all its processes.

use std::os::fd::AsFd as _;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::unistd::Pid;

use super::{Dirs, Groups};
use crate::cgroup::files::{Dir, keyed};
use crate::cgroup::{failed, v1};
use crate::error::{Error, Result, Step};
use crate::sys::{process, schedule};

/// The time limit for a container to freeze.
const TIMEOUT: Duration = Duration::from_secs(10);

impl Groups {
    /// The directory with which the container is frozen. `None` if this host has no freezer.
    pub fn freezer(&self) -> Option<std::path::PathBuf> {
        self.with("freezer").map(|dir| dir.path().to_owned())
    }

    /// Freezes or thaws every process of the container.
    pub fn set_frozen(&self, frozen: bool) -> Result<()> {
        let Some(dir) = self.with("freezer") else {
            return Err(Error::new(Step::Cgroup, "freezer", "no cgroup hierarchy of this host can stop a container"));
        };
        let (file, text) = match (self.places.is_v2(), frozen) {
            (true, frozen) => ("cgroup.freeze", if frozen { "1" } else { "0" }),
            (false, frozen) => ("freezer.state", if frozen { "FROZEN" } else { "THAWED" }),
        };
        let deadline = Instant::now() + TIMEOUT;
        loop {
            // In v1 a process that was forked meanwhile needs another request.
            self.request_freeze(dir, frozen)?;
            for _ in 0..20 {
                if self.is_all_frozen() == frozen {
                    return Ok(());
                }
                schedule::pause(Duration::from_millis(1));
            }
            if Instant::now() > deadline {
                if frozen {
                    let _ = self.request_freeze(dir, false);
                }
                return Err(Error::new(Step::Cgroup, file, format!("did not become {text} in time")));
            }
        }
    }

    fn request_freeze(&self, dir: &Dir, frozen: bool) -> Result<()> {
        match self.places.is_v2() {
            true => dir
                .write("cgroup.freeze", if frozen { "1" } else { "0" })
                .map_err(|errno| failed(&dir.path().join("cgroup.freeze"), errno)),
            false => v1::request_freeze(dir, frozen),
        }
    }

    /// Whether it is frozen, or about to be. Processes that enter, such as those of `exec`, take a moment.
    pub fn is_frozen(&self) -> bool {
        let Some(dir) = self.with("freezer") else { return false };
        match self.places.is_v2() {
            true => in_v2(dir),
            false => dir.read("freezer.state").is_ok_and(|text| text.trim() != "THAWED"),
        }
    }

    /// Whether all its processes are frozen.
    fn is_all_frozen(&self) -> bool {
        let Some(dir) = self.with("freezer") else { return false };
        match self.places.is_v2() {
            true => all_in_v2(dir),
            false => dir.read("freezer.state").is_ok_and(|text| text.trim() == "FROZEN"),
        }
    }

    /// Whether any of its processes is frozen, even by a freezer cgroup of its own.
    pub fn has_frozen_process(&self) -> bool {
        self.is_frozen() || self.frozen_below()
    }

    fn frozen_below(&self) -> bool {
        self.freezers_below().iter().any(|dir| dir.read("freezer.state").is_ok_and(|text| text.trim() != "THAWED"))
    }

    /// The freezer cgroups of v1 that the container created below its own.
    fn freezers_below(&self) -> Vec<Dir> {
        fn walk(path: &Path, found: &mut Vec<Dir>) {
            for entry in std::fs::read_dir(path).into_iter().flatten().flatten() {
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    found.extend(Dir::open(&entry.path()));
                    walk(&entry.path(), found);
                }
            }
        }
        let mut found = Vec::new();
        if let Some(dir) = self.with("freezer").filter(|_| !self.places.is_v2()) {
            walk(dir.path(), &mut found);
        }
        found
    }

    /// Sends a signal to every process of the container.
    pub fn signal_all(&self, signal: i32) -> Result<()> {
        if signal == libc::SIGKILL
            && let Dirs::V2(dir) = &self.dirs
            && dir.write("cgroup.kill", "1").is_ok()
        {
            return Ok(());
        }
        let was_frozen = self.is_frozen();
        let stopped = self.set_frozen(true).is_ok(); // so that no new process is missed
        for pid in self.pids() {
            // The pid is looked up again after the pidfd is open, because the pid could have been reused.
            let Ok(held) = process::pidfd_open(Pid::from_raw(pid)) else { continue };
            if self.pids().contains(&pid) {
                let _ = process::pidfd_send_signal(held.as_fd(), signal);
            }
        }
        if signal == libc::SIGKILL {
            for dir in self.freezers_below() {
                let _ = v1::request_freeze(&dir, false); // within what the freezers above it allow
            }
        }
        // Killed processes must run again to exit.
        if stopped && (!was_frozen || signal == libc::SIGKILL) { self.set_frozen(false) } else { Ok(()) }
    }
}

/// Whether a cgroup of v2 is frozen, or about to be.
pub fn in_v2(dir: &Dir) -> bool {
    all_in_v2(dir) || dir.read("cgroup.freeze").is_ok_and(|text| text.trim() == "1")
}

fn all_in_v2(dir: &Dir) -> bool {
    dir.read("cgroup.events").is_ok_and(|text| keyed(&text, "frozen") == Some(1))
}
