//! The container's process: the start-up sequence from clone3 to execve, one line per step.
//!
//! As in a direct run, everything was prepared before the clone, and a failure is reported as numbers. Hooks are the exception:
//! they are the administrator's programs, and this process starts them because they run inside the container.

use std::convert::Infallible;
use std::ffi::CString;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd, RawFd};

use nix::errno::Errno;
use nix::sys::stat::Mode;

use super::gate::Gate;
use super::hook_output;
use super::hooks::{self, Inherited};
use super::path_rules::PathRules;
use super::prepare::Prepared;
use super::stream_owner::give_streams;
use super::streams::{devpts, open_terminal, take_streams};
use crate::cgroup::container::Entrance;
use crate::confine::process::program::Executable;
use crate::confine::schedule;
use crate::confine::user::account;
use crate::error::Step;
use crate::failure::{Applied, During};
use crate::launch::channels::ChildEnds;
use crate::launch::failures::{self, failure_with_message};
use crate::plan::{Bytes, ContainerPlan};
use crate::rootfs;
use crate::sys::process::CStringArray;
use crate::sys::{credentials, entry, mount, namespace, net, process};

/// The state that an intermediate process passes to the container's process, if it confines itself before it joins.
#[derive(Debug)]
pub struct Confined<'a> {
    ready: Ready<'a>,
}

/// The remaining steps of a confined process.
#[derive(Debug)]
struct Ready<'a> {
    rules: Option<PathRules>,
    executable: Executable<'a>,
    /// The environment with the user's home, if the configuration has none.
    env: Option<CStringArray>,
    /// That of `startContainer` hooks that have none of their own.
    hook_env: Vec<Bytes>,
}

/// Becomes the container's program. Never returns to the code that cloned it.
pub fn run(
    prepared: &Prepared<'_>,
    plan: &ContainerPlan,
    confined: Option<Confined<'_>>,
    ends: &ChildEnds,
    state: &dyn Fn(i32, &str) -> String,
) -> ! {
    entry::retitle(&prepared.title); // other processes of the container can read the command line
    let mut hook_message = String::new();
    let Err(failure) = ends.wait().and_then(|()| match confined {
        Some(confined) => join(prepared, plan, confined, ends, state, &mut hook_message),
        None => start(prepared, plan, ends, state, &mut hook_message),
    });
    // After the gate opens, only `start` reads failures.
    if let Some(gate) = &prepared.gate {
        let _ = nix::unistd::write(gate.answer(), &failure_with_message(failure, &hook_message));
    }
    ends.fail_with_message(failure, &hook_message);
    process::exit(125)
}

fn start(
    prepared: &Prepared<'_>,
    plan: &ContainerPlan,
    ends: &ChildEnds,
    state: &dyn Fn(i32, &str) -> String,
    hook_message: &mut String,
) -> Applied<Infallible> {
    process::ignore_broken_pipes();
    process::set_dumpable(false).during(Step::Lifeline, 0)?;
    if !prepared.needs_intermediate {
        enter_cgroups(prepared)?;
    }
    if prepared.in_user_namespace {
        credentials::set_ids(0, 0).during(Step::SetIds, 0)?; // root of its user namespace, until set-up is complete
    }
    process::set_parent_death_signal(libc::SIGKILL).during(Step::Lifeline, 0)?; // after the change of ids, which clears the signal
    ends.parent_lives()?;
    let terminal = take_root(prepared, plan, ends, &[], state, hook_message)?;
    take_streams(prepared, terminal.as_ref())?;
    prepared.process.start_session(terminal.is_some())?;
    let rules = path_rules(prepared)?;
    prepared.process.limit()?;
    prepared.process.settle(prepared.first_closed)?;
    let ready = confine(prepared, plan, ends, rules)?;
    wait_and_execute(prepared, plan, ends, state, hook_message, ready)
}

/// Enters the cgroups of v1. A child of a process that has done so begins there.
pub fn enter_cgroups(prepared: &Prepared<'_>) -> Applied {
    prepared.entrance.as_ref().map_or(Ok(()), Entrance::enter)
}

