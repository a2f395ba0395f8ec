//! The settings that allow what a run did and nothing that it was not allowed.

use std::collections::BTreeSet;
use std::path::Path;

use stockade_egress::address::special;
use stockade_egress::record::{Event, Line, Outcome};

use super::paths::{List, Lists, mount_of};
use crate::cli::amounts::size;
use crate::error::Result;
use crate::plan::{Bytes, Mount, MountKind, Network, Root, RunPlan};
use crate::policy::Settings;
use crate::policy::mount::{MountRequest, RequestKind, WORKSPACE};
use crate::policy::network::{NetRule, NetworkSettings};
use crate::policy::path::SandboxPath;
use crate::policy::toml_text::{bytes, quoted, rule};
use crate::policy::value::{Amount, CapabilityName, EnvName, Limit, Pids};
use crate::policy::write::Comments;
use crate::report::Usage;
use crate::run::Touched;
use crate::sys::process::is_hosts_root;

/// A limit leaves room for more than what one run happened to use, and never less than this.
const HEADROOM: u64 = 2;
const LEAST_MEMORY: u64 = 256 << 20;
const LEAST_PIDS: u64 = 32;

/// The settings of a run, which become those of its policy.
pub struct Narrowed {
    /// The settings.
    pub settings: Settings,
    /// What the policy says of their lines.
    pub comments: Comments,
    /// What the policy says at its beginning, and the learner is told.
    pub notes: Vec<String>,
    /// How long the run took.
    took: Option<String>,
}

/// Whether a mount may protect or hide what lies at its destination without it, so that it has a use even if nobody looked there.
fn protects(plan: &RunPlan, mount: &MountRequest, destination: &Bytes) -> bool {
    let at = destination.as_path();
    let shows_host = |other: &Mount| !matches!(other.kind, MountKind::Scratch { .. } | MountKind::Tmpfs { .. });
    let lies_over = |other: &Mount| {
        other.destination != *destination && at.starts_with(other.destination.as_path()) && shows_host(other)
    };
    !matches!(mount.kind, RequestKind::Bind(_))
        || !matches!(plan.root, Root::Synthetic)
        || at.parent().is_none_or(|above| above == Path::new("/")) // it may replace a mount of every run's, such as /etc
        || plan.mounts.iter().any(lies_over)
}

impl Narrowed {
    /// The run's own settings.
    pub fn of(mut settings: Settings) -> Self {
        let each =
            settings.capabilities.add.iter().flat_map(|name| name.0.iter().map(|one| CapabilityName(vec![*one])));
        settings.capabilities.add = each.collect();
        settings.capabilities.drop.clear();
        Self { settings, comments: Comments::new(), notes: Vec::new(), took: None }
    }

