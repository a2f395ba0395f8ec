//! The child: the start-up sequence from clone3 to execve, one line a step.
//!
//! It formats no text, takes no lock and parses nothing; what it needs was prepared, and a failure leaves as numbers.

use std::convert::Infallible;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};

use nix::errno::Errno;

use super::init;
use super::prepare::{ChildStream, Prepared};
use super::sync::{ChildEnds, ParentEnds};
use crate::error::Step;
use crate::layers::net::Making;
use crate::layers::root::BuiltRoot;
use crate::layers::{Applied, During, MissingSet, caps, schedule};
use crate::sys::ablate::{Layer, without};
use crate::sys::clone::{Cloned, Stack, clone3, spawn_sharing};
use crate::sys::mount::FileOnMount;
use crate::sys::terminal;
use crate::sys::{entry, process};

/// Becomes the workload, or its init. Never returns to the code that cloned it.
pub fn run(prepared: &mut Prepared, stack: Stack, parent: ParentEnds, ends: &ChildEnds) -> ! {
    drop(parent); // or our own copy would keep the lifeline open
    entry::retitle(&prepared.title); // the sandbox can read it
    let _ = process::set_name(c"stockade-init"); // for people
    if let Err(failure) = put_in_place(&mut prepared.streams) {
        ends.fail(failure);
        process::exit(125)
    }
    let prepared = &*prepared;
    let network = prepared.network.begin(stack); // meanwhile the parent writes our id maps, and we build a root
    if ends.wait() {
        let Err(failure) = network.and_then(|network| start(prepared, network, ends));
        ends.fail(failure);
    }
    process::exit(125)
}

/// Streams of the workload's own take the place of the caller's: one descriptor each, and not two.
fn put_in_place(streams: &mut [ChildStream; 3]) -> Applied {
    for (number, stream) in (0..).zip(streams) {
        if let ChildStream::Own(own) = stream {
            process::dup_onto(own.as_fd(), number).during(Step::Streams, 0)?;
            *stream = ChildStream::Inherited(process::borrow_standard(number));
        }
    }
    Ok(())
}

fn start(prepared: &Prepared, network: Making, ends: &ChildEnds) -> Applied<Infallible> {
    prepared.users.take()?;
    // The change of ids took our own files in /proc away from us, and from the supervisor, who looks at them.
    process::set_dumpable(true).during(Step::SetIds, 0)?;
    if prepared.hides_cgroup {
        // The namespace that clone3 made has our parent's cgroup for its top, not the one we were put into.
        process::unshare_cgroup().during(Step::Cgroup, 0)?;
    }
    hold_lifeline(ends)?; // after the change of ids, which clears the death signal
    schedule::renounce()?;
    nix::sys::stat::umask(nix::sys::stat::Mode::empty());
    let mut missing = MissingSet::default();
    let mut root = prepared.root.build()?;
    let mut stack = network.enter()?;
    prepared.root.limit_namespaces(&mut root, &mut missing)?; // last, because a detached mount counts as a mount namespace
    let terminal = open_terminal(prepared, &root, ends)?;
    root.devpts = None;
    close_the_host(prepared, &root, terminal.as_ref(), ends)?;
    root.pivot()?;
    prepared.process.with_capabilities(prepared.users.can_clear_groups(), &mut missing)?;
    caps::drop_all_but(prepared.kept_capabilities)?;
    if !without(Layer::NoNewPrivileges) {
        process::set_no_new_privs().during(Step::NoNewPrivs, 0)?;
    }
    ends.send_missing(missing).during(Step::Fork, 0)?;
    if !ends.wait() {
        process::exit(125); // it does not like what it sees, or is gone
    }
    // From here on nothing inside can trace or read us: the workload is not running yet, and execve makes it dumpable.
    process::set_dumpable(without(Layer::NotDumpable)).during(Step::Fork, 0)?;
    if !prepared.init {
        return become_workload(prepared, &root, terminal.as_ref(), ends, &mut Left::default());
    }
    process::block_signals().during(Step::Fork, 1)?;
    let (mut failure, mut left) = (None, Left::default()); // pid 1 sees what the workload leaves in them: it is its memory
    let (workload, pidfd) = if prepared.shares_memory {
        // The listener is made in the table of both, and leaves the workload's when that executes its program.
        spawn_sharing(&mut stack, prepared.explain_denials, || {
            let Err(error) = become_workload(prepared, &root, terminal.as_ref(), ends, &mut left);
            failure = Some(error);
            125
        })
        .during(Step::Fork, 2)?
    } else {
        match clone3(0, None).during(Step::Fork, 2)? {
            Cloned::Child => return become_workload(prepared, &root, terminal.as_ref(), ends, &mut left),
            Cloned::Parent { pid, pidfd } => (pid, pidfd),
        }
    };
    if let Some(failure) = failure {
        return Err(failure);
    }
    ends.send_started(pidfd.as_fd(), left.executed).during(Step::Fork, 3)?;
    if let Some(listener) = left.listener {
        ends.send_listener(listener.as_fd()).during(Step::Fork, 4)?;
    }
    if prepared.kept_capabilities != 0 {
        caps::renounce()?;
    }
    init::run(ends.control(), root.scratch.as_fd(), workload)
}

