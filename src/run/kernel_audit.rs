//! Reads Landlock's denials from the kernel's audit stream, where the host permits it.
//!
//! The stream is a multicast group that requires CAP_AUDIT_READ, `capabilities(7)`. The host's own auditing is not changed. A
//! record `LANDLOCK_ACCESS` reports a denial and names its domain. A record `LANDLOCK_DOMAIN` introduces a domain once, with
//! the process that created it; by that process our domain is recognised. Both are text. The parser accepts any input.

use std::collections::HashMap;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, send, socket,
};

use crate::plan::{Bytes, unhex};

/// `AUDIT_GET` and the two records, `linux/audit.h`.
const GET: u16 = 1000;
const LANDLOCK_ACCESS: u16 = 1423;
const LANDLOCK_DOMAIN: u16 = 1424;
/// `AUDIT_NLGRP_READLOG`, as a mask.
const READLOG: u32 = 1;
/// Length of `struct nlmsghdr`.
const HEADER: usize = 16;
/// Most accesses that are kept while their domain is unknown.
const MOST_PENDING: usize = 256;

/// The audit stream.
#[derive(Debug)]
pub struct Stream {
    socket: OwnedFd,
    /// Accesses whose domain is not known yet.
    pending: Vec<(u64, Access)>,
    /// Whether each known domain is ours.
    domains: HashMap<u64, bool>,
    /// Whether our domain has ended, so that no more denials follow.
    ended: bool,
}

/// An access that Landlock denied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// The missing right: `fs.write_file`, `net.connect_tcp`, `scope.signal`.
    pub blockers: String,
    /// The path, port or process.
    pub target: Option<String>,
}

impl Stream {
    /// Opens the stream. Fails if this process may not read it or the kernel's auditing is off.
    pub fn open() -> nix::Result<Self> {
        let netlink = |flags| socket(AddressFamily::Netlink, SockType::Raw, flags, SockProtocol::NetlinkAudit);
        let status = netlink(SockFlag::SOCK_CLOEXEC)?;
        if !is_enabled(&status)? {
            return Err(Errno::ENODATA);
        }
        let socket = netlink(SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK)?;
        bind(socket.as_raw_fd(), &NetlinkAddr::new(0, READLOG))?;
        Ok(Self { socket, pending: Vec::new(), domains: HashMap::new(), ended: false })
    }

    /// Readable when [`Self::take`] may find something.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Whether our domain is known and has not ended.
    pub fn is_open(&self) -> bool {
        !self.ended && self.domains.values().any(|ours| *ours)
    }

    /// Reads the pending accesses of the domain that `process` created.
    pub fn take(&mut self, process: i32) -> Vec<Access> {
        let mut buffer = [0; 16 << 10];
        let mut found = Vec::new();
        loop {
            match recv(self.socket.as_raw_fd(), &mut buffer, MsgFlags::empty()) {
                Ok(length) => found.extend(self.read(&buffer[..length], process)),
                Err(Errno::EINTR | Errno::ENOBUFS) => {} // records were lost, but more may follow
                Err(_) => return found,
            }
        }
    }

    fn read(&mut self, message: &[u8], process: i32) -> Vec<Access> {
        let Some((kind, payload)) = record(message) else { return Vec::new() };
        let text = String::from_utf8_lossy(payload);
        let fields = fields(&text);
        let Some(domain) = fields.get("domain").and_then(|id| u64::from_str_radix(id, 16).ok()) else {
            return Vec::new();
        };
        match kind {
            LANDLOCK_ACCESS => match self.domains.get(&domain) {
                Some(true) => return vec![access(&fields)],
                Some(false) => {}
                None if self.pending.len() < MOST_PENDING => self.pending.push((domain, access(&fields))),
                None => {}
            },
            LANDLOCK_DOMAIN if fields.get("status").is_some_and(|status| status == "allocated") => {
                let ours = fields.get("pid").is_some_and(|pid| *pid == process.to_string());
                self.domains.insert(domain, ours);
                let (known, pending) = std::mem::take(&mut self.pending).into_iter().partition(|(of, _)| *of == domain);
                self.pending = pending;
                let known: Vec<(u64, Access)> = known;
                return known.into_iter().filter(|_| ours).map(|(_, access)| access).collect();
            }
            LANDLOCK_DOMAIN => self.ended |= self.domains.remove(&domain) == Some(true),
            _ => {}
        }
        Vec::new()
    }
}

