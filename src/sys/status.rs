//! The only parser of `/proc/PID/status`, `proc_pid_status(5)`.

use std::os::fd::{AsFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;

use super::file::open;

/// Most bytes that are read: a process may have 65536 groups.
const LONGEST: usize = 1 << 20;

/// `Seccomp:` of a process with a filter.
const MODE_FILTER: u32 = 2;

/// `Seccomp:` of a process that was killed by its filter, `kernel/seccomp.c`.
const MODE_DEAD: u32 = 3;

/// The status of one process. A field that cannot be parsed is `None`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status(String);

impl Status {
    /// This process's status.
    pub fn own() -> Result<Self, Errno> {
        Self::by_path("/proc/self/status")
    }

    /// The status of a process by its id.
    pub fn of(pid: i32) -> Result<Self, Errno> {
        Self::by_path(&format!("/proc/{pid}/status"))
    }

    /// The status of a process by its `/proc` directory, which never refers to another process.
    pub fn at(proc_pid: impl AsFd) -> Result<Self, Errno> {
        read(&openat(proc_pid, c"status", OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty())?)
    }

    fn by_path(path: &str) -> Result<Self, Errno> {
        read(&open(path, OFlag::O_RDONLY)?)
    }

    /// A text in the kernel's format: one field per line. The process chooses its name, but the kernel escapes line ends in it.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The value of a field.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.0.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
    }

    /// A decimal number.
    pub fn number<N: std::str::FromStr>(&self, name: &str) -> Option<N> {
        self.field(name)?.parse().ok()
    }

    /// Decimal numbers, or `None` if one of them cannot be parsed.
    pub fn numbers(&self, name: &str) -> Option<Vec<u32>> {
        self.field(name)?.split_ascii_whitespace().map(|word| word.parse().ok()).collect()
    }

    /// A set of capabilities or signals, as a mask.
    pub fn mask(&self, name: &str) -> Option<u64> {
        u64::from_str_radix(self.field(name)?, 16).ok()
    }

    /// `PR_GET_NO_NEW_PRIVS`.
    pub fn no_new_privs(&self) -> Option<bool> {
        self.field("NoNewPrivs").map(|value| value == "1")
    }

    /// Whether it has a seccomp filter, or was killed by it.
    pub fn is_filtered(&self) -> bool {
        matches!(self.number("Seccomp"), Some(MODE_FILTER | MODE_DEAD))
    }

    /// Its number of filters; `None` before Linux 5.9.
    pub fn filters(&self) -> Option<u64> {
        self.number("Seccomp_filters")
    }

    /// Whether it has ended or is ending and runs no more code. exit(2) first releases the memory, then the files, and only
    /// then makes it a zombie.
    pub fn is_ending(&self) -> bool {
        self.field("State").is_some_and(|state| state.starts_with(['Z', 'X'])) || self.field("VmSize").is_none()
    }
}

fn read(file: &OwnedFd) -> Result<Status, Errno> {
    let (mut bytes, mut filled) = (vec![0; 8 << 10], 0); // about 1.5 KiB, which come whole in one read
    loop {
        filled += nix::unistd::read(file, &mut bytes[filled..])?;
        if filled < bytes.len() || filled > LONGEST {
            return Ok(Status::new(String::from_utf8_lossy(&bytes[..filled])));
        }
        bytes.resize(2 * filled, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_their_whole_name() {
        let status =
            Status::new("Name:\ta\\nUid:\t0\nUid:\t7\t7\t7\t7\nCapEff:\t00000000000000ff\nSeccomp_filters:\t2\n");
        assert_eq!(status.numbers("Uid"), Some(vec![7; 4]));
        assert_eq!((status.mask("CapEff"), status.mask("CapBnd")), (Some(255), None));
        assert_eq!((status.field("Seccomp"), status.filters(), status.is_filtered()), (None, Some(2), false));
        assert_eq!(Status::new("Groups:\t1 x\n").numbers("Groups"), None);
        assert_eq!(Status::new("Groups:\t\n").numbers("Groups"), Some(vec![]));
    }

    #[test]
    fn a_process_without_memory_is_ending_before_it_is_a_zombie() {
        let text = std::fs::read_to_string("/proc/self/status").unwrap();
        assert!(!Status::own().unwrap().is_ending());
        let without = text.lines().filter(|line| !line.starts_with("Vm")).collect::<Vec<_>>().join("\n");
        assert!(without.len() < text.len() && Status::new(without).is_ending());
        assert!(Status::new("State:\tZ (zombie)\nVmSize:\t1 kB\n").is_ending());
    }
}
