//! Plans seccomp and Landlock from the settings.

use stockade_seccomp::builtin::{Builtin, Group, Guard};

use super::path::is_within;
use super::rules::{LandlockMode, RulePath, SeccompChoice};
use super::settings::{LandlockSettings, SeccompSettings};
use super::ulimit;
use crate::confine::landlock::{PORTS, TRUNCATE};
use crate::confine::seccomp::compiled;
use crate::error::{Error, Result, Step};
use crate::plan::{Landlock, Mount, MountKind, Network, PathRule, Rlimit, RlimitResource, Seccomp, SeccompProfile};

/// Plans the seccomp filter. Adds a warning for each group that weakens it. `sha256` is the hash of the profile's file.
pub fn seccomp(settings: &SeccompSettings, sha256: Option<&str>, warnings: &mut Vec<String>) -> Option<Seccomp> {
    let profile = match &settings.profile {
        Some(SeccompChoice::Unconfined) => {
            warnings.push(
                "no seccomp profile: only the guards filter system calls, so the workload can reach most kernel code"
                    .into(),
            );
            return None;
        }
        Some(SeccompChoice::Builtin(profile)) => SeccompProfile::Builtin(profile.name().to_owned()),
        Some(SeccompChoice::File(path)) => SeccompProfile::File(path.0.clone()),
        Some(SeccompChoice::Binary(path)) => SeccompProfile::Binary(path.0.clone()),
        None => SeccompProfile::Builtin("default".to_owned()),
    };
    let groups = settings.allow.iter().map(|group| group.0);
    let weakening = groups.clone().filter_map(|group| group.warning().map(|text| (group.name(), text)));
    warnings.extend(weakening.map(|(name, text)| format!("seccomp group {name}: {text}")));
    Some(Seccomp {
        profile,
        sha256: sha256.unwrap_or(compiled::SHA256).to_owned(),
        allow: groups.map(|group| group.name().to_owned()).collect(),
        strict: settings.strict.unwrap_or(false),
    })
}

/// How many namespaces of each kind the workload may create: none, or with the group `nested` enough for a browser or a few
/// sandboxes. Each namespace takes kernel memory that no other limit counts.
pub fn nested_namespaces(seccomp: Option<&Seccomp>) -> u32 {
    let wanted = seccomp.is_some_and(|seccomp| seccomp.allow.iter().any(|group| group == Group::Nested.name()));
    if wanted { 64 } else { 0 }
}

/// Plans the Landlock rules; `None` if it is off. [`may_be_missing`] says whether a run may go without it.
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
            let reason = "is off, but rules are given for it";
            return Err(Error::new(Step::Plan, "Landlock", reason).hint("remove the rules, or do not turn it off"));
        }
        warnings.push("Landlock is off: only the mounts and the network namespace restrict paths and ports".into());
        return Ok(None);
    }
    // A list that the kernel cannot enforce is an error, not ignored. Port rules are not needed without a network.
    let has_ports = rules.lists_ports();
    for (needs, abi) in [(rules.write.is_some(), TRUNCATE), (has_ports && network != Network::None, PORTS)] {
        if needs {
            rules.minimum_abi = rules.minimum_abi.max(abi);
        }
    }
    let ports = |list: &Option<Vec<u16>>| list.as_ref().is_some_and(|ports| !ports.is_empty());
    if network == Network::None && (ports(&rules.connect_tcp) || ports(&rules.bind_tcp)) {
        warnings.push("ports are allowed, but the network is none: use --network loopback or host".into());
    }
    Ok(Some(rules))
}

/// The guards: sets of system calls that are denied regardless of the profile. `rlimits` and `init` come from the plan.
/// `udp_stays` if sockets other than TCP are wanted although ports are listed.
pub fn guards(
    settings: &SeccompSettings,
    rlimits: &[Rlimit],
    init: bool,
    landlock: Option<&Landlock>,
    network: Network,
    udp_stays: bool,
    mounts: &[Mount],
) -> Vec<Guard> {
    let mut guards = Vec::new();
    if let Some(landlock) = landlock {
        guards.extend(landlock.execute.is_some().then_some(Guard::MemoryPrograms));
        guards.extend((landlock.lists_ports() && network != Network::None).then_some(Guard::Tcp));
        // In a network of its own a sandbox reaches only itself.
        guards.extend((landlock.lists_ports() && network == Network::Host && !udp_stays).then_some(Guard::TcpAlone));
    }
    let allowed = settings.allow.iter().any(|group| group.0 == Group::SetuidBits);
    // The profiles `default` and `strict` deny these calls themselves.
    let denied = match &settings.profile {
        Some(SeccompChoice::Builtin(profile)) => matches!(profile, Builtin::Default | Builtin::Strict),
        chosen => chosen.is_none(),
    };
    let outlive = |mount: &Mount| matches!(mount.kind, MountKind::Bind { .. } | MountKind::AsHost) && !mount.read_only;
    guards.extend((!allowed && !denied && mounts.iter().any(outlive)).then_some(Guard::SetId));
    // If the caller enables core dumps, the host's `core_pattern` handles them as usual.
    let no_dumps = |limit: &Rlimit| limit.resource == RlimitResource::Core && limit.hard == Some(ulimit::NO_CORE);
    guards.extend(rlimits.iter().any(no_dumps).then_some(Guard::CoreLimit));
    guards.extend(init.then_some(Guard::Init));
    guards
}

/// Whether the run may use as much of Landlock as the kernel supports.
pub fn may_be_missing(settings: &LandlockSettings) -> bool {
    settings.mode == Some(LandlockMode::Auto)
}

/// With a list of executables, the workload must not execute files that it can write: every writable mount becomes noexec.
/// A rule for a path on such a mount could never apply, so it is refused.
pub fn forbid_writable_programs(landlock: &Landlock, mounts: &mut [Mount]) -> Result<()> {
    let Some(rules) = &landlock.execute else { return Ok(()) };
    for rule in rules {
        let holding = mounts.iter().filter(|mount| is_within(&rule.path, &mount.destination));
        let mount = holding.max_by_key(|mount| mount.destination.as_bytes().len());
        if let Some(mount) = mount.filter(|mount| !mount.read_only) {
            let reason = format!("is on the writable mount at {}, which becomes noexec", mount.destination);
            return Err(Error::new(Step::Plan, format!("allow-exec {}", rule.path), reason)
                .hint("mount it read-only, or remove the rule"));
        }
    }
    mounts.iter_mut().filter(|mount| !mount.read_only).for_each(|mount| mount.noexec = true);
    Ok(())
}