/// Whether the kernel's auditing is on. The query requires CAP_AUDIT_CONTROL.
fn is_enabled(socket: &OwnedFd) -> nix::Result<bool> {
    const REQUEST: u16 = 1;
    let mut request = [0; HEADER];
    request[..4].copy_from_slice(&(HEADER as u32).to_ne_bytes());
    request[4..6].copy_from_slice(&GET.to_ne_bytes());
    request[6..8].copy_from_slice(&REQUEST.to_ne_bytes());
    bind(socket.as_raw_fd(), &NetlinkAddr::new(0, 0))?;
    send(socket.as_raw_fd(), &request, MsgFlags::empty())?;
    let mut answer = [0; 256];
    let length = recv(socket.as_raw_fd(), &mut answer, MsgFlags::empty())?;
    match record(&answer[..length]) {
        // struct audit_status: a mask, then whether auditing is enabled.
        Some((GET, payload)) => Ok(payload.get(4..8).is_some_and(|enabled| enabled != [0; 4])),
        _ => Err(Errno::EPERM),
    }
}

/// Type and payload of a netlink message. Audit messages exclude the header from their length field, so the datagram's length
/// counts.
pub fn record(message: &[u8]) -> Option<(u16, &[u8])> {
    let kind = u16::from_ne_bytes([*message.get(4)?, *message.get(5)?]);
    Some((kind, message.get(HEADER..)?))
}

fn access(fields: &HashMap<&str, String>) -> Access {
    let target = ["path", "dest", "src", "opid"].into_iter().find_map(|key| fields.get(key).cloned());
    Access { blockers: fields.get("blockers").cloned().unwrap_or_default(), target }
}

/// The `key=value` pairs of a record. A value is quoted, or bare hexadecimal if it contains unprintable bytes.
pub fn fields(text: &str) -> HashMap<&str, String> {
    let mut fields = HashMap::new();
    let mut rest = text.trim_end_matches(['\0', '\n']);
    while let Some((before, after)) = rest.split_once('=') {
        let key = before.rsplit(' ').next().unwrap_or(before);
        let value;
        (value, rest) = match after.strip_prefix('"') {
            Some(quoted) => {
                let (text, rest) = quoted.split_once('"').unwrap_or((quoted, ""));
                (text.to_owned(), rest)
            }
            None => {
                let (bare, rest) = after.split_once(' ').unwrap_or((after, ""));
                let encoded = matches!(key, "path" | "ocomm").then(|| unhex(bare)).flatten();
                (encoded.map_or_else(|| bare.to_owned(), |bytes| Bytes::from(bytes).to_string()), rest)
            }
        };
        fields.insert(key, value);
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u16, text: &str) -> Vec<u8> {
        [&[0; 4][..], &kind.to_ne_bytes(), &[0; 10], text.as_bytes()].concat()
    }

    fn stream() -> Stream {
        let socket = socket(AddressFamily::Unix, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None).unwrap();
        Stream { socket, pending: Vec::new(), domains: HashMap::new(), ended: false }
    }

    #[test]
    fn an_access_counts_once_its_domain_is_known_to_be_ours() {
        let mut stream = stream();
        let access = |id: &str| {
            let text =
                format!("audit(1.2:3): domain={id} blockers=fs.write_file,fs.refer path=\"/a b\" dev=\"vda\" ino=7");
            message(LANDLOCK_ACCESS, &text)
        };
        let domain = |id: &str, pid: i32| {
            let text = format!("audit(1.2:3): domain={id} status=allocated mode=enforcing pid={pid} uid=0 comm=\"x\"");
            message(LANDLOCK_DOMAIN, &text)
        };
        assert!(stream.read(&access("1a"), 5).is_empty() && stream.read(&access("1b"), 5).is_empty());
        let expected = Access { blockers: "fs.write_file,fs.refer".into(), target: Some("/a b".into()) };
        assert_eq!(stream.read(&domain("1a", 5), 5), std::slice::from_ref(&expected));
        assert!(stream.read(&domain("1b", 6), 5).is_empty(), "another's");
        assert_eq!(stream.read(&access("1a"), 5), [expected]);
        assert!(stream.read(&access("1b"), 5).is_empty());
        assert!(stream.is_open());
        stream.read(&message(LANDLOCK_DOMAIN, "audit(1.2:4): domain=1a status=deallocated denials=2"), 5);
        assert!(!stream.is_open());
    }

    #[test]
    fn any_record_can_be_parsed() {
        let whole = message(LANDLOCK_ACCESS, "audit(1.2:3): domain=1a blockers=fs.x path=2F0A61 dev=\"vda\" ino=7");
        let mut stream = stream();
        for length in 0..whole.len() {
            stream.read(&whole[..length], 5);
        }
        for text in ["", "=", "domain=", "domain=\"", "domain=zz blockers", "a=b=c domain=1 \" blockers=\"x"] {
            stream.read(&message(LANDLOCK_ACCESS, text), 5);
        }
        assert!(stream.pending.len() <= MOST_PENDING);
        assert_eq!(
            fields("path=2F0A61 comm=x")["path"],
            "/\\na",
            "unprintable bytes come in hexadecimal and are shown escaped"
        );
    }
}
