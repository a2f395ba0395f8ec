//! Users: the host ids of the sandbox, the id maps of its user namespace, and the switch to these ids.

pub mod account;
mod idmap;
mod other;
mod subordinate;

use std::fs::File;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io::Write as _;
use std::os::fd::OwnedFd;

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;
use nix::unistd::Pid;

pub use self::idmap::{idmap_namespace, idmap_namespace_of};
pub use self::other::{Other, named};
pub use self::subordinate::subordinate;
use crate::error::{Error, Result, Step};
use crate::failure::{Applied, During};
use crate::plan::container::IdRange;
use crate::plan::{ContainerPlan, IdMapping, Identity};
use crate::sys::ablate::{Layer, without};
use crate::sys::credentials::CapSets;
use crate::sys::{credentials, file, helper};

/// Host ids that no distribution assigns: above systemd's container ranges, below its foreign range.
const OWN_IDS: std::ops::Range<u32> = 0x7000_0000..0x7800_0000;

/// Whether only a workload of root's has this id.
pub fn is_workloads(id: u32) -> bool {
    OWN_IDS.contains(&id)
}

/// One line of an id map, `user_namespaces(7)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// First id inside.
    pub inside: u32,
    /// First id outside.
    pub outside: u32,
    /// Number of ids.
    pub count: u32,
}

/// The way in which the maps are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Writer {
    /// By this process, with privilege.
    Privileged,
    /// By this process: only its own id, with `setgroups` denied.
    Own,
    /// By `newuidmap(1)` and `newgidmap(1)`.
    Helpers,
}

/// The id maps and the workload's ids on the host.
#[derive(Debug)]
pub struct Users {
    uid: u32,
    gid: u32,
    uid_map: Vec<Extent>,
    gid_map: Vec<Extent>,
    writer: Writer,
    /// Host user id of the workload.
    pub host_uid: u32,
    /// Host group id of the workload.
    pub host_gid: u32,
    /// Whether there is a user namespace to map them in.
    mapped: bool,
}

/// Parent half: chooses the maps. `privileged` callers may map any id. Root's own id is never given away.
pub fn prepare(identity: &Identity, privileged: bool) -> Result<Users> {
    let (own_uid, own_gid) = (nix::unistd::geteuid().as_raw(), nix::unistd::getegid().as_raw());
    let (host_uid, host_gid, writer) = match identity.mapping {
        IdMapping::Single if privileged || own_uid == 0 => {
            let id = own_host_id(privileged)?;
            (id, id, Writer::Privileged)
        }
        IdMapping::HostUser { uid, gid } if privileged => (uid, gid, Writer::Privileged),
        IdMapping::HostUser { uid, gid } if (uid, gid) != (own_uid, own_gid) => {
            return Err(Error::new(
                Step::Identity,
                format!("{uid}:{gid}"),
                "only root can run a sandbox as another host user",
            )
            .hint(format!("leave --host-user out, or name your own ids, {own_uid}:{own_gid}")));
        }
        IdMapping::Single | IdMapping::HostUser { .. } => (own_uid, own_gid, Writer::Own),
        IdMapping::Subordinate if privileged => {
            let id = own_host_id(privileged)?;
            (id, id, Writer::Privileged)
        }
        IdMapping::Subordinate => (own_uid, own_gid, Writer::Helpers),
    };
    let own = |inside, outside| vec![Extent { inside, outside, count: 1 }];
    let (uid_map, gid_map) = match identity.mapping {
        IdMapping::Subordinate => (
            around(identity.uid, host_uid, subordinate("/etc/subuid", own_uid)?),
            around(identity.gid, host_gid, subordinate("/etc/subgid", own_uid)?),
        ),
        _ => (own(identity.uid, host_uid), own(identity.gid, host_gid)),
    };
    // Without a user namespace, host ids are all there is.
    let (uid, gid) = match without(Layer::UserNamespace) {
        true => (host_uid, host_gid),
        false => (identity.uid, identity.gid),
    };
    Ok(Users { uid, gid, uid_map, gid_map, writer, host_uid, host_gid, mapped: true })
}

/// The same with the caller's own ids, whoever it is.
pub fn as_caller(identity: &Identity) -> Users {
    let (host_uid, host_gid) = (nix::unistd::geteuid().as_raw(), nix::unistd::getegid().as_raw());
    let users = Users {
        uid: identity.uid,
        gid: identity.gid,
        uid_map: Vec::new(),
        gid_map: Vec::new(),
        writer: Writer::Own,
        host_uid,
        host_gid,
        mapped: true,
    };
    users.mapped_to((host_uid, host_gid))
}

