//! The system calls: names, numbers, and how wide the kernel reads each parameter.
//!
//! One table of our own instead of a crate, because the third column exists nowhere else: a filter sees 64-bit registers,
//! the kernel looks at as many bits as the parameter's type has, and a filter that compares more than that can be walked
//! around by setting bits nobody reads. The tests hold the table against the machine's own headers and libseccomp.

use crate::table::{ELSEWHERE, NONE, Row, SYSCALLS};

/// An architecture that filters can be compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Arch {
    /// 64-bit x86.
    X86_64,
    /// 64-bit Arm.
    Aarch64,
}

impl Arch {
    /// The one this binary runs on.
    pub const NATIVE: Self = if cfg!(target_arch = "aarch64") { Self::Aarch64 } else { Self::X86_64 };

    /// What the kernel puts into `seccomp_data.arch`: `AUDIT_ARCH_X86_64` and its like, `linux/audit.h`.
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

    /// Every name, with its number here.
    pub fn all(self) -> impl Iterator<Item = (&'static str, u32)> {
        SYSCALLS.iter().filter_map(move |row| Some((row.0, self.number_of(row)?)))
    }

    /// The highest number in the table.
    pub fn highest(self) -> u32 {
        SYSCALLS.iter().filter_map(|row| self.number_of(row)).max().unwrap_or(0)
    }

    /// The number of a system call here, if this architecture has it.
    pub fn number(self, name: &str) -> Option<u32> {
        self.lookup(name).map(|(number, _)| number)
    }

    /// The name of a number here.
    pub fn name(self, number: u32) -> Option<&'static str> {
        SYSCALLS.iter().find(|row| self.number_of(row) == Some(number)).map(|row| row.0)
    }

    /// The number of a system call here and how the kernel reads its parameters.
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

/// How many bits of an argument register the kernel looks at.
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
    /// The bits that are looked at.
    pub const fn mask(self) -> u64 {
        match self {
            Self::Whole => u64::MAX,
            Self::Int => 0xffff_ffff,
            Self::Mode => 0xffff,
        }
    }
}

/// Whether this is the name of a system call of any architecture Linux has, so that it is no misspelling.
pub fn exists_somewhere(name: &str) -> bool {
    SYSCALLS.binary_search_by(|row| row.0.cmp(name)).is_ok() || ELSEWHERE.binary_search(&name).is_ok()
}
