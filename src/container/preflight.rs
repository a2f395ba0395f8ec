//! Preflight: finds what would keep a container from being created on this host, without creating it.

use std::os::fd::AsFd;

use super::prepare::{open_join, prepare_landlock, prepare_process};
use crate::confine::caps::Sets;
use crate::confine::{label, seccomp, user};
use crate::error::Error;
use crate::plan::container::{CgroupView, MountSource, NamespaceKind};
use crate::plan::{ContainerPlan, Facility};
use crate::rootfs;
use crate::rootfs::container_mounts::Surroundings;

/// A problem with one part of a configuration.
#[derive(Debug)]
pub struct PreflightFinding {
    /// The part, as a path in `config.json`.
    pub field: String,
    /// The problem.
    pub error: Error,
    /// Whether the container would be created nevertheless, with less.
    pub is_warning: bool,
}

/// Collects every problem, not only the first.
pub fn run(plan: &ContainerPlan) -> Vec<PreflightFinding> {
    let mut found = Vec::new();
    let mut note =
        |field: &str, error: Error| found.push(PreflightFinding { field: field.to_owned(), error, is_warning: false });
    for (index, join) in plan.joined.iter().enumerate() {
        if let Err(error) = open_join(join.kind, &join.path) {
            note(&format!("linux.namespaces[{index}]"), error);
        }
    }
    let own = |kind: &NamespaceKind| plan.new.contains(kind);
    for kind in NamespaceKind::ALL.iter().filter(|kind| own(kind)) {
        let name = match kind {
            NamespaceKind::Mount => "mnt",
            NamespaceKind::Network => "net",
            kind => kind.name(),
        };
        if !std::path::Path::new("/proc/self/ns").join(name).exists() {
            let error = Error::new(crate::error::Step::Clone, kind.name(), "this kernel has no such namespaces");
            note("linux.namespaces", error);
        }
    }
    let mut rootless = plan.clone();
    let mounts = std::mem::take(&mut rootless.mounts);
    let joined = plan.joined.iter().find(|join| join.kind == NamespaceKind::User);
    let users = joined.and_then(|join| std::fs::File::open(join.path.as_path()).ok());
    let prepare = |plan: &ContainerPlan| {
        let view = CgroupView { own_namespace: own(&NamespaceKind::Cgroup), ..CgroupView::default() };
        rootfs::container_root::prepare(
            plan,
            &mut Surroundings {
                privileged: user::is_privileged().unwrap_or(false),
                idmap: user::idmap_namespace_of,
                maps: (&plan.uid_map, &plan.gid_map),
                users: users.as_ref().map(AsFd::as_fd),
                cgroups: &view,
                label: plan.mount_label.as_deref(),
            },
        )
        .err()
    };
    match prepare(&rootless) {
        Some(error) => note("root", error),
        // Each mount separately, so that one failure does not hide the others.
        None => {
            for (index, mount) in mounts.into_iter().enumerate() {
                let is_cgroup = mount.source == MountSource::Cgroup;
                let one = ContainerPlan { mounts: vec![mount], ..rootless.clone() };
                if let Some(error) = prepare(&one).filter(|_| !is_cgroup) {
                    note(&format!("mounts[{index}]"), error);
                }
            }
        }
    }
    if let Err(error) = prepare_process(plan) {
        note("process", error);
    }
    if let Err(error) = label::prepare(plan) {
        note("process", error);
    }
    let mut degraded = Vec::new();
    if let Err(error) = prepare_landlock(plan, &mut degraded) {
        note("annotations.org.stockade.landlock", error);
    }
    match seccomp::install::prepare(plan.confinement.seccomp.as_ref(), &plan.into()) {
        Err(error) => note("linux.seccomp", error),
        Ok((Some(prepared), _)) => {
            for warning in prepared.warnings.clone() {
                let error = Error::new(crate::error::Step::SeccompProfile, "", warning);
                found.push(PreflightFinding { field: "linux.seccomp".to_owned(), error, is_warning: true });
            }
        }
        Ok(_) => {}
    }
    let new_user = own(&NamespaceKind::User) || plan.joined.iter().any(|join| join.kind == NamespaceKind::User);
    let (_, lost) = Sets::of(&plan.process.capabilities).possible();
    if !new_user && lost != 0 {
        let names = Sets { bounding: lost, ..Sets::of(&Default::default()) }.names().join(", ");
        let error =
            Error::new(crate::error::Step::Capabilities, names, "the caller does not have them: they are dropped");
        found.push(PreflightFinding { field: "process.capabilities".to_owned(), error, is_warning: true });
    }
    for one in degraded {
        let error = Error::new(crate::error::Step::Landlock, Facility::Landlock.name(), one.why);
        found.push(PreflightFinding { field: "annotations.org.stockade.landlock".to_owned(), error, is_warning: true });
    }
    found
}
