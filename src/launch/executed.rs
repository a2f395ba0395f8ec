//! Verifies from outside which file a process executes.
//!
//! The sandbox's process looks its program up without the links of `/proc` and with no descriptor of the host open. But
//! execve(2) resolves the path again. This check ensures that it did not resolve to a file of the host.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::error::{Error, Result, Step};
use crate::sys::mount::FileOnMount;
use crate::sys::{file, mountinfo, schedule};

/// How long a process may still show our own program. The change takes the kernel a few instructions, but the machine may be
/// busy.
const LONGEST_CHANGE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_micros(200);

/// Fails if a process executes a file on a mount of our own mount namespace.
///
/// `looked_up` is the file that the process found for its program; for any other file our mounts are read. A process that has
/// ended, or that cannot be inspected because its program is not readable, passes.
pub fn verify(pid: i32, looked_up: Option<FileOnMount>) -> Result<()> {
    let path = format!("/proc/{pid}/exe");
    let executed = || {
        let found = CString::new(path.as_str()).ok().and_then(|path| FileOnMount::by_path(&path).ok());
        found.filter(|executed| Some(*executed) != looked_up)
    };
    let Some(mut found) = executed() else { return Ok(()) };
    // After execve is reported, the process may show our own program for a moment longer.
    let own = FileOnMount::by_path(c"/proc/self/exe").ok();
    let until = Instant::now() + LONGEST_CHANGE;
    while Some(found) == own && Instant::now() < until {
        schedule::pause(PAUSE);
        let Some(now) = executed() else { return Ok(()) };
        found = now;
    }
    let executed = found;
    let process = pid.to_string();
    let is_shared = |namespace: &str| {
        let of = |process: &str| std::fs::metadata(format!("/proc/{process}/ns/{namespace}"));
        Some((of("self").ok()?, of(&process).ok()?)).map(|(own, its)| (own.dev(), own.ino()) == (its.dev(), its.ino()))
    };
    // A container may share the runtime's mounts. Or it shares the runtime's processes, and reaches every program through their
    // roots. A process whose namespaces cannot be read has ended.
    if is_shared("mnt") != Some(false) || is_shared("pid") != Some(false) {
        return Ok(());
    }
    let failed = |errno| Error::errno(Step::Verify, mountinfo::OWN, errno);
    let mounts = file::read(mountinfo::OWN).map_err(failed)?;
    if !mountinfo::parse(&mounts).any(|mount| mount.id == executed.mount) {
        return Ok(());
    }
    let program = std::fs::read_link(&path).unwrap_or_else(|_| path.into());
    if is_registered(program.as_os_str().as_bytes(), Path::new("/proc/sys/fs/binfmt_misc")) {
        return Ok(());
    }
    let program = program.display().to_string();
    Err(Error::new(Step::Verify, program, "was executed, but it is a file of the host outside the sandbox")
        .hint("the command, or an interpreter that it names, leads to it through /proc"))
}

/// Whether the administrator registered this program as an interpreter for every root, as for foreign architectures:
/// `binfmt_misc`, flag F. The kernel opened the file at registration, so its name may mean another file by now.
fn is_registered(program: &[u8], registered: &Path) -> bool {
    let program = program.strip_suffix(b" (deleted)").unwrap_or(program);
    let entries = std::fs::read_dir(registered).into_iter().flatten().flatten();
    let names_it = |text: Vec<u8>| {
        let value = |key: &[u8]| text.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(key));
        value(b"interpreter ") == Some(program) && value(b"flags: ").is_some_and(|flags| flags.contains(&b'F'))
    };
    // `register` is write-only, so reading it fails.
    entries.filter_map(|entry| std::fs::read(entry.path()).ok()).any(names_it)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_registered_for_every_root_is_an_interpreter() {
        let directory = std::env::temp_dir().join(format!("stockade-binfmt-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let register = |flags: &str| {
            let text = format!("enabled\ninterpreter /usr/bin/qemu-arm\nflags: {flags}\noffset 0\nmagic 7f\n");
            std::fs::write(directory.join("arm"), text).unwrap();
        };
        register("POCF");
        assert!(is_registered(b"/usr/bin/qemu-arm", &directory));
        assert!(is_registered(b"/usr/bin/qemu-arm (deleted)", &directory), "replaced by a newer file");
        assert!(!is_registered(b"/usr/bin/qemu", &directory));
        register("OC");
        assert!(
            !is_registered(b"/usr/bin/qemu-arm", &directory),
            "an interpreter that is looked up in the container's root"
        );
        std::fs::remove_dir_all(&directory).unwrap();
        assert!(!is_registered(b"/usr/bin/qemu-arm", &directory));
    }

    #[test]
    fn a_process_with_our_mounts_may_execute_what_is_on_them() {
        verify(std::process::id() as i32, None).unwrap();
    }

    /// A process in new mount and pid namespaces that executes `sleep` by this path, and its parent. `None` if namespaces
    /// cannot be created.
    fn sleeper(path: &str) -> Option<(i32, std::process::Child)> {
        let script = format!("exec 5</bin/sleep; exec unshare -m -p --fork --kill-child {path} 100");
        let mut first = std::process::Command::new("/bin/bash").args(["-c", &script]).spawn().unwrap();
        let children = format!("/proc/{0}/task/{0}/children", first.id());
        loop {
            let child = std::fs::read_to_string(&children).unwrap_or_default().trim().parse::<i32>();
            let executes =
                |pid: &i32| std::fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe.ends_with("sleep"));
            if let Some(pid) = child.ok().filter(executes) {
                return Some((pid, first));
            }
            if first.try_wait().unwrap().is_some() {
                eprintln!("skipped: namespaces cannot be created");
                return None;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }

    #[test]
    fn a_process_with_other_mounts_may_not() {
        for (path, allowed) in [("/bin/sleep", true), ("/proc/self/fd/5", false)] {
            let Some((pid, mut first)) = sleeper(path) else { return };
            let result = verify(pid, None);
            first.kill().unwrap();
            first.wait().unwrap();
            assert_eq!(result.is_ok(), allowed, "{path}: {result:?}");
        }
    }
}
