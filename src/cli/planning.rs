//! Turns the words of `run` and `plan` into a plan.

use std::ffi::OsStr;
use std::hash::{BuildHasher as _, Hasher as _};
use std::mem::ManuallyDrop;

use super::flags;
use crate::args::Args;
use crate::error::{Error, Result, Step};
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
    Ok(loaded)
}

/// Builds the plan from the words and the loaded policy. Refuses it if the workload could write to a file of the policy or
/// to one of `records`.
pub fn resolve(args: &Args, id: String, loaded: Loaded, records: Vec<Guarded>) -> Result<Resolved> {
    let profile_sha256 = trust::profile_sha256(&loaded.settings)?;
    // Not freed: freeing the environment would delay the start.
    let caller = ManuallyDrop::new(Caller { env: std::env::vars_os().collect(), profile_sha256, id });
    let resolved = policy::resolve(loaded.settings, &args.words, &caller)?;
    trust::check(&resolved.plan, loaded.files.into_iter().chain(records))?;
    Ok(resolved)
}

/// The name that `--name` gives, or a random one.
pub fn id(args: &Args) -> Result<String> {
    match args.value("name") {
        Some(name) => {
            let name = name.to_str().ok_or_else(|| Error::new(Step::Usage, "--name", "is not UTF-8"))?;
            Ok(name.to_owned())
        }
        None => Ok(fresh_id()),
    }
}

/// 64 random bits in hexadecimal. The standard library seeds `RandomState` from getrandom(2).
pub fn fresh_id() -> String {
    format!("{:016x}", std::hash::RandomState::new().build_hasher().finish())
}
