//! Addresses that a name must not lead to.

use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// A block of addresses that are not of the public network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Special {
    /// The block.
    pub block: IpNet,
    /// What its addresses are.
    pub what: &'static str,
    /// Whether a rule for addresses may allow some of them.
    pub may_be_named: bool,
}

/// The IANA special-purpose registries, as far as a host could answer there, and what clouds use. The networks of examples
/// (`203.0.113.0/24`) lead nowhere and are not listed.
const V4: &[([u8; 4], u8, &str, bool)] = &[
    ([0, 0, 0, 0], 8, "unspecified", false), // Linux connects 0.0.0.0 to this host
    ([10, 0, 0, 0], 8, "private", true),
    ([100, 64, 0, 0], 10, "carrier-grade NAT", true),
    ([127, 0, 0, 0], 8, "loopback", true),
    ([168, 63, 129, 16], 32, "cloud metadata", true),
    ([169, 254, 0, 0], 16, "link-local or cloud metadata", true),
    ([172, 16, 0, 0], 12, "private", true),
    ([192, 0, 0, 0], 24, "protocol assignments or cloud metadata", true),
    ([192, 88, 99, 0], 24, "6to4 relay", true),
    ([192, 168, 0, 0], 16, "private", true),
    ([198, 18, 0, 0], 15, "synthetic", false),
    ([224, 0, 0, 0], 4, "multicast", false),
    ([240, 0, 0, 0], 4, "reserved or broadcast", false),
];

/// Only 2000::/3 is public; within it are forms of IPv4 addresses.
const V6: &[([u16; 8], u8, &str, bool)] = &[
    ([0, 0, 0, 0, 0, 0, 0, 1], 128, "loopback", true),
    ([0, 0, 0, 0, 0, 0xffff, 0, 0], 96, "IPv4-mapped", false),
    ([0x64, 0xff9b, 0, 0, 0, 0, 0, 0], 32, "NAT64", true),
    ([0, 0, 0, 0, 0, 0, 0, 0], 3, "unspecified, IPv4-compatible or reserved", false),
    ([0x2001, 0, 0, 0, 0, 0, 0, 0], 32, "Teredo", true),
    ([0x2001, 2, 0, 0, 0, 0, 0, 0], 48, "benchmarking", true),
    ([0x2001, 0x10, 0, 0, 0, 0, 0, 0], 28, "ORCHID", true),
    ([0x2002, 0, 0, 0, 0, 0, 0, 0], 16, "6to4", true),
    ([0xfc00, 0, 0, 0, 0, 0, 0, 0], 7, "private", true),
    ([0xfe80, 0, 0, 0, 0, 0, 0, 0], 10, "link-local", false), // it would need a zone
    ([0xfec0, 0, 0, 0, 0, 0, 0, 0], 10, "site-local", true),
    ([0xff00, 0, 0, 0, 0, 0, 0, 0], 8, "multicast", false),
    ([0x4000, 0, 0, 0, 0, 0, 0, 0], 2, "reserved", false),
    ([0x8000, 0, 0, 0, 0, 0, 0, 0], 1, "reserved", false),
];

/// The block that an address lies in, if it is not a public one.
pub fn special(address: IpAddr) -> Option<Special> {
    match address {
        IpAddr::V4(address) => V4.iter().find_map(|(first, length, what, may_be_named)| {
            let block = Ipv4Net::new((*first).into(), *length).ok().filter(|block| block.contains(&address))?;
            Some(Special { block: block.into(), what, may_be_named: *may_be_named })
        }),
        IpAddr::V6(address) => V6.iter().find_map(|(first, length, what, may_be_named)| {
            let block = Ipv6Net::new((*first).into(), *length).ok().filter(|block| block.contains(&address))?;
            Some(Special { block: block.into(), what, may_be_named: *may_be_named })
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_inner_address_is_taken_for_a_public_one() {
        for (text, what) in [
            ("0.0.0.0", "unspecified"),
            ("10.0.0.5", "private"),
            ("100.100.100.200", "carrier-grade NAT"),
            ("127.255.255.255", "loopback"),
            ("168.63.129.16", "cloud metadata"),
            ("169.254.169.254", "link-local or cloud metadata"),
            ("172.31.255.255", "private"),
            ("192.0.0.192", "protocol assignments or cloud metadata"),
            ("192.168.1.1", "private"),
            ("198.19.255.255", "synthetic"),
            ("224.0.0.251", "multicast"),
            ("255.255.255.255", "reserved or broadcast"),
            ("::", "unspecified, IPv4-compatible or reserved"),
            ("::1", "loopback"),
            ("::127.0.0.1", "unspecified, IPv4-compatible or reserved"),
            ("::ffff:127.0.0.1", "IPv4-mapped"),
            ("::ffff:0:127.0.0.1", "unspecified, IPv4-compatible or reserved"),
            ("64:ff9b::7f00:1", "NAT64"),
            ("64:ff9b:1::7f00:1", "NAT64"),
            ("2001::1", "Teredo"),
            ("2002:7f00:1::", "6to4"),
            ("fd00:ec2::254", "private"),
            ("fe80::1", "link-local"),
            ("fec0::1", "site-local"),
            ("ff02::1", "multicast"),
            ("4000::1", "reserved"),
            ("8000::1", "reserved"),
        ] {
            assert_eq!(special(text.parse().unwrap()).map(|found| found.what), Some(what), "{text}");
        }
        for text in
            ["8.8.8.8", "100.128.0.1", "172.32.0.1", "192.0.1.1", "203.0.113.10", "2001:db8::1", "2606:4700::1111"]
        {
            assert_eq!(special(text.parse().unwrap()), None, "{text}");
        }
    }
}
