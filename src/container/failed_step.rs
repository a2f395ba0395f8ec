//! Turns the numbers of a failed child into an error with the names of the plan.

use nix::errno::Errno;

use super::errors::{exec_error, shortened};
use super::hooks;
use super::prepare::Prepared;
use crate::confine::schedule;
use crate::error::{Error, Step};
use crate::failure::Failure;
use crate::plan::ContainerPlan;
use crate::plan::container::{ContainerMount, IdRange, MountSource};

/// Turns the child's numbers into an error with the names of the plan.
pub fn name_failure(plan: &ContainerPlan, prepared: &Prepared<'_>, failure: Failure) -> Error {
    let index = usize::from(failure.index);
    let root = prepared.root.as_ref();
    let object = match failure.step {
        Step::Exec | Step::Interpreter => return exec_error(plan, failure),
        Step::Cwd => Some(plan.process.command.cwd.to_string()),
        Step::Hostname => plan.confinement.hostname.as_ref().map(ToString::to_string),
        Step::Scheduling if index == 0 => Some("process.scheduler".to_owned()),
        Step::Scheduling => schedule::NAMES.get(index).map(ToString::to_string),
        Step::Join => prepared.joined.get(index).map(|join| join.kind.name().to_owned()),
        Step::Landlock => prepared.landlock.as_ref().and_then(|rules| rules.object(index)),
        Step::Hook => hooks::named(&plan.hooks, index),
        Step::Cgroup => prepared.entrance.as_ref().and_then(|entrance| entrance.object(index)),
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
    let (object, hint) = match failure.step {
        // A new cgroup of cgroup v1 has no real-time budget.
        Step::Scheduling if index == 0 && failure.errno == Errno::EPERM => {
            (object, "real-time policies need CAP_SYS_NICE and, on cgroup v1, linux.resources.cpu.realtimeRuntime")
        }
        Step::SetIds | Step::Groups if failure.errno == Errno::EINVAL => unmapped(plan, failure.step),
        Step::Mount => match file_system(plan, index, failure.errno) {
            Some((field, hint)) => (object.map(|destination| format!("{destination}: mounts[{index}].{field}")), hint),
            None => (object, ""),
        },
        _ => (object, ""),
    };
    let error = Error::errno(failure.step, object.unwrap_or_default(), failure.errno);
    if hint.is_empty() { error } else { error.hint(hint) }
}

/// The id that the user namespace does not have. If the configuration does not say which ids it has, all that it may be.
fn unmapped(plan: &ContainerPlan, step: Step) -> (Option<String>, &'static str) {
    let process = &plan.process;
    let lacks = |map: &[IdRange], id: u32| IdRange::host_id(map, id).is_none();
    let user = |field: &str, value: String| Some(format!("process.user.{field}: {value}"));
    let (object, hint) = match step {
        Step::Groups => {
            let unmapped = process.groups.iter().find(|id| lacks(&plan.gid_map, **id));
            let groups = unmapped.map_or_else(|| format!("{:?}", process.groups), ToString::to_string);
            (user("additionalGids", groups), "linux.gidMappings have no such id")
        }
        _ if lacks(&plan.uid_map, process.uid) => {
            (user("uid", process.uid.to_string()), "linux.uidMappings have no such id")
        }
        _ if lacks(&plan.gid_map, process.gid) => {
            (user("gid", process.gid.to_string()), "linux.gidMappings have no such id")
        }
        _ if lacks(&plan.uid_map, 0) || lacks(&plan.gid_map, 0) => {
            (Some("linux.uidMappings, linux.gidMappings".to_owned()), "they need the id 0, which makes the mounts")
        }
        _ => (user("uid, gid", format!("{}, {}", process.uid, process.gid)), ""),
    };
    (object, if plan.uid_map.is_empty() { "the user namespace has no such id" } else { hint })
}

/// The field of a new file system that the kernel refuses, with its value.
fn file_system(plan: &ContainerPlan, index: usize, errno: Errno) -> Option<(String, &'static str)> {
    let MountSource::FileSystem { kind, source, options } = &plan.mounts.get(index)?.source else { return None };
    match errno {
        Errno::ENODEV => Some((format!("type: {}", shortened(kind.clone())), "this kernel has no such file system")),
        Errno::EINVAL if !options.is_empty() => {
            let options: Vec<_> = options.iter().map(ToString::to_string).collect();
            Some((format!("options: {}", shortened(options.join(","))), "the file system does not take one of them"))
        }
        Errno::ENOENT | Errno::ENOTBLK => Some((format!("source: {}", shortened(source.as_ref()?.to_string())), "")),
        _ => None,
    }
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
