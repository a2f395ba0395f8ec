//! Which files of the host a program needs that the sandbox does not show: the program, the links to it, and the interpreters that
//! it names. And the smallest trees that hold them.

use std::io::Read as _;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Component, Path, PathBuf};

use crate::plan::{MountKind, RunPlan};

/// As many links and interpreters as the kernel follows.
const MOST_LINKS: usize = 40;
const MOST_INTERPRETERS: usize = 5;
/// Directories in which version managers keep one tree for each version.
const VERSIONS: [&str; 9] =
    ["versions", "installs", "toolchains", "Cellar", "candidates", "envs", "python", "sdk", "sdks"];
/// What marks the root of a tool's tree, also directly below a home directory.
const MARKS: [&str; 4] = ["pyvenv.cfg", "conda-meta", "release", "Cellar"];

/// The `--toolchain` of a program's name. On `PATH` there is often a proxy of a version manager, which needs more than its own files.
pub fn toolchain(program: &Path) -> Option<&'static str> {
    Some(match program.file_name()?.to_str()? {
        "python" | "python3" | "pip" | "pip3" => "python",
        "node" | "npm" | "npx" => "node",
        "cargo" | "rustc" | "rustdoc" => "rust",
        "java" | "javac" => "java",
        "go" | "gofmt" => "go",
        _ => return None,
    })
}

/// What a program needs and the sandbox does not show.
#[derive(Debug, PartialEq, Eq)]
pub struct Missing {
    /// The files and links, in the order in which they are needed.
    pub files: Vec<PathBuf>,
    /// The directories to add, or files where a directory would show too much.
    pub trees: Vec<PathBuf>,
    /// An interpreter that the host lacks too.
    pub nowhere: Option<PathBuf>,
}

/// Follows a program of the host to its last interpreter. `is_shown` says what the sandbox has.
pub fn of(is_shown: impl Fn(&Path) -> bool, program: &Path) -> Missing {
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let mut missing = Missing { files: Vec::new(), trees: Vec::new(), nowhere: None };
    let mut next = Some(program.to_owned());
    for _ in 0..MOST_INTERPRETERS {
        let Some(path) = next.take() else { break };
        let steps = links(&path);
        let Some(file) = steps.last().filter(|last| last.exists()).cloned() else {
            missing.nowhere = Some(path);
            break;
        };
        missing.files.extend(steps.into_iter().filter(|step| !is_shown(step)));
        next = interpreter(&file);
    }
    for file in &missing.files {
        let tree = tree(file, home.as_deref());
        if !missing.trees.iter().any(|other| tree.starts_with(other)) {
            missing.trees.retain(|other| !other.starts_with(&tree));
            missing.trees.push(tree);
        }
    }
    missing
}

/// Each link on the way to a file, by the path at which it must be found, and the file.
fn links(path: &Path) -> Vec<PathBuf> {
    let (mut steps, mut current) = (Vec::new(), path.to_owned());
    for _ in 0..MOST_LINKS {
        let mut prefixes: Vec<&Path> = current.ancestors().collect();
        prefixes.reverse();
        let Some(link) = prefixes.into_iter().find(|prefix| prefix.is_symlink()) else { break };
        let Ok(target) = link.read_link() else { break };
        let rest = current.strip_prefix(link).unwrap_or(Path::new(""));
        let next = link.parent().unwrap_or(link).join(target);
        let next = if rest.as_os_str().is_empty() { next } else { next.join(rest) };
        steps.push(link.to_owned());
        current = lexical(&next);
    }
    steps.push(current);
    steps
}

/// Without `.` and `..`. Links before a `..` were followed already.
fn lexical(path: &Path) -> PathBuf {
    path.components().fold(PathBuf::new(), |mut path, component| {
        match component {
            Component::ParentDir => drop(path.pop()),
            Component::CurDir => {}
            other => path.push(other),
        }
        path
    })
}

/// Whether the sandbox has this path of the host.
pub fn is_shown(plan: &RunPlan, path: &Path) -> bool {
    plan.mounts.iter().any(|mount| match &mount.kind {
        MountKind::Bind { source } => path.starts_with(source.as_path()),
        MountKind::AsHost => path.starts_with(mount.destination.as_path()),
        _ => false,
    })
}

/// The interpreter that the kernel executes for a script or an ELF program.
pub fn named_interpreter(file: &Path) -> Option<PathBuf> {
    let head = head(file)?;
    match script_words(&head) {
        None => elf_interpreter(&head).map(path),
        Some(mut words) => words.next().map(path),
    }
}

/// The interpreter that a script or an ELF program names. For `env` it is the program that `env` looks up.
fn interpreter(file: &Path) -> Option<PathBuf> {
    let head = head(file)?;
    let Some(mut words) = script_words(&head) else { return elf_interpreter(&head).map(path) };
    let first = path(words.next()?);
    let word = words.find(|word| !word.starts_with(b"-") && !word.contains(&b'='));
    match word {
        Some(word) if first.file_name().is_some_and(|name| name == "env") => in_path(&path(word)).or(Some(first)),
        _ => Some(first),
    }
}

fn head(file: &Path) -> Option<Vec<u8>> {
    let mut head = Vec::new();
    std::fs::File::open(file).ok()?.take(4096).read_to_end(&mut head).ok()?;
    Some(head)
}

