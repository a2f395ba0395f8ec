//! `stockade gc`: removes the cgroups, scratch directories and sessions' directories that killed supervisors left behind.

use std::fmt::Write as _;

use crate::cgroup::gc::collect;
use crate::confine::user;
use crate::error::{Result, printable};
use crate::rootfs::scratch_directory::ScratchDirectory;
use crate::session::place::sweep;

/// Prints one line for each that was removed.
pub fn main() -> Result<u8> {
    let collected = collect();
    let (mut removed, mut errors) = (collected.removed, Vec::new());
    for scratch in ScratchDirectory::left(user::is_workloads) {
        match scratch.remove() {
            Ok(()) => removed.push(scratch.path().to_owned()),
            Err(error) => errors.push(error),
        }
    }
    let mut text = String::new();
    for path in &removed {
        let _ = writeln!(text, "removed {}", printable(&path.display().to_string()));
    }
    let swept = sweep();
    for name in swept.as_deref().unwrap_or_default() {
        let _ = writeln!(text, "removed session {name}");
    }
    super::say(&text)?;
    errors.extend(collected.kept.into_iter().map(|(_, error)| error).chain(swept.err()));
    errors.iter().for_each(super::print_error);
    Ok(u8::from(!errors.is_empty()))
}
