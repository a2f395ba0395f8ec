//! Each kind of namespace in a new user namespace, and the operations of runs in them.

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, openat};
use nix::sys::stat::Mode;

use super::trial::{self, At, Setup, Tried};
use super::{Finding, Group, Probe, Subject};
use crate::sys::clone::{Cloned, clone3};
use crate::sys::mount::{FsContext, NODEV, NOEXEC, NOSUID};
use crate::sys::{net, process};

const fn subject(name: &'static str, title: &'static str, required: bool, without: &'static str) -> Subject {
    Subject { name, group: Group::Namespaces, title, required, without }
}

const NO_RUN: &str = "no run is possible";
const MOUNT: Subject = subject("mount_namespace", "mount namespace", true, NO_RUN);
const PID: Subject = subject("pid_namespace", "pid namespace", true, NO_RUN);
const NETWORK: Subject =
    subject("network_namespace", "network namespace", true, "only runs with --network host are possible");
const IPC: Subject = subject("ipc_namespace", "IPC namespace", true, "default runs are refused");
const UTS: Subject = subject("uts_namespace", "UTS namespace, host name", true, "default runs are refused");
const CGROUP: Subject = subject("cgroup_namespace", "cgroup namespace", true, "default runs are refused");
const TIME: Subject = subject("time_namespace", "time namespace", false, "runs that ask for one are refused");
const LOOPBACK: Subject =
    subject("loopback", "loopback interface up", true, "only runs with --network host are possible");
const LIMITS: Subject = subject(
    "namespace_limits",
    "forbidding nested namespaces",
    true,
    "runs are refused unless --allow-degraded namespace-limits is given; then only seccomp stops nesting",
);

pub(super) fn examine(probe: &Probe) -> Vec<Finding> {
    let made = "created in a new user namespace";
    let alone = |subject, flag| probe.tried(subject, flag, made, &[], || Ok(0));
    vec![
        alone(&MOUNT, libc::CLONE_NEWNS),
        probe.tried(&PID, libc::CLONE_NEWPID, "created; its first process is pid 1", &["getpid"], || {
            if nix::unistd::getpid().as_raw() == 1 { Ok(0) } else { Err(Errno::ESRCH).at(0) }
        }),
        alone(&NETWORK, libc::CLONE_NEWNET),
        alone(&IPC, libc::CLONE_NEWIPC),
        probe.tried(&UTS, libc::CLONE_NEWUTS, "created, host name set", &["sethostname"], || {
            nix::unistd::sethostname("doctor").map(|()| 0).at(0)
        }),
        alone(&CGROUP, libc::CLONE_NEWCGROUP),
        time(probe),
        probe.tried(&LOOPBACK, libc::CLONE_NEWNET, "brought up in a new network namespace", &["SIOCSIFFLAGS"], || {
            net::loopback_up().map(|()| 0).at(0)
        }),
        probe.tried(
            &LIMITS,
            libc::CLONE_NEWNS | libc::CLONE_NEWPID,
            "limits set to 0 and enforced",
            &["writing user.max_user_namespaces", "a nested user namespace was not refused"],
            limits,
        ),
    ]
}

/// Sets the clocks before the child takes the mapped id: a process that has changed its user is not dumpable, so the files of
/// its `/proc` directory belong to the host's root.
fn time(probe: &Probe) -> Finding {
    let tried = probe.users.as_ref().map(|users| {
        let setup = Setup { namespaces: libc::CLONE_NEWUSER, ..Setup::default() };
        trial::attempt_with(setup, |pid| trial::write_maps(Some(users), pid), set_clocks)
    });
    probe.finding_of(&TIME, tried, "created, clock offset set", &["unshare", "/proc/self/timens_offsets"])
}

fn set_clocks() -> Tried {
    process::unshare_time().at(0)?;
    let flags = OFlag::O_WRONLY | OFlag::O_CLOEXEC;
    let offsets = openat(AT_FDCWD, c"/proc/self/timens_offsets", flags, Mode::empty()).at(1)?;
    nix::unistd::write(offsets, b"boottime 1 0\n").map(|_| 0).at(1)
}

/// Writes a limit as a run does, through a new procfs or else the caller's, and checks that the kernel enforces it.
fn limits() -> Tried {
    let flags = OFlag::O_WRONLY | OFlag::O_CLOEXEC;
    let fresh = FsContext::open(c"proc")
        .and_then(|context| context.mount(NOSUID | NODEV | NOEXEC))
        .and_then(|proc| openat(proc, c"sys/user/max_user_namespaces", flags, Mode::empty()));
    let setting = match fresh {
        Ok(setting) => setting,
        Err(_) => openat(AT_FDCWD, c"/proc/sys/user/max_user_namespaces", flags, Mode::empty()).at(0)?,
    };
    nix::unistd::write(setting, b"0").at(0)?;
    match clone3(libc::CLONE_NEWUSER as u64, None) {
        Err(Errno::ENOSPC | Errno::EPERM) => Ok(0),
        Err(errno) => Err(errno).at(1),
        Ok(Cloned::Child) => process::exit(0),
        Ok(Cloned::Parent { .. }) => Err(Errno::EEXIST).at(1),
    }
}
