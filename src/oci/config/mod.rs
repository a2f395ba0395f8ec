//! Turns `config.json` of the runtime specification into a plan.
//!
//! The text is parsed to a tree without duplicate keys, adapted to the types of the crate `oci-spec`, deserialized and
//! translated. An error names file, field, value and reason. Fields that the specification does not define are ignored, as it
//! requires. Fields that it defines and this runtime does not support are errors.

pub mod annotations;
mod cgroup;
mod document;
mod fit;
mod landlock;
mod linux;
mod mounts;
mod namespaces;
mod process;
mod rdt;
mod schedule;
mod seccomp;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use oci_spec::runtime;
use serde::Deserialize;

use self::document::{MAX_BYTES, ProfileError, Read, Within as _, each, wrong};
use crate::error::{Error, Result, Step};
use crate::file;
use crate::plan::container::{self, Hook, Hooks, NamespaceKind, Resources};
use crate::plan::{Bytes, Confinement, ContainerPlan};

pub use self::mounts::options as mount_options;
pub use self::process::settle_environment;
pub use self::schedule::{MODE_FLAGS, MODES};

/// A configuration.
#[derive(Debug)]
pub struct Config {
    /// The plan.
    pub plan: ContainerPlan,
    /// The version of the specification that it names.
    pub oci_version: String,
    /// Its annotations.
    pub annotations: BTreeMap<String, String>,
    /// The path of its root on the host.
    pub rootfs: PathBuf,
    /// Warnings for the user.
    pub warnings: Vec<String>,
}

/// The parts of the document for which `oci-spec` has types. The crate's own type also contains the parts of other platforms,
/// where every mistake would be an error. Its `Process` brings a regular expression compiler for the lists of
/// `execCPUAffinity`, which adds nearly a megabyte to the program.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    oci_version: String,
    process: process::Document,
    root: runtime::Root,
    hostname: Option<String>,
    domainname: Option<String>,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
    hooks: Option<runtime::Hooks>,
    mounts: Option<Vec<runtime::Mount>>,
    linux: Option<runtime::Linux>,
}

/// The command line options that affect the configuration.
#[derive(Clone, Copy, Debug, Default)]
pub struct Flags {
    /// `--systemd-cgroup`.
    pub systemd_cgroup: bool,
    /// `--cgroup-manager disabled`.
    pub no_cgroup: bool,
    /// `--no-new-keyring`.
    pub no_new_keyring: bool,
}

/// Reads the configuration of a bundle from this file.
pub fn load(path: &Path, bundle: &Path, id: &str, flags: Flags) -> Result<Config> {
    let bytes = text_of(path)?;
    let mut config = read(&bytes, bundle, id, flags).map_err(|error| named(&path.display().to_string(), error))?;
    if let Some(text) = config.annotations.get(landlock::ANNOTATION) {
        landlock::apply(text, &mut config.plan)?;
    }
    Ok(config)
}

/// Reads a process for `exec --process`. One that does not mention capabilities gets the container's, as with runc and crun.
pub fn load_process(path: &Path, container: &container::CapabilitySets) -> Result<(container::Process, Vec<String>)> {
    let bytes = file::read_stream(Step::Config, path, MAX_BYTES)?;
    let process = document::read(&bytes, fit::process, |document: process::Document, warnings| {
        let process = process::read(&document)?;
        let capabilities = if document.has_capabilities() { process.capabilities } else { container.clone() };
        Ok((container::Process { capabilities, ..process }, warnings))
    });
    process.map_err(|error| named(&path.display().to_string(), error))
}

/// Resources of `update --resources`. `-` is standard input.
pub fn load_resources(path: &Path) -> Result<Resources> {
    if path == Path::new("-") {
        return read_resources("standard input", &file::read_stdin(Step::Config, MAX_BYTES)?);
    }
    read_resources(&path.display().to_string(), &file::read_stream(Step::Config, path, MAX_BYTES)?)
}

/// Reads resources. `name` is that of their file.
pub fn read_resources(name: &str, bytes: &[u8]) -> Result<Resources> {
    let resources = document::read(bytes, fit::resources, |resources, ()| cgroup::resources(&resources));
    resources.map_err(|error| named(name, error))
}

