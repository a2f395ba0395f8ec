//! C programs for tests, compiled once for all of them.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Compiles a program, or returns the one that an earlier test compiled. The error is the compiler's output.
pub fn compiled(compiler: &str, options: &[&str], source: &str) -> Result<PathBuf, String> {
    let mut hasher = DefaultHasher::new();
    (compiler, options, source).hash(&mut hasher);
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("c-{:016x}", hasher.finish()));
    if program.exists() {
        return Ok(program);
    }
    let own = |extension: &str| program.with_extension(format!("{}{extension}", std::process::id()));
    let (text, new) = (own(".c"), own(""));
    std::fs::write(&text, source).map_err(|error| format!("{}: {error}", text.display()))?;
    // The options come last, because they contain libraries.
    let output = Command::new(compiler).arg("-o").arg(&new).arg(&text).args(options).output();
    let _ = std::fs::remove_file(&text);
    let output = output.map_err(|error| format!("{compiler}: {error}"))?;
    if !output.status.success() {
        return Err(format!("{compiler} {options:?}: {}", String::from_utf8_lossy(&output.stderr)));
    }
    // Another test may have compiled it at the same time.
    std::fs::rename(&new, &program).map_err(|error| format!("{}: {error}", program.display()))?;
    Ok(program)
}
