//! User namespaces and the ids in them, which every run needs.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

use caps::{CapSet, Capability};
use nix::errno::Errno;
use nix::unistd::{getegid, geteuid, getgroups};

use super::trial::{self, At, Failure, Setup};
use super::{Finding, Group, Probe, State, Subject};
use crate::confine::privilege;
use crate::confine::user::{self, Users};
use crate::error::{Cause, Error};
use crate::plan::{Bytes, IdMapping, Identity};
use crate::sys::{credentials, file, helper, process};

const fn subject(name: &'static str, title: &'static str, required: bool, without: &'static str) -> Subject {
    Subject { name, group: Group::Users, title, required, without }
}

const NO_RUN: &str = "no run is possible";
const NAMESPACE: Subject = subject("user_namespace", "user namespace", true, NO_RUN);
const HOST_IDS: Subject = subject("host_ids", "a host user id for runs", true, NO_RUN);
const GROUPS: Subject = subject("supplementary_groups", "dropping supplementary groups", true, "");
const NO_RANGE: &str = "runs with --subuid are refused; other runs need only one user id";
const NEWUIDMAP: Subject = subject("newuidmap", "newuidmap", false, NO_RANGE);
const NEWGIDMAP: Subject = subject("newgidmap", "newgidmap", false, NO_RANGE);
const RANGES: Subject = subject("subordinate_ids", "subordinate id ranges", false, NO_RANGE);

pub(super) fn examine(probe: &mut Probe) -> Vec<Finding> {
    let host_ids = match user::prepare(&identity(IdMapping::Single), privilege::maps_ids().unwrap_or(probe.privileged))
    {
        Ok(users) => {
            let id = users.host_uid;
            probe.users = Some(users);
            HOST_IDS.ok(if probe.privileged {
                format!("a separate id for each run, such as {id}")
            } else {
                format!("your own, {id}")
            })
        }
        Err(error) => {
            probe.users = Some(user::as_caller(&identity(IdMapping::Single))); // what --allow-degraded host-id gives
            let finding = HOST_IDS.missing(reason(&error));
            Finding { remedy: error.hint, ..finding }
        }
    };
    let namespace = namespace(probe);
    if namespace.state != State::Ok {
        probe.users = None;
    }
    let (newuidmap, newgidmap) = (helper(&NEWUIDMAP, probe), helper(&NEWGIDMAP, probe));
    let helpers = newuidmap.state == State::Ok && newgidmap.state == State::Ok;
    let ranges = ranges(probe, helpers);
    vec![namespace, host_ids, groups(probe), newuidmap, newgidmap, ranges]
}

/// The identity of a default run.
fn identity(mapping: IdMapping) -> Identity {
    Identity { uid: 1000, gid: 1000, mapping, user: String::new(), home: Bytes::default() }
}

/// Creates one, maps an id into it, takes that id, and uses a capability in it.
///
/// AppArmor's restriction allows the first three steps and denies the last.
fn namespace(probe: &Probe) -> Finding {
    // If no id can be mapped, a namespace without a map is tested.
    let tried = probe.attempt(0, use_it).unwrap_or_else(|| {
        let setup = Setup { namespaces: libc::CLONE_NEWUSER, ..Setup::default() };
        trial::attempt(setup, || credentials::drop_bounding(A_CAPABILITY).map(|()| 0).at(1))
    });
    match tried {
        Ok(_) => NAMESPACE.ok("created, one id mapped and taken, a capability used"),
        Err(Failure::Parent(said, Some(Errno::EPERM))) if root_without_setfcap() => NAMESPACE
            .missing(format!("{said}: uid 0 can only be mapped with CAP_SETFCAP, which this root lacks"))
            .remedy("setpriv --reuid 1000 --regid 1000 --clear-groups stockade …  # or give root CAP_SETFCAP"),
        Err(failure) => {
            probe.failed_finding(&NAMESPACE, &failure, &["taking the mapped id", "using a capability in it"])
        }
    }
}

/// Since Linux 5.12, mapping uid 0 requires CAP_SETFCAP, because a mapped root can set file capabilities that are valid
/// outside.
fn root_without_setfcap() -> bool {
    geteuid().is_root() && matches!(caps::has_cap(None, CapSet::Effective, Capability::CAP_SETFCAP), Ok(false))
}

const A_CAPABILITY: u32 = Capability::CAP_WAKE_ALARM as u32;

fn use_it() -> trial::Tried {
    match credentials::has_ids(1000, 1000).at(0)? {
        true => credentials::drop_bounding(A_CAPABILITY).map(|()| 0).at(1),
        false => Err(Errno::EPERM).at(0),
    }
}

