//! A command in the sandbox: the last steps of a start, in the workload's own process, and init's part of them.

use std::convert::Infallible;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::unistd::Pid;

use super::files;
use super::order::{Order, RunAs};
use super::prepare::Prepared;
use crate::confine::caps;
use crate::confine::process::program::Executable;
use crate::error::Step;
use crate::failure::{Applied, During};
use crate::launch::channels::{ChildEnds, Started};
use crate::launch::streams::ChildStream;
use crate::launch::times::{CpuTime, monotonic_ns};
use crate::rootfs::pivot::BuiltRoot;
use crate::sys::ablate::{Layer, without};
use crate::sys::clone::{Cloned, clone3, spawn_sharing};
use crate::sys::process;
use crate::sys::stack::Stack;
use crate::sys::terminal;

/// A command that is about to be started, in its sandbox.
pub struct Command<'a> {
    /// The sandbox.
    pub prepared: &'a Prepared,
    /// The command.
    pub order: &'a Order,
    /// The sandbox's root, which is `/` by now.
    pub root: &'a BuiltRoot,
    /// Its terminal, if it has one.
    pub terminal: Option<&'a OwnedFd>,
    /// Its channels.
    pub ends: &'a ChildEnds,
    /// Its own cgroup, below that of the sandbox.
    pub cgroup: Option<&'a OwnedFd>,
}

/// Values that the workload stores for init, whose memory it shares. They belong to init, which frees them.
#[derive(Default)]
pub struct Left<'a> {
    /// The seccomp listener.
    listener: Option<OwnedFd>,
    /// What it is about to execute.
    executable: Option<Executable<'a>>,
}

impl<'a> Command<'a> {
    /// Init's part: starts the workload, and tells the supervisor. Returns its id.
    pub fn start(&self, stack: &mut Stack) -> Applied<Pid> {
        let (mut failure, mut left) = (None, Left::default());
        // A file server executes nothing, so it would share the memory for ever.
        let shares_memory = self.prepared.shares_memory && self.order.files.is_none();
        let (workload, pidfd) = if shares_memory {
            // The listener is created in the descriptor table that both share. The workload's copy of the table closes it at
            // execve.
            spawn_sharing(stack, self.order.explain_denials, self.cgroup.map(AsFd::as_fd), || {
                let Err(error) = self.become_workload(&mut left);
                failure = Some(error);
                125
            })
            .during(Step::Fork, 2)?
        } else {
            match clone3(0, self.cgroup.map(AsFd::as_fd)).during(Step::Fork, 2)? {
                Cloned::Child => {
                    let Err(error) = self.become_workload(&mut left);
                    self.ends.fail(error);
                    process::exit(125)
                }
                Cloned::Parent { pid, pidfd } => (pid, pidfd),
            }
        };
        if let Some(failure) = failure {
            return Err(failure);
        }
        let executed = left.executable.and_then(|executable| executable.executed);
        // The work of an init that serves a session is nobody's.
        let init = if self.prepared.stays { CpuTime::default() } else { CpuTime::own() };
        let started = Started { executed, init };
        self.ends.send_started(pidfd.as_fd(), started).during(Step::Fork, 3)?;
        if let Some(listener) = left.listener {
            self.ends.send_listener(listener.as_fd()).during(Step::Fork, 4)?;
        }
        Ok(workload)
    }

