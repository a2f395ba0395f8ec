//! The output: the host, the observed confinement, times and ratios, as text and as JSON.

use std::fmt::Write as _;
use std::process::Command;

use serde_json::{Value, json};

use super::check::Checked;
use super::contest::{Contestant, find};
use super::measure::{Figures, IN_FLIGHT};

/// The kernel, the processors, and the versions of the compared programs.
pub fn host() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let model = read("/proc/cpuinfo");
    let model = model.lines().find_map(|line| line.strip_prefix("model name\t: ")).unwrap_or("unknown");
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let load = read("/proc/loadavg");
    let mut text = format!(
        "Linux {}, {cpus} processors ({model}), load {}\n",
        read("/proc/sys/kernel/osrelease").trim(),
        load.split(' ').next().unwrap_or_default(),
    );
    for (name, words) in VERSIONS {
        let Some(program) = find(name) else { continue };
        let Ok(output) = Command::new(program).args(words).output() else { continue };
        let said = String::from_utf8_lossy(&output.stdout);
        let _ = write!(text, "{}; ", said.lines().next().unwrap_or_default().trim());
    }
    let _ = write!(text, "stockade {}", env!("CARGO_PKG_VERSION"));
    text
}

const VERSIONS: [(&str, &[&str]); 7] = [
    ("bwrap", &["--version"]),
    ("crun", &["--version"]),
    ("runc", &["--version"]),
    ("dockerd", &["--version"]),
    ("containerd", &["--version"]),
    ("podman", &["--version"]),
    ("nsjail", &["--version"]),
];

/// The observed confinement of a contestant.
pub fn claims(contestant: &Contestant, checked: &Checked) -> String {
    match checked {
        Checked::Missing(why) => format!("{:38} {why}", contestant.name),
        Checked::Fine(_) if contestant.probe.is_none() => format!("{:38} as its `run`", contestant.name),
        Checked::Fine(seen) => format!(
            "{:38} {} own namespaces{}, {}, {}, capabilities {:x}, {} mounts, {} of them over /proc, root {}",
            contestant.name,
            seen.namespaces,
            if seen.network { "" } else { " (network of the host)" },
            if seen.seccomp == 2 { "filter" } else { "no filter" },
            if seen.no_new_privs { "no_new_privs" } else { "may gain privileges" },
            seen.capabilities,
            seen.mounts,
            seen.masks,
            if seen.read_only_root { "read-only" } else { "writable" },
        ),
    }
}

/// A line for each contestant: milliseconds, starts per second, memory.
pub fn times(figures: &[Figures]) -> String {
    let mut text = format!(
        "{:38} {:>8} {:>8} {:>8} {:>8} {:>8} {:>6}  {:>28}  {:>9}\n",
        "milliseconds",
        "median",
        "p95",
        "p99",
        "min",
        "cold",
        "starts",
        format!("starts/s with {IN_FLIGHT:?}").replace(' ', ""),
        "stays KiB"
    );
    for one in figures {
        if let Checked::Missing(why) = &one.checked {
            let _ = writeln!(text, "{:38} {why}", one.name);
            continue;
        }
        let ms = |value: Option<f64>| value.map_or("-".into(), |us| format!("{:.2}", us / 1000.0));
        let rates: Vec<String> =
            (0..IN_FLIGHT.len()).map(|level| one.rate(level).map_or("-".into(), |rate| format!("{rate:.0}"))).collect();
        let _ = writeln!(
            text,
            "{:38} {:>8} {:>8} {:>8} {:>8} {:>8} {:>6}  {:>28}  {:>9}",
            one.name,
            ms(one.warm.quantile(0.5)),
            ms(one.warm.quantile(0.95)),
            ms(one.warm.quantile(0.99)),
            ms(one.warm.quantile(0.0)),
            ms(one.cold.quantile(0.5)),
            one.warm.len(),
            rates.join(" / "),
            one.overhead_kib.map_or("-".into(), |kib| kib.to_string()),
        );
    }
    text
}

/// A target for a ratio: the subject, the reference, and the maximum.
struct Target {
    subject: &'static str,
    reference: &'static str,
    max: f64,
}

const fn target(subject: &'static str, reference: &'static str, max: f64) -> Target {
    Target { subject, reference, max }
}