/// Parent half of a container: the configured maps of its new user namespace, if it has one.
pub fn prepare_container(plan: &ContainerPlan, privileged: bool) -> Users {
    let ranges = |ranges: &[IdRange]| ranges.iter().map(Extent::from).collect::<Vec<_>>();
    let (uid_map, gid_map) = (ranges(&plan.uid_map), ranges(&plan.gid_map));
    let (own_uid, own_gid) = (nix::unistd::geteuid().as_raw(), nix::unistd::getegid().as_raw());
    let is_own = |map: &[Extent], own| matches!(map, [one] if one.outside == own && one.count == 1);
    let writer = match privileged {
        true => Writer::Privileged,
        false if is_own(&uid_map, own_uid) && is_own(&gid_map, own_gid) => Writer::Own,
        false => Writer::Helpers,
    };
    let outside = |map: &[Extent], id: u32| {
        let found = map.iter().find(|extent| id.wrapping_sub(extent.inside) < extent.count);
        found.map_or(id, |extent| id - extent.inside + extent.outside)
    };
    let (uid, gid) = (plan.process.uid, plan.process.gid);
    let (host_uid, host_gid) = (outside(&uid_map, uid), outside(&gid_map, gid));
    Users { uid, gid, uid_map, gid_map, writer, host_uid, host_gid, mapped: true }
}

impl From<&IdRange> for Extent {
    fn from(range: &IdRange) -> Self {
        Self { inside: range.inside, outside: range.outside, count: range.count }
    }
}

/// A random id of the unused range. If this user namespace lacks that range, another of its ids except root.
fn own_host_id(privileged: bool) -> Result<u32> {
    const HINT: &str = "--allow-degraded host-id gives the workload this user's own id, and files of that user with it";
    if !privileged {
        let why = "without CAP_SETUID and CAP_SETGID it has no other id for the workload";
        return Err(Error::new(Step::Identity, "root", why).hint(HINT));
    }
    // The standard library seeds its hash maps from getrandom(2). That is random enough here.
    let random = RandomState::new().build_hasher().finish() as u32;
    let id = OWN_IDS.start + random % (OWN_IDS.end - OWN_IDS.start);
    let map = file::read_text("/proc/self/uid_map")
        .map_err(|errno| Error::errno(Step::Identity, "/proc/self/uid_map", errno))?;
    choose_id(id, &map).ok_or_else(|| {
        Error::new(Step::Identity, "/proc/self/uid_map", "this user namespace has no id besides its root's").hint(HINT)
    })
}

fn choose_id(wanted: u32, uid_map: &str) -> Option<u32> {
    let ranges = || {
        uid_map.lines().filter_map(|line| {
            let mut numbers = line.split_ascii_whitespace().map(|number| number.parse::<u64>().ok());
            let (first, _, count) = (numbers.next()??, numbers.next()??, numbers.next()??);
            Some(first..first + count)
        })
    };
    if ranges().any(|range| range.contains(&wanted.into())) {
        return Some(wanted);
    }
    let last = ranges().map(|range| range.end - 1).max()?;
    u32::try_from(last).ok().filter(|&id| id != 0)
}

/// Maps `inside` to `outside`, and the subordinate range to the ids around it.
fn around(inside: u32, outside: u32, (start, count): (u32, u32)) -> Vec<Extent> {
    let below = inside.min(count);
    let mut map = vec![Extent { inside, outside, count: 1 }];
    if below > 0 {
        map.push(Extent { inside: 0, outside: start, count: below });
    }
    if count > below {
        map.push(Extent { inside: inside + 1, outside: start + below, count: count - below });
    }
    map
}

fn map_text(map: &[Extent]) -> String {
    use std::fmt::Write as _;
    map.iter().fold(String::new(), |mut text, extent| {
        let _ = writeln!(text, "{} {} {}", extent.inside, extent.outside, extent.count);
        text
    })
}

impl Users {
    /// Whether the workload's supplementary groups can be cleared.
    pub fn can_clear_groups(&self) -> bool {
        self.writer != Writer::Own
    }

    /// Whether the workload has a host id of its own, which was chosen freely.
    pub fn has_own_id(&self, identity: &Identity) -> bool {
        self.writer == Writer::Privileged && identity.mapping == IdMapping::Single
    }

    /// Whether the maps are written with privilege.
    pub fn is_privileged(&self) -> bool {
        self.writer == Writer::Privileged
    }

    /// The same with another user and group of the host.
    pub fn mapped_to(mut self, (host_uid, host_gid): (u32, u32)) -> Self {
        let own = |inside, outside| vec![Extent { inside, outside, count: 1 }];
        (self.uid_map, self.gid_map) = (own(self.uid, host_uid), own(self.gid, host_gid));
        Self { host_uid, host_gid, ..self }
    }

    /// The same without a user namespace: inside, the ids are those on the host.
    pub fn without_namespace(self) -> Self {
        Self { uid: self.host_uid, gid: self.host_gid, mapped: false, ..self }
    }

    /// Whether no other process or file of the host has the workload's user.
    pub fn is_alone(&self) -> bool {
        is_workloads(self.host_uid)
    }

    /// Parent half after clone3: writes the maps of the process with this `/proc` directory.
    pub fn write_maps(&self, proc_pid: &OwnedFd, pid: Pid) -> Result<()> {
        if without(Layer::UserNamespace) || !self.mapped {
            return Ok(());
        }
        if self.writer == Writer::Helpers {
            run_helper("newuidmap", pid, &self.uid_map)?;
            return run_helper("newgidmap", pid, &self.gid_map);
        }
        if self.writer == Writer::Own {
            write_file(proc_pid, "setgroups", "deny")?;
        }
        write_file(proc_pid, "uid_map", &map_text(&self.uid_map))?;
        write_file(proc_pid, "gid_map", &map_text(&self.gid_map))
    }

