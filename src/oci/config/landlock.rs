//! The annotation `org.stockade.landlock`: path and port rules in JSON, with the names and the meaning of a policy's
//! `[landlock]` table.

use stockade_json::{At, parse};
use stockade_seccomp::builtin::Guard;

use super::document::Read;
use crate::confine::landlock::{PORTS, TRUNCATE};
use crate::error::{Error, Result, Step};
use crate::plan::container::{ContainerMount, MountSource};
use crate::plan::{Bytes, ContainerPlan, Facility, Landlock, PathRule};
use crate::sys::mount::{NOEXEC, RDONLY};

/// The annotation.
pub const ANNOTATION: &str = "org.stockade.landlock";

/// The size limit.
const MAX_BYTES: usize = 1 << 20;

/// The limit on the rules of a list, as in a policy.
const MAX_LIST: usize = 1_000;

const KEYS: [&str; 7] = ["mode", "minimum_abi", "read", "write", "execute", "connect", "bind"];

/// Adds the rules to the plan of a container. The plan must already contain its mounts and its process.
pub fn apply(text: &str, plan: &mut ContainerPlan) -> Result<()> {
    let named = |error: stockade_json::Error| {
        let place = if error.path.is_empty() { String::new() } else { format!(": {}", error.path) };
        Error::new(Step::Config, format!("annotation {ANNOTATION}{place}"), error.message())
    };
    let tree = parse(text.as_bytes(), MAX_BYTES).map_err(named)?;
    let Some((rules, may_be_missing)) = read(&At::root(&tree)).map_err(named)? else { return Ok(()) };
    forbid_writable_programs(&rules, plan)?;
    if may_be_missing {
        plan.confinement.allow_degraded.push(Facility::Landlock);
    }
    let ports = rules.connect_tcp.is_some() || rules.bind_tcp.is_some();
    let guards = [(rules.execute.is_some(), Guard::MemoryPrograms), (ports, Guard::Tcp)];
    plan.confinement
        .guards
        .extend(guards.into_iter().filter(|(wanted, _)| *wanted).map(|(_, guard)| guard.name().to_owned()));
    plan.confinement.landlock = Some(rules);
    Ok(())
}

/// Reads the rules, and whether the container may use as much of Landlock as the kernel supports. `None` if it is off.
fn read(root: &At) -> Read<Option<(Landlock, bool)>> {
    for (key, value) in root.entries()? {
        if !KEYS.contains(&key) {
            return Err(value.wrong("is not a key of a landlock table"));
        }
    }
    let mode = root.get("mode")?;
    let mode = match &mode {
        None => "require",
        Some(mode) => match mode.text()? {
            known @ ("require" | "auto" | "off") => known,
            _ => return Err(mode.wrong("is not one of require, auto and off")),
        },
    };
    let minimum = root.get("minimum_abi")?;
    let minimum_abi = match &minimum {
        None => 2,
        Some(abi) => match abi.number(999)? {
            0 => return Err(abi.wrong("is not an ABI; the first is 1")),
            number => number as u32,
        },
    };
    let mut rules = Landlock {
        minimum_abi,
        read: paths(root, "read")?,
        write: paths(root, "write")?,
        execute: paths(root, "execute")?,
        connect_tcp: ports(root, "connect", 1)?,
        bind_tcp: ports(root, "bind", 0)?,
    };
    if mode == "off" {
        let given = rules != Landlock { minimum_abi, ..Landlock::default() };
        return if given { Err(root.lacks("contains rules, but its mode is off")) } else { Ok(None) };
    }
    let ports = rules.connect_tcp.is_some() || rules.bind_tcp.is_some();
    for (needs, abi) in [(rules.write.is_some(), TRUNCATE), (ports, PORTS)] {
        if needs {
            rules.minimum_abi = rules.minimum_abi.max(abi);
        }
    }
    Ok(Some((rules, mode == "auto")))
}

fn paths(root: &At, key: &str) -> Read<Option<Vec<PathRule>>> {
    let Some(list) = root.get(key)? else { return Ok(None) };
    let mut found = Vec::new();
    for item in list.items()? {
        let (text, mut optional) = match item.get("path") {
            Ok(Some(path)) => (path.text()?, item.get("optional")?.map_or(Ok(false), |value| value.boolean())?),
            Ok(None) => return Err(item.lacks("path is missing")),
            Err(_) => (item.text()?, false),
        };
        let path = match text.strip_suffix(":optional").filter(|_| item.text().is_ok()) {
            Some(path) => {
                optional = true;
                path
            }
            None => text,
        };
        let clean = path.starts_with('/') && !path.contains('\0') && !path.split('/').any(|part| part == "..");
        if !clean {
            return Err(item.wrong("is not an absolute path inside the container"));
        }
        found.push(PathRule { path: Bytes::from(path), optional });
        if found.len() > MAX_LIST {
            return Err(list.wrong(format!("has more than {MAX_LIST} paths")));
        }
    }
    Ok(Some(found))
}

