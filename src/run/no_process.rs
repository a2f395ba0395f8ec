//! Which limit kept a process from being created: the kernel answers EAGAIN for all of them.

use std::os::unix::fs::MetadataExt as _;

use crate::plan::{RlimitResource, RunPlan};
use crate::sys::process;

/// The limit that was reached, as a hint.
pub fn reason(plan: &RunPlan) -> String {
    // At the start a sandbox has two processes, so only a limit of one can be in their way.
    if plan.init && plan.budget.pids == Some(1) {
        return "--pids-limit 1 leaves no process for the command: init and the command need one each; use 2 or more, or \
                --no-init"
            .to_owned();
    }
    let caller = nix::unistd::geteuid().as_raw();
    let processes = processes_of(caller);
    if let Ok((soft, _)) = process::rlimit(RlimitResource::Nproc.number())
        && processes >= soft
    {
        return format!("ulimit -u is {soft}, and user {caller} has as many processes and threads");
    }
    let own = plan.command.rlimits.iter().find(|limit| limit.resource == RlimitResource::Nproc);
    match own.and_then(|limit| limit.soft).filter(|soft| processes >= *soft) {
        Some(soft) => format!("--ulimit nproc={soft} counts all processes and threads of user {caller} on the host"),
        None => "a limit on processes was reached: pids.max of a cgroup of the caller, kernel.pid_max or \
                 kernel.threads-max of the host, or in a session its own --pids-limit"
            .to_owned(),
    }
}

/// The processes and threads of a user.
fn processes_of(user: u32) -> u64 {
    let Ok(all) = std::fs::read_dir("/proc") else { return 0 };
    let is_process = |name: &std::ffi::OsStr| name.as_encoded_bytes().iter().all(u8::is_ascii_digit);
    let of_user = all.flatten().filter(|entry| is_process(&entry.file_name()));
    let of_user = of_user.filter(|entry| entry.metadata().is_ok_and(|metadata| metadata.uid() == user));
    of_user.map(|entry| std::fs::read_dir(entry.path().join("task")).map_or(1, |tasks| tasks.count() as u64)).sum()
}
