//! What travels in a copy: files of a tree, in an order in which a directory comes before and after what is in it.

use std::fs::File;
use std::io::Read;

use crate::error::Result;
use crate::session::protocol::files::FileType;

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
