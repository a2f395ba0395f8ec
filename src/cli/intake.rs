//! The words of `run` and `plan` become a plan.

use std::ffi::OsStr;
use std::hash::{BuildHasher as _, Hasher as _};
use std::mem::ManuallyDrop;

use super::flags;
use super::words::Words;
use crate::error::{Error, Result, Step};
use crate::policy::trust::{self, Guarded};
use crate::policy::{self, Caller, Loaded, Resolved};

/// The plan of these words, read in this process's directory and environment.
pub fn plan(words: &Words<'_>, id: String) -> Result<Resolved> {
    let loaded = load(words)?;
    let records = super::records::located(words, &loaded.settings)?;
    let mut resolved = resolve(words, id, loaded, records)?;
    resolved.plan.policy_sha256 = resolved.plan.policy_hash();
    Ok(resolved)
}

/// The policy of these words.
pub fn load(words: &Words<'_>) -> Result<Loaded> {
    // Needed only where a path is relative, and then its absence is an error that says so.
    let cwd = std::env::current_dir().ok();
    let flags = flags::settings(words, cwd.as_deref())?;
    let profiles: Vec<&OsStr> = words.all("profile").collect();
    let mut loaded = policy::load(&profiles, flags.settings, cwd.as_deref())?;
    loaded.files.extend(flags.files);
    Ok(loaded)
}

/// The plan of words and their policy. None of the policy's files and of `records` lies where the workload can write.
pub fn resolve(words: &Words<'_>, id: String, loaded: Loaded, records: Vec<Guarded>) -> Result<Resolved> {
    let profile_sha256 = trust::profile_sha256(&loaded.settings)?;
    // The environment is not freed: a start would wait for that.
    let caller = ManuallyDrop::new(Caller { env: std::env::vars_os().collect(), profile_sha256, id });
    let resolved = policy::resolve(loaded.settings, words.operands, &caller)?;
    trust::check(&resolved.plan, loaded.files.into_iter().chain(records))?;
    Ok(resolved)
}

/// The name that was asked for, or one that nobody else has.
pub fn id(words: &Words<'_>) -> Result<String> {
    match words.one("name") {
        Some(name) => {
            let name = name.to_str().ok_or_else(|| Error::new(Step::Usage, "--name", "is not UTF-8"))?;
            Ok(name.to_owned())
        }
        None => Ok(fresh_id()),
    }
}

/// 64 random bits in hexadecimal. The standard library seeds its hash maps from getrandom(2), which is all that is needed
/// of it here.
pub fn fresh_id() -> String {
    format!("{:016x}", std::hash::RandomState::new().build_hasher().finish())
}
