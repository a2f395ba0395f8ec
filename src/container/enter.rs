//! Creates the container's process, either directly or through an intermediate process that enters existing namespaces first.
//!
//! A pid or time namespace can only be entered for one's children, and the runtime itself must not enter any namespace. So the
//! intermediate process, a child of the runtime, enters them. Processes in the namespaces cannot inspect it, because it is not
//! dumpable. It then creates the container's process as its own sibling (`CLONE_PARENT`). It is in the container's cgroups
//! before it enters a namespace, and it confines itself before it creates a process that the container can see.

use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{AddressFamily, Shutdown, SockFlag, SockType, shutdown, socketpair};
use nix::sys::stat::Mode;
use nix::unistd::Pid;

use super::child::{self, Confined};
use super::errors::with_message;
use super::failed_step::name_failure;
use super::prepare::Prepared;
use crate::cgroup::container::Groups;
use crate::confine::schedule;
use crate::error::{Error, Result, Step};
use crate::failure::{Applied, During};
use crate::launch::channels::{ChildEnds, Message, ParentEnds};
use crate::launch::failures::{FAILURE_LENGTH, MAX_FAILURE_MESSAGE, failure_with_message, parse_failure};
use crate::launch::steps::step;
use crate::plan::ContainerPlan;
use crate::plan::container::NamespaceKind;
use crate::rootfs;
use crate::sys::clone::{Cloned, SIBLING, clone3, sibling};
use crate::sys::{namespace, pidfd, process, socket};

/// The side of the clone.
pub enum Side<'a> {
    /// The container's process, with the set-up that its intermediate process did.
    Child(Option<Confined<'a>>),
    /// The runtime, with the new process's id and pidfd, and the messages that arrived before that process existed.
    Parent(Pid, OwnedFd, Vec<Message>),
}

/// Creates the process.
pub fn clone<'a>(
    plan: &ContainerPlan,
    prepared: &'a Prepared<'_>,
    groups: Option<&Groups>,
    entered: Option<BorrowedFd<'_>>,
    (parent, ends): (&ParentEnds, &ChildEnds),
    built: &mut dyn FnMut(Pid) -> Result<()>,
    state: &dyn Fn(i32, &str) -> String,
) -> Result<Side<'a>> {
    if !prepared.needs_intermediate {
        let failed = |errno| Error::errno(Step::Clone, "", errno);
        return match clone3(prepared.flags, groups.and_then(Groups::dir)).map_err(failed)? {
            Cloned::Child => Ok(Side::Child(None)),
            Cloned::Parent { pid, pidfd } => Ok(Side::Parent(pid, pidfd, Vec::new())),
        };
    }
    let failed = |errno| Error::errno(Step::Clone, "intermediate process", errno);
    let (ours, theirs) =
        socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC).map_err(failed)?;
    // Its initial CPUs need not be those of the container's cgroups, so with them it is born outside.
    let into = groups.and_then(Groups::dir).filter(|_| plan.process.initial_cpu_affinity.is_none());
    let (cloned, outside) = match into.map(|dir| clone3(0, Some(dir))) {
        Some(Ok(cloned)) => (cloned, None),
        _ => (clone3(0, None).map_err(failed)?, groups),
    };
    let (intermediate, pidfd) = match cloned {
        Cloned::Parent { pid, pidfd } => (pid, pidfd),
        Cloned::Child => {
            drop(ours);
            let mut hook_message = String::new();
            return match go(prepared, plan, entered, (&theirs, ends), state, &mut hook_message) {
                Ok((Cloned::Child, confined)) => Ok(Side::Child(confined)), // drops our socket
                Ok((Cloned::Parent { pid, pidfd }, _)) => {
                    if socket::send(&theirs, &[0; 8], Some(pidfd.as_fd())).is_ok() {
                        process::exit(0)
                    }
                    process::end_sibling(pidfd.as_fd(), pid); // no other process knows it
                    process::exit(125)
                }
                Err(failure) => {
                    let _ = socket::send(&theirs, &failure_with_message(failure, &hook_message), None);
                    process::exit(125)
                }
            };
        }
    };
    drop(theirs);
    let result = follow(plan, prepared, outside, intermediate, &ours, parent, built);
    if result.is_err() {
        // The intermediate process gets time to end by itself, because it reports the process that it created before it ends.
        let _ = shutdown(ours.as_raw_fd(), Shutdown::Write);
        let _ = poll(&mut [PollFd::new(pidfd.as_fd(), PollFlags::POLLIN)], PollTimeout::from(1_000u16));
        let _ = nix::sys::signal::kill(intermediate, nix::sys::signal::Signal::SIGKILL); // our child, not reaped yet: the id cannot belong to another process
    }
    let _ = process::wait4(intermediate);
    if result.is_err() {
        // The intermediate process may have created the container's process without reporting it. That process is our child,
        // and its pid namespace does not end until it is reaped.
        if let Ok((_, Some(pidfd))) = socket::receive(&ours, &mut [0; 9], false)
            && let Some(pid) = pidfd::pid_of(pidfd.as_fd())
        {
            process::end_child(pidfd.as_fd(), Pid::from_raw(pid));
        }
        process::reap_ended();
    }
    result
}

