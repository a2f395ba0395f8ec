//! The parent half: prepares everything that a container's process needs.

use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;

use super::filter_handshake::FilterHandshake;
use super::gate::Gate;
use crate::cgroup::container::Groups;
use crate::confine::caps::Sets;
use crate::confine::label::PreparedLabel;
use crate::confine::landlock::{self, PreparedLandlock};
use crate::confine::process::PreparedProcess;
use crate::confine::seccomp::install::PreparedSeccomp;
use crate::confine::user::{self, Users};
use crate::confine::{label, process, schedule, seccomp};
use crate::error::{Error, Result, Step};
use crate::launch::streams::refuse_directory;
use crate::plan::container::{CgroupView, NamespaceKind};
use crate::plan::{Bytes, ContainerPlan, Facility, Network};
use crate::report::Degraded;
use crate::rootfs;
use crate::rootfs::container_mounts::Surroundings;
use crate::rootfs::container_root::PreparedContainerRoot;
use crate::sys::clone::SIBLING_FLAGS;
use crate::sys::namespace;
use crate::sys::terminal::Size;

/// Everything that the container's process needs.
#[derive(Debug)]
pub struct Prepared<'a> {
    /// The command line that other processes see until it executes its program.
    pub title: CString,
    /// The id maps.
    pub users: Users,
    /// The root and all mounts; `None` if a mount namespace is entered.
    pub root: Option<PreparedContainerRoot>,
    /// The program and its inherited settings.
    pub process: PreparedProcess,
    /// Its Landlock rules.
    pub landlock: Option<PreparedLandlock>,
    /// Its system call filter.
    pub seccomp: Option<PreparedSeccomp>,
    /// Its capabilities, without those that the runtime lacks.
    pub capabilities: Sets,
    /// Its label.
    pub label: PreparedLabel,
    /// `CLONE_NEW*` of the namespaces that clone3 makes.
    pub flags: u64,
    /// `CLONE_NEW*` of the container's namespaces that `exec` enters.
    pub entered_flags: i32,
    /// Names in `/proc/PID/ns` of the namespaces that must differ from ours before set-up begins.
    pub new_namespaces: Vec<&'static str>,
    /// The runtime's CPU affinity. With `initial` in `execCPUAffinity` the process of `exec` returns to it afterwards.
    pub own_affinity: Option<nix::sched::CpuSet>,
    /// Namespaces that are entered by path.
    pub joined: Vec<Join>,
    /// Whether it gets a cgroup namespace. It creates that itself, after it was moved into its cgroup.
    pub hides_cgroup: bool,
    /// Whether it has a new network namespace, whose loopback device must be brought up.
    pub loopback: bool,
    /// The size of its terminal, if it has one.
    pub terminal: Option<Size>,
    /// Its standard streams.
    pub streams: [BorrowedFd<'a>; 3],
    /// The first descriptor that it does not inherit.
    pub first_closed: i32,
    /// Where it waits for `start`.
    pub gate: Option<Gate>,
    /// Where it waits until the runtime has verified its filter, if the filter is installed last.
    pub handshake: Option<FilterHandshake>,
    /// Whether the runtime sets the scheduling policy, after it has verified the filter.
    pub scheduled_last: bool,
    /// Whether the runtime runs hooks when the root is built.
    pub waits_for_hooks: bool,
    /// Whether its user namespace differs from the runtime's.
    pub in_user_namespace: bool,
    /// Whether the filter is installed while the process still has privileges and the runtime can receive a listener.
    pub filters_early: bool,
    /// Whether a process that joins a pid namespace is confined by its intermediate process, before processes inside can see
    /// it.
    pub confines_first: bool,
    /// Optional settings that could not be applied.
    pub warnings: Vec<String>,
}

/// A namespace to enter by path.
#[derive(Debug)]
pub struct Join {
    /// Its kind.
    pub kind: NamespaceKind,
    /// Its path.
    pub path: Bytes,
    /// The open namespace.
    pub fd: OwnedFd,
}

