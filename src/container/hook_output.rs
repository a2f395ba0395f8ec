//! The files for the output of hooks, which annotations name.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::Stdio;

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;

use crate::error::{Error, Result, Step, errno_of};
use crate::plan::Bytes;
use crate::plan::container::{Hook, HookFiles};
use crate::sys::process::borrow_standard;
use crate::sys::walk;

/// The open files. Without one, standard output is discarded, and the end of standard error becomes part of the error.
#[derive(Debug, Default)]
pub struct Output {
    stdout: Option<File>,
    stderr: Option<File>,
}

impl Output {
    /// Opens the files for these hooks; none without hooks. `/dev/stdout` and `/dev/stderr` are the runtime's own streams.
    pub fn of(hooks: &[Hook], files: &HookFiles) -> Result<Self> {
        if hooks.is_empty() {
            return Ok(Self::default());
        }
        let file = |path: &Option<Bytes>| path.as_ref().map(open).transpose();
        Ok(Self { stdout: file(&files.stdout)?, stderr: file(&files.stderr)? })
    }

    /// The standard output of a hook.
    pub fn stdout(&self) -> std::io::Result<Stdio> {
        self.stdout.as_ref().map_or(Ok(Stdio::null()), |file| file.try_clone().map(Stdio::from))
    }

    /// The standard error of a hook; `pipe` without a file.
    pub fn stderr(&self, pipe: OwnedFd) -> std::io::Result<Stdio> {
        self.stderr.as_ref().map_or(Ok(Stdio::from(pipe)), |file| file.try_clone().map(Stdio::from))
    }
}

/// Opens a file to append to it. No symlink on the way may be another user's, and the file itself may not be one.
fn open(path: &Bytes) -> Result<File> {
    let failed = |errno| Error::errno(Step::Hook, format!("output file {path}"), errno);
    let number = match path.as_bytes() {
        b"/dev/stdout" => Some(1),
        b"/dev/stderr" => Some(2),
        _ => None,
    };
    if let Some(number) = number {
        let own = borrow_standard(number).try_clone_to_owned();
        return own.map(File::from).map_err(|error| failed(errno_of(&error)));
    }
    let place = walk::to_place(Path::new(&path.as_path())).map_err(|errno| match errno {
        Errno::EPERM => failed(errno).hint("another user could have made a symlink in its path"),
        errno => failed(errno),
    })?;
    let flags = OFlag::O_WRONLY | OFlag::O_APPEND | OFlag::O_CREAT | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    // Without O_NONBLOCK, opening a FIFO would wait for a reader.
    let opened =
        openat(&place.directory, place.name.as_os_str(), flags | OFlag::O_NONBLOCK, Mode::from_bits_truncate(0o600));
    opened.map(File::from).map_err(failed)
}
