//! `stockade gc`: removes what killed supervisors left behind.

use std::ffi::OsString;
use std::fmt::Write as _;

use crate::cgroup::gc::collect;
use crate::error::{Result, printable};

/// Removes it, and prints one line for each thing that is gone.
pub fn main(words: &[OsString]) -> Result<u8> {
    let Some(_) = super::read("gc", words)? else { return Ok(0) };
    let collected = collect();
    let mut text = String::new();
    for path in &collected.removed {
        let _ = writeln!(text, "removed {}", printable(&path.display().to_string()));
    }
    super::say(&text)?;
    for (_, error) in &collected.kept {
        super::complain(error);
    }
    Ok(u8::from(!collected.kept.is_empty()))
}
