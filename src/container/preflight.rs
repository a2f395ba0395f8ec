//! Preflight: reports everything that would keep a container from being created on this host, without creating it.

use super::parts::Parts;
use crate::confine::caps;
use crate::confine::privilege;
use crate::error::{Error, Step};
use crate::plan::container::{CgroupView, MountSource, NamespaceKind};
use crate::plan::{ContainerPlan, Facility};

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

/// Opens the parts as a start does, and collects every problem, not only the first.
pub fn run(plan: &ContainerPlan) -> Vec<PreflightFinding> {
    let view = CgroupView { own_namespace: plan.makes(NamespaceKind::Cgroup), ..CgroupView::default() };
    let privileged = privilege::is_privileged().unwrap_or(false);
    let parts = Parts::open(plan, &view, privileged, plan.has_own(NamespaceKind::User));
    let mut found = Vec::new();
    let mut note = |field: &str, is_warning: bool, error: Option<Error>| {
        found.extend(error.map(|error| PreflightFinding { field: field.to_owned(), error, is_warning }));
    };
    for (index, join) in parts.joined.into_iter().enumerate() {
        note(&format!("linux.namespaces[{index}]"), false, join.err());
    }
    for kind in NamespaceKind::ALL.iter().copied().filter(|kind| plan.makes(*kind)) {
        let exists = std::path::Path::new("/proc/self/ns").join(kind.file_name()).exists();
        let missing = || Error::new(Step::Clone, kind.name(), "this kernel has no such namespaces");
        note("linux.namespaces", false, (!exists).then(missing));
    }
    for problem in parts.root.err().into_iter().flatten() {
        match problem.mount {
            None => note("root", false, Some(problem.error)),
            // The container's cgroups do not exist yet.
            Some(index) if plan.mounts[index].source == MountSource::Cgroup => {}
            Some(index) => note(&format!("mounts[{index}]"), false, Some(problem.error)),
        }
    }
    note("process", false, parts.process.err());
    note("process", false, parts.label.err());
    note("annotations.org.stockade.landlock", false, parts.landlock.err());
    match parts.seccomp {
        Err(error) => note("linux.seccomp", false, Some(error)),
        Ok(filter) => {
            for warning in filter.map(|filter| filter.warnings).unwrap_or_default() {
                note("linux.seccomp", true, Some(Error::new(Step::SeccompProfile, "", warning)));
            }
        }
    }
    if parts.lost_capabilities != 0 {
        let names = caps::names(parts.lost_capabilities).join(", ");
        let error = Error::new(Step::Capabilities, names, "the caller does not have them: they are dropped");
        note("process.capabilities", true, Some(error));
    }
    for one in parts.degraded {
        let error = Error::new(Step::Landlock, Facility::Landlock.name(), one.why);
        note("annotations.org.stockade.landlock", true, Some(error));
    }
    found
}
