//! Shows those arguments of a system call that explain why it was refused.

use crate::plan::Bytes;

/// How an argument is displayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Text in the caller's memory: a path or a name.
    Text,
    /// Address family of a socket.
    Family,
    /// Type of a socket, without its flags.
    SocketType,
    /// `CLONE_NEW*` bits.
    Namespaces,
    /// Request of `ioctl(2)`.
    Ioctl,
    /// Request of `ptrace(2)`.
    Ptrace,
    /// A file mode.
    Octal,
    /// Bits.
    Hex,
    /// A number.
    Number,
}

use Kind::{Family, Hex, Ioctl, Namespaces, Number, Octal, Ptrace, SocketType, Text};

/// The arguments that are displayed, by system call, sorted by name.
const SHOWN: [(&str, &[(usize, Kind)]); 75] = [
    ("acct", &[(0, Text)]),
    ("add_key", &[(0, Text), (1, Text)]),
    ("arch_prctl", &[(0, Hex)]),
    ("bpf", &[(0, Number)]),
    ("chmod", &[(0, Text), (1, Octal)]),
    ("chown", &[(0, Text), (1, Number), (2, Number)]),
    ("chroot", &[(0, Text)]),
    ("clock_adjtime", &[(0, Number)]),
    ("clock_settime", &[(0, Number)]),
    ("clone", &[(0, Namespaces)]),
    ("creat", &[(0, Text), (1, Octal)]),
    ("delete_module", &[(0, Text)]),
    ("execve", &[(0, Text)]),
    ("execveat", &[(1, Text)]),
    ("fchmod", &[(1, Octal)]),
    ("fchmodat", &[(1, Text), (2, Octal)]),
    ("fchmodat2", &[(1, Text), (2, Octal)]),
    ("fsopen", &[(0, Text)]),
    ("fspick", &[(1, Text)]),
    ("ioctl", &[(1, Ioctl)]),
    ("ioprio_set", &[(0, Number), (1, Number), (2, Hex)]),
    ("kcmp", &[(0, Number), (1, Number), (2, Number)]),
    ("keyctl", &[(0, Number)]),
    ("kill", &[(0, Number), (1, Number)]),
    ("landlock_create_ruleset", &[(2, Hex)]),
    ("link", &[(0, Text), (1, Text)]),
    ("linkat", &[(1, Text), (3, Text)]),
    ("lookup_dcookie", &[(0, Hex)]),
    ("memfd_create", &[(0, Text), (1, Hex)]),
    ("migrate_pages", &[(0, Number)]),
    ("mkdir", &[(0, Text), (1, Octal)]),
    ("mkdirat", &[(1, Text), (2, Octal)]),
    ("mknod", &[(0, Text), (1, Octal)]),
    ("mknodat", &[(1, Text), (2, Octal)]),
    ("modify_ldt", &[(0, Number)]),
    ("mount", &[(1, Text), (2, Text)]),
    ("mount_setattr", &[(1, Text)]),
    ("move_mount", &[(1, Text), (3, Text)]),
    ("move_pages", &[(0, Number)]),
    ("name_to_handle_at", &[(1, Text)]),
    ("open", &[(0, Text), (2, Octal)]),
    ("open_tree", &[(1, Text)]),
    ("openat", &[(1, Text), (3, Octal)]),
    ("openat2", &[(1, Text)]),
    ("personality", &[(0, Hex)]),
    ("pidfd_getfd", &[(1, Number)]),
    ("pidfd_open", &[(0, Number)]),
    ("pivot_root", &[(0, Text), (1, Text)]),
    ("prctl", &[(0, Number), (1, Hex)]),
    ("prlimit64", &[(0, Number), (1, Number)]),
    ("process_vm_readv", &[(0, Number)]),
    ("process_vm_writev", &[(0, Number)]),
    ("ptrace", &[(0, Ptrace), (1, Number)]),
    ("quotactl", &[(0, Hex), (1, Text)]),
    ("reboot", &[(2, Hex)]),
    ("request_key", &[(0, Text), (1, Text)]),
    ("sched_setattr", &[(0, Number)]),
    ("sched_setscheduler", &[(0, Number), (1, Number)]),
    ("seccomp", &[(0, Number), (1, Hex)]),
    ("setdomainname", &[(0, Text)]),
    ("setgid", &[(0, Number)]),
    ("sethostname", &[(0, Text)]),
    ("setns", &[(1, Namespaces)]),
    ("setpriority", &[(0, Number), (1, Number), (2, Number)]),
    ("setuid", &[(0, Number)]),
    ("shmget", &[(0, Hex), (1, Number)]),
    ("socket", &[(0, Family), (1, SocketType), (2, Number)]),
    ("socketpair", &[(0, Family), (1, SocketType), (2, Number)]),
    ("swapoff", &[(0, Text)]),
    ("swapon", &[(0, Text)]),
    ("syslog", &[(0, Number)]),
    ("tgkill", &[(0, Number), (1, Number), (2, Number)]),
    ("umount2", &[(0, Text)]),
    ("unshare", &[(0, Namespaces)]),
    ("uselib", &[(0, Text)]),
];

/// The displayed arguments of a call, separated by commas. `None` if there are none. `read` reads text from the caller's
/// memory.
pub fn describe(name: &str, args: &[u64; 6], mut read: impl FnMut(u64) -> Option<Vec<u8>>) -> Option<String> {
    let (_, shown) = SHOWN[SHOWN.binary_search_by(|row| row.0.cmp(name)).ok()?];
    let parts = shown.iter().filter_map(|(at, kind)| {
        let value = args[*at];
        Some(match kind {
            Text => Bytes::from(read(value)?).to_string(),
            Family => named(&FAMILIES, value & 0xffff_ffff, "AF"),
            SocketType => named(&SOCKET_TYPES, value & 0xf, "type"),
            Namespaces => namespaces(name, value),
            Ioctl => named_hex(&IOCTLS, value & 0xffff_ffff),
            Ptrace => named(&PTRACE, value, "request"),
            Octal => format!("0{:o}", value & 0o177_777),
            Hex => format!("{value:#x}"),
            Number => (value as i32).to_string(),
        })
    });
    let text = parts.collect::<Vec<_>>().join(", ");
    (!text.is_empty()).then_some(text)
}