/// Opens, parses and compiles everything.
pub fn prepare<'a>(
    plan: &ContainerPlan,
    groups: Option<&Groups>,
    entered: i32,
    streams: [BorrowedFd<'a>; 3],
    preserved: u32,
    gate: Option<Gate>,
) -> Result<Prepared<'a>> {
    (0..3).try_for_each(refuse_directory)?;
    let privileged = user::is_privileged()?;
    let users = user::prepare_container(plan, privileged);
    let view =
        CgroupView { own_namespace: plan.makes(NamespaceKind::Cgroup), ..groups.map(Groups::view).unwrap_or_default() };
    let joined = plan.joined.iter().map(|join| open_join(join.kind, &join.path)).collect::<Result<Vec<_>>>()?;
    let label = label::prepare(plan)?;
    let root = rootfs::container_root::prepare(
        plan,
        &mut Surroundings {
            privileged,
            idmap: user::idmap_namespace_of,
            maps: (&plan.uid_map, &plan.gid_map),
            users: joined.iter().find(|join| join.kind == NamespaceKind::User).map(|join| join.fd.as_fd()),
            cgroups: &view,
            label: plan.mount_label.as_deref(),
        },
    )?;
    let process = prepare_process(plan)?;
    let mut degraded = Vec::new();
    let landlock = prepare_landlock(plan, &mut degraded)?;
    let seccomp = seccomp::install::prepare(plan.confinement.seccomp.as_ref(), &plan.into())?.0;
    let mut warnings = seccomp.as_ref().map_or_else(Vec::new, |seccomp| seccomp.warnings.clone());
    let listens = seccomp.as_ref().is_some_and(|seccomp| seccomp.listener().is_some());
    let filters_early = !plan.process.no_new_privs || listens;
    warnings.extend(degraded.into_iter().map(|one| format!("{} is not in force: {}", one.what, one.why)));
    let wanted = Sets::of(&plan.process.capabilities);
    // A new user namespace grants all capabilities.
    let entered_user = entered as u32 & NamespaceKind::User.number() != 0;
    let new_user = entered_user || plan.has_own(NamespaceKind::User);
    let (capabilities, lost) = if new_user { (wanted, 0) } else { wanted.possible() };
    if lost != 0 {
        warnings.push(format!("capabilities {lost:#x} are dropped: the runtime does not have them"));
    }
    let deferred = [NamespaceKind::Cgroup, NamespaceKind::Time];
    let made = plan.new.iter().filter(|kind| !deferred.contains(kind));
    // The root of a container's own user namespace has no capabilities over a process that comes from outside.
    let joins_pid = plan.joins(NamespaceKind::Pid);
    let confines_first = (joins_pid || entered as u32 & NamespaceKind::Pid.number() != 0)
        && !new_user
        && seccomp.as_ref().is_none_or(|seccomp| !filters_early || lets_fork(seccomp));
    let late = seccomp.is_some() && !filters_early;
    let handshake = late
        .then(|| gate.as_ref().map_or_else(FilterHandshake::new, |gate| FilterHandshake::create_in(gate.directory())))
        .transpose()?;
    let (rows, columns) = plan.process.console_size.unwrap_or((24, 80));
    let title = CString::new(format!("stockade-oci: init {}", plan.confinement.id));
    Ok(Prepared {
        title: title.map_err(|_| Error::new(Step::Plan, "id", "contains a NUL byte"))?,
        users,
        root,
        process,
        landlock,
        seccomp,
        capabilities,
        label,
        flags: made.fold(0, |flags, kind| flags | u64::from(kind.number())),
        entered_flags: entered,
        new_namespaces: plan.new.iter().filter(|kind| !deferred.contains(kind)).map(file_name).collect(),
        own_affinity: match plan.process.initial_cpu_affinity {
            Some(_) if entered != 0 => nix::sched::sched_getaffinity(nix::unistd::Pid::from_raw(0)).ok(),
            _ => None,
        },
        joined,
        hides_cgroup: view.own_namespace,
        loopback: plan.makes(NamespaceKind::Network),
        terminal: plan.process.terminal.then_some(Size { rows, columns }),
        streams,
        first_closed: 3 + i32::try_from(preserved).unwrap_or(i32::MAX - 3),
        scheduled_last: handshake.is_some() && schedule::is_real_time(&plan.process),
        gate,
        handshake,
        waits_for_hooks: !plan.hooks.prestart.is_empty() || !plan.hooks.create_runtime.is_empty(),
        in_user_namespace: new_user,
        filters_early,
        confines_first,
        warnings,
    })
}

/// The limits are exactly those of the configuration.
pub fn prepare_process(plan: &ContainerPlan) -> Result<PreparedProcess> {
    process::prepare(&plan.process.command, plan.confinement.hostname.as_ref(), process::Rules::default())
}

/// Prepares the path rules. The engine may have connected the container's network, so a port is closed only if ports are
/// listed.
pub fn prepare_landlock(plan: &ContainerPlan, degraded: &mut Vec<Degraded>) -> Result<Option<PreparedLandlock>> {
    let may_be_missing = plan.confinement.allow_degraded.contains(&Facility::Landlock);
    let implied = landlock::Implied { mounts: None, network: Network::Host, logs: false, may_be_missing };
    landlock::prepare(plan.confinement.landlock.as_ref(), &implied, degraded)
}

/// The file name in `/proc/PID/ns`.
fn file_name(kind: &NamespaceKind) -> &'static str {
    match kind {
        NamespaceKind::Mount => "mnt",
        NamespaceKind::Network => "net",
        other => other.name(),
    }
}

/// Whether the filter allows the remaining calls of the intermediate process and of the process that it creates.
fn lets_fork(seccomp: &PreparedSeccomp) -> bool {
    let calls = [
        libc::SYS_sendmsg,
        libc::SYS_recvmsg,
        libc::SYS_read,
        libc::SYS_write,
        libc::SYS_close,
        libc::SYS_exit_group,
        libc::SYS_prctl,
        libc::SYS_setsid,
        libc::SYS_dup3,
        libc::SYS_fcntl,
        libc::SYS_ioctl,
        libc::SYS_umask,
        libc::SYS_prlimit64,
        libc::SYS_close_range,
        libc::SYS_rt_sigaction,
        libc::SYS_rt_sigprocmask,
        libc::SYS_newfstatat,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_dup2,
    ];
    seccomp.lets_through(libc::SYS_clone, SIBLING_FLAGS) && calls.iter().all(|call| seccomp.lets_through(*call, 0))
}

/// Opens a namespace and checks its kind.
pub fn open_join(kind: NamespaceKind, path: &Bytes) -> Result<Join> {
    let object = || format!("{} namespace {path}", kind.name());
    let failed = |errno| Error::errno(Step::Join, object(), errno);
    // O_NONBLOCK: opening a FIFO would wait for a writer.
    let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    let fd = open(path.as_path(), flags, Mode::empty()).map_err(failed)?;
    match namespace::kind(fd.as_fd()) {
        Ok(found) if found as u32 == kind.number() => Ok(Join { kind, path: path.clone(), fd }),
        Ok(_) => Err(Error::new(Step::Join, object(), "is a namespace of a different kind")),
        Err(_) => Err(Error::new(Step::Join, object(), "is not a namespace")),
    }
}
