//! What travels in a copy: files of a tree, in an order in which a directory comes before and after what is in it.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;

use nix::sys::stat::FileStat;

use crate::error::Result;
use crate::session::protocol::files::FileType;

/// So many files with several names are remembered.
const MOST_LINKED: usize = 1 << 20;

/// A file of the tree.
pub struct Item<'a> {
    /// Below the root of the tree; empty for the root itself.
    pub path: Vec<u8>,
    /// Permission bits.
    pub mode: u32,
    /// Time of its last change, since 1970.
    pub modified_ns: i64,
    /// Owner and group in the sandbox, for archives.
    pub owner: (u32, u32),
    /// What it is.
    pub kind: Kind<'a>,
}

/// The kinds of items.
pub enum Kind<'a> {
    /// A directory, whose content follows.
    Enter,
    /// The end of what is in it.
    Leave,
    /// A regular file.
    File(Content<'a>),
    /// Another name of the file at this path, and its content, in case it cannot be linked. An archive has it only once.
    HardLink(Vec<u8>, Option<Content<'a>>),
    /// A symlink, and what it points to.
    Link(Vec<u8>),
    /// Neither.
    Special(FileType),
}

/// The content of a regular file: so many bytes, and no more if it has grown.
pub enum Content<'a> {
    /// An open file.
    Open(File, u64),
    /// In memory.
    Bytes(Vec<u8>),
    /// The next bytes of a stream.
    Stream(&'a mut dyn Read, u64),
    /// As [`Self::Stream`], but zeros stand for holes.
    Sparse(&'a mut dyn Read, u64),
}

/// The files with several names that were met, and their first path.
#[derive(Default)]
pub struct Linked(HashMap<(u64, u64), Vec<u8>>);

impl Linked {
    /// What the content of a file with this path is: its own, or that of a path that was met.
    pub fn kind(&mut self, found: &FileStat, path: &[u8], content: Content<'static>) -> Kind<'static> {
        if found.st_nlink > 1 {
            let file = (found.st_dev, found.st_ino);
            if let Some(first) = self.0.get(&file) {
                return Kind::HardLink(first.clone(), Some(content));
            }
            // A workload can make as many as it has space for.
            if self.0.len() < MOST_LINKED {
                self.0.insert(file, path.to_vec());
            }
        }
        Kind::File(content)
    }
}

/// Takes the files of a tree in their order.
pub trait Sink {
    /// Takes the next one.
    fn take(&mut self, item: Item<'_>) -> Result<()>;
    /// Completes what was taken.
    fn finish(&mut self) -> Result<()>;
}

/// The path of a name in a directory of the tree.
pub fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    if directory.is_empty() { name.to_vec() } else { [directory, b"/", name].concat() }
}
