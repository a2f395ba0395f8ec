//! The statistics of a container, in the format of `events --stats`, which engines parse.

use serde_json::{Value, json};

use super::Groups;
use crate::cgroup::files::{Dir, keyed};

/// All statistics. A missing value is zero.
pub fn of(groups: &Groups) -> Value {
    let v2 = groups.places.is_v2();
    let dir = |controller: &str| groups.with(controller);
    json!({
        "cpu": dir("cpuacct").or(dir("cpu")).map_or(Value::Null, |main| if v2 { cpu_v2(main) } else { cpu_v1(main, dir("cpu")) }),
        "memory": dir("memory").map_or(Value::Null, |dir| if v2 { memory_v2(dir) } else { memory_v1(dir) }),
        "pids": dir("pids").map_or(Value::Null, |dir| json!({
            "current": dir.number("pids.current").unwrap_or(0),
            "limit": dir.number("pids.max").unwrap_or(0),
        })),
        "blkio": dir("blkio").map_or(json!({}), |dir| if v2 { io_v2(dir) } else { io_v1(dir) }),
        "cpuset": dir("cpuset").map_or(json!({}), |dir| cpuset(dir, v2)),
        "hugetlb": dir("hugetlb").map_or(json!({}), |dir| hugetlb(dir, v2)),
        "intel_rdt": {},
        "network_interfaces": null,
    })
}

/// The number of OOM kills.
pub fn oom_kills(groups: &Groups) -> Option<u64> {
    let dir = groups.with("memory")?;
    let file = if groups.places.is_v2() { "memory.events" } else { "memory.oom_control" };
    keyed(&dir.read(file).ok()?, "oom_kill")
}

/// Settings of a cpuset in cgroup v1. On v2 they are 0, as under runc.
const FLAGS: [&str; 9] = [
    "cpu_exclusive",
    "mem_exclusive",
    "mem_hardwall",
    "memory_migrate",
    "memory_pressure",
    "memory_spread_page",
    "memory_spread_slab",
    "sched_load_balance",
    "sched_relax_domain_level",
];

/// The processors and nodes that it may actually use, as single numbers.
fn cpuset(dir: &Dir, v2: bool) -> Value {
    let list = |file: &str| -> Vec<u32> {
        let text = dir.read(file).unwrap_or_default();
        let range = |part: &str| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            Some(first.parse::<u32>().ok()?..=last.parse::<u32>().ok()?)
        };
        text.trim().split(',').filter_map(range).flatten().take(1 << 16).collect()
    };
    let (cpus, mems) =
        if v2 { ("cpuset.cpus.effective", "cpuset.mems.effective") } else { ("cpuset.cpus", "cpuset.mems") };
    let mut shown = json!({ "cpus": list(cpus), "mems": list(mems) });
    for name in FLAGS {
        let value = dir.read(&format!("cpuset.{name}")).ok().and_then(|text| text.trim().parse::<i64>().ok());
        shown[name] = value.unwrap_or(0).into();
    }
    shown
}

/// Each huge page size, by its name in the file names.
fn hugetlb(dir: &Dir, v2: bool) -> Value {
    let (end, peak) = if v2 { (".current", "") } else { (".usage_in_bytes", ".max_usage_in_bytes") };
    let names = std::fs::read_dir(dir.path()).into_iter().flatten().flatten();
    let names = names.filter_map(|entry| entry.file_name().into_string().ok());
    let sizes = names.filter_map(|name| {
        let size = name.strip_prefix("hugetlb.")?.strip_suffix(end)?;
        (!size.contains('.')).then(|| size.to_owned())
    });
    let number = |size: &str, file: &str| dir.number(&format!("hugetlb.{size}{file}")).unwrap_or(0);
    let of_size = |size: String| {
        let failed = match v2 {
            true => dir.read(&format!("hugetlb.{size}.events")).ok().and_then(|text| keyed(&text, "max")).unwrap_or(0),
            false => number(&size, ".failcnt"),
        };
        let counted = json!({ "usage": number(&size, end), "max": number(&size, peak), "failcnt": failed });
        (size, counted)
    };
    Value::Object(sizes.map(of_size).collect())
}

/// Pressure stall information, `psi(4)`. Null if the kernel does not provide it.
fn psi(dir: &Dir, file: &str) -> Value {
    let Ok(text) = dir.read(file) else { return Value::Null };
    let of_line = |line: &str| {
        let (which, rest) = line.split_once(' ')?;
        let pairs = rest.split(' ').filter_map(|word| {
            let (key, value) = word.split_once('=')?;
            let number =
                value.parse::<u64>().map(Value::from).or_else(|_| value.parse::<f64>().map(Value::from)).ok()?;
            Some((key.to_owned(), number))
        });
        Some((which.to_owned(), Value::Object(pairs.collect())))
    };
    Value::Object(text.lines().filter_map(of_line).collect())
}

fn cpu_v2(dir: &Dir) -> Value {
    let text = dir.read("cpu.stat").unwrap_or_default();
    let nanos = |key| keyed(&text, key).unwrap_or(0).saturating_mul(1000);
    json!({
        "usage": { "total": nanos("usage_usec"), "kernel": nanos("system_usec"), "user": nanos("user_usec") },
        "throttling": {
            "periods": keyed(&text, "nr_periods").unwrap_or(0),
            "throttledPeriods": keyed(&text, "nr_throttled").unwrap_or(0),
            "throttledTime": nanos("throttled_usec"),
        },
        "psi": psi(dir, "cpu.pressure"),
    })
}

