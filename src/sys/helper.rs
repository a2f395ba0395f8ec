//! Runs programs of the host: `ps(1)`, `newuidmap(1)`, `criu(8)`, hooks.

use std::fs::{File, Metadata};
use std::io::{Read as _, Result, Seek as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use nix::sys::memfd::{MFdFlags, memfd_create};

/// The directories in which systems keep programs that root installs.
const SYSTEM: [&str; 8] = [
    "/usr/local/sbin",
    "/usr/local/bin",
    "/usr/sbin",
    "/usr/bin",
    "/sbin",
    "/bin",
    "/run/wrappers/bin", // NixOS
    "/run/current-system/sw/bin",
];

/// Finds a program on PATH or, without PATH, in the system's directories. Relative and empty entries are skipped. So are
/// programs that a user other than root could have placed, because the program will run with our privileges.
pub fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_else(|| SYSTEM.join(":").into());
    let found = std::env::split_paths(&path).filter(|entry| entry.is_absolute()).map(|entry| entry.join(name));
    let runs =
        |file: &Path| file.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0);
    found.into_iter().find(|file| runs(file) && is_trusted(file))
}

/// Whether only root can change or replace the file.
fn is_trusted(file: &Path) -> bool {
    let is_others = |found: &Metadata| found.mode() & 0o002 != 0 || found.mode() & 0o020 != 0 && found.gid() != 0;
    let is_roots = |path: &Path| {
        let Ok(found) = path.symlink_metadata() else { return false };
        let is_sticky = |above: &Metadata| above.mode() & 0o1000 != 0;
        let above = path.parent().map(Path::symlink_metadata);
        let in_place = above.is_none_or(|above| above.is_ok_and(|above| !is_others(&above) || is_sticky(&above)));
        found.uid() == 0 && in_place && (found.is_dir() || !is_others(&found))
    };
    // Inside a user namespace the owners of these directories are not always visible.
    let is_systems = file.parent().is_some_and(|parent| SYSTEM.iter().any(|known| Path::new(known) == parent));
    is_systems || file.canonicalize().is_ok_and(|real| real.ancestors().all(is_roots))
}

/// Runs a program to its end and collects its output.
///
/// The standard library does this with pipes, and panics if a pipe cannot be read or made non-blocking.
pub fn output(command: &mut Command) -> Result<Output> {
    let (out, err) = (memory()?, memory()?);
    let status = command.stdout(out.try_clone()?).stderr(err.try_clone()?).status()?;
    Ok(Output { status, stdout: read(out)?, stderr: read(err)? })
}

/// Runs `act` in the process that a command creates, right before its execve. Nothing that the C library or `act` does there
/// may rely on memory of other threads.
pub fn before_execve(command: &mut Command, mut act: impl FnMut() -> super::Result<()> + Send + Sync + 'static) {
    use std::os::unix::process::CommandExt as _;
    let act = move || act().map_err(std::io::Error::from);
    // SAFETY: this process has one thread, so its child may call anything.
    unsafe { command.pre_exec(act) };
}

fn memory() -> Result<File> {
    Ok(File::from(memfd_create(c"output", MFdFlags::MFD_CLOEXEC)?))
}

fn read(mut file: File) -> Result<Vec<u8>> {
    let mut said = Vec::new();
    file.rewind()?; // the program's writes have moved the position
    file.read_to_end(&mut said)?;
    Ok(said)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_programs_of_root_are_found() {
        assert!(find("sh").is_some_and(|sh| sh.is_absolute()));
        assert_eq!(find("stockade-no-such-program"), None);
        assert!(is_trusted(Path::new("/usr/bin/env")));
        let directory = std::env::temp_dir().join(format!("stockade-helper-{}", std::process::id()));
        std::fs::create_dir(&directory).unwrap();
        let file = directory.join("program");
        std::fs::write(&file, "").unwrap();
        let root = nix::unistd::geteuid().is_root();
        assert_eq!(is_trusted(&file), root);
        std::fs::set_permissions(&directory, PermissionsExt::from_mode(0o777)).unwrap();
        assert!(!is_trusted(&file));
        std::fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn both_streams_and_the_status_are_told_apart() {
        let said = output(Command::new("sh").args(["-c", "echo out; echo err >&2; exit 3"])).unwrap();
        assert_eq!((said.status.code(), &*said.stdout, &*said.stderr), (Some(3), &b"out\n"[..], &b"err\n"[..]));
        assert!(output(&mut Command::new("/nowhere")).is_err());
    }
}
