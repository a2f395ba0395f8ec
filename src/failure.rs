//! A failure of a child process, and protections that it had to do without, as numbers: the child between clone3 and execve
//! formats no text.

use nix::errno::Errno;

use crate::error::Step;

/// A failure of a child half. Numbers only, because the child formats no text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The failed step.
    pub step: Step,
    /// The index of the plan's item.
    pub index: u16,
    /// The error number.
    pub errno: Errno,
}

/// The result of a child half.
pub type Applied<T = ()> = Result<T, Failure>;

/// A protection that this host does not provide and that the policy allows to be missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Missing {
    /// The limits on nested namespaces.
    NamespaceLimits = 1,
    /// A new session keyring.
    Keyring = 2,
    /// A host name of its own.
    Hostname = 4,
    /// A procfs: `/proc` shows no process.
    Proc = 8,
    /// A procfs of its own: `/proc` is the caller's.
    OuterProc = 16,
}

/// A set of these, in the form that the child sends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MissingSet(pub u32);

impl MissingSet {
    /// Adds one.
    pub fn add(&mut self, missing: Missing) {
        self.0 |= missing as u32;
    }

    /// Adds all of another set.
    pub fn add_all(&mut self, other: Self) {
        self.0 |= other.0;
    }

    /// The members.
    pub fn items(self) -> Vec<Missing> {
        [Missing::NamespaceLimits, Missing::Keyring, Missing::Hostname, Missing::Proc, Missing::OuterProc]
            .into_iter()
            .filter(|item| self.0 & *item as u32 != 0)
            .collect()
    }
}

/// Adds the step and the item to a system call's error.
pub trait During<T> {
    /// An error counts as a failure of this step, for the plan's item with this index.
    fn during(self, step: Step, index: usize) -> Applied<T>;
}

impl<T> During<T> for Result<T, Errno> {
    fn during(self, step: Step, index: usize) -> Applied<T> {
        self.map_err(|errno| Failure { step, index: u16::try_from(index).unwrap_or(u16::MAX), errno })
    }
}