/// The runtime's half. `outside` has the cgroups of v2 if the intermediate process was not born there.
fn follow<'a>(
    plan: &ContainerPlan,
    prepared: &'a Prepared<'_>,
    outside: Option<&Groups>,
    intermediate: Pid,
    ours: &OwnedFd,
    parent: &ParentEnds,
    built: &mut dyn FnMut(Pid) -> Result<()>,
) -> Result<Side<'a>> {
    if let Some(groups) = outside {
        groups.put(intermediate)?;
    }
    let failed = |errno| Error::errno(Step::Clone, "intermediate process", errno);
    step("intermediate", || format!("pid {intermediate} enters the namespaces"));
    socket::send(ours, b"g", None).map_err(failed)?;
    let mut messages = Vec::new();
    while !is_readable(ours, parent).map_err(failed)? {
        match parent.receive() {
            Ok(Some(Message::Built)) => {
                built(intermediate)?;
                parent.go()?;
            }
            Ok(message) => messages.extend(message),
            Err(_) => break, // it has ended, with or without a failure message
        }
    }
    let mut record = [0; FAILURE_LENGTH + MAX_FAILURE_MESSAGE];
    match socket::receive(ours, &mut record, true).map_err(failed)? {
        (FAILURE_LENGTH, Some(pidfd)) => {
            let pid = pidfd::pid_of(pidfd.as_fd()).ok_or_else(|| failed(Errno::ESRCH))?;
            Ok(Side::Parent(Pid::from_raw(pid), pidfd, messages))
        }
        (length @ FAILURE_LENGTH.., None) => {
            let (record, message) = record[..length].split_at(FAILURE_LENGTH);
            let failure = parse_failure(record).ok_or_else(|| failed(Errno::EBADMSG))?;
            let message = String::from_utf8_lossy(message).into_owned();
            match (failure.step, prepared.joined.get(usize::from(failure.index))) {
                (Step::Join, Some(join)) => {
                    let object = format!("{} namespace {}", join.kind.name(), join.path);
                    Err(Error::errno(failure.step, object, failure.errno))
                }
                _ => Err(with_message(name_failure(plan, prepared, failure), message)),
            }
        }
        _ => Err(Error::new(Step::Clone, "intermediate process", "died before it created the container's process")),
    }
}

/// Waits until one of the two channels is readable. `true` means the intermediate process's channel.
fn is_readable(ours: &OwnedFd, parent: &ParentEnds) -> std::result::Result<bool, Errno> {
    let mut polled = [ours, &parent.control].map(|fd| PollFd::new(fd.as_fd(), PollFlags::POLLIN));
    loop {
        match poll(&mut polled, PollTimeout::NONE) {
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno),
            Ok(_) => return Ok(!polled[1].any().unwrap_or(false)),
        }
    }
}

