//! What holds a process back that has put its last filter in force, until the runtime has seen that filter from outside.
//!
//! Under its filter a process may make no call but `execve(2)`: the profile may refuse any other. So it does not wait in the
//! kernel. It looks at a word that it shares with whoever starts it, again and again, for the few moments that reading a
//! file in `/proc` takes:
//!
//! ```text
//! runtime (start or exec)                              the container's process
//! ───────────────────────────────────────────          ─────────────────────────────────────
//! watches: its id is in the word, or the
//!   kernel's note that it has ended
//!                    ◄──────────────── due (a record) ─
//! looks every few microseconds                         filter
//!                    ◄─────────────────────── reached ─
//! reads /proc/PID/status                               spins
//! ─ go ──────────────────────────────────────────────► execve; or dies, if nobody watches (any more)
//! ```
//!
//! No clock is involved, which a process might have to ask the kernel for. Where the runtime is stopped, the other spins
//! until that is continued or killed, within the limits of its cgroup.

use std::fs::File;
use std::io::Write as _;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::stat::Mode;

use super::confined;
use crate::error::{Error, Result, Step, errno_of};
use crate::sys::shared::{LENGTH, NO_THREAD, OWNER_DIED, Shared, die};

/// The file in a state directory that is shared, where whoever starts a container is another than who creates it.
const FILE: &str = "exec.word";

/// The watched one's word once its filter is in force; and where besides the runtime has to set how it is scheduled.
const REACHED: u32 = 1;
const REACHED_UNSCHEDULED: u32 = 2;
/// The watcher's word once it has seen that.
const GO: u32 = NO_THREAD;

/// How long to wait from one look to the next: at first, and at most.
const FIRST_PAUSE: Duration = Duration::from_micros(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(1);

/// One side of it.
#[derive(Debug)]
pub struct FilterHandshake(Shared);

/// What a process that is held back reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Word {
    Go,
    Wait,
    /// There is nobody who could say anything else.
    NoWatcher,
}

impl FilterHandshake {
    /// One for this process and its children.
    pub fn new() -> Result<Self> {
        Shared::map(None).map(Self).map_err(|errno| Error::errno(Step::Seccomp, "shared memory", errno))
    }

    /// One that can be found in a state directory.
    pub fn create_in(directory: &Path) -> Result<Self> {
        let path = directory.join(FILE);
        let failed = |errno| Error::errno(Step::State, path.display().to_string(), errno);
        let flags = OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let mut file = File::from(open(&path, flags, Mode::from_bits_truncate(0o600)).map_err(failed)?);
        // So that there is room for it also when the disk is full.
        file.write_all(&[0; LENGTH]).map_err(|error| failed(errno_of(&error)))?;
        Shared::map(Some(file.as_fd())).map(Self).map_err(failed)
    }

    /// That of a state directory, if there is one.
    pub fn open_in(directory: &Path) -> std::result::Result<Option<Self>, Errno> {
        let flags = OFlag::O_RDWR | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        match open(&directory.join(FILE), flags, Mode::empty()) {
            Err(Errno::ENOENT) => Ok(None),
            file => Shared::map(Some(file?.as_fd())).map(Self).map(Some),
        }
    }

    /// Takes that of a state directory away, which who has it keeps.
    pub fn remove_from(directory: &Path) {
        let _ = std::fs::remove_file(directory.join(FILE));
    }

    /// Parent half, before the other is let on its way: who waits here dies if this thread does.
    pub fn watch(&self) -> std::result::Result<(), Errno> {
        self.0.watch()
    }

    /// Parent half, once it is due: waits until the filter is said to be in force, looks, has the scheduling set if that is
    /// left to do, and lets the process go on to its program. `false` when there is something to be read from the channel
    /// instead. The process must be killed if this fails.
    pub fn verify_and_release(
        &self,
        proc_pid: &OwnedFd,
        filters: u64,
        channel: BorrowedFd<'_>,
        schedule: impl FnOnce() -> Result<()>,
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
        confined::verify_filters(proc_pid, filters)?;
        if self.0.words().watched.load(SeqCst) == REACHED_UNSCHEDULED {
            schedule()?;
        }
        self.0.words().watcher.store(GO, SeqCst);
        Ok(true)
    }

    /// Child half, under the filter: comes back when the program may be executed, and not at all otherwise. One that is to
    /// have a real-time policy must not have it yet, or the runtime might never get its turn.
    pub fn wait(&self, unscheduled: bool) {
        self.0.words().watched.store(if unscheduled { REACHED_UNSCHEDULED } else { REACHED }, SeqCst);
        loop {
            match self.word() {
                Word::Go => return,
                Word::Wait => std::hint::spin_loop(),
                Word::NoWatcher => die(),
            }
        }
    }

    fn word(&self) -> Word {
        match self.0.words().watcher.load(SeqCst) {
            GO => Word::Go,
            0 => Word::NoWatcher, // nobody ever was there
            word if word & OWNER_DIED != 0 => Word::NoWatcher,
            _ => Word::Wait,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::confined::filters_with_one_more;
    use super::*;
    use crate::layers::user::open_proc_pid;
    use crate::sys::clone::{Cloned, clone3};
    use crate::sys::{process, seccomp};

    /// A child that does this.
    fn child(act: impl FnOnce()) -> (nix::unistd::Pid, OwnedFd) {
        match clone3(0, None).unwrap() {
            Cloned::Child => {
                let _ = process::set_dumpable(false); // no core
                act();
                process::exit(7)
            }
            Cloned::Parent { pid, pidfd } => (pid, pidfd),
        }
    }

    /// What comes of a process with or without a filter that is held back.
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
            handshake.wait(filter);
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
            schedule,
        );
        assert_eq!(scheduled, filter);
        if seen.is_err() {
            process::pidfd_send_signal(pidfd.as_fd(), libc::SIGKILL).unwrap();
        }
        (seen, process::wait4(pid).unwrap().0)
    }

    #[test]
    fn who_has_its_filter_goes_on_and_who_has_not_does_not() {
        assert!(matches!(overseen(true), (Ok(true), status) if status == 7 << 8));
        let (seen, status) = overseen(false);
        assert_eq!((seen.unwrap_err().object.as_str(), status), ("seccomp filters", libc::SIGKILL));
    }

    #[test]
    fn nobody_goes_on_where_nobody_watches_any_more() {
        let handshake = FilterHandshake::new().unwrap();
        let ended = || libc::WIFSIGNALED(process::wait4(child(|| handshake.wait(false)).0).unwrap().0);
        assert_eq!(handshake.word(), Word::NoWatcher);
        assert!(ended(), "nobody ever did");
        process::wait4(child(|| handshake.watch().unwrap()).0).unwrap();
        assert_eq!(handshake.word(), Word::NoWatcher);
        assert!(ended(), "somebody did, and has gone");
        handshake.watch().unwrap();
        assert_eq!(handshake.word(), Word::Wait);
    }

    #[test]
    fn a_process_that_dies_or_fails_is_not_waited_for() {
        let handshake = FilterHandshake::new().unwrap();
        let (reader, writer) = nix::unistd::pipe2(OFlag::O_CLOEXEC).unwrap();
        drop(writer);
        let own = open_proc_pid(nix::unistd::getpid()).unwrap();
        assert!(!handshake.verify_and_release(&own, 0, reader.as_fd(), || Ok(())).unwrap());
    }
}
