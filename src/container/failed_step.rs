//! Turns the numbers of a failed child into an error with the names of the plan.

use nix::errno::Errno;

use super::errors::exec_error;
use super::hooks;
use super::prepare::Prepared;
use crate::confine::schedule;
use crate::error::{Error, Step};
use crate::failure::Failure;
use crate::plan::ContainerPlan;
use crate::plan::container::{ContainerMount, MountSource};

/// Turns the child's numbers into an error with the names of the plan.
pub fn name_failure(plan: &ContainerPlan, prepared: &Prepared<'_>, failure: Failure) -> Error {
    let index = usize::from(failure.index);
    let root = prepared.root.as_ref();
    let object = match failure.step {
        Step::Exec | Step::Interpreter => return exec_error(plan, failure),
        Step::Cwd => Some(plan.process.command.cwd.to_string()),
        Step::Hostname => plan.confinement.hostname.as_ref().map(ToString::to_string),
        Step::Scheduling => schedule::NAMES.get(index).map(ToString::to_string),
        Step::Join => prepared.joined.get(index).map(|join| join.kind.name().to_owned()),
        Step::Landlock => prepared.landlock.as_ref().and_then(|rules| rules.object(index)),
        Step::Hook => hooks::named(&plan.hooks, index),
        step => root.and_then(|root| root.object(plan, step, index)).or_else(|| prepared.process.object(step, index)),
    };
    if let (Step::Verify, Some(object)) = (failure.step, &object) {
        return Error::new(failure.step, object, "differs from what was mounted")
            .hint("a createContainer hook, or a process that shares the mount namespace, may have changed it");
    }
    if failure.step == Step::MountPoint
        && let Some(reason) = plan.mounts.get(index).and_then(|mount| unfit(plan, mount, failure.errno))
    {
        return Error::new(failure.step, object.unwrap_or_default(), reason);
    }
    Error::errno(failure.step, object.unwrap_or_default(), failure.errno)
}

/// Explains why an existing path cannot be the mount point. `None` if the path has changed or gone meanwhile.
fn unfit(plan: &ContainerPlan, mount: &ContainerMount, errno: Errno) -> Option<String> {
    let root = plan.root.as_ref()?;
    let destination = mount.destination.as_path();
    let path = root.as_path().join(destination.strip_prefix("/").unwrap_or(destination));
    let kind = std::fs::symlink_metadata(&path).ok()?.file_type();
    match errno {
        Errno::ENOTDIR if kind.is_symlink() => {
            let MountSource::FileSystem { kind, .. } = &mount.source else { return None };
            // The end is runc's.
            Some(format!("{} is a symlink; filesystem {kind:?} must be mounted on ordinary directory", path.display()))
        }
        Errno::ENOTDIR if !kind.is_dir() => {
            let kind = if kind.is_file() { "a file" } else { "a special file" };
            Some(format!("{} is {kind}; a directory is needed", path.display()))
        }
        Errno::EISDIR => Some(format!("{} is a directory, but the mount source is not", path.display())),
        _ => None,
    }
}
