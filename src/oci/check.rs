//! `check`: prints what a bundle configures, and what prevents it on this host. Starts no container.

use serde::Serialize;

use super::config::{self, Config};
use super::{Runtime, create, print};
use crate::cgroup::container::{Places, absent};
use crate::container::preflight;
use crate::error::{Error, Result, Step, printable};
use crate::plan::container::{Hook, MountSource, NamespaceKind};
use crate::plan::{ContainerPlan, SeccompProfile};

/// The output of `check`.
#[derive(Debug, Serialize)]
struct Findings {
    schema: &'static str,
    bundle: String,
    /// Whether `create` is expected to succeed.
    can_be_made: bool,
    asks: Vec<Ask>,
    problems: Vec<Problem>,
}

#[derive(Debug, Serialize)]
struct Ask {
    field: String,
    what: String,
}

#[derive(Debug, Serialize)]
struct Problem {
    field: String,
    /// `error` prevents the container, `warning` does not.
    severity: &'static str,
    what: String,
    hint: Option<String>,
}

/// Prints the findings. Returns 0 if the container could be created, 1 if not.
pub fn check(runtime: &Runtime) -> Result<u8> {
    runtime.args.at_most(1)?;
    let json = match runtime.args.text("format")? {
        None | Some("text") => false,
        Some("json") => true,
        Some(_) => return Err(Error::new(Step::Usage, "--format", "must be text or json")),
    };
    let bundle = match runtime.args.words.first() {
        Some(word) => super::absolute(std::path::Path::new(word))?,
        None => runtime.bundle()?,
    };
    let mut findings = Findings {
        schema: "stockade/oci-check/v1",
        bundle: bundle.display().to_string(),
        can_be_made: true,
        asks: Vec::new(),
        problems: Vec::new(),
    };
    match config::load(&bundle.join("config.json"), &bundle, "check", runtime.flags()?) {
        Err(error) => findings.error("config.json", error),
        Ok(config) => findings.examine(&config)?,
    }
    findings.can_be_made = findings.problems.iter().all(|problem| problem.severity != "error");
    let text = if json {
        format!("{}\n", serde_json::to_string_pretty(&findings).unwrap_or_default())
    } else {
        findings.text()
    };
    print(&text)?;
    Ok(u8::from(!findings.can_be_made))
}

impl Findings {
    fn error(&mut self, field: &str, error: Error) {
        self.add(field, "error", error);
    }

    fn add(&mut self, field: &str, severity: &'static str, error: Error) {
        let hint = error.hint.clone();
        self.problems.push(Problem { field: field.to_owned(), severity, what: error.to_string(), hint });
    }

    fn ask(&mut self, field: &str, what: impl Into<String>) {
        let what = what.into();
        if !what.is_empty() {
            self.asks.push(Ask { field: field.to_owned(), what });
        }
    }

    fn examine(&mut self, config: &Config) -> Result<()> {
        let plan = &config.plan;
        self.describe(config);
        for warning in &config.warnings {
            self.add("config.json", "warning", Error::new(Step::Config, "", warning.clone()));
        }
        for finding in preflight::run(plan) {
            self.add(&finding.field, if finding.is_warning { "warning" } else { "error" }, finding.error);
        }
        match create::places(plan, "check") {
            Err(error) => self.error("linux.cgroupsPath", error),
            Ok(Some(places)) => self.limits(&places, plan),
            Ok(None) => {}
        }
        let hooks = &plan.hooks;
        // startContainer hooks are executed in the container's root, which does not exist yet.
        let outside = [
            ("prestart", &hooks.prestart),
            ("createRuntime", &hooks.create_runtime),
            ("createContainer", &hooks.create_container),
            ("poststart", &hooks.poststart),
            ("poststop", &hooks.poststop),
        ];
        for (stage, hooks) in outside {
            for (index, hook) in hooks.iter().enumerate() {
                if let Some(error) = unusable(hook) {
                    self.error(&format!("hooks.{stage}[{index}]"), error);
                }
            }
        }
        Ok(())
    }

