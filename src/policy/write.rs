//! Writes settings as the text of a policy: what differs from `default`, with a comment for what is known about a line.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::budget::BudgetSettings;
use super::budget_values::High;
use super::mount::{MountRequest, RequestKind};
use super::network::{NetRule, NetworkTable};
use super::rules::{LandlockMode, SeccompChoice};
use super::settings::{
    CapabilitySettings, DeadlineSettings, EnvSettings, LandlockSettings, ProcView, ScratchSettings, SeccompSettings,
    Settings, StdioSettings, UserSettings,
};
use super::toml_text::{bytes, duration, key, limit, one_line, quoted, rule, toolchain, ulimit};
use super::value::{Amount, Deadline, Limit};
use super::{default, label, path, value};
use crate::plan::{IdMapping, Keep};

/// What is known about a line, by its key and, for an item of a list, its text: `landlock.read:/usr/lib`.
pub type Comments = BTreeMap<String, String>;

/// The text of a policy with these settings. Every one that differs from `default` is in it, apart from `extends` and the proxy
/// with its password.
pub fn text(settings: &Settings, comments: &Comments) -> String {
    let base = default::settings();
    let mut page = Page { text: "version = 1\n".to_owned(), table: "", comments };
    // Destructured, so that a new setting does not compile until its writing is decided here.
    let Settings {
        version: _,
        extends: _,
        rootfs,
        workspace,
        require_workspace,
        mounts,
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
        labels,
        hostname,
        network,
        time_namespace,
        init,
        oom_score_adj,
        ulimits,
        budget,
        scratch,
        deadlines,
        stdio,
        explain_denials,
        audit,
        audit_sync,
        allow_degraded,
    } = settings;
    let host = |path: &path::HostPath| bytes(&path.0);
    let inside = |path: &path::SandboxPath| bytes(&path.0);
    page.one("rootfs", rootfs, &base.rootfs, host);
    page.one("workspace", workspace, &base.workspace, host);
    page.one("require_workspace", require_workspace, &base.require_workspace, ToString::to_string);
    page.one("follow", follow, &base.follow, ToString::to_string);
    page.one("sysfs", sysfs, &base.sysfs, ToString::to_string);
    page.one("proc", proc, &base.proc, |view| quoted(if *view == ProcView::Full { "full" } else { "pids" }));
    page.added("toolchains", toolchains, &base.toolchains, |one| quoted(toolchain(*one)));
    page.added("devices", devices, &base.devices, |device| bytes(&device.0));
    page.added("masked_paths", masked_paths, &base.masked_paths, inside);
    page.added("readonly_paths", readonly_paths, &base.readonly_paths, inside);
    page.one("cwd", cwd, &base.cwd, inside);
    page.one("umask", umask, &base.umask, |mask| quoted(&format!("{:03o}", mask.get())));
    page.one("hostname", hostname, &base.hostname, |name| quoted(&name.0));
    page.one("time_namespace", time_namespace, &base.time_namespace, ToString::to_string);
    page.one("init", init, &base.init, ToString::to_string);
    page.one("oom_score_adj", oom_score_adj, &base.oom_score_adj, |one| one.get().to_string());
    page.one("explain_denials", explain_denials, &base.explain_denials, ToString::to_string);
    page.one("audit", audit, &base.audit, host);
    page.one("audit_sync", audit_sync, &base.audit_sync, ToString::to_string);
    page.added("allow_degraded", allow_degraded, &base.allow_degraded, |one| quoted(one.name()));
    for mount in mounts {
        page.mount(mount);
    }
    page.environment(env, &base.env);
    page.user(user, &base.user);
    page.capabilities(capabilities, &base.capabilities);
    page.seccomp(seccomp, &base.seccomp);
    page.landlock(landlock, &base.landlock);
    page.table("labels");
    for (label::LabelName(name), label::LabelValue(value)) in labels {
        page.line(&quoted(name), &quoted(value));
    }
    page.network(&network.0, &base.network.0);
    page.table("ulimits");
    for (resource, limit) in ulimits.iter().filter(|(resource, limit)| base.ulimits.get(resource) != Some(limit)) {
        page.line(resource.name(), &ulimit(limit));
    }
    page.budget(budget, &base.budget);
    page.scratch(scratch, &base.scratch);
    page.deadlines(deadlines, &base.deadlines);
    page.stdio(stdio, &base.stdio);
    page.text
}

