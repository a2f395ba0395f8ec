//! Refuses runs whose workload could write the files that decide about it or the next run.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use sha2::{Digest as _, Sha256};

use super::file;
use super::rules::SeccompChoice;
use super::settings::Settings;
use super::workspace::Workspace;
use crate::error::{Error, Result, Step};
use crate::plan::{Bytes, MountKind, RunPlan, SeccompProfile, hex};
use crate::rootfs::reach::{self, Reach};
use crate::sys::walk::Trail;

/// A file that decides about a run or records it, which its workload must not be able to write.
#[derive(Clone, Debug)]
pub struct Guarded {
    step: Step,
    what: &'static str,
    /// Whether the workload must not see it either: a process that can open a file can lock it.
    hidden: bool,
    /// Whether a workload that can read it but not change it is no danger. Otherwise it is written during the run.
    is_only_read: bool,
    hint: &'static str,
    trail: Trail,
}

impl Guarded {
    /// A policy.
    pub fn policy(trail: Trail) -> Self {
        Self::decides("a policy of this run", trail)
    }

    /// A file of rules for the network.
    pub fn rules(trail: Trail) -> Self {
        Self::decides("a file of network rules of this run", trail)
    }

    /// An environment file.
    pub fn environment(trail: Trail) -> Self {
        Self::decides("an environment file of this run", trail)
    }

    /// The path of a file that only this path leads to and that is only read, so that a read-only mount of it protects it.
    fn sole_path(&self) -> Option<&Path> {
        match self.trail.paths.as_slice() {
            [(_, path)] if self.is_only_read && self.trail.elsewhere.is_none() => Some(path),
            _ => None,
        }
    }

    fn decides(what: &'static str, trail: Trail) -> Self {
        let hint = "move that file elsewhere, or bind the directory read-only";
        Self { step: Step::Policy, what, hidden: false, is_only_read: true, hint, trail }
    }

    /// The audit log.
    pub fn audit(trail: Trail) -> Self {
        let hint = "name a log in a directory that is not bound";
        Self { step: Step::Audit, what: "the audit log", hidden: true, is_only_read: false, hint, trail }
    }

    /// The directory of this user's sessions: who reaches the socket of one can run commands in it.
    pub fn session(trail: Trail) -> Self {
        let hint = "bind only the needed directories";
        Self {
            hidden: true,
            is_only_read: false,
            what: "the directory of the sessions",
            step: Step::SessionPlace,
            hint,
            trail,
        }
    }

    /// The log of the network.
    pub fn net_log(trail: Trail) -> Self {
        let hint = "name a file in a directory that is not bound";
        Self { step: Step::Egress, what: "the network log", hidden: false, is_only_read: false, hint, trail }
    }

    /// The policy that is learned from the run.
    pub fn learned(trail: Trail) -> Self {
        let hint = "name a file outside of writable binds, such as ../policy.toml";
        Self { step: Step::Learn, what: "the policy that is learned", hidden: false, is_only_read: false, hint, trail }
    }

    /// The report.
    pub fn report(trail: Trail) -> Self {
        let hint = "name a file outside of writable binds, such as ../report.json";
        Self { step: Step::Report, what: "the report", hidden: false, is_only_read: false, hint, trail }
    }
}

/// Mounts read-only what decides about the run and lies in its workspace. Then refuses a plan that makes the host's root
/// writable, that makes one of `files` or the seccomp profile writable, or that shows the audit log. Also refuses a seccomp
/// profile that other users could have written.
///
/// Locations are compared by inode and mount, so that symlinks and bind mounts cannot hide that two are the same. A source
/// that does not exist is left to the mounting step, which handles optional mounts.
pub fn check(plan: &mut RunPlan, files: impl IntoIterator<Item = Guarded>) -> Result<()> {
    let profile = match plan.confinement.seccomp.as_ref().map(|seccomp| &seccomp.profile) {
        Some(SeccompProfile::File(path) | SeccompProfile::Binary(path)) => {
            let trail = file::inspect(file::SECCOMP, path.as_path())?;
            Some(Guarded::decides("the seccomp profile of this run", trail))
        }
        _ => None,
    };
    refuse_writable_root(plan)?;
    let files: Vec<Guarded> = files.into_iter().chain(profile).collect();
    let own = Workspace::of(plan);
    if let Some(own) = &own {
        own.protect(plan, files.iter().filter_map(Guarded::sole_path));
    }
    let any_hidden = files.iter().any(|file| file.hidden);
    if files.is_empty() {
        return Ok(());
    }
    let failed = |errno| Error::errno(Step::Host, "the mount table", errno);
    let reach = Reach::of(reach::of_run(plan), !any_hidden).map_err(failed)?;
    for file in &files {
        let protects =
            |own: &Workspace, source: &Bytes| file.sole_path().is_some_and(|path| own.protects(plan, source, path));
        let is_protected = |source: &Bytes| own.as_ref().is_some_and(|own| protects(own, source));
        let Some(tree) = reach.find(&file.trail, !file.hidden, is_protected) else { continue };
        let access = if tree.writable { "writable" } else { "visible" };
        let reason = format!("is {access} in the sandbox and contains {}, or another name of it", file.what);
        return Err(Error::new(file.step, format!("bind of {}", tree.source), reason).hint(file.hint));
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
            let reason = "is the host's root, which cannot be bound writable";
            Err(Error::new(Step::Policy, format!("bind of {source}"), reason).hint("bind only the needed directories"))
        }
    }
}

/// SHA-256 of the seccomp profile's file, in hexadecimal; `None` if the settings name no file. Fails for a file that other
/// users could have written.
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
