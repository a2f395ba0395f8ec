//! Reads the named policies and merges them into one set of settings.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::settings::Settings;
use super::trust::Guarded;
use super::{builtin, default, diagnose, file};
use crate::error::{Error, Result, Step, nearest};
use crate::plan::Bytes;

/// How many files may extend each other.
const MAX_DEPTH: usize = 8;

/// How many mounts, devices, paths or variables one policy may name. Each one delays every start by microseconds.
pub const MAX_LIST: usize = 1_000;

/// All layers merged, and the files they came from.
#[derive(Debug)]
pub struct Loaded {
    /// The merged settings; every host path in them is absolute.
    pub settings: Settings,
    /// The files that were read.
    pub files: Vec<Guarded>,
}

/// Merges `default`, each `-p` in order (after the policy it extends), and the flags; later ones override earlier ones.
/// Relative paths of the command line start in `cwd`, which is `None` if the directory was deleted.
pub fn load(profiles: &[&OsStr], mut flags: Settings, cwd: Option<&Path>) -> Result<Loaded> {
    let mut loaded = Loaded { settings: default::settings(), files: Vec::new() };
    for profile in profiles {
        loaded.add(profile, cwd, &mut Vec::new())?;
    }
    settle(&mut flags, cwd, Step::Usage, None)?;
    loaded.files.extend(flags.network.read_files(cwd)?.into_iter().map(Guarded::rules));
    loaded.settings = loaded.settings.overlaid_with(flags);
    Ok(loaded)
}

impl Loaded {
    /// Merges one policy on top, after the one that it extends. `below` is the chain of policies that extend this one.
    fn add(&mut self, reference: &OsStr, base: Option<&Path>, below: &mut Vec<PathBuf>) -> Result<()> {
        let is_file = reference.as_bytes().contains(&b'/') || reference.as_bytes().ends_with(b".toml");
        if is_file {
            let file = file::read(file::POLICY, Path::new(reference), base)?;
            let name = Bytes::from(reference).to_string();
            if below.contains(&file.path) {
                return Err(Error::new(Step::Policy, name, "extends itself"));
            }
            if below.len() >= MAX_DEPTH {
                return Err(Error::new(Step::Policy, name, format!("is extended through more than {MAX_DEPTH} files")));
            }
            let text =
                std::str::from_utf8(&file.bytes).map_err(|error| not_utf8(&name, &file.bytes, error.valid_up_to()))?;
            let mut settings = parse(&name, text)?;
            let directory = file.path.parent().map(Path::to_path_buf);
            settle(&mut settings, directory.as_deref(), Step::Policy, Some((&name, text)))?;
            self.files.extend(settings.network.read_files(directory.as_deref())?.into_iter().map(Guarded::rules));
            below.push(file.path.clone());
            self.files.push(Guarded::policy(file.trail));
            let extends = settings.extends.as_ref().map(Bytes::from);
            self.stack(settings, directory.as_deref(), below).map_err(|error| match &extends {
                // The policy that was not found is named where it is asked for.
                Some(extends) if error.object == extends.to_string() => Error {
                    object: format!("{name}:{}: extends: {extends}", diagnose::line_of("extends", text)),
                    ..error
                },
                _ => error,
            })?;
            below.pop();
            return Ok(());
        }
        let name = reference.to_str().unwrap_or_default();
        match builtin::text(name) {
            // Already the base of all policies.
            Some(_) if name == builtin::ALL[0].0 => Ok(()),
            Some(text) => {
                let mut settings = parse(name, text)?;
                settle(&mut settings, None, Step::Policy, Some((name, text)))?;
                self.stack(settings, None, below)
            }
            None => Err(unknown_name(reference)),
        }
    }

    fn stack(&mut self, mut settings: Settings, directory: Option<&Path>, below: &mut Vec<PathBuf>) -> Result<()> {
        if let Some(extends) = settings.extends.take() {
            self.add(OsStr::new(&extends), directory, below)?;
        }
        self.settings = std::mem::take(&mut self.settings).overlaid_with(settings);
        Ok(())
    }
}

/// Parses the text of a policy.
pub fn parse(name: &str, text: &str) -> Result<Settings> {
    toml::from_str(text).map_err(|error| diagnose::explain(name, text, &error))
}

