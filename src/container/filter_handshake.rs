//! The filter handshake: a process that has installed its last filter waits until the runtime has seen that filter from
//! outside.
//!
//! Under its filter the process may be unable to make any call but `execve(2)`, because the profile may refuse every other
//! call. So it does not wait in the kernel. It polls a word in memory that it shares with the runtime, for the few moments that
//! the runtime needs to read a file in `/proc`:
//!
//! ```text
//! runtime (start or exec)                              container's process
//! ───────────────────────────────────────────          ─────────────────────────────────────
//! watch: store our thread id in the word; the
//!   kernel replaces it if the thread ends
//!                    ◄────────── filter due (a record) ─
//! poll every few microseconds                          install the filter
//!                    ◄─────────────── filter installed ─ poll
//! read /proc/PID/status
//! go ────────────────────────────────────────────────► execve; or die, if no runtime watches
//! ```
//!
//! A failure of the execve travels the same way, because the profile may refuse to write to the pipe: the process stores it in
//! the page and dies. So does a listener: the process stores its descriptor's number, and the runtime duplicates the descriptor.
//!
//! No clock is involved, because reading one may require a system call. While the runtime is stopped, the process polls within
//! the limits of its cgroup, until the runtime is continued or killed.

use std::fs::File;
use std::io::Write as _;
use std::os::fd::{AsFd, BorrowedFd, IntoRawFd as _, OwnedFd, RawFd};
use std::path::Path;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::stat::Mode;

use super::errors::{status_of, weaker};
use crate::error::{Error, Result, Step, errno_of};
use crate::failure::Failure;
use crate::launch::failures::{failure_record, parse_failure};
use crate::launch::verify;
use crate::sys::{
    file,
    shared::{LENGTH, NO_THREAD, OWNER_DIED, Shared, die},
};

/// The shared file in a state directory. `start` and `create` are different processes, so they share memory through a file.
const FILE: &str = "exec.word";

/// Stored by the container's process when its filter is installed. The second value also asks for its scheduling policy.
const REACHED: u32 = 1;
const REACHED_UNSCHEDULED: u32 = 2;
/// Stored by the runtime when it has verified the filter.
const GO: u32 = NO_THREAD;

/// Pause between two polls of the runtime: the first, and the longest.
const FIRST_PAUSE: Duration = Duration::from_micros(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(1);

/// One side of the handshake.
#[derive(Debug)]
pub struct FilterHandshake(Shared);

/// What the runtime does between the verification and "go".
#[derive(Debug)]
pub struct Rest<S, L> {
    /// Sets the scheduling policy.
    pub schedule: S,
    /// Takes the listener with this number.
    pub take_listener: L,
}

/// The state that the waiting process reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Word {
    Go,
    Wait,
    /// No runtime watches, so no answer can arrive.
    NoWatcher,
}

impl FilterHandshake {
    /// For this process and its children.
    pub fn new() -> Result<Self> {
        Shared::map(None).map(Self).map_err(|errno| Error::errno(Step::Seccomp, "shared memory", errno))
    }

    /// For a process that opens the same state directory later.
    pub fn create_in(directory: &Path) -> Result<Self> {
        let path = directory.join(FILE);
        let failed = |errno| Error::errno(Step::State, path.display().to_string(), errno);
        let flags = OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let mut file = File::from(open(&path, flags, Mode::from_bits_truncate(0o600)).map_err(failed)?);
        // Allocates the block now: writing to the mapping later would raise SIGBUS on a full disk.
        file.write_all(&[0; LENGTH]).map_err(|error| failed(errno_of(&error)))?;
        Shared::map(Some(file.as_fd())).map(Self).map_err(failed)
    }

    /// Opens the handshake of a state directory, if there is one.
    pub fn open_in(directory: &Path) -> std::result::Result<Option<Self>, Errno> {
        let flags = OFlag::O_RDWR | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        match file::open(&directory.join(FILE), flags) {
            Err(Errno::ENOENT) => Ok(None),
            file => Shared::map(Some(file?.as_fd())).map(Self).map(Some),
        }
    }

