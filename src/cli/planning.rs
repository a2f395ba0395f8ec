//! Turns the words of `run` and `plan` into a plan.

use std::ffi::OsStr;
use std::mem::ManuallyDrop;
use std::os::unix::ffi::OsStrExt as _;

use super::values::{shown, wrong};
use super::{flags, toolchain};
use crate::args::Args;
use crate::error::Result;
use crate::plan::{Bytes, MountKind, RunPlan};
use crate::policy::mount::WORKSPACE;
use crate::policy::path::HostPath;
use crate::policy::trust::{self, Guarded};
use crate::policy::value::Value as _;
use crate::policy::{self, Caller, Loaded, Resolved};

/// Builds the plan from the words, this process's working directory and its environment.
pub fn plan(args: &Args, id: String) -> Result<Resolved> {
    let loaded = load(args)?;
    let records = super::records::located(args, &loaded.settings)?;
    let mut resolved = resolve(args, id, loaded, records)?;
    resolved.plan.policy_sha256 = resolved.plan.policy_hash();
    Ok(resolved)
}

/// Loads the policy that the words select.
pub fn load(args: &Args) -> Result<Loaded> {
    // Needed only for relative paths; if it is missing, the error names the path.
    let cwd = std::env::current_dir().ok();
    let flags = flags::settings(args, cwd.as_deref())?;
    let profiles: Vec<&OsStr> = args.all("profile").collect();
    let mut loaded = policy::load(&profiles, flags.settings, cwd.as_deref())?;
    loaded.files.extend(flags.files);
    if !loaded.settings.toolchains.is_empty() {
        toolchain::add(&mut loaded.settings)?;
    }
    Ok(loaded)
}

/// Builds the plan from the words and the loaded policy. Refuses it if the workload could write to a file of the policy or
/// to one of `records`.
pub fn resolve(args: &Args, id: String, loaded: Loaded, records: Vec<Guarded>) -> Result<Resolved> {
    let profile_sha256 = trust::profile_sha256(&loaded.settings)?;
    // Not freed: freeing the environment would delay the start.
    let caller = ManuallyDrop::new(Caller { env: std::env::vars_os().collect(), profile_sha256, id });
    // A session may be without a command of its own, and `why` has a question. Their plan is that of any command.
    let (no_command, asks) = (args.is_on("detach") && args.words.is_empty(), args.name() == "why");
    let any = ["true".into()];
    let command = if no_command || asks { &any } else { &args.words[..] };
    let mut resolved = policy::resolve(loaded.settings, command, &caller)?;
    if no_command {
        resolved.plan.command.argv.clear();
    }
    if flags::is_of_host(args) {
        resolved.plan.command.cwd = cwd_inside(args, &resolved.plan)?;
    }
    resolved.warnings.extend(too_many_cpus(&resolved.plan));
    trust::check(&mut resolved.plan, loaded.files.into_iter().chain(records))?;
    Ok(resolved)
}

/// The directory inside at which the sandbox shows `--workdir`, a relative path of the host.
fn cwd_inside(args: &Args, plan: &RunPlan) -> Result<Bytes> {
    let word = args.value("workdir").unwrap_or_default();
    let mut path = HostPath::parse(word.as_bytes()).map_err(|reason| wrong("workdir", reason))?;
    path.anchor(std::env::current_dir().ok().as_deref()).map_err(|reason| wrong("workdir", reason))?;
    let of_host = path.0.as_path();
    let binds = plan.mounts.iter().rev().filter_map(|mount| match &mount.kind {
        MountKind::Bind { source } => {
            Some(mount.destination.as_path().join(of_host.strip_prefix(source.as_path()).ok()?))
        }
        _ => None,
    });
    // The deepest bind hides those above it. A path of the workspace is preferred to the same path elsewhere.
    let inside = binds.max_by_key(|inside| (inside.starts_with(WORKSPACE), inside.as_os_str().len()));
    inside.map(|inside| Bytes::from(inside.components().as_path())).ok_or_else(|| {
        let reason = format!(
            "{} is a relative path of the host, where it is \"{}\", which the sandbox does not show",
            shown(word),
            path.0
        );
        wrong("workdir", reason)
            .hint("--workspace . shows the current directory at /workspace, --ro . at the same path")
    })
}

/// A limit above what the machine has limits nothing.
fn too_many_cpus(plan: &RunPlan) -> Option<String> {
    let limit = plan.budget.cpu_quota_us?;
    let cpus = std::thread::available_parallelism().ok()?.get() as u64;
    (limit > cpus * 100_000)
        .then(|| format!("--cpus {} has no effect: this process may use {cpus}", limit as f64 / 100_000.0))
}
