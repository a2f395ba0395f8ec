//! The network: which kind, and which hosts outside.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use serde::de::value::{MapAccessDeserializer, StrDeserializer};
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use stockade_egress::layout::{DNS_PORT, Layout};
use stockade_egress::proxy::Proxy;
use stockade_egress::rule::{Rule, Rules};

use super::file;
use super::path::HostPath;
use super::value::{Amount, Count, Deadline, Limit, Value, text, written};
use crate::error::{Error, Result, Step};
use crate::plan::{Bytes, Egress, HostAddress, Network, Published};
use crate::sys::walk::Trail;

/// The network. In a file, a word alone is its mode.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NetworkSettings(pub NetworkTable);

/// The `network` table.
#[derive(Clone, Debug, Default, PartialEq, serde::Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct NetworkTable {
    /// The kind of network. Rules in `allow` make it `egress`.
    pub mode: Option<Network>,
    /// Hosts and TCP ports that may be reached, such as `api.example.com`, `*.cdn.example.com:443` or
    /// `10.1.2.0/24:22,8000-8010`, or files of such rules, `@FILE`. Without ports, 80 and 443. Adds.
    #[serde(default)]
    pub allow: Vec<NetRule>,
    /// Hosts and ports that may not be reached, whatever is allowed. Without ports, all of them. Adds.
    #[serde(default)]
    pub deny: Vec<NetRule>,
    /// Ports of the host that lead into the sandbox, `[IP:]HOSTPORT:PORT`. Without IP, 127.0.0.1. Adds.
    #[serde(default)]
    pub publish: Vec<PublishSetting>,
    /// Addresses of names, `NAME=IP`, before any name server is asked. Adds.
    #[serde(default)]
    pub hosts: Vec<HostSetting>,
    /// The name server that resolves allowed names, `IP[:PORT]`; by default those of the host.
    pub dns: Option<NameServer>,
    /// The proxy that every connection to a host goes through, `http://[USER:PASSWORD@]HOST[:PORT]` or `socks5://…`.
    pub upstream_proxy: Option<ProxySetting>,
    /// Connections at a time.
    pub connections: Option<Count>,
    /// Bytes per second, of all connections and in both directions together.
    pub rate: Option<Limit<Amount>>,
    /// Bytes of all connections, in both directions together, after which the run is ended.
    pub budget: Option<Limit<Amount>>,
    /// Time to resolve a name and connect.
    pub connect_timeout: Option<Deadline>,
    /// Time without a byte after which a connection is ended.
    pub idle_timeout: Option<Deadline>,
}

impl<'de> Deserialize<'de> for NetworkSettings {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct WordOrTable;
        impl<'de> Visitor<'de> for WordOrTable {
            type Value = NetworkSettings;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a network: none, loopback or host, or a table with rules")
            }
            fn visit_str<E: serde::de::Error>(self, word: &str) -> std::result::Result<NetworkSettings, E> {
                Network::deserialize(StrDeserializer::new(word)).map(NetworkSettings::of_mode)
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> std::result::Result<NetworkSettings, A::Error> {
                NetworkTable::deserialize(MapAccessDeserializer::new(map)).map(NetworkSettings)
            }
        }
        deserializer.deserialize_any(WordOrTable)
    }
}

/// A rule, or a file of rules.
#[derive(Clone, Debug, PartialEq)]
pub enum NetRule {
    /// A rule.
    Rule(Rule),
    /// A file with a rule on each line.
    File(HostPath),
}

impl Value for NetRule {
    const WHAT: &'static str =
        "a host with ports, such as api.example.com, *.example.com:443 or 10.1.2.0/24:22, or @FILE";

    fn parse(bytes: &[u8]) -> std::result::Result<Self, String> {
        match bytes.strip_prefix(b"@") {
            Some(path) => HostPath::parse(path).map(Self::File),
            None => text(bytes)?.parse().map(Self::Rule),
        }
    }
}

/// A name with its address.
#[derive(Clone, Debug, PartialEq)]
pub struct HostSetting(pub(crate) HostAddress);

impl Value for HostSetting {
    const WHAT: &'static str = "a name with its address, NAME=IP";

