//! Programs of the host that are run for what they say: `ps(1)`, `newuidmap(1)`.

use std::fs::File;
use std::io::{Read as _, Result, Seek as _};
use std::process::{Command, Output};

use nix::sys::memfd::{MFdFlags, memfd_create};

/// Runs one to its end; what it says is kept in memory.
///
/// The standard library does so with pipes, and panics where one cannot be read or be made not to block.
pub fn output(command: &mut Command) -> Result<Output> {
    let (out, err) = (memory()?, memory()?);
    let status = command.stdout(out.try_clone()?).stderr(err.try_clone()?).status()?;
    Ok(Output { status, stdout: read(out)?, stderr: read(err)? })
}

fn memory() -> Result<File> {
    Ok(File::from(memfd_create(c"output", MFdFlags::MFD_CLOEXEC)?))
}

fn read(mut file: File) -> Result<Vec<u8>> {
    let mut said = Vec::new();
    file.rewind()?; // the program's writes have moved it
    file.read_to_end(&mut said)?;
    Ok(said)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_streams_and_the_status_are_told_apart() {
        let said = output(Command::new("sh").args(["-c", "echo out; echo err >&2; exit 3"])).unwrap();
        assert_eq!((said.status.code(), &*said.stdout, &*said.stderr), (Some(3), &b"out\n"[..], &b"err\n"[..]));
        assert!(output(&mut Command::new("/nowhere")).is_err());
    }
}
