//! The owner of the standard streams.

use std::os::fd::BorrowedFd;

use nix::fcntl::{FcntlArg, fcntl};

/// Gives the runtime's streams to the container's user, who can then open `/dev/stderr` and its like anew. The parent does it
/// with the user's id on the host, and the child with the id inside, in case the parent lacks the privilege.
///
/// A stream that the kernel does not let this process give away stays as it is.
pub fn give_streams(streams: &[BorrowedFd<'_>; 3], user: u32) {
    for stream in streams.iter().filter(|stream| is_given_away(**stream, user)) {
        // Only the user, as under runc: the group may be meant for others.
        let _ = nix::unistd::fchown(*stream, Some(nix::unistd::Uid::from_raw(user)), None);
    }
}

/// Whether an owner can do no more with it than its descriptor allows, apart from reading output back: a pipe, or a file that is
/// open for writing. Not a device of the host, such as the caller's terminal, which its new owner could open for ever.
fn is_given_away(stream: BorrowedFd<'_>, user: u32) -> bool {
    let Ok(stat) = nix::sys::stat::fstat(stream) else { return false };
    let writable = || {
        let mode = fcntl(stream, FcntlArg::F_GETFL).map_or(0, |flags| flags & libc::O_ACCMODE);
        mode == libc::O_WRONLY || mode == libc::O_RDWR
    };
    let kind = stat.st_mode & libc::S_IFMT;
    stat.st_uid != user && (kind == libc::S_IFIFO || kind == libc::S_IFREG && writable())
}