    fn parse(bytes: &[u8]) -> std::result::Result<Self, String> {
        let text = text(bytes)?;
        // docker's form has a colon, which an address of IPv6 has, too.
        let parts = text.split_once('=').or_else(|| text.split_once(':'));
        let (name, address) = parts.ok_or_else(|| format!("{text:?} is not {}", Self::WHAT))?;
        let address = address.strip_prefix('[').and_then(|inner| inner.strip_suffix(']')).unwrap_or(address);
        let address: IpAddr = address.parse().map_err(|_| format!("{address:?} is not an address"))?;
        Ok(Self(HostAddress { name: name.parse()?, address }))
    }
}

/// A published port.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PublishSetting(pub(crate) Published);

impl Value for PublishSetting {
    const WHAT: &'static str = "ports to publish, [IP:]HOSTPORT:PORT";

    fn parse(bytes: &[u8]) -> std::result::Result<Self, String> {
        let text = text(bytes)?;
        let wrong = || format!("{text:?} is not {}", Self::WHAT);
        let port = |text: &str| text.parse().ok().filter(|port| *port != 0).ok_or_else(wrong);
        let (outer, inner) = text.rsplit_once(':').ok_or_else(wrong)?;
        let (address, outer) = outer.rsplit_once(':').unwrap_or(("127.0.0.1", outer));
        let address = address.strip_prefix('[').and_then(|inner| inner.strip_suffix(']')).unwrap_or(address);
        let address: IpAddr = address.parse().map_err(|_| format!("{address:?} is not an address"))?;
        Ok(Self(Published { listen: SocketAddr::new(address, port(outer)?), port: port(inner)? }))
    }
}

/// A name server.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NameServer(pub(crate) SocketAddr);

impl Value for NameServer {
    const WHAT: &'static str = "the address of a name server, IP[:PORT]";

    fn parse(bytes: &[u8]) -> std::result::Result<Self, String> {
        let text = text(bytes)?;
        let bare = text.strip_prefix('[').and_then(|inner| inner.strip_suffix(']')).unwrap_or(text);
        let address = bare.parse().map(|address: IpAddr| SocketAddr::new(address, DNS_PORT));
        let address = address.or_else(|_| text.parse()).map_err(|_| format!("{text:?} is not {}", Self::WHAT))?;
        Ok(Self(address))
    }
}

/// A proxy.
#[derive(Clone, Debug, PartialEq)]
pub struct ProxySetting(pub(crate) Proxy);

impl Value for ProxySetting {
    const WHAT: &'static str = "the URL of a proxy, http://[USER:PASSWORD@]HOST[:PORT] or socks5://…";

    fn parse(bytes: &[u8]) -> std::result::Result<Self, String> {
        // The text may have a password, so no error repeats it.
        let text = std::str::from_utf8(bytes).map_err(|_| "the URL of a proxy is not UTF-8")?;
        text.parse().map(Self)
    }
}

written! { NetRule HostSetting NameServer ProxySetting PublishSetting }

/// The defaults, of which each run has its own.
const CONNECT_US: u64 = 10_000_000;
const IDLE_US: u64 = 900_000_000;

/// The most connections: each takes six descriptors.
const MOST_CONNECTIONS: u64 = 16_384;

impl NetworkSettings {
    /// A mode alone.
    pub fn of_mode(mode: Network) -> Self {
        Self(NetworkTable { mode: Some(mode), ..NetworkTable::default() })
    }

    /// Reads the files of rules, whose paths start in `base`. Returns their locations.
    pub fn read_files(&mut self, base: Option<&Path>) -> Result<Vec<Trail>> {
        let mut files = Vec::new();
        for list in [&mut self.0.allow, &mut self.0.deny] {
            let mut rules = Vec::with_capacity(list.len());
            for rule in std::mem::take(list) {
                match rule {
                    NetRule::Rule(_) => rules.push(rule),
                    NetRule::File(path) => {
                        let file = file::read(file::NET_RULES, path.0.as_path(), base)?;
                        rules.extend(rules_of(&path.0, &file.bytes)?);
                        files.push(file.trail);
                    }
                }
            }
            *list = rules;
        }
        Ok(files)
    }

