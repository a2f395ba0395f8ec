//! The name server inside: answers from the rules, and asks nobody.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use hickory_proto::op::{Message, MessageType, OpCode, ResponseCode};
use hickory_proto::rr::rdata::A;
use hickory_proto::rr::{DNSClass, RData, Record, RecordType};

use crate::ablate::{Check, without};
use crate::layout::{Layout, POOL};
use crate::name::Name;
use crate::rule::Rules;

/// How long programs may keep an answer: the address of a rule's name never changes.
const TTL: u32 = 60;

/// How long an address stays with a name below a domain after the last question and connection.
const KEPT: Duration = Duration::from_secs(2 * TTL as u64);

/// The longest question that is read. A name has at most 255 bytes.
pub const LONGEST: usize = 1024;

/// The names of the sandbox, and the addresses that stand for them.
#[derive(Debug)]
pub struct Names {
    by_name: HashMap<Name, Ipv4Addr>,
    by_address: HashMap<Ipv4Addr, Name>,
    pool: Vec<Slot>,
}

/// An address of the pool.
#[derive(Debug)]
struct Slot {
    address: Ipv4Addr,
    connections: u32,
    used: Option<Instant>,
}

/// What became of a question.
#[derive(Debug, PartialEq, Eq)]
pub enum Asked {
    /// It was about an allowed name, or was not a question at all.
    Answered,
    /// No rule allows the name.
    Refused(String),
    /// The name is allowed, but too many others are in use.
    Full(Name),
}

impl Names {
    /// The names that the layout begins with.
    pub fn new(layout: &Layout) -> Self {
        let mut names = Self { by_name: HashMap::new(), by_address: HashMap::new(), pool: Vec::new() };
        names.grow(layout);
        names
    }

    /// Adds the names of a layout that has grown. A name of the pool that a rule now names gets its address.
    pub fn grow(&mut self, layout: &Layout) {
        for (name, address) in &layout.names {
            self.by_name.insert(name.clone(), *address);
            self.by_address.insert(*address, name.clone());
        }
        if let Some(first) = layout.pool.map(u32::from).filter(|_| self.pool.is_empty()) {
            let slot = |address: u32| Slot { address: address.into(), connections: 0, used: None };
            self.pool = (first..first + POOL).map(slot).collect();
        }
    }

    /// The name that an address stands for.
    pub fn at(&self, address: Ipv4Addr) -> Option<&Name> {
        self.by_address.get(&address)
    }

    /// Counts a connection to an address, or its end.
    pub fn hold(&mut self, address: Ipv4Addr, begins: bool) {
        if let Some(slot) = self.slot(address) {
            slot.used = Some(Instant::now());
            slot.connections = if begins { slot.connections + 1 } else { slot.connections.saturating_sub(1) };
        }
    }

    fn slot(&mut self, address: Ipv4Addr) -> Option<&mut Slot> {
        self.pool.iter_mut().find(|slot| slot.address == address)
    }

    /// The address of a name that is allowed. `None` if all of the pool are in use.
    fn address_of(&mut self, name: &Name, now: Instant) -> Option<Ipv4Addr> {
        if let Some(address) = self.by_name.get(name).copied() {
            if let Some(slot) = self.slot(address) {
                slot.used = Some(now);
            }
            return Some(address);
        }
        let is_free = |slot: &&mut Slot| {
            slot.connections == 0 && slot.used.is_none_or(|used| now.saturating_duration_since(used) > KEPT)
        };
        let slot = self.pool.iter_mut().filter(is_free).min_by_key(|slot| slot.used)?;
        slot.used = Some(now);
        let address = slot.address;
        if let Some(before) = self.by_address.insert(address, name.clone())
            && self.by_name.get(&before) == Some(&address)
        {
            self.by_name.remove(&before);
        }
        self.by_name.insert(name.clone(), address);
        Some(address)
    }

    /// Answers a packet. `None` means that it gets no answer.
    pub fn answer(&mut self, packet: &[u8], rules: &Rules, now: Instant) -> (Option<Vec<u8>>, Asked) {
        if packet.len() < 12 || packet[2] & 0x80 != 0 {
            return (None, Asked::Answered); // not a question: an answer to it could begin a loop
        }
        let id = u16::from_be_bytes([packet[0], packet[1]]);
        let Ok(question) = Message::from_vec(packet) else {
            return (error(id, ResponseCode::FormErr), Asked::Answered);
        };
        let mut reply = Message::new(id, MessageType::Response, OpCode::Query);
        reply.metadata.recursion_desired = question.metadata.recursion_desired;
        reply.metadata.recursion_available = true;
        let asked = match &question.queries[..] {
            _ if question.metadata.op_code != OpCode::Query => {
                return (error(id, ResponseCode::NotImp), Asked::Answered);
            }
            [query] if query.query_class() == DNSClass::IN => {
                let name = Name::from_labels(query.name().iter());
                let refused = || Asked::Refused(shown(query.name()));
                let allowed = name.filter(|name| without(Check::Names) || !rules.ports_of(name).is_empty());
                match (allowed, query.query_type()) {
                    (None, _) => {
                        reply.metadata.response_code = ResponseCode::NXDomain;
                        refused()
                    }
                    (Some(name), RecordType::A) => match self.address_of(&name, now) {
                        Some(address) => {
                            reply.add_answer(Record::from_rdata(query.name().clone(), TTL, RData::A(A(address))));
                            Asked::Answered
                        }
                        None => {
                            reply.metadata.response_code = ResponseCode::ServFail;
                            Asked::Full(name)
                        }
                    },
                    (Some(_), _) => Asked::Answered, // no such record: an empty answer
                }
            }
            [_] => return (error(id, ResponseCode::Refused), Asked::Answered),
            _ => return (error(id, ResponseCode::FormErr), Asked::Answered),
        };
        reply.add_queries(question.queries);
        (reply.to_vec().ok(), asked)
    }
}

/// A name as it was asked for, for the log.
fn shown(name: &hickory_proto::rr::Name) -> String {
    let text = name.to_ascii();
    text.strip_suffix('.').filter(|text| !text.is_empty()).unwrap_or(&text).to_ascii_lowercase()
}

fn error(id: u16, code: ResponseCode) -> Option<Vec<u8>> {
    Message::error_msg(id, OpCode::Query, code).to_vec().ok()
}

#[cfg(test)]
#[path = "stub_tests.rs"]
mod tests;
