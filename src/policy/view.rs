//! The view of the host: the mounts below `/` without `--rootfs`, and the mounts on top of a root that `--rootfs` names.
//!
//! Each mount delays every start by microseconds. So symlinks and small files are copied instead of bound. The view shows no part
//! of the caller's home, `/run`, `/var` or the network.

use stockade_egress::layout::NAME_SERVER;

use super::etc;
use crate::plan::{Bytes, IdMapping, Identity, Mount, MountKind, Network};

/// Symlinks into /usr on most systems, directories on others.
const TOP: &[&str] = &["/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"];

const VAR_TMP: &str = "/var/tmp";

/// The inputs of the view.
pub struct Surroundings<'a> {
    /// The workload's user.
    pub identity: &'a Identity,
    /// Its host name.
    pub hostname: &'a str,
    /// The network.
    pub network: Network,
    /// Whether /proc shows processes only.
    pub pid_only: bool,
    /// Whether there is a sysfs.
    pub sysfs: bool,
    /// The requested device nodes.
    pub devices: &'a [Bytes],
}

/// The mounts of the synthetic root, in order.
pub fn synthetic(around: &Surroundings<'_>) -> Vec<Mount> {
    let mut mounts = vec![Mount { kind: MountKind::Bind { source: "/usr".into() }, ..read_only("/usr") }];
    mounts.extend(TOP.iter().map(|path| as_host(path)));
    mounts.extend(etc::PARTS.iter().map(|name| as_host(&format!("/etc/{name}"))));
    mounts.extend(generated(around));
    mounts.extend(common(around));
    // A symlink to /tmp, because a mount would delay the start.
    mounts.push(Mount { kind: MountKind::Symlink { target: "../tmp".into() }, ..read_only(VAR_TMP) });
    mounts
}

/// The mounts on top of a given root. Its /etc stays as it is.
pub fn on_rootfs(around: &Surroundings<'_>) -> Vec<Mount> {
    common(around)
}

/// A mount point cannot lie below a symlink: `/var/tmp` becomes scratch space, as `/tmp` is.
pub fn make_directory(part: &mut Mount) {
    if part.destination == VAR_TMP.into() {
        (part.kind, part.read_only) = (MountKind::Scratch { mode: 0o1777 }, false);
    }
}

fn common(around: &Surroundings<'_>) -> Vec<Mount> {
    let scratch = |path: &str, mode| Mount { kind: MountKind::Scratch { mode }, read_only: false, ..read_only(path) };
    let mut mounts = vec![
        Mount {
            kind: MountKind::Proc { pid_only: around.pid_only },
            read_only: false,
            noexec: true,
            ..read_only("/proc")
        },
        Mount {
            kind: MountKind::Dev { devices: around.devices.to_vec() },
            read_only: false,
            noexec: true,
            ..read_only("/dev")
        },
        Mount { noexec: true, ..scratch("/dev/shm", 0o1777) },
        scratch("/tmp", 0o1777),
    ];
    if around.sysfs {
        mounts.push(Mount { kind: MountKind::Sysfs, noexec: true, ..read_only("/sys") });
    }
    mounts.push(Mount { kind: MountKind::Cgroup, noexec: true, ..read_only("/sys/fs/cgroup") });
    // A home that is one of these directories, such as /tmp, is not mounted again.
    if mounts.iter().all(|mount| mount.destination != around.identity.home) {
        mounts.push(Mount { destination: around.identity.home.clone(), ..scratch("/", 0o700) });
    }
    mounts
}

/// The generated files of /etc: users, groups, host name and name resolution.
fn generated(around: &Surroundings<'_>) -> Vec<Mount> {
    let (host, egress) = (around.network == Network::Host, around.network == Network::Egress);
    let (passwd, group) = accounts(around.identity);
    let hosts = format!("127.0.0.1\tlocalhost {0}\n::1\tlocalhost {0}\n", around.hostname);
    let nsswitch = format!(
        "passwd: files\ngroup: files\nshadow: files\nhosts: files{}\nservices: files\nprotocols: files\nnetworks: files\n",
        if host || egress { " dns" } else { "" }
    );
    let mut mounts = vec![
        file("/etc/passwd", passwd),
        file("/etc/group", group),
        file("/etc/hostname", format!("{}\n", around.hostname)),
        file("/etc/nsswitch.conf", nsswitch),
        // getmntent(3), older programs and LD_PRELOAD libraries read the mounts there.
        Mount { kind: MountKind::Symlink { target: "../proc/self/mounts".into() }, ..read_only("/etc/mtab") },
    ];
    if host {
        // The host's network needs the host's name resolution. These files are often symlinks out of /etc; a bind follows
        // them.
        mounts.extend(["/etc/resolv.conf", "/etc/hosts"].map(|path| Mount {
            kind: MountKind::Bind { source: path.into() },
            optional: true,
            ..read_only(path)
        }));
    } else {
        mounts.push(file("/etc/hosts", hosts));
        let resolv = match egress {
            true => format!("nameserver {NAME_SERVER}\n"),
            false => "# No network, no name servers.\n".into(),
        };
        mounts.push(file("/etc/resolv.conf", resolv));
    }
    mounts
}

/// passwd(5) and group(5): the workload's user, and root and nobody, which programs look up.
fn accounts(identity: &Identity) -> (String, String) {
    let Identity { uid, gid, user, home, mapping } = identity;
    let mut passwd = format!("{user}:x:{uid}:{gid}:{user}:{home}:/bin/sh\n");
    let mut group = format!("{user}:x:{gid}:\n");
    for (name, id) in [("root", 0), ("nobody", 65_534)] {
        // With subordinate ids the workload can become these users; otherwise they are only names.
        let shell = if *mapping == IdMapping::Subordinate && id == 0 { "/bin/sh" } else { "/usr/sbin/nologin" };
        if *uid != id && user != name {
            passwd.push_str(&format!("{name}:x:{id}:{id}:{name}:/:{shell}\n"));
        }
        if *gid != id && user != name {
            let name = if name == "nobody" { "nogroup" } else { name };
            group.push_str(&format!("{name}:x:{id}:\n"));
        }
    }
    (passwd, group)
}

fn file(path: &str, content: String) -> Mount {
    Mount { kind: MountKind::File { content: content.into_bytes().into(), mode: 0o644 }, ..read_only(path) }
}

fn as_host(path: &str) -> Mount {
    Mount { optional: true, ..read_only(path) }
}

fn read_only(path: &str) -> Mount {
    Mount { destination: path.into(), kind: MountKind::AsHost, read_only: true, noexec: false, optional: false }
}
