//! Files of the host that runs need.

use std::fs::symlink_metadata;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use caps::{CapSet, Capability};
use nix::sys::stat::makedev;
use nix::sys::statfs::{PROC_SUPER_MAGIC, statfs};
use nix::unistd::{AccessFlags, access};

use super::trial::words;
use super::{Finding, Group, Probe, Subject};
use crate::confine::process::core_helper;
use crate::plan::RlimitResource;
use crate::sys::process::rlimit;

const fn subject(name: &'static str, title: &'static str, without: &'static str) -> Subject {
    Subject { name, group: Group::Host, title, required: true, without }
}

const PROC: Subject = subject("proc", "/proc of the caller", "no run is possible");
const DEVICES: Subject = subject("devices", "device nodes in /dev", "default runs are refused");
const PROGRAMS: Subject =
    subject("programs", "programs and libraries in /usr", "runs without --rootfs find no programs");

const CRASHES: Subject = Subject {
    required: false,
    ..subject("core_pattern", "core dump helper of the host", "a crash in a sandbox starts a program on the host")
};

pub(super) fn examine(probe: &Probe) -> Vec<Finding> {
    vec![proc(), devices(), programs(probe), crashes(probe)]
}

/// The kernel starts the helper of `core_pattern` as root, outside of the sandbox, `core(5)`.
fn crashes(probe: &Probe) -> Finding {
    const REMEDY: &str = "sysctl -w kernel.core_pattern=core  # as root; keep it in /etc/sysctl.d";
    let Some(pattern) = core_helper() else { return CRASHES.ok("none: core_pattern names a file") };
    let detail = format!("core_pattern is {pattern:?}");
    if pattern.starts_with('@') {
        let consequence = "no limit prevents it: every crash in runs and containers is sent to this socket";
        return CRASHES.degraded(detail, consequence).remedy(REMEDY);
    }
    let can_raise =
        probe.privileged && caps::has_cap(None, CapSet::Effective, Capability::CAP_SYS_RESOURCE).unwrap_or(false);
    if !can_raise && rlimit(RlimitResource::Core.number()).is_ok_and(|(_, hard)| hard == 0) {
        let consequence = "the hard limit on core files is 0 here, with which every crash in a sandbox starts it; with 1 it \
                           is not started";
        return CRASHES
            .degraded(detail, consequence)
            .remedy("ulimit -Hc 1  # where the limit is set: limits.conf, LimitCORE=");
    }
    let consequence = "crashes in `stockade run` do not start it; crashes in containers of stockade-oci do, unless their \
                       configuration sets RLIMIT_CORE to 1";
    CRASHES.degraded(detail, consequence).remedy(REMEDY)
}

fn proc() -> Finding {
    const REMEDY: &str = "mount -t proc proc /proc  # as root";
    match statfs("/proc") {
        Ok(found) if found.filesystem_type() == PROC_SUPER_MAGIC && Path::new("/proc/self/status").exists() => {
            PROC.ok("is a procfs and shows this process")
        }
        Ok(found) if found.filesystem_type() == PROC_SUPER_MAGIC => {
            PROC.missing("is a procfs of another pid namespace: it does not show this process").remedy(REMEDY)
        }
        Ok(_) => PROC.missing("is not a procfs").remedy(REMEDY),
        Err(errno) => PROC.missing(words(errno)).remedy(REMEDY),
    }
}

/// The device nodes in a run's /dev, Documentation/admin-guide/devices.txt.
const NODES: [(&str, u64, u64); 6] = [
    ("/dev/null", 1, 3),
    ("/dev/zero", 1, 5),
    ("/dev/full", 1, 7),
    ("/dev/random", 1, 8),
    ("/dev/urandom", 1, 9),
    ("/dev/tty", 5, 0),
];

fn devices() -> Finding {
    let is_right = |path: &str, major, minor| {
        symlink_metadata(path)
            .is_ok_and(|found| found.file_type().is_char_device() && found.rdev() == makedev(major, minor))
    };
    match NODES.iter().find(|(path, major, minor)| !is_right(path, *major, *minor)) {
        None => DEVICES.ok("null, zero, full, random, urandom and tty have the right device numbers"),
        Some((path, major, minor)) => DEVICES
            .missing(format!("{path} is not the character device {major}:{minor}"))
            .remedy(format!("rm -f {path}; mknod -m 666 {path} c {major} {minor}  # as root")),
    }
}

/// A run of root uses another user id, so the permissions of others apply.
fn programs(probe: &Probe) -> Finding {
    let readable = |path: &str| {
        if probe.privileged {
            let others = Path::new(path).metadata().is_ok_and(|found| found.permissions().mode() & 0o5 == 0o5);
            return if others { Ok(()) } else { Err(nix::errno::Errno::EACCES) };
        }
        access(path, AccessFlags::R_OK | AccessFlags::X_OK)
    };
    for path in ["/usr", "/usr/bin", "/usr/lib", "/bin/sh"] {
        if let Err(errno) = readable(path) {
            return PROGRAMS
                .missing(format!("{path}: {}", words(errno)))
                .remedy(format!("chmod o+rx {path}  # as root"));
        }
    }
    PROGRAMS.ok("readable for runs")
}