    fn limits(&mut self, places: &Places, plan: &ContainerPlan) {
        for (field, error) in absent(places, &plan.cgroup.resources) {
            self.error(&format!("linux.resources.{field}"), error);
        }
    }

    fn describe(&mut self, config: &Config) {
        let plan = &config.plan;
        let words: Vec<String> = plan.process.command.argv.iter().map(ToString::to_string).collect();
        self.ask("process.args", words.join(" "));
        self.ask("process.user", format!("user {} and group {} inside", plan.process.uid, plan.process.gid));
        let root = if plan.read_only { "read-only" } else { "writable" };
        self.ask("root", format!("{}, {root}", config.rootfs.display()));
        let names = |kinds: &mut dyn Iterator<Item = NamespaceKind>| {
            kinds.map(NamespaceKind::name).collect::<Vec<_>>().join(", ")
        };
        self.ask("linux.namespaces", names(&mut plan.new.iter().copied()));
        for join in &plan.joined {
            self.ask("linux.namespaces", format!("{} of {}", join.kind.name(), join.path));
        }
        if !plan.has_own(NamespaceKind::User) {
            self.ask("linux.namespaces", "no user namespace: root in it is the host's root, with fewer capabilities");
        }
        let set = &plan.process.capabilities.bounding;
        let kept: Vec<_> = set.iter().map(ToString::to_string).collect();
        self.ask("process.capabilities", if kept.is_empty() { "none".to_owned() } else { kept.join(", ") });
        if !plan.process.no_new_privs {
            self.ask("process.noNewPrivileges", "set-user-id programs work");
        }
        match &plan.confinement.seccomp {
            None => self.ask("linux.seccomp", "no filter"),
            Some(seccomp) => {
                let named = matches!(seccomp.profile, SeccompProfile::Inline(_) | SeccompProfile::Encoded(_));
                self.ask("linux.seccomp", if named { "a filter of its own" } else { "a filter" });
            }
        }
        if let Some(rules) = &plan.confinement.landlock {
            self.ask("annotations.org.stockade.landlock", format!("Landlock, ABI {} or newer", rules.minimum_abi));
        }
        for mount in &plan.mounts {
            if let MountSource::Bind { source, .. } = &mount.source {
                let read_only = mount.set & crate::sys::mount::RDONLY != 0;
                let how = if read_only { "read-only" } else { "writable" };
                self.ask("mounts", format!("{source} of the host at {}, {how}", mount.destination));
            }
        }
        let nodes: Vec<String> = plan.devices.iter().map(|device| device.path.to_string()).collect();
        self.ask("linux.devices", nodes.join(", "));
        let limits = serde_json::to_value(&plan.cgroup.resources).unwrap_or_default();
        let set = limits.as_object().into_iter().flatten().filter(|(key, value)| {
            let empty = value.as_array().is_some_and(Vec::is_empty);
            !value.is_null() && !empty && **value != serde_json::json!(false) && *key != "devices"
        });
        let set: Vec<String> = set.map(|(key, value)| format!("{key} {value}")).collect();
        self.ask("linux.resources", set.join(", "));
    }

    fn text(&self) -> String {
        let mut text = format!("{} configures\n", printable(&self.bundle));
        for Ask { field, what } in &self.asks {
            text.push_str(&format!("  {field:<34} {}\n", printable(what)));
        }
        for Problem { field, severity, what, hint } in &self.problems {
            text.push_str(&format!("{severity}: {field}: {}\n", printable(what)));
            if let Some(hint) = hint {
                text.push_str(&format!("    {}\n", printable(hint)));
            }
        }
        text.push_str(if self.can_be_made {
            "This container can be created here.\n"
        } else {
            "This container can NOT be created here.\n"
        });
        text
    }
}

fn unusable(hook: &Hook) -> Option<Error> {
    let path = hook.path.as_path();
    let failed = |errno| Some(Error::errno(Step::Hook, hook.path.to_string(), errno));
    match nix::unistd::access(path, nix::unistd::AccessFlags::X_OK) {
        Err(errno) => failed(errno),
        Ok(()) if path.is_dir() => failed(nix::errno::Errno::EISDIR),
        Ok(()) => None,
    }
}
