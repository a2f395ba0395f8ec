//! The child: the start-up sequence from clone3 to execve, one line per step.
//!
//! It formats no text, takes no lock and parses nothing. Everything was prepared before the clone, and failures are reported as
//! numbers.

use std::convert::Infallible;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};

use nix::errno::Errno;

use super::init;
use super::prepare::Prepared;
use crate::confine::{caps, schedule};
use crate::error::Step;
use crate::failure::{Applied, During, MissingSet};
use crate::launch::channels::{ChildEnds, ParentEnds, Started};
use crate::launch::streams::ChildStream;
use crate::launch::times::{CpuTime, monotonic_ns};
use crate::rootfs::pivot::BuiltRoot;
use crate::run::network::Making;
use crate::sys::ablate::{Layer, without};
use crate::sys::clone::{Cloned, Stack, clone3, spawn_sharing};
use crate::sys::mount::FileOnMount;
use crate::sys::terminal;
use crate::sys::{entry, process};

/// Becomes the workload or its init. Never returns to the code that cloned it.
pub fn run(prepared: &mut Prepared, stack: Stack, parent: ParentEnds, ends: &ChildEnds) -> ! {
    drop(parent); // the child's copy would keep the lifeline open
    entry::retitle(&prepared.title); // the sandbox can read the command line
    let _ = process::set_name(c"stockade-init"); // for process listings
    if let Err(failure) = put_in_place(&mut prepared.streams) {
        ends.fail(failure);
        process::exit(125)
    }
    let prepared = &*prepared;
    let network = prepared.network.begin(stack); // meanwhile the parent writes the id maps, and the child builds the root
    if ends.wait() {
        let Err(failure) = network.and_then(|network| start(prepared, network, ends));
        ends.fail(failure);
    }
    process::exit(125)
}

/// Puts the workload's own streams in place of the caller's, so that each is open only once.
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
    // After the change of ids, neither this process nor the supervisor may open its files in /proc otherwise.
    process::set_dumpable(true).during(Step::SetIds, 0)?;
    if prepared.hides_cgroup {
        // The root of the namespace that clone3 made is the parent's cgroup, not the cgroup that the child was moved into.
        process::unshare_cgroup().during(Step::Cgroup, 0)?;
    }
    die_with_supervisor(ends)?; // after the change of ids, which clears the death signal
    schedule::renounce()?;
    nix::sys::stat::umask(nix::sys::stat::Mode::empty());
    let mut missing = MissingSet::default();
    let mut root = prepared.root.build(&mut missing)?;
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
        process::exit(125); // the supervisor refuses the namespaces, or has ended
    }
    // From here on no process inside can trace or read pid 1. The workload does not run yet; its execve makes it dumpable
    // again.
    process::set_dumpable(without(Layer::NotDumpable)).during(Step::Fork, 0)?;
    if !prepared.init {
        return become_workload(prepared, &root, terminal.as_ref(), ends, &mut Left::default());
    }
    process::block_signals().during(Step::Fork, 1)?;
    let (mut failure, mut left) = (None, Left::default()); // the workload shares this memory and stores its results here
    let (workload, pidfd) = if prepared.shares_memory {
        // The listener is created in the descriptor table that both share. The workload's copy of the table closes it at
        // execve.
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
    // A workload that shares our memory has executed its program when we continue.
    let at_ns = prepared.shares_memory.then(monotonic_ns);
    let started = Started { executed: left.executed, at_ns, init: CpuTime::own() };
    ends.send_started(pidfd.as_fd(), started).during(Step::Fork, 3)?;
    if let Some(listener) = left.listener {
        ends.send_listener(listener.as_fd()).during(Step::Fork, 4)?;
    }
    if prepared.kept_capabilities != 0 {
        caps::renounce()?;
    }
    init::run(ends.control(), root.scratch.as_fd(), workload)
}

/// Values that the workload stores for init, whose memory it shares.
#[derive(Default)]
struct Left {
    /// The seccomp listener.
    listener: Option<OwnedFd>,
    /// The file that it is about to execute.
    executed: Option<FileOnMount>,
}

/// Closes every descriptor that belongs neither to the sandbox nor to the workload. This happens before the first path in the
/// sandbox is looked up: `/proc/self/fd/N/..` must not lead to the host, and close-on-exec takes effect only after execve has
/// resolved its paths.
fn close_the_host(prepared: &Prepared, root: &BuiltRoot, terminal: Option<&OwnedFd>, ends: &ChildEnds) -> Applied {
    if without(Layer::Descriptors) {
        return Ok(());
    }
    let mut kept = vec![ends.control().as_raw_fd(), ends.failure().as_raw_fd()]; // the streams below 3 are kept too
    kept.extend(root.fds());
    kept.extend(terminal.map(|terminal| terminal.as_raw_fd()));
    kept.extend(prepared.landlock.as_ref().map(|rules| rules.fd().as_raw_fd()));
    process::close_but(3, &mut kept).during(Step::Descriptors, 1)
}

/// The workload's last steps, up to execve.
fn become_workload(
    prepared: &Prepared,
    root: &BuiltRoot,
    terminal: Option<&OwnedFd>,
    ends: &ChildEnds,
    left: &mut Left,
) -> Applied<Infallible> {
    let null = root.open(c"dev/null", libc::O_RDWR).during(Step::Streams, 0)?;
    prepared.process.take_streams(streams(prepared, terminal, &null))?;
    prepared.process.start_session(terminal.is_some())?;
    prepared.root.enter_cwd(root)?;
    if let Some(landlock) = &prepared.landlock {
        landlock.apply(root.fd(), root.scratch.as_fd())?;
    }
    prepared.process.limit()?;
    prepared.process.settle(3)?;
    verify(prepared)?;
    let found = prepared.process.find()?;
    if let Some(program) = found.program().filter(|_| prepared.hash_program) {
        // Best effort: a file that cannot be passed cannot be executed either, or gets no hash in the report.
        let _ = program.changed_ns().and_then(|changed_ns| ends.send_program(program.file.as_fd(), changed_ns));
    }
    let executable = found.close();
    left.executed = executable.executed;
    ends.send_set_up(CpuTime::own()).during(Step::Fork, 5)?; // before the filter, which may refuse it
    if let Some(seccomp) = &prepared.seccomp {
        left.listener = seccomp.apply()?;
    }
    prepared.process.exec(&executable, None)
}

/// From now on this process dies with the supervisor.
fn die_with_supervisor(ends: &ChildEnds) -> Applied {
    process::set_parent_death_signal(libc::SIGKILL).during(Step::Lifeline, 0)?;
    if ends.parent_lives() { Ok(()) } else { process::exit(125) }
}

/// Opens a terminal on the sandbox's own devpts and sends its master side to the supervisor.
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

/// Reads the settings back from the kernel. Any mismatch ends the start.
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
