//! Which sockets and routes the sandbox's network gets, and what each address in it means.
//!
//! It follows from the rules alone, so that the process that makes the sockets and the one that serves them agree without words.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ipnet::{IpNet, Ipv4Net};

use crate::name::Name;
use crate::rule::{Host, Rules};

/// The range of addresses that mean something only in the sandbox, the first of RFC 2544.
pub const RANGE: (Ipv4Addr, u8) = (Ipv4Addr::new(198, 18, 0, 0), 15);

/// The name server.
pub const NAME_SERVER: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);

/// The port of name servers.
pub const DNS_PORT: u16 = 53;

/// How many names below allowed domains can be in use at a time, and the first of their addresses. The names of rules are below
/// it: there are at most as many as sockets.
pub const POOL: u32 = 64;
const POOL_BEGIN: Ipv4Addr = Ipv4Addr::new(198, 19, 0, 0);

/// Networks up to this size get a socket for each address. For larger ones a socket takes the port of every address.
const SMALL: u32 = 16;

/// The most sockets.
pub const MOST: usize = 2048;

/// The kind of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A TCP listener.
    Listener,
    /// A UDP socket.
    Datagram,
}

/// A socket in the sandbox's network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Socket {
    /// Its address.
    pub address: SocketAddr,
    /// Its kind.
    pub kind: Kind,
}

/// The layout of the sandbox's network.
#[derive(Clone, Debug)]
pub struct Layout {
    /// Networks whose addresses are the sandbox's own.
    pub routes: Vec<IpNet>,
    /// The sockets. The first two are the name server's.
    pub sockets: Vec<Socket>,
    /// The names that rules name, with their addresses.
    pub names: HashMap<Name, Ipv4Addr>,
    /// The first address for names below allowed domains, if there are such rules.
    pub pool: Option<Ipv4Addr>,
}

impl Layout {
    /// The layout for these rules. An error is a reason.
    pub fn of(rules: &Rules) -> Result<Self, String> {
        let range = Ipv4Net::new(RANGE.0, RANGE.1).map_err(|error| error.to_string())?;
        let server = SocketAddr::from((NAME_SERVER, DNS_PORT));
        let mut layout = Self {
            routes: vec![range.into()],
            sockets: [Kind::Datagram, Kind::Listener].map(|kind| Socket { address: server, kind }).to_vec(),
            names: HashMap::new(),
            pool: None,
        };
        let mut next = u32::from(NAME_SERVER) + 1;
        let mut below = Vec::new();
        for rule in &rules.allow {
            match &rule.host {
                Host::Name(name) if layout.names.contains_key(name) => {}
                Host::Name(name) => {
                    let address = Ipv4Addr::from(next);
                    next += 1;
                    layout.names.insert(name.clone(), address);
                    rules.ports_of(name).into_iter().for_each(|port| layout.listen(address.into(), port));
                }
                Host::Below(_) => below.extend(rule.allowed_ports()),
                Host::Network(network) => layout.add_network(*network, rule.allowed_ports(), range)?,
            }
        }
        if !below.is_empty() {
            below.sort_unstable();
            below.dedup();
            layout.pool = Some(POOL_BEGIN);
            let first = u32::from(POOL_BEGIN);
            for address in first..first + POOL {
                below.iter().for_each(|port| layout.listen(Ipv4Addr::from(address).into(), *port));
            }
        }
        layout.drop_covered()?;
        if next > u32::from(POOL_BEGIN) {
            return Err(format!("the rules name more than {} hosts", u32::from(POOL_BEGIN) - u32::from(NAME_SERVER)));
        }
        match layout.sockets.len() {
            0..=MOST => Ok(layout),
            count => {
                Err(format!("the rules need {count} sockets, one for each name and port; at most {MOST} are possible"))
            }
        }
    }

