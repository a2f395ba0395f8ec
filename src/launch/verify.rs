//! Verifies from outside what confines the workload: its namespaces and its `/proc/PID/status`.

use std::os::fd::OwnedFd;

use nix::fcntl::{AtFlags, OFlag, open};
use nix::sys::stat::{Mode, fstatat};

use crate::error::{Error, Result, Step};
use crate::plan::Namespaces;
use crate::report::Enforced;
use crate::sys::ablate::{Layer, without};
use crate::sys::status::Status;

/// All namespaces except time, which the workload's process enters later.
const NAMESPACES: [&str; 7] = ["user", "mnt", "pid", "net", "ipc", "uts", "cgroup"];

/// The namespaces of a process, as device and inode of each.
#[derive(Clone, Copy, Debug)]
pub struct Inhabited([(u64, u64); NAMESPACES.len()]);

impl Inhabited {
    /// Reads them from a process's `/proc` directory, while the process may still be inspected.
    pub fn by(proc_pid: &OwnedFd) -> Result<Self> {
        let mut identities = [(0, 0); NAMESPACES.len()];
        for (name, identity) in NAMESPACES.into_iter().zip(&mut identities) {
            let failed = |errno| Error::errno(Step::Verify, format!("{name} namespace"), errno);
            let stat = fstatat(proc_pid, format!("ns/{name}").as_str(), AtFlags::empty()).map_err(failed)?;
            *identity = (stat.st_dev, stat.st_ino);
        }
        Ok(Self(identities))
    }

    /// Whether a process has left this user namespace for a nested one, if it can still be inspected.
    pub fn has_left(self, pid: i32) -> bool {
        let user = nix::sys::stat::stat(format!("/proc/{pid}/ns/user").as_str());
        user.is_ok_and(|stat| (stat.st_dev, stat.st_ino) != self.0[0])
    }

    /// Fails unless each of these namespaces, by the names of `/proc/PID/ns`, differs from ours.
    pub fn expect_new(self, names: &[&str]) -> Result<()> {
        let own = open("/proc/self", OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty())
            .map_err(|errno| Error::errno(Step::Verify, "/proc/self", errno))?;
        for (name, (ours, theirs)) in NAMESPACES.into_iter().zip(Self::by(&own)?.0.into_iter().zip(self.0)) {
            if names.contains(&name) && ours == theirs {
                return Err(Error::new(Step::Verify, format!("{name} namespace"), "is still the runtime's"));
            }
        }
        Ok(())
    }

    /// The namespaces that differ from ours. Fails if a planned one does not. The network namespace is not checked here: the
    /// child enters it later and verifies it.
    pub fn differing(self, planned: &Namespaces) -> Result<Vec<String>> {
        let own = open("/proc/self", OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty())
            .map_err(|errno| Error::errno(Step::Verify, "/proc/self", errno))?;
        let mut differing = Vec::new();
        for (name, (ours, theirs)) in NAMESPACES.into_iter().zip(Self::by(&own)?.0.into_iter().zip(self.0)) {
            let wanted = match name {
                "net" => continue,
                "user" => !without(Layer::UserNamespace),
                "ipc" => planned.ipc,
                "uts" => planned.uts,
                "cgroup" => planned.cgroup,
                _ => true,
            };
            if ours != theirs {
                differing.push(name.to_owned());
            } else if wanted {
                return Err(Error::new(Step::Verify, format!("{name} namespace"), "is still the supervisor's"));
            }
        }
        Ok(differing)
    }
}

/// The expected status of the workload.
#[derive(Clone, Copy, Debug, Default)]
pub struct Planned {
    /// The capabilities that it may have, as a mask.
    pub kept_capabilities: u64,
    /// Its user and group on the host.
    pub host_ids: (u32, u32),
    /// Whether it must have a seccomp filter.
    pub filtered: bool,
    /// Whether it is in a nested user namespace, which the plan permits. Its ids and capabilities then count only there.
    pub nested: bool,
}