/// What the workload leaves to the init whose memory it shares.
#[derive(Default)]
struct Left {
    /// What listens to its refused calls.
    listener: Option<OwnedFd>,
    /// What it is about to execute.
    executed: Option<FileOnMount>,
}

/// Closes everything that is neither the sandbox's own nor the workload's, before the first path of the sandbox is looked up:
/// `/proc/self/fd/N/..` must lead nowhere, and close-on-exec comes only after execve has looked its paths up.
fn close_the_host(prepared: &Prepared, root: &BuiltRoot, terminal: Option<&OwnedFd>, ends: &ChildEnds) -> Applied {
    if without(Layer::Descriptors) {
        return Ok(());
    }
    let mut kept = vec![ends.control().as_raw_fd(), ends.failure().as_raw_fd()]; // and the streams, below 3
    kept.extend(root.fds());
    kept.extend(terminal.map(|terminal| terminal.as_raw_fd()));
    kept.extend(prepared.landlock.as_ref().map(|rules| rules.fd().as_raw_fd()));
    process::close_but(3, &mut kept).during(Step::Descriptors, 1)
}

/// Becomes the program that it was made for.
fn become_workload(
    prepared: &Prepared,
    root: &BuiltRoot,
    terminal: Option<&OwnedFd>,
    ends: &ChildEnds,
    left: &mut Left,
) -> Applied<Infallible> {
    let null = root.open(c"dev/null", libc::O_RDWR).during(Step::Streams, 0)?;
    prepared.process.take_streams(streams(prepared, terminal, &null), terminal.is_some())?;
    prepared.root.enter_cwd(root)?;
    if let Some(landlock) = &prepared.landlock {
        landlock.apply(root.fd(), root.scratch.as_fd())?;
    }
    prepared.process.settle()?;
    verify(prepared)?;
    let found = prepared.process.find()?;
    if let Some(program) = found.program().filter(|_| prepared.hash_program) {
        // Best effort: what cannot be handed over is not executable either, or has no hash in the report.
        let _ = program.changed_ns().and_then(|changed_ns| ends.send_program(program.file.as_fd(), changed_ns));
    }
    let executable = found.close();
    left.executed = executable.executed;
    if let Some(seccomp) = &prepared.seccomp {
        left.listener = seccomp.apply()?;
    }
    prepared.process.exec(&executable)
}

/// Dies with the supervisor, from now on.
fn hold_lifeline(ends: &ChildEnds) -> Applied {
    process::set_parent_death_signal(libc::SIGKILL).during(Step::Lifeline, 0)?;
    if ends.parent_lives() { Ok(()) } else { process::exit(125) }
}

/// A terminal on the sandbox's own devpts, whose master side goes to the supervisor.
fn open_terminal(prepared: &Prepared, root: &BuiltRoot, ends: &ChildEnds) -> Applied<Option<OwnedFd>> {
    let (Some(size), Some(devpts)) = (prepared.terminal, &root.devpts) else { return Ok(None) };
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

fn streams<'a>(prepared: &'a Prepared, terminal: Option<&'a OwnedFd>, null: &'a OwnedFd) -> [BorrowedFd<'a>; 3] {
    std::array::from_fn(|number| match (&prepared.streams[number], terminal) {
        (_, Some(terminal)) => terminal.as_fd(),
        (ChildStream::Null, None) => null.as_fd(),
        (ChildStream::Own(pipe), None) => pipe.as_fd(),
        (ChildStream::Inherited(fd), None) => fd.as_fd(),
    })
}

/// Reads back from the kernel what was just set, and goes no further on any mismatch.
fn verify(prepared: &Prepared) -> Applied {
    prepared.users.verify()?;
    caps::verify(prepared.kept_capabilities)?;
    prepared.root.verify_clock()?;
    match process::no_new_privs() {
        Ok(true) => Ok(()),
        Ok(false) if without(Layer::NoNewPrivileges) => Ok(()),
        Ok(false) => Err(Errno::EPERM).during(Step::Verify, 2),
        Err(errno) => Err(errno).during(Step::Verify, 2),
    }
}
