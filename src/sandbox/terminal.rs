//! The caller's terminal while a sandbox has one of its own: raw, and restored however the run ends.

use std::os::fd::AsFd;

use nix::sys::termios::{SetArg, Termios, cfmakeraw, tcgetattr, tcsetattr};

use crate::sys::process::borrow_standard;
use crate::sys::terminal;

/// Keeps the caller's terminal raw while it lives.
#[derive(Debug)]
pub struct RawMode(Termios);

impl RawMode {
    /// Switches standard input to raw mode; `None` when it is no terminal.
    pub fn enter() -> Option<Self> {
        let stdin = borrow_standard(0);
        let before = tcgetattr(stdin).ok()?;
        let mut raw = before.clone();
        cfmakeraw(&mut raw);
        tcsetattr(stdin, SetArg::TCSADRAIN, &raw).ok()?;
        Some(Self(before))
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        let _ = tcsetattr(borrow_standard(0), SetArg::TCSADRAIN, &self.0);
    }
}

/// Gives the sandbox's terminal the size of the caller's.
pub fn follow_size(master: impl AsFd) {
    if let Ok(size) = terminal::size(borrow_standard(0)).or_else(|_| terminal::size(borrow_standard(1))) {
        let _ = terminal::set_size(master, size);
    }
}
