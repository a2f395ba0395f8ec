//! What files carry besides their contents.

use std::ffi::CStr;

use super::{Result, check};

/// Length in bytes of an extended attribute, `getxattr(2)`. `ENODATA` if the file has none of that name.
pub fn attribute_length(path: &CStr, name: &CStr) -> Result<usize> {
    let nothing: *mut libc::c_void = std::ptr::null_mut();
    // SAFETY: both names are NUL-terminated and outlive the call; a size of zero asks for the length alone.
    check(unsafe { libc::getxattr(path.as_ptr(), name.as_ptr(), nothing, 0) } as libc::c_long)
        .map(|length| length as usize)
}
