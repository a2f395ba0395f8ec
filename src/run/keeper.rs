//! The keeper of a command, where no cgroup holds its processes: it starts the command, adopts the orphans among its
//! descendants, and reaps them all. So every process of the command is below it, and the supervisor can find and end them.
//!
//! The workload can kill or stop it, like every process of its user but init. Then the supervisor ends the whole sandbox.

use std::convert::Infallible;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd};

use nix::errno::Errno;
use nix::unistd::Pid;

use super::command::Command;
use super::init::{exited, forward};
use crate::error::Step;
use crate::failure::{Applied, During};
use crate::launch::channels::{send_emptied, send_exited, wait};
use crate::launch::streams::ChildStream;
use crate::launch::times::Reaped;
use crate::sys::clone::{Cloned, clone3};
use crate::sys::process::{self, ChildEvent};
use crate::sys::stack::Stack;

/// Init's part: starts the keeper, which starts the command. Returns the keeper's id.
pub fn start(command: &Command<'_>, stack: &mut Stack) -> Applied<Pid> {
    match clone3(0, None).during(Step::Fork, 8)? {
        Cloned::Child => {
            let Err(failure) = keep(command, stack);
            command.ends.fail(failure);
            process::exit(125)
        }
        Cloned::Parent { pid, pidfd } => {
            let sent = command.ends.send_keeper(&pidfd).during(Step::Fork, 9);
            if sent.is_err() {
                let _ = process::pidfd_send_signal(pidfd.as_fd(), libc::SIGKILL); // nobody else could end it
            }
            sent.map(|()| pid)
        }
    }
}

fn keep(command: &Command<'_>, stack: &mut Stack) -> Applied<Infallible> {
    process::adopt_orphans(true).during(Step::Fork, 8)?;
    close_others(command)?;
    let workload = command.start(stack)?;
    // Closes the command's streams and everything else. A reader must see end of file when the workload ends.
    process::dup_onto(command.ends.control.as_fd(), 0).during(Step::Descriptors, 3)?;
    process::dup_onto(command.root.scratch.as_fd(), 1).during(Step::Descriptors, 3)?;
    process::close_from(2).during(Step::Descriptors, 3)?;
    let [control, scratch] = [0, 1].map(process::borrow_standard);
    let mut running = Some(workload);
    loop {
        match (process::wait_signal(), running) {
            (Ok(libc::SIGCHLD), _) => reap(&mut running, control, scratch),
            (Ok(signal), Some(workload)) => forward(workload, signal),
            _ => {}
        }
    }
}

/// Closes what init has open for itself and for other commands.
fn close_others(command: &Command<'_>) -> Applied {
    let mut kept = vec![command.ends.control.as_raw_fd(), command.ends.failure.as_raw_fd()];
    kept.extend(command.root.fds());
    kept.extend(command.terminal.map(|terminal| terminal.as_raw_fd()));
    kept.extend(command.prepared.landlock.as_ref().map(|rules| rules.fd().as_raw_fd()));
    kept.extend(command.order.streams.iter().filter_map(|stream| match stream {
        ChildStream::Own(own) => Some(own.as_raw_fd()),
        _ => None,
    }));
    process::close_but(3, &mut kept).during(Step::Descriptors, 3)
}

/// Reaps what has ended. Reports the workload's end when the supervisor has looked at it, and ends with the last process.
fn reap(running: &mut Option<Pid>, control: BorrowedFd<'_>, scratch: BorrowedFd<'_>) {
    loop {
        match process::peek_child() {
            Ok(Some(ChildEvent::Ended(pid, status))) => {
                if *running == Some(pid) {
                    let exited = exited(status, scratch);
                    if wait(control).is_err() || send_exited(control, exited).is_err() {
                        process::exit(125);
                    }
                    *running = None;
                }
                let _ = process::reap(pid);
            }
            Ok(Some(ChildEvent::Traced(pid))) => drop(process::detach_tracee(pid)),
            Err(Errno::EINTR) => {}
            Ok(None) => return,
            Err(Errno::ECHILD) if running.is_none() => {
                let _ = send_emptied(control, Reaped::children());
                process::exit(0)
            }
            Err(_) => process::exit(125), // without the word that nothing is left, the supervisor ends the sandbox
        }
    }
}
