//! Tries whether this host makes the namespaces of a plan, in a process that does nothing else.

use nix::errno::Errno;

use crate::error::{Error, Step};
use crate::plan::{Network, RunPlan};
use crate::run::namespace_flags;
use crate::sys::clone::{Cloned, clone3};
use crate::sys::mount::FsContext;
use crate::sys::{net, process};

/// The refusal, if there is one. A failure that has nothing to do with namespaces, such as too many processes, is left to the run.
pub fn refusal(plan: &RunPlan) -> Option<Error> {
    match clone3(namespace_flags(plan), None) {
        Ok(Cloned::Child) => process::exit(tried(plan.namespaces.network != Network::Host)),
        Ok(Cloned::Parent { pid, .. }) => {
            let (status, _) = process::wait4(pid).ok()?;
            let code = if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { 0 };
            match code / 64 {
                1 => Some(Error::errno(Step::MountRoot, "", Errno::from_raw(code % 64))),
                2 => Some(Error::errno(Step::Clone, "network namespace", Errno::from_raw(code % 64))),
                _ => None,
            }
        }
        Err(errno @ (Errno::EPERM | Errno::ENOSYS | Errno::ENOSPC | Errno::EUSERS | Errno::EINVAL | Errno::EACCES)) => {
            Some(Error::errno(Step::Clone, "", errno))
        }
        Err(_) => None,
    }
}

/// The exit code: 0, or the errno and 64 for mounts, 128 for the network. Some hosts create a user namespace, but give no
/// capability over it (Ubuntu's AppArmor).
fn tried(own_network: bool) -> i32 {
    if let Err(errno) = FsContext::open(c"tmpfs") {
        return 64 + (errno as i32).min(63);
    }
    match own_network.then(net::unshare) {
        Some(Err(errno)) => 128 + (errno as i32).min(63),
        _ => 0,
    }
}