fn text_of(path: &Path) -> Result<Vec<u8>> {
    file::read(Step::Config, path, MAX_BYTES)
}

/// Adds the file to an error about a field.
pub fn named(file: &str, error: ProfileError) -> Error {
    let place = if error.path.is_empty() { String::new() } else { format!(": {}", error.path) };
    Error::new(Step::Config, format!("{file}{place}"), error.message())
}

/// Parses a configuration.
pub fn read(bytes: &[u8], bundle: &Path, id: &str, flags: Flags) -> Read<Config> {
    document::read(bytes, fit::spec, |spec: Spec, fit::Aside { seccomp, warnings }| {
        check_version(&spec.oci_version)?;
        let process = process::read(&spec.process).within("process")?;
        let rootfs = rootfs(spec.root.path(), bundle).within("root.path")?;
        if spec.annotations.contains_key("") {
            return Err(wrong("annotations", "one has an empty name"));
        }
        let linux = spec.linux.as_ref().ok_or_else(|| wrong("linux", "is missing"))?;
        let name = |field, name: &Option<String>| name.as_ref().map(|name| bytes_of(field, name)).transpose();
        let hostname = name("hostname", &spec.hostname)?;
        let mut plan = ContainerPlan {
            confinement: Confinement { id: id.to_owned(), ..Confinement::default() },
            process,
            root: Some(Bytes::from(&rootfs)),
            read_only: spec.root.readonly().unwrap_or(false),
            new_keyring: !flags.no_new_keyring,
            domainname: name("domainname", &spec.domainname)?,
            hooks: spec.hooks.as_ref().map(hooks).transpose().within("hooks")?.unwrap_or_default(),
            cgroup: cgroup::read(linux, &spec.annotations, flags).within("linux")?,
            mounts: mounts::read(&spec.mounts, bundle)?,
            ..ContainerPlan::default()
        };
        namespaces::read(linux, &mut plan).within("linux")?;
        if (hostname.is_some() || plan.domainname.is_some()) && !plan.has_own(NamespaceKind::Uts) {
            return Err(wrong(
                "",
                "hostname and domainname need a uts namespace of the container's own, because they would change the host otherwise",
            ));
        }
        linux::read(linux, &mut plan).within("linux")?;
        annotations::read(&spec.annotations, &mut plan)?;
        plan.confinement.seccomp = seccomp::read(seccomp, &spec.annotations)?;
        plan.confinement.hostname = hostname.filter(|name| !name.as_bytes().is_empty());
        let Spec { oci_version, annotations, .. } = spec;
        Ok(Config { plan, oci_version, annotations, rootfs, warnings })
    })
}

fn check_version(text: &str) -> Read<()> {
    let numbers: Vec<&str> = text.split(['-', '+']).next().unwrap_or_default().split('.').collect();
    match numbers.as_slice() {
        ["1", minor, patch] if [minor, patch].iter().all(|number| number.parse::<u32>().is_ok()) => Ok(()),
        _ => Err(wrong("ociVersion", "is not a version 1.x.y of the runtime specification")),
    }
}

fn rootfs(path: &Path, bundle: &Path) -> Read<PathBuf> {
    if text("", path)?.is_empty() {
        return Err(wrong("", "must not be empty"));
    }
    let path = bundle.join(path);
    Ok(std::fs::canonicalize(&path).unwrap_or(path))
}

#[allow(deprecated)] // `prestart`, which engines still use
fn hooks(hooks: &runtime::Hooks) -> Read<Hooks> {
    let hook = |hook: &runtime::Hook| {
        Ok(Hook {
            path: absolute("path", hook.path())?,
            args: strings("args", hook.args())?,
            env: hook.env().as_ref().map(|_| strings("env", hook.env())).transpose()?,
            timeout_s: hook.timeout().map(|seconds| ranged("timeout", seconds, 1..=u32::MAX.into())).transpose()?,
        })
    };
    Ok(Hooks {
        prestart: each("prestart", hooks.prestart(), hook)?,
        create_runtime: each("createRuntime", hooks.create_runtime(), hook)?,
        create_container: each("createContainer", hooks.create_container(), hook)?,
        start_container: each("startContainer", hooks.start_container(), hook)?,
        poststart: each("poststart", hooks.poststart(), hook)?,
        poststop: each("poststop", hooks.poststop(), hook)?,
        ..Hooks::default()
    })
}

