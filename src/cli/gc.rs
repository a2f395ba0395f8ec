//! `stockade gc`: removes the cgroups and the sessions' directories that killed supervisors left behind.

use std::fmt::Write as _;

use crate::cgroup::gc::collect;
use crate::error::{Result, printable};
use crate::session::place::sweep;

/// Prints one line for each removed cgroup.
pub fn main() -> Result<u8> {
    let collected = collect();
    let mut text = String::new();
    for path in &collected.removed {
        let _ = writeln!(text, "removed {}", printable(&path.display().to_string()));
    }
    let swept = sweep();
    for name in swept.as_deref().unwrap_or_default() {
        let _ = writeln!(text, "removed session {name}");
    }
    super::say(&text)?;
    for (_, error) in &collected.kept {
        super::print_error(error);
    }
    if let Err(error) = &swept {
        super::print_error(error);
    }
    Ok(u8::from(!collected.kept.is_empty() || swept.is_err()))
}
