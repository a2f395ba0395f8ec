//! Packets with several descriptors over a Unix socket, and who is at its other end: `unix(7)`.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use nix::errno::Errno;

use super::{Result, check, check_fd};

/// The most descriptors of a packet.
pub const MOST: usize = 8;

/// Space for [`MOST`] descriptors in ancillary data, with the kernel's alignment: `CMSG_SPACE(32)`.
#[repr(C, align(8))]
struct Ancillary([u8; 48]);

/// A packet that was received.
#[derive(Debug)]
pub struct Received {
    /// Its length; the rest of a longer one is lost. 0 at the end.
    pub length: usize,
    /// Its descriptors, close-on-exec.
    pub fds: Vec<OwnedFd>,
    /// Whether all of its bytes and descriptors are here.
    pub whole: bool,
}

/// Sends one packet, without waiting for room unless `wait`. At most [`MOST`] descriptors.
pub fn send(socket: impl AsFd, message: &[u8], fds: &[BorrowedFd<'_>], wait: bool) -> Result<()> {
    let flags = if wait { 0 } else { libc::MSG_DONTWAIT };
    loop {
        match send_once(&socket, message, fds, flags) {
            Err(Errno::EINTR) => {}
            // A packet is sent whole or not at all.
            sent => return sent.map(drop),
        }
    }
}

/// One `sendmsg(2)` without a signal, and how many bytes it took. At most [`MOST`] descriptors; allocates nothing.
pub(super) fn send_once(
    socket: impl AsFd,
    message: &[u8],
    fds: &[BorrowedFd<'_>],
    flags: libc::c_int,
) -> Result<usize> {
    assert!(fds.len() <= MOST);
    let mut ancillary = Ancillary([0; 48]);
    let mut part = libc::iovec { iov_base: message.as_ptr().cast_mut().cast(), iov_len: message.len() };
    // SAFETY: all-zero is a valid msghdr.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_iov = &raw mut part;
    header.msg_iovlen = 1;
    if !fds.is_empty() {
        let length = size_of_val(fds) as u32;
        header.msg_control = ancillary.0.as_mut_ptr().cast();
        // SAFETY: computes with a number.
        header.msg_controllen = unsafe { libc::CMSG_SPACE(length) } as _; // the type is wider in glibc than in musl
        // SAFETY: the control buffer holds one aligned cmsghdr and MOST descriptors, and there are at most so many.
        unsafe {
            let control = libc::CMSG_FIRSTHDR(&raw const header);
            (*control).cmsg_level = libc::SOL_SOCKET;
            (*control).cmsg_type = libc::SCM_RIGHTS;
            (*control).cmsg_len = libc::CMSG_LEN(length) as _;
            let data = libc::CMSG_DATA(control).cast::<RawFd>();
            for (index, fd) in fds.iter().enumerate() {
                data.add(index).write_unaligned(fd.as_raw_fd());
            }
        }
    }
    let flags = flags | libc::MSG_NOSIGNAL;
    // SAFETY: the header points to live locals and to `message`, which is only read.
    let sent = check(unsafe { libc::sendmsg(socket.as_fd().as_raw_fd(), &raw const header, flags) } as libc::c_long)?;
    Ok(sent as usize)
}

/// Receives one packet into `buffer`, without waiting for one unless `wait`.
pub fn receive(socket: impl AsFd, buffer: &mut [u8], wait: bool) -> Result<Received> {
    let mut ancillary = Ancillary([0; 48]);
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
            received => break received? as usize,
        }
    };
    let mut fds = Vec::new();
    // SAFETY: the kernel has set msg_controllen to the written length, so each header found there is whole. What does not fit
    // was not installed.
    unsafe {
        let mut control = libc::CMSG_FIRSTHDR(&raw const header);
        while !control.is_null() {
            if (*control).cmsg_level == libc::SOL_SOCKET && (*control).cmsg_type == libc::SCM_RIGHTS {
                let bytes = ((*control).cmsg_len as usize).saturating_sub(libc::CMSG_LEN(0) as usize);
                let data = libc::CMSG_DATA(control).cast::<RawFd>();
                let numbers = (0..bytes / size_of::<RawFd>()).map(|index| data.add(index).read_unaligned());
                fds.extend(numbers.map(|number| OwnedFd::from_raw_fd(number)));
            }
            control = libc::CMSG_NXTHDR(&raw const header, control);
        }
    }
    let whole = header.msg_flags & (libc::MSG_TRUNC | libc::MSG_CTRUNC) == 0;
    Ok(Received { length, fds, whole })
}

