//! Leaves out one check, in a build made only to show what the other checks stop. Without the feature `ablate`, none can be left out.

/// A check that can be left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "ablate"), allow(dead_code))]
pub enum Check {
    /// Rules, before the name server gives a name an address.
    Names,
    /// Rules, before a connection is made and while it is open: left out in one place only, the other would hold.
    Connections,
    /// Where a name leads to.
    Addresses,
    /// The server name of TLS.
    ServerName,
}

/// Whether this check is left out.
#[cfg(not(feature = "ablate"))]
pub const fn without(_: Check) -> bool {
    false
}

/// The names of the checks in `STOCKADE_ABLATE`.
#[cfg(feature = "ablate")]
pub const NAMES: [(&str, Check); 4] = [
    ("names", Check::Names),
    ("connections", Check::Connections),
    ("addresses", Check::Addresses),
    ("servername", Check::ServerName),
];

/// Whether this check is left out. The parent asks first, and the gateway inherits the answer.
#[cfg(feature = "ablate")]
pub fn without(check: Check) -> bool {
    static CHOSEN: std::sync::OnceLock<Option<Check>> = std::sync::OnceLock::new();
    let chosen = CHOSEN.get_or_init(|| {
        let text = std::env::var("STOCKADE_ABLATE").unwrap_or_default();
        NAMES.iter().find(|(name, _)| text.split(',').any(|word| word == *name)).map(|(_, check)| *check)
    });
    *chosen == Some(check)
}
