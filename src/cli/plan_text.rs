//! Prints a plan as text: grouped, one value a line, without control characters.

use std::fmt::{Display, Write as _};

use stockade_egress::rule::Rule;

use super::amounts::{size, time};
use crate::plan::{
    Bytes, Egress, IdMapping, Keep, Landlock, Mount, MountKind, Network, PathRule, Root, RunPlan, Seccomp,
    SeccompProfile,
};
use crate::rootfs::resolved::Resolved;

/// The whole plan, and where its sources lead. Every line is `indentation name value`. Values are escaped.
pub fn text(plan: &RunPlan, sources: &[Resolved]) -> String {
    let mut out = Text(String::with_capacity(4_096));
    command(plan, &mut out);
    identity(plan, &mut out);
    isolation(plan, &mut out);
    files(plan, sources, &mut out);
    limits(plan, &mut out);
    out.0
}

struct Text(String);

impl Text {
    fn group(&mut self, name: &str) {
        let gap = if self.0.is_empty() { "" } else { "\n" };
        let _ = writeln!(self.0, "{gap}{name}");
    }
    fn line(&mut self, name: &str, value: impl Display) {
        let _ = writeln!(self.0, "  {name:<18} {value}");
    }
    /// A line of the files group, whose names are longer.
    fn path(&mut self, path: &Bytes, value: impl Display) {
        let _ = writeln!(self.0, "  {:<30} {value}", quoted(path));
    }
}

fn command(plan: &RunPlan, out: &mut Text) {
    out.group("command");
    out.line("sandbox", &plan.confinement.id);
    for word in &plan.command.argv {
        out.line("argv", quoted(word));
    }
    for entry in &plan.command.env {
        out.line("env", quoted(entry));
    }
    out.line("cwd", quoted(&plan.command.cwd));
    out.line("umask", format!("{:03o}", plan.command.umask));
    out.line("stdin", if plan.stdio.stdin { "the caller's" } else { "empty" });
    out.line("terminal", if plan.stdio.tty { "own" } else { "none" });
    match plan.stdio.output_limit {
        None => out.line("output", "passed through"),
        Some(limit) => {
            let keep = match limit.keep {
                Keep::Head => "the beginning is kept",
                Keep::Tail => "the end is kept",
                Keep::Kill => "the run ends at the limit",
            };
            out.line("output", format!("{} of each stream, {keep}", size(limit.bytes)));
        }
    }
}

fn identity(plan: &RunPlan, out: &mut Text) {
    let identity = &plan.identity;
    out.group("user");
    out.line("inside", format!("{} ({}:{})", identity.user, identity.uid, identity.gid));
    out.line("home", quoted(&identity.home));
    match &identity.mapping {
        IdMapping::Single => out.line("outside", "one unprivileged id, chosen at launch"),
        IdMapping::HostUser { uid, gid } => out.line("outside", format!("host user {uid}:{gid}")),
        IdMapping::Subordinate => out.line("outside", "the caller's subordinate ids"),
    }
    let capabilities: Vec<_> = plan.capabilities.iter().map(ToString::to_string).collect();
    out.line("capabilities", if capabilities.is_empty() { "none".into() } else { capabilities.join(" ") });
}

fn isolation(plan: &RunPlan, out: &mut Text) {
    let namespaces = &plan.namespaces;
    out.group("isolation");
    let mut own = vec!["user", "mount", "pid"];
    own.extend(namespaces.ipc.then_some("ipc"));
    own.extend(namespaces.uts.then_some("uts"));
    own.extend(namespaces.cgroup.then_some("cgroup"));
    own.extend(namespaces.time.then_some("time"));
    own.extend((namespaces.network != Network::Host).then_some("network"));
    out.line("namespaces", own.join(" "));
    if namespaces.nested > 0 {
        out.line("nested namespaces", format!("{} of each kind", namespaces.nested));
    }
    let network = match namespaces.network {
        Network::None => "none: no sockets of IPv4 and IPv6",
        Network::Loopback => "loopback: only its own lo",
        Network::Egress => "egress: its own lo, and the hosts below",
        Network::Host => "host: not isolated",
    };
    out.line("network", network);
    if let Some(egress) = &plan.egress {
        self::egress(egress, out);
    }
    if let Some(hostname) = &plan.confinement.hostname {
        out.line("hostname", quoted(hostname));
    }
    out.line("denials", if plan.explain_denials { "recorded" } else { "not recorded" });
    out.line("pid 1", if plan.init { "init" } else { "the command" });
    out.line("seccomp", plan.confinement.seccomp.as_ref().map_or("none".into(), seccomp));
    if !plan.confinement.guards.is_empty() {
        out.line("guards", plan.confinement.guards.join(" "));
    }
    out.line("landlock", plan.confinement.landlock.as_ref().map_or("none".into(), landlock));
    let degraded: Vec<&str> = plan.confinement.allow_degraded.iter().map(|facility| facility.name()).collect();
    out.line("may be missing", if degraded.is_empty() { "nothing".into() } else { degraded.join(" ") });
}

