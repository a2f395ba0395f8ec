//! Waits for a container in the foreground: forwards signals, bridges the terminal, returns the exit status.

use std::os::fd::{AsFd, OwnedFd};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, SigmaskHow, sigprocmask};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::Pid;

use super::Launched;
use crate::error::{Error, Result, Step};
use crate::launch::pump::Pump;
use crate::launch::signals::TAKEN;
use crate::launch::steps::step;
use crate::launch::streams::Pumps;
use crate::launch::terminal::{RawMode, follow_size};
use crate::sys::process;

/// Takes signals from here on. Must be created before the container.
#[derive(Debug)]
pub struct Foreground {
    signals: SignalFd,
}

impl Foreground {
    /// Blocks the signals that will be forwarded.
    pub fn prepare() -> Result<Self> {
        let failed = |errno| Error::errno(Step::Supervise, "signals", errno);
        let taken: SigSet = TAKEN.into_iter().collect();
        sigprocmask(SigmaskHow::SIG_BLOCK, Some(&taken), None).map_err(failed)?;
        process::default_child_signal();
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        Ok(Self { signals: SignalFd::with_flags(&taken, flags).map_err(failed)? })
    }

    /// Waits until the container ends. The exit code is the program's own, or 128 plus the signal.
    pub fn wait(self, launched: Launched) -> Result<u8> {
        let Launched { pid, pidfd, terminal, .. } = launched;
        self.follow(pid, &pidfd, terminal).inspect_err(|_| {
            // No other process would reap it, and a pid namespace does not end before its first process is reaped.
            process::end_child(pidfd.as_fd(), pid);
        })
    }

    fn follow(&self, pid: Pid, pidfd: &OwnedFd, terminal: Option<OwnedFd>) -> Result<u8> {
        let mut pumps = Pumps::bridge(terminal)?;
        let raw = pumps.terminal.then(RawMode::enter_for_input).flatten();
        if let Some(master) = pumps.output.as_ref().and_then(Pump::source_fd) {
            follow_size(master);
        }
        while !self.turn(pidfd, &mut pumps)? {}
        let status = self.reap(pid)?;
        step("ended", || format!("exit code {status}"));
        while pumps.outputs().any(|pump| !pump.is_done()) {
            pump(&mut pumps);
            if poll_pumps(&pumps, &[]).is_err() {
                break;
            }
        }
        drop(raw);
        Ok(status)
    }

    /// Waits for one event and handles it. Returns whether the container has ended.
    fn turn(&self, pidfd: &OwnedFd, pumps: &mut Pumps) -> Result<bool> {
        let readable = |fd| PollFd::new(fd, PollFlags::POLLIN);
        let own = [readable(pidfd.as_fd()), readable(self.signals.as_fd())];
        let ready = match poll_pumps(pumps, &own) {
            Err(Errno::EINTR) => return Ok(false),
            other => other.map_err(|errno| Error::errno(Step::Supervise, "poll", errno))?,
        };
        while let Ok(Some(info)) = self.signals.read_signal() {
            match info.ssi_signo as libc::c_int {
                libc::SIGWINCH if pumps.terminal => {
                    if let Some(master) = pumps.output.as_ref().and_then(Pump::source_fd) {
                        follow_size(master);
                    }
                }
                signal => drop(process::pidfd_send_signal(pidfd.as_fd(), signal)),
            }
        }
        pump(pumps);
        Ok(ready.first() == Some(&true))
    }

    fn reap(&self, pid: Pid) -> Result<u8> {
        let (status, _) = process::wait4(pid).map_err(|errno| Error::errno(Step::Supervise, "wait4", errno))?;
        let code = if libc::WIFSIGNALED(status) { 128 + libc::WTERMSIG(status) } else { libc::WEXITSTATUS(status) };
        Ok(u8::try_from(code).unwrap_or(255))
    }
}

fn pump(pumps: &mut Pumps) {
    for pump in pumps.outputs() {
        pump.take();
        pump.give();
    }
    if let Some(input) = &mut pumps.input {
        input.take_if_ready();
        input.give();
    }
}

/// Returns which of the `own` descriptors are ready.
fn poll_pumps(pumps: &Pumps, own: &[PollFd<'_>]) -> std::result::Result<Vec<bool>, Errno> {
    let mut polled = own.to_vec();
    let input = pumps.input.as_ref().filter(|_| !own.is_empty());
    for pump in [input, pumps.output.as_ref(), pumps.error.as_ref()].into_iter().flatten() {
        polled.extend(pump.interests().into_iter().flatten());
    }
    if polled.is_empty() {
        return Err(Errno::EINVAL);
    }
    poll(&mut polled, PollTimeout::NONE)?;
    Ok(polled[..own.len()].iter().map(|fd| fd.any().unwrap_or(true)).collect())
}
