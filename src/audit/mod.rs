//! The audit log: one line a run, also a refused one, each with the hash of what is before it.
//!
//! [`Log`] appends, by any number of processes at once; [`verify`] follows the chain and names the first line that breaks it.
//! What a line says is [`Line`].
//!
//! A line is *torn* when it is not whole: its writer or the machine died in the middle. Nothing is ever taken away from a log
//! but what the same writer has just failed to append, so a torn line stays; the next writer ends it, says in its own line how
//! many bytes it was (`torn_bytes`), and hashes it along with the last whole line. Hence:
//!
//! `prev_sha256` is the SHA-256 of everything from the beginning of the last whole line up to this one, newlines included;
//! `null` at the beginning of the file.

mod line;
mod log;
mod verify;

pub use line::{ErrorCode, Line, Printed, SCHEMA, Totals};
pub use log::{Log, locate};
pub use verify::{Chain, verify};

/// Longest line, with its newline. Ours are about 1 KiB; every field of theirs is bounded.
const MAX_LINE: usize = 16 << 10;

/// What every line begins with, as far as it goes.
const PREFIX: &[u8] = br#"{"schema":"stockade/audit/v1","#;

/// Whether bytes that are no line can be what is left of one. After a power cut some file systems show zeros for what was
/// not written.
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
    fn only_the_beginning_of_a_line_can_be_left_of_one() {
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
