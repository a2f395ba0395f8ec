//! Archives of tar, as streams.

use std::ffi::OsStr;
use std::io::{BufWriter, Cursor, Read, Write};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path};

use tar::{Archive, Builder, EntryType, GnuExtSparseHeader, GnuSparseHeader, Header};

use super::content::{Exactly, pieces};
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
        let is_link = matches!(item.kind, Kind::Leave | Kind::HardLink(..));
        if !is_link && (item.modified_ns < 0 || item.modified_ns % 1_000_000_000 != 0) {
            let time = shown_time(item.modified_ns);
            self.builder.append_pax_extensions([("mtime", time.as_bytes())]).map_err(|error| failed(&error))?;
        }
        let written = match item.kind {
            Kind::Leave => Ok(()),
            Kind::Enter => {
                header.set_entry_type(EntryType::Directory);
                let name = [path.as_slice(), b"/"].concat();
                self.builder.append_data(&mut header, Path::new(OsStr::from_bytes(&name)), std::io::empty())
            }
            Kind::HardLink(first, _) => {
                header.set_entry_type(EntryType::Link);
                let first = join(&self.name, &first);
                self.builder.append_link(&mut header, name, Path::new(OsStr::from_bytes(&first)))
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
                        let pieces = pieces(&file, size);
                        let map = map(&mut header, &pieces, size);
                        let mut exactly = Exactly::of(file, &pieces);
                        let data = Cursor::new(map).chain(&mut exactly);
                        let written = self.builder.append_data(&mut header, name, data);
                        self.copying.check_length(&path.into(), size - exactly.padded, size);
                        written
                    }
                    Content::Stream(from, size) | Content::Sparse(from, size) => {
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

/// Writes into the header of a file where its content is, as GNU tar does, and returns what follows the header.
fn map(header: &mut Header, pieces: &[(u64, u64)], size: u64) -> Vec<u8> {
    header.set_size(pieces.iter().map(|(start, end)| end - start).sum());
    if pieces == [(0, size)] {
        return Vec::new();
    }
    header.set_entry_type(EntryType::GNUSparse);
    let Some(gnu) = header.as_gnu_mut() else { return Vec::new() };
    gnu.set_real_size(size);
    // A hole at the end is an empty piece there.
    let has_end = pieces.last().is_some_and(|(_, end)| *end == size);
    let mut left = pieces.iter().copied().chain((!has_end).then_some((size, size))).peekable();
    let mut fill = |places: &mut [GnuSparseHeader]| {
        for (place, (start, end)) in places.iter_mut().zip(left.by_ref()) {
            place.set_offset(start);
            place.set_length(end - start);
        }
        left.peek().is_some()
    };
    let mut more = fill(&mut gnu.sparse);
    gnu.set_is_extended(more);
    let mut following = Vec::new();
    while more {
        let mut block = GnuExtSparseHeader::new();
        more = fill(block.sparse_mut());
        block.set_is_extended(more);
        following.extend_from_slice(block.as_bytes());
    }
    following
}

/// A time as an extended header has it.
fn shown_time(ns: i64) -> String {
    let (sign, ns) = (if ns < 0 { "-" } else { "" }, ns.unsigned_abs());
    format!("{sign}{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000)
}

/// The time that an extended header says.
fn time_of(text: &str) -> Option<i64> {
    let (sign, text) = text.strip_prefix('-').map_or((1, text), |rest| (-1, rest));
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, ""));
    if seconds.is_empty() || ![seconds, fraction].iter().all(|part| part.bytes().all(|byte| byte.is_ascii_digit())) {
        return None;
    }
    let fraction: String = fraction.chars().chain(std::iter::repeat('0')).take(9).collect();
    let ns = seconds.parse::<i64>().ok()?.checked_mul(1_000_000_000)?.checked_add(fraction.parse().ok()?)?;
    Some(sign * ns)
}

/// The time in the extended header of an entry. Its other fields are read by the library, except those of a sparse file.
fn extended_time(entry: &mut tar::Entry<'_, impl Read>) -> std::io::Result<Option<i64>> {
    let mut time = None;
    for extension in entry.pax_extensions()?.into_iter().flatten() {
        let extension = extension?;
        if extension.key_bytes().starts_with(b"GNU.sparse.") {
            return Err(std::io::Error::other(
                "is a sparse file in a form that is not known; archive with --format=gnu",
            ));
        }
        if extension.key_bytes() == b"mtime" {
            time = extension.value().ok().and_then(time_of);
        }
    }
    Ok(time)
}

/// Gives the files of an archive to a sink. Its directories get their attributes at the end.
pub fn unpack(copying: &Copying, from: impl Read, sink: &mut dyn Sink) -> Result<()> {
    let mut archive = Archive::new(from);
    let mut directories: Vec<(Vec<u8>, u32, i64)> = Vec::new();
    for entry in archive.entries().map_err(|error| failed(&error))? {
        let mut entry = entry.map_err(|error| failed(&error))?;
        let named = entry.path_bytes().into_owned();
        let path = inside(&named)?;
        let wrong =
            |error: std::io::Error| Error::new(Step::Copy, host::text(&named.clone().into()), error.to_string());
        let extended = extended_time(&mut entry).map_err(wrong)?;
        let header = entry.header();
        let mode = header.mode().map_err(wrong)?;
        let seconds = i64::try_from(header.mtime().map_err(wrong)?).unwrap_or(i64::MAX);
        let modified_ns = extended.unwrap_or(seconds.saturating_mul(1_000_000_000));
        let (kind, size) = (header.entry_type(), entry.size());
        let item = |path, kind| Item { path, mode, modified_ns, owner: (0, 0), kind };
        match kind {
            EntryType::Directory => {
                if !path.is_empty() {
                    sink.take(item(path.clone(), Kind::Enter))?;
                    directories.push((path, mode, modified_ns));
                }
            }
            EntryType::GNUSparse => {
                sink.take(item(path, Kind::File(Content::Sparse(&mut entry, size))))?;
            }
            EntryType::Regular | EntryType::Continuous => {
                sink.take(item(path, Kind::File(Content::Stream(&mut entry, size))))?;
            }
            EntryType::Symlink => {
                let target = entry.link_name_bytes().map(|target| target.into_owned()).unwrap_or_default();
                sink.take(item(path, Kind::Link(target)))?;
            }
            EntryType::Link => {
                let first = entry.link_name_bytes().map(|first| first.into_owned()).unwrap_or_default();
                sink.take(item(path, Kind::HardLink(inside(&first)?, None)))?;
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
    fn times_have_nanoseconds_both_ways() {
        for (ns, text) in [
            (1_500_000_000_123_456_789, "1500000000.123456789"),
            (1, "0.000000001"),
            (-1_500_000_000, "-1.500000000"),
            (-1, "-0.000000001"),
        ] {
            assert_eq!(shown_time(ns), text);
            assert_eq!(time_of(text), Some(ns));
        }
        assert_eq!(time_of("12"), Some(12_000_000_000));
        assert_eq!(time_of("12.5"), Some(12_500_000_000));
        assert_eq!(time_of("0.1234567899"), Some(123_456_789));
        for wrong in ["", ".", "x", "1.x", "1.-5", "--1", "+1", "99999999999999999999"] {
            assert_eq!(time_of(wrong), None, "{wrong}");
        }
    }
}