fn cpu_v1(accounts: &Dir, cpu: Option<&Dir>) -> Value {
    let throttled = cpu.and_then(|dir| dir.read("cpu.stat").ok()).unwrap_or_default();
    let number = |file| accounts.number(file).unwrap_or(0);
    let list = |file: &str| -> Vec<u64> {
        let text = accounts.read(file).unwrap_or_default();
        text.split_ascii_whitespace().filter_map(|word| word.parse().ok()).collect()
    };
    json!({
        "usage": {
            "total": number("cpuacct.usage"),
            "percpu": list("cpuacct.usage_percpu"),
            "percpu_kernel": list("cpuacct.usage_percpu_sys"),
            "percpu_user": list("cpuacct.usage_percpu_user"),
            "kernel": number("cpuacct.usage_sys"),
            "user": number("cpuacct.usage_user"),
        },
        "throttling": {
            "periods": keyed(&throttled, "nr_periods").unwrap_or(0),
            "throttledPeriods": keyed(&throttled, "nr_throttled").unwrap_or(0),
            "throttledTime": keyed(&throttled, "throttled_time").unwrap_or(0),
        },
    })
}

/// Every line `KEY NUMBER` of a file.
fn raw(dir: &Dir) -> Value {
    let text = dir.read("memory.stat").unwrap_or_default();
    let pairs = text.lines().filter_map(|line| {
        let (key, value) = line.split_once(' ')?;
        Some((key.to_owned(), Value::from(value.parse::<u64>().ok()?)))
    });
    Value::Object(pairs.collect())
}

fn memory_v2(dir: &Dir) -> Value {
    let events = dir.read("memory.events").unwrap_or_default();
    let unlimited = |file| dir.number(file).unwrap_or(u64::MAX);
    let number = |file| dir.number(file).unwrap_or(0);
    let raw = raw(dir);
    json!({
        "cache": raw.get("file").cloned().unwrap_or(json!(0)),
        "usage": {
            "limit": unlimited("memory.max"), "usage": number("memory.current"), "max": number("memory.peak"),
            "failcnt": keyed(&events, "max").unwrap_or(0),
        },
        "swap": { "limit": unlimited("memory.swap.max"), "usage": number("memory.swap.current"), "failcnt": 0 },
        "kernel": { "limit": 0, "failcnt": 0 },
        "kernelTCP": { "limit": 0, "failcnt": 0 },
        "raw": raw,
        "psi": psi(dir, "memory.pressure"),
    })
}

fn memory_v1(dir: &Dir) -> Value {
    let counter = |prefix: &str| {
        let number = |file: &str| dir.number(&format!("{prefix}.{file}")).unwrap_or(0);
        json!({
            "limit": number("limit_in_bytes"), "usage": number("usage_in_bytes"),
            "max": number("max_usage_in_bytes"), "failcnt": number("failcnt"),
        })
    };
    let raw = raw(dir);
    json!({
        "cache": raw.get("cache").cloned().unwrap_or(json!(0)),
        "usage": counter("memory"),
        "swap": counter("memory.memsw"),
        "kernel": counter("memory.kmem"),
        "kernelTCP": counter("memory.kmem.tcp"),
        "raw": raw,
    })
}

fn entry(device: &str, op: &str, value: u64) -> Option<Value> {
    let (major, minor) = device.split_once(':')?;
    let number = |text: &str| text.parse::<u64>().ok();
    Some(json!({ "major": number(major)?, "minor": number(minor)?, "op": op, "value": value }))
}

fn io_v2(dir: &Dir) -> Value {
    let text = dir.read("io.stat").unwrap_or_default();
    let (mut bytes, mut calls) = (Vec::new(), Vec::new());
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace();
        let Some(device) = words.next() else { continue };
        for (key, value) in words.filter_map(|word| word.split_once('=')) {
            let Ok(value) = value.parse() else { continue };
            match key {
                "rbytes" => bytes.extend(entry(device, "Read", value)),
                "wbytes" => bytes.extend(entry(device, "Write", value)),
                "rios" => calls.extend(entry(device, "Read", value)),
                "wios" => calls.extend(entry(device, "Write", value)),
                _ => {}
            }
        }
    }
    json!({
        "ioServiceBytesRecursive": bytes, "ioServicedRecursive": calls, "psi": psi(dir, "io.pressure"),
    })
}

fn io_v1(dir: &Dir) -> Value {
    let list = |file: &str| -> Vec<Value> {
        let text = dir.read(file).unwrap_or_default();
        let of_line = |line: &str| {
            let mut words = line.split_ascii_whitespace();
            let (device, op, value) = (words.next()?, words.next()?, words.next()?);
            entry(device, op, value.parse().ok()?)
        };
        text.lines().filter_map(of_line).collect()
    };
    json!({
        "ioServiceBytesRecursive": list("blkio.throttle.io_service_bytes_recursive"),
        "ioServicedRecursive": list("blkio.throttle.io_serviced_recursive"),
    })
}
