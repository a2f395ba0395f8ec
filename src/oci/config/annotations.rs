//! The annotations that this runtime honours. Those of the systemd unit, of Landlock and of the report are read elsewhere.

use std::collections::BTreeMap;

use super::document::{Read, wrong};
use crate::plan::ContainerPlan;
use crate::plan::container::HookFiles;

/// The report of the container is written to this file.
pub const REPORT: &str = "org.stockade.report";
/// The standard output of hooks goes to this file, as with crun.
pub const HOOKS_STDOUT: &str = "run.oci.hooks.stdout";
/// The standard error of hooks goes to this file, as with crun.
pub const HOOKS_STDERR: &str = "run.oci.hooks.stderr";
/// The process keeps the caller's supplementary groups, as with crun. Podman sets it for `--group-add keep-groups`.
pub const KEEP_GROUPS: &str = "run.oci.keep_original_groups";

/// Every annotation that changes what the runtime does, for `features`. A final dot stands for all names that begin so.
pub const HONOURED: [&str; 6] =
    [super::cgroup::SYSTEMD_PROPERTY, super::landlock::ANNOTATION, REPORT, HOOKS_STDOUT, HOOKS_STDERR, KEEP_GROUPS];

/// Reads them into the plan.
pub fn read(annotations: &BTreeMap<String, String>, plan: &mut ContainerPlan) -> Read<()> {
    // Its presence counts, as with crun.
    plan.keep_groups = annotations.contains_key(KEEP_GROUPS);
    let file = |name: &str| match annotations.get(name) {
        Some(path) if !path.starts_with('/') || path.ends_with('/') || path.contains('\0') => {
            Err(wrong(&format!("annotations.{name}"), "is not an absolute path of a file"))
        }
        path => Ok(path.map(|path| path.as_str().into())),
    };
    plan.hooks.files = HookFiles { stdout: file(HOOKS_STDOUT)?, stderr: file(HOOKS_STDERR)? };
    Ok(())
}
