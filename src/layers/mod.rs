//! The layers of confinement, one file each. A layer has a parent half that prepares everything that can fail by opening,
//! parsing or allocating, and a child half that applies it between clone3 and execve with system calls alone.

pub mod caps;
pub mod net;
pub mod process;
pub mod root;
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