type Names = [(u64, &'static str)];

fn named(names: &Names, value: u64, else_as: &str) -> String {
    names.iter().find(|entry| entry.0 == value).map_or_else(|| format!("{else_as} {value}"), |entry| entry.1.to_owned())
}

fn named_hex(names: &Names, value: u64) -> String {
    names.iter().find(|entry| entry.0 == value).map_or_else(|| format!("{value:#x}"), |entry| entry.1.to_owned())
}

fn namespaces(call: &str, flags: u64) -> String {
    // The low byte of clone's flags is the signal for the parent.
    let flags = if call == "clone" { flags & !0xff } else { flags };
    let names: Vec<&str> = NAMESPACES.iter().filter(|(bit, _)| flags & bit != 0).map(|(_, name)| *name).collect();
    if names.is_empty() { format!("{flags:#x}") } else { names.join("|") }
}

const NAMESPACES: [(u64, &str); 8] = [
    (0x80, "CLONE_NEWTIME"),
    (0x2_0000, "CLONE_NEWNS"),
    (0x200_0000, "CLONE_NEWCGROUP"),
    (0x400_0000, "CLONE_NEWUTS"),
    (0x800_0000, "CLONE_NEWIPC"),
    (0x1000_0000, "CLONE_NEWUSER"),
    (0x2000_0000, "CLONE_NEWPID"),
    (0x4000_0000, "CLONE_NEWNET"),
];

const FAMILIES: [(u64, &str); 22] = [
    (0, "AF_UNSPEC"),
    (1, "AF_UNIX"),
    (2, "AF_INET"),
    (3, "AF_AX25"),
    (4, "AF_IPX"),
    (5, "AF_APPLETALK"),
    (9, "AF_X25"),
    (10, "AF_INET6"),
    (15, "AF_KEY"),
    (16, "AF_NETLINK"),
    (17, "AF_PACKET"),
    (21, "AF_RDS"),
    (26, "AF_LLC"),
    (29, "AF_CAN"),
    (30, "AF_TIPC"),
    (31, "AF_BLUETOOTH"),
    (38, "AF_ALG"),
    (39, "AF_NFC"),
    (40, "AF_VSOCK"),
    (41, "AF_KCM"),
    (43, "AF_SMC"),
    (44, "AF_XDP"),
];

const SOCKET_TYPES: [(u64, &str); 6] = [
    (1, "SOCK_STREAM"),
    (2, "SOCK_DGRAM"),
    (3, "SOCK_RAW"),
    (4, "SOCK_RDM"),
    (5, "SOCK_SEQPACKET"),
    (10, "SOCK_PACKET"),
];

const IOCTLS: [(u64, &str); 9] = [
    (0x5412, "TIOCSTI"),
    (0x541c, "TIOCLINUX"),
    (0x5423, "TIOCSETD"),
    (0x541d, "TIOCCONS"),
    (0x540e, "TIOCSCTTY"),
    (0x6601, "FS_IOC_GETFLAGS"),
    (0x4008_6602, "FS_IOC_SETFLAGS"),
    (0xc018_5879, "FITRIM"),
    (0xc038_586b, "FS_IOC_ADD_ENCRYPTION_KEY"),
];

const PTRACE: [(u64, &str); 8] = [
    (0, "PTRACE_TRACEME"),
    (1, "PTRACE_PEEKTEXT"),
    (2, "PTRACE_PEEKDATA"),
    (4, "PTRACE_POKETEXT"),
    (5, "PTRACE_POKEDATA"),
    (16, "PTRACE_ATTACH"),
    (0x4206, "PTRACE_SEIZE"),
    (0x420d, "PTRACE_SECCOMP_GET_METADATA"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use stockade_seccomp::Arch;

    #[test]
    fn the_calls_are_in_order_and_exist() {
        assert!(SHOWN.is_sorted_by(|a, b| a.0 < b.0));
        for (name, _) in SHOWN {
            assert!(Arch::X86_64.number(name).or(Arch::Aarch64.number(name)).is_some(), "{name}");
        }
    }

    #[test]
    fn explaining_arguments_are_shown() {
        let text = |_| Some(b"/a\nb".to_vec());
        let shown = |name, args| describe(name, &args, text);
        assert_eq!(shown("socket", [38, 5 | 0x80000, 0, 0, 0, 0]).unwrap(), "AF_ALG, SOCK_SEQPACKET, 0");
        assert_eq!(shown("clone", [0x1002_0011, 0, 0, 0, 0, 0]).unwrap(), "CLONE_NEWNS|CLONE_NEWUSER");
        assert_eq!(shown("unshare", [0x80, 0, 0, 0, 0, 0]).unwrap(), "CLONE_NEWTIME");
        assert_eq!(shown("ioctl", [0, 0x5412 | 1 << 40, 0, 0, 0, 0]).unwrap(), "TIOCSTI", "the kernel reads 32 bits");
        assert_eq!(shown("chmod", [7, 0o4755, 0, 0, 0, 0]).unwrap(), "/a\\nb, 04755");
        assert_eq!(shown("getpid", [0; 6]), None);
        assert_eq!(describe("chroot", &[7, 0, 0, 0, 0, 0], |_| None), None, "unreadable");
    }
}
