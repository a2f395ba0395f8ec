//! Regular expressions of the C library. The crate `regex` would make the program 2 MiB larger.

use std::ffi::{CString, c_char, c_int, c_void};

use nix::errno::Errno;

use super::Result;

/// `regex_t` has 64 bytes in glibc and in musl. This is larger, and aligned for its pointers.
#[repr(C, align(16))]
#[derive(Debug)]
struct Compiled(#[allow(dead_code, reason = "only the C library reads it")] [u8; 256]);

const REG_EXTENDED: c_int = 1;
/// glibc's and musl's value: no positions of subexpressions are asked for.
const REG_NOSUB: c_int = 8;

unsafe extern "C" {
    fn regcomp(compiled: *mut Compiled, pattern: *const c_char, flags: c_int) -> c_int;
    fn regexec(
        compiled: *const Compiled,
        text: *const c_char,
        count: usize,
        matches: *mut c_void,
        flags: c_int,
    ) -> c_int;
}

/// A pattern, an extended regular expression of `regex(7)`. Its memory is not freed: a command reads one.
#[derive(Debug)]
pub struct Pattern(Box<Compiled>);

impl Pattern {
    /// Compiles it. `EINVAL` if it is wrong.
    pub fn new(text: &str) -> Result<Self> {
        let text = CString::new(text).map_err(|_| Errno::EINVAL)?;
        let mut compiled = Box::new(Compiled([0; 256]));
        // SAFETY: the buffer is larger than `regex_t` and stays at its address; the text is NUL-terminated and only read.
        match unsafe { regcomp(&raw mut *compiled, text.as_ptr(), REG_EXTENDED | REG_NOSUB) } {
            0 => Ok(Self(compiled)),
            _ => Err(Errno::EINVAL),
        }
    }

    /// Whether a part of the text matches.
    pub fn matches(&self, text: &str) -> bool {
        let Ok(text) = CString::new(text) else { return false };
        // SAFETY: regcomp has filled the buffer; with no matches asked for, their array may be null.
        unsafe { regexec(&raw const *self.0, text.as_ptr(), 0, std::ptr::null_mut(), 0) == 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_the_text_matches() {
        let pattern = Pattern::new("^(web|db)-[0-9]+$").unwrap();
        assert!(pattern.matches("web-12") && pattern.matches("db-1"));
        assert!(!pattern.matches("web-") && !pattern.matches("my-web-1") && !pattern.matches("a\0b"));
        assert!(Pattern::new("b").unwrap().matches("abc"));
        assert!(Pattern::new("(").is_err() && Pattern::new("a\0").is_err());
    }
}
