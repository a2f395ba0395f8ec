//! Failures that the child reported as numbers: the object in the plan, and a hint.

use std::path::{Path, PathBuf};

use nix::errno::Errno;

use super::prepare::Prepared;
use crate::confine::schedule;
use crate::error::{Error, Step};
use crate::failure::Failure;
use crate::plan::{Bytes, MountKind, Root, RunPlan};

/// Turns the child's numbers into an error with the names of the plan and a hint.
pub fn error_of(plan: &RunPlan, prepared: &Prepared, Failure { step, index, errno }: Failure) -> Error {
    let index = usize::from(index);
    let program = plan.command.argv.first().map(ToString::to_string).unwrap_or_default();
    let object = match step {
        Step::Clone => "network namespace".to_owned(),
        Step::Exec | Step::Interpreter => program.clone(),
        Step::Cwd => plan.command.cwd.to_string(),
        Step::Landlock => prepared.landlock.as_ref().and_then(|rules| rules.object(index)).unwrap_or_default(),
        Step::Scheduling => schedule::NAMES.get(index).map(ToString::to_string).unwrap_or_default(),
        Step::Hostname => plan.confinement.hostname.as_ref().map(ToString::to_string).unwrap_or_default(),
        _ => {
            prepared.root.object(plan, step, index).or_else(|| prepared.process.object(step, index)).unwrap_or_default()
        }
    };
    let error = Error::errno(step, object, errno);
    match of(plan, step, index, errno) {
        Some(text) => error.hint(text),
        None => error,
    }
}

/// The hint for a failure, if there is one.
fn of(plan: &RunPlan, step: Step, index: usize, errno: Errno) -> Option<String> {
    let doctor = "`stockade doctor` shows what this host supports, and how to change that";
    let text = match (step, errno) {
        (Step::Exec, Errno::ENOENT) => return on_the_host(plan),
        (Step::Interpreter, _) => {
            "the file is there, but the interpreter or loader that it names is not in the sandbox; \
             bind it with --ro, or use a --rootfs that has it"
        }
        (Step::Exec, Errno::EACCES)
            if plan.confinement.landlock.as_ref().is_some_and(|rules| rules.execute.is_some()) =>
        {
            "it is not executable for the sandbox's user, or not among what may be executed: --allow-exec adds to that, \
             and with it nothing on a writable mount is executed"
        }
        (Step::Landlock, Errno::ENOENT | Errno::ENOTDIR) => {
            "paths of rules are paths inside the sandbox; PATH:optional skips the rule if its path is missing"
        }
        (Step::Landlock, Errno::ELOOP) => {
            "it leads through a symlink where the workload can write, and could lead anywhere the next time: name the \
             place itself"
        }
        (Step::Exec, Errno::EACCES) => {
            "it is a directory, or not executable for the sandbox's user, or lies on a noexec mount"
        }
        (Step::Exec, Errno::ELOOP) => {
            "it, or an interpreter that it names, leads through a link of /proc (or a circle of links), which is not followed: \
             name the file itself"
        }
        (Step::Exec, Errno::ENOEXEC) => "it is not a program for this machine, nor a script with a #! line",
        (Step::Exec, Errno::E2BIG) => "its arguments and environment are too long, execve(2)",
        (Step::Cwd, Errno::ENOTDIR | Errno::EACCES) if let Some(source) = bound_at_cwd(plan) => {
            return Some(format!("{source} of the host is not a directory, or the sandbox's user cannot enter"));
        }
        (Step::Cwd, Errno::ENOENT | Errno::ENOTDIR) => "choose a directory that exists inside, with -w",
        (Step::MountPoint, Errno::ENOENT) => {
            "it lies in a directory of the host, where no mount point is created: create it there first"
        }
        (Step::Source, Errno::ESTALE) => "its source changed while the sandbox was starting; try again",
        (Step::Mount, Errno::EPERM) if is_proc(plan, index) => {
            "the caller's own /proc is partly covered (a container?), so a new one may not be mounted; \
             -p strict shows processes only, which is allowed"
        }
        (Step::NamespaceLimits, _) => {
            "the caller's /proc/sys is read-only (a container?); --allow-degraded namespace-limits runs without this layer"
        }
        (Step::Fork, Errno::EAGAIN) if plan.budget.pids.is_some() => {
            "a limit on processes was reached: --pids-limit (init and the workload need one each), ulimit -u, or pids.max of the \
             caller's cgroup"
        }
        (Step::Keyring, Errno::EDQUOT) => "the caller's key quota is used up (kernel.keys.maxkeys)",
        (Step::Keyring, _) => "--allow-degraded keyring leaves the caller's session keyring in place",
        (Step::Rlimit, Errno::EPERM) => "the caller's own hard limit is lower",
        (Step::OomScore, Errno::EACCES) => {
            "a value below the caller's requires CAP_SYS_RESOURCE on the host, proc_pid_oom_score_adj(5)"
        }
        (Step::Streams, Errno::ENOENT) => "the sandbox has no /dev/null",
        (
            Step::Clone
            | Step::MountClone
            | Step::MountAttributes
            | Step::Mount
            | Step::MountRoot
            | Step::Pivot
            | Step::Capabilities
            | Step::SetIds,
            _,
        ) => doctor,
        _ => return None,
    };
    Some(text.to_owned())
}

