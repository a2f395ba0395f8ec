//! `create`, `start` and `run`.

use std::os::fd::{AsFd as _, OwnedFd};

use nix::errno::Errno;
use nix::unistd::Pid;

use super::config::{self, Config};
use super::console::activation;
use super::notify::Listener;
use super::record::{End, Record, Status};
use super::store::Held;
use super::{Runtime, delete, image, log};
use crate::cgroup::container::{Groups, Places, find, unit};
use crate::confine::user::open_proc_pid;
use crate::container::gate::{Gate, Started, open_gate};
use crate::container::{Launched, Request, Rest, filters_of, hooks, launch, listener, set_policy, start_error};
use crate::error::{Error, Result, Step};
use crate::launch::executed;
use crate::launch::steps::step;
use crate::plan::ContainerPlan;
use crate::report::Enforced;
use crate::sys::process::{self, borrow_standard};

/// Creates a container, without executing its program.
pub fn create(runtime: &Runtime) -> Result<u8> {
    let preserved = runtime.preserved()?;
    image::protect(preserved, None, None)?;
    let made = make(runtime, preserved, false)?;
    drop(made);
    Ok(0)
}

/// Creates and starts a container. Without `--detach` waits for its end and deletes it.
pub fn run(runtime: &Runtime) -> Result<u8> {
    let preserved = runtime.preserved()?;
    image::protect(preserved, None, None)?;
    let detach = runtime.args.is_on("detach");
    let foreground = runtime.foreground()?;
    let (held, launched) = make(runtime, preserved, !detach)?;
    let id = held.record.id.clone();
    let started = start_held(runtime, held);
    let Some(foreground) = foreground else {
        let pid = launched.pid.as_raw().unsigned_abs();
        return match started {
            Ok(None) => Ok(0),
            Ok(Some(listener)) => listener.wait_until_ready(launched.pidfd.as_fd(), pid).map(|()| 0),
            Err(error) => {
                if let Ok(held) = runtime.store.hold(&id) {
                    let _ = delete::destroy(runtime, held);
                }
                Err(error)
            }
        };
    };
    let waited = started.and_then(|listener| {
        if let Some(listener) = listener {
            let pidfd = launched.pidfd.try_clone().map_err(|_| Error::errno(Step::Notify, "pidfd", Errno::EMFILE))?;
            // A thread is safe now, because no process is cloned any more. The service manager watches this process.
            std::thread::spawn(move || listener.follow(pidfd.as_fd(), std::process::id()));
        }
        foreground.wait(launched)
    });
    if !runtime.args.is_on("keep") || waited.is_err() {
        match runtime.store.hold(&id) {
            Ok(mut held) => {
                held.end = match &waited {
                    Ok(code) => End::Code(*code),
                    Err(error) => End::Failed(error.clone()),
                };
                delete::destroy(runtime, held)?;
            }
            Err(error) if super::store::is_missing(&error) => {} // another command deleted it first
            Err(error) => return Err(error),
        }
    }
    waited
}

/// Executes the program of a created container.
pub fn start(runtime: &Runtime) -> Result<u8> {
    runtime.args.at_most(1)?;
    let held = runtime.store.hold(runtime.args.id()?)?;
    let (process, pid) = (held.record.process(), held.record.pid.unsigned_abs());
    if let (Some(listener), Some(process)) = (start_held(runtime, held)?, process) {
        listener.wait_until_ready(process.as_fd(), pid)?;
    }
    Ok(0)
}

