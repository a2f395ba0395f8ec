//! Network namespaces and their loopback interface.

use std::os::fd::{AsRawFd, FromRawFd as _, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrLike as _, SockaddrStorage, bind, recv, send,
    setsockopt, socket, sockopt,
};
use nix::sys::stat::fstat;

use super::stack::Stack;
use super::thread::{Thread, call};
use super::{Result, check, check_fd};

/// The network namespace of a socket, `include/uapi/linux/sockios.h`.
const SIOCGSKNS: usize = 0x894C;

/// The longest queue of connections that nobody has accepted yet; `net.core.somaxconn` bounds it, too.
const BACKLOG: i32 = 1024;

/// A TCP listener or, if wanted, a UDP socket with this address.
pub fn bound(address: &SockaddrStorage, datagram: bool) -> Result<OwnedFd> {
    let family = address.family().ok_or(Errno::EAFNOSUPPORT)?;
    let kind = if datagram { SockType::Datagram } else { SockType::Stream };
    let socket = socket(family, kind, SockFlag::SOCK_CLOEXEC, None)?;
    if family == AddressFamily::Inet6 {
        setsockopt(&socket, sockopt::Ipv6V6Only, &true)?;
        // A route makes an address of IPv6 receive, but not bindable as one of IPv4.
        let on: libc::c_int = 1;
        let (level, length) = (libc::IPPROTO_IPV6, size_of_val(&on) as libc::socklen_t);
        let value = (&raw const on).cast();
        // SAFETY: the kernel reads one int, a live local.
        check(unsafe { libc::setsockopt(socket.as_raw_fd(), level, libc::IPV6_FREEBIND, value, length) }.into())?;
    }
    bind(socket.as_raw_fd(), address)?;
    if !datagram {
        // SAFETY: plain numbers. nix knows only the C library's limit, 128 in musl.
        check(unsafe { libc::listen(socket.as_raw_fd(), BACKLOG) }.into())?;
    }
    Ok(socket)
}

/// A socket for requests to the kernel about routes, `rtnetlink(7)`.
pub fn netlink() -> Result<OwnedFd> {
    socket(AddressFamily::Netlink, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::NetlinkRoute)
}

/// A TCP socket of this network namespace, without an address.
pub fn unbound() -> Result<OwnedFd> {
    socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)
}

/// A socket that tells about the sockets of this network namespace, `sock_diag(7)`.
pub fn diagnosis() -> Result<OwnedFd> {
    socket(AddressFamily::Netlink, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::NetlinkSockDiag)
}

/// The network namespace of a socket. Requires `CAP_NET_ADMIN` in it.
pub fn namespace_of(socket: &OwnedFd) -> Result<OwnedFd> {
    // SAFETY: the request takes no argument and returns a new descriptor.
    check_fd(unsafe { libc::ioctl(socket.as_raw_fd(), SIOCGSKNS as libc::Ioctl) }.into())
}

/// Sends a request that asks for an acknowledgement, and takes that.
pub fn request(netlink: &OwnedFd, message: &[u8]) -> Result<()> {
    send(netlink.as_raw_fd(), message, MsgFlags::empty())?;
    let mut answer = [0; 1024];
    let length = recv(netlink.as_raw_fd(), &mut answer, MsgFlags::empty())?;
    // A header of 16 bytes of the type NLMSG_ERROR, then the negative error number.
    match (answer.get(4..6), answer.get(16..20)) {
        (Some(kind), Some(code)) if length >= 20 && kind == (libc::NLMSG_ERROR as u16).to_ne_bytes() => {
            match i32::from_ne_bytes([code[0], code[1], code[2], code[3]]) {
                0 => Ok(()),
                code => Err(Errno::from_raw(code.saturating_neg())),
            }
        }
        _ => Err(Errno::EBADMSG),
    }
}

/// Brings up the loopback interface of this process's network namespace, `netdevice(7)`.
pub fn loopback_up() -> Result<()> {
    let socket = any_socket()?;
    let up = up();
    // SAFETY: SIOCSIFFLAGS reads an ifreq, a live local.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS as libc::Ioctl, &raw const up) }.into()).map(drop)
}

/// Moves this process into a new network namespace, `unshare(CLONE_NEWNET)`.
pub fn unshare() -> Result<()> {
    // SAFETY: only changes the network that this process sees.
    check(unsafe { libc::unshare(libc::CLONE_NEWNET) }.into()).map(drop)
}

/// This process's network namespace, as its device and inode. Requires `CAP_NET_ADMIN` in it.
pub fn inhabited() -> Result<(u64, u64)> {
    let namespace = namespace_of(&any_socket()?)?;
    fstat(&namespace).map(|stat| (stat.st_dev, stat.st_ino))
}

fn any_socket() -> Result<OwnedFd> {
    socket(AddressFamily::Unix, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)
}

fn up() -> libc::ifreq {
    // SAFETY: all-zero is a valid ifreq.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    request.ifr_name[0] = b'l' as libc::c_char;
    request.ifr_name[1] = b'o' as libc::c_char;
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    request
}

/// A network namespace with its loopback interface up, while another thread creates it.
#[derive(Debug)]
pub struct Making(Thread);

impl Making {
    /// Starts creating it. If no thread can be started, the stack is returned.
    pub fn start(stack: Stack) -> std::result::Result<Self, Stack> {
        // SAFETY: `make` uses only `call`.
        unsafe { Thread::start(stack, make) }.map(Self)
    }

    /// Waits for the thread. Returns the namespace and the stack.
    pub fn wait(self) -> (Result<OwnedFd>, Stack) {
        let (said, stack) = self.0.wait();
        let made = match i32::try_from(said) {
            // SAFETY: `make` left this descriptor open, and only this code knows it.
            Ok(fd @ 0..) => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
            Ok(error) => Err(Errno::from_raw(-error)),
            Err(_) => Err(Errno::EBADF),
        };
        (made, stack)
    }
}

/// The thread's function: creates the namespace, which only this thread enters, and leaves a descriptor of it open.
extern "C" fn make() -> i64 {
    let kind = (libc::SOCK_DGRAM | libc::SOCK_CLOEXEC) as usize;
    let up = up();
    // SAFETY: the arguments are numbers, except for an ifreq, a live local that the kernel reads.
    unsafe {
        let made = call(libc::SYS_unshare, [libc::CLONE_NEWNET as usize, 0, 0]);
        if made < 0 {
            return made;
        }
        let socket = call(libc::SYS_socket, [libc::AF_UNIX as usize, kind, 0]);
        if socket < 0 {
            return socket;
        }
        let mut said =
            call(libc::SYS_ioctl, [socket as usize, libc::SIOCSIFFLAGS as usize, (&raw const up).expose_provenance()]);
        if said >= 0 {
            said = call(libc::SYS_ioctl, [socket as usize, SIOCGSKNS, 0]);
        }
        call(libc::SYS_close, [socket as usize, 0, 0]);
        said
    }
}
