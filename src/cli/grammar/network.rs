//! The options of network access by name, as a table.

use crate::args::{Flag, list, value};

/// The group of options.
pub const OPTIONS: (&str, &[Flag]) = (
    "Network access by name",
    &[
        list(
            "allow-net",
            "HOST[:PORTS]|@FILE",
            "Let the command reach this host: a name, *.DOMAIN, an address or a network; ports 80 and 443 by default",
        ),
        list("deny-net", "HOST[:PORTS]|@FILE", "Never let it reach this host, whatever is allowed"),
        list(
            "publish",
            "[IP:]HOSTPORT:PORT",
            "Forward connections from this port of the host, on 127.0.0.1 by default, to a port of the sandbox",
        ),
        list("add-host", "NAME=IP", "The address of a name, which no name server is asked about"),
        value("dns", "IP[:PORT]", "The name server for allowed names, instead of the host's"),
        value(
            "upstream-proxy",
            "URL",
            "Make every connection through this proxy: http://[USER:PASSWORD@]HOST[:PORT] or socks5://…",
        ),
        value("net-connections", "N", "Limit on connections at a time"),
        value("net-rate", "SIZE", "Limit on bytes per second, of all connections together"),
        value("net-budget", "SIZE", "End the run after this many bytes, of all connections together"),
        value("net-connect-timeout", "TIME", "Time to resolve a name and connect"),
        value("net-idle-timeout", "TIME", "End a connection after this time without a byte"),
        value(
            "net-log",
            "FILE|fd:N",
            "Append a line of JSON for each connection and refused name to FILE or descriptor N",
        ),
    ],
);
