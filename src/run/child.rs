//! The child: the start-up sequence from clone3 to execve, one line per step.
//!
//! It formats no text, takes no lock and parses nothing. Everything was prepared before the clone, and failures are reported as
//! numbers.

use std::convert::Infallible;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};

use super::command::{Command, Left, open_terminal};
use super::prepare::Prepared;
use super::{fork_server, init};
use crate::cgroup::Entrance;
use crate::confine::tree::{END, Tree};
use crate::confine::{caps, schedule};
use crate::error::Step;
use crate::failure::{Applied, During, MissingSet};
use crate::launch::channels::{ChildEnds, ParentEnds};
use crate::launch::streams::ChildStream;
use crate::rootfs::pivot::BuiltRoot;
use crate::run::network::Making;
use crate::sys::ablate::{Layer, without};
use crate::sys::stack::Stack;
use crate::sys::{entry, process};

/// Becomes the workload or its init. Never returns to the code that cloned it.
pub fn run(prepared: &mut Prepared, stack: Stack, parent: ParentEnds, ends: &ChildEnds) -> ! {
    drop(parent); // the child's copy would keep the lifeline open
    entry::retitle(&prepared.title); // the sandbox can read the command line
    let _ = process::set_name(c"stockade-init"); // for process listings
    let entered = prepared.entrance.as_ref().map_or(Ok(()), Entrance::enter); // everything after it is counted
    if let Err(failure) = entered.and_then(|()| put_in_place(&mut prepared.order.streams)) {
        ends.fail(failure);
        process::exit(125)
    }
    let prepared = &*prepared;
    let network = prepared.network.begin(stack); // meanwhile the parent writes the id maps, and the child builds the root
    let Err(failure) = ends.wait().and(network).and_then(|network| start(prepared, network, ends));
    ends.fail(failure);
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
    let tree = prepared.tree.as_ref().map(Tree::enter).transpose()?;
    prepared.users.take()?;
    // After the change of ids, neither this process nor the supervisor may open its files in /proc otherwise.
    process::set_dumpable(true).during(Step::SetIds, 0)?;
    if prepared.hides_cgroup {
        // The root of the namespace that clone3 made is the parent's cgroup, not the cgroup that the child was moved into.
        process::unshare_cgroup().during(Step::Cgroup, 0)?;
    }
    die_with_supervisor(ends, if tree.is_some() { END } else { libc::SIGKILL })?; // after the change of ids, which clears the death signal
    schedule::renounce()?;
    nix::sys::stat::umask(nix::sys::stat::Mode::empty());
    let mut missing = MissingSet::default();
    let mut root = prepared.root.build(&mut missing)?;
    let mut stack = network.enter()?;
    if let Some(egress) = &prepared.egress {
        egress.open()?; // with the capabilities over this network that are dropped below
    }
    prepared.root.limit_namespaces(&mut root, &mut missing)?; // last, because a detached mount counts as a mount namespace
    let terminal = open_terminal(&prepared.order, &root, ends)?;
    if !prepared.stays {
        root.devpts = None;
    }
    close_the_host(prepared, &root, terminal.as_ref(), ends)?;
    root.pivot()?;
    prepared.order.process.with_capabilities(prepared.users.can_clear_groups(), &mut missing)?;
    match prepared.undroppable {
        None => caps::drop_all_but(prepared.kept_capabilities, prepared.held_capabilities)?,
        Some(_) => caps::drop_all()?,
    }
    if !without(Layer::NoNewPrivileges) {
        process::set_no_new_privs().during(Step::NoNewPrivs, 0)?;
    }
    ends.send_missing(missing).during(Step::Fork, 0)?;
    ends.wait()?; // until the supervisor has verified the namespaces
    // From here on no process inside can trace or read pid 1. The workload does not run yet; its execve makes it dumpable
    // again.
    process::set_dumpable(without(Layer::NotDumpable)).during(Step::Fork, 0)?;
    if let Some(landlock) = &prepared.landlock {
        landlock.add_paths(root.fd())?; // for every command of this sandbox
    }
    if prepared.stays {
        process::block_signals().during(Step::Fork, 1)?;
        return fork_server::run(prepared, &root, stack, ends);
    }
    let command =
        Command { prepared, order: &prepared.order, root: &root, terminal: terminal.as_ref(), ends, cgroup: None };
    if !prepared.init {
        return command.become_workload(&mut Left::default());
    }
    process::block_signals().during(Step::Fork, 1)?;
    if let Some(tree) = tree {
        tree.guard()?;
    }
    let workload = command.start(&mut stack)?;
    if prepared.kept_capabilities != 0 {
        caps::renounce()?;
    }
    init::run(ends.control.as_fd(), root.scratch.as_fd(), workload, tree, prepared.counts)
}

/// Closes every descriptor that belongs neither to the sandbox nor to the workload. This happens before the first path in the
/// sandbox is looked up: `/proc/self/fd/N/..` must not lead to the host, and close-on-exec takes effect only after execve has
/// resolved its paths.
fn close_the_host(prepared: &Prepared, root: &BuiltRoot, terminal: Option<&OwnedFd>, ends: &ChildEnds) -> Applied {
    if without(Layer::Descriptors) {
        return Ok(());
    }
    let mut kept = vec![ends.control.as_raw_fd(), ends.failure.as_raw_fd()]; // the streams below 3 are kept too
    kept.extend(root.fds());
    kept.extend(terminal.map(|terminal| terminal.as_raw_fd()));
    kept.extend(prepared.landlock.as_ref().map(|rules| rules.fd().as_raw_fd()));
    process::close_but(3, &mut kept).during(Step::Descriptors, 1)
}

/// From now on this process dies with the supervisor.
fn die_with_supervisor(ends: &ChildEnds, signal: libc::c_int) -> Applied {
    process::set_parent_death_signal(signal).during(Step::Lifeline, 0)?;
    ends.parent_lives()
}
