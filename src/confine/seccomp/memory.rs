//! What a waiting caller has in its memory and its `/proc` directory. It belongs to a call only if the caller waits afterwards, too:
//! the listener asks.

use std::ffi::CString;
use std::io::IoSliceMut;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::ffi::OsStringExt as _;

use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::Pid;

use crate::plan::Bytes;
use crate::sys::file;

/// Longest text that is read.
const MOST_TEXT: usize = 256;

/// Longest path, `PATH_MAX`.
const MOST_PATH: usize = 4096;

/// Its name, `comm` in `proc(5)`.
pub fn comm(thread: Pid) -> Option<Bytes> {
    let mut comm = std::fs::read(format!("/proc/{thread}/comm")).ok()?;
    comm.truncate(comm.len().saturating_sub(1)); // the trailing newline
    comm.retain(|byte| *byte != 0);
    Some(Bytes::from(comm))
}

/// A C string in a thread's memory, at most [`MOST_TEXT`] bytes, up to the first unreadable page.
pub fn text(thread: Pid, address: u64) -> Option<Vec<u8>> {
    memory(thread, address, MOST_TEXT).map(|(text, _)| text).filter(|text| !text.is_empty())
}

/// A path in a thread's memory. `None` if it is empty, too long or unreadable.
pub fn path(thread: Pid, address: u64) -> Option<Vec<u8>> {
    memory(thread, address, MOST_PATH).filter(|(path, complete)| *complete && !path.is_empty()).map(|(path, _)| path)
}

/// The bytes in a thread's memory up to a NUL byte, and whether there is one before an unreadable page and the most that is read.
fn memory(thread: Pid, address: u64, most: usize) -> Option<(Vec<u8>, bool)> {
    let (start, mut bytes, mut length) = (usize::try_from(address).ok()?, vec![0; most], 0);
    while length < most {
        let base = start.checked_add(length)?;
        let len = (4096 - base % 4096).min(most - length); // a page is readable as a whole or not at all
        let part = &mut bytes[length..length + len];
        let Ok(read @ 1..) = process_vm_readv(thread, &mut [IoSliceMut::new(part)], &[RemoteIoVec { base, len }])
        else {
            break;
        };
        if let Some(end) = part[..read].iter().position(|byte| *byte == 0) {
            bytes.truncate(length + end);
            return Some((bytes, true));
        }
        length += read;
    }
    bytes.truncate(length);
    Some((bytes, false))
}

/// The flags of `struct open_how`. `None` if the lookup has rules of its own.
pub fn open_flags(thread: Pid, address: u64) -> Option<u64> {
    let (base, mut how) = (usize::try_from(address).ok()?, [0; 24]);
    let remote = RemoteIoVec { base, len: how.len() };
    let read = process_vm_readv(thread, &mut [IoSliceMut::new(&mut how)], &[remote]).ok()?;
    let word = |at: usize| how[at..at + 8].try_into().map(u64::from_ne_bytes).ok();
    word(0).filter(|_| read == how.len() && word(16) == Some(0))
}

/// The internet address in a `struct sockaddr` of this length, `ip(7)`, `ipv6(7)`.
pub fn peer(thread: Pid, address: u64, length: u64) -> Option<SocketAddr> {
    let (base, mut bytes) = (usize::try_from(address).ok()?, [0; size_of::<libc::sockaddr_in6>()]);
    let len = usize::try_from(length).ok()?.min(bytes.len());
    let read =
        process_vm_readv(thread, &mut [IoSliceMut::new(&mut bytes[..len])], &[RemoteIoVec { base, len }]).ok()?;
    let port = u16::from_be_bytes([bytes[2], bytes[3]]);
    let ip = match i32::from(u16::from_ne_bytes([bytes[0], bytes[1]])) {
        libc::AF_INET if read >= 8 => IpAddr::from(<[u8; 4]>::try_from(&bytes[4..8]).ok()?),
        libc::AF_INET6 if read >= 24 => IpAddr::from(<[u8; 16]>::try_from(&bytes[8..24]).ok()?).to_canonical(),
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}

/// Whether a socket of the thread is one of UDP, `udp(7)`. `false` if that cannot be seen.
pub fn is_udp(thread: Pid, fd: u64) -> bool {
    let socket = CString::new(format!("/proc/{thread}/fd/{}", fd as i32));
    socket.is_ok_and(|socket| file::attribute_begins(&socket, c"system.sockprotoname", b"UDP"))
}

/// The path in a `struct sockaddr_un` of this length, `unix(7)`. `None` if it has none.
pub fn socket_path(thread: Pid, address: u64, length: u64) -> Option<Vec<u8>> {
    const PATH: usize = std::mem::offset_of!(libc::sockaddr_un, sun_path);
    let (base, mut bytes) = (usize::try_from(address).ok()?, [0; size_of::<libc::sockaddr_un>()]);
    let len = usize::try_from(length).ok().filter(|len| (PATH..=bytes.len()).contains(len))?;
    let read =
        process_vm_readv(thread, &mut [IoSliceMut::new(&mut bytes[..len])], &[RemoteIoVec { base, len }]).ok()?;
    let is_unix = read == len && i32::from(u16::from_ne_bytes([bytes[0], bytes[1]])) == libc::AF_UNIX;
    let path = bytes[PATH..len].split(|byte| *byte == 0).next()?;
    (is_unix && !path.is_empty()).then(|| path.to_vec())
}

/// A path from the root of the sandbox. A relative one starts in a directory of the thread.
pub fn absolute(thread: Pid, directory: Option<i32>, path: Vec<u8>) -> Option<Vec<u8>> {
    if path.starts_with(b"/") {
        return Some(path);
    }
    let start = match directory {
        None | Some(libc::AT_FDCWD) => format!("/proc/{thread}/cwd"),
        Some(fd) => format!("/proc/{thread}/fd/{fd}"),
    };
    let start = std::fs::read_link(start).ok()?.into_os_string().into_vec();
    start.starts_with(b"/").then(|| [start, path].join(&b'/'))
}
