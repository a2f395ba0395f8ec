//! Verifies the chain from the first line to the last.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufRead, BufReader, Read as _};
use std::os::fd::OwnedFd;

use nix::fcntl::{FlockArg, OFlag, open};
use nix::sys::stat::Mode;
use sha2::{Digest as _, Sha256};

use super::line::Line;
use super::log::lock;
use super::{MAX_LINE, is_torn};
use crate::error::{Error, Result, Step};
use crate::plan::{Bytes, hex};

/// Summary of an intact log.
#[derive(Debug, Default, PartialEq)]
pub struct Chain {
    /// Number of runs.
    pub runs: u64,
    /// Numbers of the torn lines that a later line records.
    pub torn: Vec<u64>,
    /// End time of the first run.
    pub first: Option<String>,
    /// End time of the last run.
    pub last: Option<String>,
    /// Hash of the last line, which the next line will contain.
    pub head: Option<String>,
}

/// Verifies the chain of a log. `head` is an earlier head, which must be in the chain. An error of the step
/// [`Step::AuditChain`] names the line that breaks it, and the reason.
pub fn verify(path: &OsStr, head: Option<&str>) -> Result<Chain> {
    let shown = Bytes::from(path).to_string();
    let opened = open_to_read(path).and_then(|file| {
        // The size is read under the lock, so that no line is incomplete. Later lines are not verified.
        let locked = lock(&file, FlockArg::LockSharedNonblock)?;
        let size = file.metadata().map_err(|error| failed(&error))?.len();
        drop(locked);
        Ok((file, size))
    });
    let (file, size) = opened.map_err(|error| Error { step: Step::AuditRead, object: shown.clone(), ..error })?;
    let broken = |broken| match broken {
        Broken::At(line, reason) => Error::new(Step::AuditChain, format!("{shown}: line {line}"), reason),
        Broken::Read(error) => Error { object: shown.clone(), ..failed(&error) },
        Broken::Head => {
            let reason = "no line has the hash that --head names: the log was truncated or rewritten since";
            Error::new(Step::AuditChain, shown.clone(), reason)
        }
    };
    follow(BufReader::new(file.take(size)), head).map_err(broken)
}

fn failed(error: &std::io::Error) -> Error {
    Error::io(Step::AuditRead, "", error)
}

fn open_to_read(path: &OsStr) -> Result<File> {
    let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    let file: OwnedFd = open(path, flags, Mode::empty()).map_err(|errno| Error::errno(Step::AuditRead, "", errno))?;
    let file = File::from(file);
    match file.metadata() {
        Ok(metadata) if metadata.is_file() => Ok(file),
        Ok(_) => Err(Error::new(Step::AuditRead, "", "it is not a regular file")),
        Err(error) => Err(failed(&error)),
    }
}

/// Where a chain breaks.
#[derive(Debug)]
enum Broken {
    /// At this line, for this reason.
    At(u64, String),
    /// The log could not be read.
    Read(std::io::Error),
    /// The earlier head is not in the chain.
    Head,
}

/// The bytes before a line, since the last complete line.
#[derive(Debug, Default)]
struct Before {
    /// Hash of the last complete line and all bytes after it; `None` at the beginning.
    hash: Option<Sha256>,
    /// Number of bytes after the last complete line.
    torn_bytes: u64,
    /// Numbers of the torn lines among them.
    torn: Vec<u64>,
}

fn follow(mut log: impl BufRead, head: Option<&str>) -> std::result::Result<Chain, Broken> {
    let (mut chain, mut before, mut seen) = (Chain::default(), Before::default(), head.is_none());
    let mut bytes = Vec::new();
    for number in 1.. {
        bytes.clear();
        (&mut log).take(MAX_LINE as u64 + 1).read_until(b'\n', &mut bytes).map_err(Broken::Read)?;
        let at = |reason: &str| Err(Broken::At(number, reason.to_owned()));
        if bytes.is_empty() {
            break;
        }
        if bytes.len() > MAX_LINE {
            return at("is too long for a line of an audit log");
        }
        let Some(line) = Line::parse(&bytes) else {
            if bytes.last() != Some(&b'\n') && (is_torn(&bytes) || Line::parse(&[&bytes[..], b"\n"].concat()).is_some())
            {
                return at(
                    "is torn: its writer or the machine died, or the disk was full; the next run will record it",
                );
            }
            if !is_torn(&bytes) {
                return at("is not a line of an audit log");
            }
            before.hash.get_or_insert_default().update(&bytes);
            before.torn_bytes += bytes.len() as u64;
            before.torn.push(number);
            continue;
        };
        before.check(&line, number)?;
        chain.torn.append(&mut before.torn);
        chain.runs += 1;
        chain.first.get_or_insert_with(|| line.finished_at.clone());
        chain.last = Some(line.finished_at);
        let hash = Sha256::new_with_prefix(&bytes);
        let hex = hex(&hash.clone().finalize());
        seen |= head.is_some_and(|head| head.eq_ignore_ascii_case(&hex));
        chain.head = Some(hex);
        before = Before { hash: Some(hash), ..Before::default() };
    }
    match before.torn.first() {
        Some(number) => Err(Broken::At(*number, "is torn, and no later line records it".to_owned())),
        None if !seen => Err(Broken::Head),
        None => Ok(chain),
    }
}

impl Before {
    fn check(&self, line: &Line, number: u64) -> std::result::Result<(), Broken> {
        let at = |number: u64, reason: String| Err(Broken::At(number, reason));
        let expected = self.hash.clone().map(|hash| hex(&hash.finalize()));
        if line.torn_bytes != self.torn_bytes {
            return match self.torn.first() {
                Some(torn) => at(*torn, format!("is torn, and line {number} does not record it")),
                None => at(number, format!("records {} bytes of a torn line that is missing", line.torn_bytes)),
            };
        }
        match (&line.prev_sha256, expected) {
            (found, expected) if *found == expected => Ok(()),
            (Some(_), None) => at(number, "follows a missing line: the beginning of the log was removed".to_owned()),
            (None, Some(_)) => at(number, "begins a new chain in the middle of the file".to_owned()),
            _ => at(number, format!("does not match line {}: a line was changed, removed or inserted", number - 1)),
        }
    }
}
