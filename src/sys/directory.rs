//! Entries of a directory with their positions, `getdents64(2)`. A listing can be continued at a position later, by another
//! descriptor.

use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd as _};

use super::{Result, check};

/// An entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// Its name.
    pub name: &'a CStr,
    /// The position of the next entry, for `lseek(2)`.
    pub next: i64,
}

/// Bytes before the name: inode, position, length of the record, type.
const HEAD: usize = 19;

/// Reads entries from the directory's position on into a buffer. Returns the bytes that were written; 0 at the end.
pub fn read(directory: impl AsFd, buffer: &mut [u8]) -> Result<usize> {
    let (fd, length) = (directory.as_fd().as_raw_fd(), buffer.len());
    // SAFETY: the kernel writes at most the given length into the buffer.
    check(unsafe { libc::syscall(libc::SYS_getdents64, fd, buffer.as_mut_ptr(), length) }).map(|length| length as usize)
}

/// The entries in a buffer that was read, without `.` and `..`.
pub fn entries(buffer: &[u8]) -> impl Iterator<Item = Entry<'_>> {
    let mut rest = buffer;
    std::iter::from_fn(move || {
        let length = u16::from_ne_bytes(rest.get(16..18)?.try_into().ok()?);
        let (record, following) = rest.split_at_checked(usize::from(length).max(HEAD))?;
        rest = following;
        let next = i64::from_ne_bytes(record[8..16].try_into().ok()?);
        Some(Entry { name: CStr::from_bytes_until_nul(&record[HEAD..]).ok()?, next })
    })
    .filter(|entry| !matches!(entry.name.to_bytes(), b"." | b".."))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use nix::fcntl::OFlag;
    use nix::unistd::{Whence, lseek};

    use super::*;
    use crate::sys::file::open;

    #[test]
    fn a_listing_can_be_continued_by_another_descriptor() {
        let path = std::env::temp_dir().join(format!("stockade-directory-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        let names: BTreeSet<String> = (0..500).map(|number| format!("{number}-{}", "x".repeat(100))).collect();
        names.iter().for_each(|name| std::fs::write(path.join(name), "").unwrap());
        let (mut found, mut position, mut buffer) = (Vec::new(), 0, [0; 4096]);
        loop {
            let directory = open(&path, OFlag::O_RDONLY | OFlag::O_DIRECTORY).unwrap();
            lseek(&directory, position, Whence::SeekSet).unwrap();
            let length = read(&directory, &mut buffer).unwrap();
            if length == 0 {
                break;
            }
            // The first half only, as a reader that has no room for more.
            let some: Vec<_> = entries(&buffer[..length]).collect();
            for entry in &some[..some.len().div_ceil(2)] {
                found.push(entry.name.to_str().unwrap().to_owned());
                position = entry.next;
            }
            if some.is_empty() {
                break; // only `.` and `..` were left
            }
        }
        std::fs::remove_dir_all(&path).unwrap();
        assert_eq!(found.len(), names.len());
        assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), names);
    }

    #[test]
    fn a_damaged_buffer_is_no_entry() {
        assert_eq!(entries(&[0; 18]).next(), None);
        assert_eq!(entries(&[0xff; 64]).next(), None);
        assert_eq!(entries(&[]).next(), None);
    }
}
