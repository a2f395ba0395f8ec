//! The parent half: prepares everything that a container's process needs, from the parts that [`super::parts`] opens.

use std::ffi::CString;
use std::os::fd::{AsFd as _, BorrowedFd};

use super::Entered;
use super::filter_handshake::FilterHandshake;
use super::gate::Gate;
use super::hook_output::Output;
use super::hooks;
use super::parts::{Join, Parts};
use super::remaining_calls;
use super::stream_owner::give_streams;
use super::takeover::{self, Lock, PidNamespace};
use crate::cgroup::container::{Entrance, Groups};
use crate::confine::caps::{self, Sets};
use crate::confine::label::PreparedLabel;
use crate::confine::landlock::PreparedLandlock;
use crate::confine::privilege;
use crate::confine::process::PreparedProcess;
use crate::confine::schedule;
use crate::confine::seccomp::install::PreparedSeccomp;
use crate::confine::user::{self, Users};
use crate::error::{Error, Result, Step};
use crate::launch::steps::step;
use crate::launch::streams::refuse_directory;
use crate::plan::container::{CgroupView, IdRange, NamespaceKind};
use crate::plan::{Bytes, ContainerPlan};
use crate::rootfs::container_root::PreparedContainerRoot;
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
    /// `CAP_SYS_ADMIN`, which a filter and Landlock require without `no_new_privs`, if it is not among them. The process has it
    /// until both are in force, or until execve.
    pub extra_capability: u64,
    /// Its label.
    pub label: PreparedLabel,
    /// `CLONE_NEW*` of the namespaces that clone3 makes.
    pub flags: u64,
    /// `CLONE_NEW*` of the container's namespaces that `exec` enters.
    pub entered_flags: i32,
    /// Names in `/proc/PID/ns` of the namespaces that must differ from ours before set-up begins.
    pub new_namespaces: Vec<&'static str>,
    /// Namespaces that are entered by path.
    pub joined: Vec<Join>,
    /// Where it enters its cgroups of v1.
    pub entrance: Option<Entrance>,
    /// Whether it gets a cgroup namespace. It creates that itself, after it has entered its cgroups.
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
    /// Whether its environment needs the home directory of its user.
    pub needs_home: bool,
    /// The environment of `createContainer` hooks that have none of their own.
    pub hook_environment: Vec<Bytes>,
    /// Where the output of `createContainer` hooks goes.
    pub hook_output: Output,
    /// Whether its user namespace differs from the runtime's.
    pub in_user_namespace: bool,
    /// Whether Landlock and the filter are in force before "ready" ([`remaining_calls`]). Otherwise they come last.
    pub filters_early: bool,
    /// Whether a process that joins a pid namespace is confined by its intermediate process, before processes inside can see
    /// it.
    pub confines_first: bool,
    /// Whether another process creates it: it joins namespaces, or its clocks are set.
    pub needs_intermediate: bool,
    /// Excludes a process that could take it over, or that it could take over, until both can be seen.
    pub _exclusion: Option<Lock>,
    /// Optional settings that could not be applied.
    pub warnings: Vec<String>,
}

impl Prepared<'_> {
    /// Its capabilities when it is verified.
    pub fn expected_capabilities(&self) -> Sets {
        if self.filters_early { self.capabilities } else { self.capabilities.until_execve(self.extra_capability) }
    }
}

