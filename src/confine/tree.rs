//! The tree of a run without a pid namespace. Its init adopts every orphan, and Landlock keeps signals inside, so that one signal
//! to all ends the whole tree and reaches no other process.
//!
//! Init enters a Landlock domain of its own before there is a workload, and the workload another one below it. Of two domains the
//! outer one may send signals into the inner one, and not the reverse: no process inside can end its init. A signal to all is
//! sent while the kernel's list of processes is locked, and a fork that is under way fails then: none escapes.
//!
//! If init itself is killed (from outside, or for want of memory), its guard does the same: a second process of the domain, which
//! waits for that alone. Only who kills both at once leaves processes, which stay confined.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::Duration;

use landlock::{CompatLevel, Compatible, Ruleset, RulesetAttr, Scope};
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, getpid, getppid};

use crate::error::{Error, Result, Step};
use crate::failure::{Applied, During};
use crate::sys;
use crate::sys::clone::{Cloned, clone3};
use crate::sys::process::{self, ChildEvent};

/// Asks init to end the whole tree, or its guard if it is dead. It is not forwarded, and no process inside can send it.
pub const END: libc::c_int = libc::SIGPWR;

/// A domain that keeps signals inside.
#[derive(Debug)]
pub struct Tree(OwnedFd);

/// Parent half.
pub fn prepare() -> Result<Tree> {
    let failed = |reason: String| Error::new(Step::Landlock, "scope of signals", reason);
    let ruleset = Ruleset::default().set_compatibility(CompatLevel::HardRequirement).scope(Scope::Signal);
    let ruleset = ruleset.and_then(Ruleset::create).map_err(|error| failed(error.to_string()))?;
    let ruleset: Option<OwnedFd> = ruleset.into();
    ruleset.map(Tree).ok_or_else(|| failed("has no descriptor".to_owned()))
}

/// Init has entered the domain, and has seen that it cannot reach its supervisor any more. Only it can send a signal to all.
#[derive(Clone, Copy, Debug)]
pub struct Entered(());

impl Tree {
    /// Child half, as the caller's user, who may send signals to the supervisor: from then on this process cannot.
    pub fn enter(&self) -> Applied<Entered> {
        let reaches_supervisor = || kill(getppid(), None);
        reaches_supervisor().during(Step::Verify, 6)?;
        process::adopt_orphans(true).during(Step::Lifeline, 1)?;
        process::set_no_new_privs().during(Step::NoNewPrivs, 0)?;
        sys::landlock::restrict_self(self.fd(), 0).during(Step::Landlock, usize::MAX)?;
        match reaches_supervisor() {
            Err(Errno::EPERM) => Ok(Entered(())),
            Ok(()) => Err(Errno::EPERM).during(Step::Verify, 6),
            Err(errno) => Err(errno).during(Step::Verify, 6),
        }
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Entered {
    /// Child half, in init, before there is a workload and when all signals are blocked: starts the guard.
    pub fn guard(self) -> Applied {
        let init = getpid();
        match clone3(0, None).during(Step::Fork, 8)? {
            Cloned::Parent { .. } => Ok(()),
            Cloned::Child => {
                let closed = process::close_from(0); // the caller must see the end of its streams and channels
                if closed.is_err() || process::set_parent_death_signal(END).is_err() {
                    process::exit(125);
                }
                while getppid() == init && process::wait_signal() != Ok(END) {}
                self.kill_all();
                process::exit(0)
            }
        }
    }

    /// Child half, in init: kills every other process of the domain and reaps them all.
    pub fn end(self) {
        loop {
            self.kill_all();
            loop {
                match process::peek_child() {
                    Ok(Some(ChildEvent::Ended(pid, _))) => drop(process::reap(pid)),
                    Ok(Some(ChildEvent::Traced(pid))) => drop(process::detach_tracee(pid)),
                    Err(Errno::EINTR) => {}
                    Err(Errno::ECHILD) => return,
                    _ => break,
                }
            }
            std::thread::sleep(Duration::from_millis(1)); // those that die slowly
        }
    }

    fn kill_all(self) {
        let _ = kill(Pid::from_raw(-1), Signal::SIGKILL);
    }
}

#[cfg(test)]
mod tests {
    use landlock::AccessFs;

    use super::*;

    /// Sends no signal to all: it would reach every process of this user.
    #[test]
    fn a_domain_that_lets_signals_out_is_refused() {
        let ruleset = Ruleset::default().handle_access(AccessFs::MakeChar).and_then(Ruleset::create);
        let Some(ruleset) = ruleset.ok().and_then(Option::<OwnedFd>::from) else { return };
        let tree = Tree(ruleset);
        match clone3(0, None).unwrap() {
            Cloned::Child => process::exit(if tree.enter().is_err() { 0 } else { 1 }),
            Cloned::Parent { pid, .. } => assert_eq!(process::wait4(pid).unwrap().0, 0),
        }
    }
}
