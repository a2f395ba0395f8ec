//! `exec`: runs another process in a running container, with the confinement of its first process.

use std::os::fd::{AsFd as _, RawFd};

use super::config;
use super::record::Status;
use super::store::Held;
use super::{Runtime, image};
use crate::container::{Entered, Request, launch};
use crate::error::{Error, Result, Step};
use crate::launch::steps::step;
use crate::plan::container::Process;
use crate::plan::{Bytes, Capability, Command, Confinement, ContainerPlan};
use crate::sys::process::{self, borrow_standard};

/// The variables that this command needs, for itself and to find the user's service manager.
const ENVIRONMENT: &[&str] = &[
    "XDG_RUNTIME_DIR",
    "DBUS_SESSION_BUS_ADDRESS",
    "PATH",
    "LISTEN_FDS",
    "LISTEN_PID",
    "LISTEN_FDNAMES",
    #[cfg(feature = "ablate")]
    "STOCKADE_ABLATE",
];

/// Runs another program in a container.
pub fn exec(runtime: &Runtime) -> Result<u8> {
    let preserved = runtime.preserved()?;
    image::protect(preserved, process_descriptor(runtime, preserved), Some(ENVIRONMENT))?;
    let id = runtime.args.id()?;
    let held = runtime.store.hold(id)?;
    match held.status() {
        Status::Running | Status::Created => {}
        Status::Paused if runtime.args.is_on("ignore-paused") => {}
        Status::Paused => {
            return Err(Error::new(Step::Status, id, "cannot exec in a paused container").hint("use --ignore-paused"));
        }
        _ => return Err(Error::new(Step::Status, id, "cannot exec in a stopped container")),
    }
    let detach = runtime.args.is_on("detach");
    let plan = plan(runtime, &held)?;
    if let Some(cpus) = &plan.process.initial_cpu_affinity {
        step("cpus", || format!("initial CPU affinity: 0x{}", mask(cpus)));
    }
    if let Some(number) = process_descriptor(runtime, preserved) {
        let _ = nix::unistd::close(number);
    }
    runtime.check_console(&plan, !detach)?;
    let first =
        held.record.process().ok_or_else(|| Error::new(Step::Status, id, "cannot exec in a stopped container"))?;
    let groups = held.record.needed_groups()?;
    let groups = match (groups, cgroups_below(runtime)?) {
        (None, below) if !below.is_empty() => {
            return Err(Error::new(Step::Cgroup, id, "the container has no cgroup, so --cgroup names none"));
        }
        (Some(groups), below) if !below.is_empty() => Some(groups.below(&below)?),
        (groups, _) => groups.map(|groups| groups.or_of(held.record.pid)),
    };
    let entered = Entered { first: first.as_fd(), pid: held.record.pid, namespaces: namespaces(&held.plan()?) };
    step("state", || format!("{} read", held.directory.display()));
    let record = held.record.clone();
    drop(held); // exec may take long, and other commands must work meanwhile
    let foreground = runtime.foreground()?;
    let state = |pid: i32, status: &str| record.state_text(pid, status);
    let request = Request {
        groups: groups.as_ref(),
        entered: Some(entered),
        streams: [0, 1, 2].map(borrow_standard),
        preserved,
        relays_terminal: runtime.relays_terminal(),
        gate: None,
        state: &state,
        notes: None,
        cloned: &mut |_, _| Ok(()),
        built: &mut |_| Ok(()),
    };
    let mut launched = launch(&plan, request)?;
    step("executed", || format!("pid {}", launched.pid));
    launched.warnings.iter().for_each(|warning| runtime.log.warn(warning));
    let handed = runtime.hand_over(&mut launched).and_then(|()| runtime.write_pid_file(launched.pid.as_raw()));
    if let Err(error) = handed {
        process::end_child(launched.pidfd.as_fd(), launched.pid);
        return Err(error);
    }
    foreground.map_or(Ok(0), |foreground| foreground.wait(launched))
}

/// CPUs as a hexadecimal mask.
fn mask(cpus: &[u32]) -> String {
    let digit = |at: u32| cpus.iter().filter(|cpu| *cpu / 4 == at).fold(0, |digit, cpu| digit | 1_u32 << (cpu % 4));
    let highest = cpus.iter().max().map_or(0, |cpu| cpu / 4);
    (0..=highest).rev().filter_map(|at| char::from_digit(digit(at), 16)).collect()
}

/// The values of `--cgroup`: `PATH`, or `CONTROLLER,…:PATH` for each hierarchy.
fn cgroups_below(runtime: &Runtime) -> Result<Vec<(Vec<&str>, &str)>> {
    let wrong = |text: &str, reason: &str| Err(Error::new(Step::Usage, format!("--cgroup {text}"), reason));
    let mut all: Vec<(Vec<&str>, &str)> = Vec::new();
    for value in runtime.args.all("cgroup") {
        let Some(text) = value.to_str() else { return wrong(&value.to_string_lossy(), "is not UTF-8") };
        let (controllers, path) = match text.split_once(':') {
            Some((names, path)) => (names.split(',').collect(), path),
            None => (Vec::new(), text),
        };
        if !all.is_empty() && (controllers.is_empty() || all[0].0.is_empty()) {
            return wrong(text, "several paths need a controller each: CONTROLLER:PATH");
        }
        if controllers.iter().any(|name| all.iter().any(|(known, _)| known.contains(name))) {
            return wrong(text, "names a controller for the second time");
        }
        all.push((controllers, path));
    }
    Ok(all)
}