fn egress(egress: &Egress, out: &mut Text) {
    let all = |rules: &[Rule]| rules.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
    out.line("allowed hosts", if egress.rules.allow.is_empty() { "none".into() } else { all(&egress.rules.allow) });
    for published in &egress.publish {
        out.line("published", format!("{} leads to port {}", published.listen, published.port));
    }
    if !egress.rules.deny.is_empty() {
        out.line("denied hosts", all(&egress.rules.deny));
    }
    if !egress.hosts.is_empty() {
        let hosts: Vec<String> = egress.hosts.iter().map(|host| format!("{}={}", host.name, host.address)).collect();
        out.line("given addresses", hosts.join(" "));
    }
    out.line("name server", egress.dns.map_or("the host's".into(), |server| server.to_string()));
    if let Some(proxy) = &egress.upstream_proxy {
        out.line("upstream proxy", proxy.to_string());
    }
    let mut bounds = format!("{} connections", egress.connections);
    for (bytes, what) in [(egress.rate_bytes, "bytes per second"), (egress.budget_bytes, "bytes in all")] {
        if let Some(bytes) = bytes {
            let _ = write!(bounds, ", {bytes} {what}");
        }
    }
    out.line("traffic", bounds);
}

fn seccomp(seccomp: &Seccomp) -> String {
    let profile = match &seccomp.profile {
        SeccompProfile::Builtin(name) => format!("built-in {name}"),
        SeccompProfile::File(path) => format!("profile {}", quoted(path)),
        SeccompProfile::Binary(path) => format!("program {}", quoted(path)),
        SeccompProfile::Inline(_) | SeccompProfile::Encoded(_) => "the container's own".into(),
    };
    let allow = if seccomp.allow.is_empty() { String::new() } else { format!(", and {}", seccomp.allow.join(" ")) };
    format!("{profile}{allow}{}", if seccomp.strict { ", strictly" } else { "" })
}

fn landlock(landlock: &Landlock) -> String {
    let mut text = format!("ABI {} or later", landlock.minimum_abi);
    for (what, rules) in [("read", &landlock.read), ("write", &landlock.write), ("execute", &landlock.execute)] {
        if let Some(rules) = rules {
            let optional = |rule: &PathRule| if rule.optional { " (if it exists)" } else { "" };
            let paths: Vec<String> = rules.iter().map(|rule| quoted(&rule.path) + optional(rule)).collect();
            let _ = write!(text, ", {what} only {}", if paths.is_empty() { "nothing".into() } else { paths.join(" ") });
        }
    }
    for (what, ports) in [("connect to", &landlock.connect_tcp), ("bind", &landlock.bind_tcp)] {
        if let Some(ports) = ports {
            let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
            let _ = write!(text, ", {what} only {}", if ports.is_empty() { "nothing".into() } else { ports.join(" ") });
        }
    }
    text
}

fn files(plan: &RunPlan, sources: &[Resolved], out: &mut Text) {
    out.group("files");
    match &plan.root {
        Root::Synthetic => out.path(&"/".into(), "own, empty, read-only"),
        Root::Directory(path) => out.path(&"/".into(), format!("host {}, read-only", shown_source(path, sources))),
    }
    for mount in &plan.mounts {
        out.path(&mount.destination, describe(mount, sources));
    }
    if plan.follow {
        out.line("symlinks", "followed in sources, also where other users could have made them");
    }
    let scratch = plan.scratch;
    out.group("file limits and covers");
    out.line("scratch", format!("{} and {} files for all of it", size(scratch.size_bytes), scratch.nr_inodes));
    for path in &plan.confinement.masked_paths {
        out.line("masked", quoted(path));
    }
    for path in &plan.confinement.readonly_paths {
        out.line("read-only", quoted(path));
    }
}

