//! Pid 1 of the sandbox. It reaps orphans, forwards signals, detaches tracees, and reports the workload's exit status to the
//! supervisor. No process inside can trace, read or kill it. It dies with its supervisor, and all processes die with it: by the
//! kernel, or without a pid namespace because it kills them first.

use std::os::fd::{AsFd, BorrowedFd};

use nix::errno::Errno;
use nix::sys::statvfs::fstatvfs;
use nix::unistd::Pid;

use crate::confine::tree::{END, Entered};
use crate::launch::channels::{Exited, send_exited, was_verified};
use crate::launch::times::{CpuTime, Reaped, monotonic_ns};
use crate::sys::process::{self, ChildEvent};

/// Every process in this pid namespace except for pid 1, `kill(2)`.
const EVERYTHING: Pid = Pid::from_raw(-1);

/// Serves until it is killed. All signals are blocked and read one by one. `counts` says that no cgroup counts the CPU time.
pub fn run(control: BorrowedFd<'_>, scratch: BorrowedFd<'_>, workload: Pid, tree: Option<Entered>, counts: bool) -> ! {
    // Closes the caller's streams and everything else. A reader must see end of file when the workload ends.
    if process::dup_onto(control, 0).is_err()
        || process::dup_onto(scratch, 1).is_err()
        || process::close_from(2).is_err()
    {
        process::exit(125);
    }
    loop {
        match process::wait_signal() {
            Ok(libc::SIGCHLD) => reap_all(workload, tree, counts),
            Ok(END) if tree.is_some() => end(tree, 125),
            Ok(signal) => forward(workload, signal),
            Err(_) => {}
        }
    }
}

/// Passes a signal on.
pub fn forward(workload: Pid, signal: libc::c_int) {
    // Sends the signal to the workload's group, as a terminal would, or to the workload itself until it has created its
    // session.
    if process::kill_group(workload, signal).is_err() {
        let _ = nix::sys::signal::kill(workload, nix::sys::signal::Signal::try_from(signal).ok());
    }
}

fn reap_all(workload: Pid, tree: Option<Entered>, counts: bool) {
    loop {
        match process::peek_child() {
            Ok(Some(ChildEvent::Ended(pid, status))) if pid == workload => {
                report_and_exit((workload, status), tree, counts)
            }
            Ok(Some(ChildEvent::Ended(pid, _))) => drop(process::reap(pid)),
            Ok(Some(ChildEvent::Traced(pid))) => drop(process::detach_tracee(pid)),
            Err(Errno::EINTR) => {}
            Ok(None) | Err(Errno::ECHILD) => return,
            // The workload's end cannot be observed any more. Ending the sandbox is better than running for ever.
            Err(_) => end(tree, 125),
        }
    }
}

/// Exits, with every process that is left.
fn end(tree: Option<Entered>, code: i32) -> ! {
    if let Some(tree) = tree {
        tree.end();
    }
    process::exit(code)
}

/// Reports how the workload ended and exits, which ends every process that it left. Until the supervisor has verified the workload, it
/// stays a zombie, and the supervisor kills both.
fn report_and_exit((workload, status): (Pid, i32), tree: Option<Entered>, counts: bool) -> ! {
    let [control, scratch] = [0, 1].map(process::borrow_standard);
    let mut exited = exited(status, scratch);
    let was_verified = was_verified(control.as_fd());
    if !was_verified {
        // It was so short that nothing that it left has used much.
        if let Ok(usage) = process::usage_of_ended(workload) {
            exited.used = Reaped::children().cpu.plus(Reaped::from(&usage).cpu);
        }
    } else if tree.is_none() {
        let _ = process::reap(workload);
        if counts {
            end_others();
        }
        // The kernel gives init the time of others that die with it, so that its own cannot be told then.
        if process::send_signal(EVERYTHING, 0) == Err(Errno::ESRCH) {
            exited.used = Reaped::children().cpu;
        }
    }
    if send_exited(control.as_fd(), exited).is_err() {
        end(tree, 125);
    }
    if was_verified {
        end(tree, 0);
    }
    loop {
        if process::wait_signal() == Ok(END) && tree.is_some() {
            end(tree, 0);
        }
    }
}

/// Kills and reaps what the workload has left: the kernel does not count the CPU time of processes that die with their pid
/// namespace.
fn end_others() {
    if process::send_signal(EVERYTHING, libc::SIGKILL).is_ok() {
        while process::wait4(EVERYTHING).is_ok() {}
    }
}

/// How a workload ended just now, and the use of the scratch tmpfs.
pub fn exited(status: i32, scratch: BorrowedFd<'_>) -> Exited {
    let at_ns = monotonic_ns();
    let (scratch_bytes, scratch_inodes) = match fstatvfs(scratch) {
        Ok(space) => {
            ((space.blocks() - space.blocks_free()) * space.fragment_size(), space.files() - space.files_free())
        }
        Err(_) => (u64::MAX, u64::MAX),
    };
    Exited { status, at_ns, scratch_bytes, scratch_inodes, used: CpuTime::default() }
}