    /// Leaves out what the words gave and a file should not have.
    pub fn without_secrets<'a>(&mut self, given: impl Iterator<Item = &'a EnvName>) {
        let names: Vec<String> =
            given.filter(|name| self.settings.env.set.remove(name).is_some()).map(|name| name.0.to_string()).collect();
        if !names.is_empty() {
            self.notes.push(format!(
                "These variables were given with -e or --env-file, and are not in the policy: {}.",
                names.join(", ")
            ));
        }
        if self.settings.network.0.upstream_proxy.take().is_some() {
            self.notes.push(
                "The run's proxy is not in the policy, because its URL may contain a password: use --upstream-proxy."
                    .into(),
            );
        }
    }

    /// The lists of paths.
    pub fn paths(&mut self, lists: Lists) {
        let Lists { read, write, execute, collapsed: _ } = lists;
        let landlock = &mut self.settings.landlock;
        let mut say = |key: &str, text: &str, list: &List| {
            self.comments.insert(format!("landlock.{key}"), text.to_owned());
            for path in &list.rules {
                if let Some(said) = list.said.get(path.path.0.as_path()) {
                    self.comments.insert(format!("landlock.{key}:{}", rule(path)), said.clone());
                }
            }
        };
        say(
            "read",
            "What was read. Every run may also read and write /proc and /dev, as far as their own modes allow.",
            &read,
        );
        say("write", "What was written. A file that is made needs its directory.", &write);
        landlock.read = Some(read.rules);
        landlock.write = Some(write.rules);
        match execute {
            Ok(list) => {
                say("execute", "What was executed. With this list, nothing on a writable mount can be.", &list);
                landlock.execute = Some(list.rules);
            }
            Err(why) => {
                landlock.execute = None;
                self.notes.push(format!("The policy has no list of programs: {why}."));
            }
        }
    }

    /// The mounts and devices that were used. One that was not written to becomes read-only.
    pub fn mounts(&mut self, plan: &RunPlan, touched: &Touched) {
        let of = |destination: &Path| {
            let is_of =
                |path: &Path| mount_of(plan, path).is_some_and(|mount| mount.destination.as_path() == destination);
            let uses: Vec<_> = touched.uses.iter().filter(|(path, _)| is_of(path)).map(|(_, one)| *one).collect();
            let unclear = touched.unclear.iter().filter(|(path, _)| is_of(path)).map(|(_, changes)| *changes);
            let changes = uses.iter().map(|one| one.write || one.entries || one.attributes);
            let all: Vec<bool> = changes.chain(unclear).collect();
            (!all.is_empty(), all.contains(&true))
        };
        let cwd = plan.command.cwd.as_path();
        let settings = &mut self.settings;
        let mut left_out = Vec::new();
        settings.mounts.retain(|mount| {
            let Some(SandboxPath(destination)) = &mount.destination else { return true };
            // Another mount, or the working directory, may lie below it.
            let holds = |path: &Path| path.starts_with(destination.as_path());
            let is_needed = protects(plan, mount, destination)
                || of(destination.as_path()).0
                || holds(cwd)
                || plan
                    .mounts
                    .iter()
                    .any(|other| other.destination != *destination && holds(other.destination.as_path()));
            if !is_needed {
                left_out.push(destination.to_string());
            }
            is_needed
        });
        // As root, a writable bind shows its owner's files as the command's own, and a read-only one does not.
        let may_change = !is_hosts_root();
        for mount in settings.mounts.iter_mut().filter(|mount| !mount.read_only && may_change) {
            let Some(SandboxPath(destination)) = &mount.destination else { continue };
            if matches!(mount.kind, RequestKind::Bind(_)) && !of(destination.as_path()).1 {
                mount.read_only = true;
                let said = "It was given as writable, and nothing on it was changed.";
                self.comments.insert(format!("mounts:{}", bytes(destination)), said.to_owned());
            }
        }
        if let Some(workspace) = settings.workspace.take_if(|_| may_change && !of(Path::new(WORKSPACE)).1) {
            settings.require_workspace = None;
            settings.cwd.get_or_insert_with(|| SandboxPath(plan.command.cwd.clone()));
            let destination = Some(SandboxPath(WORKSPACE.into()));
            let kind = RequestKind::Bind(workspace);
            settings.mounts.push(MountRequest { destination, kind, read_only: true, noexec: false, optional: false });
            let said = "The workspace, on which nothing was changed.";
            self.comments.insert(format!("mounts:{}", bytes(&WORKSPACE.into())), said.to_owned());
        }
        settings.devices.retain(|device| touched.uses.contains_key(device.0.as_path()));
        if !left_out.is_empty() {
            self.notes.push(format!(
                "These mounts of the run were not used, and are not in the policy: {}.",
                left_out.join(", ")
            ));
        }
    }

    /// The hosts that were reached, by the lines of the network log, and no network without sockets for one.
    pub fn network(&mut self, plan: &RunPlan, touched: &Touched, log: &str) {
        let lines = log.lines().filter_map(|line| serde_json::from_str::<Line>(line).ok());
        let reached = lines.filter(|line| line.event == Event::Connection && line.result != Outcome::Refused);
        // A name needs a rule for the address too, if that is a special one, such as those of private networks.
        let hosts_of = |line: Line| {
            let address = line.address.filter(|one| line.name.is_none() || special(*one).is_some());
            let address = address.map(|one| if one.is_ipv6() { format!("[{one}]") } else { one.to_string() });
            let port = line.port;
            let hosts = line.name.into_iter().chain(address);
            hosts.filter_map(move |host| Some(format!("{host}:{}", port?))).collect::<Vec<_>>()
        };
        let hosts: BTreeSet<String> = reached.flat_map(hosts_of).collect();
        let table = &mut self.settings.network.0;
        let rules: Vec<NetRule> = hosts.iter().filter_map(|host| host.parse().ok()).map(NetRule::Rule).collect();
        if plan.egress.is_some() && (!rules.is_empty() || !table.publish.is_empty()) {
            table.allow = rules;
            self.comments.insert("network.allow".into(), "The hosts that were connected to.".into());
            return;
        }
        let (mode, said) = match (plan.namespaces.network, touched.inet) {
            (Network::Egress, true) => (Network::Loopback, "No host outside was connected to."),
            (mode, true) => (mode, ""),
            (_, false) => (Network::None, "No socket of IPv4 or IPv6 was made."),
        };
        if mode != plan.namespaces.network {
            self.settings.network = NetworkSettings::of_mode(mode);
            self.comments.insert("network.mode".into(), said.into());
        }
        if mode == Network::None {
            (self.settings.landlock.connect, self.settings.landlock.bind) = (None, None);
        }
    }

    /// Limits above what was used, where they are lower than those of the run.
    pub fn limits(&mut self, usage: &Usage) {
        let budget = &mut self.settings.budget;
        let (memory, pids) = (usage.memory.peak_bytes, usage.pids.peak);
        if let (Some(peak), Some(Limit::At(most))) = (memory, budget.memory) {
            let wanted = (peak.saturating_mul(HEADROOM).max(LEAST_MEMORY) + (1 << 20) - 1) >> 20 << 20;
            if wanted < most.get() {
                budget.memory = Some(Limit::At(Amount(wanted)));
                budget.memory_high = None;
                let said = format!("The run used at most {}; this is {}.", size(peak), size(wanted));
                self.comments.insert("budget.memory".into(), said);
            }
        }
        if let (Some(peak), Some(Limit::At(most))) = (pids, budget.pids) {
            let wanted = peak.saturating_mul(HEADROOM).max(LEAST_PIDS);
            if wanted < most.get() {
                budget.pids = Some(Limit::At(Pids(wanted)));
                let said = format!("The run had at most {peak} processes and threads at a time.");
                self.comments.insert("budget.pids".into(), said);
            }
        }
        if memory.is_none() || pids.is_none() {
            self.notes.push(
                "Use of memory or processes could not be measured here, so the policy keeps the run's limits on them."
                    .into(),
            );
        }
        self.time(usage);
    }

    /// How long a run takes depends on the machine and what else it does, so a limit is for a person to set.
    fn time(&mut self, usage: &Usage) {
        let seconds = |us: u64| format!("{:.1} s", us as f64 / 1e6);
        let cpu = usage.cpu.total_us.map(|cpu| format!(" and {} of CPU time", seconds(cpu))).unwrap_or_default();
        if let Some(wall) = usage.wall_us {
            let limits = "`timeout` and `cpu_time` in [deadlines] set limits; none is learned";
            self.took = Some(format!("The run took {}{cpu}. {limits}.", seconds(wall)));
        }
    }

    /// The text of the policy.
    pub fn text(&self, program: &Bytes, file: &str) -> Result<String> {
        let head = [
            format!("Learned by `stockade learn` from one run of {}.", quoted(&program.to_string())),
            "It allows what that run did, and nothing that the run was not allowed. Another input may need more."
                .to_owned(),
            "Review it: a hostile program can choose what it is seen to use.".to_owned(),
            format!("Use it with: stockade run -p {file} -- COMMAND"),
        ];
        let lines = head
            .iter()
            .chain(&self.notes)
            .chain(&self.took)
            .map(|line| format!("# {}\n", crate::policy::toml_text::one_line(line)));
        Ok(lines.collect::<String>() + "\n" + &crate::policy::write::text(&self.settings, &self.comments))
    }
}
