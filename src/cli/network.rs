//! The flags of the network become settings.

use super::values::{many, one, shown, wrong};
use crate::args::Args;
use crate::error::Result;
use crate::plan::Network;
use crate::policy::network::{NetworkSettings, NetworkTable};

/// Parses the flags. Files of rules are read later.
pub fn settings(args: &Args) -> Result<NetworkSettings> {
    Ok(NetworkSettings(NetworkTable {
        mode: mode(args)?,
        allow: many(args, "allow-net")?,
        deny: many(args, "deny-net")?,
        hosts: many(args, "add-host")?,
        publish: many(args, "publish")?,
        dns: one(args, "dns")?,
        connections: one(args, "net-connections")?,
        rate: one(args, "net-rate")?,
        budget: one(args, "net-budget")?,
        connect_timeout: one(args, "net-connect-timeout")?,
        idle_timeout: one(args, "net-idle-timeout")?,
    }))
}

fn mode(args: &Args) -> Result<Option<Network>> {
    let Some(word) = args.value("network") else { return Ok(None) };
    let known = [Network::None, Network::Loopback, Network::Egress, Network::Host];
    let found = known.into_iter().find(|mode| mode.name().as_bytes() == word.as_encoded_bytes());
    found.map(Some).ok_or_else(|| wrong("network", format!("{} is not none, loopback, egress or host", shown(word))))
}
