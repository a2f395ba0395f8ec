//! What init needs to start one command. The first is prepared before init exists; those of a session follow as bytes, which
//! the supervisor has checked, and descriptors.

use std::ffi::CString;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use nix::errno::Errno;

use crate::confine::process::PreparedProcess;
use crate::confine::user::{Other, account};
use crate::launch::streams::ChildStream;
use crate::sys::pack::{Packer, Unpacker};
use crate::sys::terminal::Size;

/// Another user of the sandbox, for a command.
#[derive(Clone, Copy, Debug)]
pub struct RunAs {
    /// The user.
    pub user: Other,
    /// Whether the command starts in this user's home.
    pub at_home: bool,
}

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
    /// The user that it runs as, if that is not the sandbox's.
    pub user: Option<RunAs>,
    /// The filter of the file server, if it is that and no command. Its standard input is a socket.
    pub files: Option<Vec<libc::sock_filter>>,
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
        packer.number(u64::from(self.user.is_some()) | self.user.map_or(0, |one| u64::from(one.at_home)) << 1);
        if let Some(RunAs { user: Other { uid, gid, host_ids }, .. }) = self.user {
            [uid, gid, host_ids.0, host_ids.1].into_iter().for_each(|id| packer.number(id.into()));
        }
        self.process.pack(&mut packer);
        let filter = self.files.as_deref().unwrap_or_default();
        packer.number(filter.len() as u64);
        for one in filter {
            let head = u64::from(one.code) << 16 | u64::from(one.jt) << 8 | u64::from(one.jf);
            packer.number(head << 32 | u64::from(one.k));
        }
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
        let flags = unpacker.number()?;
        let user = (flags & 1 != 0).then(|| {
            let mut id = || unpacker.number().map(|id| id as u32);
            let user = Other { uid: id()?, gid: id()?, host_ids: (id()?, id()?) };
            Ok::<_, Errno>(RunAs { user, at_home: flags & 2 != 0 })
        });
        let user = user.transpose()?;
        let process = PreparedProcess::unpack(&mut unpacker)?;
        let filter = (0..unpacker.number()?).map(|_| {
            let (head, k) = unpacker.number().map(|number| (number >> 32, number as u32))?;
            Ok(libc::sock_filter { code: (head >> 16) as u16, jt: (head >> 8) as u8, jf: head as u8, k })
        });
        let filter = filter.collect::<Result<Vec<_>, Errno>>()?;
        Ok(Self {
            process,
            explain_denials,
            hash_program,
            terminal: has_terminal.then_some(size),
            streams: streams.map(ChildStream::Own),
            user,
            files: Some(filter).filter(|filter| !filter.is_empty()),
        })
    }

    /// Init's half: a command of another user gets that user's home and name, as the sandbox's own files know them.
    pub fn move_in(&mut self) {
        let Some(RunAs { user, at_home }) = self.user else { return };
        let account = account::of(user.uid);
        let variable = |name: &[u8], value: &[u8]| CString::new([name, value].concat()).ok();
        let named = |name| account.name.as_deref().and_then(|value| variable(name, value));
        let variables = [variable(b"HOME=", &account.home), named(b"USER="), named(b"LOGNAME=")];
        self.process.add_missing(variables.into_iter().flatten());
        if let Some(home) = CString::new(account.home).ok().filter(|_| at_home) {
            self.process.set_cwd(home);
        }
    }
}
