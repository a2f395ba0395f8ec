//! What the workload may write must not decide what the next run may do.

use std::collections::HashSet;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use super::file;
use super::rules::SeccompChoice;
use super::settings::Settings;
use crate::error::{Error, Result, Step};
use crate::plan::{Bytes, MountKind, Plan, SeccompProfile, hex};

/// Refuses a plan that makes the host's root writable, or a directory that one of `files` (policies, environment files and
/// the audit log, absolute) or its seccomp profile lies in; and a profile that others could have written.
///
/// Directories are compared by device and inode, so that symlinks and bind mounts do not hide that they are the same. A
/// source that does not exist is left to the mounting, which knows whether it may be missing.
pub fn check(plan: &Plan, files: &[PathBuf]) -> Result<()> {
    let profile = match plan.seccomp.as_ref().map(|seccomp| &seccomp.profile) {
        Some(SeccompProfile::File(path) | SeccompProfile::Binary(path)) => {
            file::inspect(file::SECCOMP, path.as_path())?.to_vec()
        }
        _ => Vec::new(),
    };
    let mut writable = plan.mounts.iter().filter_map(|mount| match &mount.kind {
        MountKind::Bind { source } if !mount.read_only => Some(source),
        _ => None,
    });
    let Some(first) = writable.next() else { return Ok(()) };
    let root = inode(Path::new("/"));
    let guarded: HashSet<(u64, u64)> =
        files.iter().chain(&profile).flat_map(|file| file.ancestors()).filter_map(inode).collect();
    for source in std::iter::once(first).chain(writable) {
        let Some(found) = inode(source.as_path()) else { continue };
        if Some(found) == root {
            return Err(
                refused(source, "is the host's root, which is never writable inside").hint("bind what is needed")
            );
        }
        if guarded.contains(&found) {
            let reason = "is writable inside, and a policy, environment, seccomp or audit file of this run is in it";
            return Err(refused(source, reason).hint("move that file elsewhere, or bind the directory read-only"));
        }
    }
    Ok(())
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

fn refused(source: &Bytes, reason: &str) -> Error {
    Error::new(Step::Policy, format!("bind of {source}"), reason)
}
