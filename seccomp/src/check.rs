//! Finds mistakes and dangers in a profile that compiles.

use crate::bpf::Instruction;
use crate::compare::AUDIT_ARCH_I386;
use crate::explain::{may_pass, order};
use crate::interpret::run;
use crate::model::{Call, Profile, Rule, Stage, X32_BIT};
use crate::names::Arch;
use crate::oci::Warning;
use crate::ranges;

/// All warnings about a profile, except those from parsing.
pub fn check(profile: &Profile) -> Vec<Warning> {
    let mut warnings = Vec::new();
    unreachable(profile, &mut warnings);
    if profile.default.lets_through() {
        let text =
            "calls that no rule names are allowed, also those that later kernels add: list what is allowed instead";
        warnings.push(Warning { path: "defaultAction".to_owned(), text: text.to_owned() });
    }
    for name in ["execve", "exit_group"] {
        if profile.arch.number(name).is_some_and(|number| !may_pass(profile, number)) {
            let why = if name == "execve" { "no program can be started" } else { "no program can exit normally" };
            warnings.push(Warning { path: String::new(), text: format!("{name} is refused: {why}") });
        }
    }
    for class in CLASSES {
        let open: Vec<&str> = class.probes.iter().filter(|probe| passes(profile, probe)).map(|probe| probe.0).collect();
        if !open.is_empty() && (class.when)(profile) {
            let text = format!("{} {}: {}", open.join(", "), if open.len() > 1 { "pass" } else { "passes" }, class.why);
            warnings.push(Warning { path: String::new(), text });
        }
    }
    warnings
}

/// Warnings about a compiled program: whether another system call table bypasses it.
pub fn check_program(program: &[Instruction]) -> Vec<Warning> {
    let native = Arch::NATIVE.audit();
    let passes = |arch, offset| {
        // Enough of the table to find calls that the filter allows.
        (0..512).any(|number| run(program, &Call { arch, number: number | offset, args: [0; 6] }).0.lets_through())
    };
    let mut warnings = Vec::new();
    let mut warn = |text: &str| warnings.push(Warning { path: String::new(), text: text.to_owned() });
    if passes(AUDIT_ARCH_I386, 0) {
        warn("lets calls of the 32-bit table pass (int 0x80), whose numbers mean something else");
    }
    if Arch::NATIVE == Arch::X86_64 && passes(native, X32_BIT) {
        warn("lets calls of the x32 table pass");
    }
    warnings
}

/// Rules that never decide a call.
fn unreachable(profile: &Profile, warnings: &mut Vec<Warning>) {
    let mut seen: Vec<(&Stage, &Rule, Vec<u32>)> = Vec::new();
    for stage in &profile.stages {
        seen.extend(stage.rules.iter().map(|rule| (stage, rule, Vec::new())));
    }
    // Stage by stage: a group is meant to decide calls that the profile would refuse.
    let stages = profile.stages.iter();
    for (stage, number) in stages.flat_map(|stage| (0..=profile.highest()).map(move |number| (stage, number))) {
        let mut order = order(profile, number);
        order.retain(|(of, _)| std::ptr::eq(*of, stage));
        let certain = order.iter().position(|(_, rule)| rule.conditions.is_empty()).unwrap_or(order.len());
        for (at, (_, rule)) in order.iter().enumerate() {
            let repeated = order[..at].iter().any(|(_, earlier)| earlier.conditions == rule.conditions);
            if at <= certain && !repeated && ranges::of(&rule.conditions).is_some() {
                continue;
            }
            if let Some(entry) = seen.iter_mut().find(|entry| std::ptr::eq(entry.1, *rule)) {
                entry.2.push(number);
            }
        }
    }
    for (stage, rule, never) in seen {
        let path = match stage.name.as_str() {
            "" => rule.origin.to_string(),
            name if name == rule.origin.0 => rule.origin.to_string(),
            name => format!("{name}: {}", rule.origin),
        };
        let names = |numbers: &[u32]| {
            let names = numbers.iter().map(|number| profile.arch.name(*number).unwrap_or("?"));
            names.collect::<Vec<_>>().join(", ")
        };
        let text = if never.is_empty() {
            continue;
        } else if ranges::of(&rule.conditions).is_none() {
            "never matches: no argument can meet its conditions".to_owned()
        } else if never.len() == rule.numbers.len() {
            "never decides: stricter or earlier rules cover the same calls".to_owned()
        } else {
            format!("never decides {}: stricter or earlier rules cover the same calls", names(&never))
        };
        warnings.push(Warning { path, text });
    }
}

/// A call by name and first arguments.
type Probe = (&'static str, &'static str, [u64; 3]);