/// A number in the range that the kernel accepts.
fn ranged<N, T: TryFrom<i64>>(field: &str, number: N, range: RangeInclusive<i64>) -> Read<T>
where
    i64: TryFrom<N>,
{
    let number = i64::try_from(number).ok().filter(|number| range.contains(number));
    let number = number.and_then(|number| T::try_from(number).ok());
    number.ok_or_else(|| wrong(field, format!("must be a whole number from {} to {}", range.start(), range.end())))
}

/// A user or group id. The kernel reads the largest number as "no id".
fn id(field: &str, id: u32) -> Read<u32> {
    ranged(field, id, 0..=i64::from(u32::MAX) - 1)
}

fn text<'a>(field: &str, text: &'a (impl AsRef<OsStr> + ?Sized)) -> Read<&'a str> {
    let text = text.as_ref().to_str().filter(|text| !text.contains('\0'));
    text.ok_or_else(|| wrong(field, "contains a NUL byte"))
}

fn bytes_of(field: &str, value: &(impl AsRef<OsStr> + ?Sized)) -> Read<Bytes> {
    text(field, value).map(Bytes::from)
}

/// A text. An empty one counts as not set.
fn filled(field: &str, value: &Option<String>) -> Read<Option<String>> {
    let value = value.as_ref().filter(|value| !value.is_empty());
    value.map(|value| text(field, value).map(str::to_owned)).transpose()
}

fn absolute(field: &str, path: &(impl AsRef<OsStr> + ?Sized)) -> Read<Bytes> {
    let path = text(field, path)?;
    if path.starts_with('/') { Ok(Bytes::from(path)) } else { Err(wrong(field, "must be an absolute path")) }
}