    /// The workload's ids inside.
    pub fn inside(&self) -> (u32, u32) {
        (self.uid, self.gid)
    }

    /// Whether a user namespace must be mapped.
    pub fn has_maps(&self) -> bool {
        !self.uid_map.is_empty()
    }

    /// Child half: becomes the mapped user, keeping its capabilities over the new user namespace.
    pub fn take(&self) -> Applied {
        if without(Layer::UserNamespace) {
            credentials::set_securebits(1 << 2).during(Step::SetIds, 0)?; // NO_SETUID_FIXUP: keeps the capabilities that the new namespace gave
        }
        if !self.mapped {
            return self.become_host_user().during(Step::SetIds, 0);
        }
        credentials::set_ids(self.uid, self.gid).during(Step::SetIds, 0)
    }

    /// Keeps what the later steps need of the caller's capabilities. They are dropped with the others.
    fn become_host_user(&self) -> std::result::Result<(), Errno> {
        let CapSets { permitted, inheritable, .. } = credentials::capabilities()?;
        credentials::keep_capabilities(true)?;
        credentials::set_ids(self.uid, self.gid)?;
        credentials::keep_capabilities(false)?;
        credentials::set_capabilities(CapSets { effective: permitted, permitted, inheritable })
    }

    /// Child half: checks all three user ids and group ids.
    pub fn verify(&self) -> Applied {
        verify((self.uid, self.gid))
    }
}

fn verify((uid, gid): (u32, u32)) -> Applied {
    match credentials::has_ids(uid, gid) {
        Ok(true) => Ok(()),
        Ok(false) => Err(Errno::EPERM).during(Step::Verify, 0),
        Err(errno) => Err(errno).during(Step::Verify, 0),
    }
}

fn write_file(proc_pid: &OwnedFd, name: &str, text: &str) -> Result<()> {
    let failed = |errno| {
        let error = Error::errno(Step::IdMap, name, errno);
        if errno == Errno::EPERM { error.hint("`stockade doctor` shows what restricts user namespaces") } else { error }
    };
    let fd = openat(proc_pid, name, OFlag::O_WRONLY | OFlag::O_CLOEXEC, Mode::empty()).map_err(failed)?;
    File::from(fd).write_all(text.as_bytes()).map_err(|error| failed(errno_of(&error)))
}

fn run_helper(program: &str, pid: Pid, map: &[Extent]) -> Result<()> {
    let missing = |errno| {
        Error::errno(Step::IdMap, program, errno).hint("install it (Debian: package uidmap), or leave --subuid out")
    };
    let found = helper::find(program).ok_or_else(|| missing(Errno::ENOENT))?;
    let mut command = std::process::Command::new(found);
    command.arg(pid.to_string()).stdin(std::process::Stdio::null());
    for extent in map {
        command.args([extent.inside, extent.outside, extent.count].map(|number| number.to_string()));
    }
    let output = helper::output(&mut command).map_err(|error| missing(errno_of(&error)))?;
    if output.status.success() {
        return Ok(());
    }
    let said: String = String::from_utf8_lossy(&output.stderr).trim().chars().take(300).collect();
    Err(Error::new(Step::IdMap, program, said).hint("check the ranges in /etc/subuid and /etc/subgid"))
}

/// The `/proc` directory of a child that is not reaped yet, on a verified procfs.
pub fn open_proc_pid(pid: Pid) -> Result<OwnedFd> {
    let failed = |errno| Error::errno(Step::IdMap, format!("/proc/{pid}"), errno);
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let dir = file::open(format!("/proc/{pid}").as_str(), flags).map_err(failed)?;
    let kind = nix::sys::statfs::fstatfs(&dir).map_err(failed)?.filesystem_type();
    if kind != nix::sys::statfs::PROC_SUPER_MAGIC {
        return Err(Error::new(Step::Host, "/proc", "is not a procfs").hint("mount one: mount -t proc proc /proc"));
    }
    Ok(dir)
}

fn errno_of(error: &std::io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::EIO, Errno::from_raw)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_range_goes_around_the_caller() {
        let map = around(1000, 5000, (100_000, 65_536));
        assert_eq!(map_text(&map), "1000 5000 1\n0 100000 1000\n1001 101000 64536\n");
        assert_eq!(map_text(&around(0, 5000, (100_000, 10))), "0 5000 1\n1 100000 10\n");
        assert_eq!(map_text(&around(50, 5000, (100_000, 10))), "50 5000 1\n0 100000 10\n");
    }

    #[test]
    fn an_own_id_is_one_this_namespace_has() {
        let id = OWN_IDS.start + 7;
        assert_eq!(choose_id(id, "0 0 4294967295\n"), Some(id));
        assert_eq!(choose_id(id, "0 1000 1\n1 100000 65535\n"), Some(65_535));
        assert_eq!(choose_id(id, "0 1000 1\n"), None);
        assert_eq!(choose_id(id, "junk\n"), None);
    }
}
