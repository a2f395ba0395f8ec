//! Records of failures on a pipe: eight bytes, and after them a message of a program that the child ran.

use std::os::fd::BorrowedFd;

use nix::errno::Errno;

use crate::error::Step;
use crate::failure::Failure;

/// Most bytes of a failure's message. The record is written to a pipe at once, which must be atomic.
pub const MAX_FAILURE_MESSAGE: usize = 2048;
/// Length of a failure record.
pub const FAILURE_LENGTH: usize = 8;

/// An event on a failure pipe.
#[derive(Debug)]
pub enum FailureEvent {
    /// The last filter is about to be installed.
    FilterDue,
    /// A failure with its message, which may be empty.
    Failed(Failure, String),
    /// End of file, or an invalid record.
    Closed,
}

/// A record with the error number 0, which no failure has.
const FILTER_DUE: Failure = Failure { step: Step::Seccomp, index: 0, errno: Errno::UnknownErrno };

/// Reads the next event from a failure pipe.
pub fn read_failure_event(pipe: BorrowedFd<'_>) -> std::result::Result<FailureEvent, Errno> {
    let mut record = [0; 2 * FAILURE_LENGTH + MAX_FAILURE_MESSAGE];
    let length = nix::unistd::read(pipe, &mut record)?;
    let event = &record[..length];
    let rest = event.strip_prefix(&failure_record(FILTER_DUE));
    if rest.is_some_and(<[u8]>::is_empty) {
        return Ok(FailureEvent::FilterDue);
    }
    let event = rest.unwrap_or(event);
    let (record, message) = event.split_at(event.len().min(FAILURE_LENGTH));
    let failed = |failure| FailureEvent::Failed(failure, String::from_utf8_lossy(message).into_owned());
    Ok(parse_failure(record).map_or(FailureEvent::Closed, failed))
}

/// Announces that the last filter is about to be installed.
pub fn announce_filter(pipe: BorrowedFd<'_>) -> std::result::Result<(), Errno> {
    nix::unistd::write(pipe, &failure_record(FILTER_DUE)).map(drop)
}

/// The record of a failure, followed by its message.
pub fn failure_with_message(failure: Failure, message: &str) -> Vec<u8> {
    let message = &message.as_bytes()[message.len().saturating_sub(MAX_FAILURE_MESSAGE)..];
    [&failure_record(failure), message].concat()
}

/// Decodes a failure record. `None` if it is invalid.
pub fn parse_failure(record: &[u8]) -> Option<Failure> {
    let record: &[u8; FAILURE_LENGTH] = record.try_into().ok()?;
    let step = Step::from_number(u16::from_ne_bytes([record[0], record[1]]))?;
    let index = u16::from_ne_bytes([record[2], record[3]]);
    let errno = Errno::from_raw(i32::from_ne_bytes([record[4], record[5], record[6], record[7]]));
    Some(Failure { step, index, errno })
}

/// Encodes a failure.
pub fn failure_record(failure: Failure) -> [u8; FAILURE_LENGTH] {
    let mut record = [0; FAILURE_LENGTH];
    record[..2].copy_from_slice(&(failure.step as u16).to_ne_bytes());
    record[2..4].copy_from_slice(&failure.index.to_ne_bytes());
    record[4..].copy_from_slice(&(failure.errno as i32).to_ne_bytes());
    record
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;

    use nix::fcntl::OFlag;

    use super::*;

    #[test]
    fn a_failure_is_whole_and_known_or_none() {
        assert!(parse_failure(&[0xff; 8]).is_none());
        assert!(parse_failure(&[0; 7]).is_none());
        assert_eq!(parse_failure(&[0; 8]).map(|failure| failure.step), Some(Step::Usage));
    }

    #[test]
    fn announcements_and_failures_are_distinguished() {
        let (reader, writer) = nix::unistd::pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK).unwrap();
        let failure = Failure { step: Step::Exec, index: 3, errno: Errno::EACCES };
        assert_eq!(read_failure_event(reader.as_fd()).unwrap_err(), Errno::EAGAIN);
        let failed = || matches!(read_failure_event(reader.as_fd()), Ok(FailureEvent::Failed(found, message)) if found == failure && message == "why");
        let fail = || nix::unistd::write(&writer, &failure_with_message(failure, "why")).map(drop);
        fail().unwrap();
        assert!(failed());
        announce_filter(writer.as_fd()).unwrap();
        assert!(matches!(read_failure_event(reader.as_fd()), Ok(FailureEvent::FilterDue)));
        announce_filter(writer.as_fd()).and_then(|()| fail()).unwrap();
        assert!(failed(), "both at once");
        drop(writer);
        assert!(matches!(read_failure_event(reader.as_fd()), Ok(FailureEvent::Closed)));
    }
}
