//! The rest of `linux`: masked and read-only paths, devices, network devices, kernel parameters, seccomp.

use sha2::{Digest as _, Sha256};
use stockade_json::At;

use super::{Read, absolute, id, mounts, rdt, schedule, small, text, unsigned, without_nul};
use crate::plan::container::{Device, NamespaceKind, NetDevice, Sysctl};
use crate::plan::{Bytes, ContainerPlan, Seccomp, SeccompProfile, hex};

/// Nodes that every container has, with their numbers.
const USUAL: [(&str, u32, u32); 6] = [
    ("/dev/null", 1, 3),
    ("/dev/zero", 1, 5),
    ("/dev/full", 1, 7),
    ("/dev/random", 1, 8),
    ("/dev/urandom", 1, 9),
    ("/dev/tty", 5, 0),
];

/// Kernel parameters of an IPC namespace, `sysctl/kernel.rst`.
const IPC: [&str; 8] = ["msgmax", "msgmnb", "msgmni", "sem", "shmall", "shmmax", "shmmni", "shm_rmid_forced"];

/// Reads it.
pub fn read(linux: &At, plan: &mut ContainerPlan, has_hostname: bool) -> Read<()> {
    plan.devices = devices(linux)?;
    plan.sysctl = sysctl(linux, plan, has_hostname)?;
    plan.personality = schedule::personality(linux)?;
    plan.memory_policy = schedule::memory_policy(linux)?;
    plan.mount_label = text(linux, "mountLabel")?.filter(|label| !label.is_empty());
    plan.net_devices = net_devices(linux, plan)?;
    plan.intel_rdt = linux.get("intelRdt")?.map(|at| rdt::read(&at)).transpose()?;
    if let Some(at) = linux.get("rootfsPropagation")?
        && !at.text()?.is_empty()
    {
        let kind = mounts::propagation(at.text()?);
        plan.root_propagation = kind.ok_or_else(|| at.wrong("is none of private, slave, shared, unbindable"))?;
    }
    plan.confinement.masked_paths = paths(linux, "maskedPaths")?;
    plan.confinement.readonly_paths = paths(linux, "readonlyPaths")?;
    plan.confinement.seccomp = linux.get("seccomp")?.map(|at| seccomp(&at)).transpose()?;
    Ok(())
}

fn paths(linux: &At, key: &str) -> Read<Vec<Bytes>> {
    let Some(list) = linux.get(key)? else { return Ok(Vec::new()) };
    list.items()?.map(|item| absolute(&item)).collect()
}

fn seccomp(at: &At) -> Read<Seccomp> {
    let text = at.json.to_string();
    let sha256 = hex(&Sha256::digest(&text));
    Ok(Seccomp { profile: SeccompProfile::Inline(text), sha256, allow: Vec::new(), strict: false })
}

fn devices(linux: &At) -> Read<Vec<Device>> {
    let mut devices: Vec<Device> = Vec::new();
    if let Some(list) = linux.get("devices")? {
        for item in list.items()? {
            let device = device(&item)?;
            if devices.iter().any(|other| other.path == device.path) {
                return Err(item.lacks("is at the same path as another device"));
            }
            devices.push(device);
        }
    }
    for (path, major, minor) in USUAL {
        if !devices.iter().any(|device| device.path.as_bytes() == path.as_bytes()) {
            let path = Bytes::from(path);
            devices.push(Device { path, kind: libc::S_IFCHR, major, minor, mode: 0o666, uid: 0, gid: 0 });
        }
    }
    Ok(devices)
}

fn device(at: &At) -> Read<Device> {
    let kind = at.get("type")?.ok_or_else(|| at.lacks("type is missing"))?;
    let path = at.get("path")?.ok_or_else(|| at.lacks("path is missing"))?;
    let bits = match kind.text()? {
        "c" | "u" => libc::S_IFCHR,
        "b" => libc::S_IFBLK,
        "p" => libc::S_IFIFO,
        _ => return Err(kind.wrong("is none of c, u, b and p")),
    };
    if without_nul(&path)?.split('/').any(|part| part == "..") {
        return Err(path.wrong("has \"..\" in it"));
    }
    let number = |key, most| unsigned(at, key, most).map(|number| number.unwrap_or(0) as u32);
    Ok(Device {
        path: absolute(&path)?,
        kind: bits,
        major: number("major", 0xfff)?,
        minor: number("minor", 0xf_ffff)?,
        mode: small(at, "fileMode")?.unwrap_or(0o666) & 0o777,
        uid: id(at, "uid")?,
        gid: id(at, "gid")?,
    })
}

/// Names are as `dev_valid_name` of the kernel has them, with one `%d` where it may choose.
fn net_devices(linux: &At, plan: &ContainerPlan) -> Read<Vec<NetDevice>> {
    let Some(at) = linux.get("netDevices")? else { return Ok(Vec::new()) };
    let valid = |name: &str| {
        let odd = |c: char| c == '/' || c == ':' || c.is_whitespace() || c.is_control();
        (1..16).contains(&name.len()) && !matches!(name, "." | "..") && !name.contains(odd)
    };
    let mut devices: Vec<NetDevice> = Vec::new();
    for (host, device) in at.entries()? {
        let given = text(&device, "name")?.filter(|name| !name.is_empty());
        let name = given.unwrap_or_else(|| host.to_owned());
        if !valid(host) || host.contains('%') {
            return Err(device.lacks(format!("{host:?} is no name of a network device")));
        }
        if !valid(&name) || name.replacen("%d", "", 1).contains('%') {
            return Err(device.lacks(format!("name {name:?} is no name of a network device")));
        }
        if !name.contains('%') && devices.iter().any(|other| other.name == name) {
            return Err(device.lacks(format!("name {name:?} is another device's too")));
        }
        devices.push(NetDevice { host: host.to_owned(), name });
    }
    if !devices.is_empty() && !plan.has_own(NamespaceKind::Network) {
        return Err(at.lacks("need an own network namespace to be moved to"));
    }
    Ok(devices)
}

fn sysctl(linux: &At, plan: &ContainerPlan, has_hostname: bool) -> Read<Vec<Sysctl>> {
    let Some(at) = linux.get("sysctl")? else { return Ok(Vec::new()) };
    let mut all = Vec::new();
    for (name, value) in at.entries()? {
        let path = path_of(name);
        let needed = match path.split('/').collect::<Vec<_>>().as_slice() {
            ["kernel", name] if IPC.contains(name) => NamespaceKind::Ipc,
            ["fs", "mqueue", _] => NamespaceKind::Ipc,
            ["kernel", "domainname"] => NamespaceKind::Uts,
            ["kernel", "hostname"] if has_hostname => {
                return Err(value.lacks("contradicts hostname, which says the same"));
            }
            ["kernel", "hostname"] => NamespaceKind::Uts,
            ["net", _, ..] => NamespaceKind::Network,
            _ => return Err(value.lacks("is not a kernel parameter that a namespace has of its own")),
        };
        if path.split('/').any(|part| matches!(part, "" | "." | "..")) {
            return Err(value.lacks("is no name of a kernel parameter"));
        }
        if !plan.has_own(needed) {
            let reason = format!("needs an own {} namespace, or it would be the host's", needed.name());
            return Err(value.lacks(reason));
        }
        let text = without_nul(&value)?;
        if text.len() > 4000 || text.chars().any(|c| c.is_control() && c != '\t') {
            return Err(value.wrong("is no value of a kernel parameter"));
        }
        all.push(Sysctl { path, value: text.to_owned() });
    }
    Ok(all)
}

/// With slashes, as `sysctl(8)` reads names: the first separator says which of `.` and `/` is one.
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
