//! Rules: which hosts and ports, and what they decide.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use ipnet::{IpNet, Ipv6Net};
use serde::{Deserialize, Serialize};

use crate::ablate::{Check, without};
use crate::address::{self, Special};
use crate::name::Name;

/// A rule, such as `api.example.com`, `*.cdn.example.com:443` or `10.1.2.0/24:22,8000-8010`. TCP only.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Rule {
    /// The hosts.
    pub host: Host,
    /// The ports, if the rule names any.
    pub ports: Option<Ports>,
}

/// The hosts of a rule.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Host {
    /// This name.
    Name(Name),
    /// Every name below this one.
    Below(Name),
    /// These addresses.
    Network(IpNet),
}

/// Ports: ranges with both ends, at least one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Ports(Vec<(u16, u16)>);

/// The ports of an allowing rule that names none.
const WEB: [(u16, u16); 2] = [(80, 80), (443, 443)];

impl Ports {
    /// Whether this is one of them.
    pub fn contains(&self, port: u16) -> bool {
        self.0.iter().any(|(first, last)| (*first..=*last).contains(&port))
    }
}

impl Rule {
    /// The ranges of ports that it allows.
    fn allowed(&self) -> &[(u16, u16)] {
        self.ports.as_ref().map_or(&WEB, |ports| &ports.0)
    }

    /// Every port that it allows.
    pub fn allowed_ports(&self) -> impl Iterator<Item = u16> + '_ {
        self.allowed().iter().flat_map(|(first, last)| *first..=*last)
    }

    /// Whether it allows this port.
    fn allows(&self, port: u16) -> bool {
        self.allowed().iter().any(|(first, last)| (*first..=*last).contains(&port))
    }

    /// Whether it denies this port. A denying rule without ports is about all of them.
    fn denies(&self, port: u16) -> bool {
        self.ports.as_ref().is_none_or(|ports| ports.contains(port))
    }

    /// Whether it denies everything that another allows.
    pub fn denies_all_of(&self, other: &Self) -> bool {
        let holds = match (&self.host, &other.host) {
            (Host::Name(own), Host::Name(name)) => own == name,
            (Host::Below(domain), Host::Name(name)) => name.is_below(domain),
            (Host::Below(domain), Host::Below(below)) => below == domain || below.is_below(domain),
            (Host::Network(own), Host::Network(network)) => own.contains(network),
            _ => false,
        };
        holds && other.allowed_ports().all(|port| self.denies(port))
    }

    fn is_about(&self, name: &Name) -> bool {
        match &self.host {
            Host::Name(own) => own == name,
            Host::Below(domain) => name.is_below(domain),
            Host::Network(_) => false,
        }
    }

    fn holds(&self, address: IpAddr) -> bool {
        matches!(&self.host, Host::Network(network) if network.contains(&address))
    }
}

/// All rules of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rules {
    /// What is allowed.
    pub allow: Vec<Rule>,
    /// What is denied, whatever is allowed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deny: Vec<Rule>,
}

/// Why an address may not be dialled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// A denying rule has it.
    Denied,
    /// It is of a kind that only a rule for addresses allows.
    Special(Special),
}

impl Rules {
    /// The first rule that denies this name and port.
    pub fn denying_name(&self, name: &Name, port: u16) -> Option<&Rule> {
        self.deny.iter().find(|rule| rule.is_about(name) && rule.denies(port))
    }

    /// The first rule that denies this address and port.
    pub fn denying_address(&self, address: IpAddr, port: u16) -> Option<&Rule> {
        self.deny.iter().find(|rule| rule.holds(address) && rule.denies(port))
    }

    /// The first rule that allows this name and port, by its number, unless another denies them.
    pub fn for_name(&self, name: &Name, port: u16) -> Option<usize> {
        if self.denying_name(name, port).is_some() {
            return None;
        }
        self.allow.iter().position(|rule| rule.is_about(name) && rule.allows(port))
    }

    /// The first rule that allows an address that the workload dialled itself. A loopback address is the sandbox's own.
    pub fn for_address(&self, address: IpAddr, port: u16) -> Option<usize> {
        if address.is_loopback() || self.denying_address(address, port).is_some() {
            return None;
        }
        let allows = |rule: &Rule| rule.holds(address) && rule.allows(port) && self.names(address, port);
        self.allow.iter().position(allows)
    }

    /// Every port on which a name is allowed.
    pub fn ports_of(&self, name: &Name) -> Vec<u16> {
        let rules = self.allow.iter().filter(|rule| rule.is_about(name));
        let mut ports: Vec<u16> = rules.flat_map(Rule::allowed_ports).collect();
        ports.sort_unstable();
        ports.dedup();
        ports.retain(|port| self.for_name(name, *port).is_some());
        ports
    }

    /// Whether an address that a name has resolved to may be dialled.
    pub fn may_dial(&self, address: IpAddr, port: u16) -> Result<(), Refused> {
        if self.denying_address(address, port).is_some() {
            return Err(Refused::Denied);
        }
        match address::special(address) {
            Some(special) if !without(Check::Addresses) && !self.names(address, port) => Err(Refused::Special(special)),
            _ => Ok(()),
        }
    }

