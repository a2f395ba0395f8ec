//! What has to change in a document before the types of `oci-spec` take it as the specification means it.

use super::document::{Json, Read, Within as _, spelt, wrong};
use crate::confine::caps;
use crate::plan::Capability;

/// What is taken out of a configuration.
pub struct Aside {
    /// `linux.seccomp` as text: our own compiler reads it, and names what is wrong in it.
    pub seccomp: Option<String>,
    /// What is left out.
    pub warnings: Vec<String>,
}

/// A whole configuration.
pub fn spec(root: &mut Json) -> Read<Aside> {
    let mut aside = Aside { seccomp: None, warnings: Vec::new() };
    if let Some(at) = field(root, "process") {
        aside.warnings = process(at).within("process")?;
    }
    if let Some(linux) = field(root, "linux") {
        aside.seccomp = take(linux, "seccomp").map(|profile| profile.to_string());
        if let Some(at) = field(linux, "resources") {
            resources(at)?;
        }
    }
    Ok(aside)
}

/// A process; with what is left out of it.
pub fn process(process: &mut Json) -> Read<Vec<String>> {
    // The types take no unknown one; the specification wants such a configuration to work on.
    let mut unknown = Vec::new();
    for set in ["bounding", "effective", "inheritable", "permitted", "ambient"] {
        let names = field(process, "capabilities").and_then(|sets| field(sets, set));
        let Some(Json::Array(names)) = names else { continue };
        names.retain(|name| match name {
            Json::String(name) if Capability::from_word(name).is_none() => {
                unknown.push(name.to_string());
                false
            }
            _ => true,
        });
    }
    unknown.sort();
    unknown.dedup();
    let warnings = if unknown.is_empty() { Vec::new() } else { vec![caps::left_out(&unknown)] };
    // Absent ones would be 0; and some engines write "unlimited" as -1.
    for (index, limit) in items(process, "rlimits").iter_mut().enumerate() {
        for key in ["soft", "hard"] {
            match field(limit, key) {
                Some(value @ Json::Negative(-1)) => *value = Json::Unsigned(u64::MAX),
                Some(_) => {}
                None => return Err(wrong(&format!("rlimits[{index}].{key}"), "is missing")),
            }
        }
    }
    if let Some(priority) = field(process, "ioPriority")
        && field(priority, "class").is_none()
    {
        return Err(wrong("ioPriority.class", "is missing"));
    }
    if let Some(scheduler) = field(process, "scheduler") {
        for flag in items(scheduler, "flags") {
            if let Json::String(name) = flag {
                *name = spelt(name).to_owned().into();
            }
        }
    }
    Ok(warnings)
}

/// Resources.
pub fn resources(resources: &mut Json) -> Read<()> {
    // An empty type is as good as none.
    for rule in items(resources, "devices") {
        if matches!(field(rule, "type"), Some(Json::String(kind)) if kind.is_empty()) {
            take(rule, "type");
        }
    }
    // The specification has 64 bits without a sign, and no machine has as much memory.
    for limit in items(resources, "hugepageLimits") {
        if let Some(Json::Unsigned(limit)) = field(limit, "limit") {
            *limit = (*limit).min(i64::MAX as u64);
        }
    }
    Ok(())
}

/// The value under a key, unless it is absent or null.
fn field<'t, 'a>(json: &'t mut Json<'a>, key: &str) -> Option<&'t mut Json<'a>> {
    let Json::Object(entries) = json else { return None };
    entries.iter_mut().find(|entry| entry.0 == key && entry.1 != Json::Null).map(|entry| &mut entry.1)
}

fn items<'t, 'a>(json: &'t mut Json<'a>, key: &str) -> &'t mut [Json<'a>] {
    match field(json, key) {
        Some(Json::Array(items)) => items,
        _ => &mut [],
    }
}

fn take<'a>(json: &mut Json<'a>, key: &str) -> Option<Json<'a>> {
    let Json::Object(entries) = json else { return None };
    let found = entries.iter().position(|entry| entry.0 == key)?;
    Some(entries.remove(found).1).filter(|value| *value != Json::Null)
}
