//! Files of the host that runs rely on.

use std::fs::symlink_metadata;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use nix::sys::stat::makedev;
use nix::sys::statfs::{PROC_SUPER_MAGIC, statfs};
use nix::unistd::{AccessFlags, access};

use super::trial::words;
use super::{Finding, Group, Patient, Subject};

const fn subject(name: &'static str, title: &'static str, without: &'static str) -> Subject {
    Subject { name, group: Group::Host, title, required: true, without }
}

const PROC: Subject = subject("proc", "/proc of the caller", "no run is possible");
const DEVICES: Subject = subject("devices", "device nodes in /dev", "default runs are refused");
const PROGRAMS: Subject =
    subject("programs", "programs and libraries in /usr", "runs without --rootfs find no programs");

pub(super) fn examine(patient: &Patient) -> Vec<Finding> {
    vec![proc(), devices(), programs(patient)]
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

/// What runs get in their /dev, Documentation/admin-guide/devices.txt.
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
        None => DEVICES.ok("null, zero, full, random, urandom and tty are what they are called"),
        Some((path, major, minor)) => DEVICES
            .missing(format!("{path} is not the character device {major}:{minor}"))
            .remedy(format!("rm -f {path}; mknod -m 666 {path} c {major} {minor}  # as root")),
    }
}

/// A run of root is another user than root: what others may read counts then.
fn programs(patient: &Patient) -> Finding {
    let readable = |path: &str| {
        if patient.privileged {
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
