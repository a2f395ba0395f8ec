//! What the workload may write must not decide what the next run may do.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use sha2::{Digest as _, Sha256};

use super::file;
use super::rules::SeccompChoice;
use super::settings::Settings;
use crate::error::{Error, Result, Step};
use crate::layers::root::reach::{self, Reach};
use crate::plan::{MountKind, RunPlan, SeccompProfile, hex};
use crate::sys::walk::Trail;

/// A file that a run is decided by or recorded in, which must lie out of its workload's reach.
#[derive(Clone, Debug)]
pub struct Guarded {
    step: Step,
    what: &'static str,
    /// Whether it must not even be seen: what can be opened can be locked.
    unseen: bool,
    way_out: &'static str,
    trail: Trail,
}

impl Guarded {
    /// A policy.
    pub fn policy(trail: Trail) -> Self {
        Self::decides("a policy of this run", trail)
    }

    /// An environment file.
    pub fn environment(trail: Trail) -> Self {
        Self::decides("an environment file of this run", trail)
    }

    fn decides(what: &'static str, trail: Trail) -> Self {
        let way_out = "move that file elsewhere, or bind the directory read-only";
        Self { step: Step::Policy, what, unseen: false, way_out, trail }
    }

    /// The audit log.
    pub fn audit(trail: Trail) -> Self {
        let way_out = "name a log in a directory that is not bound";
        Self { step: Step::Audit, what: "the audit log", unseen: true, way_out, trail }
    }

    /// The report.
    pub fn report(trail: Trail) -> Self {
        let way_out = "name a file outside of what is bound writable, such as ../report.json";
        Self { step: Step::Report, what: "the report", unseen: false, way_out, trail }
    }
}

/// Refuses a plan that makes the host's root writable, or a place that one of `files` or its seccomp profile lies in; that
/// shows the audit log; and a profile that others could have written.
///
/// Places are compared by inode and mount, so that symlinks and bind mounts do not hide that they are the same. A source
/// that does not exist is left to the mounting, which knows whether it may be missing.
pub fn check(plan: &RunPlan, files: impl IntoIterator<Item = Guarded>) -> Result<()> {
    let profile = match plan.confinement.seccomp.as_ref().map(|seccomp| &seccomp.profile) {
        Some(SeccompProfile::File(path) | SeccompProfile::Binary(path)) => {
            let trail = file::inspect(file::SECCOMP, path.as_path())?;
            Some(Guarded::decides("the seccomp profile of this run", trail))
        }
        _ => None,
    };
    refuse_writable_root(plan)?;
    let files: Vec<Guarded> = files.into_iter().chain(profile).collect();
    let unseen = files.iter().any(|file| file.unseen);
    if files.is_empty() {
        return Ok(());
    }
    let failed = |errno| Error::errno(Step::Host, "what is mounted where", errno);
    let reach = Reach::of(reach::of_run(plan), !unseen).map_err(failed)?;
    for file in &files {
        let Some(tree) = reach.find(&file.trail, !file.unseen) else { continue };
        let how = if tree.writable { "writable" } else { "shown" };
        let reason = format!("is {how} inside, and {} lies in it, or has a name in it", file.what);
        return Err(Error::new(file.step, format!("bind of {}", tree.source), reason).hint(file.way_out));
    }
    Ok(())
}

fn refuse_writable_root(plan: &RunPlan) -> Result<()> {
    let mut writable = plan.mounts.iter().filter_map(|mount| match &mount.kind {
        MountKind::Bind { source } if !mount.read_only => Some(source),
        _ => None,
    });
    let root = inode(Path::new("/"));
    match writable.find(|source| root.is_some() && inode(source.as_path()) == root) {
        None => Ok(()),
        Some(source) => {
            let reason = "is the host's root, which is never writable inside";
            Err(Error::new(Step::Policy, format!("bind of {source}"), reason).hint("bind what is needed"))
        }
    }
}

/// SHA-256 of the file that the settings name as seccomp profile, in hexadecimal; `None` where they name none. Fails for a
/// file that others could have written.
pub fn profile_sha256(settings: &Settings) -> Result<Option<String>> {
    let Some(SeccompChoice::File(path) | SeccompChoice::Binary(path)) = &settings.seccomp.profile else {
        return Ok(None);
    };
    let file = file::read(file::SECCOMP, path.0.as_path(), None)?;
    Ok(Some(hex(&Sha256::digest(&file.bytes))))
}

fn inode(path: &Path) -> Option<(u64, u64)> {
    std::fs::metadata(path).ok().map(|metadata| (metadata.dev(), metadata.ino()))
}
