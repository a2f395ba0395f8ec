//! What init needs to start one command. The first is prepared before init exists; those of a session follow as bytes, which
//! the supervisor has checked, and descriptors.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use nix::errno::Errno;

use crate::confine::process::PreparedProcess;
use crate::launch::streams::ChildStream;
use crate::sys::pack::{Packer, Unpacker};
use crate::sys::terminal::Size;

/// A command, prepared.
#[derive(Debug)]
pub struct Order {
    /// The program and its inherited settings.
    pub process: PreparedProcess,
    /// Whether the seccomp listener is sent.
    pub explain_denials: bool,
    /// Whether the executed file is sent to the supervisor, which hashes it.
    pub hash_program: bool,
    /// The size of its own terminal, if it has one.
    pub terminal: Option<Size>,
    /// Its standard streams.
    pub streams: [ChildStream; 3],
}

impl Order {
    /// The bytes for [`Self::unpack`]. The streams travel as descriptors.
    pub fn pack(&self) -> Vec<u8> {
        let mut packer = Packer::default();
        packer.number(u64::from(self.explain_denials));
        packer.number(u64::from(self.hash_program));
        let size = self.terminal.map_or(0, |size| u64::from(size.rows) << 16 | u64::from(size.columns));
        packer.number(u64::from(self.terminal.is_some()));
        packer.number(size);
        self.process.pack(&mut packer);
        packer.into_bytes()
    }

    /// The streams, which must be descriptors.
    pub fn descriptors(&self) -> Option<[BorrowedFd<'_>; 3]> {
        let [input, output, error] = self.streams.each_ref().map(|stream| match stream {
            ChildStream::Own(own) => Some(own.as_fd()),
            _ => None,
        });
        Some([input?, output?, error?])
    }

    /// Init's half.
    pub fn unpack(bytes: &[u8], streams: [OwnedFd; 3]) -> Result<Self, Errno> {
        let mut unpacker = Unpacker::new(bytes);
        let (explain_denials, hash_program) = (unpacker.number()? != 0, unpacker.number()? != 0);
        let (has_terminal, size) = (unpacker.number()? != 0, unpacker.number()?);
        let size = Size { rows: (size >> 16) as u16, columns: size as u16 };
        Ok(Self {
            process: PreparedProcess::unpack(&mut unpacker)?,
            explain_denials,
            hash_program,
            terminal: has_terminal.then_some(size),
            streams: streams.map(ChildStream::Own),
        })
    }
}