fn passes(profile: &Profile, probe: &Probe) -> bool {
    let Some(number) = profile.arch.number(probe.1) else { return false };
    let [a, b, c] = probe.2;
    if probe.2 == ANY {
        return may_pass(profile, number);
    }
    profile.decide(&Call { arch: profile.arch.audit(), number, args: [a, b, c, 0, 0, 0] }).lets_through()
}

/// Some arguments pass.
const ANY: [u64; 3] = [u64::MAX; 3];

/// A bypass that a profile leaves open if one of the probes passes.
struct Class {
    probes: &'static [Probe],
    /// Whether it matters for this profile.
    when: fn(&Profile) -> bool,
    why: &'static str,
}

const fn any(name: &'static str) -> Probe {
    (name, name, ANY)
}

/// Whether a call is refused, or filtered by its arguments.
fn guards(profile: &Profile, name: &str) -> bool {
    let Some(number) = profile.arch.number(name) else { return false };
    !may_pass(profile, number) || order(profile, number).iter().any(|(_, rule)| !rule.conditions.is_empty())
}

const CLASSES: &[Class] = &[
    Class {
        probes: &[any("io_uring_setup"), any("io_uring_enter")],
        when: |profile| ["socket", "connect", "openat", "openat2", "bind"].iter().any(|name| guards(profile, name)),
        why: "refused operations can be done through io_uring, which filters do not see",
    },
    Class {
        probes: &[any("clone3")],
        when: |profile| guards(profile, "clone"),
        why: "its flags are behind a pointer, so a filter on clone is bypassed; ENOSYS makes libraries use clone",
    },
    Class {
        probes: &[
            ("clone(CLONE_NEWUSER)", "clone", [0x1000_0011, 0, 0]),
            ("unshare(CLONE_NEWUSER)", "unshare", [0x1000_0000, 0, 0]),
            any("setns"),
        ],
        when: |_| true,
        why: "a user namespace gives capabilities over kernel code that is otherwise not reachable",
    },
    Class {
        // Tracing is not among them: in the pid namespace of a run it reaches the run's own processes.
        probes: &[any("pidfd_getfd"), any("process_madvise")],
        when: |_| true,
        why: "descriptors and memory of other processes of the same user can be taken",
    },
    Class {
        probes: &[
            ("ioctl(TIOCSTI)", "ioctl", [0, 0x5412, 0]),
            ("ioctl(TIOCSTI | 1 << 32)", "ioctl", [0, 0x1_0000_5412, 0]),
            ("ioctl(TIOCLINUX)", "ioctl", [0, 0x541c, 0]),
            ("ioctl(TIOCSETD)", "ioctl", [0, 0x5423, 0]),
        ],
        when: |_| true,
        why: "input can be put into a terminal that is shared with the outside",
    },
    Class {
        probes: &[
            ("socket(AF_ALG)", "socket", [38, 5, 0]),
            ("socket(AF_VSOCK)", "socket", [40, 1, 0]),
            ("socket(AF_PACKET)", "socket", [17, 3, 0]),
            ("socket(AF_KEY)", "socket", [15, 3, 2]),
            ("socket(AF_NETLINK, NETLINK_NETFILTER)", "socket", [16, 3, 12]),
        ],
        when: |_| true,
        why: "rarely needed socket families with a record of kernel bugs",
    },
    Class {
        probes: &[
            any("bpf"),
            any("perf_event_open"),
            any("userfaultfd"),
            any("keyctl"),
            any("add_key"),
            any("request_key"),
        ],
        when: |_| true,
        why: "kernel interfaces that are not confined by namespaces, or that exploits are built with",
    },
    Class {
        probes: &[
            any("mount"),
            any("umount2"),
            any("pivot_root"),
            any("move_mount"),
            any("open_tree"),
            any("fsopen"),
            any("fsmount"),
            any("mount_setattr"),
        ],
        when: |_| true,
        why: "with CAP_SYS_ADMIN in the sandbox's user namespace, read-only and masked paths can be undone",
    },
    Class {
        probes: &[
            any("open_by_handle_at"),
            any("init_module"),
            any("finit_module"),
            any("kexec_load"),
            any("kexec_file_load"),
        ],
        when: |_| true,
        why: "with the capability, a direct way to the host",
    },
    Class {
        probes: &[
            ("personality(READ_IMPLIES_EXEC)", "personality", [0x0040_0000, 0, 0]),
            ("personality(ADDR_NO_RANDOMIZE)", "personality", [0x0004_0000, 0, 0]),
        ],
        when: |_| true,
        why: "hardening of the programs inside can be switched off",
    },
    Class {
        probes: &[any("splice"), any("vmsplice"), any("tee")],
        when: |profile| passes(profile, &("", "socket", [38, 5, 0])),
        why: "together with AF_ALG sockets the way to write to the page cache of read-only files",
    },
];
