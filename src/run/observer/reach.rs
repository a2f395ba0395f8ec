//! Connections that the kernel refuses, and neither a filter nor the gateway hears of: to an address that the sandbox's network
//! does not have, or to a port of one on which the gateway does not listen.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use stockade_egress::address::special;
use stockade_egress::layout::Layout;
use stockade_egress::name::Name;
use stockade_egress::rule::{Host, Rules};

use super::Refusal;
use crate::confine::seccomp::listen::Peer;
use crate::plan::{Network, RunPlan};

/// What the network of a sandbox has.
#[derive(Debug)]
pub struct Reach {
    rules: Rules,
    /// `None` without rules.
    layout: Option<Layout>,
}

impl Reach {
    /// `None` if the network is the caller's, or has no sockets.
    pub fn of(plan: &RunPlan) -> Option<Self> {
        match (plan.namespaces.network, &plan.egress) {
            (Network::Loopback, None) => Some(Self { rules: Rules::default(), layout: None }),
            (Network::Egress, Some(egress)) => {
                Some(Self { rules: egress.rules.clone(), layout: Some(Layout::of(&egress.rules).ok()?) })
            }
            _ => None,
        }
    }

    /// Why a connection is refused at once. `None` if it is not, or if the gateway decides.
    pub fn refusal(&self, peer: Peer) -> Option<Refusal> {
        if peer.is_udp { self.udp(peer.address) } else { self.tcp(peer.address) }
    }

    /// Only an address without a route is refused before something is sent.
    fn udp(&self, peer: SocketAddr) -> Option<Refusal> {
        let address = peer.ip();
        let is_refused = !address.is_loopback() && !address.is_unspecified() && !self.is_routed(address);
        is_refused.then(|| Refusal {
            layer: "network",
            op: "connect",
            target: PathBuf::from(peer.to_string()),
            rule: "UDP leaves no sandbox".to_owned(),
            errno: libc::ENETUNREACH,
            hint: None,
        })
    }

    fn tcp(&self, peer: SocketAddr) -> Option<Refusal> {
        let (address, port) = (peer.ip(), peer.port());
        if address.is_loopback() || address.is_unspecified() || port == 0 || self.gateway_listens(peer) {
            return None;
        }
        let name = self.name_at(address);
        let target = name.map_or_else(|| peer.to_string(), |name| format!("{name}:{port}"));
        let denying = match name {
            Some(name) => self.rules.denying_name(name, port),
            None => self.rules.denying_address(address, port),
        };
        let rule = denying.map_or("no rule allows it".to_owned(), |rule| format!("--deny-net {rule} denies it"));
        let wanted = match (name, special(address)) {
            _ if denying.is_some() => None,
            (None, Some(special)) if !special.may_be_named => {
                self.only_domain(address).map(|one| format!("'{one}:{port}'"))
            }
            _ => Some(target.clone()),
        };
        Some(Refusal {
            layer: "network",
            op: "connect",
            target: PathBuf::from(target),
            rule,
            errno: if self.is_routed(address) { libc::ECONNREFUSED } else { libc::ENETUNREACH },
            hint: wanted.map(|rule| format!("--allow-net {rule} would allow it")),
        })
    }

    fn gateway_listens(&self, peer: SocketAddr) -> bool {
        let (address, port) = (peer.ip(), peer.port());
        let serves = |one: SocketAddr| {
            let is_wide = one.ip().is_unspecified() && one.is_ipv4() == address.is_ipv4() && self.is_routed(address);
            one.port() == port && (one.ip() == address || is_wide)
        };
        self.layout.iter().flat_map(|layout| &layout.sockets).any(|socket| serves(socket.address))
    }

    fn is_routed(&self, address: IpAddr) -> bool {
        self.layout.iter().flat_map(|layout| &layout.routes).any(|network| network.contains(&address))
    }

    fn name_at(&self, address: IpAddr) -> Option<&Name> {
        let names = &self.layout.as_ref()?.names;
        names.iter().find(|(_, known)| address == **known).map(|(name, _)| name)
    }

