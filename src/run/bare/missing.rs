//! What a run without namespaces lacks, for its report.

use crate::confine::user::Users;
use crate::plan::{Facility, MountKind, Network, RunPlan};
use crate::report::Degraded;
use crate::rootfs::callers_root::View;

/// One entry for each namespace, and for what goes with it.
pub fn degraded(plan: &RunPlan, view: &View, users: &Users, why: &str) -> Vec<Degraded> {
    let entry = |wanted: &str, got: String| Degraded {
        what: Facility::Namespaces.name().to_owned(),
        wanted: wanted.to_owned(),
        got,
        why: why.to_owned(),
    };
    let user = match users.is_alone() {
        true => format!("host user {}, which no other process has", users.host_uid),
        false => format!(
            "host user {}, which others may have; so no mode, owner or other attribute of a file can be changed",
            users.host_uid
        ),
    };
    let mut lacking = vec![
        entry("user namespace", user),
        entry(
            "mnt namespace",
            "the caller's root: Landlock lets no file be opened that is not shown, but stat(2) sees whether it exists, and inotify(7) \
             what happens to it"
                .to_owned(),
        ),
        entry(
            "pid namespace",
            "the caller's processes are visible in /proc; Landlock lets no signal or trace reach them".to_owned(),
        ),
        entry("ipc namespace", "no System V IPC and no message queues".to_owned()),
        entry("uts namespace", "the caller's host name".to_owned()),
        entry("cgroup namespace", "the caller's cgroups are visible by name".to_owned()),
    ];
    if plan.namespaces.network != Network::Host {
        lacking.push(entry("net namespace", "no sockets of any family, not even on loopback".to_owned()));
    }
    let (path, size) = (view.scratch.path().display(), plan.scratch.size_bytes);
    lacking.push(entry(
        &format!("scratch space of {size} bytes at /tmp, /dev/shm and {}", plan.identity.home),
        format!("{path}/tmp as TMPDIR and {path}/home as HOME, without a limit on their size"),
    ));
    if plan.mounts.iter().any(|mount| matches!(mount.kind, MountKind::Proc { pid_only: true })) {
        let (wanted, got) = ("a procfs of processes alone".to_owned(), "no /proc".to_owned());
        lacking.push(Degraded { what: Facility::Proc.name().to_owned(), wanted, got, why: why.to_owned() });
    }
    lacking
}
