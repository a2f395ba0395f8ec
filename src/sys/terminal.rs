//! Terminals: `ioctl_tty(2)`, `pts(4)`.

use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

use super::{Result, check, check_fd};

/// Size of a terminal in character cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Lines.
    pub rows: u16,
    /// Columns.
    pub columns: u16,
}

/// Unlocks a new pseudoterminal and opens its slave by descriptor: its name could be replaced.
pub fn open_peer(ptmx: impl AsFd) -> Result<OwnedFd> {
    let unlocked: libc::c_int = 0;
    let fd = ptmx.as_fd().as_raw_fd();
    // SAFETY: TIOCSPTLCK reads an int, a live local.
    check(unsafe { libc::ioctl(fd, libc::TIOCSPTLCK, &raw const unlocked) }.into())?;
    let flags = libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC;
    // SAFETY: TIOCGPTPEER takes flags and returns a descriptor.
    check_fd(unsafe { libc::ioctl(fd, libc::TIOCGPTPEER, flags) }.into())
}

/// Makes a terminal the controlling terminal of this process's session.
pub fn take_control(terminal: RawFd) -> Result<()> {
    // SAFETY: TIOCSCTTY takes a number.
    check(unsafe { libc::ioctl(terminal, libc::TIOCSCTTY, 0) }.into()).map(drop)
}

/// The size of a terminal.
pub fn size(terminal: impl AsFd) -> Result<Size> {
    let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: TIOCGWINSZ fills a winsize, a live local.
    check(unsafe { libc::ioctl(terminal.as_fd().as_raw_fd(), libc::TIOCGWINSZ, &raw mut size) }.into())?;
    Ok(Size { rows: size.ws_row, columns: size.ws_col })
}

/// Sets the size of a terminal. The kernel signals this to its foreground processes.
pub fn set_size(terminal: impl AsFd, size: Size) -> Result<()> {
    let size = libc::winsize { ws_row: size.rows, ws_col: size.columns, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: TIOCSWINSZ reads a winsize, a live local.
    check(unsafe { libc::ioctl(terminal.as_fd().as_raw_fd(), libc::TIOCSWINSZ, &raw const size) }.into()).map(drop)
}
