//! How a new process enters its cgroups of v1.
//!
//! A thread that moves itself takes no lock. A move of another process, or of one with all its threads, waits until every
//! processor of the host has passed through the scheduler: milliseconds (`cgroup_procs_write_start` in `kernel/cgroup/cgroup.c`,
//! since Linux 5.5). So a process moves itself while it has one thread, through files that its parent has opened. The kernel
//! checks the rights of the process that opened the file.

use std::os::fd::OwnedFd;
use std::path::PathBuf;

use nix::errno::Errno;
use nix::fcntl::OFlag;

use super::super::failed;
use super::Cgroup;
use crate::error::{Result, Step};
use crate::failure::{Applied, During};

const TASKS: &str = "tasks";

/// The open files by which a process moves itself into a cgroup.
#[derive(Debug)]
pub struct Entrance(Vec<(OwnedFd, PathBuf)>);

impl Cgroup {
    /// Opens the files. A hybrid host's cgroup v2 is not among them: processes are born there.
    pub fn entrance(&self) -> Result<Entrance> {
        let v1 = self.0.iter().filter(|member| !member.controllers.is_empty());
        let open = |dir: &super::Dir| {
            let path = dir.path().join(TASKS);
            let file = dir.file(TASKS, OFlag::O_WRONLY).map_err(|errno| failed(&path, errno))?;
            Ok((file, path))
        };
        v1.map(|member| open(&member.dir)).collect::<Result<_>>().map(Entrance)
    }
}

impl Entrance {
    /// Moves the calling process, which has one thread. The failed step's index is that of [`Self::object`].
    pub fn enter(&self) -> Applied {
        self.0.iter().enumerate().try_for_each(|(index, (file, _))| {
            let written = loop {
                match nix::unistd::write(file, b"0") {
                    Err(Errno::EINTR) => {}
                    written => break written,
                }
            };
            written.map(drop).during(Step::Cgroup, index + 1) // 0 is the cgroup namespace
        })
    }

    /// The file of a failed step.
    pub fn object(&self, index: usize) -> Option<String> {
        self.0.get(index.checked_sub(1)?).map(|(_, path)| path.display().to_string())
    }
}
