//! A plan without the protection that is left out: only in a build that is made for that.

use crate::plan::{Budget, Capability, IdMapping, Plan};
use crate::sys::ablate::{Layer, without};

/// The plan without it.
pub fn thinned(plan: &Plan) -> Plan {
    let mut plan = plan.clone();
    let all = without(Layer::NoNewPrivileges);
    if all || without(Layer::Seccomp) {
        plan.seccomp = None;
        plan.explain_denials = false;
    }
    if all || without(Layer::Guards) {
        plan.guards.clear();
    }
    if all || without(Layer::Landlock) {
        plan.landlock = None;
    }
    if without(Layer::Masks) {
        plan.masked_paths.clear();
        plan.readonly_paths.clear();
    }
    if without(Layer::Capabilities) {
        plan.capabilities = Capability::ALL.to_vec();
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
        (plan.namespaces.uts, plan.hostname) = (false, None);
    }
    if without(Layer::Budget) {
        plan.budget = Budget::default();
    }
    if without(Layer::ResourceLimits) {
        plan.rlimits.clear();
    }
    if without(Layer::ScratchLimit) {
        (plan.scratch.size_bytes, plan.scratch.nr_inodes) = (1 << 40, 1 << 30);
    }
    plan
}
