//! Passes descriptors over a Unix socket, `unix(7)`, without allocating.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use nix::errno::Errno;

use super::{Result, check};

/// Space for one descriptor in ancillary data, with the kernel's alignment.
#[repr(C, align(8))]
struct Ancillary([u8; 24]);

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

/// Sends one whole message, with or without a descriptor.
pub fn send(socket: impl AsFd, message: &[u8], fd: Option<BorrowedFd<'_>>) -> Result<()> {
    let mut ancillary = Ancillary([0; 24]);
    let mut part = libc::iovec { iov_base: message.as_ptr().cast_mut().cast(), iov_len: message.len() };
    // SAFETY: all-zero is a valid msghdr.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_iov = &raw mut part;
    header.msg_iovlen = 1;
    if let Some(fd) = fd {
        header.msg_control = ancillary.0.as_mut_ptr().cast();
        header.msg_controllen = ancillary.0.len() as _; // the type is wider in glibc than in musl
        // SAFETY: the control buffer holds one aligned cmsghdr and one descriptor (CMSG_SPACE(4) is 24).
        unsafe {
            let control = libc::CMSG_FIRSTHDR(&raw const header);
            (*control).cmsg_level = libc::SOL_SOCKET;
            (*control).cmsg_type = libc::SCM_RIGHTS;
            (*control).cmsg_len = libc::CMSG_LEN(size_of::<RawFd>() as u32) as _;
            libc::CMSG_DATA(control).cast::<RawFd>().write_unaligned(fd.as_raw_fd());
        }
    }
    // SAFETY: the header points to live locals and to `message`, which is only read.
    let sent = check(
        unsafe { libc::sendmsg(socket.as_fd().as_raw_fd(), &raw const header, libc::MSG_NOSIGNAL) } as libc::c_long
    );
    // After the timeout a stream socket may have sent a part.
    if sent.map_err(timed_out)? as usize == message.len() { Ok(()) } else { Err(Errno::ETIMEDOUT) }
}

/// Receives one message into `buffer`. Returns its length (0 at end of file) and its descriptor.
pub fn receive(socket: impl AsFd, buffer: &mut [u8], wait: bool) -> Result<(usize, Option<OwnedFd>)> {
    let mut ancillary = Ancillary([0; 24]);
    let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // SAFETY: all-zero is a valid msghdr.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_iov = &raw mut part;
    header.msg_iovlen = 1;
    header.msg_control = ancillary.0.as_mut_ptr().cast();
    header.msg_controllen = ancillary.0.len() as _;
    let flags = libc::MSG_CMSG_CLOEXEC | if wait { 0 } else { libc::MSG_DONTWAIT };
    let length = loop {
        // SAFETY: the header points to live locals and to `buffer`, of the given lengths.
        match check(unsafe { libc::recvmsg(socket.as_fd().as_raw_fd(), &raw mut header, flags) } as libc::c_long) {
            Err(Errno::EINTR) => {}
            result => break result? as usize,
        }
    };
    // SAFETY: the kernel has set msg_controllen to the written length, so a header found there is whole.
    let fd = unsafe {
        let control = libc::CMSG_FIRSTHDR(&raw const header);
        let passed = !control.is_null()
            && (*control).cmsg_level == libc::SOL_SOCKET
            && (*control).cmsg_type == libc::SCM_RIGHTS
            && (*control).cmsg_len as usize == libc::CMSG_LEN(size_of::<RawFd>() as u32) as usize;
        passed.then(|| OwnedFd::from_raw_fd(libc::CMSG_DATA(control).cast::<RawFd>().read_unaligned()))
    };
    Ok((length, fd))
}
