//! Removing a file, or a directory with what is below it. Each request takes a bounded time, and the next one goes on.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::unistd::{UnlinkatFlags, unlinkat};

use super::message::{Answer, Below};
use crate::sys::directory;
use crate::sys::mount::{NO_MAGICLINKS, open_beneath};

/// After this time a request has done its part.
const SLICE: Duration = Duration::from_millis(200);

/// As many directories above the present one are open. A tree may be deeper than descriptors reach.
const MOST_OPEN: usize = 64;

/// A directory on the way down, and its name in the one above.
struct Level {
    directory: OwnedFd,
    name: CString,
}

/// Removes a name in a directory.
pub fn remove(parent: &OwnedFd, name: &CStr, below: Below) -> Result<Answer, Errno> {
    let removed = match unlinkat(parent, name, UnlinkatFlags::NoRemoveDir) {
        // For a directory some file systems say EPERM, as POSIX does.
        Err(errno @ (Errno::EISDIR | Errno::EPERM)) => match unlinkat(parent, name, UnlinkatFlags::RemoveDir) {
            Err(Errno::ENOTDIR) => Err(errno),
            removed => removed,
        },
        removed => removed,
    };
    match removed {
        Err(Errno::ENOTEMPTY | Errno::EEXIST) if below.0 => remove_tree(parent, name),
        removed => removed.map(|()| Answer::Done),
    }
}

fn remove_tree(parent: &OwnedFd, name: &CStr) -> Result<Answer, Errno> {
    let until = Instant::now() + SLICE;
    let mut levels = vec![Level { directory: enter(parent, name)?, name: name.to_owned() }];
    let (mut depth, mut removed) = (1usize, 0u64);
    while let Some(level) = levels.last() {
        match empty(&level.directory, &mut removed, until)? {
            Emptied::Late => return if removed > 0 { Ok(Answer::Partly) } else { Err(Errno::ETIMEDOUT) },
            Emptied::Below(name) => {
                let directory = enter(&level.directory, &name)?;
                levels.push(Level { directory, name });
                depth += 1;
                if levels.len() > MOST_OPEN {
                    levels.remove(0);
                }
            }
            Emptied::Yes => {
                let name = level.name.clone();
                depth -= 1;
                levels.pop();
                let above = match levels.last() {
                    Some(level) => &level.directory,
                    None if depth == 0 => parent,
                    None => return Ok(Answer::Partly), // the one above is not open any more; the next request finds it
                };
                match unlinkat(above, name.as_c_str(), UnlinkatFlags::RemoveDir) {
                    Ok(()) | Err(Errno::ENOENT) => removed += 1,
                    // Something was added meanwhile.
                    Err(Errno::ENOTEMPTY | Errno::EEXIST) if removed > 0 => return Ok(Answer::Partly),
                    Err(errno) => return Err(errno),
                }
            }
        }
    }
    Ok(Answer::Done)
}

enum Emptied {
    /// Nothing is left in it.
    Yes,
    /// This directory in it is not empty.
    Below(CString),
    /// Time is over.
    Late,
}

/// Removes the files and the empty directories of a directory.
fn empty(directory: &OwnedFd, removed: &mut u64, until: Instant) -> Result<Emptied, Errno> {
    nix::unistd::lseek(directory, 0, nix::unistd::Whence::SeekSet)?;
    let mut buffer = [0; 32 << 10];
    loop {
        let length = directory::read(directory, &mut buffer)?;
        if length == 0 {
            return Ok(Emptied::Yes);
        }
        for entry in directory::entries(&buffer[..length]) {
            if Instant::now() >= until {
                return Ok(Emptied::Late);
            }
            match remove(directory, entry.name, Below(false)) {
                Ok(_) => *removed += 1,
                Err(Errno::ENOENT) => {} // removed meanwhile
                Err(Errno::ENOTEMPTY | Errno::EEXIST) => return Ok(Emptied::Below(entry.name.to_owned())),
                Err(errno) => return Err(errno),
            }
        }
    }
}

/// Opens a directory for reading, but nothing that a link in its place leads to.
fn enter(parent: impl AsFd, name: &CStr) -> Result<OwnedFd, Errno> {
    open_beneath(parent, name, libc::O_RDONLY | libc::O_DIRECTORY | libc::O_NOFOLLOW, NO_MAGICLINKS)
}