    /// The kind of network, and the access of a run that has rules.
    pub fn resolve(&self) -> Result<(Network, Option<Egress>)> {
        let wrong = |object: &str, reason: String| Error::new(Step::Plan, object, reason);
        let table = &self.0;
        let rules = Rules { allow: rules(&table.allow), deny: rules(&table.deny) };
        let mode = table.mode.unwrap_or(Network::Loopback);
        match (mode, rules.allow.is_empty() && table.publish.is_empty()) {
            (Network::Loopback | Network::Egress, false) => {}
            (Network::Egress, true) => {
                return Err(wrong(
                    "network",
                    "egress needs rules: no host is allowed, and no port is published".into(),
                )
                .hint("--allow-net names hosts"));
            }
            (mode, false) => {
                let object = if rules.allow.is_empty() { "network.publish" } else { "network.allow" };
                let reason = format!("the network is {}, which has no rules for hosts and ports", mode.name());
                return Err(
                    wrong(object, reason).hint("--network egress (network.mode) has them; or leave the rules out")
                );
            }
            (mode, true) => {
                let others = [
                    ("network.deny", !rules.deny.is_empty()),
                    ("network.hosts", !table.hosts.is_empty()),
                    ("network.dns", table.dns.is_some()),
                    ("network.upstream_proxy", table.upstream_proxy.is_some()),
                    ("network.connections", table.connections.is_some()),
                    ("network.rate", table.rate.is_some()),
                    ("network.budget", table.budget.is_some()),
                    ("network.connect_timeout", table.connect_timeout.is_some()),
                    ("network.idle_timeout", table.idle_timeout.is_some()),
                ];
                return match others.into_iter().find(|(_, given)| *given) {
                    Some((object, _)) => {
                        let reason = "no host is allowed, so it would mean nothing";
                        Err(wrong(object, reason.into()).hint("--allow-net names hosts that may be reached"))
                    }
                    None => Ok((mode, None)),
                };
            }
        }
        Layout::of(&rules).map_err(|reason| wrong("network.allow", reason))?;
        let connections = table.connections.map_or(Egress::CONNECTIONS, Count::get);
        if connections > MOST_CONNECTIONS {
            return Err(wrong(
                "network.connections",
                format!("{connections} are too many: at most {MOST_CONNECTIONS}"),
            ));
        }
        let egress = Egress {
            rules,
            publish: table.publish.iter().map(|one| one.0).collect(),
            hosts: table.hosts.iter().map(|host| host.0.clone()).collect(),
            dns: table.dns.map(|server| server.0),
            upstream_proxy: table.upstream_proxy.as_ref().map(|proxy| proxy.0.clone()),
            connections: connections as u32,
            rate_bytes: table.rate.and_then(Limit::bound).map(Amount::get),
            budget_bytes: table.budget.and_then(Limit::bound).map(Amount::get),
            connect_timeout_us: table.connect_timeout.map_or(CONNECT_US, Deadline::get),
            idle_timeout_us: table.idle_timeout.map_or(IDLE_US, Deadline::get),
        };
        Ok((Network::Egress, Some(egress)))
    }
}

/// The rules of a list whose files were read.
fn rules(list: &[NetRule]) -> Vec<Rule> {
    let rule = |one: &NetRule| match one {
        NetRule::Rule(rule) => Some(rule.clone()),
        NetRule::File(_) => None,
    };
    list.iter().filter_map(rule).collect()
}

/// A rule on each line; `#` begins a comment.
fn rules_of(path: &Bytes, bytes: &[u8]) -> Result<Vec<NetRule>> {
    let wrong = |line: usize, reason: String| Error::new(Step::Policy, format!("{path}:{line}"), reason);
    let text = std::str::from_utf8(bytes).map_err(|_| wrong(1, "the file is not UTF-8".into()))?;
    let mut rules = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.split('#').next().unwrap_or_default().trim();
        if !line.is_empty() {
            rules.push(line.parse().map(NetRule::Rule).map_err(|reason| wrong(number, reason))?);
        }
    }
    Ok(rules)
}

impl NetworkTable {
    /// These settings with those of `over` on top.
    #[must_use]
    pub(super) fn overlaid_with(mut self, over: Self) -> Self {
        self.allow.extend(over.allow);
        self.deny.extend(over.deny);
        self.hosts.extend(over.hosts);
        self.publish.extend(over.publish);
        Self {
            mode: over.mode.or(self.mode),
            allow: self.allow,
            deny: self.deny,
            hosts: self.hosts,
            publish: self.publish,
            dns: over.dns.or(self.dns),
            upstream_proxy: over.upstream_proxy.or(self.upstream_proxy),
            connections: over.connections.or(self.connections),
            rate: over.rate.or(self.rate),
            budget: over.budget.or(self.budget),
            connect_timeout: over.connect_timeout.or(self.connect_timeout),
            idle_timeout: over.idle_timeout.or(self.idle_timeout),
        }
    }
}
