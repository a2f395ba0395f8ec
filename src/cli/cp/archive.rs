//! Archives of tar, as streams.

use std::ffi::OsStr;
use std::io::{BufWriter, Read, Write};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path};

use tar::{Archive, Builder, EntryType, Header};

use super::item::{Content, Item, Kind, Sink, join};
use super::{Copying, host};
use crate::error::{Error, Result, Step};
use crate::session::protocol::files::FileType;

/// Writes an archive.
pub struct ArchiveSink<'a, W: Write> {
    copying: &'a Copying,
    builder: Builder<BufWriter<W>>,
    /// The name of the tree's root in the archive.
    name: Vec<u8>,
}

fn failed(error: &std::io::Error) -> Error {
    Error::io(Step::Copy, "archive", error)
}

impl<'a, W: Write> ArchiveSink<'a, W> {
    /// To this stream.
    pub fn new(copying: &'a Copying, to: W, name: &[u8]) -> Self {
        let builder = Builder::new(BufWriter::with_capacity(256 << 10, to));
        Self { copying, builder, name: name.to_vec() }
    }
}

impl<W: Write> Sink for ArchiveSink<'_, W> {
    fn take(&mut self, item: Item<'_>) -> Result<()> {
        let path = if item.path.is_empty() { self.name.clone() } else { join(&self.name, &item.path) };
        let mut header = Header::new_gnu();
        header.set_mode(item.mode);
        header.set_mtime(u64::try_from(item.modified_ns / 1_000_000_000).unwrap_or(0));
        header.set_uid(item.owner.0.into());
        header.set_gid(item.owner.1.into());
        header.set_size(0);
        let name = Path::new(OsStr::from_bytes(&path));
        let written = match item.kind {
            Kind::Leave => Ok(()),
            Kind::Enter => {
                header.set_entry_type(EntryType::Directory);
                let name = [path.as_slice(), b"/"].concat();
                self.builder.append_data(&mut header, Path::new(OsStr::from_bytes(&name)), std::io::empty())
            }
            Kind::Link(target) => {
                header.set_entry_type(EntryType::Symlink);
                self.builder.append_link(&mut header, name, Path::new(OsStr::from_bytes(&target)))
            }
            Kind::Special(FileType::Fifo) => {
                header.set_entry_type(EntryType::Fifo);
                self.builder.append_data(&mut header, name, std::io::empty())
            }
            Kind::Special(kind) => {
                self.copying.leave_out(&host::text(&path.into()), kind);
                Ok(())
            }
            Kind::File(content) => {
                header.set_entry_type(EntryType::Regular);
                match content {
                    Content::Open(file, size) => {
                        header.set_size(size);
                        let mut exactly = Exactly { from: file, left: size, padded: 0 };
                        let written = self.builder.append_data(&mut header, name, &mut exactly);
                        self.copying.check_length(&path.into(), size - exactly.padded, size);
                        written
                    }
                    Content::Stream(from, size) => {
                        header.set_size(size);
                        self.builder.append_data(&mut header, name, from.take(size))
                    }
                    Content::Bytes(bytes) => {
                        header.set_size(bytes.len() as u64);
                        self.builder.append_data(&mut header, name, bytes.as_slice())
                    }
                }
            }
        };
        written.map_err(|error| failed(&error))
    }

    fn finish(&mut self) -> Result<()> {
        self.builder.finish().and_then(|()| self.builder.get_mut().flush()).map_err(|error| failed(&error))
    }
}

/// As many bytes as an archive's header has promised: the rest of a file that has become shorter is zeros.
struct Exactly<R> {
    from: R,
    left: u64,
    padded: u64,
}

impl<R: Read> Read for Exactly<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let most = buffer.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        if most == 0 {
            return Ok(0);
        }
        let mut length = if self.padded == 0 { self.from.read(&mut buffer[..most])? } else { 0 };
        if length == 0 {
            buffer[..most].fill(0);
            self.padded += most as u64;
            length = most;
        }
        self.left -= length as u64;
        Ok(length)
    }
}

