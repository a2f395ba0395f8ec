//! Content of regular files: copied up to the size that was looked at, and with its holes.

use std::fs::File;
use std::io::{Read, Result, Seek as _, SeekFrom, Write};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};

use nix::errno::Errno;
use nix::unistd::{Whence, lseek};

/// In smaller files no holes are looked for.
const LEAST_WITH_HOLES: u64 = 32 << 10;
/// So many zeros in a row, in a file that has holes, become one.
const HOLE: usize = 4096;
/// A file of more pieces goes into an archive without its holes.
const MOST_PIECES: usize = 8192;

/// Copies so many bytes, or fewer if there are fewer. What was added since the size was looked at is left out: a workload
/// could add for ever.
pub fn copy(from: &mut (impl Read + ?Sized), to: &mut impl Write, size: u64) -> Result<u64> {
    let mut buffer = vec![0; size.clamp(1, 256 << 10) as usize];
    let mut copied = 0;
    while copied < size {
        let most = buffer.len().min((size - copied) as usize);
        match from.read(&mut buffer[..most]) {
            Ok(0) => break,
            Ok(length) => {
                to.write_all(&buffer[..length])?;
                copied += length as u64;
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(copied)
}

/// As [`copy`], from file to new file. What is a hole there becomes one here.
pub fn copy_file(from: &mut File, to: &mut File, size: u64) -> Result<u64> {
    if !has_holes(from, size)? {
        return copy(from, to, size);
    }
    let mut at = 0;
    while let Some((start, end)) = next_piece(from, at, size) {
        from.seek(SeekFrom::Start(start))?;
        to.seek(SeekFrom::Start(start))?;
        let copied = copy(from, to, end - start)?;
        if copied < end - start {
            return Ok(start + copied);
        }
        at = end;
    }
    let whole = from.metadata()?.len().min(size);
    to.set_len(whole)?;
    Ok(whole)
}

/// As [`copy`], to a new file, from a stream in which zeros stand for holes.
pub fn copy_with_holes(from: &mut dyn Read, to: &mut File, size: u64) -> Result<u64> {
    let copied = copy(from, &mut Holes(to), size)?;
    to.set_len(copied)?;
    Ok(copied)
}

/// A file in which blocks of zeros are not written.
struct Holes<'a>(&'a mut File);

impl Write for Holes<'_> {
    fn write(&mut self, buffer: &[u8]) -> Result<usize> {
        for block in buffer.chunks(HOLE) {
            if block.len() == HOLE && block.iter().all(|byte| *byte == 0) {
                self.0.seek(SeekFrom::Current(HOLE as i64))?;
            } else {
                self.0.write_all(block)?;
            }
        }
        Ok(buffer.len())
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

fn has_holes(file: &File, size: u64) -> Result<bool> {
    Ok(size >= LEAST_WITH_HOLES && file.metadata()?.blocks().saturating_mul(512) < size)
}

/// The next piece that is not a hole: where it begins and where it ends.
fn next_piece(file: &File, at: u64, size: u64) -> Option<(u64, u64)> {
    let seek = |at: u64, whence| lseek(file, i64::try_from(at).unwrap_or(i64::MAX), whence).map(|at| at as u64);
    if at >= size {
        return None;
    }
    match seek(at, Whence::SeekData) {
        Ok(start) if start >= size => None,
        Ok(start) => {
            let end = seek(start, Whence::SeekHole).unwrap_or(size).min(size);
            Some((start, if end > start { end } else { size }))
        }
        Err(Errno::ENXIO) => None,
        Err(_) => Some((at, size)), // this file system does not say
    }
}

/// The pieces of a file that are no holes, from where to where.
pub fn pieces(file: &File, size: u64) -> Vec<(u64, u64)> {
    let (mut pieces, mut at) = (Vec::new(), 0);
    if has_holes(file, size).unwrap_or(false) {
        while let Some((start, end)) = next_piece(file, at, size) {
            // An archive has holes of whole blocks.
            if pieces.len() == MOST_PIECES || !start.is_multiple_of(512) || (!end.is_multiple_of(512) && end != size) {
                return vec![(0, size)];
            }
            pieces.push((start, end));
            at = end;
        }
        return pieces;
    }
    vec![(0, size)]
}

/// Reads pieces of a file, as long as an archive's header has promised: what a file lacks that has become shorter is zeros.
pub struct Exactly {
    file: File,
    left: std::collections::VecDeque<(u64, u64)>,
    /// How many zeros were added.
    pub padded: u64,
}

impl Exactly {
    /// These pieces.
    pub fn of(file: File, pieces: &[(u64, u64)]) -> Self {
        Self { file, left: pieces.iter().copied().collect(), padded: 0 }
    }
}

impl Read for Exactly {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        while self.left.front().is_some_and(|(start, end)| start >= end) {
            self.left.pop_front();
        }
        let Some((start, end)) = self.left.front_mut() else { return Ok(0) };
        let most = buffer.len().min(usize::try_from(*end - *start).unwrap_or(usize::MAX));
        let mut length = self.file.read_at(&mut buffer[..most], *start)?;
        if length == 0 {
            buffer[..most].fill(0);
            self.padded += most as u64;
            length = most;
        }
        *start += length as u64;
        Ok(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(content: &[u8]) -> File {
        let file = nix::sys::memfd::memfd_create(c"content", nix::sys::memfd::MFdFlags::MFD_CLOEXEC).unwrap();
        let mut file = File::from(file);
        file.write_all(content).unwrap();
        file.rewind().unwrap();
        file
    }

    #[test]
    fn a_file_that_became_shorter_is_padded() {
        let mut read = Vec::new();
        let mut exactly = Exactly::of(file(b"abcdef"), &[(0, 2), (4, 8)]);
        exactly.read_to_end(&mut read).unwrap();
        assert_eq!((read.as_slice(), exactly.padded), (&b"abef\0\0"[..], 2));
    }

    #[test]
    fn holes_stay_holes() {
        let mut source = file(b"");
        source.set_len(1 << 20).unwrap();
        source.write_all_at(b"x", 300 << 10).unwrap();
        source.write_all_at(b"y", (1 << 20) - 1).unwrap();
        let mut content = Vec::new();
        source.read_to_end(&mut content).unwrap();
        let pieces = pieces(&source, 1 << 20);
        assert_eq!(pieces.len(), 2, "{pieces:?}");
        for is_stream in [false, true] {
            let mut copied = file(b"");
            let length = match is_stream {
                false => copy_file(&mut source, &mut copied, 1 << 20).unwrap(),
                true => copy_with_holes(&mut &content[..], &mut copied, 1 << 20).unwrap(),
            };
            assert_eq!(length, 1 << 20);
            assert_eq!(copied.metadata().unwrap().blocks(), source.metadata().unwrap().blocks());
            let mut seen = Vec::new();
            copied.rewind().unwrap();
            copied.read_to_end(&mut seen).unwrap();
            assert!(seen == content);
        }
        // It became shorter: so much was copied.
        source.set_len(1000).unwrap();
        assert_eq!(copy_file(&mut source, &mut file(b""), 1 << 20).unwrap(), 1000);
    }
}
