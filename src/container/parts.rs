//! The parts of a container that are opened, parsed and compiled before its process exists. Each part keeps its own result:
//! a start takes the first error, and a dry run reports all of them.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use nix::fcntl::OFlag;

use crate::confine::caps::Sets;
use crate::confine::label::PreparedLabel;
use crate::confine::landlock::{self, PreparedLandlock};
use crate::confine::process::PreparedProcess;
use crate::confine::seccomp::install::PreparedSeccomp;
use crate::confine::{label, process, seccomp, user};
use crate::error::{Error, Result, Step};
use crate::plan::container::{CgroupView, Joined, NamespaceKind};
use crate::plan::{Bytes, ContainerPlan, Facility, Network};
use crate::report::Degraded;
use crate::rootfs::container_mounts::Surroundings;
use crate::rootfs::container_root::{self, PreparedContainerRoot, Problem};
use crate::sys::{file, mount, namespace};

/// The result of each part.
#[derive(Debug)]
pub struct Parts {
    /// The namespaces to enter by path, in the order of the plan.
    pub joined: Vec<Result<Join>>,
    /// The label.
    pub label: Result<PreparedLabel>,
    /// The root and all mounts; `None` if a mount namespace is entered.
    pub root: std::result::Result<Option<PreparedContainerRoot>, Vec<Problem>>,
    /// The program and its inherited settings.
    pub process: Result<PreparedProcess>,
    /// Its Landlock rules.
    pub landlock: Result<Option<PreparedLandlock>>,
    /// Its system call filter.
    pub seccomp: Result<Option<PreparedSeccomp>>,
    /// Its capabilities, without those that the runtime lacks.
    pub capabilities: Sets,
    /// The capabilities that the runtime lacks, as a mask.
    pub lost_capabilities: u64,
    /// Facilities that are missing, which the plan permits.
    pub degraded: Vec<Degraded>,
}

/// A namespace to enter by path.
#[derive(Debug)]
pub struct Join {
    /// Its kind.
    pub kind: NamespaceKind,
    /// Its path.
    pub path: Bytes,
    /// The open namespace.
    pub fd: OwnedFd,
}

impl Parts {
    /// Opens every part. `new_user` is whether the user namespace differs from the runtime's.
    pub fn open(plan: &ContainerPlan, cgroups: &CgroupView, privileged: bool, new_user: bool) -> Self {
        let joined: Vec<_> = plan.joined.iter().map(open_join).collect();
        let fd_of = |kind| joined.iter().flatten().find(|join| join.kind == kind).map(|join| join.fd.as_fd());
        let root = container_root::prepare(
            plan,
            &mut Surroundings {
                root: plan.root.as_ref().map_or(Path::new(""), Bytes::as_path),
                privileged,
                locked: new_user,
                idmap: user::idmap_namespace_of,
                maps: (&plan.uid_map, &plan.gid_map),
                users: fd_of(NamespaceKind::User),
                pids: fd_of(NamespaceKind::Pid).filter(|_| !new_user && mount::can_show_other_pids()),
                cgroups,
                label: plan.mount_label.as_deref(),
            },
        );
        // A new user namespace grants all capabilities.
        let wanted = Sets::of(&plan.process.capabilities);
        let (capabilities, lost_capabilities) = if new_user { (wanted, 0) } else { wanted.possible() };
        // The engine may have connected the container's network, so a port is closed only if ports are listed.
        let may_be_missing = plan.confinement.allow_degraded.contains(&Facility::Landlock);
        let implied = landlock::Implied { mounts: None, network: Network::Host, logs: false, may_be_missing };
        let mut degraded = Vec::new();
        Self {
            joined,
            label: label::prepare(plan),
            root,
            // The limits are exactly those of the configuration.
            process: process::prepare(
                &plan.process.command,
                plan.confinement.hostname.as_ref(),
                process::Rules::default(),
            ),
            landlock: landlock::prepare(plan.confinement.landlock.as_ref(), &implied, &mut degraded),
            seccomp: seccomp::install::prepare(plan.confinement.seccomp.as_ref(), &plan.into())
                .map(|(filter, _)| filter),
            capabilities,
            lost_capabilities,
            degraded,
        }
    }
}

/// Opens a namespace and checks its kind.
fn open_join(Joined { kind, path }: &Joined) -> Result<Join> {
    let object = || format!("{} namespace {path}", kind.name());
    let failed = |errno| Error::errno(Step::Join, object(), errno);
    // O_NONBLOCK: opening a FIFO would wait for a writer.
    let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    let fd = file::open(path.as_path(), flags).map_err(failed)?;
    match namespace::kind(fd.as_fd()) {
        Ok(found) if found as u32 == kind.number() => Ok(Join { kind: *kind, path: path.clone(), fd }),
        Ok(_) => Err(Error::new(Step::Join, object(), "is a namespace of a different kind")),
        Err(_) => Err(Error::new(Step::Join, object(), "is not a namespace")),
    }
}
