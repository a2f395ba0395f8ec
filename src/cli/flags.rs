//! Turns the flags of `run` and `plan` into settings, the topmost layer of the policy.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::values::{many, one, shown, wrong};
use crate::args::Args;
use crate::error::{Result, nearest};
use crate::plan::{Bytes, Facility, IdMapping, Keep, RlimitResource};
use crate::policy::label::{self, LabelName, LabelValue};
use crate::policy::mount::MountRequest;
use crate::policy::path::{HostPath, SandboxPath};
use crate::policy::rules::{LandlockMode, SeccompChoice, Toolchain};
use crate::policy::trust::Guarded;
use crate::policy::ulimit::Ulimit;
use crate::policy::value::{Id, Limit, UserMap, UserName, Value};
use crate::policy::{Settings, budget_values, env_file, units};

/// The parsed flags.
#[derive(Debug)]
pub struct Flags {
    /// The flags that have a policy key.
    pub settings: Settings,
    /// The environment files that were read.
    pub files: Vec<Guarded>,
}

/// Parses the flags. Relative paths start in `cwd`, which is `None` if the directory was deleted.
pub fn settings(args: &Args, cwd: Option<&Path>) -> Result<Flags> {
    let mut settings = Settings {
        rootfs: only(args, "rootfs")?,
        workspace: only(args, "workspace")?,
        mounts: mounts(args, cwd)?,
        follow: on(args, "follow"),
        sysfs: on(args, "sysfs"),
        toolchains: toolchains(args)?,
        devices: many(args, "device")?,
        cwd: if is_of_host(args) { None } else { one(args, "workdir")? },
        umask: one(args, "umask")?,
        labels: labels(args)?,
        hostname: one(args, "hostname")?,
        network: super::network::settings(args)?,
        time_namespace: on(args, "time-namespace"),
        init: on(args, "no-init").map(|no_init| !no_init),
        oom_score_adj: one(args, "oom-score-adj")?,
        explain_denials: on(args, "explain-denials"),
        audit: one(args, "audit")?,
        audit_sync: on(args, "audit-sync"),
        allow_degraded: allow_degraded(args)?,
        ..Settings::default()
    };
    settings.capabilities.add = many(args, "cap-add")?;
    settings.capabilities.drop = many(args, "cap-drop")?;
    settings.budget.memory = one(args, "memory")?;
    settings.budget.memory_high = one(args, "memory-high")?;
    settings.budget.swap = one(args, "swap")?;
    settings.budget.cpus = one(args, "cpus")?;
    settings.budget.cpu_weight = one(args, "cpu-weight")?;
    settings.budget.cpuset_cpus = one(args, "cpuset-cpus")?;
    settings.budget.cpuset_mems = one(args, "cpuset-mems")?;
    settings.budget.io_max = many(args, "io-max")?;
    settings.budget.io_weight = one(args, "io-weight")?;
    settings.budget.hugetlb = pairs(args, "hugetlb")?;
    settings.budget.set = pairs(args, "cgroup-set")?;
    settings.budget.pids = match args.value("pids-limit") {
        // docker's value for no limit.
        Some(word) if word == "-1" => Some(Limit::Unlimited),
        _ => one(args, "pids-limit")?,
    };
    settings.budget.required = on(args, "require-budget");
    settings.scratch.size = one(args, "scratch-size")?;
    settings.scratch.inodes = one(args, "scratch-inodes")?;
    settings.deadlines.timeout = one(args, "timeout")?;
    settings.deadlines.cpu_time = one(args, "cpu-time")?;
    settings.deadlines.idle_timeout = one(args, "idle-timeout")?;
    settings.deadlines.kill_after = one(args, "kill-after")?;
    settings.stdio.stdin = on(args, "interactive");
    settings.stdio.tty = on(args, "tty");
    seccomp(args, cwd, &mut settings)?;
    landlock(args, &mut settings)?;
    output_limit(args, &mut settings)?;
    ulimits(args, &mut settings)?;
    if args.name() != "exec" {
        user(args, &mut settings)?; // a session knows the names of its users
    }
    let files = environment(args, cwd, &mut settings)?;
    Ok(Flags { settings, files })
}