    /// Adds what changed rules need, whose allowing rules begin with those before. Nothing is taken away: a socket that no rule needs any
    /// more refuses. Returns the new routes and sockets.
    pub fn grow(&mut self, rules: &Rules) -> Result<(Vec<IpNet>, Vec<Socket>), String> {
        let mut all = Self::of(rules)?;
        all.routes.retain(|network| !self.routes.contains(network));
        all.sockets.retain(|socket| !self.sockets.contains(socket) && !self.covers(socket));
        let ports = self.sockets.iter().filter(|socket| socket.kind == Kind::Listener).map(|socket| socket.address);
        let is_taken = |port: u16, four: bool| ports.clone().any(|one| one.port() == port && one.is_ipv4() == four);
        let wide = all.sockets.iter().map(|socket| socket.address).filter(|address| address.ip().is_unspecified());
        if let Some(taken) = wide.into_iter().find(|address| is_taken(address.port(), address.is_ipv4())) {
            return Err(format!(
                "a network of more than {SMALL} addresses takes port {} of every address, on which single hosts are allowed \
                 already",
                taken.port()
            ));
        }
        if self.sockets.len() + all.sockets.len() > MOST {
            return Err(format!("with all earlier rules, more than {MOST} sockets would be needed"));
        }
        self.routes.extend(&all.routes);
        self.sockets.extend(&all.sockets);
        self.names.extend(all.names);
        self.pool = self.pool.or(all.pool);
        Ok((all.routes, all.sockets))
    }

    /// Whether a socket for every address serves this one's port.
    fn covers(&self, socket: &Socket) -> bool {
        let address = socket.address;
        let wide = |other: &Socket| {
            let other = other.address;
            other.ip().is_unspecified() && other.port() == address.port() && other.is_ipv4() == address.is_ipv4()
        };
        socket.kind == Kind::Listener && self.sockets.iter().any(wide)
    }

    fn listen(&mut self, address: IpAddr, port: u16) {
        let address = SocketAddr::new(address, port);
        // A socket of an overlapping rule serves both.
        if self.sockets.len() <= MOST
            && !self.sockets.iter().any(|socket| socket.address == address && socket.kind == Kind::Listener)
        {
            self.sockets.push(Socket { address, kind: Kind::Listener });
        }
    }

    /// A socket for every address of a port cannot stand beside others for this port, and serves them too.
    fn drop_covered(&mut self) -> Result<(), String> {
        let all: Vec<SocketAddr> =
            self.sockets.iter().map(|socket| socket.address).filter(|address| address.ip().is_unspecified()).collect();
        if all.iter().any(|address| address.is_ipv4() && address.port() == DNS_PORT) {
            return Err(format!(
                "port {DNS_PORT} is the name server's: only networks of up to {SMALL} addresses can have it"
            ));
        }
        self.sockets.retain(|socket| {
            let is_covering = |any: &SocketAddr| {
                any.is_ipv4() == socket.address.is_ipv4()
                    && any.port() == socket.address.port()
                    && *any != socket.address
            };
            !all.iter().any(is_covering)
        });
        Ok(())
    }

