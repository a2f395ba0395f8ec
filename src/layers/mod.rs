//! The layers of confinement, one file each. A layer has a parent half that prepares everything that can fail by opening,
//! parsing or allocating, and a child half that applies it between clone3 and execve with system calls alone.

pub mod caps;
pub mod label;
pub mod landlock;
pub mod net;
pub mod net_devices;
pub mod process;
pub mod rdt;
pub mod root;
pub mod schedule;
pub mod seccomp;
pub mod user;

use nix::errno::Errno;

use crate::error::Step;

/// What a child half reports: numbers only, because the child formats no text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Which step.
    pub step: Step,
    /// Which of the plan's items it was about.
    pub index: u16,
    /// Why.
    pub errno: Errno,
}

/// Result of a child half.
pub type Applied<T = ()> = Result<T, Failure>;

/// A protection that the policy lets the run go without, and that this host does not give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Missing {
    /// The limits on nested namespaces.
    NamespaceLimits = 1,
    /// An own session keyring.
    Keyring = 2,
}

/// Several of them, as the child keeps and sends them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MissingSet(pub u32);

impl MissingSet {
    /// Notes one.
    pub fn add(&mut self, missing: Missing) {
        self.0 |= missing as u32;
    }

    /// Those that were noted.
    pub fn items(self) -> Vec<Missing> {
        [Missing::NamespaceLimits, Missing::Keyring].into_iter().filter(|item| self.0 & *item as u32 != 0).collect()
    }
}

/// Names the step and item that a system call belonged to.
pub trait During<T> {
    /// As part of this step, about the plan's item with this index.
    fn during(self, step: Step, index: usize) -> Applied<T>;
}

impl<T> During<T> for Result<T, Errno> {
    fn during(self, step: Step, index: usize) -> Applied<T> {
        self.map_err(|errno| Failure { step, index: u16::try_from(index).unwrap_or(u16::MAX), errno })
    }
}