/// A source, and its resolved path if that differs.
fn shown_source(source: &Bytes, sources: &[Resolved]) -> String {
    match sources.iter().find(|one| one.source == *source) {
        Some(one) => format!("{} → {}", quoted(source), quoted(&one.resolved)),
        None => quoted(source),
    }
}

fn describe(mount: &Mount, sources: &[Resolved]) -> String {
    let access = if mount.read_only { "ro" } else { "rw" };
    let noexec = if mount.noexec { " noexec" } else { "" };
    let optional = if mount.optional { " optional" } else { "" };
    let flags = format!("{access}{noexec}{optional}");
    // Every other writable mount has a size limit.
    let unlimited = if mount.read_only { "" } else { ": the amount of data written there is not limited" };
    match &mount.kind {
        MountKind::Bind { source } => format!("host {}, {flags}{unlimited}", shown_source(source, sources)),
        MountKind::AsHost => format!("as on the host, {flags}{unlimited}"),
        MountKind::Tmpfs { size_bytes, nr_inodes, mode } => {
            format!("tmpfs of {} and {nr_inodes} files, mode {mode:o}, {flags}", size(*size_bytes))
        }
        MountKind::Scratch { mode } => format!("scratch, mode {mode:o}, {flags}"),
        MountKind::Proc { pid_only: false } => format!("proc, {flags}"),
        MountKind::Proc { pid_only: true } => format!("proc, processes only, {flags}"),
        MountKind::Sysfs => format!("sysfs, {flags}"),
        MountKind::Cgroup => format!("own cgroups, {flags}, if there are any"),
        MountKind::Dev { devices } if devices.is_empty() => "own devices".into(),
        MountKind::Dev { devices } => {
            format!(
                "own devices and {}",
                devices.iter().map(|device| shown_source(device, sources)).collect::<Vec<_>>().join(" ")
            )
        }
        MountKind::Mqueue => format!("message queues, {flags}"),
        MountKind::File { content, mode } => format!("generated, {} bytes, mode {mode:o}", content.as_bytes().len()),
        MountKind::Symlink { target } => format!("symlink to {}", quoted(target)),
    }
}

fn limits(plan: &RunPlan, out: &mut Text) {
    out.group("limits");
    let deadlines = plan.deadlines;
    out.line("timeout", deadlines.wall_us.map_or("none".into(), time));
    out.line("cpu time", deadlines.cpu_us.map_or("none".into(), time));
    out.line("idle timeout", deadlines.idle_us.map_or("none".into(), time));
    out.line("kill after", time(deadlines.kill_after_us));
    out.line("memory", plan.budget.memory_bytes.map_or("unlimited".into(), size));
    let cpus = |us: u64| {
        format!("{}.{:05}", us / 100_000, us % 100_000).trim_end_matches('0').trim_end_matches('.').to_owned()
    };
    out.line("cpus", plan.budget.cpu_quota_us.map_or("unlimited".into(), cpus));
    out.line("pids", plan.budget.pids.map_or("unlimited".into(), |pids| pids.to_string()));
    let budget = &plan.budget;
    for controller in budget.controllers() {
        let optional = if budget.if_possible.contains(&controller) { ", if this host can enforce it" } else { "" };
        out.line(&format!("budget {}", controller.name()), format!("{}{optional}", budget.describe(controller)));
    }
    if let Some(adjustment) = plan.command.oom_score_adj {
        out.line("oom_score_adj", adjustment);
    }
    for limit in &plan.command.rlimits {
        let bound = |bound: Option<u64>| bound.map_or("unlimited".to_owned(), |bound| bound.to_string());
        let clamp = if limit.clamp { ", or the caller's own if that is lower" } else { "" };
        let name = format!("ulimit {}", limit.resource.name());
        out.line(&name, format!("{}:{}{clamp}", bound(limit.soft), bound(limit.hard)));
    }
    out.group("policy");
    out.line("sha256", &plan.policy_sha256);
}

/// Quotes the text if it contains spaces or punctuation that could be misread. [`Bytes`] escapes control characters.
fn quoted(bytes: &Bytes) -> String {
    let text = bytes.to_string();
    let plain = !text.is_empty() && text.chars().all(|c| !c.is_whitespace() && !matches!(c, '"' | '\\' | ','));
    if plain { text } else { format!("\"{}\"", text.replace('"', "\\\"")) }
}
