//! OOM score adjustments, `proc_pid_oom_score_adj(5)`: whom the kernel kills first when memory runs out.

use std::ffi::{CStr, CString};
use std::os::fd::{BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;

use super::proc::write_setting;
use crate::error::{Error, Result, Step};
use crate::failure::{Applied, During};
use crate::sys::file;

/// That of a workload without a budget for memory.
const WITHOUT_BUDGET: i16 = 500;

/// By how much that of a session's commands is above init's. It counts as a fifth of the memory limit, which is more than init
/// needs. Otherwise, while a command that the kernel has killed is being freed, the kernel takes the largest process left, which
/// may be init.
const ABOVE_INIT: i16 = 200;

/// The adjustments of a sandbox, as far as they are not those of the process that sets them.
#[derive(Debug, Default)]
pub struct OomScore {
    first: Option<CString>,
    /// Those of a session's commands and of its init.
    commands: Option<(CString, CString)>,
}

impl OomScore {
    /// Parent half: the planned adjustment, or the caller's. Without a plan it is at least 0, because a protected caller must not
    /// protect the workload, and higher if no cgroup limits memory. Init of a session is never above its commands.
    pub fn prepare(planned: Option<i16>, has_budget: bool, session: bool) -> Result<Self> {
        let failed = |errno| Error::errno(Step::OomScore, OWN, errno);
        let mut read = [0; 16];
        let length =
            file::open(OWN, OFlag::O_RDONLY).and_then(|file| nix::unistd::read(file, &mut read)).map_err(failed)?;
        let own = std::str::from_utf8(&read[..length]).ok().and_then(|own| own.trim().parse().ok());
        let own: i16 = own.ok_or_else(|| failed(Errno::EINVAL))?;
        let least = own.max(if has_budget { 0 } else { WITHOUT_BUDGET });
        let (first, commands) = match planned {
            None if session => (least, (least + ABOVE_INIT).min(1000)),
            Some(planned) if session => (planned.min(least), planned),
            planned => (planned.unwrap_or(least), planned.unwrap_or(least)),
        };
        let text = |score: i16| CString::new(score.to_string()).expect("digits hold no NUL");
        Ok(Self {
            first: (first != own).then(|| text(first)),
            commands: (commands != first).then(|| (text(commands), text(first))),
        })
    }

    /// Whether there is nothing to write.
    pub fn is_callers(&self) -> bool {
        self.first.is_none() && self.commands.is_none()
    }

    /// Child half: sets this process's adjustment. Keeps its file if commands are to have another one: later this process is not
    /// dumpable, and could not open it.
    pub fn set(&self, proc: BorrowedFd<'_>) -> Applied<Option<OwnedFd>> {
        if let Some(text) = &self.first {
            write_setting(proc, NAME, text.to_bytes()).during(Step::OomScore, 0)?;
        }
        let open = || openat(proc, NAME, OFlag::O_WRONLY | OFlag::O_CLOEXEC, Mode::empty());
        self.commands.as_ref().map(|_| open()).transpose().during(Step::OomScore, 0)
    }

    /// Init's part: starts a command, which inherits the adjustment of commands. The file is init's.
    pub fn inherited<T>(&self, file: Option<&OwnedFd>, start: impl FnOnce() -> Applied<T>) -> Applied<T> {
        let (Some(file), Some((commands, init))) = (file, &self.commands) else { return start() };
        let write = |text: &CString| nix::unistd::write(file, text.to_bytes()).during(Step::OomScore, 1);
        write(commands)?;
        let started = start();
        write(init)?;
        started
    }
}

const OWN: &str = "/proc/self/oom_score_adj";
const NAME: &CStr = c"self/oom_score_adj";
