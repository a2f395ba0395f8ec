//! `mounts`: turns options into attributes, propagation and options of the file system.

use std::path::Path;

use oci_spec::runtime::Mount;

use super::document::{Read, each, wrong};
use super::namespaces::ranges;
use super::text;
use crate::plan::Bytes;
use crate::plan::container::{ContainerMount, MountSource};
use crate::sys::mount::{NODEV, NOEXEC, NOSUID, RDONLY};

const NOATIME: u64 = libc::MOUNT_ATTR_NOATIME;
const STRICTATIME: u64 = libc::MOUNT_ATTR_STRICTATIME;
const NODIRATIME: u64 = libc::MOUNT_ATTR_NODIRATIME;
const NOSYMFOLLOW: u64 = libc::MOUNT_ATTR_NOSYMFOLLOW;
/// All bits of the access-time setting.
const ATIME: u64 = libc::MOUNT_ATTR__ATIME;

/// Options that are attributes: name, bits to set, bits to clear. With the prefix `r`, each applies to all mounts below too.
const ATTRIBUTES: [(&str, u64, u64); 16] = [
    ("ro", RDONLY, 0),
    ("rw", 0, RDONLY),
    ("nosuid", NOSUID, 0),
    ("suid", 0, NOSUID),
    ("nodev", NODEV, 0),
    ("dev", 0, NODEV),
    ("noexec", NOEXEC, 0),
    ("exec", 0, NOEXEC),
    ("noatime", NOATIME, ATIME),
    ("atime", 0, ATIME),
    ("relatime", 0, ATIME),
    ("strictatime", STRICTATIME, ATIME),
    ("nodiratime", NODIRATIME, 0),
    ("diratime", 0, NODIRATIME),
    ("nosymfollow", NOSYMFOLLOW, 0),
    ("symfollow", 0, NOSYMFOLLOW),
];
/// Other names for attributes.
const OTHER_NAMES: [(&str, u64, u64); 2] = [("norelatime", 0, ATIME), ("nostrictatime", 0, ATIME)];
const PROPAGATION: [(&str, u64); 8] = [
    ("private", libc::MS_PRIVATE),
    ("rprivate", libc::MS_PRIVATE | libc::MS_REC),
    ("slave", libc::MS_SLAVE),
    ("rslave", libc::MS_SLAVE | libc::MS_REC),
    ("shared", libc::MS_SHARED),
    ("rshared", libc::MS_SHARED | libc::MS_REC),
    ("unbindable", libc::MS_UNBINDABLE),
    ("runbindable", libc::MS_UNBINDABLE | libc::MS_REC),
];
/// Options without an effect, because every mount has them or the kernel no longer supports a choice (mandatory locks and inode
/// versions).
const IGNORED: [&str; 7] = ["defaults", "silent", "loud", "mand", "nomand", "iversion", "noiversion"];
/// Options that every file system accepts when it is created, but not when it is bound.
const COMMON_OPTIONS: [&str; 5] = ["sync", "async", "dirsync", "lazytime", "nolazytime"];

/// The propagation flags of an option.
pub fn propagation(name: &str) -> Option<u64> {
    PROPAGATION.iter().find(|(known, _)| *known == name).map(|(_, kind)| *kind)
}

/// Every supported option, for `features`.
pub fn options() -> Vec<String> {
    let recursive = ATTRIBUTES.iter().chain(&OTHER_NAMES).map(|(name, ..)| format!("r{name}"));
    let mut all: Vec<String> = ATTRIBUTES.iter().chain(&OTHER_NAMES).map(|(name, ..)| (*name).to_owned()).collect();
    all.extend(recursive);
    all.extend(PROPAGATION.iter().map(|(name, _)| (*name).to_owned()));
    all.extend(IGNORED.iter().map(|name| (*name).to_owned()));
    all.extend(COMMON_OPTIONS.iter().map(|name| (*name).to_owned()));
    all.extend(["bind", "rbind", "remount", "idmap", "ridmap", "tmpcopyup"].map(str::to_owned));
    all.sort();
    all.dedup();
    all
}

/// Reads all mounts, in order.
pub fn read(list: &Option<Vec<Mount>>, bundle: &Path) -> Read<Vec<ContainerMount>> {
    let mut mounts: Vec<ContainerMount> = Vec::new();
    each("mounts", list, |item| {
        let mount = mount(item, bundle)?;
        if let MountSource::Remount { options } = &mount.source
            && !options.is_empty()
            && !is_new_at(&mounts, &mount.destination)
        {
            // Such an option would also change the file system on the host.
            let reason = "remount has options for the file system, but no earlier mount created a file system there";
            return Err(wrong("", reason));
        }
        mounts.push(mount);
        Ok(())
    })?;
    Ok(mounts)
}

