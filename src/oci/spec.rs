//! `spec`: writes a new `config.json`.

use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;

use nix::unistd::{getegid, geteuid};
use serde_json::{Value, json};

use super::Runtime;
use crate::error::{Error, Result, Step};
use crate::plan::container::OCI_VERSION;

/// Writes it into the bundle. Fails if the file exists.
pub fn spec(runtime: &Runtime) -> Result<u8> {
    runtime.args.at_most(0)?;
    let path = runtime.bundle()?.join(runtime.args.path("file").unwrap_or_else(|| "config.json".into()));
    let text = serde_json::to_string_pretty(&default_config(runtime.args.is_on("rootless"))).unwrap_or_default();
    let file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o644).open(&path);
    let written = file.and_then(|mut file| file.write_all(format!("{text}\n").as_bytes()));
    written.map(|()| 0).map_err(|error| Error::io(Step::Config, path.display().to_string(), &error))
}

fn default_config(rootless: bool) -> Value {
    let capabilities = ["CAP_AUDIT_WRITE", "CAP_KILL", "CAP_NET_BIND_SERVICE"];
    let sets = json!({ "bounding": capabilities, "effective": capabilities, "permitted": capabilities });
    let mount = |destination: &str, kind: &str, options: &[&str]| json!({ "destination": destination, "type": kind, "source": kind, "options": options });
    let mut pts = vec!["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"];
    if !rootless {
        pts.push("gid=5");
    }
    let sys = match rootless {
        true => json!({ "destination": "/sys", "type": "none", "source": "/sys",
            "options": ["rbind", "nosuid", "noexec", "nodev", "ro"] }),
        false => mount("/sys", "sysfs", &["nosuid", "noexec", "nodev", "ro"]),
    };
    let mut mounts = vec![
        mount("/proc", "proc", &[]),
        mount("/dev", "tmpfs", &["nosuid", "strictatime", "mode=755", "size=65536k"]),
        mount("/dev/pts", "devpts", &pts),
        mount("/dev/shm", "tmpfs", &["nosuid", "noexec", "nodev", "mode=1777", "size=65536k"]),
        mount("/dev/mqueue", "mqueue", &["nosuid", "noexec", "nodev"]),
        sys,
    ];
    if !rootless {
        mounts.push(mount("/sys/fs/cgroup", "cgroup", &["nosuid", "noexec", "nodev", "relatime", "ro"]));
    }
    let mut kinds = vec!["pid", "network", "ipc", "uts", "mount", "cgroup"];
    let mut linux = json!({
        "resources": { "devices": [{ "allow": false, "access": "rwm" }] },
        "maskedPaths": ["/proc/acpi", "/proc/asound", "/proc/kcore", "/proc/keys", "/proc/latency_stats",
            "/proc/timer_list", "/proc/timer_stats", "/proc/sched_debug", "/sys/firmware", "/proc/scsi"],
        "readonlyPaths": ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"],
    });
    if rootless {
        kinds.retain(|kind| *kind != "network");
        kinds.push("user");
        let map = |id: u32| json!([{ "containerID": 0, "hostID": id, "size": 1 }]);
        linux["uidMappings"] = map(geteuid().as_raw());
        linux["gidMappings"] = map(getegid().as_raw());
        linux["resources"] = json!({});
    }
    linux["namespaces"] = kinds.iter().map(|kind| json!({ "type": kind })).collect();
    json!({
        "ociVersion": OCI_VERSION,
        "process": {
            "terminal": true,
            "user": { "uid": 0, "gid": 0 },
            "args": ["sh"],
            "env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "TERM=xterm"],
            "cwd": "/",
            "capabilities": sets,
            "rlimits": [{ "type": "RLIMIT_NOFILE", "hard": 1024, "soft": 1024 }],
            "noNewPrivileges": true,
        },
        "root": { "path": "rootfs", "readonly": true },
        "hostname": "stockade",
        "mounts": mounts,
        "linux": linux,
    })
}