    /// Removes the file. A process that has mapped it keeps the mapping.
    pub fn remove_from(directory: &Path) {
        let _ = std::fs::remove_file(directory.join(FILE));
    }

    /// Parent half, before it sends "go": from now on a process that waits here dies if this thread does.
    pub fn watch(&self) -> std::result::Result<(), Errno> {
        self.0.watch()
    }

    /// Parent half, after the announcement: waits until the process reports its filter, verifies the filter from outside, takes
    /// its listener, sets the scheduling policy if it is still to be set, and lets the process execute its program. Returns
    /// `false` if `channel` became readable first. On failure the caller must kill the process.
    pub fn verify_and_release(
        &self,
        proc_pid: &OwnedFd,
        filters: u64,
        channel: BorrowedFd<'_>,
        rest: Rest<impl FnOnce() -> Result<()>, impl FnOnce(RawFd) -> Result<()>>,
    ) -> Result<bool> {
        let mut pause = FIRST_PAUSE;
        while self.0.words().watched.load(SeqCst) == 0 {
            let mut readable = [PollFd::new(channel, PollFlags::POLLIN)];
            match ppoll(&mut readable, Some(pause.into()), None) {
                Ok(0) | Err(Errno::EINTR) => pause = LONGEST_PAUSE.min(pause * 2),
                Ok(_) => return Ok(false),
                Err(errno) => return Err(Error::errno(Step::Supervise, "poll", errno)),
            }
        }
        verify_filters(proc_pid, filters)?;
        if let Ok(number @ 1..) = RawFd::try_from(self.0.words().descriptor.load(SeqCst)) {
            (rest.take_listener)(number)?;
        }
        if self.0.words().watched.load(SeqCst) == REACHED_UNSCHEDULED {
            (rest.schedule)()?;
        }
        self.0.words().watcher.store(GO, SeqCst);
        Ok(true)
    }

    /// Child half, under the filter: returns when the program may be executed; otherwise the process dies. A process that gets
    /// a real-time policy must not have it yet, because its polling could keep the runtime from running.
    pub fn wait(&self, listener: Option<OwnedFd>, unscheduled: bool) {
        let number = listener.map_or(0, OwnedFd::into_raw_fd); // stays open until execve: the filter may refuse close(2)
        self.0.words().descriptor.store(number.unsigned_abs(), SeqCst);
        self.0.words().watched.store(if unscheduled { REACHED_UNSCHEDULED } else { REACHED }, SeqCst);
        loop {
            match self.word() {
                Word::Go => return,
                Word::Wait => std::hint::spin_loop(),
                Word::NoWatcher => die(),
            }
        }
    }

    /// Child half, under the filter: reports why the program could not be executed.
    pub fn fail(&self, failure: Failure) -> ! {
        self.0.words().failure.store(u64::from_ne_bytes(failure_record(failure)), SeqCst);
        die()
    }

    /// Parent half, after the process has ended: the failure that it reported.
    pub fn failure(&self) -> Option<Failure> {
        let record = self.0.words().failure.load(SeqCst);
        parse_failure(&record.to_ne_bytes()).filter(|_| record != 0)
    }

    fn word(&self) -> Word {
        match self.0.words().watcher.load(SeqCst) {
            GO => Word::Go,
            0 => Word::NoWatcher, // no runtime has ever watched
            word if word & OWNER_DIED != 0 => Word::NoWatcher,
            _ => Word::Wait,
        }
    }
}

