//! Hooks: the administrator's programs at the stages of a container's life. They read the container's state from standard
//! input.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{Read as _, Seek as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use nix::fcntl::{OFlag, openat};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::stat::Mode;
use nix::unistd::Pid;

use super::hook_output::Output;
use crate::confine::seccomp::install::PreparedSeccomp;
use crate::error::{Error, Result, Step, errno_of};
use crate::failure::{Applied, During};
use crate::plan::Bytes;
use crate::plan::container::{Hook, HookFiles, Hooks};
use crate::sys::{helper, image, process};

/// Most bytes of a failed hook's standard error that are reported: the last ones.
const MAX_FAILURE_MESSAGE: usize = 1024;

/// How long standard error is still read after the hook has ended. Its descendants may keep it open.
const OUTPUT_GRACE: Duration = Duration::from_millis(100);

/// Runs hooks one after the other and stops at the first failure.
pub fn run(stage: &str, hooks: &[Hook], files: &HookFiles, state: &str) -> Result<()> {
    let (environment, output) = (inherited_by(hooks), Output::of(hooks, files)?);
    let inherited = Inherited { environment: &environment, output: &output, filter: None };
    for (index, hook) in hooks.iter().enumerate() {
        run_one(hook, state, inherited)
            .map_err(|reason| Error::new(Step::Hook, format!("{stage}[{index}] {}", hook.path), reason))?;
    }
    Ok(())
}

/// Runs the hooks of a stage from the container's own process. `first` is the index of the first among all that it runs.
/// `inherited` is the environment of those that have none of their own.
pub fn run_inside(
    all: &[Hook],
    first: usize,
    inherited: Inherited<'_>,
    state: &dyn Fn(i32, &str) -> String,
    status: &str,
    hook_message: &mut String,
) -> Applied {
    if all.is_empty() {
        return Ok(());
    }
    let state = state(std::process::id() as i32, status);
    for (index, hook) in all.iter().enumerate() {
        run_one(hook, &state, inherited)
            .map_err(|message| {
                *hook_message = message;
                nix::errno::Errno::ECANCELED
            })
            .during(Step::Hook, first + index)?;
    }
    Ok(())
}

/// This process's environment, if one of these hooks has none of its own, as with runc and crun.
pub fn inherited_by(hooks: &[Hook]) -> Vec<Bytes> {
    if hooks.iter().all(|hook| hook.env.is_some()) {
        return Vec::new();
    }
    let variable = |(name, value): (OsString, OsString)| [name.as_bytes(), b"=", value.as_bytes()].concat().into();
    std::env::vars_os().filter(|(name, _)| name != image::PROTECTED).map(variable).collect()
}

/// What a hook gets from the process that starts it.
#[derive(Clone, Copy, Debug)]
pub struct Inherited<'a> {
    /// Its environment, if it has none of its own.
    pub environment: &'a [Bytes],
    /// The files for its output.
    pub output: &'a Output,
    /// Its system call filter, if this process has not installed it yet.
    pub filter: Option<&'a PreparedSeccomp>,
}

/// Runs one hook. The error is a message.
fn run_one(hook: &Hook, state: &str, inherited: Inherited<'_>) -> std::result::Result<(), String> {
    let failed = |errno: nix::errno::Errno| errno.to_string();
    let (reads, says) = nix::unistd::pipe2(OFlag::O_CLOEXEC).map_err(failed)?;
    let bytes = |text: &Bytes| OsStr::from_bytes(text.as_bytes()).to_owned();
    let mut command = Command::new(hook.path.as_path());
    if let Some((name, rest)) = hook.args.split_first() {
        command.arg0(bytes(name)).args(rest.iter().map(bytes));
    }
    command.env_clear();
    for variable in hook.env.as_deref().unwrap_or(inherited.environment) {
        let mut parts = variable.as_bytes().splitn(2, |byte| *byte == b'=');
        let (name, value) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        if !name.is_empty() {
            command.env(OsStr::from_bytes(name), OsStr::from_bytes(value));
        }
    }
    // A file instead of a pipe: a hook need not read its state, and a slow reader delays nothing.
    let mut input = File::from(image::memory_file(c"state").map_err(failed)?);
    input.write_all(state.as_bytes()).and_then(|()| input.rewind()).map_err(|error| error.to_string())?;
    let own = |error: std::io::Error| error.to_string();
    command
        .stdin(input)
        .stdout(inherited.output.stdout().map_err(own)?)
        .stderr(inherited.output.stderr(says).map_err(own)?);
    command.process_group(0); // so that the whole group can be killed
    if let Some(filter) = inherited.filter.cloned() {
        helper::before_execve(&mut command, move || {
            filter.apply().map(std::mem::forget).map_err(|failure| failure.errno)
        });
    }
    let before = hook.timeout_s.map(|_| Adopted::begin());
    let mut child = command.spawn().map_err(|error| error.to_string())?;
    drop(command); // closes our copy of its standard error
    let pid = Pid::from_raw(child.id() as i32);
    let pidfd = process::pidfd_open(pid).map_err(failed)?;
    let deadline = hook.timeout_s.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let mut output = ErrorOutput::new(reads);
    let ended = output.listen(&pidfd, deadline).map_err(failed)?;
    if !ended {
        let _ = process::kill_group(pid, libc::SIGKILL);
        let _ = child.wait();
        if let Some(before) = before {
            before.kill_others();
        }
        let seconds = hook.timeout_s.unwrap_or(0);
        return Err(with_text(format!("took longer than {seconds} s and was killed"), &output.text()));
    }
    let status: ExitStatus = child.wait().map_err(|error| error.to_string())?;
    if status.success() {
        return Ok(());
    }
    let how = match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (_, Some(signal)) => format!("signal {signal}"),
        _ => "an unknown end".to_owned(),
    };
    Err(with_text(how, &output.text()))
}

