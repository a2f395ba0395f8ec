//! A container's cgroup created by systemd: a delegated scope, for a `cgroupsPath` of the form `slice:prefix:name`.
//!
//! systemd creates a scope around a process. So an idle placeholder process exists before the container's own process. The
//! container's process starts in the scope, and the placeholder exits then.

use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::unistd::Pid;

use super::super::systemd::{self, Value};
use super::Places;
use super::place::Place;
use crate::cgroup::hierarchies;
use crate::error::{Error, Result, Step};
use crate::plan::container::{ContainerCgroup, Resources};
use crate::sys::clone::{Cloned, clone3};
use crate::sys::{process, schedule};

/// The time limit for systemd to move the placeholder.
const PATIENCE: Duration = Duration::from_secs(10);

/// A process that keeps the scope alive until the container's process is in it. Killed on drop.
#[derive(Debug)]
pub struct Placeholder {
    pid: Pid,
    pidfd: OwnedFd,
}

impl Drop for Placeholder {
    fn drop(&mut self) {
        let _ = process::pidfd_send_signal(self.pidfd.as_fd(), libc::SIGKILL);
        let _ = process::wait4(self.pid);
    }
}

/// The slice and the unit name of a `cgroupsPath`.
fn names(path: &str, id: &str) -> Result<(String, String)> {
    let wrong = |reason: &str| Error::new(Step::Cgroup, format!("cgroupsPath {path:?}"), reason);
    let (slice, prefix, name) = match path.split(':').collect::<Vec<_>>().as_slice() {
        [""] => ("", "", id),
        [slice, prefix, name] => (*slice, *prefix, *name),
        _ => return Err(wrong("is not slice:prefix:name, which --systemd-cgroup takes")),
    };
    let slice = if slice.is_empty() { "system.slice" } else { slice };
    let unit = if prefix.is_empty() { format!("{name}.scope") } else { format!("{prefix}-{name}.scope") };
    let fine = |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.:@\\".contains(&byte));
    if !slice.ends_with(".slice") || name.is_empty() || !fine(slice) || !fine(&unit) || unit.len() > 255 {
        return Err(wrong("names no unit that systemd could make"));
    }
    Ok((slice.to_owned(), unit))
}

/// The expected paths of the scope, before it exists.
pub fn expected(planned: &ContainerCgroup, id: &str) -> Result<Places> {
    let found = hierarchies::try_look()?;
    let Some(v2) = found.v2.filter(|_| found.v1.is_empty()) else {
        return Err(Error::new(Step::Cgroup, "--systemd-cgroup", "needs cgroup v2, which this host does not have")
            .hint("let the engine use the cgroupfs driver: native.cgroupdriver=cgroupfs, --cgroup-manager cgroupfs"));
    };
    let (slice, unit) = names(&planned.path, id)?;
    let path = v2.mount.join(expanded(&slice)).join(&unit);
    Ok(Places { directories: vec![Place { controllers: Vec::new(), path }], mount: v2.mount, unit: Some(unit) })
}

/// `a-b.slice` is below `a.slice`, `systemd.slice(5)`.
fn expanded(slice: &str) -> PathBuf {
    let name = slice.trim_end_matches(".slice");
    let dashes = name.match_indices('-').map(|(at, _)| at).chain([name.len()]);
    if name == "-" {
        return PathBuf::new(); // the root slice is the root of the tree
    }
    dashes.filter(|at| *at > 0).map(|at| format!("{}.slice", &name[..at])).collect()
}

/// Makes systemd create the scope. Returns its actual paths and the placeholder.
pub fn start(planned: &ContainerCgroup, id: &str, places: &Places) -> Result<(Places, Placeholder)> {
    let (slice, unit) = names(&planned.path, id)?;
    let failed = |reason: String| Error::new(Step::Cgroup, unit.clone(), reason);
    let placeholder = placeholder()?;
    let mut properties = vec![
        ("Description".to_owned(), Value::Text(format!("container {id}"))),
        ("Slice".to_owned(), Value::Text(slice)),
        ("Delegate".to_owned(), Value::Flag(true)),
        ("DefaultDependencies".to_owned(), Value::Flag(false)),
        ("CollectMode".to_owned(), Value::Text("inactive-or-failed".to_owned())),
    ];
    properties.extend(limits(&planned.resources));
    for (name, value) in &planned.systemd_properties {
        properties.retain(|(known, _)| known != name);
        properties.push((name.clone(), property(name, value)?));
    }
    systemd::start_scope(&unit, placeholder.pid.as_raw().unsigned_abs(), &properties).map_err(failed)?;
    let deadline = Instant::now() + PATIENCE;
    loop {
        let text = std::fs::read_to_string(format!("/proc/{}/cgroup", placeholder.pid)).unwrap_or_default();
        let path = text.lines().find_map(|line| line.strip_prefix("0::/")).map(Path::new);
        if let Some(path) = path.filter(|path| path.file_name().is_some_and(|name| name == unit.as_str())) {
            let mut places = places.clone();
            if let Some(one) = places.directories.first_mut() {
                one.path = places.mount.join(path);
            }
            return Ok((places, placeholder));
        }
        if Instant::now() > deadline {
            return Err(failed("systemd did not make it in time".to_owned()));
        }
        schedule::pause(Duration::from_millis(1));
    }
}

