//! `linux.namespaces`, the id maps and the clocks.

use stockade_json::At;

use super::{Read, small};
use crate::plan::ContainerPlan;
use crate::plan::container::{ClockOffset, IdRange, Joined, NamespaceKind};

/// Most lines that the kernel takes for a map, and their length as text: less than a page.
const MOST_RANGES: usize = 340;
const LONGEST_MAP: usize = 4095;

/// The namespaces that are new or entered.
pub fn read(linux: &At, plan: &mut ContainerPlan) -> Read<()> {
    let mut seen = Vec::new();
    if let Some(list) = linux.get("namespaces")? {
        for item in list.items()? {
            let kind = item.get("type")?.ok_or_else(|| item.lacks("type is missing"))?;
            let kind: NamespaceKind = kind.text()?.parse().map_err(|()| {
                kind.wrong("is no namespace; there are pid, network, mount, ipc, uts, user, cgroup and time")
            })?;
            if seen.contains(&kind) {
                return Err(item.lacks(format!("is the second {} namespace", kind.name())));
            }
            seen.push(kind);
            match item.get("path")? {
                Some(path) if !path.text()?.is_empty() => {
                    plan.joined.push(Joined { kind, path: super::absolute(&path)? });
                }
                _ => plan.new.push(kind),
            }
        }
    }
    let own = |kind| seen.contains(&kind);
    if !own(NamespaceKind::Mount) {
        return Err(linux.lacks("namespaces must have a mount namespace: the root cannot be changed without one"));
    }
    plan.uid_map = ranges(linux, "uidMappings")?;
    plan.gid_map = ranges(linux, "gidMappings")?;
    if plan.makes(NamespaceKind::User) {
        for (name, map) in [("uidMappings", &plan.uid_map), ("gidMappings", &plan.gid_map)] {
            if !map.iter().any(|range| range.inside == 0) {
                return Err(linux.lacks(format!("{name} must map the container's id 0 for a new user namespace")));
            }
        }
    } else if own(NamespaceKind::User) {
        (plan.uid_map, plan.gid_map) = Default::default(); // as whoever made it mapped it
    } else if !plan.uid_map.is_empty() || !plan.gid_map.is_empty() {
        return Err(linux.lacks("uidMappings and gidMappings need a user namespace"));
    }
    plan.time_offsets = offsets(linux)?;
    if !plan.time_offsets.is_empty() && !plan.makes(NamespaceKind::Time) {
        return Err(linux.lacks("timeOffsets need a new time namespace"));
    }
    Ok(())
}

/// A list of id ranges, none of which overlap.
pub fn ranges(at: &At, key: &str) -> Read<Vec<IdRange>> {
    let Some(list) = at.get(key)? else { return Ok(Vec::new()) };
    let mut ranges: Vec<IdRange> = Vec::new();
    for item in list.items()? {
        let field = |name| small(&item, name).map(Option::unwrap_or_default);
        let range = IdRange { inside: field("containerID")?, outside: field("hostID")?, count: field("size")? };
        let ends = |first: u32| first.checked_add(range.count);
        if range.count == 0 || ends(range.inside).is_none() || ends(range.outside).is_none() {
            return Err(item.lacks("size must be at least 1, and no id above 4294967295"));
        }
        let overlaps =
            |a: u32, b: u32, other: &IdRange| a < b.saturating_add(other.count) && b < a.saturating_add(range.count);
        if ranges
            .iter()
            .any(|other| overlaps(range.inside, other.inside, other) || overlaps(range.outside, other.outside, other))
        {
            return Err(item.lacks("overlaps with another range"));
        }
        ranges.push(range);
    }
    if ranges.len() > MOST_RANGES {
        return Err(list.lacks(format!("has {} ranges; the kernel takes {MOST_RANGES}", ranges.len())));
    }
    let line = |range: &IdRange| format!("{} {} {}\n", range.inside, range.outside, range.count).len();
    let length: usize = ranges.iter().map(line).sum();
    if length > LONGEST_MAP {
        return Err(list.lacks(format!("is a map of {length} bytes; the kernel takes {LONGEST_MAP}")));
    }
    Ok(ranges)
}

fn offsets(linux: &At) -> Read<Vec<ClockOffset>> {
    let Some(at) = linux.get("timeOffsets")? else { return Ok(Vec::new()) };
    let mut offsets = Vec::new();
    for (clock, value) in at.entries()? {
        if !matches!(clock, "monotonic" | "boottime") {
            return Err(value.wrong("is no clock that has an offset; there are monotonic and boottime"));
        }
        let secs = super::signed(&value, "secs")?.unwrap_or(0);
        let nanosecs = super::unsigned(&value, "nanosecs", 999_999_999)?.unwrap_or(0) as u32;
        offsets.push(ClockOffset { clock: clock.to_owned(), secs, nanosecs });
    }
    Ok(offsets)
}