/// Makes every host path absolute and checks conditions on more than one value. `file` has a name and a text; flags have none.
fn settle(settings: &mut Settings, base: Option<&Path>, step: Step, file: Option<(&str, &str)>) -> Result<()> {
    let object = |field: String| match file {
        None => format!("--{field}"),
        Some((name, text)) => match diagnose::place_of(&field, text) {
            Some(place) => format!("{name}:{place}: {field}"),
            None => format!("{name}: {field}"),
        },
    };
    let fail = |field: &str| {
        let object = object(field.to_owned());
        move |reason: String| Error::new(step, object, reason)
    };
    if let Some(path) = &mut settings.rootfs {
        path.anchor(base).map_err(fail("rootfs"))?;
    }
    if let Some(path) = &mut settings.workspace {
        path.anchor(base).map_err(fail("workspace"))?;
    }
    if let Some(path) = &mut settings.audit {
        path.anchor(base).map_err(fail("audit"))?;
    }
    if let Some(profile) = &mut settings.seccomp.profile {
        profile.anchor(base).map_err(fail("seccomp.profile"))?;
    }
    let landlock = &settings.landlock;
    let rules = |list: &Option<Vec<_>>| list.as_ref().map_or(0, Vec::len);
    let lists = [
        ("landlock.read", rules(&landlock.read)),
        ("landlock.write", rules(&landlock.write)),
        ("landlock.execute", rules(&landlock.execute)),
        ("landlock.connect", landlock.connect.as_ref().map_or(0, Vec::len)),
        ("landlock.bind", landlock.bind.as_ref().map_or(0, Vec::len)),
        ("network.allow", settings.network.0.allow.len()),
        ("network.deny", settings.network.0.deny.len()),
        ("mounts", settings.mounts.len()),
        ("devices", settings.devices.len()),
        ("masked_paths", settings.masked_paths.len()),
        ("readonly_paths", settings.readonly_paths.len()),
        ("env.set", settings.env.set.len()),
        ("env.pass", settings.env.pass.len()),
    ];
    if let Some((field, count)) = lists.into_iter().find(|(_, count)| *count > MAX_LIST) {
        return Err(fail(field)(format!("{count} entries, more than {MAX_LIST}")));
    }
    for (field, paths) in [("masked_paths", &settings.masked_paths), ("readonly_paths", &settings.readonly_paths)] {
        if paths.iter().any(|path| path.0 == "/".into()) {
            return Err(fail(field)("\"/\" would cover the whole sandbox".into()));
        }
    }
    let mut destinations = HashSet::new();
    for (index, mount) in settings.mounts.iter_mut().enumerate() {
        let field = || format!("mounts[{index}]");
        mount.anchor(base).map_err(|reason| fail(&format!("{}.source", field()))(reason))?;
        let destination = mount.destination.as_ref().map(|path| path.0.clone()).unwrap_or_default();
        if destinations.contains(&destination) {
            let what = if file.is_none() { "volume".to_owned() } else { format!("{}.destination", field()) };
            return Err(fail(&what)(format!("\"{destination}\" is mounted twice")));
        }
        destinations.insert(destination);
    }
    if let Some(pattern) =
        settings.env.pass.iter().find(|pattern| settings.env.set.keys().any(|set| set.0 == pattern.0))
    {
        // On the command line the later -e wins before this is reached.
        return Err(fail("env")(format!("\"{}\" is both set and passed", pattern.0)));
    }
    Ok(())
}

fn not_utf8(name: &str, bytes: &[u8], at: usize) -> Error {
    let line = bytes[..at].iter().filter(|byte| **byte == b'\n').count() + 1;
    Error::new(Step::Policy, format!("{name}:{line}"), "is not UTF-8, which TOML requires")
}

fn unknown_name(reference: &OsStr) -> Error {
    let name = Bytes::from(reference).to_string();
    let names = builtin::ALL.map(|(name, _)| name);
    let error = Error::new(Step::Policy, &name, "is not a built-in policy");
    // What -p means to docker, and to systemd-run.
    if name.contains(':') && name.bytes().all(|byte| byte.is_ascii_digit() || b":./tcpud".contains(&byte)) {
        return error.hint(format!("-p names a policy; --publish {name} forwards connections from a port of the host"));
    }
    if name.contains('=') {
        return error.hint("-p names a policy; limits are options of their own: -m SIZE, --cpus N, --pids-limit N");
    }
    let near = nearest(&name, names.into_iter()).map(|near| format!("did you mean `{near}`? "));
    error.hint(format!(
        "{}built-in policies: {}; a file needs a slash in its path: ./{name}",
        near.unwrap_or_default(),
        names.join(", ")
    ))
}
