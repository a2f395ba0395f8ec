//! What to do about a refused call: nothing, if programs continue without it; otherwise the smallest option that allows it.

use stockade_seccomp::builtin::{self, Builtin, Group};
use stockade_seccomp::{Arch, Call, Context, Profile};

use crate::plan::Network;

/// The profile that refused a call, and what the run has of it.
#[derive(Clone, Copy, Debug)]
pub struct Refusing<'a> {
    /// The rules.
    pub profile: &'a Profile,
    /// The groups in it.
    pub groups: &'a [Group],
    /// Its name, if it is a built-in one.
    pub builtin: Option<Builtin>,
    /// The run's network.
    pub network: Network,
}

/// Calls that libraries try first, and do without if they are refused, sorted. They are not listed as denied.
const TRIED: [&str; 33] = [
    "cachestat",
    "clone3",
    "fchmodat2",
    "file_getattr",
    "file_setattr",
    "futex_requeue",
    "futex_wait",
    "futex_waitv",
    "futex_wake",
    "get_mempolicy",
    "getxattrat",
    "io_uring_setup",
    "listmount",
    "listns",
    "listxattrat",
    "lsm_get_self_attr",
    "lsm_list_modules",
    "map_shadow_stack",
    "mlock2",
    "mmap",
    "mseal",
    "openat2",
    "readahead",
    "removexattrat",
    "rseq_slice_yield",
    "sendfile",
    "set_mempolicy",
    "setxattrat",
    "splice",
    "statmount",
    "sync_file_range",
    "tee",
    "vmsplice",
];

/// Calls that make or enter namespaces and mounts. `nested` is for them.
const NAMESPACES: [&str; 15] = [
    "chroot",
    "clone",
    "fsconfig",
    "fsmount",
    "fsopen",
    "fspick",
    "mount",
    "mount_setattr",
    "move_mount",
    "open_tree",
    "open_tree_attr",
    "pivot_root",
    "setns",
    "umount2",
    "unshare",
];

/// Calls that need a privilege on the host. No profile can give it.
const PRIVILEGED: [&str; 28] = [
    "acct",
    "adjtimex",
    "clock_adjtime",
    "clock_settime",
    "create_module",
    "delete_module",
    "fanotify_init",
    "fanotify_mark",
    "finit_module",
    "init_module",
    "ioperm",
    "iopl",
    "kexec_file_load",
    "kexec_load",
    "lookup_dcookie",
    "nfsservctl",
    "open_by_handle_at",
    "quotactl",
    "quotactl_fd",
    "reboot",
    "setdomainname",
    "settimeofday",
    "swapoff",
    "swapon",
    "syslog",
    "uprobe",
    "uretprobe",
    "vhangup",
];

/// Whether a built-in profile refuses this call because programs continue without it.
pub fn is_tried(builtin: Option<Builtin>, call: &Call) -> bool {
    builtin.is_some() && name(call).is_some_and(|name| TRIED.binary_search(&name).is_ok())
}