    /// The workload's last steps, up to execve.
    pub fn become_workload(&self, left: &mut Left<'a>) -> Applied<Infallible> {
        let Self { prepared, order, root, terminal, ends, cgroup } = *self;
        let settings = &order.process;
        let null = root.open(c"dev/null", libc::O_RDWR).during(Step::Streams, 0)?;
        if let Some(cgroup) = cgroup {
            process::replace(null.as_fd(), cgroup.as_fd()).during(Step::Descriptors, 2)?; // closes a directory of the host
        }
        self.take_user()?;
        let own = order.user.map(|_| open_terminal(order, root, ends)).transpose()?.flatten();
        let terminal = terminal.or(own.as_ref());
        settings.take_streams(self.streams(&null, terminal))?;
        settings.start_session(terminal.is_some())?;
        match (root.enter(settings.cwd()), order.user) {
            (Err(_), Some(RunAs { at_home: true, .. })) => root.enter(c"/")?, // no such home
            (entered, _) => entered?,
        }
        if let Some(landlock) = prepared.landlock.as_ref().filter(|_| !prepared.stays) {
            landlock.restrict(root.scratch.as_fd())?;
        }
        settings.limit()?;
        settings.settle(3)?;
        verify(prepared, order.user)?;
        if let Some(filter) = &order.files {
            return files::become_server(filter, ends);
        }
        let found = settings.find()?;
        if let Some(program) = found.program().filter(|_| order.hash_program) {
            // Best effort: a file that cannot be passed cannot be executed either, or gets no hash in the report.
            let _ = program.changed_ns().and_then(|changed_ns| ends.send_program(program.file.as_fd(), changed_ns));
        }
        let executable = left.executable.insert(found.close());
        // Before the filter, which may refuse it. Init may continue long after the execve.
        let at_ns = (!prepared.root.has_own_clock()).then(monotonic_ns);
        ends.send_set_up(CpuTime::own(), at_ns).during(Step::Fork, 5)?;
        let listens = prepared.stays && order.explain_denials;
        if let Some(seccomp) = if listens { &prepared.listening } else { &prepared.seccomp } {
            left.listener = seccomp.apply()?;
        }
        settings.exec(executable, None)
    }

    /// Becomes the command's user, and drops the capabilities that init holds to start commands.
    fn take_user(&self) -> Applied {
        if let Some(RunAs { user, .. }) = self.order.user {
            user.take()?;
            self.order.process.take_keyring()?; // the keys of the sandbox's user stay its own
        }
        match self.prepared.held_capabilities {
            0 => Ok(()),
            _ => caps::drop_held(self.prepared.kept_capabilities),
        }
    }

    fn streams<'s>(&'s self, null: &'s OwnedFd, terminal: Option<&'s OwnedFd>) -> [BorrowedFd<'s>; 3] {
        std::array::from_fn(|number| match (&self.order.streams[number], terminal) {
            (_, Some(terminal)) => terminal.as_fd(),
            (ChildStream::Null, None) => null.as_fd(),
            (ChildStream::Own(pipe), None) => pipe.as_fd(),
            (ChildStream::Inherited(fd), None) => fd.as_fd(),
        })
    }
}

/// Opens a terminal on the sandbox's own devpts and sends its master side to the supervisor.
pub fn open_terminal(order: &Order, root: &BuiltRoot, ends: &ChildEnds) -> Applied<Option<OwnedFd>> {
    let (Some(size), Some(devpts)) = (order.terminal, &root.devpts) else { return Ok(None) };
    let master = nix::fcntl::openat(
        devpts,
        c"ptmx",
        nix::fcntl::OFlag::O_RDWR | nix::fcntl::OFlag::O_NOCTTY | nix::fcntl::OFlag::O_CLOEXEC,
        nix::sys::stat::Mode::empty(),
    )
    .during(Step::Terminal, 0)?;
    let slave = terminal::open_peer(&master).during(Step::Terminal, 0)?;
    terminal::set_size(&slave, size).during(Step::Terminal, 0)?;
    ends.send_terminal(master.as_fd()).during(Step::Terminal, 0)?;
    Ok(Some(slave))
}

/// Reads the settings back from the kernel. Any mismatch ends the start.
fn verify(prepared: &Prepared, user: Option<RunAs>) -> Applied {
    user.map_or_else(|| prepared.users.verify(), |one| one.user.verify())?;
    match prepared.undroppable {
        None => caps::verify(prepared.kept_capabilities)?,
        Some(undroppable) => caps::verify_none(undroppable)?,
    }
    prepared.root.verify_clock()?;
    match process::no_new_privs() {
        Ok(true) => Ok(()),
        Ok(false) if without(Layer::NoNewPrivileges) => Ok(()),
        Ok(false) => Err(Errno::EPERM).during(Step::Verify, 2),
        Err(errno) => Err(errno).during(Step::Verify, 2),
    }
}