/// Accepts a connection, close-on-exec and non-blocking.
pub fn accept(listener: impl AsFd) -> Result<OwnedFd> {
    let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    let (address, length): (*mut libc::sockaddr, *mut libc::socklen_t) = (std::ptr::null_mut(), std::ptr::null_mut());
    // SAFETY: no address is requested.
    check_fd(unsafe { libc::accept4(listener.as_fd().as_raw_fd(), address, length, flags) }.into())
}

/// A pidfd of the process that connected the other end, since Linux 6.5.
pub fn peer_pidfd(socket: impl AsFd) -> Result<OwnedFd> {
    const SO_PEERPIDFD: libc::c_int = 77;
    let mut fd: RawFd = -1;
    let mut length = size_of::<RawFd>() as libc::socklen_t;
    let socket = socket.as_fd().as_raw_fd();
    let (value, length): (*mut libc::c_void, _) = ((&raw mut fd).cast(), &raw mut length);
    // SAFETY: the kernel writes a descriptor and a length into live locals of these sizes.
    check(unsafe { libc::getsockopt(socket, libc::SOL_SOCKET, SO_PEERPIDFD, value, length) }.into())?;
    check_fd(fd.into())
}

/// The seals of a memory file, `F_GET_SEALS` in `fcntl(2)`. `EINVAL` for any other file.
pub fn seals(file: impl AsFd) -> Result<libc::c_int> {
    // SAFETY: plain numbers.
    check(unsafe { libc::fcntl(file.as_fd().as_raw_fd(), libc::F_GET_SEALS) }.into()).map(|seals| seals as libc::c_int)
}

/// The type and permission bits of an open file, as far as they are known here: a file system in user space is not asked.
pub fn known_mode(file: impl AsFd) -> Result<u32> {
    // SAFETY: all-zero is a valid statx.
    let mut found: libc::statx = unsafe { std::mem::zeroed() };
    let (fd, flags) = (file.as_fd().as_raw_fd(), libc::AT_EMPTY_PATH | libc::AT_STATX_DONT_SYNC);
    // Not libc::statx: see sys/mount.rs.
    // SAFETY: the path is NUL-terminated, and the result is written to a live local.
    check(unsafe { libc::syscall(libc::SYS_statx, fd, c"".as_ptr(), flags, libc::STATX_TYPE, &raw mut found) })?;
    Ok(found.stx_mode.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};

    fn pair() -> (OwnedFd, OwnedFd) {
        socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC).unwrap()
    }

    #[test]
    fn packets_and_descriptors_arrive_whole_or_are_known_not_to() {
        let (one, other) = pair();
        let null = crate::sys::file::open("/dev/null", nix::fcntl::OFlag::O_RDWR).unwrap();
        let mut buffer = [0; 4];
        for count in 0..=MOST {
            send(&one, b"abcd", &vec![null.as_fd(); count], true).unwrap();
            let received = receive(&other, &mut buffer, true).unwrap();
            assert!(received.whole && received.length == 4 && received.fds.len() == count);
        }
        send(&one, b"abcde", &[], true).unwrap();
        assert!(!receive(&other, &mut buffer, true).unwrap().whole);
        assert_eq!(receive(&other, &mut buffer, false).unwrap_err(), Errno::EAGAIN);
        drop(one);
        assert_eq!(receive(&other, &mut buffer, true).unwrap().length, 0);
    }

    #[test]
    fn more_descriptors_than_fit_are_noticed_and_closed() {
        use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
        let (one, other) = pair();
        let many = [one.as_raw_fd(); MOST + 3];
        let bytes = [std::io::IoSlice::new(b"x")];
        sendmsg::<()>(one.as_raw_fd(), &bytes, &[ControlMessage::ScmRights(&many)], MsgFlags::empty(), None).unwrap();
        let received = receive(&other, &mut [0; 8], true).unwrap();
        assert!(!received.whole && received.fds.len() <= MOST);
    }
}
