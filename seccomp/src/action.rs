//! The results of a filter, named as in the kernel and in OCI profiles.

/// What happens to a system call. `seccomp(2)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Action {
    /// The whole process dies of `SIGSYS`.
    KillProcess,
    /// The calling thread dies of `SIGSYS`.
    KillThread,
    /// The thread gets a `SIGSYS` it can handle.
    Trap,
    /// The call returns this error number and is not made.
    Errno(u16),
    /// A user-space listener decides, `seccomp_unotify(2)`.
    Notify,
    /// A tracer is notified, with this message. Without a tracer the call fails with `ENOSYS`.
    Trace(u16),
    /// The call is made and logged.
    Log,
    /// The call is made.
    Allow,
}

/// `EPERM`: returned by `SCMP_ACT_ERRNO` without a number.
pub const EPERM: u16 = 1;
/// `ENOSYS`: returned by calls that the kernel lacks.
pub const ENOSYS: u16 = 38;
/// The highest error number. The kernel reduces larger ones to it, `MAX_ERRNO`.
pub const MAX_ERRNO: u16 = 4095;

impl Action {
    /// Names in OCI profiles, with their actions. `SCMP_ACT_KILL` means the thread, as in libseccomp.
    const OCI: [(&'static str, Self); 9] = [
        ("SCMP_ACT_KILL", Self::KillThread),
        ("SCMP_ACT_KILL_PROCESS", Self::KillProcess),
        ("SCMP_ACT_KILL_THREAD", Self::KillThread),
        ("SCMP_ACT_TRAP", Self::Trap),
        ("SCMP_ACT_ERRNO", Self::Errno(EPERM)),
        ("SCMP_ACT_TRACE", Self::Trace(EPERM)),
        ("SCMP_ACT_ALLOW", Self::Allow),
        ("SCMP_ACT_LOG", Self::Log),
        ("SCMP_ACT_NOTIFY", Self::Notify),
    ];

    /// The action with this name in OCI profiles, with its default data.
    pub fn from_oci(name: &str) -> Option<Self> {
        Self::OCI.iter().find(|entry| entry.0 == name).map(|entry| entry.1)
    }

    /// How lenient it is: 0 is the strictest. This is the kernel's order of precedence between filters.
    pub const fn leniency(self) -> u8 {
        match self {
            Self::KillProcess => 0,
            Self::KillThread => 1,
            Self::Trap => 2,
            Self::Errno(_) => 3,
            Self::Notify => 4,
            Self::Trace(_) => 5,
            Self::Log => 6,
            Self::Allow => 7,
        }
    }

    /// Whether the call is always made.
    pub const fn lets_through(self) -> bool {
        matches!(self, Self::Allow | Self::Log)
    }

    /// A program's return value for it: `SECCOMP_RET_*` and its data, `linux/seccomp.h`.
    pub const fn encode(self) -> u32 {
        match self {
            Self::KillProcess => 0x8000_0000,
            Self::KillThread => 0,
            Self::Trap => 0x0003_0000,
            Self::Errno(number) => 0x0005_0000 | number as u32,
            Self::Notify => 0x7fc0_0000,
            Self::Trace(message) => 0x7ff0_0000 | message as u32,
            Self::Log => 0x7ffc_0000,
            Self::Allow => 0x7fff_0000,
        }
    }

    /// The kernel's interpretation of a return value. Unknown values kill the process, as in the kernel.
    pub const fn decode(value: u32) -> Self {
        let data = (value & 0xffff) as u16;
        match value & 0xffff_0000 {
            0 => Self::KillThread,
            0x0003_0000 => Self::Trap,
            0x0005_0000 => Self::Errno(if data > MAX_ERRNO { MAX_ERRNO } else { data }),
            0x7fc0_0000 => Self::Notify,
            0x7ff0_0000 => Self::Trace(data),
            0x7ffc_0000 => Self::Log,
            0x7fff_0000 => Self::Allow,
            _ => Self::KillProcess,
        }
    }
}

/// As in the kernel's documentation, with the error's name: `ERRNO(EPERM)`.
impl std::fmt::Display for Action {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::KillProcess => f.write_str("KILL_PROCESS"),
            Self::KillThread => f.write_str("KILL_THREAD"),
            Self::Trap => f.write_str("TRAP"),
            Self::Errno(number) => match errno_name(*number) {
                Some(name) => write!(f, "ERRNO({name})"),
                None => write!(f, "ERRNO({number})"),
            },
            Self::Notify => f.write_str("USER_NOTIF"),
            Self::Trace(message) => write!(f, "TRACE({message})"),
            Self::Log => f.write_str("LOG"),
            Self::Allow => f.write_str("ALLOW"),
        }
    }
}

/// The errors that profiles name or often return, `errno(3)`. The numbers are equal on both architectures.
const ERRNOS: [(&str, u16); 21] = [
    ("EPERM", 1),
    ("ENOENT", 2),
    ("ESRCH", 3),
    ("EINTR", 4),
    ("EIO", 5),
    ("EBADF", 9),
    ("EAGAIN", 11),
    ("ENOMEM", 12),
    ("EACCES", 13),
    ("EFAULT", 14),
    ("EBUSY", 16),
    ("ENODEV", 19),
    ("EINVAL", 22),
    ("ENOTTY", 25),
    ("ENOSPC", 28),
    ("EROFS", 30),
    ("ENOSYS", ENOSYS),
    ("ENOPROTOOPT", 92),
    ("EPROTONOSUPPORT", 93),
    ("EOPNOTSUPP", 95),
    ("EAFNOSUPPORT", 97),
];

/// The name of an error number.
pub fn errno_name(number: u16) -> Option<&'static str> {
    ERRNOS.iter().find(|entry| entry.1 == number).map(|entry| entry.0)
}

/// The number of an error by its name, as Podman's profiles write it.
pub fn errno_number(name: &str) -> Option<u16> {
    ERRNOS.iter().find(|entry| entry.0 == name).map(|entry| entry.1)
}