    fn add_network(&mut self, network: IpNet, ports: impl Iterator<Item = u16>, range: Ipv4Net) -> Result<(), String> {
        let loopback = match network {
            IpNet::V4(network) => network.addr().is_loopback() && network.prefix_len() >= 8,
            IpNet::V6(network) => network.addr().is_loopback(),
        };
        if loopback {
            return Ok(()); // inside, these addresses are the sandbox's own; the rule says where a name may lead
        }
        if IpNet::from(range).contains(&network) {
            return Err(format!("{network} lies in {range}, whose addresses stand for names in the sandbox"));
        }
        if !self.routes.contains(&network) {
            self.routes.push(network);
        }
        let bits = u32::from(network.max_prefix_len() - network.prefix_len());
        let few = 1_u32.checked_shl(bits).filter(|count| *count <= SMALL);
        for port in ports {
            match (few, network) {
                // Every address: also the first and the last can be hosts.
                (Some(count), IpNet::V4(network)) => {
                    let first = u32::from(network.addr());
                    (0..count).for_each(|index| self.listen(Ipv4Addr::from(first + index).into(), port));
                }
                (Some(count), IpNet::V6(network)) => {
                    let first = u128::from(network.addr());
                    (0..count).for_each(|index| self.listen(Ipv6Addr::from(first + u128::from(index)).into(), port));
                }
                (None, IpNet::V4(_)) => self.listen(Ipv4Addr::UNSPECIFIED.into(), port),
                (None, IpNet::V6(_)) => self.listen(Ipv6Addr::UNSPECIFIED.into(), port),
            }
            if self.sockets.len() > MOST {
                return Ok(()); // refused as a whole
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::Rule;

    fn layout(allow: &[&str], deny: &[&str]) -> Result<Layout, String> {
        let parse = |texts: &[&str]| texts.iter().map(|text| text.parse::<Rule>().unwrap()).collect();
        Layout::of(&Rules { allow: parse(allow), deny: parse(deny) })
    }

    fn listeners(layout: &Layout) -> Vec<String> {
        layout.sockets[2..].iter().map(|socket| socket.address.to_string()).collect()
    }

    #[test]
    fn each_name_has_an_address_with_its_ports_alone() {
        let found = layout(&["a.example", "b.example:22", "a.example:443,8443"], &["a.example:80"]).unwrap();
        assert_eq!(listeners(&found), ["198.18.0.2:443", "198.18.0.2:8443", "198.18.0.3:22"]);
        assert_eq!(found.routes.len(), 1);
        assert_eq!(found.pool, None);
    }

    #[test]
    fn a_small_network_takes_no_port_from_the_workload() {
        let found = layout(&["10.1.2.3:22", "10.0.0.0/24:5432", "127.0.0.1:99", "[2001:db8::1]:443"], &[]).unwrap();
        assert_eq!(listeners(&found), ["10.1.2.3:22", "0.0.0.0:5432", "[2001:db8::1]:443"]);
        let routes: Vec<_> = found.routes[1..].iter().map(ToString::to_string).collect();
        assert_eq!(routes, ["10.1.2.3/32", "10.0.0.0/24", "2001:db8::1/128"]);
    }

    #[test]
    fn a_socket_for_all_addresses_serves_the_others() {
        let found =
            layout(&["a.example:443,5432", "10.0.0.0/24:5432", "10.0.0.1:5432", "[2001:db8::1]:5432"], &[]).unwrap();
        assert_eq!(listeners(&found), ["198.18.0.2:443", "0.0.0.0:5432", "[2001:db8::1]:5432"]);
        assert!(layout(&["10.0.0.0/24:53"], &[]).unwrap_err().contains("name server"));
        assert!(layout(&["10.0.0.1:53", "[2001:db8::/32]:53"], &[]).is_ok());
    }

    #[test]
    fn domains_share_a_pool() {
        let found = layout(&["a.example:1", "*.example:2", "*.org:3,2"], &[]).unwrap();
        assert_eq!(found.pool, Some(POOL_BEGIN));
        assert_eq!(listeners(&found).len(), 2 + 2 * POOL as usize, "a.example is below example, too");
    }

    #[test]
    fn a_layout_grows_without_moving_a_name() {
        let rules = |allow: &[&str], deny: &[&str]| {
            let parse = |texts: &[&str]| texts.iter().map(|text| text.parse::<Rule>().unwrap()).collect();
            Rules { allow: parse(allow), deny: parse(deny) }
        };
        let mut grown = layout(&["a.example:443"], &[]).unwrap();
        let mut add = |allow: &[&str], deny: &[&str]| {
            grown.grow(&rules(allow, deny)).map(|(routes, sockets)| {
                let sockets: Vec<_> = sockets.iter().map(|socket| socket.address.to_string()).collect();
                (routes.iter().map(ToString::to_string).collect::<Vec<_>>(), sockets)
            })
        };
        let none: Vec<String> = Vec::new();
        assert_eq!(add(&["a.example:443", "b.example:22"], &[]), Ok((none.clone(), vec!["198.18.0.3:22".into()])));
        let more = ["a.example:443", "b.example:22", "10.1.2.3:22", "10.0.0.0/8:25"];
        let routes = vec!["10.1.2.3/32".into(), "10.0.0.0/8".into()];
        assert_eq!(add(&more, &["b.example"]), Ok((routes, vec!["10.1.2.3:22".into(), "0.0.0.0:25".into()])));
        assert_eq!(add(&more, &[]), Ok((none.clone(), none.clone())), "what was opened stays");
        let covered = [&more[..], &["c.example:25"]].concat();
        assert_eq!(add(&covered, &[]), Ok((none.clone(), none)), "one socket serves the port already");
        assert!(add(&[&covered[..], &["11.0.0.0/8:22"]].concat(), &[]).unwrap_err().contains("port 22"));
        let (_, sockets) = add(&[&covered[..], &["*.example:443"]].concat(), &[]).unwrap();
        assert_eq!((sockets.len(), sockets[0].as_str()), (POOL as usize + 2, "198.18.0.3:443"));
    }

    #[test]
    fn too_many_sockets_and_our_own_range_are_refused() {
        assert!(layout(&["a.example:1-65535"], &[]).unwrap_err().contains("sockets"));
        assert!(layout(&["10.0.0.0/8:54-65535"], &[]).unwrap_err().contains("sockets"));
        assert!(layout(&["198.18.3.0/24"], &[]).is_err());
        assert!(layout(&["0.0.0.0/0"], &[]).is_ok());
    }
}