fn strings(field: &str, list: &Option<Vec<String>>) -> Read<Vec<Bytes>> {
    each(field, list, |item| bytes_of("", item))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// Reads a small configuration after this change.
    fn changed(change: impl FnOnce(&mut Value)) -> std::result::Result<Config, String> {
        let mut config = json!({
            "ociVersion": "1.0.2", "root": { "path": "rootfs" }, "process": { "args": ["true"], "cwd": "/" },
            "linux": { "namespaces": [{ "type": "mount" }] },
        });
        change(&mut config);
        let text = config.to_string();
        read(text.as_bytes(), Path::new("/bundle"), "id", Flags::default()).map_err(|error| error.to_string())
    }

    #[test]
    fn values_that_the_types_reject_follow_the_specification() {
        let config = changed(|config| {
            config["process"]["capabilities"] = json!({ "bounding": ["CAP_KILL", "CAP_CAP_KILL", "CAP_99", "chown"] });
            config["process"]["rlimits"] = json!([{ "type": "RLIMIT_CORE", "soft": 0, "hard": -1 }]);
            config["process"]["user"] = Value::Null;
            config["process"]["execCPUAffinity"] = json!({ "initial": "", "final": "0-1, 3," });
            config["linux"]["resources"] = json!({
                "devices": [{ "allow": true, "type": "", "major": -1 }], "memory": { "limit": null, "swappiness": u64::MAX },
                "hugepageLimits": [{ "pageSize": "2MB", "limit": u64::MAX }],
            });
            config["linux"]["seccomp"] = json!({ "defaultAction": "known to our compiler alone" });
            config["windows"] = json!(7);
            config["uidMappings"] = json!("of the crate alone");
        });
        let Config { plan, warnings, .. } = config.unwrap();
        assert_eq!(plan.process.capabilities.bounding, ["CAP_CHOWN", "CAP_KILL"].map(|name| name.parse().unwrap()));
        assert_eq!(warnings, ["ignoring unknown or unavailable capabilities: [CAP_99 CAP_CAP_KILL]"]);
        assert_eq!((plan.process.command.rlimits[0].soft, plan.process.command.rlimits[0].hard), (Some(0), None));
        assert_eq!((plan.process.initial_cpu_affinity, plan.process.cpu_affinity), (None, Some(vec![0, 1, 3])));
        let resources = plan.cgroup.resources;
        assert_eq!((resources.memory_limit, resources.memory_swappiness), (None, None));
        assert_eq!(resources.hugepages, [("2MB".to_owned(), i64::MAX as u64)]);
        assert_eq!(resources.devices.unwrap()[0].kind, 'a');
        assert!(plan.confinement.seccomp.is_some());
    }

    #[test]
    fn names_are_the_kernels_numbers() {
        let policies = ["OTHER", "FIFO", "RR", "BATCH", "ISO", "IDLE", "DEADLINE"];
        let flags = [
            "RESET_ON_FORK",
            "RECLAIM",
            "DL_OVERRUN",
            "KEEP_POLICY",
            "KEEP_PARAMS",
            "UTIL_CLAMP_MIN",
            "UTIL_CLAMP_MAX",
        ];
        for number in 0..7 {
            let config = changed(|config| {
                let (policy, flag) = (format!("SCHED_{}", policies[number]), format!("SCHED_FLAG_{}", flags[number]));
                config["process"]["scheduler"] =
                    json!({ "policy": policy, "flags": [flag], "runtime": 1024, "deadline": 1024 });
            });
            let scheduler = config.unwrap().plan.process.scheduler.unwrap();
            assert_eq!((scheduler.policy, scheduler.flags), (number as u32, 1 << number));
        }
        for (class, number) in [("RT", 1), ("BE", 2), ("IDLE", 3)] {
            let class = format!("IOPRIO_CLASS_{class}");
            let config = changed(|config| config["process"]["ioPriority"] = json!({ "class": class, "priority": 4 }));
            assert_eq!(config.unwrap().plan.process.io_priority, Some((number, 4)));
        }
        let policy = json!({ "mode": "MPOL_WEIGHTED_INTERLEAVE", "flags": ["MPOL_F_STATIC_NODES"] });
        let config = changed(|config| config["linux"]["memoryPolicy"] = policy);
        assert_eq!(config.unwrap().plan.memory_policy, Some((6 | 1 << 15, Vec::new())));
        for kind in NamespaceKind::ALL {
            let all = json!([{ "type": "mount", "path": "/x" }, { "type": kind.name(), "path": "/x" }]);
            let all = if *kind == NamespaceKind::Mount { json!([all[0]]) } else { all };
            let config = changed(|config| config["linux"]["namespaces"] = all);
            assert!(config.unwrap().plan.joins(*kind));
        }
    }

    #[test]
    fn values_that_only_the_types_accept_are_refused_by_name() {
        for (pointer, value, said) in [
            ("/process/user", json!([0, 0]), "process.user: an array: must be an object"),
            ("/process/rlimits", json!([{ "type": "RLIMIT_CORE", "hard": 1 }]), "process.rlimits[0]: soft is missing"),
            ("/process/ioPriority", json!({ "priority": 1 }), "process.ioPriority: class is missing"),
            ("/process/scheduler", json!({ "policy": "SCHED_OTHER", "flags": ["SCHED_RESET_ON_FORK"] }), "flags[0]"),
            (
                "/process/scheduler",
                json!({ "policy": "SCHED_OTHER", "flags": [""] }),
                "not one of SCHED_FLAG_RESET_ON_FORK,",
            ),
            ("/process/args", json!([null]), "process.args[0]: null: must be a string"),
            ("/annotations", json!({ "a.b[0]": null }), "annotations.a.b[0]: null: must be a string"),
            ("/linux/sysctl", json!({ "a.b": "1", "a": "2" }), "linux.sysctl.a: \"2\": is not a kernel parameter"),
            (
                "/linux/devices",
                json!([{ "path": "/dev/x", "type": "a" }]),
                "linux.devices[0].type: \"a\": is not one of c",
            ),
            (
                "/linux/resources",
                json!({ "hugepageLimits": [{ "limit": 1 }] }),
                "hugepageLimits[0]: pageSize is not a page size",
            ),
        ] {
            let (parent, key) = pointer.rsplit_once('/').unwrap();
            let error = changed(|config| config.pointer_mut(parent).unwrap()[key] = value).unwrap_err();
            assert!(error.contains(said), "{pointer}: {error}");
        }
    }
}