    /// Whether a special address is named by a rule: one for a network that has no ordinary addresses. `0.0.0.0/0` names none.
    fn names(&self, address: IpAddr, port: u16) -> bool {
        let Some(special) = address::special(address) else { return true };
        let names = |rule: &Rule| match &rule.host {
            Host::Network(network) => {
                special.may_be_named
                    && special.block.contains(network)
                    && network.contains(&address)
                    && rule.allows(port)
            }
            _ => false,
        };
        self.allow.iter().any(names)
    }
}

impl FromStr for Rule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let fail = |reason: String| format!("{text:?} is not a rule: {reason}");
        if let Some((_, rest)) = text.split_once("://") {
            let host = rest.split(['/', '?', '#']).next().unwrap_or(rest);
            let host = host.rsplit('@').next().unwrap_or(host);
            return Err(fail(format!("a rule names a host and ports, not a URL: try {host}")));
        }
        let (host, ports) = split(text).map_err(fail)?;
        let host = host_of(host).map_err(fail)?;
        let ports = ports.map(Ports::from_str).transpose().map_err(fail)?;
        Ok(Self { host, ports })
    }
}

/// Host and ports. An IPv6 network is in brackets.
fn split(text: &str) -> Result<(&str, Option<&str>), String> {
    if text.starts_with('[') {
        let end = text.find(']').ok_or("the bracket is not closed")?;
        return match text[end + 1..].strip_prefix(':') {
            Some(ports) => Ok((&text[..=end], Some(ports))),
            None if text.len() == end + 1 => Ok((text, None)),
            None => Err("after the bracket only :PORTS may follow".into()),
        };
    }
    match text.split_once(':') {
        Some((_, ports)) if ports.contains(':') => {
            Err("an IPv6 address is written in brackets: [2001:db8::1]:443".into())
        }
        Some((host, ports)) => Ok((host, Some(ports))),
        None => Ok((text, None)),
    }
}

fn host_of(text: &str) -> Result<Host, String> {
    if let Some(inner) = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')) {
        return match network(inner)? {
            Some(IpNet::V6(network)) if is_ordinary(network) => Ok(Host::Network(network.into())),
            Some(IpNet::V6(_)) => Err("it contains an IPv4 address: write that instead".into()),
            _ => Err("only an IPv6 address or network is written in brackets".into()),
        };
    }
    if text == "*" {
        return Err("* alone would be every name: name the domains, such as *.example.com".into());
    }
    if let Some(domain) = text.strip_prefix("*.") {
        return Ok(Host::Below(domain.parse()?));
    }
    if text.contains('*') {
        return Err("* may only stand for the whole beginning of a name: *.example.com".into());
    }
    match network(text)? {
        Some(network) => Ok(Host::Network(network)),
        None => Ok(Host::Name(text.parse()?)),
    }
}

/// Not a form of an IPv4 address.
fn is_ordinary(network: Ipv6Net) -> bool {
    network.prefix_len() < 96 || network.addr().to_ipv4_mapped().is_none()
}

/// An address, or a network with its length. `None` if it is neither.
fn network(text: &str) -> Result<Option<IpNet>, String> {
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(Some(address.into()));
    }
    if !text.contains('/') {
        return Ok(None);
    }
    let network: IpNet = text.parse().map_err(|_| format!("{text:?} is not a network, such as 10.1.2.0/24"))?;
    match network.trunc() == network {
        true => Ok(Some(network)),
        false => Err(format!("{text} has bits set behind its length: the network is {}", network.trunc())),
    }
}

impl FromStr for Ports {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let one = |text: &str| -> Result<u16, String> {
            let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            let port = text.parse().ok().filter(|port| digits && *port != 0);
            port.ok_or_else(|| format!("{text:?} is not a port between 1 and 65535"))
        };
        let range = |text: &str| match text.split_once('-') {
            Some((first, last)) => match (one(first)?, one(last)?) {
                (first, last) if first <= last => Ok((first, last)),
                _ => Err(format!("the ports {text} run backwards")),
            },
            None => one(text).map(|port| (port, port)),
        };
        text.split(',').map(range).collect::<Result<_, _>>().map(Self)
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Host::Name(name) => write!(f, "{name}")?,
            Host::Below(name) => write!(f, "*.{name}")?,
            Host::Network(network) => {
                let alone = network.prefix_len() == network.max_prefix_len();
                match (network, alone) {
                    (IpNet::V4(network), true) => write!(f, "{}", network.addr())?,
                    (IpNet::V4(network), false) => write!(f, "{network}")?,
                    (IpNet::V6(network), true) => write!(f, "[{}]", network.addr())?,
                    (IpNet::V6(network), false) => write!(f, "[{network}]")?,
                }
            }
        }
        self.ports.as_ref().map_or(Ok(()), |ports| write!(f, ":{ports}"))
    }
}

impl fmt::Display for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (first, last)) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            match first == last {
                true => write!(f, "{comma}{first}")?,
                false => write!(f, "{comma}{first}-{last}")?,
            }
        }
        Ok(())
    }
}

impl TryFrom<String> for Rule {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Rule> for String {
    fn from(rule: Rule) -> Self {
        rule.to_string()
    }
}

#[cfg(test)]
#[path = "rule_tests.rs"]
mod tests;