/// What would allow a call, or why nothing does.
pub fn hint(refusing: &Refusing<'_>, call: &Call) -> String {
    if refusing.profile.is_foreign(call) {
        return "no profile allows another system call table: build the program for this machine".to_owned();
    }
    let name = name(call).unwrap_or_default();
    if PRIVILEGED.contains(&name) {
        return "it needs a privilege on the host, which no sandbox has".to_owned();
    }
    let context = Context { arch: Arch::NATIVE, kernel: super::running_kernel(), capabilities: &[], strict: false };
    let under = |builtin: Builtin, network| {
        let profile = builtin.profile(network, refusing.groups, &context);
        profile.is_ok_and(|profile| profile.decide(call).lets_through())
    };
    let has_network = refusing.network != Network::None;
    if refusing.builtin == Some(Builtin::Strict) && under(Builtin::Default, has_network) {
        return "--seccomp default would allow it".to_owned();
    }
    if refusing.builtin == Some(Builtin::Default) && !has_network && under(Builtin::Default, true) {
        return "--network loopback or host would allow it".to_owned();
    }
    if refusing.builtin == Some(Builtin::Strict) && !has_network && under(Builtin::Default, true) {
        return "--seccomp default with --network loopback or host would allow it".to_owned();
    }
    let allows = |group: &&Group| {
        let mut wider = refusing.profile.clone();
        builtin::allow(&mut wider, &[**group], &context).is_ok() && wider.decide(call).lets_through()
    };
    match Group::ALL.iter().filter(|group| !refusing.groups.contains(group)).find(allows) {
        Some(Group::Nested) if name == "sethostname" => {
            "--hostname NAME sets the name before the command runs".to_owned()
        }
        Some(Group::Nested) if matches!(name, "seccomp" | "prctl") => {
            "most programs continue without a filter of their own; only --seccomp-allow nested allows one".to_owned()
        }
        Some(Group::Nested) if !NAMESPACES.contains(&name) => {
            "use your own profile with --seccomp FILE, if the program does not continue without it".to_owned()
        }
        Some(group) => format!("--seccomp-allow {} would allow it", group.name()),
        None => "no group of --seccomp-allow contains it; use your own profile with --seccomp FILE".to_owned(),
    }
}

fn name(call: &Call) -> Option<&'static str> {
    (call.arch == Arch::NATIVE.audit()).then(|| Arch::NATIVE.name(call.number)).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ARGUMENTS: [[u64; 6]; 5] =
        [[0; 6], [1; 6], [22, 1, 0, 0, 0, 0], [2, 1, 6, 0, 0, 0], [0x1000_0000, 0o4755, 0o4755, 0o4755, 0, 0]];

    #[test]
    fn the_lists_are_sorted() {
        assert!(TRIED.is_sorted() && NAMESPACES.is_sorted() && PRIVILEGED.is_sorted());
    }

    /// Every refused call of every built-in profile, with several arguments.
    #[test]
    fn a_hint_names_an_option_only_if_that_allows_the_call_and_is_meant_for_it() {
        let context =
            Context { arch: Arch::NATIVE, kernel: super::super::running_kernel(), capabilities: &[], strict: false };
        let mut seen = 0;
        for (builtin, network) in [
            (Builtin::Default, Network::Loopback),
            (Builtin::Default, Network::None),
            (Builtin::Strict, Network::None),
            (Builtin::Strict, Network::Loopback),
            (Builtin::Docker, Network::Loopback),
        ] {
            let profile = builtin.profile(network != Network::None, &[], &context).unwrap();
            let refusing = Refusing { profile: &profile, groups: &[], builtin: Some(builtin), network };
            for (number, args) in (0..600).flat_map(|number| ARGUMENTS.map(|args| (number, args))) {
                let call = Call { arch: Arch::NATIVE.audit(), number, args };
                let Some(name) = Arch::NATIVE.name(number).filter(|_| !profile.decide(&call).lets_through()) else {
                    continue;
                };
                seen += 1;
                let hint = hint(&refusing, &call);
                if let Some(rest) = hint.strip_prefix("--seccomp-allow ") {
                    let group: Group = rest.split(' ').next().unwrap().parse().unwrap();
                    let wider = builtin.profile(network != Network::None, &[group], &context).unwrap();
                    assert!(wider.decide(&call).lets_through(), "{name}: {hint}");
                    assert!(group != Group::Nested || NAMESPACES.contains(&name), "{name}: {hint}");
                } else if hint.starts_with("--seccomp default") {
                    let with = hint.contains("--network") || network != Network::None;
                    let other = Builtin::Default.profile(with, &[], &context).unwrap();
                    assert!(other.decide(&call).lets_through(), "{name}: {hint}");
                } else if hint.starts_with("--network") {
                    assert_eq!(name, "socket", "{hint}");
                }
                if ["clone3", "openat2", "io_uring_setup"].contains(&name) {
                    assert!(is_tried(Some(builtin), &call), "{name}");
                }
            }
        }
        assert!(seen > 300, "{seen}");
    }
}
