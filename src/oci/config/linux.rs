//! The rest of `linux`: masked and read-only paths, devices, network devices, kernel parameters, seccomp.

use std::collections::HashMap;
use std::path::PathBuf;

use oci_spec::runtime::{Linux, LinuxDevice, LinuxDeviceType, LinuxNetDevice};

use super::document::{Read, Within as _, each, entries, wrong};
use super::{absolute, filled, id, mounts, ranged, rdt, schedule, text};
use crate::plan::container::{Device, NamespaceKind, NetDevice, Sysctl};
use crate::plan::{Bytes, ContainerPlan};

/// The default device nodes of every container, with their numbers.
const DEFAULT_DEVICES: [(&str, u32, u32); 6] = [
    ("/dev/null", 1, 3),
    ("/dev/zero", 1, 5),
    ("/dev/full", 1, 7),
    ("/dev/random", 1, 8),
    ("/dev/urandom", 1, 9),
    ("/dev/tty", 5, 0),
];

/// Kernel parameters of an IPC namespace, `sysctl/kernel.rst`.
const IPC: [&str; 8] = ["msgmax", "msgmnb", "msgmni", "sem", "shmall", "shmmax", "shmmni", "shm_rmid_forced"];

/// Reads these parts into the plan.
pub fn read(linux: &Linux, plan: &mut ContainerPlan) -> Read<()> {
    plan.devices = devices(linux.devices())?;
    plan.sysctl = sysctl(linux.sysctl(), plan)?;
    plan.personality = linux.personality().as_ref().map(schedule::personality).transpose().within("personality")?;
    plan.memory_policy =
        linux.memory_policy().as_ref().map(schedule::memory_policy).transpose().within("memoryPolicy")?;
    plan.mount_label = filled("mountLabel", linux.mount_label())?;
    plan.net_devices = net_devices(linux.net_devices(), plan)?;
    plan.intel_rdt = linux.intel_rdt().as_ref().map(rdt::read).transpose().within("intelRdt")?;
    if let Some(name) = linux.rootfs_propagation().as_ref().filter(|name| !name.is_empty()) {
        let reason = "is not one of private, slave, shared and unbindable";
        plan.root_propagation = mounts::propagation(name).ok_or_else(|| wrong("rootfsPropagation", reason))?;
    }
    plan.confinement.masked_paths = paths("maskedPaths", linux.masked_paths())?;
    plan.confinement.readonly_paths = paths("readonlyPaths", linux.readonly_paths())?;
    Ok(())
}

/// Paths in the container, each once. A relative one begins at its root, as with runc and crun.
fn paths(field: &str, list: &Option<Vec<String>>) -> Read<Vec<Bytes>> {
    let mut paths = Vec::new();
    each(field, list, |path| {
        let path = if path.starts_with('/') { absolute("", path)? } else { absolute("", &format!("/{path}"))? };
        if path.as_bytes() == b"/" {
            return Err(wrong("", "must name a path below the root"));
        }
        if !paths.contains(&path) {
            paths.push(path);
        }
        Ok(())
    })?;
    Ok(paths)
}

fn devices(list: &Option<Vec<LinuxDevice>>) -> Read<Vec<Device>> {
    let mut devices: Vec<Device> = Vec::new();
    each("devices", list, |item| {
        let device = device(item)?;
        if devices.iter().any(|other| other.path == device.path) {
            return Err(wrong("", "has the same path as another device"));
        }
        devices.push(device);
        Ok(())
    })?;
    for (path, major, minor) in DEFAULT_DEVICES {
        if !devices.iter().any(|device| device.path.as_bytes() == path.as_bytes()) {
            let path = Bytes::from(path);
            devices.push(Device { path, kind: libc::S_IFCHR, major, minor, mode: 0o666, uid: 0, gid: 0 });
        }
    }
    Ok(devices)
}