fn groups(probe: &Probe) -> Finding {
    let own = getegid();
    let others: Vec<_> = getgroups().unwrap_or_default().into_iter().filter(|group| *group != own).collect();
    if probe.privileged {
        return match probe.attempt(0, || credentials::clear_groups().map(|()| 0).at(0)) {
            None => probe.untested(&GROUPS),
            Some(Ok(_)) => GROUPS.ok("works"),
            Some(Err(failure)) => probe.failed_finding(&GROUPS, &failure, &["setgroups"]),
        };
    }
    if others.is_empty() {
        return GROUPS.ok("this user has no supplementary groups");
    }
    let ids: Vec<_> = others.iter().map(ToString::to_string).collect();
    GROUPS
        .degraded(
            format!("only root can drop them; this user is also in {}", ids.join(", ")),
            "runs keep these groups, and their access to the bound paths",
        )
        .remedy("setpriv --clear-groups stockade run …  # as root, with --reuid and --regid")
}

/// Looks for one of the two helpers, and checks its privilege to write a map.
fn helper(subject: &Subject, probe: &Probe) -> Finding {
    let Some(path) = helper::find(subject.name) else {
        return subject.missing("not installed").remedy("apt install uidmap  # Fedora: dnf install shadow-utils-subid");
    };
    let shown = path.display();
    let Ok(metadata) = path.metadata() else { return subject.unknown(format!("{shown}: cannot be examined")) };
    let setuid = metadata.permissions().mode() & 0o4000 != 0 && metadata.uid() == 0;
    let capable = CString::new(path.as_os_str().as_bytes())
        .is_ok_and(|path| file::attribute_length(&path, c"security.capability").is_ok());
    let how = match (setuid, capable) {
        (true, _) => "setuid root",
        (_, true) => "file capabilities",
        _ if probe.privileged => "no privilege of its own; root does not need it",
        _ => {
            let capability = if subject.name == NEWUIDMAP.name { "cap_setuid" } else { "cap_setgid" };
            return subject
                .missing(format!("{shown} has neither the setuid bit nor file capabilities"))
                .remedy(format!("setcap {capability}=ep {shown}  # as root"));
        }
    };
    if !probe.privileged && process::no_new_privs() == Ok(true) {
        return subject
            .missing(format!("{shown} ({how}), but this process has no_new_privs, which disables that"))
            .remedy("start stockade from a process without no_new_privs");
    }
    subject.ok(format!("{shown}, {how}"))
}

/// Maps the first ids of the caller's ranges, as `--subuid` would.
fn ranges(probe: &Probe, helpers: bool) -> Finding {
    let own = geteuid().as_raw();
    let (uids, gids) = match (user::subordinate("/etc/subuid", own), user::subordinate("/etc/subgid", own)) {
        (Ok(uids), Ok(gids)) => (uids, gids),
        (Err(error), _) | (_, Err(error)) => {
            return RANGES.missing(reason(&error)).remedy(format!(
                "usermod --add-subuids 100000-165535 --add-subgids 100000-165535 \"$(id -un {own})\"  # as root"
            ));
        }
    };
    let ranges = format!("{} user ids from {}, {} group ids from {}", uids.1, uids.0, gids.1, gids.0);
    if probe.users.is_none() {
        return probe.untested(&RANGES);
    }
    if probe.privileged {
        return match user::prepare(&identity(IdMapping::Subordinate), true) {
            Err(error) => RANGES.missing(reason(&error)),
            Ok(users) => finish(probe, &ranges, try_users(&users)),
        };
    }
    if !helpers {
        return RANGES
            .missing(format!("{ranges}, but no helper to map them"))
            .remedy("apt install uidmap  # Fedora: dnf install shadow-utils-subid");
    }
    let setup = Setup { namespaces: libc::CLONE_NEWUSER, ..Setup::default() };
    let tried = trial::attempt_with(
        setup,
        |pid| {
            map("newuidmap", pid, own, uids.0)?;
            map("newgidmap", pid, getegid().as_raw(), gids.0)
        },
        || credentials::set_ids(1, 1).map(|()| 0).at(0),
    );
    finish(probe, &ranges, tried)
}

/// The object and the cause of an error, without its step.
fn reason(error: &Error) -> String {
    match &error.cause {
        Cause::Errno(errno) => format!("{}: {}", error.object, trial::words(*errno)),
        Cause::Reason(reason) => format!("{} {reason}", error.object),
    }
}

fn finish(probe: &Probe, ranges: &str, tried: Result<u32, Failure>) -> Finding {
    match tried {
        Ok(_) => RANGES.ok(ranges),
        Err(failure) => probe.failed_finding(&RANGES, &failure, &["taking a mapped id"]),
    }
}

fn try_users(users: &Users) -> Result<u32, Failure> {
    let setup = Setup { namespaces: libc::CLONE_NEWUSER, users: Some(users), cgroup: None };
    trial::attempt(setup, || credentials::has_ids(1000, 1000).map(u32::from).at(0))
}

/// Maps id 0 to the caller and id 1 to the first id of the range.
fn map(program: &str, pid: nix::unistd::Pid, own: u32, first: u32) -> Result<(), Failure> {
    let arguments = [pid.to_string()].into_iter().chain([0, own, 1, 1, first, 1].map(|number| number.to_string()));
    let Some(path) = helper::find(program) else {
        return Err(Failure::Parent(format!("{program} no longer exists"), None));
    };
    trial::run(&path, &arguments.collect::<Vec<_>>()).map_err(|reason| Failure::Parent(reason, None))
}
