//! Turns the words of `run` and `plan` into a plan.

use std::ffi::OsStr;
use std::mem::ManuallyDrop;

use super::{flags, toolchain};
use crate::args::Args;
use crate::error::Result;
use crate::policy::trust::{self, Guarded};
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
    // A session may be without a command of its own. Its plan is that of any command.
    let no_command = args.is_on("detach") && args.words.is_empty();
    let any = ["true".into()];
    let mut resolved = policy::resolve(loaded.settings, if no_command { &any } else { &args.words }, &caller)?;
    if no_command {
        resolved.plan.command.argv.clear();
    }
    trust::check(&mut resolved.plan, loaded.files.into_iter().chain(records))?;
    Ok(resolved)
}
