//! What a process executes, compared from outside with what it was to execute.
//!
//! The sandbox's process looks its program up without the links of `/proc` and with nothing of the host open. This is the
//! other half: that the kernel, which looks the path up again in execve(2), has not ended up at a file of the host.

use std::ffi::CString;
use std::os::unix::fs::MetadataExt as _;

use crate::error::{Error, Result, Step};
use crate::sys::mount::FileOnMount;

/// Fails if a process executes a file that lies on a mount of our own mount namespace.
///
/// `looked_up` is the file that its program was when the process looked for it; any other one costs a look at our mounts. A
/// process that has ended, or that may not be looked at because its program may not be read, passes.
pub fn verify(pid: i32, looked_up: Option<FileOnMount>) -> Result<()> {
    let path = format!("/proc/{pid}/exe");
    let executed = CString::new(path.as_str()).ok().and_then(|path| FileOnMount::by_path(&path).ok());
    let Some(executed) = executed.filter(|executed| Some(*executed) != looked_up) else { return Ok(()) };
    let namespace = |of: &str| std::fs::metadata(format!("/proc/{of}/ns/mnt")).map(|found| (found.dev(), found.ino()));
    match (namespace("self"), namespace(&pid.to_string())) {
        // A container may share the mounts of its runtime.
        (Ok(own), Ok(its)) if own == its => return Ok(()),
        (Ok(_), Ok(_)) => {}
        _ => return Ok(()), // it has ended meanwhile
    }
    let failed = |error: std::io::Error| Error::new(Step::Verify, "/proc/self/mountinfo", error.to_string());
    let mounts = std::fs::read("/proc/self/mountinfo").map_err(failed)?;
    let is_ours = |line: &[u8]| {
        let number = line.split(|byte| *byte == b' ').next().and_then(|word| std::str::from_utf8(word).ok());
        number.and_then(|number| number.parse().ok()) == Some(executed.mount)
    };
    if !mounts.split(|byte| *byte == b'\n').any(is_ours) {
        return Ok(());
    }
    let program = std::fs::read_link(&path).map_or_else(|_| path, |program| program.display().to_string());
    Err(Error::new(Step::Verify, program, "was executed, and is a file of the host outside of the sandbox")
        .hint("the command, or an interpreter that it names, leads there through /proc"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_with_our_mounts_may_execute_what_is_on_them() {
        verify(std::process::id() as i32, None).unwrap();
    }

    /// A process in a mount namespace of its own that executes `sleep`, by this path; `None` where none can be made.
    fn sleeper(path: &str) -> Option<std::process::Child> {
        let script = format!("exec 5</bin/sleep; exec unshare -m {path} 100");
        let mut child = std::process::Command::new("/bin/bash").args(["-c", &script]).spawn().unwrap();
        let executed = |pid: u32| std::fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
        while !executed(child.id()).ends_with("sleep") {
            if child.try_wait().unwrap().is_some() {
                eprintln!("skipped: no mount namespace can be made");
                return None;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        Some(child)
    }

    #[test]
    fn a_process_with_other_mounts_may_not() {
        for (path, allowed) in [("/bin/sleep", true), ("/proc/self/fd/5", false)] {
            let Some(mut child) = sleeper(path) else { return };
            let result = verify(child.id() as i32, None);
            child.kill().unwrap();
            child.wait().unwrap();
            assert_eq!(result.is_ok(), allowed, "{path}: {result:?}");
        }
    }
}