/// Whether `--workdir` names a directory of the host, which the plan translates.
pub fn is_of_host(args: &Args) -> bool {
    let path = args.value("workdir").map(OsStr::as_bytes).unwrap_or_default();
    args.name() != "exec" && !path.is_empty() && !path.starts_with(b"/")
}

/// The value of an option that cannot mean two things at once.
fn only<T: Value + PartialEq>(args: &Args, flag: &str) -> Result<Option<T>> {
    let values: Vec<T> = many(args, flag)?;
    match values.windows(2).any(|pair| pair[0] != pair[1]) {
        true => Err(wrong(flag, "is given twice, with different directories".into())
            .hint("-v SRC:DST and --rw PATH mount further ones")),
        false => Ok(values.into_iter().next()),
    }
}

fn pairs<K: Value + Ord, V: Value>(args: &Args, flag: &str) -> Result<std::collections::BTreeMap<K, V>> {
    let parse = |word: &OsStr| budget_values::pair(word.as_bytes()).map_err(|reason| wrong(flag, reason));
    args.all(flag).map(parse).collect()
}

/// `Some(true)` if the switch was given; otherwise the lower layers of the policy decide.
fn on(args: &Args, flag: &str) -> Option<bool> {
    args.is_on(flag).then_some(true)
}

fn mounts(args: &Args, cwd: Option<&Path>) -> Result<Vec<MountRequest>> {
    type Parse = fn(&[u8]) -> std::result::Result<MountRequest, String>;
    let kinds: [(&str, Parse); 5] = [
        ("volume", MountRequest::volume),
        ("mount", MountRequest::mount_flag),
        ("tmpfs", MountRequest::tmpfs),
        ("ro", |path| MountRequest::same_path(path, true)),
        ("rw", |path| MountRequest::same_path(path, false)),
    ];
    let mut mounts = Vec::new();
    for (flag, parse) in kinds {
        for word in args.all(flag) {
            // Made absolute here, while an error can still name the flag.
            let mount = parse(word.as_bytes()).and_then(|mut mount| mount.anchor(cwd).map(|()| mount));
            mounts.push(mount.map_err(|reason| wrong(flag, format!("{}: {reason}", shown(word))))?);
        }
    }
    Ok(mounts)
}

fn labels(args: &Args) -> Result<BTreeMap<LabelName, LabelValue>> {
    args.all("label").map(|word| label::parse(word.as_bytes()).map_err(|reason| wrong("label", reason))).collect()
}

fn allow_degraded(args: &Args) -> Result<Vec<Facility>> {
    let known = || Facility::ALL.iter().map(|facility| facility.name());
    let facility = |word: &OsStr| {
        let name = word.to_str().unwrap_or_default();
        name.parse::<Facility>().map_err(|()| {
            let names = known().collect::<Vec<_>>().join(", ");
            let near = nearest(name, known()).map(|near| format!("did you mean {near}? ")).unwrap_or_default();
            wrong("allow-degraded", format!("{} is not a protection that may be missing", shown(word)))
                .hint(format!("{near}known: {names}"))
        })
    };
    args.all("allow-degraded").map(facility).collect()
}

fn toolchains(args: &Args) -> Result<Vec<Toolchain>> {
    let one = |word: &OsStr| match word.as_bytes() {
        b"python" => Ok(Toolchain::Python),
        b"node" => Ok(Toolchain::Node),
        b"rust" => Ok(Toolchain::Rust),
        b"java" => Ok(Toolchain::Java),
        b"go" => Ok(Toolchain::Go),
        b"auto" => Ok(Toolchain::Auto),
        _ => Err(wrong("toolchain", format!("{} is not python, node, rust, java, go or auto", shown(word)))),
    };
    args.all("toolchain").map(one).collect()
}

