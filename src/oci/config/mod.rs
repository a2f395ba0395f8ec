//! `config.json`, as the runtime specification has it, becomes a plan.
//!
//! Read from a tree in which no key stands twice, field by field, so that an error names file, field, value and reason.
//! What the specification does not know is ignored, as it says; what it knows and we do not do is an error.

mod cgroup;
mod landlock;
mod linux;
mod mounts;
mod namespaces;
mod process;
mod rdt;
mod schedule;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use stockade_json::{At, Error as JsonError, Json, parse};

use crate::error::{Error, Result, Step};
use crate::file;
use crate::plan::container::{self, Hook, Hooks, NamespaceKind, Resources};
use crate::plan::{Bytes, Confinement, ContainerPlan};

pub use self::mounts::options as mount_options;
pub use self::process::add_home;
pub use self::schedule::memory_modes;

/// The longest file that is read.
const MAX_BYTES: usize = 64 << 20;

/// Result of reading a field.
pub type Read<T> = std::result::Result<T, JsonError>;

/// A configuration that was read.
#[derive(Debug)]
pub struct Config {
    /// What it asks for.
    pub plan: ContainerPlan,
    /// Its own version of the specification.
    pub oci_version: String,
    /// Notes of whoever wrote it.
    pub annotations: BTreeMap<String, String>,
    /// Where its root is on the host.
    pub rootfs: PathBuf,
    /// What is not as it seems.
    pub warnings: Vec<String>,
}

/// What the command line says beside it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Flags {
    /// `--systemd-cgroup`.
    pub systemd_cgroup: bool,
    /// `--cgroup-manager disabled`.
    pub no_cgroup: bool,
    /// `--no-new-keyring`.
    pub no_new_keyring: bool,
}

/// Reads a bundle's configuration.
pub fn load(bundle: &Path, id: &str, flags: Flags) -> Result<Config> {
    let path = bundle.join("config.json");
    let bytes = text_of(&path)?;
    let mut config = read(&bytes, bundle, id, flags).map_err(|error| named(&path.display().to_string(), error))?;
    if let Some(text) = config.annotations.get(landlock::ANNOTATION) {
        landlock::apply(text, &mut config.plan)?;
    }
    Ok(config)
}

/// A process of `exec --process`.
pub fn load_process(path: &Path) -> Result<(container::Process, Vec<String>)> {
    let bytes = text_of(path)?;
    let mut warnings = Vec::new();
    let tree = parse(&bytes, MAX_BYTES);
    let process = tree.and_then(|json| process::read(&At::root(&json), &mut warnings));
    process.map(|process| (process, warnings)).map_err(|error| named(&path.display().to_string(), error))
}

/// Resources of `update --resources`.
pub fn read_resources(name: &str, bytes: &[u8]) -> Result<Resources> {
    let tree = parse(bytes, MAX_BYTES);
    tree.and_then(|json| cgroup::resources(&At::root(&json))).map_err(|error| named(name, error))
}

fn text_of(path: &Path) -> Result<Vec<u8>> {
    file::read(Step::Config, path, MAX_BYTES)
}

/// An error about a field, with the file that it is in.
pub fn named(file: &str, error: JsonError) -> Error {
    let place = if error.path.is_empty() { String::new() } else { format!(": {}", error.path) };
    Error::new(Step::Config, format!("{file}{place}"), error.message())
}

/// Reads a configuration's text.
pub fn read(bytes: &[u8], bundle: &Path, id: &str, flags: Flags) -> Read<Config> {
    let json = parse(bytes, MAX_BYTES)?;
    let root = At::root(&json);
    let oci_version = version(&root)?;
    let mut warnings = Vec::new();
    let process = root.get("process")?.ok_or_else(|| root.lacks("process is missing"))?;
    let process = process::read(&process, &mut warnings)?;
    let (rootfs, read_only) = rootfs(&root, bundle)?;
    let annotations = annotations(&root)?;
    let mut plan = ContainerPlan {
        confinement: Confinement { id: id.to_owned(), ..Confinement::default() },
        process,
        root: Some(Bytes::from(&rootfs)),
        read_only,
        new_keyring: !flags.no_new_keyring,
        ..ContainerPlan::default()
    };
    let empty = Json::Object(Vec::new());
    let linux = root.get("linux")?.unwrap_or(At::root(&empty));
    namespaces::read(&linux, &mut plan)?;
    plan.domainname = text(&root, "domainname")?.map(|name| Bytes::from(&name));
    plan.hooks = hooks(&root)?;
    plan.cgroup = cgroup::read(&linux, &annotations, flags)?;
    let hostname = text(&root, "hostname")?;
    if (hostname.is_some() || plan.domainname.is_some()) && !plan.has_own(NamespaceKind::Uts) {
        return Err(root.lacks("hostname and domainname need an own uts namespace, or would be the host's"));
    }
    linux::read(&linux, &mut plan, hostname.is_some())?;
    plan.confinement.hostname = hostname.filter(|name| !name.is_empty()).map(|name| Bytes::from(&name));
    plan.mounts = mounts::read(&root, bundle)?;
    Ok(Config { plan, oci_version, annotations, rootfs, warnings })
}

