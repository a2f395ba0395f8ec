//! Network devices of the host that a container gets: moved into its network namespace, renamed, with their addresses.
//!
//! Parent half only, because the container's process waits until the devices are there. The crate `netlink-packet-route`
//! encodes and decodes the messages, `rtnetlink(7)`.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::RouteNetlinkMessage as Route;
use netlink_packet_route::address::{AddressAttribute, AddressFlags, AddressMessage, AddressScope};
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkMessage};
use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, socket, socketpair};
use nix::sys::stat::Mode;

use crate::error::{Error, Result, Step};
use crate::plan::container::NetDevice;
use crate::sys::clone::{Cloned, clone3};
use crate::sys::{self, namespace, process};

type Answer<T> = std::result::Result<T, Errno>;

/// The longest batch of messages that the kernel sends.
const LONGEST: usize = 64 << 10;

/// Address flags that the kernel sets itself. They are not written back.
const SET_BY_KERNEL: AddressFlags =
    AddressFlags::Tentative.union(AddressFlags::Dadfailed).union(AddressFlags::Deprecated);

/// Moves the devices from our network namespace into that of the process with this `/proc` directory. If one cannot be moved, those already moved stay there.
pub fn attach(devices: &[NetDevice], proc_pid: &OwnedFd) -> Result<()> {
    if devices.is_empty() {
        return Ok(());
    }
    let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC;
    let namespace = openat(proc_pid, "ns/net", flags, Mode::empty())
        .map_err(|errno| Error::errno(Step::NetDevice, "network namespace", errno))?;
    let failed = |errno| Error::errno(Step::NetDevice, "netlink", errno);
    let mut outside = Links(open_socket().map_err(failed)?, 0);
    let mut inside = Links(socket_in(&namespace).map_err(failed)?, 0);
    for device in devices {
        let failed = |errno| {
            let error = Error::errno(Step::NetDevice, format!("{} as {}", device.host, device.name), errno);
            match errno {
                Errno::ENODEV => error.hint("the host has no device of that name in the runtime's network namespace"),
                Errno::EEXIST => error.hint("the container's network namespace has a device of that name"),
                _ => error,
            }
        };
        move_one(device, &namespace, &mut outside, &mut inside).map_err(failed)?;
    }
    Ok(())
}

fn move_one(device: &NetDevice, namespace: &OwnedFd, outside: &mut Links, inside: &mut Links) -> Answer<()> {
    let index = outside.index_of(&device.host)?;
    let addresses: Vec<_> = outside.addresses_of(index)?.into_iter().filter(is_lasting).collect();
    let before = inside.indexes()?;
    if !device.name.contains('%') && inside.index_of(&device.name).is_ok() {
        return Err(Errno::EEXIST);
    }
    outside.change(index, |link| link.header.change_mask = LinkFlags::Up)?; // a device must be down to be renamed
    outside.change(index, |link| {
        link.attributes.push(LinkAttribute::IfName(device.name.clone()));
        link.attributes.push(LinkAttribute::NetNsFd(namespace.as_raw_fd()));
    })?;
    let index = match device.name.contains('%') {
        // The kernel does not report the name that it chose. The new device is the one whose index did not exist before.
        true => inside.indexes()?.into_iter().find(|index| !before.contains(index)).ok_or(Errno::ENODEV)?,
        false => inside.index_of(&device.name)?,
    };
    for address in addresses {
        inside.add_address(index, address)?;
    }
    inside.change(index, |link| (link.header.flags, link.header.change_mask) = (LinkFlags::Up, LinkFlags::Up))
}

/// Whether an address is permanent and has more than link scope. The specification requires keeping these.
fn is_lasting(address: &AddressMessage) -> bool {
    flags_of(address).contains(AddressFlags::Permanent) && address.header.scope == AddressScope::Universe
}

fn flags_of(address: &AddressMessage) -> AddressFlags {
    let short = AddressFlags::from_bits_retain(address.header.flags.bits().into());
    address.attributes.iter().fold(short, |flags, attribute| match attribute {
        AddressAttribute::Flags(all) => flags | *all,
        _ => flags,
    })
}

/// A netlink socket in one network namespace, and the number of the last request.
struct Links(OwnedFd, u32);

impl Links {
    fn index_of(&mut self, name: &str) -> Answer<u32> {
        let mut link = LinkMessage::default();
        link.attributes.push(LinkAttribute::IfName(name.to_owned()));
        let answers = self.ask(Route::GetLink(link), 0)?;
        answers.iter().find_map(link_index).ok_or(Errno::ENODEV)
    }

