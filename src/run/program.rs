//! The executed file. It is hashed when the run is over, so that hashing does not delay the start.

use std::fs::File;
use std::io::Read as _;
use std::os::fd::{AsRawFd as _, OwnedFd};

use nix::fcntl::OFlag;
use nix::sys::stat::{FileStat, SFlag, fstat};
use sha2::{Digest as _, Sha256};

use crate::confine::process::program::changed_ns;
use crate::plan::hex;
use crate::sys::file::open;

/// Most bytes that are hashed: an untrusted root directory can contain a sparse file of any size.
const MOST_BYTES: u64 = 1 << 30;

/// The file that the workload was about to execute.
#[derive(Debug)]
pub struct Program {
    /// An `O_PATH` descriptor.
    pub file: OwnedFd,
    /// Time of its last change before execve, in nanoseconds.
    pub changed_ns: u64,
}

impl Program {
    /// Its hash, hexadecimal. `None` if the file cannot be read, is too large, or has changed.
    pub fn sha256(&self) -> Option<String> {
        if !self.is_as_it_was(&fstat(&self.file).ok()?) {
            return None;
        }
        let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
        let path = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        let mut file = File::from(open(path.as_str(), flags).ok()?).take(MOST_BYTES);
        let (mut hash, mut chunk) = (Sha256::new(), vec![0; 128 << 10]);
        loop {
            match file.read(&mut chunk).ok()? {
                0 => break,
                length => hash.update(&chunk[..length]),
            }
        }
        // The sandbox's processes are dead, but other processes may write the file.
        self.is_as_it_was(&fstat(file.into_inner()).ok()?).then(|| hex(&hash.finalize()))
    }

    fn is_as_it_was(&self, stat: &FileStat) -> bool {
        let regular = SFlag::from_bits_truncate(stat.st_mode & SFlag::S_IFMT.bits()) == SFlag::S_IFREG;
        regular && changed_ns(stat) == self.changed_ns && stat.st_size.unsigned_abs() <= MOST_BYTES
    }
}
