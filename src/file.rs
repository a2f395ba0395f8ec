//! Reads files that the caller names.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use crate::error::{Error, Result, Step};

/// Reads a regular file of at most `most` bytes. Refuses other files: a FIFO or a device could block, or never end.
pub fn read(step: Step, path: &Path, most: usize) -> Result<Vec<u8>> {
    let wrong = |error: std::io::Error| Error::io(step, path.to_string_lossy(), &error);
    let refuse = |reason: String| Err(Error::new(step, path.to_string_lossy(), reason));
    // Without O_NONBLOCK, opening a FIFO would wait for a writer.
    let file = std::fs::OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path).map_err(wrong)?;
    if !file.metadata().map_err(wrong)?.is_file() {
        return refuse("is not a regular file".to_owned());
    }
    read_open(step, path, file, most)
}

/// The same for a file that may also be a pipe or a FIFO, whose writer is waited for.
pub fn read_stream(step: Step, path: &Path, most: usize) -> Result<Vec<u8>> {
    let file = File::open(path).map_err(|error| Error::io(step, path.to_string_lossy(), &error))?;
    read_open(step, path, file, most)
}

/// The same for standard input.
pub fn read_stdin(step: Step, most: usize) -> Result<Vec<u8>> {
    read_open(step, Path::new("standard input"), std::io::stdin(), most)
}

fn read_open(step: Step, path: &Path, file: impl Read, most: usize) -> Result<Vec<u8>> {
    let wrong = |error: std::io::Error| Error::io(step, path.to_string_lossy(), &error);
    let refuse = |reason: String| Err(Error::new(step, path.to_string_lossy(), reason));
    let mut bytes = Vec::with_capacity(8 << 10); // for most files; into an empty vector the first read is of 32 bytes
    file.take(most as u64 + 1).read_to_end(&mut bytes).map_err(wrong)?;
    if bytes.len() > most { refuse(format!("has more than {most} bytes")) } else { Ok(bytes) }
}