/// The words behind `#!`, if the file is a script.
fn script_words(head: &[u8]) -> Option<impl Iterator<Item = &[u8]>> {
    let line = head.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    Some(line.split(|byte| b" \t".contains(byte)).filter(|word| !word.is_empty()))
}

fn path(bytes: &[u8]) -> PathBuf {
    PathBuf::from(std::ffi::OsString::from_vec(bytes.to_vec()))
}

/// The program of this name on the caller's `PATH`.
pub fn in_path(program: &Path) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|directory| directory.join(program)).find(|file| file.is_file())
}

/// `PT_INTERP` of a 64-bit program whose headers are at its beginning, as linkers write them.
fn elf_interpreter(head: &[u8]) -> Option<&[u8]> {
    let number = |at: usize, length: usize| -> Option<usize> {
        let mut bytes = [0; 8];
        bytes[..length].copy_from_slice(head.get(at..at.checked_add(length)?)?);
        usize::try_from(u64::from_le_bytes(bytes)).ok()
    };
    head.strip_prefix(b"\x7fELF\x02\x01")?;
    let (table, size, count) = (number(32, 8)?, number(54, 2)?, number(56, 2)?);
    let entry = (0..count).map(|index| table.saturating_add(index * size)).find(|at| number(*at, 4) == Some(3))?;
    let (offset, length) = (number(entry.checked_add(8)?, 8)?, number(entry.checked_add(32)?, 8)?);
    head.get(offset..offset.checked_add(length)?)?.split(|byte| *byte == 0).next()
}

/// The tree of the tool that a file or link belongs to, if that shows no more of a home directory than the tool's own; otherwise the
/// file's directory, or the file alone.
fn tree(file: &Path, home: Option<&Path>) -> PathBuf {
    if file.is_dir() {
        return file.to_owned(); // a link to a directory: a bind at its place shows the target
    }
    let parent = file.parent().unwrap_or(file);
    let is_bin = parent.file_name().is_some_and(|name| ["bin", "sbin", "libexec"].iter().any(|bin| name == *bin));
    let prefix = parent.parent().filter(|_| is_bin);
    if let Some(prefix) = prefix.filter(|prefix| is_tool(prefix, home)) {
        return prefix.to_owned();
    }
    if is_wide(parent, home) { file.to_owned() } else { parent.to_owned() }
}

fn is_tool(prefix: &Path, home: Option<&Path>) -> bool {
    let marked = MARKS.iter().any(|mark| prefix.join(mark).exists());
    let versioned = prefix.parent().into_iter().flat_map(Path::ancestors).take(2);
    let versioned = versioned.filter_map(Path::file_name).any(|name| VERSIONS.iter().any(|known| name == *known));
    let elsewhere = home.is_none_or(|home| !prefix.starts_with(home)) && prefix.starts_with("/opt");
    (marked || versioned || elsewhere) && !is_wide(prefix, home)
}

/// A directory that holds more than one tool: the home, the directories above it, and those directly below `/`.
fn is_wide(directory: &Path, home: Option<&Path>) -> bool {
    home.is_some_and(|home| home.starts_with(directory)) || directory.components().count() <= 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_shows_no_more_of_a_home_than_the_tool() {
        let home = Path::new("/home/me");
        for (file, shown) in [
            ("/home/me/.pyenv/versions/3.12.1/bin/python3.12", "/home/me/.pyenv/versions/3.12.1"),
            ("/home/me/.nvm/versions/node/v20.1.0/bin/node", "/home/me/.nvm/versions/node/v20.1.0"),
            ("/home/me/.rustup/toolchains/stable-x86_64/bin/cargo", "/home/me/.rustup/toolchains/stable-x86_64"),
            ("/home/me/.asdf/installs/ruby/3.3.0/bin/ruby", "/home/me/.asdf/installs/ruby/3.3.0"),
            ("/home/me/.local/share/uv/python/cpython-3.12/bin/python", "/home/me/.local/share/uv/python/cpython-3.12"),
            ("/home/linuxbrew/.linuxbrew/Cellar/jq/1.7/bin/jq", "/home/linuxbrew/.linuxbrew/Cellar/jq/1.7"),
            ("/home/me/.cargo/bin/cargo", "/home/me/.cargo/bin"),
            ("/home/me/.local/bin/tool", "/home/me/.local/bin"),
            ("/home/me/bin/tool", "/home/me/bin"),
            ("/home/me/tool", "/home/me/tool"),
            ("/opt/tool/bin/tool", "/opt/tool"),
            ("/tool", "/tool"),
            ("/data/tool", "/data/tool"),
        ] {
            assert_eq!(tree(Path::new(file), Some(home)), Path::new(shown), "{file}");
        }
    }

    #[test]
    fn an_interpreter_is_what_the_file_names() {
        let elf = std::fs::read("/usr/bin/env").unwrap();
        if let Some(interpreter) = elf_interpreter(&elf[..4096]) {
            assert!(interpreter.starts_with(b"/lib"), "{interpreter:?}");
        }
        for broken in [&b"\x7fELF\x02\x01"[..], &elf[..60], &[0xff; 4096]] {
            assert_eq!(elf_interpreter(broken), None);
        }
    }
}