/// Whether the last mount at this destination is a new file system of the container.
fn is_new_at(mounts: &[ContainerMount], destination: &Bytes) -> bool {
    let there = |mount: &&ContainerMount| {
        mount.destination == *destination && !matches!(mount.source, MountSource::Remount { .. })
    };
    let last = mounts.iter().rev().find(there);
    last.is_some_and(|mount| matches!(mount.source, MountSource::FileSystem { .. }))
}

fn mount(entry: &Mount, bundle: &Path) -> Read<ContainerMount> {
    let mut mount = ContainerMount { destination: cleaned(entry.destination())?, ..ContainerMount::default() };
    let mut data: Vec<Bytes> = Vec::new();
    let (mut bind, mut recursive, mut again) = (false, false, false);
    each("options", entry.options(), |option| {
        match option_of(text("", option)?, &mut mount) {
            Effect::Bind { below } => (bind, recursive) = (true, recursive | below),
            Effect::Remount => again = true,
            Effect::Done => {}
            Effect::Data(text) => data.push(Bytes::from(text)),
        }
        Ok(())
    })?;
    let kind = text("type", entry.typ().as_deref().unwrap_or_default())?;
    let source = entry.source().as_ref().map(|source| text("source", source)).transpose()?;
    let source = source.filter(|source| !source.is_empty());
    mount.uid_map = ranges("uidMappings", entry.uid_mappings())?;
    mount.gid_map = ranges("gidMappings", entry.gid_mappings())?;
    mount.idmap |= !mount.uid_map.is_empty() || !mount.gid_map.is_empty();
    mount.source = match kind {
        _ if again && bind => MountSource::Remount { options: Vec::new() },
        _ if again => MountSource::Remount { options: data },
        "cgroup" | "cgroup2" if !bind => MountSource::Cgroup,
        _ if bind || matches!(kind, "bind" | "rbind") => {
            let source = source.ok_or_else(|| wrong("", "a bind mount needs a source"))?;
            // The options of a bound file system cannot be changed here.
            MountSource::Bind { source: Bytes::from(&bundle.join(source)), recursive: recursive || kind == "rbind" }
        }
        "" | "none" => return Err(wrong("", "has neither a type nor the option bind")),
        _ => MountSource::FileSystem { kind: kind.to_owned(), source: source.map(Bytes::from), options: data },
    };
    if mount.idmap && !matches!(mount.source, MountSource::Bind { .. }) {
        return Err(wrong("", "only new bind mounts can be idmapped"));
    }
    if mount.copy_up && !matches!(&mount.source, MountSource::FileSystem { kind, .. } if kind == "tmpfs") {
        return Err(wrong("", "tmpcopyup is for a tmpfs"));
    }
    Ok(mount)
}

enum Effect<'a> {
    Bind {
        below: bool,
    },
    /// Changes the existing mount.
    Remount,
    Done,
    /// An option for the file system.
    Data(&'a str),
}

fn option_of<'a>(name: &'a str, mount: &mut ContainerMount) -> Effect<'a> {
    let find = |name: &str| ATTRIBUTES.iter().chain(&OTHER_NAMES).find(|(known, ..)| *known == name);
    if let Some((_, set, clear)) = find(name) {
        (mount.set, mount.clear) = changed((mount.set, mount.clear), (*set, *clear));
    } else if let Some((_, set, clear)) = name.strip_prefix('r').and_then(find) {
        (mount.set_below, mount.clear_below) = changed((mount.set_below, mount.clear_below), (*set, *clear));
    } else if let Some(kind) = propagation(name) {
        mount.propagation.push(kind);
    } else {
        match name {
            "bind" => return Effect::Bind { below: false },
            "rbind" => return Effect::Bind { below: true },
            "remount" => return Effect::Remount,
            "idmap" => mount.idmap = true,
            "ridmap" => (mount.idmap, mount.idmap_below) = (true, true),
            "tmpcopyup" => mount.copy_up = true,
            "" => {} // buildah writes empty options
            _ if IGNORED.contains(&name) => {}
            _ => return Effect::Data(name),
        }
    }
    Effect::Done
}

/// Applies an option over earlier ones. Access times are one number, of which all bits are cleared first.
fn changed((set, clear): (u64, u64), (more, less): (u64, u64)) -> (u64, u64) {
    (set & !less | more, clear & !(more & !ATIME) | less)
}

/// The destination within the root, without `.` and `..`. A `..` at the root stays at the root.
fn cleaned(path: &Path) -> Read<Bytes> {
    let text = text("destination", path)?;
    if text.len() > 4095 {
        return Err(wrong("destination", "is longer than a path can be"));
    }
    let mut parts: Vec<&str> = Vec::new();
    for part in text.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    if parts.is_empty() {
        return Err(wrong("destination", "is the root itself"));
    }
    Ok(Bytes::from(&format!("/{}", parts.join("/"))))
}
