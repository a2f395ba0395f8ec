//! Extended attributes of files.

use std::ffi::CStr;
use std::os::fd::{AsRawFd as _, BorrowedFd};

use super::{Result, check};

/// Length in bytes of an extended attribute, `getxattr(2)`. `ENODATA` if the file has no attribute of that name.
pub fn attribute_length(path: &CStr, name: &CStr) -> Result<usize> {
    let nothing: *mut libc::c_void = std::ptr::null_mut();
    // SAFETY: both names are NUL-terminated and outlive the call; a size of zero requests only the length.
    check(unsafe { libc::getxattr(path.as_ptr(), name.as_ptr(), nothing, 0) } as libc::c_long)
        .map(|length| length as usize)
}

/// Whether an extended attribute of an open file has this value, `fgetxattr(2)`. `false` if it cannot be read.
pub fn attribute_is(file: BorrowedFd<'_>, name: &CStr, value: &[u8]) -> bool {
    let mut found = [0u8; 64];
    // SAFETY: the name is NUL-terminated; the kernel writes at most the given length into a live local.
    let length = unsafe { libc::fgetxattr(file.as_raw_fd(), name.as_ptr(), found.as_mut_ptr().cast(), found.len()) };
    usize::try_from(length).is_ok_and(|length| found[..length] == *value)
}
