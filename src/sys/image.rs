//! The file of the running program, `execveat(2)`, `memfd_create(2)`.

use std::ffi::CStr;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;

use super::process::CStringArray;
use super::{Result, check, check_fd};

/// The variable that marks the second execution of `stockade-oci`, from a file that cannot be changed.
pub const PROTECTED: &str = "_STOCKADE_OCI_PROTECTED";

/// A file in memory, which can be sealed.
pub fn memory_file(name: &CStr) -> Result<OwnedFd> {
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    const EXECUTABLE: libc::c_uint = 0x10; // MFD_EXEC, required with vm.memfd_noexec; since Linux 6.3
    // SAFETY: the name is NUL-terminated and outlives the call.
    match check_fd(unsafe { libc::syscall(libc::SYS_memfd_create, name.as_ptr(), flags | EXECUTABLE) }) {
        // SAFETY: as above.
        Err(Errno::EINVAL) => check_fd(unsafe { libc::syscall(libc::SYS_memfd_create, name.as_ptr(), flags) }),
        made => made,
    }
}

/// Forbids every later change of a memory file.
pub fn seal(file: BorrowedFd<'_>) -> Result<()> {
    let seals = libc::F_SEAL_SEAL | libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_WRITE;
    // SAFETY: plain numbers.
    check(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) }.into()).map(drop)
}

/// Executes an open file. Returns only on failure.
pub fn execute(file: BorrowedFd<'_>, argv: &CStringArray, env: &CStringArray) -> Errno {
    // SAFETY: an empty NUL-terminated path; both arrays are NULL-terminated and point into strings they own.
    unsafe {
        libc::syscall(
            libc::SYS_execveat,
            file.as_raw_fd(),
            c"".as_ptr(),
            argv.as_ptr(),
            env.as_ptr(),
            libc::AT_EMPTY_PATH,
        )
    };
    Errno::last()
}
