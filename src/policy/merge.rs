//! Merges one policy over another.
//!
//! A setting of the upper policy replaces that of the lower one; tables merge key by key. Lists add: mounts (a mount with the
//! same destination replaces), environment, devices, masked and read-only paths, capabilities, limits by name, seccomp
//! groups, Landlock lists, and `allow_degraded`. An upper policy cannot remove a mask.

use super::budget::BudgetSettings;
use super::network::NetworkSettings;
use super::rules::LandlockMode;
use super::settings::{
    CapabilitySettings, DeadlineSettings, EnvSettings, LandlockSettings, ScratchSettings, SeccompSettings, Settings,
    StdioSettings, UserSettings,
};

impl Settings {
    /// These settings with those of `over` on top.
    #[must_use]
    pub fn overlaid_with(self, over: Self) -> Self {
        // Destructured, so that a new setting does not compile until its merging is decided here.
        let Self {
            version,
            extends: _,
            rootfs,
            workspace,
            require_workspace,
            mut mounts,
            follow,
            sysfs,
            proc,
            toolchains,
            devices,
            masked_paths,
            readonly_paths,
            cwd,
            umask,
            env,
            user,
            capabilities,
            seccomp,
            landlock,
            mut labels,
            hostname,
            network,
            time_namespace,
            init,
            oom_score_adj,
            mut ulimits,
            budget,
            scratch,
            deadlines,
            stdio,
            explain_denials,
            audit,
            audit_sync,
            allow_degraded,
        } = self;
        mounts.retain(|mount| over.mounts.iter().all(|above| above.destination != mount.destination));
        mounts.extend(over.mounts);
        ulimits.extend(over.ulimits);
        labels.extend(over.labels);
        Self {
            version,
            extends: None,
            rootfs: over.rootfs.or(rootfs),
            workspace: over.workspace.or(workspace),
            require_workspace: over.require_workspace.or(require_workspace),
            mounts,
            follow: over.follow.or(follow),
            sysfs: over.sysfs.or(sysfs),
            proc: over.proc.or(proc),
            toolchains: joined(toolchains, over.toolchains),
            devices: joined(devices, over.devices),
            masked_paths: joined(masked_paths, over.masked_paths),
            readonly_paths: joined(readonly_paths, over.readonly_paths),
            cwd: over.cwd.or(cwd),
            umask: over.umask.or(umask),
            env: env.overlaid_with(over.env),
            user: user.overlaid_with(over.user),
            capabilities: capabilities.overlaid_with(over.capabilities),
            seccomp: seccomp.overlaid_with(over.seccomp),
            landlock: landlock.overlaid_with(over.landlock),
            labels,
            hostname: over.hostname.or(hostname),
            network: NetworkSettings(network.0.overlaid_with(over.network.0)),
            time_namespace: over.time_namespace.or(time_namespace),
            init: over.init.or(init),
            oom_score_adj: over.oom_score_adj.or(oom_score_adj),
            ulimits,
            budget: budget.overlaid_with(over.budget),
            scratch: scratch.overlaid_with(over.scratch),
            deadlines: deadlines.overlaid_with(over.deadlines),
            stdio: stdio.overlaid_with(over.stdio),
            explain_denials: over.explain_denials.or(explain_denials),
            audit: over.audit.or(audit),
            audit_sync: over.audit_sync.or(audit_sync),
            allow_degraded: joined(allow_degraded, over.allow_degraded),
        }
    }
}

impl BudgetSettings {
    /// These settings with those of `over` on top.
    #[must_use]
    pub(super) fn overlaid_with(self, over: Self) -> Self {
        let required = over.controllers();
        // Destructured, so that a new setting does not compile until its merging is decided here.
        let Self {
            memory,
            memory_high,
            swap,
            cpus,
            cpu_weight,
            cpuset_cpus,
            cpuset_mems,
            pids,
            mut io_max,
            io_weight,
            mut hugetlb,
            mut set,
            mut if_possible,
            required: is_required,
        } = self;
        io_max.retain(|bound| over.io_max.iter().all(|above| above.0.device != bound.0.device));
        io_max.extend(over.io_max);
        hugetlb.extend(over.hugetlb);
        set.extend(over.set);
        if_possible.retain(|controller| !required.contains(controller));
        Self {
            // An absolute `memory_high` was chosen for the old memory limit, so a new limit drops it.
            memory_high: over.memory_high.or(memory_high.filter(|high| over.memory.is_none() || high.is_share())),
            memory: over.memory.or(memory),
            swap: over.swap.or(swap),
            cpus: over.cpus.or(cpus),
            cpu_weight: over.cpu_weight.or(cpu_weight),
            cpuset_cpus: over.cpuset_cpus.or(cpuset_cpus),
            cpuset_mems: over.cpuset_mems.or(cpuset_mems),
            pids: over.pids.or(pids),
            io_max,
            io_weight: over.io_weight.or(io_weight),
            hugetlb,
            set,
            if_possible: joined(if_possible, over.if_possible),
            required: over.required.or(is_required),
        }
    }
}

