//! Policies that a project keeps in its own workspace, where the workload writes.
//!
//! What lies between the workspace and the file is mounted read-only over itself. A mount point can be neither renamed nor removed
//! nor replaced in the sandbox (EBUSY), so the next run finds the same file at that path. A directory above it could be renamed,
//! and another one put in its place: so it is the topmost directory that is mounted, with all that it holds.

use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;

use super::mount::WORKSPACE;
use crate::plan::{Bytes, Facility, Mount, MountKind, RunPlan};
use crate::sys::file::open;
use crate::sys::walk::name_of;

/// The name of a policy that no run changes in its workspace, whether the run uses it or not.
pub const NAME: &str = "stockade.toml";

/// The writable workspace of a plan.
#[derive(Debug)]
pub struct Workspace {
    /// Its index among the mounts.
    at: usize,
    source: Bytes,
    /// Its path on the host, without links.
    real: PathBuf,
}

impl Workspace {
    /// The workspace, if a read-only mount in it would hold.
    pub fn of(plan: &RunPlan) -> Option<Self> {
        let writable = |mount: &Mount| match &mount.kind {
            MountKind::Bind { source } if !mount.read_only => Some(source.clone()),
            _ => None,
        };
        let at = plan.mounts.iter().position(|mount| mount.destination == WORKSPACE.into())?;
        let source = writable(&plan.mounts[at])?;
        // A mount is nothing to a second name of the directory, to who can unmount it, and where there are no mounts.
        let again = plan.mounts.iter().filter(|mount| writable(mount).as_ref() == Some(&source)).count() > 1;
        let unmounts = plan.namespaces.nested > 0 || !plan.capabilities.is_empty();
        let without_mounts = plan.confinement.allow_degraded.contains(&Facility::Namespaces);
        if again || unmounts || without_mounts {
            return None;
        }
        let real = name_of(open(source.as_path(), OFlag::O_PATH).ok()?)?;
        Some(Self { at, source, real })
    }

    /// Adds read-only mounts for these files to the plan, as far as they lie in the workspace.
    pub fn protect<'f>(&self, plan: &mut RunPlan, files: impl Iterator<Item = &'f Path>) {
        let mut names: Vec<PathBuf> = files.filter_map(|file| self.topmost(file)).collect();
        if self.real.join(NAME).symlink_metadata().is_ok_and(|found| found.is_file()) {
            names.push(NAME.into());
        }
        names.sort();
        names.dedup();
        for name in names {
            let mount = self.mount(plan, &name);
            if plan.mounts.iter().all(|other| other.destination != mount.destination) {
                plan.mounts.insert(self.at + 1, mount);
            }
        }
    }

    /// Whether a writable tree that holds the file is the workspace, where its part is mounted read-only.
    pub fn protects(&self, plan: &RunPlan, tree: &Bytes, file: &Path) -> bool {
        let is_mounted = |name: PathBuf| plan.mounts.contains(&self.mount(plan, &name));
        *tree == self.source && self.topmost(file).is_some_and(is_mounted)
    }

    /// The first name below the workspace on the way to the file.
    fn topmost(&self, file: &Path) -> Option<PathBuf> {
        let rest = file.strip_prefix(&self.real).ok()?;
        rest.components().next().map(|name| PathBuf::from(name.as_os_str()))
    }

    fn mount(&self, plan: &RunPlan, name: &Path) -> Mount {
        Mount {
            destination: Bytes::from(&Path::new(WORKSPACE).join(name)),
            kind: MountKind::Bind { source: Bytes::from(&self.source.as_path().join(name)) },
            read_only: true,
            noexec: plan.mounts[self.at].noexec,
            optional: false,
        }
    }
}
