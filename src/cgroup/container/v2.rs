//! A container's limits, as files of cgroup v2.

use std::path::Path;

use nix::errno::Errno;
use nix::sys::stat::Mode;

use super::super::budget::Limit;
use super::super::failed;
use super::super::files::Dir;
use super::facility;
use crate::error::{Error, Result, Step};
use crate::plan::container::Resources;

/// Creates a cgroup and its missing parents, with every available controller enabled.
pub fn make(mount: &Path, path: &Path) -> Result<()> {
    let below = path.strip_prefix(mount).map_err(|_| failed(path, Errno::EXDEV))?;
    let mut at = mount.to_owned();
    for component in below.components() {
        enable_controllers(&at);
        at.push(component);
        match nix::unistd::mkdir(&at, Mode::from_bits_truncate(0o755)) {
            Ok(()) | Err(Errno::EEXIST) => {}
            Err(errno) => return Err(failed(&at, errno)),
        }
    }
    Ok(())
}

/// Enables all controllers for the children, ignoring errors: a limit whose controller is missing fails with its own error.
fn enable_controllers(path: &Path) {
    let Ok(dir) = Dir::open(path) else { return };
    let (Ok(there), Ok(down)) = (dir.read("cgroup.controllers"), dir.read("cgroup.subtree_control")) else { return };
    let has = |name: &str| down.split_ascii_whitespace().any(|other| other == name);
    for name in there.split_ascii_whitespace().filter(|name| !has(name)) {
        let _ = dir.write("cgroup.subtree_control", &format!("+{name}"));
    }
}

/// Applies the limits and reads each back.
pub fn limit(dir: &Dir, resources: &Resources) -> Result<()> {
    if resources.check_before_update
        && let (Some(limit), Some(used)) = (resources.memory_limit, dir.number("memory.current"))
        && u64::try_from(limit).is_ok_and(|limit| limit < used)
    {
        let reason = format!("{limit} is below the {used} bytes in use");
        return Err(Error::new(Step::Cgroup, "memory.limit", reason));
    }
    for (file, value) in files(dir, resources)? {
        Limit::of_file(facility(&file), &file, &value).apply(dir)?;
    }
    Ok(())
}

fn files(dir: &Dir, resources: &Resources) -> Result<Vec<(String, String)>> {
    let mut files: Vec<(String, String)> = Vec::new();
    let mut set = |file: &str, value: String| files.push((file.to_owned(), value));
    let bytes = |value: i64| if value < 0 { "max".to_owned() } else { value.to_string() };
    match (resources.memory_limit, resources.memory_swap.filter(|swap| *swap != 0)) {
        (limit, Some(swap)) => set("memory.swap.max", swap_max(limit, swap)?),
        // Without a limit on memory, one on memory and swap together has no meaning.
        (Some(..0), None) if dir.read("memory.swap.max").is_ok() => set("memory.swap.max", "max".to_owned()),
        _ => {}
    }
    if let Some(limit) = resources.memory_limit.filter(|limit| *limit != 0) {
        set("memory.max", bytes(limit));
    }
    if let Some(low) = resources.memory_reservation.filter(|low| *low != 0) {
        set("memory.low", bytes(low));
    }
    // The kernel takes no weight for an idle cgroup.
    let (ends, begins) = (resources.cpu_idle == Some(0), resources.cpu_idle.filter(|idle| *idle != 0));
    if ends {
        set("cpu.idle", "0".to_owned());
    }
    if let Some(shares) = resources.cpu_shares.filter(|shares| *shares != 0) {
        set("cpu.weight", weight_of_shares(shares).to_string());
    }
    if resources.cpu_quota.is_some() || resources.cpu_period.is_some() {
        let (quota, period) = cpu_max(dir, resources);
        set("cpu.max", format!("{quota} {period}"));
    }
    if let Some(burst) = resources.cpu_burst {
        set("cpu.max.burst", burst.to_string());
    }
    if let Some(idle) = begins {
        set("cpu.idle", idle.to_string());
    }
    let lists = [("cpuset.cpus", &resources.cpus), ("cpuset.mems", &resources.mems)];
    for (file, list) in lists {
        if let Some(list) = list.as_ref().filter(|list| !list.is_empty()) {
            set(file, list.clone());
        }
    }
    match resources.pids {
        None | Some(0) => {}
        Some(limit) => set("pids.max", bytes(limit)),
    }
    if let Some(weight) = resources.block_weight.filter(|weight| *weight != 0) {
        set("io.weight", format!("default {}", weight_of_blkio(weight)));
    }
    for (device, weight, _) in &resources.block_weights {
        if let Some(weight) = weight {
            set("io.weight", format!("{device} {}", weight_of_blkio(*weight)));
        }
    }
    for (key, device, rate) in &resources.block_throttles {
        set("io.max", format!("{device} {key}={}", if *rate == 0 { "max".to_owned() } else { rate.to_string() }));
    }
    for (size, limit) in &resources.hugepages {
        set(&format!("hugetlb.{size}.max"), limit.to_string());
    }
    for (device, handles, objects) in &resources.rdma {
        let part = |name: &str, value: &Option<u32>| value.map(|value| format!(" {name}={value}")).unwrap_or_default();
        set("rdma.max", format!("{device}{}{}", part("hca_handle", handles), part("hca_object", objects)));
    }
    let lacks = [
        ("cpu.realtimeRuntime", resources.cpu_realtime_runtime.is_some_and(|value| value != 0)),
        ("network.classID", resources.network_class.is_some_and(|value| value != 0)),
        ("network.priorities", !resources.network_priorities.is_empty()),
    ];
    if let Some((name, _)) = lacks.into_iter().find(|(_, asked)| *asked) {
        return Err(Error::new(Step::Cgroup, format!("linux.resources.{name}"), "cgroup v2 does not have it"));
    }
    files.extend(resources.unified.iter().cloned());
    Ok(files)
}

