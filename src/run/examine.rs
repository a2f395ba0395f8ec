//! What a run would be here, without making it.

use super::bare::{Bare, settle};
use super::prepare::{filter, guards, ids_and_root, rules, rules_of_paths};
use crate::cgroup;
use crate::confine::process;
use crate::confine::user::Users;
use crate::error::Result;
use crate::plan::RunPlan;
use crate::sys;

/// What a run of a plan would be here.
#[derive(Clone, Copy, Debug)]
pub struct Examined {
    /// The workload's user and group on the host.
    pub host_ids: (u32, u32),
    /// Whether these were chosen with privilege, so that the workload has no group of the caller.
    pub is_privileged: bool,
    /// Whether the run would have namespaces.
    pub has_namespaces: bool,
}

/// Opens what a run would open, and makes neither a sandbox nor a cgroup. The error is what a run would be refused for.
pub fn examine(plan: &RunPlan) -> Result<Examined> {
    examined(plan).map(|(examined, _)| examined)
}

/// The same, with the rewritten plan of a run without namespaces.
pub fn examined(plan: &RunPlan) -> Result<(Examined, Option<RunPlan>)> {
    sys::process::default_child_signal();
    let bare = settle(plan)?;
    let wanted = bare.as_ref().map_or(plan, |bare| &bare.plan);
    let opened = opened(wanted, bare.as_ref());
    let has_namespaces = bare.is_none();
    let mut rewritten = bare.as_ref().map(|bare| bare.plan.clone());
    bare.and_then(|bare| bare.remove_scratch());
    let users = opened?;
    cgroup::availability::examine(&plan.budget, &plan.confinement.allow_degraded)?;
    if let Some(plan) = &mut rewritten {
        plan.confinement.guards = guards(plan, !has_namespaces, &users);
    }
    let host_ids = (users.host_uid, users.host_gid);
    Ok((Examined { host_ids, is_privileged: users.is_privileged(), has_namespaces }, rewritten))
}

fn opened(plan: &RunPlan, bare: Option<&Bare>) -> Result<Users> {
    let mut degraded = Vec::new();
    let (users, _) = ids_and_root(plan, bare, &mut degraded)?;
    let users = if let Some(bare) = bare { bare.take_users(users, &mut degraded)? } else { users };
    process::prepare(&plan.command, plan.confinement.hostname.as_ref(), rules(plan))?;
    rules_of_paths(plan, bare, &mut degraded)?;
    filter(plan, bare, &users)?;
    Ok(users)
}
