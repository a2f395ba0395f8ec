//! What a pidfd says about its process.

use std::os::fd::{AsRawFd as _, BorrowedFd};

/// Since Linux 6.13. On older kernels the id is read from `/proc/self/fdinfo`.
const PIDFD_GET_INFO: libc::Ioctl = 0xC040_FF0B_u32 as libc::Ioctl;

#[repr(C)]
#[derive(Default)]
struct PidfdInfo {
    mask: u64,
    cgroupid: u64,
    pid: u32,
    tgid: u32,
    ppid: u32,
    ids: [u32; 8],
    exit_code: i32,
}

/// The id of a pidfd's process in this process's pid namespace.
pub fn pid_of(pidfd: BorrowedFd<'_>) -> Option<i32> {
    let mut info = PidfdInfo { mask: 1, ..PidfdInfo::default() };
    // SAFETY: the request contains the size of `info`, a live local.
    let answered = unsafe { libc::ioctl(pidfd.as_raw_fd(), PIDFD_GET_INFO, &raw mut info) } == 0;
    if answered {
        return Some(info.pid as i32);
    }
    let text = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", pidfd.as_raw_fd())).ok()?;
    text.lines().find_map(|line| line.strip_prefix("Pid:")?.trim().parse().ok())
}
