//! Init of a session: starts commands as the supervisor asks, forwards signals, reaps. It is pid 1 of the sandbox, and no
//! process inside can trace, read or kill it. It dies with its supervisor.

use std::convert::Infallible;
use std::os::fd::{AsFd as _, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::SigSet;
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::Pid;

use super::command::{Command, open_terminal};
use super::init::{exited, forward};
use super::keeper;
use super::order::Order;
use super::prepare::Prepared;
use crate::error::Step;
use crate::failure::{Applied, During, Failure};
use crate::launch::channels::{ChildEnds, Exited, send_exited};
use crate::launch::requests::{self, Begin, LARGEST, Request};
use crate::rootfs::pivot::BuiltRoot;
use crate::sys::process::{self, ChildEvent};
use crate::sys::schedule::pause;
use crate::sys::stack::Stack;

struct ForkServer<'a> {
    prepared: &'a Prepared,
    root: &'a BuiltRoot,
    stack: Stack,
    ends: &'a ChildEnds,
    signals: SignalFd,
    null: OwnedFd,
    commands: Vec<Running>,
}

/// A command whose process has not been reaped.
struct Running {
    number: u64,
    pid: Pid,
    /// `None` if it has a keeper, which reports for it. Then the process is the keeper.
    control: Option<OwnedFd>,
    /// Whether the supervisor has looked at it. Until then its process stays, even as a zombie.
    released: bool,
}

/// Serves until it is killed. All signals are blocked.
pub fn run(prepared: &Prepared, root: &BuiltRoot, stack: Stack, ends: &ChildEnds) -> Applied<Infallible> {
    let null = root.open(c"dev/null", libc::O_RDWR).during(Step::Streams, 0)?;
    for number in 0..3 {
        process::dup_onto(null.as_fd(), number).during(Step::Streams, number as usize)?; // the supervisor's streams
    }
    let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
    let signals = SignalFd::with_flags(&SigSet::all(), flags).during(Step::Signals, 0)?;
    if let Some(landlock) = &prepared.landlock {
        landlock.restrict(root.scratch.as_fd())?; // here, so that all commands are in one domain: they may signal each other
    }
    ends.send_serving().during(Step::Fork, 6)?;
    process::replace(null.as_fd(), ends.failure.as_fd()).during(Step::Descriptors, 0)?; // closes it: this start has not failed
    let mut server = ForkServer { prepared, root, stack, ends, signals, null, commands: Vec::new() };
    let mut buffer = vec![0; LARGEST];
    loop {
        let mut polled = [
            PollFd::new(ends.control.as_fd(), PollFlags::POLLIN),
            PollFd::new(server.signals.as_fd(), PollFlags::POLLIN),
        ];
        if poll(&mut polled, PollTimeout::NONE).is_err() {
            continue;
        }
        let [asked, signalled] = polled.map(|one| one.any().unwrap_or(true));
        if signalled {
            while let Ok(Some(_)) = server.signals.read_signal() {} // whatever it is, children are looked at
            server.reap();
        }
        if asked {
            server.serve(&mut buffer);
        }
    }
}