/// Records the status of the workload. Fails if it is weaker than planned.
pub fn record(status: &Status, planned: &Planned, enforced: &mut Enforced) -> Result<()> {
    let &Planned { kept_capabilities, host_ids, filtered, nested } = planned;
    let weaker = |what: &str, is: String| Err(Error::new(Step::Verify, what, format!("the workload has {is}")));
    // A set that cannot be read counts as full.
    let sets = ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"].map(|name| status.mask(name).unwrap_or(u64::MAX));
    let capabilities = sets.into_iter().fold(0, |all, set| all | set);
    if capabilities & !kept_capabilities != 0 && !nested {
        return weaker("capabilities", format!("{capabilities:#x}"));
    }
    if status.no_new_privs() != Some(true) && !without(Layer::NoNewPrivileges) {
        return weaker("no_new_privs", format!("{:?}", status.no_new_privs()));
    }
    if filtered && !status.is_filtered() {
        return weaker("seccomp", format!("mode {:?}", status.field("Seccomp")));
    }
    let (uids, gids) = (status.numbers("Uid").unwrap_or_default(), status.numbers("Gid").unwrap_or_default());
    if uids != [host_ids.0; 4] || gids != [host_ids.1; 4] {
        // With CAP_SETUID it may already have changed to another user of its namespace.
        if kept_capabilities == 0 && !nested {
            return weaker("user and group", format!("{uids:?} and {gids:?}"));
        }
    }
    enforced.caps = crate::confine::caps::names(if nested { kept_capabilities } else { capabilities }); // which the child has verified
    enforced.no_new_privs = true;
    enforced.host_uid = uids.first().copied();
    enforced.host_gid = gids.first().copied();
    enforced.supplementary_groups = status.numbers("Groups").unwrap_or_default();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLANNED: Planned = Planned { kept_capabilities: 0, host_ids: (7, 8), filtered: true, nested: false };
    const CONFINED: &str = "Name:\ta\nUid:\t7\t7\t7\t7\nGid:\t8\t8\t8\t8\nGroups:\t4 5 \nNoNewPrivs:\t1\nSeccomp:\t2\n\
        CapInh:\t0000000000000000\nCapPrm:\t0000000000000000\nCapEff:\t0000000000000000\nCapBnd:\t0000000000000000\n\
        CapAmb:\t0000000000000000\n";

    #[test]
    fn a_confined_process_passes() {
        let status = Status::new(CONFINED);
        let mut enforced = Enforced::default();
        record(&status, &PLANNED, &mut enforced).unwrap();
        assert_eq!((enforced.host_uid, enforced.no_new_privs, enforced.caps), (Some(7), true, vec![]));
        assert_eq!(enforced.supplementary_groups, [4, 5]);
    }

    #[test]
    fn so_does_one_that_its_filter_has_killed() {
        let status = Status::new(CONFINED.replace("Seccomp:\t2", "Seccomp:\t3"));
        record(&status, &PLANNED, &mut Enforced::default()).unwrap();
    }

    #[test]
    fn a_weaker_process_fails() {
        for (from, to) in [
            ("CapBnd:\t0000000000000000", "CapBnd:\t0000020000000000"),
            ("CapAmb:\t0000000000000000", "CapAmb:\tjunk"),
            ("NoNewPrivs:\t1", "NoNewPrivs:\t0"),
            ("NoNewPrivs:\t1\n", ""),
            ("Seccomp:\t2", "Seccomp:\t0"),
            ("Uid:\t7\t7\t7\t7", "Uid:\t7\t0\t7\t7"),
            ("Gid:\t8\t8\t8\t8\n", ""),
        ] {
            let text = CONFINED.replace(from, to);
            assert_ne!(text, CONFINED);
            assert!(record(&Status::new(text), &PLANNED, &mut Enforced::default()).is_err(), "{to}");
        }
    }
}