/// `--seccomp`, `--seccomp-bpf` and `--security-opt seccomp=`. They exclude each other.
fn seccomp(args: &Args, cwd: Option<&Path>, settings: &mut Settings) -> Result<()> {
    let mut given: Option<(&str, SeccompChoice)> = None;
    let mut choose = |flag: &'static str, choice: std::result::Result<SeccompChoice, String>| {
        let anchored = choice.and_then(|mut choice| choice.anchor(cwd).map(|()| choice));
        let choice = anchored.map_err(|reason| wrong(flag, reason))?;
        match given.replace((flag, choice)) {
            Some((other, _)) if other != flag => {
                Err(wrong(flag, format!("cannot be used together with --{other}: both name a seccomp profile")))
            }
            _ => Ok(()),
        }
    };
    if let Some(word) = args.value("seccomp") {
        choose("seccomp", SeccompChoice::parse(word.as_bytes()))?;
    }
    if let Some(word) = args.value("seccomp-bpf") {
        choose("seccomp-bpf", HostPath::parse(word.as_bytes()).map(SeccompChoice::Binary))?;
    }
    for word in args.all("security-opt") {
        match word.as_bytes() {
            // Always in force.
            b"no-new-privileges" | b"no-new-privileges:true" | b"no-new-privileges=true" => {}
            b"no-new-privileges:false" | b"no-new-privileges=false" => {
                return Err(wrong("security-opt", "no-new-privileges cannot be turned off".into()));
            }
            bytes => match bytes.strip_prefix(b"seccomp=") {
                Some(profile) => choose("security-opt", SeccompChoice::parse(profile))?,
                None => {
                    return Err(wrong("security-opt", format!("{} is unknown", shown(word)))
                        .hint("known: seccomp=FILE|NAME|unconfined and no-new-privileges"));
                }
            },
        }
    }
    settings.seccomp.profile = given.map(|(_, choice)| choice);
    settings.seccomp.allow = many(args, "seccomp-allow")?;
    settings.seccomp.strict = on(args, "seccomp-strict");
    Ok(())
}

fn landlock(args: &Args, settings: &mut Settings) -> Result<()> {
    let landlock = &mut settings.landlock;
    landlock.mode = match args.value("landlock").map(|word| (word, word.as_bytes())) {
        None => None,
        Some((_, b"require")) => Some(LandlockMode::Require),
        Some((_, b"auto")) => Some(LandlockMode::Auto),
        Some((_, b"off")) => Some(LandlockMode::Off),
        Some((word, _)) => return Err(wrong("landlock", format!("{} is not require, auto or off", shown(word)))),
    };
    landlock.minimum_abi = one(args, "landlock-abi")?;
    // A flag that was not given leaves the list unset. An empty list denies everything and cannot be given by flags.
    landlock.read = some(many(args, "allow-read")?);
    landlock.write = some(many(args, "allow-write")?);
    landlock.execute = some(many(args, "allow-exec")?);
    landlock.connect = some(many(args, "allow-connect")?);
    landlock.bind = some(many(args, "allow-bind")?);
    Ok(())
}

fn some<T>(list: Vec<T>) -> Option<Vec<T>> {
    (!list.is_empty()).then_some(list)
}

/// `N[,head|tail|kill]`.
fn output_limit(args: &Args, settings: &mut Settings) -> Result<()> {
    let Some(word) = args.value("output-limit") else { return Ok(()) };
    let bytes = word.as_bytes();
    let (size, keep) = match bytes.iter().position(|byte| *byte == b',') {
        Some(at) => (&bytes[..at], Some(&bytes[at + 1..])),
        None => (bytes, None),
    };
    let limit = Limit::parse(size).map_err(|reason| wrong("output-limit", reason))?;
    settings.stdio.output_limit = Some(limit);
    settings.stdio.output_keep = match keep {
        None => None,
        Some(b"head") => Some(Keep::Head),
        Some(b"tail") => Some(Keep::Tail),
        Some(b"kill") => Some(Keep::Kill),
        Some(other) => {
            let other = Bytes::from(other.to_vec());
            return Err(wrong("output-limit", format!("\"{other}\" is not head, tail or kill")));
        }
    };
    Ok(())
}