    /// The domain whose names have this address, if there is one alone.
    fn only_domain(&self, address: IpAddr) -> Option<String> {
        let pool = self.layout.as_ref()?.pool.map(IpAddr::from)?;
        let domains = self.rules.allow.iter().filter_map(|rule| match &rule.host {
            Host::Below(name) => Some(format!("*.{name}")),
            _ => None,
        });
        let mut domains: Vec<String> = domains.collect();
        domains.dedup();
        match &mut domains[..] {
            [one] if self.is_routed(address) && address >= pool => Some(std::mem::take(one)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use stockade_egress::rule::Rule;

    use super::*;

    fn refused(allow: &[&str], deny: &[&str], peer: &str) -> Option<(String, String, i32, String)> {
        let parse = |texts: &[&str]| texts.iter().map(|text| text.parse::<Rule>().unwrap()).collect();
        let rules = Rules { allow: parse(allow), deny: parse(deny) };
        let layout = (!allow.is_empty()).then(|| Layout::of(&rules).unwrap());
        let refusal = Reach { rules, layout }.tcp(peer.parse().unwrap())?;
        let target = refusal.target.display().to_string();
        Some((target, refusal.rule, refusal.errno, refusal.hint.unwrap_or_default()))
    }

    #[test]
    fn what_nothing_listens_for_is_named_with_its_rule() {
        let rules = ["a.example:443", "10.1.2.3:22", "10.8.0.0/16:5432"];
        let hint = |peer: &str| refused(&rules, &[], peer).map(|(target, _, errno, hint)| (target, errno, hint));
        let allow =
            |target: &str, errno| Some((target.to_owned(), errno, format!("--allow-net {target} would allow it")));
        assert_eq!(hint("198.18.0.2:80"), allow("a.example:80", libc::ECONNREFUSED));
        assert_eq!(hint("10.1.2.3:23"), allow("10.1.2.3:23", libc::ECONNREFUSED));
        assert_eq!(hint("192.168.1.1:22"), allow("192.168.1.1:22", libc::ENETUNREACH));
        assert_eq!(hint("[2001:db8::1]:443"), allow("[2001:db8::1]:443", libc::ENETUNREACH));
        for served in ["198.18.0.2:443", "10.1.2.3:22", "10.8.9.9:5432", "198.18.0.2:5432", "198.18.0.1:53"] {
            assert_eq!(hint(served), None, "the gateway has {served}");
        }
        for own in ["127.0.0.1:80", "[::1]:80", "0.0.0.0:80", "203.0.113.1:0"] {
            assert_eq!(hint(own), None, "{own}");
        }
        assert_eq!(hint("224.0.0.1:80").unwrap().2, "", "no rule can name it");
        assert_eq!(hint("198.18.7.7:80").unwrap().2, "", "it stands for nothing");
    }

    #[test]
    fn domains_denied_hosts_and_no_rules_at_all() {
        let hint = |allow: &[&str], peer: &str| refused(allow, &[], peer).unwrap().3;
        assert_eq!(hint(&["*.example:443"], "198.19.0.0:80"), "--allow-net '*.example:80' would allow it");
        assert_eq!(
            hint(&["*.example:443", "*.org:443"], "198.19.0.0:80"),
            "",
            "of which domain it is, only the gateway knows"
        );
        assert_eq!(hint(&[], "203.0.113.1:80"), "--allow-net 203.0.113.1:80 would allow it");
        let (_, rule, errno, hint) = refused(&["a.example:80,443"], &["a.example:80"], "198.18.0.2:80").unwrap();
        assert_eq!(
            (rule.as_str(), errno, hint.as_str()),
            ("--deny-net a.example:80 denies it", libc::ECONNREFUSED, "")
        );
    }

    #[test]
    fn udp_is_refused_where_nothing_is_routed_and_no_rule_would_help() {
        let rules = Rules { allow: vec!["a.example:443".parse().unwrap()], deny: Vec::new() };
        let reach = Reach { layout: Some(Layout::of(&rules).unwrap()), rules };
        let refusal = |address: &str| {
            let peer = Peer { address: address.parse().unwrap(), is_udp: true };
            reach.refusal(peer).map(|refusal| (refusal.errno, refusal.hint))
        };
        assert_eq!(refusal("203.0.113.1:123"), Some((libc::ENETUNREACH, None)));
        // The kernel connects these, and refuses what is sent to them.
        for connected in ["198.18.0.2:123", "198.18.0.1:53", "127.0.0.1:53"] {
            assert_eq!(refusal(connected), None, "{connected}");
        }
    }
}
