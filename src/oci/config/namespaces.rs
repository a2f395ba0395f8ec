//! `linux.namespaces`, the id maps and the clocks.

use oci_spec::runtime::{Linux, LinuxIdMapping};

use super::absolute;
use super::document::{Read, each, entries, wrong};
use crate::plan::ContainerPlan;
use crate::plan::container::{ClockOffset, IdRange, Joined, NamespaceKind};

/// The kernel's limits for an id map: its lines, and its length as text, which must be less than a page.
const MAX_RANGES: usize = 340;
const MAX_MAP_BYTES: usize = 4095;

/// Reads which namespaces are created and which are joined.
pub fn read(linux: &Linux, plan: &mut ContainerPlan) -> Read<()> {
    let mut seen = Vec::new();
    each("namespaces", linux.namespaces(), |namespace| {
        let kind = namespace.typ() as u32;
        let kind = NamespaceKind::ALL.iter().copied().find(|known| known.number() == kind);
        let kind = kind.ok_or_else(|| wrong("type", "is not a known namespace"))?;
        if seen.contains(&kind) {
            return Err(wrong("", format!("is the second {} namespace", kind.name())));
        }
        seen.push(kind);
        match namespace.path().as_ref().filter(|path| !path.as_os_str().is_empty()) {
            Some(path) => plan.joined.push(Joined { kind, path: absolute("path", path)? }),
            None => plan.new.push(kind),
        }
        Ok(())
    })?;
    let own = |kind| seen.contains(&kind);
    if !own(NamespaceKind::Mount) {
        // In the runtime's own, the container's mounts would appear on the host and outlive it, and `exec` would start outside of
        // its root.
        plan.new.push(NamespaceKind::Mount);
    }
    plan.uid_map = ranges("uidMappings", linux.uid_mappings())?;
    plan.gid_map = ranges("gidMappings", linux.gid_mappings())?;
    if plan.makes(NamespaceKind::User) {
        for (name, map) in [("uidMappings", &plan.uid_map), ("gidMappings", &plan.gid_map)] {
            if !map.iter().any(|range| range.inside == 0) {
                return Err(wrong(name, "must map the container's id 0 for a new user namespace"));
            }
        }
    } else if own(NamespaceKind::User) {
        (plan.uid_map, plan.gid_map) = Default::default(); // a joined user namespace already has its maps
    } else if !plan.uid_map.is_empty() || !plan.gid_map.is_empty() {
        return Err(wrong("", "uidMappings and gidMappings need a user namespace"));
    }
    plan.time_offsets = entries("timeOffsets", linux.time_offsets(), |clock, offset| {
        if !matches!(clock, "monotonic" | "boottime") {
            return Err(wrong("", "is not a clock with an offset; use monotonic or boottime"));
        }
        let nanosecs = super::ranged("nanosecs", offset.nanosecs().unwrap_or(0), 0..=999_999_999)?;
        Ok(ClockOffset { clock: clock.to_owned(), secs: offset.secs().unwrap_or(0), nanosecs })
    })?;
    if !plan.time_offsets.is_empty() && !plan.makes(NamespaceKind::Time) {
        return Err(wrong("", "timeOffsets need a new time namespace"));
    }
    Ok(())
}

/// Reads a list of id ranges, which must not overlap.
pub fn ranges(field: &str, list: &Option<Vec<LinuxIdMapping>>) -> Read<Vec<IdRange>> {
    let mut ranges: Vec<IdRange> = Vec::new();
    each(field, list, |item| {
        let range = IdRange { inside: item.container_id(), outside: item.host_id(), count: item.size() };
        let ends = |first: u32| first.checked_add(range.count);
        if range.count == 0 || ends(range.inside).is_none() || ends(range.outside).is_none() {
            return Err(wrong("", "size must be at least 1, and no id above 4294967295"));
        }
        let overlaps =
            |a: u32, b: u32, other: &IdRange| a < b.saturating_add(other.count) && b < a.saturating_add(range.count);
        if ranges
            .iter()
            .any(|other| overlaps(range.inside, other.inside, other) || overlaps(range.outside, other.outside, other))
        {
            return Err(wrong("", "overlaps with another range"));
        }
        ranges.push(range);
        Ok(())
    })?;
    if ranges.len() > MAX_RANGES {
        return Err(wrong(field, format!("has {} ranges; the kernel takes {MAX_RANGES}", ranges.len())));
    }
    let line = |range: &IdRange| format!("{} {} {}\n", range.inside, range.outside, range.count).len();
    let length: usize = ranges.iter().map(line).sum();
    if length > MAX_MAP_BYTES {
        return Err(wrong(field, format!("is a map of {length} bytes; the kernel takes {MAX_MAP_BYTES}")));
    }
    Ok(ranges)
}
