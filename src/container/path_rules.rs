//! Landlock's path rules: added while every path can be reached, enforced at the end.

use std::os::fd::{AsFd as _, OwnedFd};

use nix::fcntl::{AT_FDCWD, OFlag, openat};
use nix::sys::stat::Mode;

use super::prepare::Prepared;
use crate::confine::landlock::PreparedLandlock;
use crate::error::Step;
use crate::failure::{Applied, During as _};
use crate::sys::mount::FsContext;

/// Landlock rules that are not enforced yet.
#[derive(Debug)]
pub struct PathRules {
    /// A private file system that no rule permits. Once it cannot be read, the ruleset is in force.
    outside: OwnedFd,
}

impl PathRules {
    /// Adds the path rules while every path is still reachable and file systems can be mounted.
    pub fn of(landlock: &PreparedLandlock) -> Applied<Self> {
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let root = openat(AT_FDCWD, c"/", flags, Mode::empty()).during(Step::Landlock, usize::MAX)?;
        let outside =
            FsContext::open(c"tmpfs").and_then(|context| context.mount(0)).during(Step::Landlock, usize::MAX)?;
        landlock.add_paths(root.as_fd())?;
        Ok(Self { outside })
    }

    /// Enforces them.
    pub fn apply(self, prepared: &Prepared<'_>) -> Applied {
        prepared.landlock.as_ref().map_or(Ok(()), |landlock| landlock.restrict(self.outside.as_fd()))
    }
}