/// Passes changed limits of a container's scope to systemd, if it has a scope.
pub fn update(places: &Places, resources: &Resources) -> Result<()> {
    let Some(unit) = &places.unit else { return Ok(()) };
    systemd::set_properties(unit, &limits(resources)).map_err(|reason| Error::new(Step::Cgroup, unit.clone(), reason))
}

/// Stops the unit of a scope. An unknown unit counts as stopped.
pub fn stop(unit: &str) {
    let _ = systemd::stop(unit);
}

fn placeholder() -> Result<Placeholder> {
    let parent = nix::unistd::getpid();
    match clone3(0, None).map_err(|errno| Error::errno(Step::Cgroup, "placeholder", errno))? {
        Cloned::Child => loop {
            if process::set_parent_death_signal(libc::SIGKILL).is_err() || nix::unistd::getppid() != parent {
                process::exit(1);
            }
            nix::unistd::pause();
        },
        Cloned::Parent { pid, pidfd } => Ok(Placeholder { pid, pidfd }),
    }
}

/// The limits that systemd would otherwise reset when it reloads its units. The files are also written directly.
fn limits(resources: &Resources) -> Vec<(String, Value)> {
    let bytes = |value: i64| u64::try_from(value).unwrap_or(u64::MAX);
    let set = |name: &str, value: Option<u64>| value.map(|value| (name.to_owned(), Value::Number(value)));
    let some = |value: Option<i64>| value.filter(|value| *value != 0).map(bytes);
    let quota = resources.cpu_quota.filter(|quota| *quota > 0).map(|quota| {
        let period = resources.cpu_period.filter(|period| *period > 0).unwrap_or(100_000);
        bytes(quota).saturating_mul(1_000_000) / period
    });
    let swap = match (resources.memory_limit, resources.memory_swap) {
        (Some(limit), Some(swap)) if limit > 0 && swap >= limit => Some(swap - limit),
        (_, Some(-1)) => Some(-1),
        _ => None,
    };
    [
        set("MemoryMax", some(resources.memory_limit)),
        set("MemoryLow", some(resources.memory_reservation)),
        set("MemorySwapMax", swap.map(bytes)),
        set("CPUWeight", resources.cpu_shares.filter(|shares| *shares != 0).map(super::v2::weight_of_shares)),
        set("CPUQuotaPerSecUSec", quota),
        set("TasksMax", some(resources.pids)),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Parses the property of an annotation, in GVariant notation: a boolean, a number (of 32 bits by default) or a quoted string.
fn property(name: &str, value: &str) -> Result<Value> {
    let wrong = || {
        Error::new(Step::Cgroup, format!("org.systemd.property.{name}: {value}"), "is not a supported property")
            .hint("true, false, NUMBER (of 32 bits, with a sign), uint64 NUMBER or 'text'")
    };
    if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return Err(wrong());
    }
    let quoted = |quote: char| value.strip_prefix(quote)?.strip_suffix(quote);
    match (value, quoted('\'').or(quoted('"'))) {
        ("true", _) => Ok(Value::Flag(true)),
        ("false", _) => Ok(Value::Flag(false)),
        (_, Some(text)) if !text.contains(['\'', '"', '\\', '\0']) => Ok(Value::Text(text.to_owned())),
        (value, _) => match value.strip_prefix("uint64 ") {
            Some(number) => number.parse().map(Value::Number).map_err(|_| wrong()),
            None => value.strip_prefix("int32 ").unwrap_or(value).parse().map(Value::Signed).map_err(|_| wrong()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_lie_in_slices() {
        assert_eq!(expanded("a-b-c.slice"), Path::new("a.slice/a-b.slice/a-b-c.slice"));
        assert_eq!(expanded("system.slice"), Path::new("system.slice"));
        assert_eq!(expanded("-.slice"), Path::new(""));
    }

    #[test]
    fn units_are_named_by_engines() {
        assert_eq!(names("system.slice:docker:ab", "x").unwrap(), ("system.slice".into(), "docker-ab.scope".into()));
        assert_eq!(names(":p:n", "x").unwrap(), ("system.slice".into(), "p-n.scope".into()));
        assert_eq!(names("", "x").unwrap(), ("system.slice".into(), "x.scope".into()));
        for path in ["/a/b", "a:b", "x:p:n", "a.slice:p:n/../m", "a.slice:p:", "a b.slice:p:n"] {
            assert!(names(path, "x").is_err(), "{path}");
        }
    }

    #[test]
    fn properties_have_one_of_four_types() {
        assert_eq!(property("A", "uint64 7").unwrap(), Value::Number(7));
        assert_eq!(property("A", "15").unwrap(), Value::Signed(15));
        assert_eq!(property("A", "int32 -1").unwrap(), Value::Signed(-1));
        assert_eq!(property("A", "'x y'").unwrap(), Value::Text("x y".into()));
        assert_eq!(property("A", "true").unwrap(), Value::Flag(true));
        for (name, value) in [("A", "4294967296"), ("A", "['x']"), ("A", "'a' 'b'"), ("", "true"), ("A=B", "true")] {
            assert!(property(name, value).is_err(), "{name} {value}");
        }
    }
}