/// Starts it, and returns the listener for its messages to a service manager, if there is one. Releases the lock before
/// waiting: hooks may take long, and other commands must work meanwhile.
fn start_held(runtime: &Runtime, held: Held) -> Result<Option<Listener>> {
    let id = held.record.id.clone();
    match held.status() {
        Status::Created => {}
        Status::Stopped => return Err(Error::new(Step::Status, id, "cannot start a container that has stopped")),
        Status::Creating => return Err(Error::new(Step::Status, id, "cannot start a container in the creating state")),
        Status::Running => return Err(Error::new(Step::Status, id, "cannot start an already running container")),
        Status::Paused => return Err(Error::new(Step::Status, id, "cannot start a container in the paused state")),
    }
    let listener = Listener::open(&held.directory)?;
    let underway = match open_gate(&held.directory) {
        // No process waits at the gate, or it died when the gate was opened.
        Err(Errno::ENXIO | Errno::ENOENT | Errno::EPIPE) => {
            return Err(Error::new(Step::Status, id, "cannot start a container that has stopped"));
        }
        opened => opened.map_err(|errno| Error::errno(Step::State, "exec fifo", errno))?,
    };
    step("gate", || format!("opened for pid {}", held.record.pid));
    let process = held.record.process();
    let (record, directory) = (held.record.clone(), held.directory.clone());
    drop(held);
    let (pid, plan) = (Pid::from_raw(record.pid), || super::store::read_plan(&directory));
    let rest = Rest {
        schedule: || set_policy(&plan()?, pid),
        take_listener: |number| {
            let gone = || Error::new(Step::State, record.id.clone(), "died before its program was executed");
            let listener = listener::take(process.as_ref().ok_or_else(gone)?.as_fd(), number)?;
            listener::hand_over_of(&plan()?, listener.as_fd(), pid, &record.state_text(record.pid, "created"))
        },
    };
    let started = underway.wait(|| first_process(&record), rest).inspect_err(|_| {
        if let Some(process) = &process {
            let _ = process::pidfd_send_signal(process.as_fd(), libc::SIGKILL);
        }
    });
    match started? {
        Started::Executed => verify_executed(&record).inspect(|()| step("executed", || "its program"))?,
        Started::Failed(failure, words) => {
            return Err(start_error(&super::store::read_plan(&directory)?, failure, words));
        }
        Started::Died => {
            return Err(Error::new(Step::Status, id, "the container died before its program was executed"));
        }
    }
    if !record.later_hooks {
        return Ok(listener);
    }
    let mut held = match runtime.store.hold(&id) {
        Ok(held) if (held.record.pid, held.record.started) == (record.pid, record.started) => held,
        Err(error) if !super::store::is_missing(&error) => return Err(error),
        _ => return Ok(listener), // it ran, and another command has deleted it
    };
    let plan = held.plan()?;
    if !plan.hooks.poststart.is_empty() {
        step("hooks", || "poststart");
        let state = record.state_text(record.pid, "running");
        if let Err(error) = hooks::run("poststart", &plan.hooks.poststart, &plan.hooks.files, &state) {
            // As specified: the container ends and is deleted.
            held.end = End::Failed(error.clone());
            if let Err(other) = delete::destroy(runtime, held) {
                runtime.log.warn(&log::sentence(&other));
            }
            return Err(error);
        }
    }
    Ok(listener)
}

/// Kills a container that executes a file of the host.
fn verify_executed(record: &Record) -> Result<()> {
    let Some(process) = record.process() else { return Ok(()) };
    executed::verify(record.pid, None).inspect_err(|_| {
        let _ = process::pidfd_send_signal(process.as_fd(), libc::SIGKILL);
    })
}

/// The `/proc/PID` directory of a container's first process, and how many filters it must have.
fn first_process(record: &Record) -> Result<(OwnedFd, u64)> {
    let proc_pid = open_proc_pid(Pid::from_raw(record.pid))?;
    if !record.is_alive() {
        return Err(Error::new(Step::Status, record.id.clone(), "the container died before its program was executed"));
    }
    Ok((proc_pid, record.filters.unwrap_or(1)))
}

/// Creates a container that waits at its gate. On failure removes everything that it made.
fn make(runtime: &Runtime, preserved: u32, bridged: bool) -> Result<(Held, Launched)> {
    runtime.args.at_most(1)?;
    let id = runtime.args.id()?;
    super::store::valid_id(id)?;
    let bundle = runtime.bundle()?;
    let mut config = config::load(&runtime.config_file(&bundle)?, &bundle, id, runtime.flags()?)?;
    #[cfg(feature = "ablate")]
    crate::launch::ablate::thin_container(&mut config.plan);
    config.warnings.iter().for_each(|warning| runtime.log.warn(warning));
    step("config", || format!("{} read", bundle.display()));
    runtime.check_console(&config.plan, bridged)?;
    let mut record = Record::new(id, &bundle, &config.rootfs)?;
    record.oci_version = config.oci_version.clone();
    record.annotations = config.annotations.clone();
    config.plan.no_pivot = runtime.args.is_on("no-pivot");
    let plan = &config.plan;
    record.later_hooks = !plan.hooks.poststart.is_empty() || !plan.hooks.poststop.is_empty();
    super::report::place(&record, Some(plan))?;
    super::report::check_hook_files(plan)?;
    record.places = if plan.cgroup.disabled { None } else { places(plan, id)? };
    let mut held = runtime.store.create(record)?;
    step("state", || format!("{} created", held.directory.display()));
    let launched = held.write().and_then(|()| fill(runtime, preserved, &mut held, &mut config));
    match launched {
        Ok(launched) => Ok((held, launched)),
        Err(error) => {
            held.end = End::Failed(error.clone());
            let _ = delete::destroy(runtime, held);
            Err(error)
        }
    }
}

