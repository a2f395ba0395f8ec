//! The measured programs, as an installation has them.

use std::path::Path;
use std::sync::LazyLock;

/// The measured `stockade`.
pub static STOCKADE: LazyLock<String> = LazyLock::new(|| installed(env!("CARGO_BIN_EXE_stockade")));
/// The measured `stockade-oci`.
pub static STOCKADE_OCI: LazyLock<String> = LazyLock::new(|| installed(env!("CARGO_BIN_EXE_stockade-oci")));

/// Copies a built program, as an installation does. The linker writes in small pieces and the kernel caches the file in small
/// pieces, so a start of the original has more page faults and takes up to 5 % longer.
pub fn installed(built: &str) -> String {
    let name = Path::new(built).file_name().unwrap_or_default();
    let copy = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_file(&copy);
    match std::fs::copy(built, &copy) {
        Ok(_) => copy.display().to_string(),
        Err(error) => {
            eprintln!("startup: {}: {error}: measured as it was built", copy.display());
            built.to_owned()
        }
    }
}
