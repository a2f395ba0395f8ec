//! Network access by name.
//!
//! ```text
//! in the sandbox's network namespace          outside: the gateway, a process of its own
//! ─────────────────────────────────────       ─────────────────────────────────────────────────────
//! program asks 198.18.0.1 for a name  ──────► stub: is there a rule? an address that stands for the name
//! program connects to that address    ──────► accept; the name from the address; the rule for name and port
//!                                             resolve; check every address; connect to a checked one;
//!                                             compare the peer; compare the server name of TLS; splice
//! ```
//!
//! Nothing is asked outside before a rule has passed, and what is dialled is the address that was checked.

#![forbid(unsafe_code)]

pub mod ablate;
pub mod address;
pub mod change;
pub mod client_hello;
pub mod gateway;
pub mod layout;
pub mod name;
pub mod proxy;
pub mod record;
pub mod rule;
pub mod stub;
pub mod upstream;
