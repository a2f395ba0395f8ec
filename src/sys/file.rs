//! Opening files, reading those of the kernel, and extended attributes.

use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};

use nix::NixPath;
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, openat};
use nix::sys::stat::Mode;

use super::{Result, check};

/// Opens an existing file, close-on-exec. musl's `open(2)` sets that flag by a second call, `openat(2)` does not.
pub fn open(path: &(impl NixPath + ?Sized), flags: OFlag) -> Result<OwnedFd> {
    openat(AT_FDCWD, path, flags | OFlag::O_CLOEXEC, Mode::empty())
}

/// Reads a file of procfs, sysfs or a cgroup. The standard library reads a file without a size in pieces of 32 bytes and more.
pub fn read(path: &(impl NixPath + ?Sized)) -> Result<Vec<u8>> {
    content(&open(path, OFlag::O_RDONLY)?)
}

/// As [`read`], as text. Invalid UTF-8 is replaced.
pub fn read_text(path: &(impl NixPath + ?Sized)) -> Result<String> {
    read(path).map(text)
}

/// The rest of an open file.
pub fn content(file: &OwnedFd) -> Result<Vec<u8>> {
    content_of(file, 4 << 10)
}

/// As [`content`], for a file of which so many bytes are expected. If there are fewer, one read suffices, and one for the end.
pub fn content_of(file: &OwnedFd, expected: usize) -> Result<Vec<u8>> {
    let (mut bytes, mut filled) = (vec![0; expected + 1], 0);
    loop {
        match nix::unistd::read(file, &mut bytes[filled..]) {
            Ok(0) => {
                bytes.truncate(filled);
                return Ok(bytes);
            }
            Ok(length) => filled += length,
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno),
        }
        if filled == bytes.len() {
            bytes.resize(2 * filled, 0);
        }
    }
}

/// A file in memory with these bytes, at its beginning, which nobody can change any more, `memfd_create(2)`.
pub fn in_memory(name: &CStr, bytes: &[u8]) -> Result<OwnedFd> {
    use std::io::{Seek as _, Write as _};

    use nix::fcntl::{FcntlArg, SealFlag, fcntl};
    use nix::sys::memfd::{MFdFlags, memfd_create};
    let mut file = std::fs::File::from(memfd_create(name, MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING)?);
    let failed = |error: std::io::Error| error.raw_os_error().map_or(Errno::EIO, Errno::from_raw);
    file.write_all(bytes).and_then(|()| file.rewind()).map_err(failed)?;
    let seals = SealFlag::F_SEAL_WRITE | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_SEAL;
    fcntl(&file, FcntlArg::F_ADD_SEALS(seals))?;
    Ok(file.into())
}

/// Changes the permission bits of a file, whatever it was opened for, `fchmodat2(2)`. `ENOSYS` before Linux 6.6.
pub fn change_mode(file: impl AsFd, mode: u32) -> Result<()> {
    const FCHMODAT2: libc::c_long = 452; // on every architecture
    // SAFETY: the path is empty and NUL-terminated.
    check(unsafe { libc::syscall(FCHMODAT2, file.as_fd().as_raw_fd(), c"".as_ptr(), mode, libc::AT_EMPTY_PATH) })
        .map(drop)
}

/// Renames a file, `renameat2(2)`. `EEXIST` if the new name exists and must not be replaced.
pub fn rename(from: impl AsFd, name: &CStr, to: impl AsFd, new_name: &CStr, replace: bool) -> Result<()> {
    let (from, to) = (from.as_fd().as_raw_fd(), to.as_fd().as_raw_fd());
    let flags = if replace { 0 } else { libc::RENAME_NOREPLACE };
    // SAFETY: both names are NUL-terminated and outlive the call.
    check(unsafe { libc::syscall(libc::SYS_renameat2, from, name.as_ptr(), to, new_name.as_ptr(), flags) }).map(drop)
}

/// Bytes as text. Invalid UTF-8 is replaced.
pub fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

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

/// Whether an extended attribute begins like this, `getxattr(2)`. `false` if it cannot be read.
pub fn attribute_begins(path: &CStr, name: &CStr, beginning: &[u8]) -> bool {
    let mut found = [0u8; 64];
    // SAFETY: both names are NUL-terminated; the kernel writes at most the given length into a live local.
    let length = unsafe { libc::getxattr(path.as_ptr(), name.as_ptr(), found.as_mut_ptr().cast(), found.len()) };
    usize::try_from(length).is_ok_and(|length| found[..length].starts_with(beginning))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_read_whole_whatever_their_length() {
        let path = std::env::temp_dir().join(format!("stockade-file-{}", std::process::id()));
        for length in [0, 1, 4095, 4096, 4097, 8192, 100_000] {
            let bytes: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
            std::fs::write(&path, &bytes).unwrap();
            assert_eq!(read(&path), Ok(bytes), "{length} bytes");
        }
        std::fs::remove_file(&path).unwrap();
        assert_eq!(read(&path), Err(Errno::ENOENT));
        assert_eq!(read_text("/proc/self/status").unwrap().lines().next(), Some(&*format!("Name:\t{}", comm())));
        assert_eq!(text(vec![b'a', 0xff]), "a\u{fffd}");
    }

    fn comm() -> String {
        std::fs::read_to_string("/proc/self/comm").unwrap().trim_end().to_owned()
    }

    #[test]
    fn descriptors_are_closed_at_execve() {
        let file = open("/", OFlag::O_PATH).unwrap();
        let flags = nix::fcntl::fcntl(&file, nix::fcntl::FcntlArg::F_GETFD).unwrap();
        assert_eq!(flags, libc::FD_CLOEXEC);
    }
}
