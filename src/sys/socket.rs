//! Messages with at most one descriptor over a Unix socket, `unix(7)`.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;

use super::{Result, packet};

/// How long the program at the other end of [`connect`] may delay us: until it accepts, and until it reads.
const PEER_TIMEOUT: nix::sys::time::TimeVal = nix::sys::time::TimeVal::new(10, 0);

/// Connects to a listening stream socket. Its path may be longer than `sun_path`.
pub fn connect(path: &std::path::Path) -> Result<OwnedFd> {
    use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, setsockopt, socket, sockopt};
    let flags = nix::fcntl::OFlag::O_PATH | nix::fcntl::OFlag::O_CLOEXEC;
    let opened = nix::fcntl::open(path, flags, nix::sys::stat::Mode::empty())?;
    let short = format!("/proc/self/fd/{}", opened.as_raw_fd());
    let socket = socket(AddressFamily::Unix, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
    setsockopt(&socket, sockopt::SendTimeout, &PEER_TIMEOUT)?;
    connect(socket.as_raw_fd(), &UnixAddr::new(short.as_str())?).map_err(timed_out)?;
    Ok(socket)
}

/// The kernel reports a socket's timeout as EAGAIN.
fn timed_out(errno: Errno) -> Errno {
    if errno == Errno::EAGAIN { Errno::ETIMEDOUT } else { errno }
}

/// Sends one whole message, with or without a descriptor. Allocates nothing.
pub fn send(socket: impl AsFd, message: &[u8], fd: Option<BorrowedFd<'_>>) -> Result<()> {
    let sent = packet::send_once(socket, message, fd.as_slice(), 0).map_err(timed_out)?;
    // After the timeout a stream socket may have sent a part.
    if sent == message.len() { Ok(()) } else { Err(Errno::ETIMEDOUT) }
}

/// Receives one message into `buffer`. Returns its length (0 at end of file) and its descriptor. Of several descriptors it
/// keeps none.
pub fn receive(socket: impl AsFd, buffer: &mut [u8], wait: bool) -> Result<(usize, Option<OwnedFd>)> {
    let packet::Received { length, mut fds, .. } = packet::receive(socket, buffer, wait)?;
    let fd = if fds.len() == 1 { fds.pop() } else { None };
    Ok((length, fd))
}
