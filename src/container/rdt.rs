//! Cache and memory bandwidth allocation: the container's group in `resctrl`, `Documentation/filesystems/resctrl.rst`.
//!
//! Parent half only. The state directory records each group before it is created.

use std::fs;
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use nix::sys::statfs::FsType;
use nix::unistd::Pid;

use crate::error::{Error, Result, Step};
use crate::plan::container::IntelRdt;
use crate::sys::mountinfo;

/// `RDTGROUP_SUPER_MAGIC`.
const MAGIC: FsType = FsType(0x0765_5821);

/// A file in the state directory: the groups that were created, one per line, the innermost first.
const NOTES: &str = "resctrl";

/// Moves the process into its groups, if it gets any, after creating and configuring them. `id` is the container's, `notes` its state
/// directory.
pub fn enter(wanted: Option<&IntelRdt>, id: &str, pid: Pid, notes: &Path) -> Result<()> {
    let Some(wanted) = wanted else { return Ok(()) };
    let root = find()?;
    let group = match wanted.clos_id.as_deref() {
        Some("/") => root,
        name => root.join(name.unwrap_or(id)),
    };
    let existed = group.is_dir();
    let has_lines = !wanted.schemas.is_empty() || !wanted.schemata.is_empty();
    if !existed && wanted.clos_id.is_some() && !has_lines {
        return Err(Error::new(Step::Rdt, shown(&group), "does not exist, and no schemata is configured for it")
            .hint("create it first, or set linux.intelRdt.schemata"));
    }
    let monitored = wanted.monitored.then(|| group.join("mon_groups").join(id));
    let made = monitored.iter().chain((!existed).then_some(&group));
    let text: String = made.map(|path| format!("{}\n", shown(path))).collect();
    if !text.is_empty() {
        fs::write(notes.join(NOTES), text).map_err(|error| failed(&notes.join(NOTES), &error))?;
    }
    let schemata = group.join("schemata");
    if existed {
        let current = fs::read_to_string(&schemata).map_err(|error| failed(&schemata, &error))?;
        if let Some(line) = wanted.schemas.iter().find(|line| !agrees(&current, line)) {
            let reason = format!("an existing group has other values than {line:?}");
            return Err(Error::new(Step::Rdt, shown(&schemata), reason));
        }
    } else {
        fs::create_dir(&group).map_err(|error| failed(&group, &error))?;
        write_lines(&schemata, &wanted.schemas)?;
    }
    write_lines(&schemata, &wanted.schemata)?;
    add(&group, pid)?;
    if let Some(monitored) = monitored {
        match fs::create_dir(&monitored) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(failed(&monitored, &error)),
            _ => {}
        }
        add(&monitored, pid)?;
    }
    Ok(())
}

/// Removes the groups that were created for a container.
pub fn remove(notes: &Path) -> Result<()> {
    let Ok(text) = fs::read_to_string(notes.join(NOTES)) else { return Ok(()) };
    for path in text.lines().map(Path::new) {
        match fs::remove_dir(path) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(failed(path, &error)),
            _ => {}
        }
    }
    Ok(())
}

/// The mount point of resctrl.
fn find() -> Result<PathBuf> {
    let mounts = fs::read(mountinfo::OWN).unwrap_or_default();
    let place = mountinfo::parse(&mounts).find(|mount| mount.kind == "resctrl").map(|mount| mount.point());
    let missing = || {
        Error::new(Step::Rdt, "linux.intelRdt", "no resctrl file system is mounted on this host").hint(
            "leave linux.intelRdt out, or mount one where the CPU has it: mount -t resctrl resctrl /sys/fs/resctrl",
        )
    };
    let place = place.ok_or_else(missing)?;
    let kind = nix::sys::statfs::statfs(&place).map(|found| found.filesystem_type());
    if kind == Ok(MAGIC) { Ok(place) } else { Err(missing()) }
}

fn write_lines(schemata: &Path, lines: &[String]) -> Result<()> {
    for line in lines {
        // One write per line: the kernel applies a write completely or not at all, and explains a failure in last_cmd_status.
        let written = fs::OpenOptions::new().write(true).open(schemata).and_then(|mut file| writeln!(file, "{line}"));
        written.map_err(|error| failed(schemata, &error).hint("info/last_cmd_status of resctrl gives the reason"))?;
    }
    if lines.is_empty() {
        return Ok(());
    }
    let current = fs::read_to_string(schemata).map_err(|error| failed(schemata, &error))?;
    match lines.iter().find(|line| !agrees(&current, line)) {
        None => Ok(()),
        Some(line) => Err(Error::new(Step::Rdt, shown(schemata), format!("does not contain {line:?} after the write"))),
    }
}

/// Whether a `schemata` file has the values that a line requests, for the domains in that line.
fn agrees(current: &str, line: &str) -> bool {
    let Some((resource, wanted)) = parts(line) else { return false };
    let rows: Vec<_> = current.lines().filter_map(parts).filter(|(name, _)| *name == resource).collect();
    wanted.iter().all(|pair| rows.iter().any(|(_, domains)| domains.contains(pair)))
}

/// The resource of a line, and its domains with their values: hexadecimal masks, except for bandwidth.
fn parts(line: &str) -> Option<(&str, Vec<(u64, u64)>)> {
    let (resource, domains) = line.trim().split_once(':')?;
    let radix = if resource.starts_with("MB") || resource.starts_with("SMBA") { 10 } else { 16 };
    let pair = |domain: &str| {
        let (id, value) = domain.split_once('=')?;
        Some((id.trim().parse().ok()?, u64::from_str_radix(value.trim().trim_start_matches("0x"), radix).ok()?))
    };
    Some((resource.trim(), domains.split(';').map(pair).collect::<Option<_>>()?))
}

fn add(group: &Path, pid: Pid) -> Result<()> {
    let tasks = group.join("tasks");
    fs::write(&tasks, pid.to_string()).map_err(|error| failed(&tasks, &error))
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

fn failed(path: &Path, error: &std::io::Error) -> Error {
    Error::io(Step::Rdt, shown(path), error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_existing_group_agrees_with_its_own_schemata() {
        let current = "    MB:0=100;1= 70\n    L3:0=ff;1=0f\n";
        for line in ["L3:0=ff", "L3:1=f", "L3:0=0xff;1=f", "MB:1=70", "MB:0=100;1=70"] {
            assert!(agrees(current, line), "{line}");
        }
        for line in ["L3:0=f", "L3:2=ff", "L2:0=ff", "MB:0=70", "L3", "L3:0=x", "MB:0=ff"] {
            assert!(!agrees(current, line), "{line}");
        }
    }

    #[test]
    fn only_recorded_groups_are_removed() {
        let directory = std::env::temp_dir().join(format!("stockade-rdt-{}", std::process::id()));
        fs::create_dir_all(directory.join("made")).unwrap();
        remove(&directory).unwrap();
        assert!(directory.join("made").is_dir());
        fs::write(directory.join(NOTES), format!("{}\n", directory.join("made").display())).unwrap();
        remove(&directory).unwrap();
        assert!(!directory.join("made").exists());
        remove(&directory).unwrap();
        fs::remove_dir_all(&directory).unwrap();
    }
}
