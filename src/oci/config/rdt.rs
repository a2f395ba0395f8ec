//! `linux.intelRdt`.

use stockade_json::At;

use super::{Read, flag, text, without_nul};
use crate::plan::container::IntelRdt;

/// Names that a group of `resctrl` cannot have.
const TAKEN: [&str; 4] = [".", "..", "info", "mon_groups"];

/// Reads it.
pub fn read(at: &At) -> Read<IntelRdt> {
    let clos_id = text(at, "closID")?.filter(|name| !name.is_empty());
    if let (Some(name), Some(place)) = (&clos_id, at.get("closID")?) {
        let odd = |c: char| c == '/' || c.is_control();
        if name != "/" && (name.len() > 255 || name.contains(odd) || TAKEN.contains(&name.as_str())) {
            return Err(place.wrong("is no name of a group"));
        }
    }
    let mut schemas = Vec::new();
    for (key, resource) in [("l3CacheSchema", "L3"), ("memBwSchema", "MB")] {
        let Some(value) = at.get(key)? else { continue };
        for line in without_nul(&value)?.lines().map(str::trim).filter(|line| !line.is_empty()) {
            // Cache allocation may be split for code and data.
            let named = line.split(':').next().unwrap_or_default().trim();
            if !is_line(line) || !named.starts_with(resource) {
                return Err(value.wrong(format!("is no line such as {resource}:0=ff;1=f")));
            }
            schemas.push(line.to_owned());
        }
    }
    let mut schemata = Vec::new();
    if let Some(list) = at.get("schemata")? {
        for item in list.items()? {
            let line = without_nul(&item)?.trim();
            if !is_line(line) {
                return Err(item.wrong("is no line such as L3:0=ff;1=f"));
            }
            schemata.push(line.to_owned());
        }
    }
    // The older names asked for the same, one for each kind of counter.
    let monitored = flag(at, "enableMonitoring")? | flag(at, "enableCMT")? | flag(at, "enableMBM")?;
    Ok(IntelRdt { clos_id, schemas, schemata, monitored })
}

/// A resource, and for some of its domains a value.
fn is_line(line: &str) -> bool {
    let Some((resource, domains)) = line.split_once(':') else { return false };
    let word = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let named = |domain: &str| domain.split_once('=').is_some_and(|(id, value)| word(id.trim()) && word(value.trim()));
    line.len() <= 4000 && word(resource.trim()) && domains.split(';').all(named)
}