fn device(device: &LinuxDevice) -> Read<Device> {
    let kind = match device.typ() {
        LinuxDeviceType::C | LinuxDeviceType::U => libc::S_IFCHR,
        LinuxDeviceType::B => libc::S_IFBLK,
        LinuxDeviceType::P => libc::S_IFIFO,
        LinuxDeviceType::A => return Err(wrong("type", "is not one of c, u, b and p")),
    };
    let path = absolute("path", device.path())?;
    if text("path", device.path())?.split('/').any(|part| part == "..") {
        return Err(wrong("path", "contains \"..\""));
    }
    Ok(Device {
        // Without a trailing slash, empty components and ".".
        path: Bytes::from(&path.as_path().components().collect::<PathBuf>()),
        kind,
        major: ranged("major", device.major(), 0..=0xfff)?,
        minor: ranged("minor", device.minor(), 0..=0xf_ffff)?,
        mode: device.file_mode().unwrap_or(0o666) & 0o777,
        uid: id("uid", device.uid().unwrap_or(0))?,
        gid: id("gid", device.gid().unwrap_or(0))?,
    })
}

/// Checks names like the kernel's `dev_valid_name`. A new name may contain one `%d`, for which the kernel chooses a number.
fn net_devices(map: &Option<HashMap<String, LinuxNetDevice>>, plan: &ContainerPlan) -> Read<Vec<NetDevice>> {
    let valid = |name: &str| {
        let odd = |c: char| c == '/' || c == ':' || c.is_whitespace() || c.is_control();
        (1..16).contains(&name.len()) && !matches!(name, "." | "..") && !name.contains(odd)
    };
    let mut devices: Vec<NetDevice> = Vec::new();
    entries("netDevices", map, |host, device| {
        let name = filled("name", device.name())?.unwrap_or_else(|| host.to_owned());
        if !valid(host) || host.contains('%') {
            return Err(wrong("", format!("{host:?} is not a network device name")));
        }
        if !valid(&name) || name.replacen("%d", "", 1).contains('%') {
            return Err(wrong("", format!("name {name:?} is not a network device name")));
        }
        if !name.contains('%') && devices.iter().any(|other| other.name == name) {
            return Err(wrong("", format!("name {name:?} is used for another device too")));
        }
        devices.push(NetDevice { host: host.to_owned(), name });
        Ok(())
    })?;
    if !devices.is_empty() && !plan.has_own(NamespaceKind::Network) {
        return Err(wrong("netDevices", "need a network namespace of the container's own"));
    }
    Ok(devices)
}

fn sysctl(map: &Option<HashMap<String, String>>, plan: &ContainerPlan) -> Read<Vec<Sysctl>> {
    entries("sysctl", map, |name, value| {
        let path = path_of(name);
        let needed = match path.split('/').collect::<Vec<_>>().as_slice() {
            ["kernel", name] if IPC.contains(name) => NamespaceKind::Ipc,
            ["fs", "mqueue", _] => NamespaceKind::Ipc,
            ["kernel", "domainname"] if plan.domainname.is_none() => NamespaceKind::Uts,
            // Also without the field: tools and hooks believe that it has the name.
            ["kernel", field @ ("hostname" | "domainname")] => {
                return Err(wrong("", format!("is not allowed as it conflicts with the OCI {field:?} field")));
            }
            ["net", _, ..] => NamespaceKind::Network,
            _ => return Err(wrong("", "is not a kernel parameter of a namespace")),
        };
        if path.split('/').any(|part| matches!(part, "" | "." | "..")) {
            return Err(wrong("", "is not a kernel parameter name"));
        }
        if !plan.has_own(needed) {
            let reason = format!(
                "needs a {} namespace of the container's own, because it would change the host otherwise",
                needed.name()
            );
            return Err(wrong("", reason));
        }
        let value = text("", value)?;
        if value.len() > 4000 || value.chars().any(|c| c.is_control() && c != '\t') {
            return Err(wrong("", "is not a kernel parameter value"));
        }
        Ok(Sysctl { path, value: value.to_owned() })
    })
}

/// Converts a name to a path. As in `sysctl(8)`, the first `.` or `/` in the name is its separator.
fn path_of(name: &str) -> String {
    match name.find(['.', '/']) {
        Some(at) if name.as_bytes()[at] == b'.' => name
            .chars()
            .map(|c| {
                if c == '.' {
                    '/'
                } else if c == '/' {
                    '.'
                } else {
                    c
                }
            })
            .collect(),
        _ => name.to_owned(),
    }
}
