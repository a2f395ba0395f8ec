//! Packets of the session protocol: one JSON object each, in the packet itself or, if it is long, in a sealed memory file.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;

use crate::sys::{image, packet};

/// The longest object in a packet itself.
pub const MOST_INLINE: usize = 64 << 10;
/// The longest object in a memory file.
pub const MOST_IN_MEMORY: usize = 16 << 20;
/// What a packet says whose first descriptor is a memory file with the object.
const IN_MEMORY: &[u8] = br#"{"in_memfd":true}"#;
/// The seals that a memory file must have: nobody can change it while it is read.
const SEALS: libc::c_int = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_WRITE;

/// A packet to send, or one that was received.
#[derive(Debug)]
pub struct Packet {
    /// The JSON object.
    pub json: Vec<u8>,
    /// The descriptors, without that of a memory file.
    pub fds: Vec<OwnedFd>,
}

/// The result of [`receive`].
#[derive(Debug)]
pub enum Received {
    /// A whole packet.
    Packet(Packet),
    /// Something else: why. What follows is whole again.
    Wrong(&'static str),
    /// Nothing yet.
    Nothing,
    /// The other end is closed.
    End,
}

impl Packet {
    /// A packet without descriptors.
    pub fn new(json: Vec<u8>) -> Self {
        Self { json, fds: Vec::new() }
    }

    /// Moves a long object into a memory file. Then the packet can be sent by [`send`].
    pub fn fit(mut self) -> Result<Self, Errno> {
        if self.json.len() <= MOST_INLINE {
            return Ok(self);
        }
        if self.json.len() > MOST_IN_MEMORY || self.fds.len() == packet::MOST {
            return Err(Errno::EMSGSIZE);
        }
        let file = image::memory_file(c"stockade-packet")?;
        let mut rest = self.json.as_slice();
        while !rest.is_empty() {
            rest = &rest[nix::unistd::write(&file, rest)?..];
        }
        image::seal(file.as_fd())?;
        self.fds.insert(0, file);
        self.json = IN_MEMORY.to_vec();
        Ok(self)
    }

    /// The bytes of memory that it takes.
    pub fn size(&self) -> usize {
        self.json.len()
    }
}

/// Sends a packet that fits. `EAGAIN` if there is no room and it must not `wait`.
pub fn send(socket: impl AsFd, packet: &Packet, wait: bool) -> Result<(), Errno> {
    let fds: Vec<BorrowedFd<'_>> = packet.fds.iter().map(AsFd::as_fd).collect();
    packet::send(socket, &packet.json, &fds, wait)
}

/// Receives a packet.
pub fn receive(socket: impl AsFd, buffer: &mut Vec<u8>, wait: bool) -> Result<Received, Errno> {
    buffer.resize(MOST_INLINE, 0);
    let received = match packet::receive(socket, buffer, wait) {
        Err(Errno::EAGAIN) => return Ok(Received::Nothing),
        Err(Errno::ECONNRESET) => return Ok(Received::End),
        received => received?,
    };
    if !received.whole {
        return Ok(Received::Wrong("has more than 65536 bytes or more than 8 descriptors"));
    }
    if received.length == 0 {
        return Ok(Received::End);
    }
    let json = &buffer[..received.length];
    let mut fds = received.fds;
    if json != IN_MEMORY {
        return Ok(Received::Packet(Packet { json: json.to_vec(), fds }));
    }
    if fds.is_empty() {
        return Ok(Received::Wrong("says in_memfd and has no descriptor"));
    }
    match content(&fds.remove(0)) {
        Ok(json) => Ok(Received::Packet(Packet { json, fds })),
        Err(why) => Ok(Received::Wrong(why)),
    }
}

/// The content of a memory file that nobody can change any more. Reading another file could block, or never end.
fn content(file: &OwnedFd) -> Result<Vec<u8>, &'static str> {
    if packet::seals(file).is_ok_and(|seals| seals & SEALS == SEALS) {
        let size = nix::sys::stat::fstat(file).map_or(-1, |stat| stat.st_size);
        let size = usize::try_from(size).ok().filter(|size| *size <= MOST_IN_MEMORY);
        let size = size.ok_or("has a memory file of more than 16777216 bytes")?;
        let mut bytes = vec![0; size];
        let mut filled = 0;
        while filled < size {
            match nix::sys::uio::pread(file, &mut bytes[filled..], filled as i64) {
                Ok(0) | Err(_) => return Err("has a memory file that cannot be read"),
                Ok(length) => filled += length,
            }
        }
        return Ok(bytes);
    }
    Err("says in_memfd, and the descriptor is not a memory file with the seals SHRINK, GROW and WRITE")
}

#[cfg(test)]
mod tests {
    use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};

    use super::*;

    fn pair() -> (OwnedFd, OwnedFd) {
        socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC).unwrap()
    }

    fn sent(one: &OwnedFd, json: Vec<u8>) {
        send(one, &Packet::new(json).fit().unwrap(), true).unwrap();
    }

    fn got(other: &OwnedFd) -> Result<Vec<u8>, &'static str> {
        match receive(other, &mut Vec::new(), false).unwrap() {
            Received::Packet(packet) => Ok(packet.json),
            Received::Wrong(why) => Err(why),
            end => panic!("{end:?}"),
        }
    }

    #[test]
    fn short_and_long_objects_arrive_as_they_were() {
        let (one, other) = pair();
        for length in [1, MOST_INLINE, MOST_INLINE + 1, MOST_IN_MEMORY] {
            let json: Vec<u8> = (0..length).map(|at| b'a' + (at % 26) as u8).collect();
            sent(&one, json.clone());
            assert_eq!(got(&other), Ok(json));
        }
        assert_eq!(Packet::new(vec![b' '; MOST_IN_MEMORY + 1]).fit().unwrap_err(), Errno::EMSGSIZE);
    }

    #[test]
    fn what_could_change_or_block_is_not_read() {
        let (one, other) = pair();
        let (pipe, _writer) = nix::unistd::pipe().unwrap();
        let open = image::memory_file(c"open").unwrap();
        let zero = crate::sys::file::open("/dev/zero", nix::fcntl::OFlag::O_RDONLY).unwrap();
        for file in [pipe, open, zero] {
            packet::send(&one, IN_MEMORY, &[file.as_fd()], true).unwrap();
            assert!(got(&other).unwrap_err().contains("seals"));
        }
        packet::send(&one, IN_MEMORY, &[], true).unwrap();
        assert!(got(&other).unwrap_err().contains("no descriptor"));
        let large = image::memory_file(c"large").unwrap();
        nix::unistd::ftruncate(&large, MOST_IN_MEMORY as i64 + 1).unwrap();
        image::seal(large.as_fd()).unwrap();
        packet::send(&one, IN_MEMORY, &[large.as_fd()], true).unwrap();
        assert!(got(&other).unwrap_err().contains("more than"));
        packet::send(&one, &[b' '; MOST_INLINE + 1], &[], true).unwrap();
        assert!(got(&other).is_err());
        sent(&one, b"{}".to_vec());
        assert_eq!(got(&other), Ok(b"{}".to_vec()), "what follows is whole");
        drop(one);
        assert!(matches!(receive(&other, &mut Vec::new(), true), Ok(Received::End)));
    }
}
