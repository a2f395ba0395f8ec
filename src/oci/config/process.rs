//! `process`: the program, its user, and its attributes.

use std::collections::HashSet;
use std::path::PathBuf;

use oci_spec::runtime;
use serde::Deserialize;

use super::document::{Read, Within as _, each, wrong};
use super::{absolute, filled, id, ranged, schedule, strings};
use crate::plan::container::{CapabilitySets, Process};
use crate::plan::{Bytes, Capability, Command, Rlimit, RlimitResource};

/// The limit on the number of arguments.
const MAX_ARGS: usize = 1 << 20;

/// The document's `process`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Document {
    args: Option<Vec<String>>,
    env: Option<Vec<String>>,
    cwd: PathBuf,
    #[serde(default)]
    user: runtime::User,
    capabilities: Option<runtime::LinuxCapabilities>,
    rlimits: Option<Vec<runtime::PosixRlimit>>,
    #[serde(default)]
    no_new_privileges: bool,
    apparmor_profile: Option<String>,
    selinux_label: Option<String>,
    oom_score_adj: Option<i32>,
    scheduler: Option<runtime::Scheduler>,
    io_priority: Option<runtime::LinuxIOPriority>,
    #[serde(default, rename = "execCPUAffinity")]
    exec_cpu_affinity: schedule::Affinity,
    #[serde(default)]
    terminal: bool,
    #[serde(default)]
    console_size: runtime::Box,
}

impl Document {
    /// Whether it says which capabilities the process has.
    pub fn has_capabilities(&self) -> bool {
        self.capabilities.is_some()
    }
}

/// Reads a process.
pub fn read(document: &Document) -> Read<Process> {
    let argv = strings("args", &document.args)?;
    if argv.first().is_none_or(|first| first.as_bytes().is_empty()) {
        return Err(wrong("args", "must name a program"));
    }
    if argv.len() > MAX_ARGS {
        return Err(wrong("args", "are too many"));
    }
    let user = &document.user;
    let groups = each("user.additionalGids", user.additional_gids(), |group| id("", *group))?;
    if groups.len() > 65_536 {
        return Err(wrong("user.additionalGids", "are more than the 65536 that the kernel takes"));
    }
    let umask = user.umask().map(|mask| ranged("user.umask", mask, 0..=0o777)).transpose()?;
    let (height, width) = (document.console_size.height(), document.console_size.width());
    let size = (ranged("consoleSize.height", height, 0..=65_535)?, ranged("consoleSize.width", width, 0..=65_535)?);
    let mut process = Process {
        command: Command {
            argv,
            env: strings("env", &document.env)?,
            cwd: absolute("cwd", &document.cwd)?,
            umask: umask.unwrap_or(0o022),
            rlimits: rlimits(&document.rlimits)?,
            oom_score_adj: document
                .oom_score_adj
                .map(|score| ranged("oomScoreAdj", score, -1000..=1000))
                .transpose()?,
        },
        uid: id("user.uid", user.uid())?,
        gid: id("user.gid", user.gid())?,
        groups,
        capabilities: document.capabilities.as_ref().map(capabilities).unwrap_or_default(),
        no_new_privs: document.no_new_privileges,
        apparmor_profile: filled("apparmorProfile", &document.apparmor_profile)?,
        selinux_label: filled("selinuxLabel", &document.selinux_label)?,
        scheduler: document.scheduler.as_ref().map(schedule::scheduler).transpose().within("scheduler")?,
        io_priority: document.io_priority.as_ref().map(schedule::io_priority).transpose()?,
        cpu_affinity: schedule::list("execCPUAffinity.final", &document.exec_cpu_affinity.last)?,
        initial_cpu_affinity: schedule::list("execCPUAffinity.initial", &document.exec_cpu_affinity.initial)?,
        terminal: document.terminal,
        console_size: Some(size).filter(|size| *size != (0, 0)),
    };
    settle_environment(&mut process.command.env);
    Ok(process)
}

fn capabilities(sets: &runtime::LinuxCapabilities) -> CapabilitySets {
    let set = |set: &Option<HashSet<runtime::Capability>>| {
        let mut known: Vec<_> =
            set.iter().flatten().filter_map(|one| Capability::from_word(&one.to_string())).collect();
        known.sort();
        known
    };
    CapabilitySets {
        bounding: set(sets.bounding()),
        effective: set(sets.effective()),
        inheritable: set(sets.inheritable()),
        permitted: set(sets.permitted()),
        ambient: set(sets.ambient()),
    }
}

fn rlimits(list: &Option<Vec<runtime::PosixRlimit>>) -> Read<Vec<Rlimit>> {
    let mut seen = Vec::new();
    each("rlimits", list, |limit| {
        let name = limit.typ().to_string();
        let name = name.trim_start_matches("RLIMIT_").to_ascii_lowercase();
        let resource: RlimitResource =
            name.parse().map_err(|()| wrong("type", "is not a resource limit of this kernel"))?;
        if seen.contains(&resource) {
            return Err(wrong("type", "is limited twice"));
        }
        seen.push(resource);
        if limit.soft() > limit.hard() {
            return Err(wrong("", "soft is more than hard"));
        }
        let value = |value: u64| Some(value).filter(|value| *value != u64::MAX);
        Ok(Rlimit { resource, soft: value(limit.soft()), hard: value(limit.hard()), clamp: false })
    })
}

/// The last variable of each name counts, as with runc, and an empty `HOME` is none.
pub fn settle_environment(env: &mut Vec<Bytes>) {
    fn name(variable: &Bytes) -> &[u8] {
        variable.as_bytes().split(|byte| *byte == b'=').next().unwrap_or_default()
    }
    let mut known = HashSet::new();
    let kept: Vec<bool> = env.iter().rev().map(|one| known.insert(name(one)) && one.as_bytes() != b"HOME=").collect();
    let mut kept = kept.into_iter().rev();
    env.retain(|_| kept.next() == Some(true));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_variable_of_a_name_counts() {
        let mut env: Vec<Bytes> = ["A=1", "B=1", "A=2", "HOME=/x", "C", "HOME=", "A=3=4"].map(Bytes::from).into();
        settle_environment(&mut env);
        assert_eq!(env, ["B=1", "C", "A=3=4"].map(Bytes::from));
    }
}