/// Opens, parses and compiles everything.
pub fn prepare<'a>(
    plan: &ContainerPlan,
    groups: Option<&Groups>,
    container: Option<&Entered<'_>>,
    streams: [BorrowedFd<'a>; 3],
    preserved: u32,
    gate: Option<Gate>,
) -> Result<Prepared<'a>> {
    (0..3).try_for_each(refuse_directory)?;
    let entered = container.map_or(0, |one| one.namespaces);
    let privileged = privilege::is_privileged()?;
    let users = user::prepare_container(plan, privileged);
    let view =
        CgroupView { own_namespace: plan.makes(NamespaceKind::Cgroup), ..groups.map(Groups::view).unwrap_or_default() };
    let new_user = entered as u32 & NamespaceKind::User.number() != 0 || plan.has_own(NamespaceKind::User);
    let parts = Parts::open(plan, &view, privileged, new_user);
    let joined = parts.joined.into_iter().collect::<Result<Vec<_>>>()?;
    let label = parts.label?;
    let root = parts.root.map_err(|mut problems| problems.swap_remove(0).error)?;
    if privileged
        && !plan.process.terminal
        && !plan.joins(NamespaceKind::User)
        && let Some(user) = IdRange::host_id(&plan.uid_map, plan.process.uid)
    {
        give_streams(&streams, user);
    }
    step("mounts", || format!("{} prepared", plan.mounts.len()));
    let (process, landlock, seccomp) = (parts.process?, parts.landlock?, parts.seccomp?);
    step("landlock", || if landlock.is_some() { "ruleset made" } else { "no ruleset" });
    step("seccomp", || format!("{} instructions", seccomp.as_ref().map_or(0, PreparedSeccomp::instructions)));
    let mut warnings = seccomp.as_ref().map_or_else(Vec::new, |seccomp| seccomp.warnings.clone());
    warnings.extend(parts.degraded.into_iter().map(|one| format!("{} is not in force: {}", one.what, one.why)));
    if parts.lost_capabilities != 0 {
        warnings.push(caps::left_out(&caps::names(parts.lost_capabilities)));
    }
    let deferred = [NamespaceKind::Cgroup, NamespaceKind::Time];
    let made = plan.new.iter().filter(|kind| !deferred.contains(kind));
    // The root of a container's own user namespace has no capabilities over a process that comes from outside.
    let joins_pid = plan.joins(NamespaceKind::Pid) && root.as_ref().is_none_or(PreparedContainerRoot::is_built_outside);
    let enters_pids = entered as u32 & NamespaceKind::Pid.number() != 0;
    let needs_intermediate = !joined.is_empty() || container.is_some() || plan.new.contains(&NamespaceKind::Time);
    let confines_first = (joins_pid || enters_pids) && !new_user;
    let limits = process.has_limits();
    let (filtered, may_gain) = (seccomp.is_some() || landlock.is_some(), !plan.process.no_new_privs);
    let filters_early = match &seccomp {
        Some(seccomp) => remaining_calls::are_allowed(seccomp, plan, confines_first, limits),
        None => may_gain,
    };
    let late = seccomp.is_some() && !filters_early;
    let extra = if filtered && may_gain { parts.capabilities.lacks_admin(new_user) } else { 0 };
    // In a user namespace of its own, no process has capabilities over one that comes from outside.
    let pids = joined.iter().find(|join| join.kind == NamespaceKind::Pid);
    let pids = pids.map(|join| PidNamespace::Open(join.fd.as_fd()));
    let pids = pids.or(container.filter(|_| enters_pids).map(|one| PidNamespace::Of(one.pid)));
    let exclusion = match pids.filter(|_| !new_user) {
        Some(pids) => takeover::refuse(&pids, parts.capabilities, late && extra != 0)?,
        None => None,
    };
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
        capabilities: parts.capabilities,
        extra_capability: extra,
        label,
        flags: made.fold(0, |flags, kind| flags | u64::from(kind.number())),
        entered_flags: entered,
        new_namespaces: plan.new.iter().filter(|kind| !deferred.contains(kind)).map(|kind| kind.file_name()).collect(),
        joined,
        entrance: groups.map(Groups::entrance).transpose()?.flatten(),
        hides_cgroup: view.own_namespace,
        loopback: plan.makes(NamespaceKind::Network),
        terminal: plan.process.terminal.then_some(Size { rows, columns }),
        streams,
        first_closed: 3 + i32::try_from(preserved).unwrap_or(i32::MAX - 3),
        scheduled_last: handshake.is_some() && schedule::is_real_time(&plan.process),
        gate,
        handshake,
        waits_for_hooks: !plan.hooks.prestart.is_empty() || !plan.hooks.create_runtime.is_empty(),
        needs_home: !plan.process.command.env.iter().any(|variable| variable.as_bytes().starts_with(b"HOME=")),
        hook_environment: hooks::inherited_by(&plan.hooks.create_container),
        hook_output: Output::of(&plan.hooks.create_container, &plan.hooks.files)?,
        in_user_namespace: new_user,
        filters_early,
        confines_first,
        needs_intermediate,
        _exclusion: exclusion,
        warnings,
    })
}