const TARGETS: [Target; 19] = [
    target("stockade run", "bwrap", 0.85),
    target("stockade run", "crun run", 0.5),
    target("stockade run", "runc run", 0.15),
    target("stockade run", "docker run, runc", 1.0 / 80.0),
    target("stockade run", "floor (C)", 1.25),
    target("stockade-oci run", "crun run", 0.6),
    target("stockade-oci create+start+delete", "crun create+start+delete", 0.4),
    target("stockade-oci create+start+delete", "runc create+start+delete", 0.25),
    target("stockade-oci exec", "crun exec", 0.5),
    target("stockade-oci exec", "runc exec", 0.2),
    target("stockade-oci run, disk", "crun run, disk", 0.6),
    target("stockade-oci create+start+delete, disk", "crun create+start+delete, disk", 0.4),
    target("stockade-oci create+start+delete, disk", "runc create+start+delete, disk", 0.25),
    target("stockade-oci exec, disk", "crun exec, disk", 0.5),
    target("stockade-oci exec, disk", "runc exec, disk", 0.2),
    target("docker run, stockade", "docker run, runc", 1.0),
    target("docker run, stockade", "docker run, crun", 1.0),
    target("podman run, stockade", "podman run, crun", 1.0),
    target("ctr run, stockade", "ctr run, runc", 1.0),
];

/// Ratios of medians, and of the fastest starts, which other load affects least.
pub fn ratios(figures: &[Figures]) -> String {
    let of = |name: &str, part: f64| {
        figures.iter().find(|one| one.name == name && one.runs()).and_then(|one| one.warm.quantile(part))
    };
    let mut text = format!("{:78} {:>8} {:>8} {:>8}\n", "ratios", "median", "fastest", "aim");
    for Target { subject, reference, max } in TARGETS {
        let ratio = |part| Some(of(subject, part)? / of(reference, part)?);
        if let (Some(median), Some(fastest)) = (ratio(0.5), ratio(0.0)) {
            let name = format!("{subject} / {reference}");
            let _ = writeln!(text, "{name:78} {median:>8.3} {fastest:>8.3} {:>8.3}", max);
        }
    }
    let rate = |name: &str| figures.iter().find(|one| one.name == name && one.runs()).and_then(|one| one.rate(2));
    if let (Some(ours), Some(theirs)) = (rate("stockade run"), rate("bwrap")) {
        let _ = writeln!(
            text,
            "{:78} {:>8.3} {:>8} {:>8}",
            "throughput with 4 in flight: stockade run / bwrap",
            ours / theirs,
            "",
            ">1.3"
        );
    }
    if let (Some(p99), Some(median)) = (of("stockade run", 0.99), of("stockade run", 0.5)) {
        let _ = writeln!(text, "{:78} {:>8.3} {:>8} {:>8}", "stockade run: p99 / median", p99 / median, "", "3.000");
    }
    text
}

/// All results.
pub fn json(figures: &[Figures]) -> Value {
    let rows = figures.iter().map(|one| match &one.checked {
        Checked::Missing(why) => json!({ "name": one.name, "missing": why }),
        Checked::Fine(seen) => {
            let quantiles = |samples: &super::measure::Samples| {
                json!({
                    "starts": samples.len(),
                    "median_us": samples.quantile(0.5),
                    "p95_us": samples.quantile(0.95),
                    "p99_us": samples.quantile(0.99),
                    "min_us": samples.quantile(0.0),
                })
            };
            let rates: Vec<Value> = IN_FLIGHT
                .iter()
                .enumerate()
                .map(|(level, in_flight)| json!({ "in_flight": in_flight, "per_second": one.rate(level) }))
                .collect();
            json!({
                "name": one.name,
                "warm": quantiles(&one.warm),
                "cold": quantiles(&one.cold),
                "throughput": rates,
                "stays_kib": one.overhead_kib,
                "applies": {
                    "namespaces": seen.namespaces,
                    "seccomp": seen.seccomp,
                    "no_new_privs": seen.no_new_privs,
                    "capabilities": seen.capabilities,
                    "mounts": seen.mounts,
                    "read_only_root": seen.read_only_root,
                },
            })
        }
    });
    json!({ "host": host(), "rows": rows.collect::<Vec<_>>() })
}