/// `memory.swap` limits the sum of memory and swap. The kernel's file limits swap alone.
fn swap_max(limit: Option<i64>, swap: i64) -> Result<String> {
    let wrong = |reason: &str| Err(Error::new(Step::Cgroup, "linux.resources.memory.swap", reason));
    match limit {
        _ if swap < 0 => Ok("max".to_owned()),
        Some(limit) if limit > 0 && swap >= limit => Ok((swap - limit).to_string()),
        Some(limit) if limit > 0 => wrong("is less than memory.limit, which it includes"),
        _ => wrong("bounds memory and swap together, and needs memory.limit"),
    }
}

/// A missing value stays unchanged.
fn cpu_max(dir: &Dir, resources: &Resources) -> (String, String) {
    let now = dir.read("cpu.max").unwrap_or_default();
    let mut now = now.split_ascii_whitespace().map(str::to_owned);
    let (quota, period) = (now.next().unwrap_or("max".into()), now.next().unwrap_or("100000".into()));
    let quota = match resources.cpu_quota {
        None | Some(0) => quota,
        Some(quota) if quota < 0 => "max".to_owned(),
        Some(quota) => quota.to_string(),
    };
    (quota, resources.cpu_period.filter(|period| *period != 0).map_or(period, |period| period.to_string()))
}

/// Maps 2…262144 to 1…10000 and 1024, the default of v1, to 100, that of v2. The curve through these three is the one of newer
/// runc and crun. Their older formula was a line, on which 1024 is 39: a container had less than half the share of a process
/// outside.
pub fn weight_of_shares(shares: u64) -> u64 {
    if shares <= 2 {
        return 1;
    }
    let log = (shares.min(262_144) as f64).log2();
    let exponent = (log * log + 125.0 * log) / 612.0 - 7.0 / 34.0;
    (10f64.powf(exponent).ceil() as u64).min(10_000)
}

/// Maps 10…1000 to 1…10000.
fn weight_of_blkio(weight: u16) -> u64 {
    1 + (u64::from(weight.clamp(10, 1000)) - 10) * 9_999 / 990
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scales_have_the_same_ends() {
        assert_eq!([0, 2, 100, 1024, 262_144, u64::MAX].map(weight_of_shares), [1, 1, 17, 100, 10_000, 10_000]);
        assert_eq!((weight_of_blkio(10), weight_of_blkio(1000)), (1, 10_000));
    }

    #[test]
    fn swap_includes_memory() {
        assert_eq!(swap_max(Some(100), 150).unwrap(), "50");
        assert_eq!(swap_max(Some(100), -1).unwrap(), "max");
        assert!(swap_max(Some(100), 50).is_err() && swap_max(None, 50).is_err());
    }
}
