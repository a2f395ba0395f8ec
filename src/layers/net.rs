//! The network: an own namespace with only a loopback interface, or, by name, the caller's.
//!
//! Such a namespace takes the kernel as long as a root with all its mounts. So another thread of the child makes it meanwhile,
//! and the child enters it when its root is built. There is a thread before anything is given up, and none after.

use std::os::fd::AsFd as _;

use nix::errno::Errno;
use nix::sys::stat::stat;

use super::{Applied, During};
use crate::error::{Error, Result, Step};
use crate::plan::{MountKind, Network, RunPlan};
use crate::sys::ablate::{Layer, without};
use crate::sys::clone::Stack;
use crate::sys::namespace;
use crate::sys::net;

/// What the child is to be in.
#[derive(Clone, Copy, Debug)]
pub struct PreparedNetwork {
    /// The caller's network namespace, as device and inode; `None` where the child stays in that.
    outside: Option<(u64, u64)>,
    /// Whether the root shows it, and so cannot be built without it.
    shown: bool,
}

/// Parent half.
pub fn prepare(plan: &RunPlan) -> Result<PreparedNetwork> {
    let network = plan.namespaces.network;
    let own = network != Network::Host && !without(Layer::NetworkNamespace);
    let outside = || stat("/proc/self/ns/net").map(|stat| (stat.st_dev, stat.st_ino));
    let outside = own.then(outside).transpose();
    let outside = outside.map_err(|errno| Error::errno(Step::Verify, "net namespace", errno))?;
    let shown = plan.mounts.iter().any(|mount| matches!(mount.kind, MountKind::Sysfs));
    Ok(PreparedNetwork { outside, shown })
}

/// A network that is being made.
#[derive(Debug)]
pub struct Making {
    outside: Option<(u64, u64)>,
    by: By,
}

#[derive(Debug)]
enum By {
    /// Another thread.
    Thread(net::Making),
    /// Nobody, or ourselves: it is made.
    Us(Stack),
}

impl PreparedNetwork {
    /// Whether it is a namespace of its own.
    pub fn is_own(&self) -> bool {
        self.outside.is_some()
    }

    /// Child half, first of all: begins to make it, with a stack that is lent.
    pub fn begin(&self, stack: Stack) -> Applied<Making> {
        let outside = self.outside;
        let stack = match (outside, self.shown) {
            (None, _) => return Ok(Making { outside, by: By::Us(stack) }),
            (_, true) => stack,
            (_, false) => match net::Making::start(stack) {
                Ok(making) => return Ok(Making { outside, by: By::Thread(making) }),
                Err(stack) => stack, // not even for a moment is there room for one more thread
            },
        };
        make()?;
        Ok(Making { outside, by: By::Us(stack) })
    }
}

/// Makes it in this very thread.
fn make() -> Applied {
    net::unshare().during(Step::Clone, 0)?;
    net::loopback_up().during(Step::Loopback, 0)
}

impl Making {
    /// Child half, before namespaces are limited and privilege is given up: enters it. Gives the stack back.
    pub fn enter(self) -> Applied<Stack> {
        let stack = match self.by {
            By::Us(stack) => stack,
            By::Thread(making) => {
                let (made, stack) = making.finish();
                let entered = made.and_then(|made| namespace::enter(made.as_fd(), libc::CLONE_NEWNET));
                if entered.is_err() {
                    make()?; // what stands in our way, too, has a name
                }
                stack
            }
        };
        match self.outside {
            Some(outside) if net::inhabited().during(Step::Verify, 5)? == outside => {
                Err(Errno::EPERM).during(Step::Verify, 5)
            }
            _ => Ok(stack),
        }
    }
}