struct Page<'a> {
    text: String,
    /// The table of the lines, whose header is written with the first of them.
    table: &'static str,
    comments: &'a Comments,
}

impl Page<'_> {
    fn table(&mut self, name: &'static str) {
        self.table = name;
    }

    fn line(&mut self, key: &str, value: &str) {
        let (name, header) = (self.name(key), format!("\n[{}]\n", self.table));
        if !self.table.is_empty() && !self.text.contains(&header) {
            self.text.push_str(&header);
        }
        if let Some(said) = self.comments.get(&name) {
            let _ = writeln!(self.text, "# {}", one_line(said));
        }
        let _ = writeln!(self.text, "{key} = {value}");
    }

    fn name(&self, key: &str) -> String {
        if self.table.is_empty() { key.to_owned() } else { format!("{}.{key}", self.table) }
    }

    fn one<T: PartialEq>(&mut self, key: &str, value: &Option<T>, base: &Option<T>, show: impl Fn(&T) -> String) {
        if let Some(wanted) = value.as_ref().filter(|_| value != base) {
            self.line(key, &show(wanted));
        }
    }

    /// The items that the policies below do not have, to which they are added.
    fn added<T: PartialEq>(&mut self, key: &str, list: &[T], base: &[T], show: impl Fn(&T) -> String) {
        let items: Vec<String> = list.iter().filter(|item| !base.contains(item)).map(show).collect();
        if !items.is_empty() {
            self.list(key, &items);
        }
    }

    fn list(&mut self, key: &str, items: &[String]) {
        let name = self.name(key);
        let said =
            |item: &String| self.comments.get(&format!("{name}:{item}")).map(|said| format!(" # {}", one_line(said)));
        let comments: Vec<String> = items.iter().map(|item| said(item).unwrap_or_default()).collect();
        if comments.iter().all(String::is_empty) && items.iter().map(String::len).sum::<usize>() < 80 {
            return self.line(key, &format!("[{}]", items.join(", ")));
        }
        let lines: String = items.iter().zip(comments).map(|(item, said)| format!("    {item},{said}\n")).collect();
        self.line(key, &format!("[\n{lines}]"));
    }

    fn mount(&mut self, mount: &MountRequest) {
        let MountRequest { destination, kind, read_only, noexec, optional } = mount;
        let mut keys = Vec::new();
        match kind {
            RequestKind::Bind(source) => {
                keys.push(format!("source = {}", bytes(&source.0)));
                if *optional {
                    keys.push("optional = true".to_owned());
                }
            }
            RequestKind::Tmpfs { size, inodes, mode } => keys.extend([
                "type = \"tmpfs\"".to_owned(),
                format!("size = {}", size.get()),
                format!("nr_inodes = {}", inodes.get()),
                format!("mode = \"{:o}\"", mode.get()),
            ]),
        }
        let place = destination.as_ref().map(|path| bytes(&path.0)).unwrap_or_default();
        keys.push(format!("destination = {place}"));
        keys.extend([format!("read_only = {read_only}"), format!("noexec = {noexec}")]);
        let said = self.comments.get(&format!("mounts:{place}")).map(|said| format!("# {}\n", one_line(said)));
        let _ = writeln!(self.text, "\n{}[[mounts]]\n{}", said.unwrap_or_default(), keys.join("\n"));
    }

    fn environment(&mut self, EnvSettings { set, pass, keep }: &EnvSettings, base: &EnvSettings) {
        self.table("env");
        let differing = set.iter().filter(|(name, value)| base.set.get(name) != Some(value));
        let pairs: Vec<_> = differing.map(|(name, value)| format!("{} = {}", key(&name.0), bytes(&value.0))).collect();
        if !pairs.is_empty() {
            self.line("set", &format!("{{ {} }}", pairs.join(", ")));
        }
        self.added("pass", pass, &base.pass, |name| bytes(&name.0));
        self.one("keep", keep, &base.keep, ToString::to_string);
    }

    fn user(&mut self, UserSettings { name, uid, gid, home, map }: &UserSettings, base: &UserSettings) {
        self.table("user");
        self.one("name", name, &base.name, |name| quoted(&name.0));
        self.one("uid", uid, &base.uid, |id| id.get().to_string());
        self.one("gid", gid, &base.gid, |id| id.get().to_string());
        self.one("home", home, &base.home, |path| bytes(&path.0));
        self.one("map", map, &base.map, |map| match map.0 {
            IdMapping::Single => quoted("single"),
            IdMapping::Subordinate => quoted("subordinate"),
            IdMapping::HostUser { uid, gid } => quoted(&format!("host:{uid}:{gid}")),
        });
    }

    fn capabilities(&mut self, CapabilitySettings { add, drop }: &CapabilitySettings, base: &CapabilitySettings) {
        self.table("capabilities");
        let names = |list: &[value::CapabilityName]| -> Vec<String> {
            list.iter().flat_map(|name| &name.0).map(|one| quoted(&one.to_string())).collect()
        };
        self.added("add", &names(add), &names(&base.add), Clone::clone);
        self.added("drop", &names(drop), &names(&base.drop), Clone::clone);
    }

    fn seccomp(&mut self, SeccompSettings { profile, allow, strict }: &SeccompSettings, base: &SeccompSettings) {
        self.table("seccomp");
        self.one("profile", profile, &base.profile, |choice| match choice {
            SeccompChoice::Unconfined => quoted("unconfined"),
            SeccompChoice::Builtin(profile) => quoted(profile.name()),
            SeccompChoice::File(path) | SeccompChoice::Binary(path) => bytes(&path.0),
        });
        self.added("allow", allow, &base.allow, |group| quoted(group.0.name()));
        self.one("strict", strict, &base.strict, ToString::to_string);
    }

    fn landlock(&mut self, settings: &LandlockSettings, base: &LandlockSettings) {
        let LandlockSettings { mode, minimum_abi, read, write, execute, connect, bind } = settings;
        self.table("landlock");
        self.one("mode", mode, &base.mode, |mode| {
            quoted(match mode {
                LandlockMode::Require => "require",
                LandlockMode::Auto => "auto",
                LandlockMode::Off => "off",
            })
        });
        self.one("minimum_abi", minimum_abi, &base.minimum_abi, |abi| abi.0.to_string());
        for (key, paths) in [("read", read), ("write", write), ("execute", execute)] {
            if let Some(paths) = paths {
                self.list(key, &paths.iter().map(rule).collect::<Vec<_>>());
            }
        }
        let ports = |list: Vec<u16>| format!("{list:?}");
        self.one("connect", connect, &base.connect, |list| ports(list.iter().map(|port| port.0).collect()));
        self.one("bind", bind, &base.bind, |list| ports(list.iter().map(|port| port.0).collect()));
    }

    fn network(&mut self, table: &NetworkTable, base: &NetworkTable) {
        let NetworkTable {
            mode,
            allow,
            deny,
            publish,
            hosts,
            dns,
            upstream_proxy: _,
            connections,
            rate,
            budget,
            connect_timeout,
            idle_timeout,
        } = table;
        self.table("network");
        let hosts_of = |rule: &NetRule| match rule {
            NetRule::Rule(rule) => quoted(&rule.to_string()),
            NetRule::File(path) => quoted(&format!("@{}", path.0)),
        };
        self.one("mode", mode, &base.mode, |mode| quoted(mode.name()));
        self.added("allow", allow, &base.allow, hosts_of);
        self.added("deny", deny, &base.deny, hosts_of);
        self.added("publish", publish, &base.publish, |one| quoted(&format!("{}:{}", one.0.listen, one.0.port)));
        self.added("hosts", hosts, &base.hosts, |one| quoted(&format!("{}={}", one.0.name, one.0.address)));
        self.one("dns", dns, &base.dns, |server| quoted(&server.0.to_string()));
        self.one("connections", connections, &base.connections, |count| count.get().to_string());
        self.one("rate", rate, &base.rate, |rate| limit(*rate, Amount::get));
        self.one("budget", budget, &base.budget, |budget| limit(*budget, Amount::get));
        self.one("connect_timeout", connect_timeout, &base.connect_timeout, |time| duration(time.get()));
        self.one("idle_timeout", idle_timeout, &base.idle_timeout, |time| duration(time.get()));
    }

    fn budget(&mut self, settings: &BudgetSettings, base: &BudgetSettings) {
        let BudgetSettings {
            memory,
            memory_high,
            swap,
            cpus,
            cpu_weight,
            cpuset_cpus,
            cpuset_mems,
            pids,
            io_max,
            io_weight,
            hugetlb,
            set,
            if_possible,
            required,
        } = settings;
        self.table("budget");
        self.one("memory", memory, &base.memory, |one| limit(*one, Amount::get));
        self.one("memory_high", memory_high, &base.memory_high, |high| match high {
            Limit::At(High::Share(percent)) => quoted(&format!("{percent}%")),
            Limit::At(High::Bytes(bytes)) => bytes.to_string(),
            Limit::Unlimited => quoted("unlimited"),
        });
        self.one("swap", swap, &base.swap, |one| limit(*one, value::Size::get));
        self.one("cpus", cpus, &base.cpus, |cpus| match cpus {
            Limit::At(cpus) => quoted(&format!("{}.{:05}", cpus.get() / 100_000, cpus.get() % 100_000)),
            Limit::Unlimited => quoted("unlimited"),
        });
        self.one("cpu_weight", cpu_weight, &base.cpu_weight, |weight| weight.get().to_string());
        self.one("cpuset_cpus", cpuset_cpus, &base.cpuset_cpus, |list| quoted(&list.0));
        self.one("cpuset_mems", cpuset_mems, &base.cpuset_mems, |list| quoted(&list.0));
        self.one("pids", pids, &base.pids, |one| limit(*one, value::Pids::get));
        self.added("io_max", io_max, &base.io_max, |bound| quoted(&bound.to_string()));
        self.one("io_weight", io_weight, &base.io_weight, |weight| weight.get().to_string());
        if !hugetlb.is_empty() {
            let pair = |(size, most): (&super::budget_values::PageSize, &value::Size)| {
                format!("{} = {}", quoted(&size.bytes().to_string()), most.get())
            };
            self.line("hugetlb", &format!("{{ {} }}", hugetlb.iter().map(pair).collect::<Vec<_>>().join(", ")));
        }
        if !set.is_empty() {
            let pairs: Vec<_> =
                set.iter().map(|(name, value)| format!("{} = {}", quoted(&name.0), quoted(&value.0))).collect();
            self.line("set", &format!("{{ {} }}", pairs.join(", ")));
        }
        // A limit that is set again is required, unless it is listed again.
        let names: Vec<_> = if_possible.iter().map(|one| quoted(one.name())).collect();
        if self.text.contains("\n[budget]\n") && !names.is_empty() {
            self.list("if_possible", &names);
        }
        self.one("required", required, &base.required, ToString::to_string);
    }

    fn scratch(&mut self, ScratchSettings { size, inodes }: &ScratchSettings, base: &ScratchSettings) {
        self.table("scratch");
        self.one("size", size, &base.size, |size| size.get().to_string());
        self.one("inodes", inodes, &base.inodes, |count| count.get().to_string());
    }

    fn deadlines(&mut self, settings: &DeadlineSettings, base: &DeadlineSettings) {
        let DeadlineSettings { timeout, cpu_time, idle_timeout, kill_after } = settings;
        let time = |limit: &Limit<Deadline>| match limit {
            Limit::At(time) => duration(time.get()),
            Limit::Unlimited => quoted("unlimited"),
        };
        self.table("deadlines");
        self.one("timeout", timeout, &base.timeout, time);
        self.one("cpu_time", cpu_time, &base.cpu_time, time);
        self.one("idle_timeout", idle_timeout, &base.idle_timeout, time);
        self.one("kill_after", kill_after, &base.kill_after, |time| duration(time.get()));
    }

    fn stdio(&mut self, settings: &StdioSettings, base: &StdioSettings) {
        let StdioSettings { stdin, tty, output_limit, output_keep } = settings;
        self.table("stdio");
        self.one("stdin", stdin, &base.stdin, ToString::to_string);
        self.one("tty", tty, &base.tty, ToString::to_string);
        self.one("output_limit", output_limit, &base.output_limit, |one| limit(*one, value::Size::get));
        self.one("output_keep", output_keep, &base.output_keep, |keep| {
            quoted(match keep {
                Keep::Head => "head",
                Keep::Tail => "tail",
                Keep::Kill => "kill",
            })
        });
    }
}
