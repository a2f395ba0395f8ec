//! Whether a host can be connected to.

use std::ffi::OsStr;
use std::net::IpAddr;

use stockade_egress::name::Name;
use stockade_egress::rule::{Refused, Rules};

use super::Answer;
use crate::confine::seccomp::install::{KnownCall, prepare};
use crate::error::{Error, Result, Step};
use crate::plan::{Bytes, Egress, Network, RunPlan};

const CONNECT: &str = "connect";

/// A TCP socket of IPv4 or IPv6.
const IPV4: KnownCall =
    KnownCall(libc::SYS_socket, &[(0, libc::AF_INET as u64), (1, libc::SOCK_STREAM as u64), (2, 0)]);
const IPV6: KnownCall =
    KnownCall(libc::SYS_socket, &[(0, libc::AF_INET6 as u64), (1, libc::SOCK_STREAM as u64), (2, 0)]);

/// The answer of the network, its rules, the filter and Landlock. No name is resolved outside.
pub fn answer(plan: &RunPlan, word: &OsStr) -> Result<Answer> {
    let wrong = |reason: &str| Error::new(Step::Usage, Bytes::from(word).to_string(), reason);
    let (host, port) = word.to_str().and_then(|word| word.rsplit_once(':')).unwrap_or_default();
    let port: u16 = port.parse().ok().filter(|port| *port > 0).ok_or_else(|| wrong("has no port from 1 to 65535"))?;
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let target = match bare.parse() {
        Ok(address) => Target::Address(address),
        Err(_) => Target::Name(bare.parse().map_err(|reason: String| wrong(&reason))?),
    };
    let wider = format!("--allow-net {host}:{port} would allow it");
    let forbid = format!("--deny-net {host}:{port} would forbid it");
    let network = plan.namespaces.network;
    let own = network != Network::Host && target.is_own(plan);
    if network == Network::None {
        return Ok(Answer::no(CONNECT, None, "the network is none", Some(if own { loopback() } else { wider })));
    }
    if let Some(answer) = refused_by_filter(plan, &target)? {
        return Ok(answer);
    }
    let listed = plan.confinement.landlock.as_ref().and_then(|landlock| landlock.connect_tcp.as_ref());
    if listed.is_some_and(|ports| !ports.contains(&port)) {
        let hint = format!("--allow-connect {port} would allow it");
        return Ok(Answer::no(
            CONNECT,
            error("EACCES"),
            "Landlock allows only the ports of --allow-connect",
            Some(hint),
        ));
    }
    Ok(match (network, &plan.egress) {
        (Network::Host, _) => Answer::yes(CONNECT, "the network is the host's: whatever it reaches"),
        _ if own => Answer::yes(CONNECT, "it is the sandbox itself, if something listens there"),
        (Network::Egress, Some(egress)) => by_rules(egress, &target, port, wider, forbid),
        _ => {
            let errno = if matches!(target, Target::Address(_)) { error("ENETUNREACH") } else { None };
            Answer::no(CONNECT, errno, "the network is loopback: the sandbox reaches only itself", Some(wider))
        }
    })
}

enum Target {
    Address(IpAddr),
    Name(Name),
}

impl Target {
    /// Whether it is the sandbox: on Linux that is also the unspecified address.
    fn is_own(&self, plan: &RunPlan) -> bool {
        let hostname = plan.confinement.hostname.as_ref().map(ToString::to_string).unwrap_or_default();
        match self {
            Self::Address(address) => address.to_canonical().is_loopback() || address.is_unspecified(),
            Self::Name(name) => name.as_str() == "localhost" || name.as_str() == hostname,
        }
    }
}

fn loopback() -> String {
    "--network loopback would allow it".to_owned()
}

fn error(name: &str) -> Option<String> {
    Some(name.to_owned())
}

/// A profile without sockets or `connect`.
fn refused_by_filter(plan: &RunPlan, target: &Target) -> Result<Option<Answer>> {
    let (filter, _) = prepare(plan.confinement.seccomp.as_ref(), &plan.into())?;
    let sockets = match target {
        Target::Address(IpAddr::V6(_)) => &[IPV6][..],
        _ => &[IPV4],
    };
    let connect = KnownCall(libc::SYS_connect, &[]);
    let refused = filter.filter(|filter| !filter.lets_through(sockets.iter().chain([&connect])));
    Ok(refused.map(|filter| {
        let because = format!("profile {} refuses such sockets, or connect", filter.record().profile);
        Answer::no(CONNECT, None, because, Some("`stockade why socket` shows its rules".to_owned()))
    }))
}

fn by_rules(egress: &Egress, target: &Target, port: u16, wider: String, forbid: String) -> Answer {
    let rules = &egress.rules;
    let (allowing, denying) = match target {
        Target::Address(address) => {
            (rules.for_address(address.to_canonical(), port), rules.denying_address(address.to_canonical(), port))
        }
        Target::Name(name) => (rules.for_name(name, port), rules.denying_name(name, port)),
    };
    if let Some(rule) = denying {
        return Answer::no(
            CONNECT,
            None,
            format!("--deny-net {rule}"),
            Some("it wins over every --allow-net".to_owned()),
        );
    }
    let Some(rule) = allowing.and_then(|at| rules.allow.get(at)) else {
        let why = match target {
            Target::Address(address) => special(rules, *address, port),
            Target::Name(_) => None,
        };
        return Answer::no(CONNECT, None, why.unwrap_or("no rule of --allow-net allows it".to_owned()), Some(wider));
    };
    let forbid = Some(forbid);
    let Target::Name(name) = target else { return Answer { hint: forbid, ..Answer::yes(CONNECT, allowed(rule)) } };
    let given: Vec<IpAddr> = egress.hosts.iter().filter(|host| host.name == *name).map(|host| host.address).collect();
    if given.is_empty() {
        let because = format!(
            "{}, if a name server knows the name\nan address that is private, loopback, link-local or a cloud's metadata is refused, \
             unless a rule names its network",
            allowed(rule)
        );
        return Answer { hint: forbid, ..Answer::yes(CONNECT, because) };
    }
    let refused = |address: &IpAddr| match rules.may_dial(*address, port) {
        Ok(()) => None,
        Err(Refused::Denied) => Some((format!("--deny-net denies its address {address}"), None)),
        Err(Refused::Special(special)) => {
            let hint = special.may_be_named.then(|| format!("--allow-net {address}:{port} as well would allow it"));
            Some((format!("{}, but its address {address} is {}", allowed(rule), special.what), hint))
        }
    };
    match given.iter().map(refused).collect::<Option<Vec<_>>>().and_then(|refusals| refusals.into_iter().next()) {
        Some((because, hint)) => Answer::no(CONNECT, None, because, hint),
        None => Answer { hint: forbid, ..Answer::yes(CONNECT, allowed(rule)) },
    }
}

fn allowed(rule: &impl std::fmt::Display) -> String {
    format!("--allow-net {rule}")
}

/// Why an address is refused although a rule for a wider network holds it.
fn special(rules: &Rules, address: IpAddr, port: u16) -> Option<String> {
    match rules.may_dial(address.to_canonical(), port) {
        Err(Refused::Special(special)) => {
            Some(format!("it is {}: only a rule for such a network allows it", special.what))
        }
        _ => None,
    }
}
