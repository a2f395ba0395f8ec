//! Reads the values of flags.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use crate::args::Args;
use crate::error::{Error, Result, Step};
use crate::plan::Bytes;
use crate::policy::value::Value;

/// An error about a flag.
pub fn wrong(flag: &str, reason: String) -> Error {
    Error::new(Step::Usage, format!("--{flag}"), reason)
}

/// The value of a flag.
pub fn one<T: Value>(args: &Args, flag: &str) -> Result<Option<T>> {
    args.value(flag).map(|word| T::parse(word.as_bytes())).transpose().map_err(|reason| wrong(flag, reason))
}

/// The values of a flag that may be given several times.
pub fn many<T: Value>(args: &Args, flag: &str) -> Result<Vec<T>> {
    args.all(flag).map(|word| T::parse(word.as_bytes()).map_err(|reason| wrong(flag, reason))).collect()
}

/// A word in quotes, for messages.
pub fn shown(word: &OsStr) -> String {
    format!("\"{}\"", Bytes::from(word))
}
