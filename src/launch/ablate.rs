//! Removes one protection from a plan. Only in builds with the feature `ablate`, which are never shipped.

use stockade_seccomp::builtin::Guard;

use crate::plan::container::{CapabilitySets, IdRange, NamespaceKind, Resources};
use crate::plan::{Budget, Capability, ContainerPlan, IdMapping, RunPlan};
use crate::sys::ablate::{Layer, without};

/// The plan without the protection.
pub fn thinned(plan: &RunPlan) -> RunPlan {
    let mut plan = plan.clone();
    let all = without(Layer::NoNewPrivileges);
    if all || without(Layer::Seccomp) {
        plan.confinement.seccomp = None;
        plan.confinement.guards.retain(|name| !Guard::STANDING.iter().any(|guard| guard.name() == name)); // the profile contains them
        plan.explain_denials = false;
    }
    if all || without(Layer::Guards) {
        plan.confinement.guards.clear();
    }
    if all || without(Layer::Landlock) {
        plan.confinement.landlock = None;
    }
    if without(Layer::Masks) {
        plan.confinement.masked_paths.clear();
        plan.confinement.readonly_paths.clear();
    }
    if without(Layer::Capabilities) {
        plan.capabilities = Capability::all();
    }
    if without(Layer::Identity) {
        plan.identity.mapping = IdMapping::HostUser { uid: 0, gid: 0 };
    }
    if without(Layer::NamespaceLimits) {
        plan.namespaces.nested = 1000;
    }
    plan.namespaces.ipc &= !without(Layer::IpcNamespace);
    plan.namespaces.cgroup &= !without(Layer::CgroupNamespace);
    if without(Layer::UtsNamespace) {
        (plan.namespaces.uts, plan.confinement.hostname) = (false, None);
    }
    if without(Layer::Budget) {
        plan.budget = Budget::default();
    }
    if without(Layer::ResourceLimits) {
        plan.command.rlimits.clear();
    }
    if without(Layer::ScratchLimit) {
        (plan.scratch.size_bytes, plan.scratch.nr_inodes) = (1 << 40, 1 << 30);
    }
    plan
}

/// The same for a container's plan.
pub fn thin_container(plan: &mut ContainerPlan) {
    let all = without(Layer::NoNewPrivileges);
    // Without no_new_privs a filter must be installed while the process has privileges, and this profile then forbids dropping
    // them. And Landlock rules are enforced by the program's user, who lacks the privilege for it.
    if all || without(Layer::Seccomp) {
        plan.confinement.seccomp = None;
    }
    if all || without(Layer::Landlock) {
        plan.confinement.landlock = None;
    }
    plan.process.no_new_privs &= !all;
    if without(Layer::Masks) {
        plan.confinement.masked_paths.clear();
        plan.confinement.readonly_paths.clear();
    }
    if without(Layer::Capabilities) {
        let every = || Capability::all();
        plan.process.capabilities = CapabilitySets {
            bounding: every(),
            effective: every(),
            inheritable: every(),
            permitted: every(),
            ambient: every(),
        };
    }
    if without(Layer::Identity) {
        (plan.process.uid, plan.process.gid) = (0, 0);
        for map in [&mut plan.uid_map, &mut plan.gid_map] {
            *map = vec![IdRange { inside: 0, outside: 0, count: 65536 }];
        }
    }
    let namespaces = [
        (Layer::UserNamespace, NamespaceKind::User),
        (Layer::PidNamespace, NamespaceKind::Pid),
        (Layer::NetworkNamespace, NamespaceKind::Network),
        (Layer::IpcNamespace, NamespaceKind::Ipc),
        (Layer::UtsNamespace, NamespaceKind::Uts),
        (Layer::CgroupNamespace, NamespaceKind::Cgroup),
    ];
    plan.new.retain(|kind| !namespaces.iter().any(|(layer, left_out)| left_out == kind && without(*layer)));
    if without(Layer::UserNamespace) {
        plan.uid_map.clear();
        plan.gid_map.clear();
    }
    if without(Layer::UtsNamespace) {
        (plan.confinement.hostname, plan.domainname) = (None, None);
    }
    plan.read_only &= !without(Layer::ReadOnly);
    plan.new_keyring &= !without(Layer::Keyring);
    if without(Layer::Budget) {
        let devices = plan.cgroup.resources.devices.take();
        plan.cgroup.resources = Resources { devices, ..Resources::default() };
    }
    if without(Layer::ResourceLimits) {
        plan.process.command.rlimits.clear();
    }
}