fn with_text(how: String, text: &str) -> String {
    if text.is_empty() { how } else { format!("{how}: {text}") }
}

/// The last part of a hook's standard error.
struct ErrorOutput {
    pipe: File,
    tail: Vec<u8>,
}

impl ErrorOutput {
    fn new(pipe: OwnedFd) -> Self {
        let _ = nix::fcntl::fcntl(&pipe, nix::fcntl::FcntlArg::F_SETFL(OFlag::O_NONBLOCK));
        Self { pipe: File::from(pipe), tail: Vec::new() }
    }

    /// Reads until the hook has ended and its output is complete. Returns `false` at the deadline.
    fn listen(&mut self, process: &OwnedFd, deadline: Option<Instant>) -> nix::Result<bool> {
        let (mut open, mut last) = (true, None);
        loop {
            let until = last.or(deadline);
            let left = until.map(|until: Instant| until.saturating_duration_since(Instant::now()));
            let timeout = match left {
                // Rounded up: otherwise the last millisecond would be a busy loop.
                Some(left) => PollTimeout::try_from(left.as_millis() + 1).unwrap_or(PollTimeout::MAX),
                None => PollTimeout::NONE,
            };
            let mut polled = Vec::new();
            if last.is_none() {
                polled.push(PollFd::new(process.as_fd(), PollFlags::POLLIN));
            }
            if open {
                polled.push(PollFd::new(self.pipe.as_fd(), PollFlags::POLLIN));
            }
            if polled.is_empty() {
                return Ok(true);
            }
            match poll(&mut polled, timeout) {
                Err(nix::errno::Errno::EINTR) => continue,
                polled => polled?,
            };
            let ready: Vec<bool> = polled.iter().map(|fd| fd.any().unwrap_or(true)).collect();
            let ended = last.is_none() && ready.first() == Some(&true);
            if open && ready.last() == Some(&true) {
                open = self.read();
            }
            if ended {
                // Other processes may still hold its standard error open, and may never close it.
                last = Some(Instant::now() + OUTPUT_GRACE);
            }
            if until.is_some_and(|until| until <= Instant::now()) && !ended {
                return Ok(last.is_some());
            }
        }
    }

    /// Returns whether more may follow.
    fn read(&mut self) -> bool {
        let mut chunk = [0; 4096];
        match self.pipe.read(&mut chunk) {
            Ok(0) => false,
            Ok(length) => {
                self.tail.extend_from_slice(&chunk[..length]);
                self.tail.drain(..self.tail.len().saturating_sub(MAX_FAILURE_MESSAGE));
                true
            }
            Err(error) => matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::Interrupted),
        }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.tail).trim().to_owned()
    }
}

/// While this exists, orphans of a hook become our children. So a descendant cannot escape by a session of its own.
struct Adopted {
    known: Vec<i32>,
    was: bool,
}

impl Adopted {
    fn begin() -> Self {
        let was = nix::sys::prctl::get_child_subreaper().unwrap_or(false);
        let _ = process::adopt_orphans(true);
        Self { known: children(), was }
    }

    /// Kills every child that did not exist before, and the children that these leave.
    fn kill_others(&self) {
        for _ in 0..1000 {
            let others: Vec<i32> = children().into_iter().filter(|pid| !self.known.contains(pid)).collect();
            if others.is_empty() {
                return;
            }
            for pid in others.into_iter().map(Pid::from_raw) {
                // Only we reap it, so the id cannot belong to another process.
                let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL);
                let _ = process::wait4(pid);
            }
        }
    }
}

impl Drop for Adopted {
    fn drop(&mut self) {
        let _ = process::adopt_orphans(self.was);
    }
}

/// Our children, read from the host's procfs. Inside a container `/proc` could be a directory of the image that contains a
/// FIFO.
fn children() -> Vec<i32> {
    let list = || -> nix::Result<String> {
        let proc = crate::rootfs::host_proc()?;
        let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC;
        let mut list = File::from(openat(&proc, c"thread-self/children", flags, Mode::empty())?);
        let mut text = String::new();
        list.read_to_string(&mut text).map_err(|error| errno_of(&error))?;
        Ok(text)
    };
    let text = list().unwrap_or_default();
    text.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

/// The name of a hook that the container's process runs. `index` counts through both lists, as in a failure.
pub fn named(hooks: &Hooks, index: usize) -> Option<String> {
    let container = hooks.create_container.iter().enumerate().map(|(at, hook)| ("createContainer", at, hook));
    let start = hooks.start_container.iter().enumerate().map(|(at, hook)| ("startContainer", at, hook));
    container.chain(start).nth(index).map(|(stage, at, hook)| format!("{stage}[{at}] {}", hook.path))
}
