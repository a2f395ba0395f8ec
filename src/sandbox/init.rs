//! Pid 1 of the sandbox: reaps orphans, passes signals on, lets go of tracees, and tells the supervisor how the workload
//! ended. It cannot be traced, read or killed from inside, and dies with its supervisor.

use std::os::fd::{AsFd, BorrowedFd};

use nix::errno::Errno;
use nix::sys::statvfs::fstatvfs;
use nix::unistd::Pid;

use super::sync::{Exited, send_exited, was_verified};
use crate::sys::process::{self, ChildEvent};

/// Serves until killed. All signals are blocked, and so are taken one by one.
pub fn run(control: BorrowedFd<'_>, scratch: BorrowedFd<'_>, workload: Pid) -> ! {
    // The caller's streams and everything else is the workload's alone, so that a reader sees the end when that ends.
    if process::dup_onto(control, 0).is_err()
        || process::dup_onto(scratch, 1).is_err()
        || process::close_from(2).is_err()
    {
        process::exit(125);
    }
    loop {
        match process::wait_signal() {
            Ok(libc::SIGCHLD) => reap_all(workload),
            Ok(signal) => forward(workload, signal),
            Err(_) => {}
        }
    }
}

fn forward(workload: Pid, signal: libc::c_int) {
    // Its group, as a terminal would; itself while it has not made its session yet.
    if process::kill_group(workload, signal).is_err() {
        let _ = nix::sys::signal::kill(workload, nix::sys::signal::Signal::try_from(signal).ok());
    }
}

fn reap_all(workload: Pid) {
    loop {
        match process::peek_child() {
            Ok(Some(ChildEvent::Ended(pid, status))) if pid == workload => finish(status),
            Ok(Some(ChildEvent::Ended(pid, _))) => drop(process::reap(pid)),
            Ok(Some(ChildEvent::Traced(pid))) => drop(process::detach_tracee(pid)),
            Err(Errno::EINTR) => {}
            Ok(None) | Err(Errno::ECHILD) => return,
            // How the workload ends could not be seen: then everything ends, rather than nothing ever.
            Err(_) => process::exit(125),
        }
    }
}

/// Tells how the workload ended, and ends with everything it left. A workload that the supervisor has not looked at yet stays
/// a zombie for that, until the supervisor kills us both.
fn finish(status: i32) -> ! {
    let [control, scratch] = [0, 1].map(process::borrow_standard);
    let (scratch_bytes, scratch_inodes) = match fstatvfs(scratch) {
        Ok(space) => {
            ((space.blocks() - space.blocks_free()) * space.fragment_size(), space.files() - space.files_free())
        }
        Err(_) => (u64::MAX, u64::MAX),
    };
    let was_verified = was_verified(control.as_fd());
    if send_exited(control.as_fd(), Exited { status, scratch_bytes, scratch_inodes }).is_err() {
        process::exit(125);
    }
    if was_verified {
        process::exit(0);
    }
    loop {
        nix::unistd::pause();
    }
}
