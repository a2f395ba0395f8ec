//! Hooks: programs of the administrator's that run at the stages of a container's life, with its state on standard input.

use std::ffi::OsStr;
use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::Pid;

use crate::error::{Error, Result, Step};
use crate::plan::container::{Hook, Hooks};
use crate::sys::{image, process};

/// Most of what a failed hook said that is passed on.
const MOST_SAID: u64 = 2048;

/// Runs hooks one after the other; the first that fails ends it.
pub fn run(stage: &str, hooks: &[Hook], state: &str) -> Result<()> {
    for (index, hook) in hooks.iter().enumerate() {
        run_one(hook, state)
            .map_err(|reason| Error::new(Step::Hook, format!("{stage}[{index}] {}", hook.path), reason))?;
    }
    Ok(())
}

fn run_one(hook: &Hook, state: &str) -> std::result::Result<(), String> {
    let said = image::memory_file(c"hook").map_err(|errno| errno.to_string())?;
    let mut said = std::fs::File::from(said);
    let bytes = |text: &crate::plan::Bytes| OsStr::from_bytes(text.as_bytes()).to_owned();
    let mut command = Command::new(hook.path.as_path());
    if let Some((name, rest)) = hook.args.split_first() {
        command.arg0(bytes(name)).args(rest.iter().map(bytes));
    }
    command.env_clear();
    for variable in &hook.env {
        let mut parts = variable.as_bytes().splitn(2, |byte| *byte == b'=');
        let (name, value) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        if !name.is_empty() {
            command.env(OsStr::from_bytes(name), OsStr::from_bytes(value));
        }
    }
    let copy = said.try_clone().map_err(|error| error.to_string())?;
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(copy);
    command.process_group(0); // so that all of it can be killed
    let mut child = command.spawn().map_err(|error| error.to_string())?;
    if let Some(mut stdin) = child.stdin.take() {
        let _ = stdin.write_all(state.as_bytes()); // one that does not read it need not
    }
    let status = wait(&mut child, hook.timeout_s)?;
    if status.success() {
        return Ok(());
    }
    let mut text = String::new();
    let _ = said.rewind().and_then(|()| said.take(MOST_SAID).read_to_string(&mut text));
    let how = match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (_, Some(signal)) => format!("signal {signal}"),
        _ => "an unknown end".to_owned(),
    };
    Err(if text.trim().is_empty() { how } else { format!("{how}: {}", text.trim()) })
}

fn wait(child: &mut Child, timeout_s: Option<u64>) -> std::result::Result<std::process::ExitStatus, String> {
    let Some(seconds) = timeout_s else { return child.wait().map_err(|error| error.to_string()) };
    let pid = Pid::from_raw(child.id() as i32);
    let pidfd = process::pidfd_open(pid).map_err(|errno| errno.to_string())?;
    let deadline = std::time::Instant::now() + Duration::from_secs(seconds.min(u64::from(u32::MAX)));
    loop {
        let left = deadline.saturating_duration_since(std::time::Instant::now());
        let timeout = PollTimeout::try_from(left.as_millis()).unwrap_or(PollTimeout::MAX);
        let readable = PollFd::new(std::os::fd::AsFd::as_fd(&pidfd), PollFlags::POLLIN);
        match poll(&mut [readable], timeout) {
            Ok(0) if deadline <= std::time::Instant::now() => {
                let _ = process::kill_group(pid, libc::SIGKILL);
                let _ = child.wait();
                return Err(format!("took longer than {seconds} s and was killed"));
            }
            Ok(0) | Err(nix::errno::Errno::EINTR) => {}
            Ok(_) => return child.wait().map_err(|error| error.to_string()),
            Err(errno) => return Err(errno.to_string()),
        }
    }
}

/// The hooks that the container's own process runs, one list after the other: what the index of a failure means.
pub fn named(hooks: &Hooks, index: usize) -> Option<String> {
    let container = hooks.create_container.iter().enumerate().map(|(at, hook)| ("createContainer", at, hook));
    let start = hooks.start_container.iter().enumerate().map(|(at, hook)| ("startContainer", at, hook));
    container.chain(start).nth(index).map(|(stage, at, hook)| format!("{stage}[{at}] {}", hook.path))
}