fn ports(root: &At, key: &str, least: u64) -> Read<Option<Vec<u16>>> {
    let Some(list) = root.get(key)? else { return Ok(None) };
    let port = |item: At| match item.number(65_535)? {
        number if number < least => Err(item.wrong("is not a port")),
        number => Ok(number as u16),
    };
    list.items()?.map(port).collect::<Read<Vec<_>>>().map(Some)
}

/// With a list of executables, the container must not execute files that it can write: every writable mount becomes noexec. A
/// rule for a path on such a mount could never apply, so it is refused.
fn forbid_writable_programs(rules: &Landlock, plan: &mut ContainerPlan) -> Result<()> {
    let Some(list) = &rules.execute else { return Ok(()) };
    let writable = |mount: &ContainerMount| mount.set & RDONLY == 0 && mount.source != MountSource::Cgroup;
    for rule in list {
        let within = |destination: &Bytes| rule.path.as_path().starts_with(destination.as_path());
        let holding = plan.mounts.iter().filter(|mount| within(&mount.destination));
        let mount = holding.max_by_key(|mount| mount.destination.as_bytes().len());
        let (place, open) = match mount {
            Some(mount) => (mount.destination.to_string(), writable(mount)),
            None => ("/".to_owned(), !plan.read_only),
        };
        if open {
            let reason = format!("is writable through the mount at {place}, so it is never executed");
            return Err(Error::new(Step::Config, format!("annotation {ANNOTATION}: execute {}", rule.path), reason)
                .hint("make it read-only, or leave the list out"));
        }
    }
    for mount in plan.mounts.iter_mut().filter(|mount| writable(mount)) {
        // Not in `set`: an attribute of a bind's own would replace those of its source.
        mount.set_below |= NOEXEC;
        (mount.clear, mount.clear_below) = (mount.clear & !NOEXEC, mount.clear_below & !NOEXEC);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> std::result::Result<Option<(Landlock, bool)>, String> {
        let tree = stockade_json::parse(text.as_bytes(), MAX_BYTES).map_err(|error| error.message())?;
        read(&At::root(&tree)).map_err(|error| format!("{}: {}", error.path, error.message()))
    }

    #[test]
    fn rules_have_the_meaning_of_a_policy() {
        let text = r#"{"mode":"auto","read":["/usr","/x:optional",{"path":"/y","optional":true}],"write":["/tmp"],"connect":[443]}"#;
        let (rules, may_be_missing) = parse(text).unwrap().unwrap();
        let read =
            rules.read.unwrap().into_iter().map(|rule| (rule.path.to_string(), rule.optional)).collect::<Vec<_>>();
        assert_eq!(read, [("/usr".into(), false), ("/x".into(), true), ("/y".into(), true)]);
        assert_eq!((rules.connect_tcp, rules.bind_tcp, rules.minimum_abi), (Some(vec![443]), None, PORTS));
        assert!(may_be_missing);
        assert_eq!(parse(r#"{"mode":"off"}"#).unwrap(), None);
        assert_eq!(parse("{}").unwrap().unwrap().0.minimum_abi, 2);
    }

    #[test]
    fn invalid_rules_are_named() {
        for (text, named) in [
            (r#"{"raed":[]}"#, "raed"),
            (r#"{"read":["etc"]}"#, "read[0]"),
            (r#"{"read":["/a/../b"]}"#, "read[0]"),
            (r#"{"read":"/etc"}"#, "read"),
            (r#"{"connect":[0]}"#, "connect[0]"),
            (r#"{"connect":[70000]}"#, "connect[0]"),
            (r#"{"mode":"maybe"}"#, "mode"),
            (r#"{"mode":"off","read":[]}"#, "off"),
            (r#"{"minimum_abi":0}"#, "minimum_abi"),
            (r#"{"read":[],"read":[]}"#, ""),
            ("[]", ""),
            ("", ""),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(named), "{text}: {error}");
        }
    }
}