/// The paths of the cgroups; `None` if they are disabled.
pub fn places(plan: &ContainerPlan, id: &str) -> Result<Option<Places>> {
    if plan.cgroup.disabled { Ok(None) } else { find(&plan.cgroup, id).map(Some) }
}

/// Creates the cgroups and sets their limits. The placeholder process keeps a scope of systemd alive until the container
/// is in it.
pub fn make_places(
    runtime: &Runtime,
    held: &mut Held,
    plan: &ContainerPlan,
) -> Result<(Option<Groups>, Option<unit::Placeholder>)> {
    let mut placeholder = None;
    if let Some(places) = held.record.places.as_mut().filter(|_| plan.cgroup.systemd) {
        let (real, process) = unit::start(&plan.cgroup, &held.record.id, places)?;
        (*places, placeholder) = (real, Some(process));
    }
    let groups = match &held.record.places {
        Some(places) => make_groups(runtime, places, plan)?,
        None => None,
    };
    if groups.is_none() {
        held.record.places = None;
    }
    Ok((groups, placeholder))
}

fn fill(runtime: &Runtime, preserved: u32, held: &mut Held, config: &mut Config) -> Result<Launched> {
    if super::notify::manager().is_some() {
        super::notify::prepare(&held.directory, &mut config.plan)?;
    }
    config.plan.process.command.env.extend(activation());
    let plan = &config.plan;
    let (groups, placeholder) = make_places(runtime, held, plan)?;
    let cgroup = || groups.as_ref().and_then(Groups::record).map_or("none".to_owned(), |group| group.path);
    step("cgroup", cgroup);
    held.write_plan(plan)?;
    let gate = Gate::make(&held.directory)?;
    let record = held.record.clone();
    let state = |pid: i32, status: &str| record.state_text(pid, status);
    let directory = held.directory.clone();
    let mut built = |pid: nix::unistd::Pid| {
        let text = state(pid.as_raw(), "creating");
        step("hooks", || "prestart, createRuntime");
        hooks::run("prestart", &plan.hooks.prestart, &plan.hooks.files, &text)?;
        hooks::run("createRuntime", &plan.hooks.create_runtime, &plan.hooks.files, &text)
    };
    // Written while the child builds its root. A record with a pid means that the container is ready, so this one is not
    // visible yet.
    let mut cloned = |pid: nix::unistd::Pid, enforced: &Enforced| {
        let started = crate::cgroup::started(pid.as_raw().unsigned_abs());
        let Ok(Some(started)) = started else { return Ok(()) }; // it died; its error is read later
        held.record.pid = pid.as_raw();
        held.record.started = started;
        held.record.filters = filters_of(enforced);
        held.record.enforced = Some(enforced.clone());
        held.write_aside()
    };
    let request = Request {
        groups: groups.as_ref(),
        entered: None,
        streams: [0, 1, 2].map(borrow_standard),
        preserved,
        relays_terminal: runtime.relays_terminal(),
        gate: Some(gate),
        state: &state,
        notes: Some(&directory),
        cloned: &mut cloned,
        built: &mut built,
    };
    let mut launched = launch(plan, request)?;
    drop(placeholder); // the container is in its scope now
    launched.warnings.iter().for_each(|warning| runtime.log.warn(warning));
    let made = runtime
        .hand_over(&mut launched)
        .and_then(|()| held.put_in_place())
        .and_then(|()| runtime.write_pid_file(held.record.pid))
        .and_then(|()| launched.release());
    if let Err(error) = made {
        process::end_child(launched.pidfd.as_fd(), launched.pid);
        return Err(error);
    }
    step("created", || format!("pid {} waits for start", launched.pid));
    Ok(launched)
}

/// `None` if an unprivileged caller cannot create cgroups, and no limits were configured.
fn make_groups(runtime: &Runtime, places: &Places, plan: &ContainerPlan) -> Result<Option<Groups>> {
    let resources = &plan.cgroup.resources;
    let root = process::is_hosts_root();
    let limited = crate::plan::container::Resources { devices: None, ..resources.clone() } != Default::default();
    let groups = match Groups::make(places.clone()) {
        Err(error) if !root && !limited => {
            runtime.log.warn(&format!("the container has no cgroup: {error}"));
            return Ok(None);
        }
        made => made?,
    };
    if groups.is_populated() && !plan.cgroup.systemd {
        let path = groups.places().main().map(|path| path.display().to_string()).unwrap_or_default();
        return Err(Error::new(Step::Cgroup, path, "already contains processes")
            .hint("another container may have the same cgroupsPath"));
    }
    groups.limit(resources)?;
    if root {
        groups.allow_devices(resources)?; // without root, no device node can be created and the host's have owners
    }
    Ok(Some(groups))
}
