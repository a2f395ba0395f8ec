//! The flags of the network become settings.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use super::values::{many, one, shown, wrong};
use crate::args::Args;
use crate::error::Result;
use crate::plan::Network;
use crate::policy::network::{NetworkSettings, NetworkTable};
use crate::sys::entry;

/// Parses the flags. Files of rules are read later.
pub fn settings(args: &Args) -> Result<NetworkSettings> {
    args.value("upstream-proxy").into_iter().for_each(hide_password);
    Ok(NetworkSettings(NetworkTable {
        mode: mode(args)?,
        allow: many(args, "allow-net")?,
        deny: many(args, "deny-net")?,
        hosts: many(args, "add-host")?,
        publish: many(args, "publish")?,
        dns: one(args, "dns")?,
        upstream_proxy: one(args, "upstream-proxy")?,
        connections: one(args, "net-connections")?,
        rate: one(args, "net-rate")?,
        budget: one(args, "net-budget")?,
        connect_timeout: one(args, "net-connect-timeout")?,
        idle_timeout: one(args, "net-idle-timeout")?,
    }))
}

/// Any process may read our arguments in /proc, so a password does not stay in them.
fn hide_password(url: &OsStr) {
    let bytes = url.as_bytes();
    let begin = bytes.windows(3).position(|part| part == b"://").map_or(0, |at| at + 3);
    if let Some(end) = bytes.iter().rposition(|byte| *byte == b'@').filter(|end| *end > begin) {
        let colon = bytes[begin..end].iter().position(|byte| *byte == b':').map_or(begin, |at| begin + at + 1);
        entry::hide_in_arguments(bytes, colon..end);
    }
}

/// The kind of network that is named.
pub fn mode(args: &Args) -> Result<Option<Network>> {
    let Some(word) = args.value("network") else { return Ok(None) };
    let known = [Network::None, Network::Loopback, Network::Egress, Network::Host];
    let found = known.into_iter().find(|mode| mode.name().as_bytes() == word.as_encoded_bytes());
    found.map(Some).ok_or_else(|| wrong("network", format!("{} is not none, loopback, egress or host", shown(word))))
}
