//! Landlock, seccomp, keyrings and capabilities.

use caps::CapSet;
use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;

use super::blockers::status_field;
use super::trial::{self, At, Setup, Tried, words};
use super::{Finding, Group, Probe, Subject, kernel_text};
use crate::confine::caps::names;
use crate::sys::{landlock, process, seccomp};

const fn subject(name: &'static str, title: &'static str, required: bool, without: &'static str) -> Subject {
    Subject { name, group: Group::Confinement, title, required, without }
}

const LANDLOCK: Subject =
    subject("landlock", "Landlock", true, "runs are refused unless --allow-degraded landlock is given");
const SECCOMP: Subject =
    subject("seccomp", "seccomp filter", true, "runs are refused unless --seccomp unconfined is given");
const NOTIFY: Subject =
    subject("seccomp_notify", "seccomp user notification", false, "denied system calls are not listed in reports");
const KEYRING: Subject =
    subject("keyring", "new session keyring", true, "runs are refused unless --allow-degraded keyring is given");
const NO_NEW_PRIVS: Subject = subject("no_new_privs", "no_new_privs of the caller", false, "");
const BOUNDING: Subject = subject("bounding_set", "capability bounding set of root", false, "");

pub(super) fn examine(probe: &Probe) -> Vec<Finding> {
    vec![landlock(probe), seccomp(probe), notify(), keyring(probe), no_new_privs(), bounding(probe)]
}

/// The Landlock ABIs: number, first Linux version, and the access that older ABIs cannot deny.
const ABIS: [(u32, &str, &str); 9] = [
    (2, "5.19", "moving files between directories (refer)"),
    (3, "6.2", "truncating files"),
    (4, "6.7", "TCP ports"),
    (5, "6.10", "ioctl on devices"),
    (6, "6.12", "signals and abstract sockets out of the sandbox"),
    (7, "6.15", "control over what is logged"),
    (8, "7.0", "all threads at once"),
    (9, "7.1", "UNIX sockets by path"),
    (10, "7.2", "UDP ports"),
];

const NEWEST_ABI: u32 = ABIS[ABIS.len() - 1].0;

/// The oldest ABI that the default policy accepts.
const OLDEST_ABI: u32 = 2;

fn landlock(probe: &Probe) -> Finding {
    let abi = match landlock::abi() {
        Ok(abi) => abi,
        Err(Errno::EOPNOTSUPP) => {
            let modules = kernel_text("/sys/kernel/security/lsm").filter(|list| !list.is_empty());
            let list = modules.as_deref().unwrap_or("capability,yama");
            return LANDLOCK
                .missing("the kernel supports it, but it was not enabled at boot")
                .remedy(format!("add lsm=landlock,{list} to the kernel's command line and reboot"));
        }
        Err(errno) => {
            return probe.failed_finding(&LANDLOCK, &trial::Failure::Step(0, errno), &["landlock_create_ruleset"]);
        }
    };
    let steps =
        ["no_new_privs", "landlock_create_ruleset", "landlock_restrict_self", "a denied directory could be opened"];
    if let Err(failure) = trial::attempt(Setup::default(), deny_reading_directories) {
        return probe.failed_finding(&LANDLOCK, &failure, &steps);
    }
    if abi < OLDEST_ABI {
        return LANDLOCK
            .missing(format!("ABI {abi}, enforced; the default policy requires {OLDEST_ABI}"))
            .remedy("install Linux 5.19 or later");
    }
    let lacks: Vec<_> = ABIS.iter().filter(|(since, ..)| *since > abi).map(|(_, _, what)| *what).collect();
    if lacks.is_empty() {
        return LANDLOCK.ok(format!("ABI {abi}, enforced"));
    }
    let (_, linux, _) = ABIS[ABIS.len() - 1];
    LANDLOCK
        .degraded(
            format!("ABI {abi} of {NEWEST_ABI}, enforced; lacks {}", lacks.join(", ")),
            "only the namespaces and seccomp restrict the missing rights",
        )
        .remedy(format!("install Linux {linux} or later for all rights"))
}

/// `LANDLOCK_ACCESS_FS_READ_DIR`.
const READ_DIR: u64 = 1 << 3;

fn deny_reading_directories() -> Tried {
    process::set_no_new_privs().at(0)?;
    let ruleset = landlock::create_ruleset(READ_DIR).at(1)?;
    landlock::restrict_self(ruleset, 0).at(2)?;
    match open(c"/", OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty()) {
        Err(Errno::EACCES) => Ok(0),
        Ok(_) => Err(Errno::EEXIST).at(3),
        Err(errno) => Err(errno).at(3),
    }
}