/// The steps that require privilege: cgroup namespace, loopback, and the root with its mounts and hooks. Returns the process's
/// terminal. Afterwards no descriptor of the host is open except `also`.
fn take_root(
    prepared: &Prepared<'_>,
    plan: &ContainerPlan,
    ends: &ChildEnds,
    also: &[RawFd],
    state: &dyn Fn(i32, &str) -> String,
    hook_message: &mut String,
) -> Applied<Option<OwnedFd>> {
    if prepared.hides_cgroup {
        process::unshare_cgroup().during(Step::Cgroup, 0)?; // after it has entered its cgroup, which becomes the namespace's root
    }
    nix::sys::stat::umask(Mode::empty());
    if prepared.terminal.is_none() {
        give_streams(&prepared.streams, prepared.users.inside().0); // while the process may, and before a filter may refuse it
    }
    if prepared.loopback {
        net::loopback_up().during(Step::Loopback, 0)?;
    }
    let Some(root) = &prepared.root else {
        close_the_host(prepared, None, ends, also)?;
        let devpts = prepared.terminal.map(|_| devpts()).transpose().during(Step::Terminal, 0)?;
        set_up(prepared, plan, || Ok(()))?;
        return open_terminal(prepared, devpts.as_ref(), ends);
    };
    let built = root.build()?;
    let terminal = open_terminal(prepared, built.devpts.as_ref(), ends)?;
    if let Some(terminal) = &terminal {
        root.show_console(&built, terminal.as_fd())?;
    }
    if prepared.waits_for_hooks {
        ends.built()?;
    }
    let inherited = Inherited { environment: &prepared.hook_environment, output: &prepared.hook_output, filter: None };
    hooks::run_inside(&plan.hooks.create_container, 0, inherited, state, "creating", hook_message)?;
    set_up(prepared, plan, || {
        let inside: Vec<RawFd> = built.fds().chain(also.iter().copied()).collect();
        close_the_host(prepared, terminal.as_ref(), ends, &inside)?;
        root.protect_and_pivot(built)
    })?;
    Ok(terminal)
}

/// Confines the intermediate process of a process that joins a pid namespace, while no process inside can see it. The process
/// that then appears inside has no more privileges than the others. `channel` stays open.
pub fn confine_first<'a>(
    prepared: &'a Prepared<'_>,
    plan: &ContainerPlan,
    ends: &ChildEnds,
    channel: RawFd,
    state: &dyn Fn(i32, &str) -> String,
    hook_message: &mut String,
) -> Applied<Confined<'a>> {
    entry::retitle(&prepared.title); // the container's process will be a copy of this one
    process::ignore_broken_pipes();
    let terminal = take_root(prepared, plan, ends, &[channel], state, hook_message)?;
    take_streams(prepared, terminal.as_ref())?;
    let rules = path_rules(prepared)?;
    prepared.process.settle(prepared.first_closed)?;
    let ready = confine(prepared, plan, ends, rules)?;
    std::mem::forget(terminal); // close-on-exec; the filter may refuse close(2)
    Ok(Confined { ready })
}

/// The remaining steps of the container's process in the joined pid namespace, after [`confine_first`]. An early filter is in
/// force: [`super::remaining_calls`] lists every call.
fn join(
    prepared: &Prepared<'_>,
    plan: &ContainerPlan,
    confined: Confined<'_>,
    ends: &ChildEnds,
    state: &dyn Fn(i32, &str) -> String,
    hook_message: &mut String,
) -> Applied<Infallible> {
    prepared.process.start_session(prepared.terminal.is_some())?;
    prepared.process.limit()?;
    wait_and_execute(prepared, plan, ends, state, hook_message, confined.ready)
}

/// Waits until the runtime has verified this process, then for `start` if there is a gate, and executes the program.
fn wait_and_execute(
    prepared: &Prepared<'_>,
    plan: &ContainerPlan,
    ends: &ChildEnds,
    state: &dyn Fn(i32, &str) -> String,
    hook_message: &mut String,
    Ready { rules, executable, env, hook_env }: Ready<'_>,
) -> Applied<Infallible> {
    ends.send_ready(executable.executed).during(Step::Fork, 0)?;
    // The runtime may refuse what it sees. And it must have recorded this process, or a process that no command knows would
    // wait for ever. An end without a failure would look like an executed program.
    ends.wait()?;
    if let Some(gate) = &prepared.gate {
        gate.wait().during(Step::Wait, 0)?;
        let first = plan.hooks.create_container.len();
        let filter = prepared.seccomp.as_ref().filter(|_| !prepared.filters_early);
        // The files for their output are the host's, and closed.
        let inherited = Inherited { environment: &hook_env, output: &hook_output::Output::default(), filter };
        hooks::run_inside(&plan.hooks.start_container, first, inherited, state, "created", hook_message)?;
    }
    // Only now, because hooks inside the container must not be restricted.
    if let Some(rules) = rules {
        rules.apply(prepared)?;
    }
    execute(prepared, ends, &executable, env.as_ref())
}

