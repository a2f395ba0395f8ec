//! `exec`: another process in a container that is there, the same way as its first.

use std::os::fd::AsFd as _;

use super::config::{self, Process};
use super::create::state_text;
use super::record::Status;
use super::store::Held;
use super::{Runtime, image};
use crate::error::{Error, Result, Step};
use crate::plan::container::{Container, Hooks};
use crate::plan::{Bytes, Plan, Root};
use crate::sandbox::container::{Request, launch};
use crate::sys::process::{self, borrow_standard};

/// The variables that this command reads itself, and that it needs to find the user's service manager.
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
    image::protect(preserved, Some(ENVIRONMENT))?;
    let id = runtime.args.id()?;
    let held = runtime.store.hold(id)?;
    match held.status() {
        Status::Running | Status::Created => {}
        Status::Paused if runtime.args.is_on("ignore-paused") => {}
        Status::Paused => {
            return Err(Error::new(Step::State, id, "cannot exec in a paused container").hint("use --ignore-paused"));
        }
        _ => return Err(Error::new(Step::State, id, "cannot exec in a stopped container")),
    }
    let detach = runtime.args.is_on("detach");
    let plan = plan(runtime, &held)?;
    runtime.check_console(&plan, !detach)?;
    let first =
        held.record.process().ok_or_else(|| Error::new(Step::State, id, "cannot exec in a stopped container"))?;
    let groups = held.record.needed_groups()?;
    let groups = match (groups, runtime.args.text("cgroup")?) {
        (Some(groups), Some(path)) => Some(groups.below(path.rsplit_once(':').map_or(path, |(_, path)| path))?),
        // Where the container has made cgroups of its own, none of its processes may be in the one above them.
        (groups, _) => groups.map(|groups| groups.of(held.record.pid)),
    };
    let namespaces = namespaces(&held.plan()?);
    let record = held.record.clone();
    drop(held); // it may take long, and others have business with the container
    let foreground = runtime.foreground()?;
    let state = |pid: i32, status: &str| state_text(&record, pid, status);
    let request = Request {
        groups: groups.as_ref(),
        entered: Some((first.as_fd(), namespaces)),
        streams: [0, 1, 2].map(borrow_standard),
        preserved,
        gate: None,
        state: &state,
        notes: None,
        cloned: &mut |_, _| Ok(()),
        built: &mut |_| Ok(()),
    };
    let mut launched = launch(&plan, request)?;
    launched.warnings.iter().for_each(|warning| runtime.log.warn(warning));
    let handed = runtime.hand_over(&mut launched).and_then(|()| runtime.write_pid_file(launched.pid.as_raw()));
    if let Err(error) = handed {
        process::end_child(launched.pidfd.as_fd(), launched.pid);
        return Err(error);
    }
    foreground.map_or(Ok(0), |foreground| foreground.wait(launched))
}

/// `CLONE_NEW*` of the namespaces that the container does not share with the runtime.
fn namespaces(plan: &Plan) -> i32 {
    let Some(container) = plan.container.as_deref() else { return 0 };
    let kinds = container.new.iter().copied().chain(container.joined.iter().map(|join| join.kind));
    kinds.fold(0, |flags, kind| flags | kind.number() as i32)
}

/// The container's plan without what it made, with another process.
fn plan(runtime: &Runtime, held: &Held) -> Result<Plan> {
    let mut plan = held.plan()?;
    let process = match runtime.args.path("process") {
        Some(path) => {
            let (process, warnings) = config::load_process(&path)?;
            warnings.iter().for_each(|warning| runtime.log.warn(warning));
            process
        }
        None => from_flags(runtime, &plan)?,
    };
    plan.root = Root::Joined;
    plan.mounts.clear();
    plan.masked_paths.clear();
    plan.readonly_paths.clear();
    plan.hostname = None;
    if let Some(container) = &mut plan.container {
        let Container { new, joined, uid_map, gid_map, time_offsets, devices, sysctl, hooks, domainname, .. } =
            container.as_mut();
        (*new, *joined, *uid_map, *gid_map, *time_offsets) = Default::default();
        (*devices, *sysctl, *hooks, *domainname) = (Vec::new(), Vec::new(), Hooks::default(), None);
    }
    config::apply_process(&mut plan, process);
    Ok(plan)
}

/// A process as the container's own is, but for what the flags say.
fn from_flags(runtime: &Runtime, plan: &Plan) -> Result<Process> {
    let args = &runtime.args;
    let container = plan.container.as_deref().cloned().unwrap_or_default();
    let argv: Vec<Bytes> = args.words.iter().skip(1).map(Bytes::from).collect();
    if argv.is_empty() {
        return Err(Error::new(Step::Usage, "exec", "process args cannot be empty"));
    }
    let mut process = Process {
        argv,
        env: plan.command.env.clone(),
        cwd: args.value("cwd").map_or(plan.command.cwd.clone(), Bytes::from),
        umask: Some(plan.command.umask),
        terminal: args.is_on("tty"),
        uid: plan.identity.uid,
        gid: plan.identity.gid,
        groups: container.groups,
        capabilities: container.capabilities,
        rlimits: plan.rlimits.clone(),
        no_new_privs: container.no_new_privs || args.is_on("no-new-privs"),
        oom_score_adj: plan.oom_score_adj,
        apparmor_profile: args.text("apparmor")?.map(str::to_owned).or(container.apparmor_profile),
        selinux_label: args.text("process-label")?.map(str::to_owned).or(container.selinux_label),
        cpu_affinity: container.cpu_affinity,
        initial_cpu_affinity: container.initial_cpu_affinity,
        ..Process::default()
    };
    // Those of the first process were for it alone.
    let own = [&b"NOTIFY_SOCKET="[..], b"LISTEN_FDS=", b"LISTEN_PID=", b"LISTEN_FDNAMES="];
    process.env.retain(|variable| !own.iter().any(|name| variable.as_bytes().starts_with(name)));
    for variable in args.all("env") {
        let variable = Bytes::from(variable);
        let name = |text: &Bytes| text.as_bytes().split(|byte| *byte == b'=').next().map(<[u8]>::to_vec);
        process.env.retain(|other| name(other) != name(&variable));
        process.env.push(variable);
    }
    let id = |text: &str| {
        let digits = text.bytes().all(|byte| byte.is_ascii_digit());
        let number = text.parse::<u32>().ok().filter(|id| digits && *id != u32::MAX);
        number.ok_or_else(|| Error::new(Step::Usage, text.to_owned(), "is no user or group id"))
    };
    if let Some(user) = args.text("user")? {
        let (uid, gid) = user.split_once(':').map_or((user, None), |(uid, gid)| (uid, Some(gid)));
        process.uid = id(uid)?;
        process.gid = gid.map(id).transpose()?.unwrap_or(process.gid);
    }
    for group in args.all("additional-gids") {
        process.groups.push(id(&group.to_string_lossy())?);
    }
    for name in args.all("cap") {
        let name = name.to_string_lossy();
        let capability = config::capability(&name)
            .ok_or_else(|| Error::new(Step::Usage, name.into_owned(), "is no capability known here"))?;
        let sets = &mut process.capabilities;
        for set in [&mut sets.bounding, &mut sets.effective, &mut sets.permitted] {
            if !set.contains(&capability) {
                set.push(capability);
            }
        }
    }
    Ok(process)
}
