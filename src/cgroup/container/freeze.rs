//! Stopping and resuming all of a container, and killing it as a whole.

use std::os::fd::AsFd as _;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::unistd::Pid;

use super::{Dirs, Groups};
use crate::cgroup::files::{Dir, keyed};
use crate::cgroup::{failed, v1};
use crate::error::{Error, Result, Step};
use crate::sys::{process, schedule};

/// How long a container may take to stop.
const PATIENCE: Duration = Duration::from_secs(10);

impl Groups {
    /// The directory that a container is stopped by, if this host has one.
    pub fn freezer(&self) -> Option<std::path::PathBuf> {
        self.with("freezer").map(|dir| dir.path().to_owned())
    }

    /// Stops or resumes every process in it.
    pub fn set_frozen(&self, frozen: bool) -> Result<()> {
        let Some(dir) = self.with("freezer") else {
            return Err(Error::new(Step::Cgroup, "freezer", "no cgroup hierarchy of this host can stop a container"));
        };
        let (file, text) = match (self.places.is_v2(), frozen) {
            (true, frozen) => ("cgroup.freeze", if frozen { "1" } else { "0" }),
            (false, frozen) => ("freezer.state", if frozen { "FROZEN" } else { "THAWED" }),
        };
        let deadline = Instant::now() + PATIENCE;
        loop {
            // A process of v1 that was forked meanwhile needs another asking.
            self.ask_to_freeze(dir, frozen)?;
            for _ in 0..20 {
                if self.stands_still() == frozen {
                    return Ok(());
                }
                schedule::pause(Duration::from_millis(1));
            }
            if Instant::now() > deadline {
                if frozen {
                    let _ = self.ask_to_freeze(dir, false);
                }
                return Err(Error::new(Step::Cgroup, file, format!("did not become {text} in time")));
            }
        }
    }

    fn ask_to_freeze(&self, dir: &Dir, frozen: bool) -> Result<()> {
        match self.places.is_v2() {
            true => dir
                .write("cgroup.freeze", if frozen { "1" } else { "0" })
                .map_err(|errno| failed(&dir.path().join("cgroup.freeze"), errno)),
            false => v1::ask_to_freeze(dir, frozen),
        }
    }

    /// Whether it is stopped, or about to be: a process that comes in, as those of `exec` do, takes a moment.
    pub fn is_frozen(&self) -> bool {
        let Some(dir) = self.with("freezer") else { return false };
        match self.places.is_v2() {
            true => self.stands_still() || dir.read("cgroup.freeze").is_ok_and(|text| text.trim() == "1"),
            false => dir.read("freezer.state").is_ok_and(|text| text.trim() != "THAWED"),
        }
    }

    /// Whether none of its processes runs.
    fn stands_still(&self) -> bool {
        let Some(dir) = self.with("freezer") else { return false };
        match self.places.is_v2() {
            true => dir.read("cgroup.events").is_ok_and(|text| keyed(&text, "frozen") == Some(1)),
            false => dir.read("freezer.state").is_ok_and(|text| text.trim() == "FROZEN"),
        }
    }

    /// Whether any process in it is stopped, by a freezer of its own as well.
    pub fn has_frozen(&self) -> bool {
        self.is_frozen() || self.frozen_below()
    }

    fn frozen_below(&self) -> bool {
        self.freezers_below().iter().any(|dir| dir.read("freezer.state").is_ok_and(|text| text.trim() != "THAWED"))
    }

    /// The freezers of cgroup v1 that the container made below its own.
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

    /// Sends a signal to every process in it.
    pub fn signal_all(&self, signal: i32) -> Result<()> {
        if signal == libc::SIGKILL
            && let Dirs::V2(dir) = &self.dirs
            && dir.write("cgroup.kill", "1").is_ok()
        {
            return Ok(());
        }
        let was_frozen = self.is_frozen();
        let stopped = self.set_frozen(true).is_ok(); // so that none is missed
        for pid in self.pids() {
            // Looked up again once it is held, or its number could be another's by now.
            let Ok(held) = process::pidfd_open(Pid::from_raw(pid)) else { continue };
            if self.pids().contains(&pid) {
                let _ = process::pidfd_send_signal(held.as_fd(), signal);
            }
        }
        if signal == libc::SIGKILL {
            for dir in self.freezers_below() {
                let _ = v1::ask_to_freeze(&dir, false); // as much as those above it let it
            }
        }
        // The dead must run once more to be gone.
        if stopped && (!was_frozen || signal == libc::SIGKILL) { self.set_frozen(false) } else { Ok(()) }
    }
}