/// The actions that profiles may name, and the kernel's names for them.
const ACTIONS: [(u32, &str); 7] = [
    (libc::SECCOMP_RET_KILL_PROCESS, "kill_process"),
    (libc::SECCOMP_RET_KILL_THREAD, "kill_thread"),
    (libc::SECCOMP_RET_TRAP, "trap"),
    (libc::SECCOMP_RET_ERRNO, "errno"),
    (libc::SECCOMP_RET_TRACE, "trace"),
    (libc::SECCOMP_RET_LOG, "log"),
    (libc::SECCOMP_RET_ALLOW, "allow"),
];

fn seccomp(probe: &Probe) -> Finding {
    let steps = ["no_new_privs", "SECCOMP_SET_MODE_FILTER", "a denied system call was not denied"];
    if let Err(failure) = trial::attempt(Setup::default(), deny_uname) {
        return probe.failed_finding(&SECCOMP, &failure, &steps);
    }
    let lacks: Vec<_> = ACTIONS
        .iter()
        .filter(|(action, _)| seccomp::action_available(*action).is_err())
        .map(|(_, name)| *name)
        .collect();
    let below = match status_field("Seccomp_filters").as_deref() {
        None | Some("0") => String::new(),
        Some(filters) => format!("; in addition to {filters} of the caller"),
    };
    if lacks.is_empty() {
        return SECCOMP.ok(format!("filter installed and enforced, every action supported{below}"));
    }
    SECCOMP
        .degraded(
            format!("filter installed and enforced; unsupported actions: {}{below}", lacks.join(", ")),
            "profiles that name these actions are refused",
        )
        .remedy("install Linux 4.14 or later")
}

/// Makes `uname(2)` fail with EDOM, which it never returns otherwise.
fn deny_uname() -> Tried {
    const LOAD_NUMBER: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const JUMP_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let program = [
        step(LOAD_NUMBER, 0, 0, 0),
        step(JUMP_EQUAL, 0, 1, libc::SYS_uname as u32),
        step(RETURN, 0, 0, libc::SECCOMP_RET_ERRNO | libc::EDOM as u32),
        step(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    process::set_no_new_privs().at(0)?;
    seccomp::set_filter(&program, 0).at(1)?;
    match nix::sys::utsname::uname() {
        Err(Errno::EDOM) => Ok(0),
        Ok(_) => Err(Errno::EEXIST).at(2),
        Err(errno) => Err(errno).at(2),
    }
}

fn notify() -> Finding {
    match seccomp::action_available(libc::SECCOMP_RET_USER_NOTIF).and_then(|()| seccomp::notification_sizes()) {
        Ok([request, response, data]) => NOTIFY.ok(format!("structures of {request}, {response} and {data} bytes")),
        Err(errno) => NOTIFY.missing(words(errno)).remedy("install Linux 5.0 or later"),
    }
}

fn keyring(probe: &Probe) -> Finding {
    match probe.attempt(0, || process::join_new_session_keyring().map(|()| 0).at(0)) {
        None => probe.untested(&KEYRING),
        Some(Ok(_)) => KEYRING.ok("joined a new one"),
        Some(Err(failure)) => match failure.errno() {
            Some(Errno::ENOSYS) => KEYRING.ok("this kernel has no keyrings, so none is shared"),
            Some(Errno::EDQUOT) => KEYRING.missing(failure.describe(&["keyctl"])).remedy(
                "sysctl -w kernel.keys.maxkeys=2000  # as root; or end the processes that hold keys, see /proc/keys",
            ),
            _ => probe.failed_finding(&KEYRING, &failure, &["keyctl"]),
        },
    }
}

fn no_new_privs() -> Finding {
    match process::no_new_privs() {
        Ok(false) => NO_NEW_PRIVS.ok("not set"),
        Ok(true) => NO_NEW_PRIVS
            .degraded(
                "set: setuid programs do not grant privileges to this process",
                "newuidmap cannot map ranges for runs with --subuid",
            )
            .remedy("start stockade from a process without it"),
        Err(errno) => NO_NEW_PRIVS.unknown(words(errno)),
    }
}

/// Informational: containers and service managers often start root without all capabilities.
fn bounding(probe: &Probe) -> Finding {
    if !probe.privileged {
        return BOUNDING.ok("not relevant for an unprivileged user");
    }
    let lacks = |one: &caps::Capability| matches!(caps::has_cap(None, CapSet::Bounding, *one), Ok(false));
    let lacking = caps::all().iter().filter(|one| lacks(one)).fold(0, |mask, one| mask | one.bitmask());
    let lacking = names(lacking);
    if lacking.is_empty() {
        return BOUNDING.ok("full");
    }
    let consequence = if lacking.contains(&caps::Capability::CAP_SYS_RESOURCE.to_string()) {
        "--ulimit cannot go above the caller's own hard limits"
    } else {
        "operations on the host that need these capabilities fail for root here"
    };
    BOUNDING.degraded(format!("lacks {}", lacking.join(", ")), consequence)
}