/// Closes every descriptor that is not the container's own and not passed to it. This happens before the first path in its root
/// is looked up: `/proc/self/fd/N/..` must not lead to the host, and close-on-exec takes effect only after execve has resolved
/// its paths.
fn close_the_host(prepared: &Prepared<'_>, terminal: Option<&OwnedFd>, ends: &ChildEnds, also: &[RawFd]) -> Applied {
    let mut kept: Vec<RawFd> = prepared.streams.iter().map(|stream| stream.as_raw_fd()).collect();
    kept.extend([ends.control.as_raw_fd(), ends.failure.as_raw_fd()]);
    kept.extend(prepared.gate.iter().flat_map(Gate::fds));
    kept.extend(terminal.map(|terminal| terminal.as_raw_fd()));
    kept.extend(prepared.landlock.as_ref().map(|rules| rules.fd().as_raw_fd()));
    kept.extend(also);
    process::close_but(prepared.first_closed, &mut kept).during(Step::Descriptors, 1)
}

/// As [`close_the_host`], for an intermediate process before it enters the container's root. It keeps the namespaces that it
/// has yet to enter and its channel to the runtime.
pub fn leave_the_host(prepared: &Prepared<'_>, ends: &ChildEnds, also: &[RawFd]) -> Applied {
    let joined = prepared.joined.iter().map(|join| join.fd.as_raw_fd());
    close_the_host(prepared, None, ends, &joined.chain(also.iter().copied()).collect::<Vec<_>>())
}

/// Installs the filter, if it is not installed yet, and executes the program.
fn execute(
    prepared: &Prepared<'_>,
    ends: &ChildEnds,
    executable: &Executable<'_>,
    env: Option<&CStringArray>,
) -> Applied<Infallible> {
    if let (Some(seccomp), Some(handshake)) = (&prepared.seccomp, &prepared.handshake) {
        let pipe = prepared.gate.as_ref().map_or(ends.failure.as_fd(), Gate::answer);
        failures::announce_filter(pipe).during(Step::Wait, 1)?;
        let listener = seccomp.apply()?;
        handshake.wait(listener, prepared.scheduled_last); // makes no system call, and neither does the code from here on, except execve
        let Err(failure) = prepared.process.exec(executable, env);
        handshake.fail(failure)
    }
    prepared.process.exec(executable, env)
}

fn path_rules(prepared: &Prepared<'_>) -> Applied<Option<PathRules>> {
    prepared.landlock.as_ref().map(PathRules::of).transpose()
}

/// Set-up that requires privilege and the old root: host name, kernel parameters, label. Then the new root, keyring and
/// scheduling.
fn set_up(prepared: &Prepared<'_>, plan: &ContainerPlan, change_root: impl FnOnce() -> Applied) -> Applied {
    if let Some(root) = &prepared.root {
        prepared.process.set_hostname()?;
        if let Some(name) = &plan.domainname {
            namespace::set_domain_name(name.as_bytes()).during(Step::Hostname, 1)?;
        }
        if !plan.sysctl.is_empty() {
            root.write_sysctl(private_proc(Step::Sysctl)?.as_fd())?;
        }
        label(prepared)?;
        change_root()?;
    } else if !prepared.confines_first {
        label(prepared)?;
    }
    if plan.new_keyring {
        match process::join_new_session_keyring() {
            Err(Errno::ENOSYS) => {} // a kernel without keyrings has none to share
            joined => joined.during(Step::Keyring, 0)?,
        }
    }
    if !prepared.confines_first && !prepared.scheduled_last {
        schedule::set_policy(&plan.process, 0)?; // otherwise the runtime sets it
    }
    schedule::apply(plan, prepared.root.is_none())
}

/// Sets the labels for the next execve. An intermediate process that joins a pid namespace does so while it can reach the
/// procfs of its own pid namespace: in any other procfs it has no `self`.
pub fn label(prepared: &Prepared<'_>) -> Applied {
    if prepared.label.is_empty() {
        return Ok(());
    }
    let proc = match prepared.confines_first {
        true => rootfs::host_proc().during(Step::Label, 0)?,
        false => private_proc(Step::Label)?,
    };
    prepared.label.apply(proc.as_fd())
}

