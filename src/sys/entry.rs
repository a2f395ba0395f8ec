//! The entry and the exit of our programs.
//!
//! The programs define the C library's `main` and skip the start of Rust's runtime. That start takes a twentieth of a whole
//! sandbox start, for an alternate stack for overflow messages and other set-up. The necessary part of it is here.

use std::ffi::{CStr, OsStr, OsString, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::sync::OnceLock;

use nix::fcntl::{FcntlArg, fcntl};

use super::process;

static WORDS: OnceLock<Vec<OsString>> = OnceLock::new();

/// Where the kernel put the arguments and, right behind them, the environment: `/proc/PID/cmdline` and `environ` show this
/// memory.
static INITIAL_STRINGS: OnceLock<InitialStrings> = OnceLock::new();

#[derive(Debug)]
struct InitialStrings {
    start: usize,
    arguments: usize,
    length: usize,
}

impl InitialStrings {
    /// Finds the strings of both arrays, as far as they are contiguous.
    ///
    /// # Safety
    /// `words` points to `count` C strings, a null pointer, and the environment's strings up to another null pointer, as the
    /// kernel lays them out for a new program.
    unsafe fn find(count: usize, words: *const *const c_char) -> Option<Self> {
        // SAFETY: the caller guarantees the pointers and the strings.
        let string = |at: usize| unsafe { (*words.add(at)).as_ref().map(|first| CStr::from_ptr(first)) };
        let start = string(0)?.as_ptr() as usize;
        let mut strings = Self { start, arguments: 0, length: 0 };
        let environment = (count + 1..).map_while(string);
        for (index, text) in (0..count).map_while(string).chain(environment).enumerate() {
            if text.as_ptr() as usize != start + strings.length {
                break;
            }
            strings.length += text.to_bytes_with_nul().len();
            if index < count {
                strings.arguments = strings.length;
            }
        }
        Some(strings)
    }
}

/// Overwrites the arguments and the environment in this process's memory with a title. Any process may read the arguments, and
/// a tracer the environment. Only for a process that uses neither again: a child before it executes another program.
pub fn retitle(title: &CStr) {
    let Some(strings) = INITIAL_STRINGS.get() else { return };
    // The last byte stays zero: otherwise the kernel would continue into the environment.
    let length = title.count_bytes().min(strings.arguments.saturating_sub(1));
    // SAFETY: the strings that the kernel put on the stack for this program, writable and of this length. No reference to them
    // exists: the arguments were copied, and this process does not read the environment again.
    unsafe {
        let start = strings.start as *mut u8;
        std::ptr::write_bytes(start, 0, strings.length);
        std::ptr::copy_nonoverlapping(title.as_ptr().cast(), start, length);
    }
}

/// Overwrites a part of a word wherever the arguments in this process's memory have the word. What [`words`] returns stays.
pub fn hide_in_arguments(word: &[u8], part: std::ops::Range<usize>) {
    let Some(strings) = INITIAL_STRINGS.get() else { return };
    if word.is_empty() || part.end > word.len() {
        return;
    }
    // SAFETY: the strings that the kernel put on the stack for this program, writable and of this length. No reference to them
    // exists, because the arguments were copied.
    let memory = unsafe { std::slice::from_raw_parts_mut(strings.start as *mut u8, strings.arguments) };
    for at in 0..(memory.len() + 1).saturating_sub(word.len()) {
        if memory[at..].starts_with(word) {
            memory[at..][part.clone()].fill(b'*');
        }
    }
}

/// This program's arguments, the first of which is its name.
pub fn words() -> &'static [OsString] {
    WORDS.get().map_or(&[], Vec::as_slice)
}

/// Defines `main` with this function. It receives the arguments after the program's name and returns the exit code.
#[macro_export]
macro_rules! door {
    ($main:path) => {
        /// The entry point that the C library calls.
        #[allow(unsafe_code)]
        #[unsafe(no_mangle)]
        extern "C" fn main(count: ::std::ffi::c_int, words: *const *const ::std::ffi::c_char) -> ::std::ffi::c_int {
            // SAFETY: the arguments of the C library.
            unsafe { $crate::enter(count, words, $main) }
        }
    };
}

/// Runs a program and exits with the code that it returns. Used through [`door!`].
///
/// # Safety
/// `words` points to `count` C strings that stay and are followed by the environment's, as what `main` of a C program gets.
pub unsafe fn enter(count: c_int, words: *const *const c_char, main: fn(&[OsString]) -> u8) -> ! {
    open_standard_streams();
    process::ignore_broken_pipes();
    let count = usize::try_from(count).unwrap_or(0);
    // SAFETY: the caller guarantees the arguments; the C library passes the kernel's array, which includes the environment.
    if let Some(strings) = unsafe { InitialStrings::find(count, words) } {
        let _ = INITIAL_STRINGS.set(strings);
    }
    let words = (0..count).map(|index| {
        // SAFETY: the caller guarantees the strings.
        let word = unsafe { CStr::from_ptr(*words.add(index)) };
        OsStr::from_bytes(word.to_bytes()).to_owned()
    });
    let words = WORDS.get_or_init(|| words.collect());
    std::process::exit(main(words.get(1..).unwrap_or(&[])).into())
}

/// The next opened file would take the number of a closed standard stream. So a closed one is opened as /dev/null.
fn open_standard_streams() {
    for number in 0..3 {
        if fcntl(process::borrow_standard(number), FcntlArg::F_GETFD).is_err() {
            match std::fs::File::options().read(true).write(true).open("/dev/null") {
                Ok(null) => std::mem::forget(null), // the lowest free number
                Err(_) => std::process::abort(),
            }
        }
    }
}
