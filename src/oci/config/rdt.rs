//! `linux.intelRdt`.

use oci_spec::runtime::LinuxIntelRdt;

use super::document::{Read, each, wrong};
use super::{filled, text};
use crate::plan::container::IntelRdt;

/// Names that a group of `resctrl` cannot have.
const RESERVED: [&str; 4] = [".", "..", "info", "mon_groups"];

/// Reads the settings.
#[allow(deprecated)] // the deprecated fields request the same monitoring, one for each kind of counter
pub fn read(rdt: &LinuxIntelRdt) -> Read<IntelRdt> {
    let clos_id = filled("closID", rdt.clos_id())?;
    if let Some(name) = &clos_id {
        let odd = |c: char| c == '/' || c.is_control();
        if name != "/" && (name.len() > 255 || name.contains(odd) || RESERVED.contains(&name.as_str())) {
            return Err(wrong("closID", "is not a group name"));
        }
    }
    let mut schemas = Vec::new();
    let both = [("l3CacheSchema", "L3", rdt.l3_cache_schema()), ("memBwSchema", "MB", rdt.mem_bw_schema())];
    for (key, resource, schema) in both {
        let lines = text(key, schema.as_deref().unwrap_or_default())?.lines().map(str::trim);
        for line in lines.filter(|line| !line.is_empty()) {
            // Cache allocation may be separate for code and data.
            let named = line.split(':').next().unwrap_or_default().trim();
            if !is_line(line) || !named.starts_with(resource) {
                return Err(wrong(key, format!("is not a line such as {resource}:0=ff;1=f")));
            }
            schemas.push(line.to_owned());
        }
    }
    let schemata = each("schemata", rdt.schemata(), |item| {
        let line = text("", item)?.trim();
        if is_line(line) { Ok(line.to_owned()) } else { Err(wrong("", "is not a line such as L3:0=ff;1=f")) }
    })?;
    let monitored = [rdt.enable_monitoring(), rdt.enable_cmt(), rdt.enable_mbm()].contains(&&Some(true));
    Ok(IntelRdt { clos_id, schemas, schemata, monitored })
}

/// Whether a line has a resource and values for some of its domains.
fn is_line(line: &str) -> bool {
    let Some((resource, domains)) = line.split_once(':') else { return false };
    let word = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let named = |domain: &str| domain.split_once('=').is_some_and(|(id, value)| word(id.trim()) && word(value.trim()));
    line.len() <= 4000 && word(resource.trim()) && domains.split(';').all(named)
}
