//! What the parent of a run can do with mounts, and what the run may lack.

use std::os::fd::OwnedFd;
use std::rc::Rc;

use crate::error::Result;
use crate::plan::Facility;

/// Creates the user namespace of an idmapped mount for files of this host user and group.
pub type Idmap<'a> = &'a mut dyn FnMut((u32, u32)) -> Result<Rc<OwnedFd>>;

/// The parent's privileges, and what a root may lack.
pub struct Powers<'a> {
    /// Whether mounts can be cloned and idmapped before the new namespaces exist.
    pub privileged: bool,
    /// Maps the owner of a writable bind to the workload. `None` if the workload has the caller's own ids.
    pub idmap: Option<Idmap<'a>>,
    /// The workload's user and group on the host. Their files need no map.
    pub host_ids: (u32, u32),
    /// The owner of files that could not be mapped.
    pub unmapped: Option<(u32, u32)>,
    /// Whether Landlock will be in force.
    pub landlock: bool,
    /// What may be missing.
    pub may_lack: &'a [Facility],
}
