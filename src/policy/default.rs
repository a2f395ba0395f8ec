//! The built-in policy `default`, as code.
//!
//! `profiles/default.toml` is the same policy as a readable file; a test compares the two. Parsing that file took 120 µs of
//! every start, a third of the time before the sandbox is created.

use std::collections::BTreeMap;

use stockade_seccomp::builtin::Builtin;

use super::budget::BudgetSettings;
use super::network::NetworkSettings;
use super::path::SandboxPath;
use super::rules::{LandlockAbi, LandlockMode, SeccompChoice};
use super::settings::{
    DeadlineSettings, EnvSettings, LandlockSettings, ProcView, ScratchSettings, SeccompSettings, Settings, UserSettings,
};
use super::ulimit::Ulimit;
use super::value::{
    Amount, Count, Duration, EnvName, EnvPattern, EnvValue, Hostname, Id, Limit, Pids, Umask, UserMap, UserName,
};
use crate::plan::{Bytes, Facility, IdMapping, Network, RlimitResource};

const MASKED: &[&str] = &[
    "/proc/acpi",
    "/proc/asound",
    "/proc/interrupts",
    "/proc/kallsyms",
    "/proc/kcore",
    "/proc/key-users",
    "/proc/keys",
    "/proc/kmsg",
    "/proc/latency_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/sys/devices/virtual/powercap",
    "/sys/firmware",
    "/sys/fs/bpf",
    "/sys/kernel",
];

const READ_ONLY: &[&str] = &["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

const PASSED: &[&str] = &["LANG", "LC_*", "TERM", "TZ"];

/// Soft and hard limits.
const ULIMITS: &[(RlimitResource, u64, u64)] = &[
    (RlimitResource::Core, 0, 0), // 1 in the plan, see `ulimit::NO_CORE`
    (RlimitResource::Memlock, 8 << 20, 8 << 20),
    (RlimitResource::Msgqueue, 0, 0),
    (RlimitResource::Nice, 0, 0),
    (RlimitResource::Nofile, 1_024, 4_096),
    (RlimitResource::Nproc, 2_048, 2_048),
    (RlimitResource::Rtprio, 0, 0),
    (RlimitResource::Sigpending, 1_024, 1_024),
    (RlimitResource::Stack, 8 << 20, 8 << 20),
];

/// The base of every other policy.
pub fn settings() -> Settings {
    let path = |path: &&str| SandboxPath(Bytes::from(*path));
    let limit = |&(resource, soft, hard): &_| (resource, Ulimit { soft: Some(soft), hard: Some(hard), clamp: true });
    Settings {
        hostname: Some(Hostname("sandbox".into())),
        umask: Some(Umask(0o022)),
        init: Some(true),
        network: NetworkSettings::of_mode(Network::Loopback),
        sysfs: Some(false),
        proc: Some(ProcView::Full),
        masked_paths: MASKED.iter().map(path).collect(),
        readonly_paths: READ_ONLY.iter().map(path).collect(),
        user: UserSettings {
            name: Some(UserName("sandbox".into())),
            uid: Some(Id(1000)),
            gid: Some(Id(1000)),
            home: Some(SandboxPath("/home/sandbox".into())),
            map: Some(UserMap(IdMapping::Single)),
        },
        env: EnvSettings {
            set: BTreeMap::from([(EnvName("PATH".into()), EnvValue(PATH.into()))]),
            pass: PASSED.iter().map(|name| EnvPattern(Bytes::from(*name))).collect(),
            keep: None,
        },
        seccomp: SeccompSettings {
            profile: Some(SeccompChoice::Builtin(Builtin::Default)),
            ..SeccompSettings::default()
        },
        landlock: LandlockSettings {
            mode: Some(LandlockMode::Require),
            minimum_abi: Some(LandlockAbi(2)),
            ..LandlockSettings::default()
        },
        scratch: ScratchSettings { size: Some(Amount(512 << 20)), inodes: Some(Count(65_536)) },
        budget: BudgetSettings {
            memory: Some(Limit::At(Amount(2 << 30))),
            pids: Some(Limit::At(Pids(512))),
            if_possible: vec![Facility::Memory, Facility::Pids],
            ..BudgetSettings::default()
        },
        deadlines: DeadlineSettings { kill_after: Some(Duration(2_000_000)), ..DeadlineSettings::default() },
        ulimits: ULIMITS.iter().map(limit).collect(),
        ..Settings::default()
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_file_is_the_same_policy() {
        let (name, text) = super::super::builtin::ALL[0];
        assert_eq!(super::settings(), super::super::load::parse(name, text).unwrap());
    }
}
