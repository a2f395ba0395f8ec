//! Failures that the child reported as numbers: the object in the plan, and a hint.

use std::path::{Path, PathBuf};

use nix::errno::Errno;

use super::prepare::Prepared;
use super::{missing, no_process};
use crate::confine::process::PreparedProcess;
use crate::confine::schedule;
use crate::error::{Error, Step};
use crate::failure::Failure;
use crate::plan::{Bytes, MountKind, Root, RunPlan};

/// A place in which the kernel makes no namespaces, or only such as grant nothing.
pub const NO_NAMESPACES: &str = "`stockade doctor` shows which namespace this host refuses, and how to change that; in a container, \
     the seccomp profile profiles/seccomp/outer.json permits them. --allow-degraded namespaces (also in -p nested) runs without: \
     confined by Landlock, seccomp and limits alone";

/// Turns the child's numbers into an error with the names of the plan and a hint.
pub fn error_of(
    plan: &RunPlan,
    prepared: &Prepared,
    process: &PreparedProcess,
    Failure { step, index, errno }: Failure,
) -> Error {
    let index = usize::from(index);
    let program = plan.command.argv.first().map(ToString::to_string).unwrap_or_default();
    let object = match step {
        Step::Clone => "network namespace".to_owned(),
        Step::Cgroup => prepared.entrance.as_ref().and_then(|entrance| entrance.object(index)).unwrap_or_default(),
        Step::Exec | Step::Interpreter => program.clone(),
        Step::Cwd => plan.command.cwd.to_string(),
        Step::Egress => prepared.egress.as_ref().map(|egress| egress.object(index)).unwrap_or_default(),
        Step::Landlock => prepared.landlock.as_ref().and_then(|rules| rules.object(index)).unwrap_or_default(),
        Step::Scheduling => schedule::NAMES.get(index).map(ToString::to_string).unwrap_or_default(),
        Step::Hostname => plan.confinement.hostname.as_ref().map(ToString::to_string).unwrap_or_default(),
        _ => prepared.root.object(plan, step, index).or_else(|| process.object(step, index)).unwrap_or_default(),
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
        (Step::Interpreter, _) if let Some(text) = of_interpreter(plan) => return Some(text),
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
             -p nested allows what containers lack: here --allow-degraded outer-proc (the caller's /proc, read-only) or \
             proc (a /proc without processes). Or start the container with --security-opt systempaths=unconfined \
             (podman: unmask=ALL, Kubernetes: procMount: Unmasked)"
        }
        (Step::Clone | Step::MountRoot, Errno::EPERM | Errno::EACCES | Errno::ENOSPC) => NO_NAMESPACES,
        (Step::NamespaceLimits, _) => {
            "the caller's /proc/sys is read-only (a container?); --allow-degraded namespace-limits runs without this layer"
        }
        (Step::Fork, Errno::EAGAIN) => return Some(no_process::reason(plan)),
        (Step::Keyring, Errno::EDQUOT) => "the caller's key quota is used up (kernel.keys.maxkeys)",
        (Step::Hostname, Errno::EPERM) => "--allow-degraded hostname keeps the caller's host name",
        (Step::Keyring, _) => "--allow-degraded keyring leaves the caller's session keyring in place",
        (Step::Rlimit, Errno::EPERM) => "the caller's own hard limit is lower",
        (Step::OomScore, Errno::EACCES) => {
            "a value below the caller's requires CAP_SYS_RESOURCE on the host, proc_pid_oom_score_adj(5)"
        }
        (Step::Seccomp, Errno::EBUSY) if plan.explain_denials => {
            "a filter of the caller's already has a listener, and the kernel allows one: leave --explain-denials out here"
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
    let found = program_of(plan)?;
    if let Some(inside) =
        inside(plan, &found).filter(|_| missing::of(|path| missing::is_shown(plan, path), &found).trees.is_empty())
    {
        let directory = inside.parent().unwrap_or(&inside).display();
        let (at, cwd) = (inside.display(), &plan.command.cwd);
        return match (by_path, inside == program) {
            (true, true) => None,
            (true, false) if program.is_relative() => Some(format!(
                "it is in the sandbox as {at}, and a relative path starts in the working directory there, {cwd}: use that path, \
                 or add -w {directory}"
            )),
            (true, false) => Some(format!("it is in the sandbox as {at}: use that path")),
            (false, _) => Some(format!(
                "it is in the sandbox as {at}, which is not on its PATH: use that path, or add -e PATH={directory}:/usr/bin:/bin"
            )),
        };
    }
    if let Root::Directory(rootfs) = &plan.root {
        return Some(format!(
            "the host has {}, but the sandbox's root is {rootfs}: put the program there",
            found.display()
        ));
    }
    if let Some(toolchain) = missing::toolchain(program).filter(|_| !by_path) {
        return Some(format!(
            "the host has {}, outside the sandbox's view; --toolchain {toolchain} would add it, with what it needs",
            found.display()
        ));
    }
    let call =
        if by_path && program.is_absolute() { String::new() } else { format!("; then call it as {}", found.display()) };
    Some(add(plan, &found)? + &call)
}

/// What the interpreter of a program needs that the sandbox does not show.
fn of_interpreter(plan: &RunPlan) -> Option<String> {
    matches!(plan.root, Root::Synthetic).then(|| add(plan, &program_of(plan)?)).flatten()
}

/// The program on the host: where a bind shows it, in the caller's working directory, or on the caller's `PATH`.
fn program_of(plan: &RunPlan) -> Option<PathBuf> {
    let program = plan.command.argv.first()?.as_path();
    if program.components().count() < 2 {
        return missing::in_path(program);
    }
    let exists = |file: &PathBuf| file.is_file() || file.is_symlink();
    let wanted = plan.command.cwd.as_path().join(program);
    let mut shown = plan.mounts.iter().filter_map(|mount| match &mount.kind {
        MountKind::Bind { source } => {
            Some(source.as_path().join(wanted.strip_prefix(mount.destination.as_path()).ok()?))
        }
        _ => None,
    });
    shown.find(exists).or_else(|| std::path::absolute(program).ok().filter(exists))
}

/// The options that add a program of the host with all that it needs.
fn add(plan: &RunPlan, program: &Path) -> Option<String> {
    let missing = missing::of(|path| missing::is_shown(plan, path), program);
    if let Some(nowhere) = missing.nowhere {
        let named = if nowhere == program { String::new() } else { format!(", which {} needs", program.display()) };
        return Some(format!("the host has no {} either{named}", nowhere.display()));
    }
    let names = |paths: &[PathBuf]| paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ");
    let options: Vec<_> = missing.trees.iter().map(|tree| format!("--ro {}", tree.display())).collect();
    (!options.is_empty()).then(|| {
        format!(
            "the host has {}, outside the sandbox's view; {} would add it",
            names(&missing.files),
            options.join(" ")
        )
    })
}

/// The path inside the sandbox at which a bind shows this file of the host.
fn inside(plan: &RunPlan, file: &Path) -> Option<PathBuf> {
    plan.mounts.iter().find_map(|mount| match &mount.kind {
        MountKind::Bind { source } => Some(mount.destination.as_path().join(file.strip_prefix(source.as_path()).ok()?)),
        _ => None,
    })
}