/// Fails unless the process has at least this many filters.
fn verify_filters(proc_pid: &OwnedFd, filters: u64) -> Result<()> {
    let status = status_of(proc_pid)?;
    verify::compare_filters(&status, filters).map_err(|error| weaker(&status, error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::confine::user::open_proc_pid;
    use crate::launch::verify::filters_with_one_more;
    use crate::sys::clone::{Cloned, clone3};
    use crate::sys::{process, seccomp};

    /// A child that runs this closure.
    fn child(act: impl FnOnce()) -> (nix::unistd::Pid, OwnedFd) {
        match clone3(0, None).unwrap() {
            Cloned::Child => {
                let _ = process::set_dumpable(false); // no core dump
                act();
                process::exit(7)
            }
            Cloned::Parent { pid, pidfd } => (pid, pidfd),
        }
    }

    /// The result of a handshake with a process that has a filter or has none.
    fn overseen(filter: bool) -> (Result<bool>, i32) {
        const ALLOW: libc::sock_filter = libc::sock_filter { code: 6, jt: 0, jf: 0, k: libc::SECCOMP_RET_ALLOW };
        let handshake = FilterHandshake::new().unwrap();
        handshake.watch().unwrap();
        let (reader, writer) = nix::unistd::pipe2(OFlag::O_CLOEXEC).unwrap();
        let (pid, pidfd) = child(|| {
            if filter {
                process::set_no_new_privs().unwrap();
                seccomp::set_filter(&[ALLOW], 0).unwrap();
            }
            handshake.wait(None, filter);
        });
        drop(writer);
        let mut scheduled = false;
        let schedule = || {
            scheduled = true;
            Ok(())
        };
        let seen = handshake.verify_and_release(
            &open_proc_pid(pid).unwrap(),
            filters_with_one_more(),
            reader.as_fd(),
            Rest { schedule, take_listener: |_| Ok(()) },
        );
        assert_eq!(scheduled, filter);
        if seen.is_err() {
            process::pidfd_send_signal(pidfd.as_fd(), libc::SIGKILL).unwrap();
        }
        (seen, process::wait4(pid).unwrap().0)
    }

    #[test]
    fn only_a_process_with_its_filter_goes_on() {
        assert!(matches!(overseen(true), (Ok(true), status) if status == 7 << 8));
        let (seen, status) = overseen(false);
        assert_eq!((seen.unwrap_err().object.as_str(), status), ("seccomp filters", libc::SIGKILL));
    }

    #[test]
    fn no_process_goes_on_without_a_watcher() {
        let handshake = FilterHandshake::new().unwrap();
        let ended = || libc::WIFSIGNALED(process::wait4(child(|| handshake.wait(None, false)).0).unwrap().0);
        assert_eq!(handshake.word(), Word::NoWatcher);
        assert!(ended(), "no watcher yet");
        process::wait4(child(|| handshake.watch().unwrap()).0).unwrap();
        assert_eq!(handshake.word(), Word::NoWatcher);
        assert!(ended(), "the watcher has ended");
        handshake.watch().unwrap();
        assert_eq!(handshake.word(), Word::Wait);
    }

    #[test]
    fn a_process_that_dies_or_fails_is_not_waited_for() {
        let handshake = FilterHandshake::new().unwrap();
        let (reader, writer) = nix::unistd::pipe2(OFlag::O_CLOEXEC).unwrap();
        drop(writer);
        let own = open_proc_pid(nix::unistd::getpid()).unwrap();
        assert!(
            !handshake
                .verify_and_release(&own, 0, reader.as_fd(), Rest { schedule: || Ok(()), take_listener: |_| Ok(()) })
                .unwrap()
        );
    }

    #[test]
    fn a_missing_filter_is_found() {
        // The test process has no filter of its own.
        let own = open_proc_pid(nix::unistd::getpid()).unwrap();
        let error = verify_filters(&own, filters_with_one_more()).unwrap_err();
        assert_eq!((error.step, error.object.as_str()), (Step::Verify, "seccomp filters"));
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let gone = open_proc_pid(nix::unistd::Pid::from_raw(child.id() as i32)).unwrap();
        child.wait().unwrap();
        assert!(verify_filters(&gone, 0).is_err(), "the process has ended");
        let mut zombie = std::process::Command::new("true").spawn().unwrap();
        let ended = nix::sys::wait::WaitPidFlag::WEXITED | nix::sys::wait::WaitPidFlag::WNOWAIT;
        let pid = nix::unistd::Pid::from_raw(zombie.id() as i32);
        nix::sys::wait::waitid(nix::sys::wait::Id::Pid(pid), ended).unwrap();
        let dead = open_proc_pid(pid).unwrap();
        assert_eq!(verify_filters(&dead, filters_with_one_more()).unwrap_err().step, Step::Supervise);
        zombie.wait().unwrap();
    }
}
