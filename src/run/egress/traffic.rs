//! The traffic of a sandbox while it runs, for other processes: a file in memory that its supervisor keeps open.

use std::ffi::CStr;
use std::fs::{read_dir, read_link};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;

use nix::fcntl::OFlag;
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::uio::pread;
use stockade_egress::gateway::Traffic;

use crate::error::{Error, Result, Step};
use crate::sys::{file, shared};

const NAME: &CStr = c"stockade-traffic";

/// What was counted so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted {
    /// Open connections.
    pub connections: u64,
    /// Bytes from the workload.
    pub sent_bytes: u64,
    /// Bytes to the workload.
    pub received_bytes: u64,
}

/// The file, and the counters in it.
pub fn prepare() -> Result<(OwnedFd, Traffic)> {
    let failed = |errno| Error::errno(Step::Egress, "counters", errno);
    let file = memfd_create(NAME, MFdFlags::MFD_CLOEXEC).map_err(failed)?;
    let counters = shared::counters(file.as_fd()).map_err(failed)?;
    Ok((file, Traffic(counters)))
}

/// What the supervisor's gateway has counted. `None` if it has none, or is another user's.
pub fn of(supervisor: u32) -> Option<Counted> {
    let is_file = |path: &Path| {
        read_link(path).is_ok_and(|target| {
            let name = target.to_str().and_then(|target| target.strip_prefix("/memfd:"));
            name.and_then(|name| name.strip_suffix(" (deleted)")).is_some_and(|name| name.as_bytes() == NAME.to_bytes())
        })
    };
    let mut descriptors = read_dir(format!("/proc/{supervisor}/fd")).ok()?.flatten().map(|entry| entry.path());
    let file = file::open(&descriptors.find(|path| is_file(path))?, OFlag::O_RDONLY).ok()?;
    let mut bytes = [0; 24];
    (pread(&file, &mut bytes, 0) == Ok(bytes.len())).then_some(())?;
    let number = |at: usize| bytes[at..at + 8].try_into().map(u64::from_ne_bytes).ok();
    Some(Counted { connections: number(0)?, sent_bytes: number(8)?, received_bytes: number(16)? })
}