fn version(root: &At) -> Read<String> {
    let at = root.get("ociVersion")?.ok_or_else(|| root.lacks("ociVersion is missing"))?;
    let text = at.text()?;
    let numbers: Vec<&str> = text.split(['-', '+']).next().unwrap_or_default().split('.').collect();
    match numbers.as_slice() {
        ["1", minor, patch] if [minor, patch].iter().all(|number| number.parse::<u32>().is_ok()) => Ok(text.to_owned()),
        _ => Err(at.wrong("is no version 1.x.y of the runtime specification")),
    }
}

fn rootfs(root: &At, bundle: &Path) -> Read<(PathBuf, bool)> {
    let at = root.get("root")?.ok_or_else(|| root.lacks("root is missing"))?;
    let path = at.get("path")?.ok_or_else(|| at.lacks("root.path is missing"))?;
    let text = without_nul(&path)?;
    if text.is_empty() {
        return Err(path.wrong("is empty"));
    }
    let read_only = flag(&at, "readonly")?;
    let path = bundle.join(text);
    Ok((std::fs::canonicalize(&path).unwrap_or(path), read_only))
}

fn annotations(root: &At) -> Read<BTreeMap<String, String>> {
    let Some(at) = root.get("annotations")? else { return Ok(BTreeMap::new()) };
    at.entries()?
        .map(|(key, value)| {
            if key.is_empty() {
                return Err(value.wrong("has an empty name"));
            }
            Ok((key.to_owned(), value.text()?.to_owned()))
        })
        .collect()
}

fn hooks(root: &At) -> Read<Hooks> {
    let Some(at) = root.get("hooks")? else { return Ok(Hooks::default()) };
    let list = |name| -> Read<Vec<Hook>> {
        let Some(list) = at.get(name)? else { return Ok(Vec::new()) };
        list.items()?.map(|hook| read_hook(&hook)).collect()
    };
    Ok(Hooks {
        prestart: list("prestart")?,
        create_runtime: list("createRuntime")?,
        create_container: list("createContainer")?,
        start_container: list("startContainer")?,
        poststart: list("poststart")?,
        poststop: list("poststop")?,
    })
}

fn read_hook(at: &At) -> Read<Hook> {
    let path = at.get("path")?.ok_or_else(|| at.lacks("path is missing"))?;
    let timeout = at.get("timeout")?;
    let timeout_s = timeout.map(|timeout| timeout.number(u64::from(u32::MAX))).transpose()?;
    if timeout_s == Some(0) {
        return Err(at.get("timeout")?.unwrap_or(*at).wrong("must be greater than zero"));
    }
    Ok(Hook { path: absolute(&path)?, args: strings(at, "args")?, env: strings(at, "env")?, timeout_s })
}

/// The text under a key.
fn text(at: &At, key: &str) -> Read<Option<String>> {
    at.get(key)?.map(|value| without_nul(&value).map(str::to_owned)).transpose()
}

/// Whether a key is `true`.
fn flag(at: &At, key: &str) -> Read<bool> {
    at.get(key)?.map_or(Ok(false), |value| value.boolean())
}

fn signed(at: &At, key: &str) -> Read<Option<i64>> {
    at.get(key)?.map(|value| value.signed()).transpose()
}

fn unsigned(at: &At, key: &str, most: u64) -> Read<Option<u64>> {
    at.get(key)?.map(|value| value.number(most)).transpose()
}

fn small(at: &At, key: &str) -> Read<Option<u32>> {
    Ok(unsigned(at, key, u64::from(u32::MAX))?.map(|number| number as u32))
}

/// A user or group id: the largest number means "none" to the kernel, and is none.
fn id(at: &At, key: &str) -> Read<u32> {
    at.get(key)?.map_or(Ok(0), |value| value.number(u64::from(u32::MAX) - 1).map(|id| id as u32))
}

fn without_nul<'a>(at: &At<'a>) -> Read<&'a str> {
    let text = at.text()?;
    if text.contains('\0') { Err(at.wrong("contains a NUL byte")) } else { Ok(text) }
}

fn absolute(at: &At) -> Read<Bytes> {
    let text = without_nul(at)?;
    if text.starts_with('/') { Ok(Bytes::from(text)) } else { Err(at.wrong("must be an absolute path")) }
}

fn strings(at: &At, key: &str) -> Read<Vec<Bytes>> {
    let Some(list) = at.get(key)? else { return Ok(Vec::new()) };
    list.items()?.map(|item| without_nul(&item).map(Bytes::from)).collect()
}
