//! The network: a new namespace with only a loopback interface or, if requested, the caller's.
//!
//! Creating a network namespace takes the kernel as long as building the root with all its mounts. So a thread of the child
//! creates it meanwhile, and the child enters it when the root is built. The thread ends before the child drops any privilege.

use std::os::fd::AsFd as _;

use nix::errno::Errno;
use nix::sys::stat::stat;

use crate::error::{Error, Result, Step};
use crate::failure::{Applied, During};
use crate::plan::{MountKind, Network, RunPlan};
use crate::sys::ablate::{Layer, without};
use crate::sys::namespace;
use crate::sys::net;
use crate::sys::stack::Stack;

/// The network of the child.
#[derive(Clone, Copy, Debug)]
pub struct PreparedNetwork {
    /// The caller's network namespace, as device and inode. `None` if the child stays in it.
    outside: Option<(u64, u64)>,
    /// Whether a mount shows the network namespace, so that the root cannot be built before it exists.
    shown: bool,
}

/// Parent half.
pub fn prepare(plan: &RunPlan) -> Result<PreparedNetwork> {
    let network = plan.namespaces.network;
    let own = plan.namespaces.own && network != Network::Host && !without(Layer::NetworkNamespace);
    let outside = || stat("/proc/self/ns/net").map(|stat| (stat.st_dev, stat.st_ino));
    let outside = own.then(outside).transpose();
    let outside = outside.map_err(|errno| Error::errno(Step::Verify, "net namespace", errno))?;
    let shown = plan.mounts.iter().any(|mount| matches!(mount.kind, MountKind::Sysfs));
    Ok(PreparedNetwork { outside, shown })
}

/// A network namespace that is being created.
#[derive(Debug)]
pub struct Making {
    outside: Option<(u64, u64)>,
    by: By,
}

#[derive(Debug)]
enum By {
    /// By a thread.
    Thread(net::Making),
    /// No thread is needed, or the namespace was created without one.
    Us(Stack),
}

impl PreparedNetwork {
    /// Whether it is a new namespace.
    pub fn is_own(&self) -> bool {
        self.outside.is_some()
    }

    /// Child half, first step: starts creating the namespace. The thread runs on `stack`.
    pub fn begin(&self, stack: Stack) -> Applied<Making> {
        let outside = self.outside;
        let stack = match (outside, self.shown) {
            (None, _) => return Ok(Making { outside, by: By::Us(stack) }),
            (_, true) => stack,
            (_, false) => match net::Making::start(stack) {
                Ok(making) => return Ok(Making { outside, by: By::Thread(making) }),
                Err(stack) => stack, // the process limit leaves no room for a thread, even for a moment
            },
        };
        make()?;
        Ok(Making { outside, by: By::Us(stack) })
    }
}

/// Creates it in the calling thread.
fn make() -> Applied {
    net::unshare().during(Step::Clone, 0)?;
    net::loopback_up().during(Step::Loopback, 0)
}

impl Making {
    /// Child half, before namespaces are limited and privileges dropped: enters the namespace. Returns the stack.
    pub fn enter(self) -> Applied<Stack> {
        let stack = match self.by {
            By::Us(stack) => stack,
            By::Thread(making) => {
                let (made, stack) = making.wait();
                let entered = made.and_then(|made| namespace::enter(made.as_fd(), libc::CLONE_NEWNET));
                if entered.is_err() {
                    make()?; // if this fails too, the error names the cause
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