impl ForkServer<'_> {
    /// Answers pending requests. Without a supervisor there is nothing to serve.
    fn serve(&mut self, buffer: &mut [u8]) {
        loop {
            match requests::receive(self.ends.control.as_fd(), buffer) {
                Ok(None) => return,
                Ok(Some(Request::Begin(begin))) => self.begin(begin),
                Ok(Some(Request::Signal(number, signal))) => {
                    match self.commands.iter().find(|one| one.number == number) {
                        Some(one) if one.control.is_some() => forward(one.pid, signal),
                        Some(keeper) => drop(process::send_signal(keeper.pid, signal)), // which forwards it
                        None => {}
                    }
                }
                Ok(Some(Request::Release(number))) => {
                    if let Some(one) = self.commands.iter_mut().find(|one| one.number == number) {
                        one.released = true;
                        self.reap();
                    }
                }
                Err(_) => process::exit(125),
            }
        }
    }

    fn begin(&mut self, begin: Begin) {
        let Begin { number, order, ends, streams, cgroup } = begin;
        match self.start(&order, &ends, streams, cgroup.as_ref()) {
            Ok(pid) => {
                let control = Some(ends.control).filter(|_| cgroup.is_some());
                self.commands.push(Running { number, pid, released: control.is_none(), control });
            }
            Err(failure) => ends.fail(failure),
        }
    }

    fn start(
        &mut self,
        order: &[u8],
        ends: &ChildEnds,
        streams: [OwnedFd; 3],
        cgroup: Option<&OwnedFd>,
    ) -> Result<Pid, Failure> {
        let mut order = Order::unpack(order, streams).during(Step::Fork, 7)?;
        order.move_in();
        let terminal = match order.user {
            Some(_) => None, // the command opens it, because a terminal belongs to who opens it
            None => open_terminal(&order, self.root, ends)?,
        };
        let (prepared, root) = (self.prepared, self.root);
        let command = Command { prepared, order: &order, root, terminal: terminal.as_ref(), ends, cgroup };
        let stack = &mut self.stack;
        let started = prepared.root.oom_score.inherited(root.oom_score.as_ref(), || match cgroup {
            Some(_) => command.start(stack),
            None => keeper::start(&command, stack),
        });
        if cgroup.is_none() {
            return started;
        }
        let shared_descriptors = order.explain_denials;
        drop((terminal, order));
        if shared_descriptors {
            self.close_left_behind(ends, cgroup).during(Step::Descriptors, 4)?;
        }
        started
    }

    /// Closes what a workload that shared the descriptor table has opened, and takes its streams away from this process.
    fn close_left_behind(&self, ends: &ChildEnds, cgroup: Option<&OwnedFd>) -> Result<(), Errno> {
        for number in 0..3 {
            process::dup_onto(self.null.as_fd(), number)?;
        }
        let mut kept = vec![self.signals.as_raw_fd(), self.null.as_raw_fd()];
        kept.extend([self.ends, ends].iter().flat_map(|ends| [ends.failure.as_raw_fd(), ends.control.as_raw_fd()]));
        kept.extend(cgroup.map(AsRawFd::as_raw_fd));
        kept.extend(self.root.fds());
        kept.extend(self.prepared.landlock.as_ref().map(|rules| rules.fd().as_raw_fd()));
        kept.extend(self.commands.iter().filter_map(|one| one.control.as_ref()).map(AsRawFd::as_raw_fd));
        process::close_but(3, &mut kept)
    }

    /// Reports the commands that have ended, and reaps every child that has. A command that nobody has looked at holds all
    /// others up for that moment: the kernel offers them one at a time.
    fn reap(&mut self) {
        loop {
            match process::peek_child() {
                Ok(Some(ChildEvent::Ended(pid, status))) => {
                    if let Some(at) = self.commands.iter().position(|one| one.pid == pid) {
                        if !self.commands[at].released {
                            return;
                        }
                        let one = self.commands.swap_remove(at);
                        if let Some(control) = one.control {
                            report_end(control.as_fd(), exited(status, self.root.scratch.as_fd()));
                        }
                    }
                    let _ = process::reap(pid);
                }
                Ok(Some(ChildEvent::Traced(pid))) => drop(process::detach_tracee(pid)),
                Err(Errno::EINTR) => {}
                Ok(None) | Err(Errno::ECHILD) => return,
                // The end of commands cannot be observed any more. Ending the sandbox is better than running for ever.
                Err(_) => process::exit(125),
            }
        }
    }
}

/// Says how a command ended. That takes memory, of which the sandbox may have none until what used it up is freed.
fn report_end(control: BorrowedFd<'_>, end: Exited) {
    for _ in 0..20 {
        match send_exited(control, end) {
            Err(Errno::ENOMEM | Errno::ENOBUFS) => pause(Duration::from_millis(5)),
            _ => return,
        }
    }
}