/// `NAME=SOFT[:HARD]`, with docker's names.
fn ulimits(args: &Args, settings: &mut Settings) -> Result<()> {
    for word in args.all("ulimit") {
        let fail = |reason: String| wrong("ulimit", format!("{}: {reason}", shown(word)));
        let text = word.to_str().ok_or_else(|| fail("is not UTF-8".into()))?;
        let (name, limit) = text.split_once('=').ok_or_else(|| fail("lacks a value: NAME=SOFT[:HARD]".into()))?;
        let resource: RlimitResource = name.parse().map_err(|()| {
            let known = || RlimitResource::ALL.iter().map(|resource| resource.name());
            let near = nearest(name, known()).map(|near| format!("did you mean {near}? ")).unwrap_or_default();
            fail(format!("{name:?} is not a resource"))
                .hint(format!("{near}known: {}", known().collect::<Vec<_>>().join(", ")))
        })?;
        let limit = Ulimit::parse(limit.as_bytes()).map_err(fail)?;
        settings.ulimits.insert(resource, limit);
    }
    Ok(())
}

fn user(args: &Args, settings: &mut Settings) -> Result<()> {
    let user = &mut settings.user;
    let named = |name: &str, home: &str| (Some(UserName(name.into())), Some(SandboxPath(home.into())));
    match args.value("user").map(OsStr::as_bytes) {
        None => {}
        Some(b"root" | b"0" | b"0:0") => {
            (user.name, user.home) = named("root", "/root");
            (user.uid, user.gid) = (Some(Id(0)), Some(Id(0)));
        }
        Some(b"sandbox") => {
            (user.name, user.home) = named("sandbox", "/home/sandbox");
            (user.uid, user.gid) = (Some(Id(1000)), Some(Id(1000)));
        }
        // The user without rights of its own, which has this number on every Linux.
        Some(b"nobody" | b"nobody:nogroup" | b"nobody:nobody") => {
            user.name = Some(UserName("nobody".into()));
            (user.uid, user.gid) = (Some(Id(65_534)), Some(Id(65_534)));
        }
        Some(other) => {
            let text = std::str::from_utf8(other).map_err(|_| wrong("user", "is not UTF-8".into()))?;
            // Names are not looked up: the sandbox has only one user and root, and a name of the host has no meaning inside.
            let (uid, gid) = units::id_pair(text)
                .map_err(|reason| wrong("user", reason).hint("use UID[:GID] as numbers, root, sandbox or nobody"))?;
            (user.uid, user.gid) = (Some(Id(uid)), Some(Id(gid)));
        }
    }
    let subordinate = args.is_on("subuid");
    user.map = match args.value("host-user") {
        Some(_) if subordinate => return Err(wrong("host-user", "cannot be used together with --subuid".into())),
        Some(word) => {
            let text = word.to_str().ok_or_else(|| wrong("host-user", "is not UTF-8".into()))?;
            Some(UserMap::host(text).map_err(|reason| wrong("host-user", reason))?)
        }
        None => subordinate.then_some(UserMap(IdMapping::Subordinate)),
    };
    Ok(())
}

/// `--env-file` first, then `-e`, as docker does: the last setting of a variable wins.
fn environment(args: &Args, cwd: Option<&Path>, settings: &mut Settings) -> Result<Vec<Guarded>> {
    let env = &mut settings.env;
    let mut files = Vec::new();
    for file in args.all("env-file") {
        HostPath::parse(file.as_bytes()).map_err(|reason| wrong("env-file", reason))?;
        files.push(env_file::read(env, Path::new(file), cwd)?);
    }
    for word in args.all("env") {
        env_file::add(env, word.as_bytes()).map_err(|reason| wrong("env", reason))?;
    }
    env.keep = on(args, "keep-env");
    Ok(files)
}