/// A procfs that no other process can reach. If none can be mounted, the old root's procfs.
fn private_proc(step: Step) -> Applied<OwnedFd> {
    mount::private_proc().or_else(|_| rootfs::host_proc()).during(step, 0)
}

/// Sets no_new_privs, ids, capabilities and the working directory, and reads them back.
fn confine<'a>(
    prepared: &'a Prepared<'_>,
    plan: &ContainerPlan,
    ends: &ChildEnds,
    mut rules: Option<PathRules>,
) -> Applied<Ready<'a>> {
    // Opened before the change of ids, because the program's user may lack access.
    let cwd = prepared.process.open_cwd();
    let entered = cwd.as_ref().map_err(|errno| *errno).and_then(enter);
    let looked_up = prepared.process.find();
    let home = prepared.needs_home.then(|| [&b"HOME="[..], &account::of(prepared.users.inside().0).home].concat());
    let env = home.clone().map(|home| prepared.process.env_with(CString::new(home).unwrap_or_default()));
    let hook_env = match plan.hooks.start_container.is_empty() {
        true => Vec::new(),
        false => plan.process.command.env.iter().cloned().chain(home.map(Bytes::from)).collect(),
    };
    process::ignore_broken_pipes(); // the program's signal dispositions are already set; until execve a write to a broken pipe must not kill
    if plan.process.no_new_privs {
        process::set_no_new_privs().during(Step::NoNewPrivs, 0)?;
    }
    prepared.capabilities.bound()?;
    credentials::keep_capabilities(true).during(Step::Capabilities, 0)?;
    if prepared.users.can_clear_groups() && !plan.keep_groups {
        match credentials::set_groups(&plan.process.groups) {
            // setgroups may be denied in a user namespace. Then no process inside has groups that could be dropped.
            Err(Errno::EPERM) if plan.process.groups.is_empty() && prepared.in_user_namespace => {}
            set => set.during(Step::Groups, 0)?,
        }
    }
    prepared.users.take()?;
    let sets = prepared.capabilities.until_execve(prepared.extra_capability);
    sets.take()?;
    credentials::keep_capabilities(false).during(Step::Capabilities, 0)?;
    let again = match &cwd {
        Ok(cwd) => nix::unistd::fchdir(cwd),
        Err(_) => prepared.process.open_cwd().and_then(|cwd| enter(&cwd)),
    };
    match again {
        Err(_) if entered.is_ok() => {}
        result => result.during(Step::Cwd, 0)?,
    }
    prepared.users.verify()?;
    sets.verify()?;
    if plan.process.no_new_privs && !process::no_new_privs().during(Step::Verify, 2)? {
        return Err(Errno::EPERM).during(Step::Verify, 2);
    }
    // The change of ids has cleared the signal and made this process dumpable.
    process::set_dumpable(false).during(Step::Lifeline, 0)?;
    process::set_parent_death_signal(0).during(Step::Lifeline, 1)?; // from here on it ends when its channel does
    process::default_broken_pipes().during(Step::Signals, 0)?;
    // If root did not find the program, the lookup as the container's user counts.
    let mut found = match looked_up {
        Ok(found) if entered.is_ok() => found,
        _ => prepared.process.find()?,
    };
    found.retain_executable()?;
    let executable = found.close();
    drop(cwd);
    if prepared.filters_early {
        filter(prepared, ends, rules.take())?;
    }
    Ok(Ready { rules, executable, env, hook_env })
}

/// Enforces Landlock and installs an early filter. From here on [`super::remaining_calls`] lists every call.
fn filter(prepared: &Prepared<'_>, ends: &ChildEnds, rules: Option<PathRules>) -> Applied {
    if let Some(rules) = rules {
        rules.apply(prepared)?;
    }
    if let Some(seccomp) = &prepared.seccomp
        && let Some(listener) = seccomp.apply()?
    {
        ends.send_listener(listener.as_fd()).during(Step::Seccomp, 1)?; // while the runtime exists
    }
    if prepared.extra_capability != 0 {
        prepared.capabilities.lower()?;
    }
    Ok(())
}

/// Makes it the working directory, if it lies within our root.
fn enter(directory: &OwnedFd) -> std::result::Result<(), Errno> {
    nix::unistd::fchdir(directory)?;
    if nix::unistd::getcwd()?.is_absolute() { Ok(()) } else { Err(Errno::EXDEV) }
}
