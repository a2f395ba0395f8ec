//! The system calls: names, numbers, and how many bits of each parameter the kernel reads.
//!
//! This is a table of our own and not a crate, because no crate has the third column. A filter sees 64-bit registers, but the
//! kernel reads only as many bits as the parameter's type has. A filter that compares more bits can be bypassed by setting bits
//! that the kernel ignores. The tests compare the table with the machine's headers and libseccomp.

use crate::table::{NONE, Row, SYSCALLS};

/// An architecture that filters can be compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Arch {
    /// 64-bit x86.
    X86_64,
    /// 64-bit Arm.
    Aarch64,
}

impl Arch {
    /// The architecture of this binary.
    pub const NATIVE: Self = if cfg!(target_arch = "aarch64") { Self::Aarch64 } else { Self::X86_64 };

    /// The value of `seccomp_data.arch`: `AUDIT_ARCH_X86_64` etc., `linux/audit.h`.
    pub const fn audit(self) -> u32 {
        match self {
            Self::X86_64 => 0xc000_003e,
            Self::Aarch64 => 0xc000_00b7,
        }
    }

    /// Its name in `architectures` and `archMap` of an OCI profile.
    pub const fn oci_name(self) -> &'static str {
        match self {
            Self::X86_64 => "SCMP_ARCH_X86_64",
            Self::Aarch64 => "SCMP_ARCH_AARCH64",
        }
    }

    /// Its name in `includes.arches` and `excludes.arches` of an OCI profile.
    pub const fn docker_name(self) -> &'static str {
        match self {
            Self::X86_64 => "amd64",
            Self::Aarch64 => "arm64",
        }
    }

    /// All names, with their numbers on this architecture.
    pub fn all(self) -> impl Iterator<Item = (&'static str, u32)> {
        SYSCALLS.iter().filter_map(move |row| Some((row.0, self.number_of(row)?)))
    }

    /// The highest number in the table.
    pub fn highest(self) -> u32 {
        SYSCALLS.iter().filter_map(|row| self.number_of(row)).max().unwrap_or(0)
    }

    /// The number of a system call on this architecture, if it has it.
    pub fn number(self, name: &str) -> Option<u32> {
        self.lookup(name).map(|(number, _)| number)
    }

    /// The name of a number on this architecture.
    pub fn name(self, number: u32) -> Option<&'static str> {
        SYSCALLS.iter().find(|row| self.number_of(row) == Some(number)).map(|row| row.0)
    }

    /// The number of a system call on this architecture, and the widths of its parameters.
    pub fn lookup(self, name: &str) -> Option<(u32, [Width; 6])> {
        let row = &SYSCALLS[SYSCALLS.binary_search_by(|row| row.0.cmp(name)).ok()?];
        let mut widths = [Width::Whole; 6];
        for (width, letter) in widths.iter_mut().zip(row.3.bytes()) {
            *width = match letter {
                b'i' => Width::Int,
                b'm' => Width::Mode,
                _ => Width::Whole,
            };
        }
        Some((self.number_of(row)?, widths))
    }

    fn number_of(self, row: &Row) -> Option<u32> {
        let number = match self {
            Self::X86_64 => row.1,
            Self::Aarch64 => row.2,
        };
        (number != NONE).then_some(u32::from(number))
    }
}

/// How many bits of an argument register the kernel reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Width {
    /// All 64: pointers, sizes, offsets, `unsigned long`.
    Whole,
    /// The low 32: `int`, `unsigned int`, ids, descriptors, flags.
    Int,
    /// The low 16: `umode_t`.
    Mode,
}

impl Width {
    /// The bits that the kernel reads.
    pub const fn mask(self) -> u64 {
        match self {
            Self::Whole => u64::MAX,
            Self::Int => 0xffff_ffff,
            Self::Mode => 0xffff,
        }
    }
}

/// Whether some Linux architecture has a system call of this name, so that it is not a misspelling.
pub fn exists_somewhere(name: &str) -> bool {
    SYSCALLS.binary_search_by(|row| row.0.cmp(name)).is_ok() || ELSEWHERE.binary_search(&name).is_ok()
}

/// Names that only other architectures have. Sorted.
#[rustfmt::skip]
const ELSEWHERE: &[&str] = &[
    "_llseek", "_newselect", "arm_fadvise64_64", "arm_sync_file_range", "bdflush", "break", "breakpoint", "cachectl",
    "cacheflush", "chown32", "clock_adjtime64", "clock_getres_time64", "clock_gettime64", "clock_nanosleep_time64",
    "clock_settime64", "execv", "fadvise64_64", "fchown32", "fcntl64", "fstat64", "fstatat", "fstatat64", "fstatfs64",
    "ftime", "ftruncate64", "futex_time64", "get_tls", "getdomainname", "getegid32", "geteuid32", "getgid32",
    "getgroups32", "getpagesize", "getresgid32", "getresuid32", "getuid32", "gtty", "idle", "io_pgetevents_time64",
    "ipc", "kern_features", "lchown32", "llseek", "lock", "lstat64", "memory_ordering", "mmap2", "mpx",
    "mq_timedreceive_time64", "mq_timedsend_time64", "multiplexer", "nice", "oldfstat", "oldlstat", "oldolduname",
    "oldstat", "olduname", "pciconfig_iobase", "pciconfig_read", "pciconfig_write", "perfctr", "ppoll_time64", "prof",
    "profil", "pselect6_time64", "readdir", "recv", "recvmmsg_time64", "riscv_flush_icache", "riscv_hwprobe",
    "rt_sigtimedwait_time64", "rtas", "s390_guarded_storage", "s390_pci_mmio_read", "s390_pci_mmio_write",
    "s390_runtime_instr", "s390_sthyi", "sched_get_affinity", "sched_rr_get_interval_time64", "sched_set_affinity",
    "semtimedop_time64", "send", "sendfile64", "set_tls", "setfsgid32", "setfsuid32", "setgid32", "setgroups32",
    "setregid32", "setresgid32", "setresuid32", "setreuid32", "setuid32", "sgetmask", "sigaction", "signal",
    "sigpending", "sigprocmask", "sigreturn", "sigsuspend", "socketcall", "spu_create", "spu_run", "ssetmask", "stat64",
    "statfs64", "stime", "stty", "subpage_prot", "swapcontext", "switch_endian", "sync_file_range2",
    "sys_debug_setcontext", "syscall", "sysmips", "timer_gettime64", "timer_settime64", "timerfd", "timerfd_gettime64",
    "timerfd_settime64", "truncate64", "ugetrlimit", "ulimit", "umount", "usr26", "usr32", "utimensat_time64",
    "utrap_install", "vm86", "vm86old", "waitpid",
];