impl EnvSettings {
    fn overlaid_with(self, over: Self) -> Self {
        let Self { mut set, mut pass, keep } = self;
        // The last policy that names a variable decides whether it is set or passed.
        for pattern in &over.pass {
            set.retain(|name, _| name.0 != pattern.0);
        }
        pass.retain(|pattern| over.set.keys().all(|name| name.0 != pattern.0));
        set.extend(over.set);
        Self { set, pass: joined(pass, over.pass), keep: over.keep.or(keep) }
    }
}

impl UserSettings {
    fn overlaid_with(self, over: Self) -> Self {
        let Self { name, uid, gid, home, map } = self;
        Self {
            name: over.name.or(name),
            uid: over.uid.or(uid),
            gid: over.gid.or(gid),
            home: over.home.or(home),
            map: over.map.or(map),
        }
    }
}

impl CapabilitySettings {
    fn overlaid_with(self, over: Self) -> Self {
        // Dropped before adding, so that `--cap-drop ALL --cap-add X` keeps X, as docker does.
        let Self { mut add, drop: _ } = self;
        for name in &mut add {
            name.0.retain(|capability| over.drop.iter().all(|dropped| !dropped.0.contains(capability)));
        }
        add.extend(over.add);
        Self { add, drop: Vec::new() }
    }
}

impl SeccompSettings {
    fn overlaid_with(self, over: Self) -> Self {
        let Self { profile, allow, strict } = self;
        Self { profile: over.profile.or(profile), allow: joined(allow, over.allow), strict: over.strict.or(strict) }
    }
}

impl LandlockSettings {
    fn overlaid_with(self, over: Self) -> Self {
        // `off` drops the rules of the policies below. Rules above it are a contradiction, which `resolve` reports.
        let below = match over.mode {
            Some(LandlockMode::Off) => Self { minimum_abi: self.minimum_abi, ..Self::default() },
            _ => self,
        };
        let Self { mode, minimum_abi, read, write, execute, connect, bind } = below;
        Self {
            mode: over.mode.or(mode),
            minimum_abi: over.minimum_abi.or(minimum_abi),
            read: lists(read, over.read),
            write: lists(write, over.write),
            execute: lists(execute, over.execute),
            connect: lists(connect, over.connect),
            bind: lists(bind, over.bind),
        }
    }
}

impl ScratchSettings {
    fn overlaid_with(self, over: Self) -> Self {
        let Self { size, inodes } = self;
        Self { size: over.size.or(size), inodes: over.inodes.or(inodes) }
    }
}

impl DeadlineSettings {
    fn overlaid_with(self, over: Self) -> Self {
        let Self { timeout, cpu_time, idle_timeout, kill_after } = self;
        Self {
            timeout: over.timeout.or(timeout),
            cpu_time: over.cpu_time.or(cpu_time),
            idle_timeout: over.idle_timeout.or(idle_timeout),
            kill_after: over.kill_after.or(kill_after),
        }
    }
}

impl StdioSettings {
    fn overlaid_with(self, over: Self) -> Self {
        let Self { stdin, tty, output_limit, output_keep } = self;
        Self {
            stdin: over.stdin.or(stdin),
            tty: over.tty.or(tty),
            output_limit: over.output_limit.or(output_limit),
            output_keep: over.output_keep.or(output_keep),
        }
    }
}

/// Joins both lists. `None` and an empty list differ: `None` allows everything, an empty list nothing.
fn lists<T: PartialEq>(below: Option<Vec<T>>, above: Option<Vec<T>>) -> Option<Vec<T>> {
    match (below, above) {
        (Some(below), Some(above)) => Some(joined(below, above)),
        (below, above) => above.or(below),
    }
}

/// Joins both lists without duplicates, in order of first appearance.
fn joined<T: PartialEq>(mut below: Vec<T>, above: Vec<T>) -> Vec<T> {
    for item in above {
        if !below.contains(&item) {
            below.push(item);
        }
    }
    below
}
