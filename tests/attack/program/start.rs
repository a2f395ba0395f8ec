//! Deceptions at a start: D59 and D60.

use libc::{O_CREAT, O_RDONLY, O_WRONLY};

use crate::kernel::{call, open, path, read};
use crate::{RIG, Stop, attempt};

pub fn run(id: &str, way: &str) -> bool {
    match id {
        "D59" => attempt("be executed from the host", own_program),
        "D60" if way.is_empty() => attempt("leave a link in the place of a source", leave_link),
        "D60" => use_source(way),
        _ => return false,
    }
    true
}

/// The rig appended a secret to the program's file: this process can print it only if it runs the host's file.
fn own_program() -> crate::Outcome {
    let program = std::fs::read("/proc/self/exe").map_err(|error| error.raw_os_error().unwrap_or(0))?;
    let secret = &program[program.len().saturating_sub(80)..];
    Ok(String::from_utf8_lossy(secret).trim_matches(|c: char| !c.is_ascii_alphanumeric()).to_owned())
}

fn leave_link() -> crate::Outcome {
    let source = format!("{RIG}/ws/cache");
    call(libc::SYS_rmdir, &[path(&source)])?;
    call(libc::SYS_symlink, &[path(&format!("{RIG}/host")), path(&source)])?;
    Err(Stop::Absent("left; the next run tells".into()))
}

fn use_source(place: &str) {
    attempt("read what it leads to", || Ok(read(&format!("{place}/secret"))?));
    attempt("write what it leads to", || {
        open(&format!("{place}/planted"), O_CREAT | O_WRONLY)?;
        Ok(String::new())
    });
    attempt("open it", || {
        open(&format!("{place}/target"), O_RDONLY)?;
        Ok(String::new())
    });
}
