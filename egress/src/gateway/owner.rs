//! Which command of a session a connection belongs to: the kernel knows the cgroup of the process that made a socket,
//! `sock_diag(7)`.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd as _, OwnedFd};

use nix::sys::socket::{MsgFlags, recv, send};
use tokio::net::TcpStream;

/// `SOCK_DIAG_BY_FAMILY`, `NLM_F_REQUEST`, `INET_DIAG_CGROUP_ID`; the lengths of a header, a request and an answer.
const BY_FAMILY: u16 = 20;
const REQUEST: u16 = 1;
const CGROUP: u16 = 21;
const HEADER: usize = 16;
const ASKED: usize = 56;
const ANSWER: usize = 72;

/// States of sockets of `tcp(7)` that have a peer: established, and half closed by this side.
const CONNECTED: [u8; 3] = [1, 4, 5];

/// How many commands are remembered.
const REMEMBERED: usize = 4096;

/// Knows the commands of a session by their cgroups.
#[derive(Debug)]
pub struct Owners {
    /// A netlink socket of the sandbox's network namespace.
    diagnosis: OwnedFd,
    asked: Cell<u32>,
    commands: RefCell<VecDeque<(u64, String)>>,
}

impl Owners {
    /// Without commands so far.
    pub fn new(diagnosis: OwnedFd) -> Self {
        Self { diagnosis, asked: Cell::new(0), commands: RefCell::default() }
    }

    /// A command begins. Ids of cgroups are never used again.
    pub fn add(&self, cgroup: u64, command: String) {
        let mut commands = self.commands.borrow_mut();
        if commands.len() == REMEMBERED {
            commands.pop_front();
        }
        commands.push_back((cgroup, command));
    }

    /// The command with this cgroup.
    pub fn command(&self, cgroup: u64) -> Option<String> {
        let commands = self.commands.borrow();
        commands.iter().find(|(known, _)| *known == cgroup).map(|(_, command)| command.clone())
    }

    /// The cgroup of the process that made the other end of an accepted connection. `None` if that is not certain.
    pub fn cgroup_of(&self, accepted: &TcpStream) -> Option<u64> {
        let (server, client) = (accepted.local_addr().ok()?, accepted.peer_addr().ok()?);
        let number = self.asked.get().wrapping_add(1);
        self.asked.set(number);
        send(self.diagnosis.as_raw_fd(), &question(number, client, server), MsgFlags::MSG_DONTWAIT).ok()?;
        let mut answer = [0; 4096];
        let length = recv(self.diagnosis.as_raw_fd(), &mut answer, MsgFlags::MSG_DONTWAIT).ok()?;
        let found = cgroup_in(number, &answer[..length])?;
        // Only now: as long as our end is connected, no other socket can be connected to it, and so be the one that was found.
        accepted.peer_addr().ok().map(|_| found)
    }
}

/// `struct nlmsghdr`, then `struct inet_diag_req_v2` for one socket.
fn question(number: u32, of: SocketAddr, to: SocketAddr) -> [u8; HEADER + ASKED] {
    let mut packet = [0; HEADER + ASKED];
    packet[8..12].copy_from_slice(&number.to_ne_bytes());
    packet[..4].copy_from_slice(&((HEADER + ASKED) as u32).to_ne_bytes());
    packet[4..6].copy_from_slice(&BY_FAMILY.to_ne_bytes());
    packet[6..8].copy_from_slice(&REQUEST.to_ne_bytes());
    let asked = &mut packet[HEADER..];
    asked[0] = if of.is_ipv4() { nix::libc::AF_INET } else { nix::libc::AF_INET6 } as u8;
    asked[1] = nix::libc::IPPROTO_TCP as u8;
    asked[4..8].copy_from_slice(&u32::MAX.to_ne_bytes()); // in any state
    asked[8..10].copy_from_slice(&of.port().to_be_bytes());
    asked[10..12].copy_from_slice(&to.port().to_be_bytes());
    for (place, address) in [(12, of.ip()), (28, to.ip())] {
        match address {
            IpAddr::V4(address) => asked[place..place + 4].copy_from_slice(&address.octets()),
            IpAddr::V6(address) => asked[place..place + 16].copy_from_slice(&address.octets()),
        }
    }
    asked[48..].fill(0xff); // any cookie
    packet
}

/// The attribute of the answer to a question, if the socket is connected.
fn cgroup_in(number: u32, answer: &[u8]) -> Option<u64> {
    let head = answer.get(..HEADER + ANSWER)?;
    let answers = head[4..6] == BY_FAMILY.to_ne_bytes() && head[8..12] == number.to_ne_bytes();
    if !answers || !CONNECTED.contains(&head[HEADER + 1]) {
        return None;
    }
    let mut rest = &answer[HEADER + ANSWER..];
    while let [a, b, c, d, ..] = *rest {
        let (length, kind) = (usize::from(u16::from_ne_bytes([a, b])), u16::from_ne_bytes([c, d]));
        if kind == CGROUP {
            return rest.get(4..12).filter(|_| length == 12).and_then(|id| id.try_into().ok()).map(u64::from_ne_bytes);
        }
        rest = rest.get(length.max(4).next_multiple_of(4)..)?;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(state: u8, attributes: &[u8]) -> Vec<u8> {
        let mut answer = vec![0; HEADER + ANSWER];
        answer[4..6].copy_from_slice(&BY_FAMILY.to_ne_bytes());
        answer[8] = 9;
        answer[HEADER + 1] = state;
        [answer, attributes.to_vec()].concat()
    }

    #[test]
    fn only_a_connected_socket_has_an_owner() {
        let mut attributes = [&5_u16.to_ne_bytes()[..], &8_u16.to_ne_bytes(), &[3, 0, 0, 0]].concat();
        attributes.extend([&12_u16.to_ne_bytes()[..], &CGROUP.to_ne_bytes(), &77_u64.to_ne_bytes()].concat());
        assert_eq!(cgroup_in(9, &answer(1, &attributes)), Some(77));
        assert_eq!(cgroup_in(9, &answer(2, &attributes)), None, "it is still connecting, so it is another's");
        assert_eq!(cgroup_in(8, &answer(1, &attributes)), None, "the answer to another question");
        for end in 0..attributes.len() {
            assert_eq!(cgroup_in(9, &answer(1, &attributes[..end])), None);
        }
        assert_eq!(cgroup_in(9, &answer(1, &[0; 40])), None);
        assert_eq!(cgroup_in(9, &[0; 20]), None);
    }
}
