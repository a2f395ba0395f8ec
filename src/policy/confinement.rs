//! From settings to what the plan says of seccomp and Landlock.

use stockade_seccomp::builtin::{Builtin, Group, Guard};

use super::resolve::is_within;
use super::rules::{LandlockMode, RulePath, SeccompChoice};
use super::settings::{LandlockSettings, SeccompSettings};
use super::ulimit;
use crate::error::{Error, Result, Step};
use crate::layers::landlock::{PORTS, TRUNCATE};
use crate::layers::seccomp::compiled;
use crate::plan::{Landlock, Mount, MountKind, Network, PathRule, Rlimit, RlimitResource, Seccomp, SeccompProfile};

/// Which system calls are filtered; what is given up by it is added to the warnings. `sha256` is that of the profile's file.
pub fn seccomp(settings: &SeccompSettings, sha256: Option<&str>, warnings: &mut Vec<String>) -> Option<Seccomp> {
    let profile = match &settings.profile {
        Some(SeccompChoice::Unconfined) => {
            warnings.push("no system call is filtered but by the guards: the kernel's code is within reach".into());
            return None;
        }
        Some(SeccompChoice::Builtin(profile)) => SeccompProfile::Builtin(profile.name().to_owned()),
        Some(SeccompChoice::File(path)) => SeccompProfile::File(path.0.clone()),
        Some(SeccompChoice::Binary(path)) => SeccompProfile::Binary(path.0.clone()),
        None => SeccompProfile::Builtin("default".to_owned()),
    };
    let groups = settings.allow.iter().map(|group| group.0);
    let given_up = groups.clone().filter_map(|group| group.warning().map(|text| (group.name(), text)));
    warnings.extend(given_up.map(|(name, text)| format!("seccomp group {name}: {text}")));
    Some(Seccomp {
        profile,
        sha256: sha256.unwrap_or(compiled::SHA256).to_owned(),
        allow: groups.map(|group| group.name().to_owned()).collect(),
        strict: settings.strict.unwrap_or(false),
    })
}

/// How many namespaces of each kind may be made inside: none, or with the group `nested` enough for a browser or a handful of
/// sandboxes at a time. Each is memory of the kernel's that no other limit counts.
pub fn nested_namespaces(seccomp: Option<&Seccomp>) -> u32 {
    let wanted = seccomp.is_some_and(|seccomp| seccomp.allow.iter().any(|group| group == Group::Nested.name()));
    if wanted { 64 } else { 0 }
}

/// What Landlock allows; `None` when it is off. Whether it may be missing is [`may_be_missing`]'s to say.
pub fn landlock(settings: &LandlockSettings, network: Network, warnings: &mut Vec<String>) -> Result<Option<Landlock>> {
    let paths = |list: &Option<Vec<RulePath>>| -> Option<Vec<PathRule>> {
        list.as_ref().map(|rules| rules.iter().map(RulePath::rule).collect())
    };
    let mut rules = Landlock {
        minimum_abi: settings.minimum_abi.map_or(2, |abi| abi.0),
        read: paths(&settings.read),
        write: paths(&settings.write),
        execute: paths(&settings.execute),
        connect_tcp: settings.connect.as_ref().map(|ports| ports.iter().map(|port| port.0).collect()),
        bind_tcp: settings.bind.as_ref().map(|ports| ports.iter().map(|port| port.0).collect()),
    };
    if settings.mode == Some(LandlockMode::Off) {
        let given = rules != Landlock { minimum_abi: rules.minimum_abi, ..Landlock::default() };
        if given {
            let reason = "is off, and yet there are rules for it";
            return Err(Error::new(Step::Plan, "Landlock", reason).hint("leave either out"));
        }
        warnings.push("Landlock is off: nothing but mounts and the network limits paths and ports".into());
        return Ok(None);
    }
    // A list that the kernel would not hold anyone to is refused there, and not left out. Without a network there is none to
    // leave out.
    let has_ports = rules.connect_tcp.is_some() || rules.bind_tcp.is_some();
    for (needs, abi) in [(rules.write.is_some(), TRUNCATE), (has_ports && network != Network::None, PORTS)] {
        if needs {
            rules.minimum_abi = rules.minimum_abi.max(abi);
        }
    }
    let ports = |list: &Option<Vec<u16>>| list.as_ref().is_some_and(|ports| !ports.is_empty());
    if network == Network::None && (ports(&rules.connect_tcp) || ports(&rules.bind_tcp)) {
        warnings.push("ports are allowed, but the network is none: --network loopback or host has sockets".into());
    }
    Ok(Some(rules))
}

/// What is refused whatever the profile says. `rlimits` and `init` are the plan's.
pub fn guards(
    settings: &SeccompSettings,
    rlimits: &[Rlimit],
    init: bool,
    landlock: Option<&Landlock>,
    network: Network,
    mounts: &[Mount],
) -> Vec<Guard> {
    let mut guards = Vec::new();
    let listed = |ports: &Option<Vec<u16>>| ports.is_some() && network != Network::None;
    if let Some(landlock) = landlock {
        guards.extend(landlock.execute.is_some().then_some(Guard::MemoryPrograms));
        guards.extend((listed(&landlock.connect_tcp) || listed(&landlock.bind_tcp)).then_some(Guard::Tcp));
    }
    let asked_for = settings.allow.iter().any(|group| group.0 == Group::SetuidBits);
    // These two refuse them themselves.
    let refused = match &settings.profile {
        Some(SeccompChoice::Builtin(profile)) => matches!(profile, Builtin::Default | Builtin::Strict),
        chosen => chosen.is_none(),
    };
    let outlive = |mount: &Mount| matches!(mount.kind, MountKind::Bind { .. } | MountKind::AsHost) && !mount.read_only;
    guards.extend((!asked_for && !refused && mounts.iter().any(outlive)).then_some(Guard::SetId));
    // A caller that asks for core dumps has them taken as the host takes them.
    let no_dumps = |limit: &Rlimit| limit.resource == RlimitResource::Core && limit.hard == Some(ulimit::NO_CORE);
    guards.extend(rlimits.iter().any(no_dumps).then_some(Guard::CoreLimit));
    guards.extend(init.then_some(Guard::Init));
    guards
}

/// Whether a run does with as much Landlock as the kernel has.
pub fn may_be_missing(settings: &LandlockSettings) -> bool {
    settings.mode == Some(LandlockMode::Auto)
}

/// Where what may be executed is listed, nothing that the workload could write may be: every writable mount is noexec. A
/// rule for something there would be a promise that the mount breaks.
pub fn forbid_writable_programs(landlock: &Landlock, mounts: &mut [Mount]) -> Result<()> {
    let Some(rules) = &landlock.execute else { return Ok(()) };
    for rule in rules {
        let holding = mounts.iter().filter(|mount| is_within(&rule.path, &mount.destination));
        let mount = holding.max_by_key(|mount| mount.destination.as_bytes().len());
        if let Some(mount) = mount.filter(|mount| !mount.read_only) {
            let reason = format!("is writable through the mount at {}, so it is never executed", mount.destination);
            return Err(Error::new(Step::Plan, format!("allow-exec {}", rule.path), reason)
                .hint("mount it read-only, or leave the list out"));
        }
    }
    mounts.iter_mut().filter(|mount| !mount.read_only).for_each(|mount| mount.noexec = true);
    Ok(())
}
