//! `--toolchain`: finds interpreters and compilers of the caller outside /usr, and shows their trees read-only.
//!
//! Files are only read, and no program of the host is started: the caller's `PATH` may lead into a workspace. Version managers
//! put scripts or proxies there; the version that they would choose for the user, not for a directory, is used.

use std::env::{split_paths, var_os};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result, Step};
use crate::policy::Settings;
use crate::policy::mount::{MountRequest, RequestKind};
use crate::policy::path::{HostPath, SandboxPath};
use crate::policy::rules::Toolchain;
use crate::policy::value::{EnvName, EnvValue, Value as _};
use crate::run::missing;

/// The name, its programs, and its names in asdf.
const KNOWN: [(Toolchain, &[&str], &[&str]); 5] = [
    (Toolchain::Python, &["python3", "python"], &["python"]),
    (Toolchain::Node, &["node"], &["nodejs"]),
    (Toolchain::Rust, &["cargo", "rustc"], &["rust"]),
    (Toolchain::Java, &["java"], &["java"]),
    (Toolchain::Go, &["go"], &["golang"]),
];

/// Adds the mounts of the wanted toolchains, and their programs to `PATH`.
pub fn add(settings: &mut Settings) -> Result<()> {
    let wanted = std::mem::take(&mut settings.toolchains);
    let all = wanted.contains(&Toolchain::Auto);
    let (mut trees, mut directories) = (Vec::new(), Vec::new());
    for (toolchain, programs, names) in KNOWN.iter().filter(|(one, ..)| all || wanted.contains(one)) {
        let found: Vec<PathBuf> = programs.iter().filter_map(|program| find(program, names)).collect();
        if found.is_empty() && wanted.contains(toolchain) {
            let reason = "is not on PATH";
            return Err(Error::new(Step::Plan, format!("toolchain: {}", programs.join(", ")), reason)
                .hint("install it, or add its directory to PATH"));
        }
        for program in found {
            trees.extend(missing::of(is_in_view, &program).trees);
            let directory = program.parent().unwrap_or(&program).to_owned();
            if !is_in_view(&directory) && !directories.contains(&directory) {
                directories.push(directory);
            }
        }
    }
    for tree in trees {
        show(&tree, settings).map_err(|reason| Error::new(Step::Plan, tree.display().to_string(), reason))?;
    }
    first_on_path(&directories, settings).map_err(|reason| Error::new(Step::Plan, "PATH", reason))
}

/// What the view shows in any case.
fn is_in_view(path: &Path) -> bool {
    ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"].iter().any(|shown| path.starts_with(shown))
}

fn show(tree: &Path, settings: &mut Settings) -> std::result::Result<(), String> {
    let bytes = tree.as_os_str().as_bytes();
    let destination = Some(SandboxPath::parse(bytes)?);
    if settings.mounts.iter().any(|mount| mount.destination == destination) {
        return Ok(());
    }
    let kind = RequestKind::Bind(HostPath::parse(bytes)?);
    settings.mounts.push(MountRequest { destination, kind, read_only: true, noexec: false, optional: false });
    Ok(())
}

fn first_on_path(directories: &[PathBuf], settings: &mut Settings) -> std::result::Result<(), String> {
    if directories.is_empty() {
        return Ok(());
    }
    let name = EnvName::parse(b"PATH")?;
    let mut path: Vec<u8> = directories.iter().map(|one| one.as_os_str().as_bytes()).collect::<Vec<_>>().join(&b':');
    if let Some(EnvValue(before)) = settings.env.set.get(&name) {
        path.push(b':');
        path.extend(before.as_bytes());
    }
    settings.env.set.insert(name, EnvValue::parse(&path)?);
    Ok(())
}

/// The program that this name means for the user, behind the scripts and proxies of version managers.
fn find(program: &str, asdf: &[&str]) -> Option<PathBuf> {
    let home = PathBuf::from(var_os("HOME")?);
    let path = var_os("PATH")?;
    let directories = split_paths(&path).filter(|directory| directory.is_absolute());
    directories.map(|directory| directory.join(program)).filter(|file| file.is_file()).find_map(|file| {
        let manager = file.parent().filter(|parent| parent.ends_with("shims")).and_then(Path::parent);
        match manager {
            Some(root) if root.join("versions").is_dir() => {
                let version = var_os("PYENV_VERSION").or_else(|| word(&root.join("version"), "", 0))?;
                program_at(root.join("versions").join(one_name(&version)?).join("bin").join(program))
            }
            Some(root) if root.join("installs").is_dir() => asdf.iter().find_map(|name| {
                let version = word(&home.join(".tool-versions"), name, 1)?;
                let tree = root.join("installs").join(name).join(one_name(&version)?);
                program_at(tree.join("bin").join(program)).or_else(|| program_at(tree.join("go/bin").join(program)))
            }),
            Some(_) => None,
            None if is_rustup(&file) => rustup(&home, program),
            None => Some(file),
        }
    })
}

/// Whether a program of `~/.cargo/bin` is rustup under another name.
fn is_rustup(file: &Path) -> bool {
    let target = file.canonicalize().unwrap_or_default();
    target.file_name().is_some_and(|name| name == "rustup" || name == "rustup-init")
        || (file.with_file_name("rustup").exists() && file.file_name().is_some_and(|name| name != "rustup"))
}

fn rustup(home: &Path, program: &str) -> Option<PathBuf> {
    let root = var_os("RUSTUP_HOME").map_or_else(|| home.join(".rustup"), PathBuf::from);
    let settings = std::fs::read_to_string(root.join("settings.toml")).ok()?;
    let table: toml::Table = settings.parse().ok()?;
    let default = table.get("default_toolchain").and_then(toml::Value::as_str).map(str::to_owned);
    let version = var_os("RUSTUP_TOOLCHAIN").and_then(|name| name.into_string().ok()).or(default)?;
    let version = one_name(OsStr::new(&version))?.to_str()?.to_owned();
    let mut names: Vec<_> = root.join("toolchains").read_dir().ok()?.flatten().map(|entry| entry.file_name()).collect();
    names.sort();
    let is_it = |name: &&std::ffi::OsString| {
        name.to_str()
            .and_then(|name| name.strip_prefix(&version))
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    };
    program_at(root.join("toolchains").join(names.iter().find(is_it)?).join("bin").join(program))
}

/// The word at this place of the first line that starts with `first`.
fn word(file: &Path, first: &str, at: usize) -> Option<std::ffi::OsString> {
    let text = std::fs::read_to_string(file).ok()?;
    let line = text.lines().find(|line| first.is_empty() || line.split_whitespace().next() == Some(first))?;
    line.split_whitespace().nth(at).map(Into::into)
}

/// A name that is one component of a path.
fn one_name(name: &OsStr) -> Option<&OsStr> {
    let bytes = name.as_bytes();
    (!bytes.is_empty() && !bytes.contains(&b'/') && !matches!(bytes, b"." | b"..")).then_some(name)
}

fn program_at(file: PathBuf) -> Option<PathBuf> {
    file.is_file().then_some(file)
}
