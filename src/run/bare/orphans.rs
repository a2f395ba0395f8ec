//! What is left if the init of a run without a pid namespace dies before it has ended its tree. Its guard kills the tree
//! (`confine::tree`); this process adopts and reaps it, so that the run is not over before it is dead.

use std::time::{Duration, Instant};

use nix::unistd::{Pid, getpid};

use crate::error::{Error, Result, Step};
use crate::sys::process;
use crate::sys::status::Status;

/// How long their end may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Adopts orphans until it is dropped.
#[derive(Debug)]
pub struct Orphans {
    /// The children that this process had before the run, as a shell's that has executed it.
    before: Vec<i32>,
    /// Whether it adopted orphans before.
    was: bool,
}

impl Orphans {
    /// Begins to adopt orphans. Called before the run has a process.
    pub fn adopt() -> Result<Self> {
        let (before, was) = (children(), nix::sys::prctl::get_child_subreaper().unwrap_or(false));
        process::adopt_orphans(true).map_err(|errno| Error::errno(Step::Supervise, "orphans", errno))?;
        Ok(Self { before, was })
    }

    /// Waits until every process that init has left is dead. None of them is killed here: a child of the caller's that another
    /// child has left looks the same.
    pub fn reap(&self) -> Result<()> {
        let until = Instant::now() + PATIENCE;
        loop {
            let left: Vec<_> =
                children().into_iter().filter(|pid| !self.before.contains(pid) && is_confined(*pid)).collect();
            if left.is_empty() {
                return Ok(());
            }
            if Instant::now() > until {
                return Err(Error::new(Step::Supervise, format!("processes {left:?}"), "of the workload do not end"));
            }
            for pid in left.into_iter().map(Pid::from_raw) {
                let _ = process::reap(pid); // nothing, while it lives
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Orphans {
    fn drop(&mut self) {
        let _ = process::adopt_orphans(self.was);
    }
}

/// Whether a child has the no_new_privs of a workload.
fn is_confined(pid: i32) -> bool {
    Status::of(pid).is_ok_and(|status| status.no_new_privs() == Some(true))
}

/// The numbers of this process's children.
fn children() -> Vec<i32> {
    let own = getpid().as_raw();
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let is_child = |pid: &i32| {
        let stat = std::fs::read(format!("/proc/{pid}/stat")).unwrap_or_default();
        // The name, which the process chooses, may contain parentheses.
        let fields = stat.rsplit(|byte| *byte == b')').next().unwrap_or_default();
        let mut fields = fields.split(|byte| *byte == b' ').filter(|field| !field.is_empty());
        fields.nth(1).and_then(|parent| std::str::from_utf8(parent).ok()?.parse().ok()) == Some(own)
    };
    numbers.filter(is_child).collect()
}
