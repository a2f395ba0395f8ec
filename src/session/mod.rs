//! Sessions: sandboxes that stay, in which commands are run through a control socket.
//!
//! # Theory of operation
//!
//! ```text
//! process                 what it does                                                    lifetime
//! ──────────────────────  ──────────────────────────────────────────────────────────────  ─────────────────────────────
//! `stockade run -d`       forks the supervisor before anything is prepared, waits until   until the session is ready
//!                         it is ready, prints the name
//! supervisor              holds the place (directory, lock, socket), the sandbox and its  the session's
//!                         commands; one poll loop, which never waits for a client
//! sandbox                 as of a run: init, and below it the commands                    dies with the supervisor
//! client, `stockade exec` connects, passes its streams, waits for the report              its own; its foreground
//!                                                                                         commands die with it
//! ```
//!
//! There is no daemon: a session is a process of its user, like a run. The socket lies in a directory of mode 0700 and accepts
//! this user and root. Nothing of a sandbox reaches it, because it is outside of every root.

pub mod client;
pub mod detach;
pub mod place;
pub mod protocol;
pub mod read;
pub mod record;
pub mod server;
pub mod wire;
