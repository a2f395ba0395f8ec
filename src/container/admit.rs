//! Prepares a new process from outside before it builds its root: limits, id maps, OOM score, and host resources that
//! move into the container.

use std::os::fd::OwnedFd;

use nix::errno::Errno;
use nix::sys::stat::Mode;

use super::{Launch, net_devices, rdt};
use crate::confine::{privilege, user};
use crate::error::{Cause, Error, Result, Step};
use crate::launch::namespaces::Inhabited;
use crate::launch::steps::step;
use crate::sys::process;

impl Launch<'_> {
    /// Prepares the new process from outside and sends the first "go". Returns its directory in `/proc`.
    pub(super) fn admit(&self) -> Result<OwnedFd> {
        let proc_pid = user::open_proc_pid(self.pid)?;
        match Inhabited::by(&proc_pid) {
            // An unprivileged reader cannot inspect a process that is not dumpable. Without the check, success of clone3 must
            // do.
            Err(error) if matches!(error.cause, Cause::Errno(Errno::EACCES)) && !process::is_hosts_root() => {}
            inhabited => drop(inhabited?.differing(|name| self.prepared.new_namespaces.contains(&name))?),
        }
        step("namespaces", || format!("new: {}", self.prepared.new_namespaces.join(",")));
        self.prepared.process.raise_limits(self.pid)?;
        if self.prepared.users.has_maps() {
            self.prepared.users.write_maps(&proc_pid, self.pid)?;
            step("id map", || format!("of pid {} written", self.pid));
        }
        self.set_oom_score(&proc_pid)?;
        if let Some(notes) = self.notes {
            // Host resources that move into the container.
            net_devices::attach(&self.plan.net_devices, &proc_pid)?;
            rdt::enter(self.plan.intel_rdt.as_ref(), &self.plan.confinement.id, self.pid, notes)?;
        }
        self.ends.go()?;
        step("released", || format!("pid {} builds its root", self.pid));
        Ok(proc_pid)
    }

    fn set_oom_score(&self, proc_pid: &OwnedFd) -> Result<()> {
        let Some(score) = self.plan.process.command.oom_score_adj else { return Ok(()) };
        let failed = |errno| Error::errno(Step::OomScore, score.to_string(), errno);
        let flags = nix::fcntl::OFlag::O_WRONLY | nix::fcntl::OFlag::O_CLOEXEC;
        let file = nix::fcntl::openat(proc_pid, "oom_score_adj", flags, Mode::empty()).map_err(failed)?;
        match nix::unistd::write(file, score.to_string().as_bytes()) {
            // Lowering the score requires CAP_SYS_RESOURCE, which an unprivileged caller does not have.
            Err(Errno::EACCES) if privilege::is_privileged() == Ok(false) && !self.plan.uid_map.is_empty() => Ok(()),
            Err(errno) => Err(failed(errno).hint("an adjustment below the caller's own requires CAP_SYS_RESOURCE")),
            Ok(_) => Ok(()),
        }
    }
}
