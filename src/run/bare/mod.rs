//! A run without namespaces, `--allow-degraded namespaces`: where the host makes none, Landlock, seccomp and limits confine the
//! workload on the caller's own root, among the caller's processes.
//!
//! The plan is rewritten, and the run takes the same steps. Everything that the plan's mounts would show becomes a Landlock rule;
//! what only a namespace can do is refused by name. The tree is held together by its init (`confine::tree`).

mod missing;
mod orphans;
mod rules;
mod translate;
mod trial;

use nix::errno::Errno;

pub use self::orphans::Orphans;
use crate::confine::landlock::{PreparedLandlock, SCOPES};
use crate::confine::user::Users;
use crate::error::{Error, Result, Step};
use crate::plan::{Facility, RunPlan};
use crate::report::Degraded;
use crate::rootfs::callers_root::{self, View};
use crate::rootfs::run_root::{self, PreparedRoot};
use crate::sys;

/// Files could not be mapped, and the owner of the first.
pub type Unmapped = (Error, (u32, u32));

/// A run without namespaces.
#[derive(Debug)]
pub struct Bare {
    /// The rewritten plan.
    pub plan: RunPlan,
    original: RunPlan,
    view: View,
    /// The plan's own Landlock lists, which restrict the view further.
    lists: crate::plan::Landlock,
    why: String,
    warning: String,
}

/// Decides how a plan is run, by trying. `None` is with namespaces.
pub fn settle(plan: &RunPlan) -> Result<Option<Bare>> {
    if !plan.confinement.allow_degraded.contains(&Facility::Namespaces) {
        return Ok(None);
    }
    let Some(refused) = trial::refusal(plan) else { return Ok(None) };
    let why = refused.to_string();
    let refuse = |what: String, reason: &str| refusal(what, &why, reason);
    let lists = plan.confinement.landlock.clone().ok_or_else(|| {
        Error::new(
            Step::Clone,
            "--landlock off",
            format!("this host makes no namespaces ({why}): nothing would confine paths"),
        )
        .hint("leave it out")
    })?;
    match sys::landlock::abi() {
        Ok(abi) if abi >= SCOPES => {}
        found => {
            let found = found.map_or_else(|_| "no Landlock".to_owned(), |abi| format!("Landlock ABI {abi}"));
            let reason = format!(
                "this kernel has {found}; a run without namespaces needs ABI {SCOPES} (Linux 6.12), which keeps its signals inside"
            );
            return Err(Error::new(Step::Landlock, "scope of signals", reason)
                .hint("`stockade doctor` shows what restricts namespaces here"));
        }
    }
    translate::check(plan, &refuse)?;
    let view = callers_root::view(plan, &refuse)?;
    let rewritten = translate::rewritten(plan, &lists, &view);
    let warning = format!(
        "this host makes no namespaces ({why}): Landlock, seccomp and limits alone confine this run; the report lists what it lacks"
    );
    Ok(Some(Bare { plan: rewritten, original: plan.clone(), view, lists, why, warning }))
}

/// Refuses a session that would have no namespaces: its init could not end one command without all others.
pub fn refuse_session(plan: &RunPlan) -> Result<()> {
    if !plan.confinement.allow_degraded.contains(&Facility::Namespaces) {
        return Ok(());
    }
    let refused = |why: Error| {
        refusal("session".to_owned(), &why.to_string(), "nothing else ends one command without the others")
            .hint("run the command without -d; `stockade doctor` shows what restricts namespaces here")
    };
    trial::refusal(plan).map_or(Ok(()), |why| Err(refused(why)))
}

/// The error for an option that this host cannot have.
fn refusal(what: String, why: &str, reason: &str) -> Error {
    Error::new(Step::Clone, what, format!("needs namespaces, and this host makes none ({why}): {reason}"))
        .hint("leave it out; `stockade doctor` shows what restricts namespaces here")
}

impl Bare {
    /// The root for a workload with these ids, or the error and the owner of files that it cannot write.
    pub fn root(&self, users: &Users) -> Result<std::result::Result<PreparedRoot, Unmapped>> {
        let host_ids = (users.host_uid, users.host_gid);
        match self.view.written_of_other(host_ids).filter(|_| users.is_privileged()) {
            None => run_root::of_caller(&self.plan, &self.view.scratch).map(Ok),
            Some((path, owner)) => {
                let error = Error::errno(Step::Source, path.to_string_lossy(), Errno::EPERM).hint(format!(
                    "without namespaces the workload's own user cannot write files of {}:{}: bind it read-only, or run stockade as \
                     their owner. --allow-degraded idmap runs the workload as their owner instead",
                    owner.0, owner.1
                ));
                Ok(Err((error, owner)))
            }
        }
    }

    /// Gives scratch space to the workload's user, and records what the run lacks.
    pub fn take_users(&self, users: Users, degraded: &mut Vec<Degraded>) -> Result<Users> {
        let users = users.without_namespace();
        let host_ids = (users.host_uid, users.host_gid);
        if let Some((path, directory)) = self.view.out_of_reach(host_ids).filter(|_| users.is_privileged()) {
            let (path, directory) = (path.display().to_string(), directory.display());
            let reason = format!("{directory} above it cannot be passed by the workload's own host user");
            return Err(Error::new(Step::Source, path, reason)
                .hint("use a directory that every user reaches, or let it be reached: chmod o+x"));
        }
        self.view.give_scratch_to(users.host_uid, users.host_gid)?;
        degraded.extend(missing::degraded(&self.original, &self.view, &users, &self.why));
        Ok(users)
    }

    /// Allows what the workload is shown.
    pub fn allow(&self, landlock: &PreparedLandlock) -> Result<()> {
        rules::allow(&self.view, &self.lists, landlock)
    }

    /// One line for the caller.
    pub fn warning(&self) -> &str {
        &self.warning
    }

    /// Removes scratch space. Returns what is left behind.
    pub fn remove_scratch(&self) -> Option<Degraded> {
        let error = self.view.scratch.remove().err()?;
        let (what, wanted, got) = ("scratch".to_owned(), "removed".to_owned(), "left behind".to_owned());
        Some(Degraded { what, wanted, got, why: error.to_string() })
    }
}
