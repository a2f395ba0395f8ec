//! `update`: changes the limits of a container.

use super::{Runtime, config};
use crate::cgroup::container::unit;
use crate::error::{Error, Result, Step};
use crate::plan::container::Resources;

/// Applies the limits of the flags or of a resources file, and keeps the others.
pub fn update(runtime: &Runtime) -> Result<u8> {
    runtime.args.at_most(1)?;
    for name in ["l3-cache-schema", "mem-bw-schema"] {
        if runtime.args.value(name).is_some_and(|value| !value.is_empty()) {
            return Err(Error::new(
                Step::Usage,
                format!("--{name}"),
                "is not supported: intelRdt is set once, by create",
            ));
        }
    }
    let held = runtime.store.hold(runtime.args.id()?)?;
    if !held.record.runs() {
        return Err(Error::new(Step::Status, held.record.id.clone(), "container not running"));
    }
    let groups = held.record.groups();
    let groups = groups.ok_or_else(|| Error::new(Step::Cgroup, "update", "the container has no cgroup"))?;
    let resources = match runtime.args.path("resources") {
        Some(path) => config::load_resources(&path)?,
        None => from_flags(runtime)?,
    };
    let mut plan = held.plan()?;
    let devices = resources.devices.as_ref().is_some_and(|rules| !rules.is_empty());
    let planned = &mut plan.cgroup;
    let before = planned.resources.clone();
    planned.resources.merge(&resources);
    // systemd first: it would reset the files when it reloads its units.
    let updated = unit::update(groups.places(), &planned.resources);
    let changed = updated.and_then(|()| groups.limit(&resources)).and_then(|()| match devices {
        true => groups.allow_devices(&resources),
        false => Ok(()),
    });
    if let Err(error) = changed {
        // Restores the old limits as far as possible, because a partial update was not requested.
        let _ = unit::update(groups.places(), &before).and_then(|()| groups.limit(&before));
        return Err(error);
    }
    held.write_plan(&plan)?;
    Ok(0)
}

fn from_flags(runtime: &Runtime) -> Result<Resources> {
    let args = &runtime.args;
    let list = |name| args.text(name).map(|text| text.map(str::to_owned));
    Ok(Resources {
        memory_limit: bytes(runtime, "memory")?,
        memory_reservation: bytes(runtime, "memory-reservation")?,
        memory_swap: bytes(runtime, "memory-swap")?,
        memory_kernel_tcp: bytes(runtime, "kernel-memory-tcp")?,
        cpu_shares: args.number("cpu-share")?,
        cpu_quota: args.number("cpu-quota")?,
        cpu_period: args.number("cpu-period")?,
        cpu_burst: args.number("cpu-burst")?,
        cpu_realtime_period: args.number("cpu-rt-period")?,
        cpu_realtime_runtime: args.number("cpu-rt-runtime")?,
        cpu_idle: args.number("cpu-idle")?,
        cpus: list("cpuset-cpus")?,
        mems: list("cpuset-mems")?,
        pids: args.number("pids-limit")?,
        block_weight: args.number("blkio-weight")?,
        ..Resources::default()
    })
}

/// Parses bytes, with an optional suffix `k`, `m` or `g`; -1 is unlimited.
fn bytes(runtime: &Runtime, name: &str) -> Result<Option<i64>> {
    let Some(text) = runtime.args.text(name)? else { return Ok(None) };
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        _ => return Err(Error::new(Step::Usage, format!("--{name} {text}"), "is not a size")),
    };
    let number = digits.parse::<i64>().ok().and_then(|number| number.checked_mul(1 << shift));
    number.map(Some).ok_or_else(|| Error::new(Step::Usage, format!("--{name} {text}"), "is not a size"))
}