/// Gives the files of an archive to a sink. Its directories get their attributes at the end.
pub fn unpack(copying: &Copying, from: impl Read, sink: &mut dyn Sink) -> Result<()> {
    let mut archive = Archive::new(from);
    let mut directories: Vec<(Vec<u8>, u32, i64)> = Vec::new();
    for entry in archive.entries().map_err(|error| failed(&error))? {
        let mut entry = entry.map_err(|error| failed(&error))?;
        let named = entry.path_bytes().into_owned();
        let path = inside(&named)?;
        let header = entry.header();
        let wrong =
            |error: std::io::Error| Error::new(Step::Copy, host::text(&named.clone().into()), error.to_string());
        let mode = header.mode().map_err(wrong)?;
        let modified_ns =
            i64::try_from(header.mtime().map_err(wrong)?).unwrap_or(i64::MAX).saturating_mul(1_000_000_000);
        let (kind, size) = (header.entry_type(), entry.size());
        let item = |path, kind| Item { path, mode, modified_ns, owner: (0, 0), kind };
        match kind {
            EntryType::Directory => {
                if !path.is_empty() {
                    sink.take(item(path.clone(), Kind::Enter))?;
                    directories.push((path, mode, modified_ns));
                }
            }
            EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => {
                sink.take(item(path, Kind::File(Content::Stream(&mut entry, size))))?;
            }
            EntryType::Symlink => {
                let target = entry.link_name_bytes().map(|target| target.into_owned()).unwrap_or_default();
                sink.take(item(path, Kind::Link(target)))?;
            }
            EntryType::Link => {
                let reason = "is a hard link, which is not made in a session";
                return Err(
                    Error::new(Step::Copy, host::text(&path.into()), reason).hint("archive with --hard-dereference")
                );
            }
            EntryType::Fifo => copying.leave_out(&host::text(&path.into()), FileType::Fifo),
            EntryType::Char => copying.leave_out(&host::text(&path.into()), FileType::CharacterDevice),
            EntryType::Block => copying.leave_out(&host::text(&path.into()), FileType::BlockDevice),
            EntryType::XGlobalHeader => {}
            _ => return Err(Error::new(Step::Copy, host::text(&path.into()), "has a type that is not known")),
        }
    }
    for (path, mode, modified_ns) in directories.into_iter().rev() {
        sink.take(Item { path, mode, modified_ns, owner: (0, 0), kind: Kind::Leave })?;
    }
    Ok(())
}

/// The path of an entry below the root of the archive. One that leads out is refused.
fn inside(named: &[u8]) -> Result<Vec<u8>> {
    let mut path = Vec::new();
    for component in Path::new(OsStr::from_bytes(named)).components() {
        match component {
            Component::Normal(name) => path = join(&path, name.as_bytes()),
            Component::RootDir | Component::CurDir => {}
            Component::ParentDir | Component::Prefix(_) => {
                let name = host::text(&named.to_vec().into());
                return Err(Error::new(Step::Copy, name, "leads out of the archive"));
            }
        }
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_stays_inside_or_is_refused() {
        for (named, path) in [("a/b", "a/b"), ("./a//b/", "a/b"), ("/etc/x", "etc/x"), ("./", ""), ("a/./b", "a/b")] {
            assert_eq!(inside(named.as_bytes()).unwrap(), path.as_bytes(), "{named}");
        }
        for named in ["..", "../a", "a/../../b", "/../a"] {
            assert!(inside(named.as_bytes()).is_err(), "{named}");
        }
    }

    #[test]
    fn a_file_that_became_shorter_is_padded() {
        let mut read = Vec::new();
        let mut exactly = Exactly { from: &b"abc"[..], left: 5, padded: 0 };
        exactly.read_to_end(&mut read).unwrap();
        assert_eq!((read.as_slice(), exactly.padded), (&b"abc\0\0"[..], 2));
    }
}
