//! The caller's terminal while the sandbox has its own: set to raw mode, and restored in every case.

use std::os::fd::AsFd;

use nix::sys::termios::{OutputFlags, SetArg, Termios, cfmakeraw, tcgetattr, tcsetattr};

use crate::sys::process::borrow_standard;
use crate::sys::terminal;

/// Keeps the caller's terminal in raw mode until it is dropped.
#[derive(Debug)]
pub struct RawMode(Termios);

impl RawMode {
    /// Switches standard input to raw mode. `None` if it is not a terminal.
    pub fn enter() -> Option<Self> {
        Self::set(cfmakeraw)
    }

    /// The same, but the terminal still processes output: for [`pass_newlines`].
    pub fn enter_for_input() -> Option<Self> {
        Self::set(|raw| {
            let output = raw.output_flags;
            cfmakeraw(raw);
            raw.output_flags = output;
        })
    }

    fn set(change: impl FnOnce(&mut Termios)) -> Option<Self> {
        let stdin = borrow_standard(0);
        let before = tcgetattr(stdin).ok()?;
        let mut raw = before.clone();
        change(&mut raw);
        tcsetattr(stdin, SetArg::TCSADRAIN, &raw).ok()?;
        Some(Self(before))
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        let _ = tcsetattr(borrow_standard(0), SetArg::TCSADRAIN, &self.0);
    }
}

/// Stops the sandbox's terminal from turning `\n` into `\r\n`. The caller's terminal does that, and a file needs none.
pub fn pass_newlines(master: impl AsFd) {
    if let Ok(mut settings) = tcgetattr(&master) {
        settings.output_flags.remove(OutputFlags::ONLCR);
        let _ = tcsetattr(&master, SetArg::TCSANOW, &settings);
    }
}

/// Sets the size of the sandbox's terminal to the caller's.
pub fn follow_size(master: impl AsFd) {
    if let Ok(size) = terminal::size(borrow_standard(0)).or_else(|_| terminal::size(borrow_standard(1))) {
        let _ = terminal::set_size(master, size);
    }
}
