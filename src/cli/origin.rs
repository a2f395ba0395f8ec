//! Which option an error comes from. Deep steps know only a path or a file of a cgroup; here the words that led there are
//! found again, for the message and the report.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use crate::args::Args;
use crate::error::Step;
use crate::plan::Bytes;
use crate::policy;

const MOUNTS: &[&str] = &["volume", "mount", "tmpfs", "ro", "rw", "workspace", "rootfs"];

/// The options whose values a step uses.
const OF_STEP: &[(Step, &[&str])] = &[
    (Step::Source, MOUNTS),
    (Step::Host, MOUNTS),
    (Step::MountPoint, MOUNTS),
    (Step::MountClone, MOUNTS),
    (Step::MountAttributes, MOUNTS),
    (Step::Mount, MOUNTS),
    (Step::Device, &["device"]),
    (Step::Cwd, &["workdir"]),
    (Step::Usage, &["env-file"]),
    (Step::Policy, &["profile", "allow-net", "deny-net", "volume", "mount", "rw", "workspace"]),
    (Step::SeccompProfile, &["seccomp", "seccomp-bpf", "security-opt"]),
    (Step::Landlock, &["allow-read", "allow-write", "allow-exec"]),
    (Step::Egress, &["net-log", "publish", "dns"]),
    (Step::Hostname, &["hostname"]),
    (Step::Report, &["report"]),
    (Step::Audit, &["audit"]),
    (Step::Learn, &["output"]),
    (Step::Cgroup, &["cgroup-set", "io-max"]),
];

/// The options of the files and controllers of a cgroup; the first text that the object contains counts.
const OF_CGROUP: &[(&str, &[&str])] = &[
    ("memory.high", &["memory-high"]),
    ("memsw", &["swap"]),
    ("swap", &["swap"]),
    ("memory", &["memory", "memory-high"]),
    ("cpuset.cpus", &["cpuset-cpus"]),
    ("cpuset.mems", &["cpuset-mems"]),
    ("cpuset", &["cpuset-cpus", "cpuset-mems"]),
    ("cpu.weight", &["cpu-weight"]),
    ("cpu.shares", &["cpu-weight"]),
    ("cpu", &["cpus", "cpu-weight"]),
    ("pids", &["pids-limit"]),
    ("io.weight", &["io-weight"]),
    ("io", &["io-max", "io-weight"]),
    ("hugetlb", &["hugetlb"]),
];

/// The option with its value, as it was given; `None` if the error names it already, or has nothing to do with an option.
pub fn of(args: &Args, step: Step, object: &str) -> Option<String> {
    if object.starts_with("--") {
        return None;
    }
    let options = OF_STEP.iter().find(|(known, _)| *known == step).map_or(&[][..], |(_, options)| options);
    let given = options.iter().flat_map(|option| args.all(option).map(move |value| (*option, value)));
    let by_value = given.into_iter().find(|(_, value)| leads_to(value, object));
    let found = by_value.or_else(|| match step {
        Step::Cgroup => {
            let (_, options) = OF_CGROUP.iter().find(|(text, _)| file_name(object).contains(text))?;
            options.iter().find_map(|option| Some((*option, args.value(option)?)))
        }
        Step::Plan => {
            let key = object.rsplit('.').next().unwrap_or(object).replace('_', "-");
            let names = [key.clone(), format!("net-{key}"), format!("{key}-net")];
            let mut flags = args.verb().flags().filter(|flag| flag.value.is_some());
            flags.find_map(|flag| {
                Some((flag.long, args.value(flag.long).filter(|_| names.contains(&flag.long.into()))?))
            })
        }
        _ => None,
    });
    found.map(|(option, value)| written(args, option, value)).or_else(|| {
        let profiles: Vec<&OsStr> = args.all("profile").collect();
        let is_path = step.is_of_mount() || matches!(step, Step::Host | Step::Device);
        let cwd = std::env::current_dir().ok();
        is_path.then(|| policy::named::key_of(object, &profiles, cwd.as_deref())).flatten()
    })
}

fn file_name(object: &str) -> &str {
    object.rsplit('/').next().unwrap_or(object)
}

/// As on the command line, with the letter if there is one.
fn written(args: &Args, option: &str, value: &OsStr) -> String {
    let letter = args.verb().flags().find(|flag| flag.long == option).and_then(|flag| flag.short);
    let name = letter.map_or_else(|| format!("--{option}"), |letter| format!("-{letter}"));
    if option == "upstream-proxy" {
        return name; // its value may have a password
    }
    let value = Bytes::from(value).to_string();
    if value.contains(char::is_whitespace) { format!("{name} {value:?}") } else { format!("{name} {value}") }
}

/// Whether a part of a value names the object, a path above it, or the same file by a relative path.
fn leads_to(value: &OsStr, object: &str) -> bool {
    let parts = value.as_bytes().split(|byte| b":,=".contains(byte));
    let mut parts = parts.map(|part| part.strip_prefix(b"@").unwrap_or(part)).filter(|part| !part.is_empty());
    parts.any(|part| {
        let path = absolute(Path::new(OsStr::from_bytes(part)));
        let mut words = object.split([' ', ':']).chain([object]);
        words.any(|word| {
            word.as_bytes() == part
                || word.starts_with('/') && path.components().count() > 1 && Path::new(word).starts_with(&path)
        })
    })
}

/// From the current directory, without `.` and a leading `..`, as a policy makes paths absolute.
fn absolute(path: &Path) -> PathBuf {
    let base = if path.is_absolute() { PathBuf::new() } else { std::env::current_dir().unwrap_or_default() };
    path.components().fold(base, |mut whole, component| {
        match component {
            Component::CurDir => {}
            Component::ParentDir => drop(whole.pop()),
            other => whole.push(other),
        }
        whole
    })
}
