//! A terminal in front of the sandbox. The tests hold its master side, `pty(7)`.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::clock::eventually;
use nix::pty::{Winsize, openpty};
use nix::sys::termios::tcgetattr;

/// Both sides of a terminal.
#[derive(Debug)]
pub struct Terminal {
    master: File,
    slave: OwnedFd,
    seen: Arc<Mutex<Vec<u8>>>,
}

impl Terminal {
    /// Opens a terminal of this size.
    pub fn open(rows: u16, columns: u16) -> Self {
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        let pair = openpty(Some(&size), None).expect("a terminal can be had");
        let master = File::from(pair.master);
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (mut reader, sink) = (master.try_clone().expect("the master can be duplicated"), Arc::clone(&seen));
        std::thread::spawn(move || {
            let mut chunk = [0; 4096];
            while let Ok(count @ 1..) = reader.read(&mut chunk) {
                sink.lock().unwrap().extend_from_slice(&chunk[..count]);
            }
        });
        Self { master, slave: pair.slave, seen }
    }

    /// The slave side, for the process.
    pub fn slave(&self) -> OwnedFd {
        self.slave.try_clone().expect("the slave can be duplicated")
    }

    /// The terminal's modes, `termios(3)`: the part that the kernel has. libc's structure has more.
    pub fn modes(&self) -> impl PartialEq + std::fmt::Debug + use<> {
        let modes = tcgetattr(&self.slave).expect("a terminal has modes");
        let characters: [u8; 19] = modes.control_chars[..19].try_into().expect("there are 32");
        (modes.input_flags, modes.output_flags, modes.control_flags, modes.local_flags, characters)
    }

    /// Types the text.
    pub fn type_text(&mut self, text: &str) {
        self.master.write_all(text.as_bytes()).expect("the master can be written");
    }

    /// The text shown so far.
    pub fn shown(&self) -> String {
        String::from_utf8_lossy(&self.seen.lock().unwrap()).into_owned()
    }

    /// Waits until the text was shown.
    pub fn wait_for(&self, text: &str) {
        assert!(eventually(|| self.shown().contains(text)), "no {text:?} in {:?}", self.shown());
    }

    /// Changes the size. The foreground processes get SIGWINCH.
    pub fn resize(&self, rows: u16, columns: u16) {
        // Neither std nor nix has a safe call for this.
        let name = std::fs::read_link(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&self.slave)));
        let status = std::process::Command::new("stty")
            .args(["-F", name.expect("a terminal has a name").to_str().expect("in UTF-8")])
            .args(["rows", &rows.to_string(), "cols", &columns.to_string()])
            .status();
        assert!(status.is_ok_and(|status| status.success()), "stty changes the size");
    }
}