fn is_proc(plan: &RunPlan, index: usize) -> bool {
    plan.mounts.get(index).is_some_and(|mount| matches!(mount.kind, MountKind::Proc { .. }))
}

/// The host path that is bound at the working directory, as with a workspace.
fn bound_at_cwd(plan: &RunPlan) -> Option<&Bytes> {
    plan.mounts.iter().find_map(|mount| match &mount.kind {
        MountKind::Bind { source } if mount.destination == plan.command.cwd => Some(source),
        _ => None,
    })
}

/// Where the command is on the host, if it exists there but the sandbox does not find it.
fn on_the_host(plan: &RunPlan) -> Option<String> {
    let program = plan.command.argv.first()?.as_path();
    let by_path = program.components().count() > 1;
    let found = if by_path {
        program.to_owned()
    } else {
        let path = std::env::var_os("PATH")?;
        std::env::split_paths(&path).map(|directory| directory.join(program)).find(|file| file.is_file())?
    };
    let found = std::path::absolute(&found).ok().filter(|file| file.is_file())?;
    if let Some(inside) = inside(plan, &found).filter(|_| !by_path) {
        let directory = inside.parent().unwrap_or(&inside).display();
        return Some(format!(
            "it is in the sandbox as {}, which is not on its PATH: use that path, or add -e PATH={directory}:/usr/bin:/bin",
            inside.display()
        ));
    }
    if let Root::Directory(rootfs) = &plan.root {
        return Some(format!(
            "the host has {}, but the sandbox's root is {rootfs}: put the program there",
            found.display()
        ));
    }
    let shown = found.parent().filter(|parent| *parent != Path::new("/")).unwrap_or(&found);
    let target = found.canonicalize().ok().filter(|target| *target != found && !target.starts_with(shown));
    let also = target.map(|target| format!(" (and what it links to, {})", target.display())).unwrap_or_default();
    let call = if by_path { String::new() } else { format!("; then call it as {}", found.display()) };
    Some(format!(
        "the host has {}, outside the sandbox's view; --ro {} would add it{also}{call}",
        found.display(),
        shown.display()
    ))
}

/// The path inside the sandbox at which a bind shows this file of the host.
fn inside(plan: &RunPlan, file: &Path) -> Option<PathBuf> {
    plan.mounts.iter().find_map(|mount| match &mount.kind {
        MountKind::Bind { source } => Some(mount.destination.as_path().join(file.strip_prefix(source.as_path()).ok()?)),
        _ => None,
    })
}