/// The intermediate process's half.
fn go<'a>(
    prepared: &'a Prepared<'_>,
    plan: &ContainerPlan,
    entered: Option<BorrowedFd<'_>>,
    (theirs, ends): (&OwnedFd, &ChildEnds),
    state: &dyn Fn(i32, &str) -> String,
    hook_message: &mut String,
) -> Applied<(Cloned, Option<Confined<'a>>)> {
    process::set_parent_death_signal(libc::SIGKILL).during(Step::Lifeline, 0)?;
    let bound = if entered.is_some() { schedule::bind_initially(&plan.process) } else { Ok(()) };
    match socket::receive(theirs, &mut [0; 1], true) {
        Ok((1, _)) => {}
        received => return received.and(Err(Errno::EPIPE)).during(Step::Wait, 0),
    }
    bound?; // reported only now that the runtime reads
    child::enter_cgroups(prepared)?;
    if plan.new.contains(&NamespaceKind::Time) {
        namespace::unshare(NamespaceKind::Time.number() as i32).during(Step::TimeNamespace, 0)?;
        write_offsets(plan).during(Step::TimeNamespace, 1)?;
    }
    // Processes inside the namespaces that we enter must not be able to inspect us.
    process::set_dumpable(false).during(Step::Join, 0)?;
    if prepared.root.is_none() {
        if prepared.confines_first {
            child::label(prepared)?;
        }
        let channel = [theirs.as_raw_fd(), entered.map_or(-1, |pidfd| pidfd.as_raw_fd())];
        child::leave_the_host(prepared, ends, &channel)?;
    }
    if let Some(pidfd) = entered {
        enter_all(pidfd, prepared)?;
    }
    enter_each(prepared)?;
    if !prepared.confines_first {
        return Ok((clone3(prepared.flags | SIBLING, None).during(Step::Clone, 0)?, None));
    }
    if prepared.flags != 0 {
        namespace::unshare(prepared.flags as i32).during(Step::Clone, 0)?; // before the clone: the new process would be visible inside first otherwise
    }
    let confined = child::confine_first(prepared, plan, ends, theirs.as_raw_fd(), state, hook_message)?;
    Ok((sibling().during(Step::Clone, 0)?, Some(confined)))
}

/// Enters all namespaces of a process that differ from ours. A process cannot enter its current user namespace again.
fn enter_all(pidfd: BorrowedFd<'_>, prepared: &Prepared<'_>) -> Applied {
    let flags = prepared.entered_flags;
    match namespace::enter(pidfd, flags) {
        Err(Errno::EPERM) if flags as u32 & NamespaceKind::User.number() != 0 => {}
        entered => return entered.during(Step::Join, 0),
    }
    // Namespaces that belong to our own user namespace must be entered first, while we have capabilities in it.
    let mut left = 0;
    left |= NamespaceKind::User.number() as i32;
    let others = NamespaceKind::ALL.iter().filter(|kind| **kind != NamespaceKind::User);
    for kind in others.filter(|kind| flags as u32 & kind.number() != 0) {
        match namespace::enter(pidfd, kind.number() as i32) {
            Err(Errno::EPERM) => left |= kind.number() as i32,
            entered => entered.during(Step::Join, 0)?,
        }
    }
    namespace::enter(pidfd, left).during(Step::Join, 0)
}

/// Enters namespaces by path. Where that fails with EPERM, it is tried again with the capabilities of the joined user
/// namespace.
fn enter_each(prepared: &Prepared<'_>) -> Applied {
    let mut late = 0u32;
    for (index, join) in prepared.joined.iter().enumerate().filter(|(_, join)| join.kind != NamespaceKind::User) {
        match namespace::enter(join.fd.as_fd(), join.kind.number() as i32) {
            Err(Errno::EPERM) => late |= 1 << index,
            entered => entered.during(Step::Join, index)?,
        }
    }
    for (index, join) in prepared.joined.iter().enumerate() {
        if join.kind == NamespaceKind::User {
            namespace::enter(join.fd.as_fd(), join.kind.number() as i32).during(Step::Join, index)?;
        }
    }
    for (index, join) in prepared.joined.iter().enumerate().filter(|(index, _)| late >> index & 1 == 1) {
        namespace::enter(join.fd.as_fd(), join.kind.number() as i32).during(Step::Join, index)?;
    }
    Ok(())
}

fn write_offsets(plan: &ContainerPlan) -> std::result::Result<(), Errno> {
    if plan.time_offsets.is_empty() {
        return Ok(());
    }
    let proc = rootfs::host_proc()?;
    let file = openat(&proc, c"self/timens_offsets", OFlag::O_WRONLY | OFlag::O_CLOEXEC, Mode::empty())?;
    let lines = plan.time_offsets.iter().map(|one| format!("{} {} {}\n", one.clock, one.secs, one.nanosecs));
    nix::unistd::write(file, lines.collect::<String>().as_bytes()).map(drop)
}
