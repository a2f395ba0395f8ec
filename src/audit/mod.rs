//! The audit log: one line for each run, including refused ones. Each line has the hash of the line before it.
//!
//! [`Log`] appends; any number of processes may append at once. [`verify`] checks the chain and names the first line that
//! breaks it. [`Line`] is the content of a line.
//!
//! A line is *torn* if it is incomplete, because its writer or the machine died. A writer removes only bytes that it has just
//! failed to append, so a torn line stays. The next writer terminates it, records its length (`torn_bytes`), and hashes it
//! together with the last complete line. Hence:
//!
//! `prev_sha256` is the SHA-256 of all bytes from the beginning of the last complete line up to this one, newlines included;
//! `null` at the beginning of the file.

mod line;
mod log;
mod verify;

pub use line::{ErrorCode, Line, Printed, SCHEMA, Totals};
pub use log::{Log, locate};
pub use verify::{Chain, verify};

/// The longest line, with its newline. Lines are about 1 KiB, because every field has a bounded length.
const MAX_LINE: usize = 16 << 10;

/// The beginning of every line.
const PREFIX: &[u8] = br#"{"schema":"stockade/audit/v1","#;

/// Whether bytes that are not a line can be the rest of a torn one. After a power failure some file systems return zeros for
/// unwritten blocks.
fn is_torn(piece: &[u8]) -> bool {
    let piece = piece.strip_suffix(b"\n").unwrap_or(piece);
    let end = piece.iter().position(|byte| *byte == 0).unwrap_or(piece.len());
    let (start, rest) = piece.split_at(end);
    let zeros = rest.iter().all(|byte| *byte == 0);
    zeros && piece.len() < MAX_LINE && (start.starts_with(PREFIX) || PREFIX.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_beginning_of_a_line_counts_as_torn() {
        let whole = br#"{"schema":"stockade/audit/v1","started_at":"x"}"#;
        for length in 0..whole.len() {
            assert!(is_torn(&whole[..length]));
            assert!(is_torn(&[&whole[..length], &[0; 9], b"\n"].concat()));
        }
        for other in [&b"root:x:0:0"[..], b"{}", b"{\"schema\":\"x", b" ", b"\0\0x"] {
            assert!(!is_torn(other));
        }
    }
}
