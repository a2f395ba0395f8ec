//! The first and the last thing that our programs do.
//!
//! They have a `main` of the C library's, without the start of Rust's runtime around it: that makes a second stack to tell of
//! an overflow of the first on, and with what else it asks for it is a twentieth of a start. What matters of it is here.

use std::ffi::{CStr, OsStr, OsString, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::sync::OnceLock;

use nix::fcntl::{FcntlArg, fcntl};

use super::process;

static WORDS: OnceLock<Vec<OsString>> = OnceLock::new();

/// This program's arguments, the first of which is its name.
pub fn words() -> &'static [OsString] {
    WORDS.get().map_or(&[], Vec::as_slice)
}

/// Makes a function the `main` of a program: it gets the arguments after the program's name, and returns the exit code.
#[macro_export]
macro_rules! door {
    ($main:path) => {
        /// What the C library calls.
        #[allow(unsafe_code)]
        #[unsafe(no_mangle)]
        extern "C" fn main(count: ::std::ffi::c_int, words: *const *const ::std::ffi::c_char) -> ::std::ffi::c_int {
            // SAFETY: these are what the C library gives.
            unsafe { $crate::enter(count, words, $main) }
        }
    };
}

/// Runs a program and ends with the exit code that it returns. Used through [`door!`].
///
/// # Safety
/// `words` points to `count` C strings that stay, as what `main` of a C program gets does.
pub unsafe fn enter(count: c_int, words: *const *const c_char, main: fn(&[OsString]) -> u8) -> ! {
    open_standard_streams();
    process::ignore_broken_pipes();
    let words = (0..usize::try_from(count).unwrap_or(0)).map(|index| {
        // SAFETY: the caller vouches for them.
        let word = unsafe { CStr::from_ptr(*words.add(index)) };
        OsStr::from_bytes(word.to_bytes()).to_owned()
    });
    let words = WORDS.get_or_init(|| words.collect());
    std::process::exit(main(words.get(1..).unwrap_or(&[])).into())
}

/// A standard stream that is closed would become whatever is opened next. Then it is /dev/null.
fn open_standard_streams() {
    for number in 0..3 {
        if fcntl(process::borrow_standard(number), FcntlArg::F_GETFD).is_err() {
            match std::fs::File::options().read(true).write(true).open("/dev/null") {
                Ok(null) => std::mem::forget(null), // the lowest number that is free
                Err(_) => std::process::abort(),
            }
        }
    }
}