/// `CLONE_NEW*` of the namespaces that the container does not share with the runtime.
fn namespaces(plan: &ContainerPlan) -> i32 {
    plan.namespaces().fold(0, |flags, kind| flags | kind.number() as i32)
}

/// The descriptor that `--process` names as `/dev/fd/N`, as a shell does for `<(command)`. `None` for one that
/// stays open in any case.
fn process_descriptor(runtime: &Runtime, preserved: u32) -> Option<RawFd> {
    let path = runtime.args.path("process")?;
    let number = path.strip_prefix("/dev/fd").or_else(|_| path.strip_prefix("/proc/self/fd")).ok()?;
    let number: u32 = number.to_str()?.parse().ok()?;
    RawFd::try_from(number).ok().filter(|_| number >= preserved.saturating_add(3))
}

/// The container's plan with another process, and without its mounts, namespaces and other created objects.
fn plan(runtime: &Runtime, held: &Held) -> Result<ContainerPlan> {
    let plan = held.plan()?;
    let process = match runtime.args.path("process") {
        Some(path) => {
            let (process, warnings) = config::load_process(&path, &plan.process.capabilities)?;
            warnings.iter().for_each(|warning| runtime.log.warn(warning));
            process
        }
        None => from_flags(runtime, &plan)?,
    };
    let ContainerPlan {
        confinement, personality, memory_policy, mount_label, new_keyring, cgroup, keep_groups, ..
    } = plan;
    let confinement =
        Confinement { masked_paths: Vec::new(), readonly_paths: Vec::new(), hostname: None, ..confinement };
    Ok(ContainerPlan {
        confinement,
        process,
        personality,
        memory_policy,
        mount_label,
        new_keyring,
        cgroup,
        keep_groups,
        ..ContainerPlan::default()
    })
}

/// A copy of the container's process, changed by the flags.
fn from_flags(runtime: &Runtime, plan: &ContainerPlan) -> Result<Process> {
    let args = &runtime.args;
    let argv: Vec<Bytes> = args.words.iter().skip(1).map(Bytes::from).collect();
    if argv.is_empty() {
        return Err(Error::new(Step::Usage, "exec", "process args cannot be empty"));
    }
    let first = plan.process.clone();
    let cwd = args.value("cwd").filter(|cwd| !cwd.is_empty()).map(Bytes::from);
    if let Some(relative) = cwd.as_ref().filter(|cwd| !cwd.as_bytes().starts_with(b"/")) {
        return Err(Error::new(Step::Usage, format!("--cwd {relative}"), "must be an absolute path"));
    }
    let mut process = Process {
        command: Command { argv, cwd: cwd.unwrap_or(first.command.cwd), ..first.command },
        terminal: args.is_on("tty"),
        no_new_privs: first.no_new_privs || args.is_on("no-new-privs"),
        apparmor_profile: args.text("apparmor")?.map(str::to_owned).or(first.apparmor_profile),
        selinux_label: args.text("process-label")?.map(str::to_owned).or(first.selinux_label),
        console_size: None,
        ..first
    };
    // These variables were meant for the first process only.
    let own = [&b"NOTIFY_SOCKET="[..], b"LISTEN_FDS=", b"LISTEN_PID=", b"LISTEN_FDNAMES="];
    process.command.env.retain(|variable| !own.iter().any(|name| variable.as_bytes().starts_with(name)));
    process.command.env.extend(args.all("env").map(Bytes::from));
    let id = |option: &str, text: &str| {
        let digits = text.bytes().all(|byte| byte.is_ascii_digit());
        let number = text.parse::<u32>().ok().filter(|id| digits && *id != u32::MAX);
        number.ok_or_else(|| Error::new(Step::Usage, format!("{option} {text}"), "is not a user or group id"))
    };
    if let Some(user) = args.text("user")? {
        let (uid, gid) = user.split_once(':').map_or((user, None), |(uid, gid)| (uid, Some(gid)));
        process.uid = id("--user", uid)?;
        process.gid = gid.map(|gid| id("--user", gid)).transpose()?.unwrap_or(process.gid);
    }
    for group in args.all("additional-gids") {
        process.groups.push(id("--additional-gids", &group.to_string_lossy())?);
    }
    let mut unknown = Vec::new();
    for name in args.all("cap") {
        let name = name.to_string_lossy();
        let Some(capability) = Capability::from_word(&name) else {
            unknown.push(name);
            continue;
        };
        // A capability becomes ambient only if it is inheritable, and the container decides which are.
        let sets = &mut process.capabilities;
        let ambient = sets.inheritable.contains(&capability).then_some(&mut sets.ambient);
        for set in [&mut sets.bounding, &mut sets.effective, &mut sets.permitted].into_iter().chain(ambient) {
            if !set.contains(&capability) {
                set.push(capability);
            }
        }
    }
    if !unknown.is_empty() {
        runtime.log.warn(&format!("ignoring unknown capabilities: {}", unknown.join(", ")));
    }
    config::settle_environment(&mut process.command.env);
    Ok(process)
}