    fn indexes(&mut self) -> Answer<Vec<u32>> {
        let answers = self.ask(Route::GetLink(LinkMessage::default()), NLM_F_DUMP)?;
        Ok(answers.iter().filter_map(link_index).collect())
    }

    fn addresses_of(&mut self, index: u32) -> Answer<Vec<AddressMessage>> {
        let answers = self.ask(Route::GetAddress(AddressMessage::default()), NLM_F_DUMP)?;
        let addresses = answers.into_iter().filter_map(|answer| match answer {
            Route::NewAddress(address) if address.header.index == index => Some(address),
            _ => None,
        });
        Ok(addresses.collect())
    }

    fn change(&mut self, index: u32, how: impl FnOnce(&mut LinkMessage)) -> Answer<()> {
        let mut link = LinkMessage::default();
        link.header.index = index;
        how(&mut link);
        self.ask(Route::SetLink(link), NLM_F_ACK).map(drop)
    }

    fn add_address(&mut self, index: u32, mut address: AddressMessage) -> Answer<()> {
        let flags = flags_of(&address) - SET_BY_KERNEL;
        address.header.index = index;
        // The label contains the old device's name, and the lifetime of a permanent address is unlimited.
        let kept = |attribute: &AddressAttribute| {
            use AddressAttribute::{CacheInfo, Flags, Label};
            !matches!(attribute, CacheInfo(_) | Flags(_) | Label(_))
        };
        address.attributes.retain(kept);
        address.attributes.push(AddressAttribute::Flags(flags));
        self.ask(Route::NewAddress(address), NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL).map(drop)
    }

    /// Sends a request and collects its answers.
    fn ask(&mut self, request: Route, flags: u16) -> Answer<Vec<Route>> {
        let mut message = NetlinkMessage::from(request);
        message.header.flags = NLM_F_REQUEST | flags;
        self.1 += 1;
        message.header.sequence_number = self.1;
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        send(self.0.as_raw_fd(), &bytes, MsgFlags::empty())?;
        let (mut answers, mut buffer) = (Vec::new(), vec![0; LONGEST]);
        loop {
            let length = recv(self.0.as_raw_fd(), &mut buffer, MsgFlags::empty())?;
            let mut rest = &buffer[..length];
            while !rest.is_empty() {
                let answer = NetlinkMessage::<Route>::deserialize(rest).map_err(|_| Errno::EBADMSG)?;
                // Messages are aligned to four bytes.
                let whole = (answer.header.length as usize).next_multiple_of(4);
                rest = rest.get(whole..).unwrap_or_default();
                match answer.payload {
                    _ if answer.header.sequence_number != self.1 => {}
                    NetlinkPayload::Done(_) => return Ok(answers),
                    NetlinkPayload::Error(error) => match error.code {
                        Some(code) => return Err(Errno::from_raw(code.get().saturating_neg())),
                        None => return Ok(answers),
                    },
                    NetlinkPayload::InnerMessage(inner) => answers.push(inner),
                    _ => {}
                }
            }
            if flags & (NLM_F_DUMP | NLM_F_ACK) == 0 && !answers.is_empty() {
                return Ok(answers);
            }
        }
    }
}

fn link_index(answer: &Route) -> Option<u32> {
    match answer {
        Route::NewLink(link) => Some(link.header.index),
        _ => None,
    }
}

fn open_socket() -> Answer<OwnedFd> {
    socket(AddressFamily::Netlink, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::NetlinkRoute)
}

/// A socket belongs to the network namespace of the process that creates it. So a child enters the namespace and creates it.
fn socket_in(network: &OwnedFd) -> Answer<OwnedFd> {
    let (ours, theirs) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)?;
    match clone3(0, None)? {
        Cloned::Child => {
            let made = namespace::enter(network.as_fd(), libc::CLONE_NEWNET).and_then(|()| open_socket());
            let _ = match made {
                Ok(socket) => sys::socket::send(&theirs, &[0; 4], Some(socket.as_fd())),
                Err(errno) => sys::socket::send(&theirs, &(errno as i32).to_ne_bytes(), None),
            };
            process::exit(0)
        }
        Cloned::Parent { pid, .. } => {
            drop(theirs);
            let mut errno = [0; 4];
            let received = sys::socket::receive(&ours, &mut errno, true);
            let _ = process::wait4(pid);
            match received? {
                (4, Some(socket)) => Ok(socket),
                _ => Err(Errno::from_raw(i32::from_ne_bytes(errno))),
            }
        }
    }
}
