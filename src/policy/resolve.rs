//! Turns settings into a plan. Makes no system call: the facts about the caller are parameters.

use std::ffi::OsString;
use std::path::Path;

use super::confinement;
use super::environment::{self, MAX_STRING};
use super::label;
use super::mount::{self, MountRequest, RequestKind, WORKSPACE};
use super::path::{HostPath, SandboxPath, is_within};
use super::settings::{ProcView, Settings};
use super::value::{Hostname, Limit};
use super::view::{self, Surroundings};
use crate::error::{Error, Result, Step};
use crate::plan::{
    Bytes, Capability, Command, Confinement, Deadlines, Facility, IdMapping, Identity, Keep, Mount, MountKind,
    Namespaces, Network, OutputLimit, Root, RunPlan, ScratchLimit, Stdio,
};

/// The facts about the caller.
#[derive(Debug)]
pub struct Caller {
    /// The environment.
    pub env: Vec<(OsString, OsString)>,
    /// SHA-256 of the seccomp profile's file, if it is a file, by [`super::trust::profile_sha256`].
    pub profile_sha256: Option<String>,
    /// The name of this run.
    pub id: String,
}

/// A plan, and warnings for the caller.
#[derive(Debug)]
pub struct Resolved {
    /// The plan.
    pub plan: RunPlan,
    /// Warnings to print.
    pub warnings: Vec<String>,
}

/// The longest name of a sandbox.
const MAX_ID: usize = 64;

/// Plans a run of `command` under these settings, whose host paths are absolute.
pub fn resolve(settings: Settings, command: &[OsString], caller: &Caller) -> Result<Resolved> {
    valid_id(&caller.id)?;
    if settings.require_workspace == Some(true) && settings.workspace.is_none() {
        return Err(Error::new(Step::Plan, "workspace", "this policy requires a workspace, and none was given")
            .hint("--workspace DIR makes DIR writable at /workspace"));
    }
    if settings.labels.len() > label::MOST {
        return Err(Error::new(
            Step::Plan,
            "labels",
            format!("{} are more than {}", settings.labels.len(), label::MOST),
        ));
    }
    let mut warnings = Vec::new();
    if settings.env.keep == Some(true) {
        warnings.push("the caller's environment is passed to the workload, which can read secrets in it".into());
    }
    let (network, egress) = settings.network.resolve()?;
    if network == Network::Host {
        warnings.push("the workload uses the host's network, without isolation".into());
    }

    if egress.is_some() && settings.rootfs.is_some() {
        warnings.push(
            "the root has its own /etc/resolv.conf: names are resolved only if it says `nameserver 198.18.0.1`".into(),
        );
    }

    let identity = identity(&settings);
    let hostname = settings.hostname.as_ref().map_or("sandbox", |Hostname(name)| name).to_owned();
    let devices: Vec<Bytes> = settings.devices.iter().map(|device| device.0.clone()).collect();
    let sysfs = settings.sysfs == Some(true);
    let pid_only = settings.proc == Some(ProcView::Pids);
    let around = Surroundings { identity: &identity, hostname: &hostname, network, pid_only, sysfs, devices: &devices };
    let (root, view) = match &settings.rootfs {
        Some(HostPath(path)) => (Root::Directory(path.clone()), view::on_rootfs(&around)),
        None => (Root::Synthetic, view::synthetic(&around)),
    };
    home_is_free(&identity.home, &view)?;
    let mut mounts = mounts(view, &settings)?;
    wide_binds(&root, &mounts, &mut warnings);
    let seccomp = confinement::seccomp(&settings.seccomp, caller.profile_sha256.as_deref(), &mut warnings);
    let landlock = confinement::landlock(&settings.landlock, network, &mut warnings)?;
    let nested = confinement::nested_namespaces(seccomp.as_ref());
    if nested > 0 && landlock.is_some() {
        warnings.push(
            "seccomp group nested: Landlock denies every mount; bubblewrap and similar programs need --landlock off too"
                .into(),
        );
    }
    if let Some(rules) = &landlock {
        confinement::forbid_writable_programs(rules, &mut mounts)?;
    }
    let rlimits: Vec<_> = settings.ulimits.iter().map(|(resource, limit)| limit.of(*resource)).collect();
    let init = settings.init.unwrap_or(true);
    let udp_stays = settings.allow_degraded.contains(&Facility::Udp);
    let guards = confinement::guards(&settings.seccomp, &rlimits, init, landlock.as_ref(), network, udp_stays, &mounts);

    let cwd = match (&settings.cwd, &settings.workspace, &root) {
        (Some(SandboxPath(path)), ..) => path.clone(),
        (None, Some(_), _) => WORKSPACE.into(),
        (None, None, Root::Synthetic) => identity.home.clone(),
        (None, None, _) => "/".into(),
    };
    let env = environment::build(&settings.env, &identity, &caller.env)?;
    let command = Command {
        argv: argv(command)?,
        env,
        cwd,
        umask: settings.umask.map_or(0o022, |umask| umask.get()),
        rlimits,
        oom_score_adj: settings.oom_score_adj.map(|adjustment| adjustment.get()),
    };

    // Masks below /sys and /proc are left out if those paths do not exist in the sandbox.
    let shown = |paths: &[SandboxPath]| -> Vec<Bytes> {
        let below = |path: &SandboxPath, directory: &[u8]| path.0.as_bytes().starts_with(directory);
        let hidden = |path: &SandboxPath| (!sysfs && below(path, b"/sys/")) || (pid_only && below(path, b"/proc/"));
        paths.iter().filter(|path| !hidden(path)).map(|path| path.0.clone()).collect()
    };
    let mut allow_degraded = settings.allow_degraded.clone();
    if confinement::may_be_missing(&settings.landlock) {
        allow_degraded.push(Facility::Landlock);
    }
    allow_degraded.sort();
    allow_degraded.dedup();
    let confinement = Confinement {
        id: caller.id.clone(),
        masked_paths: shown(&settings.masked_paths),
        readonly_paths: shown(&settings.readonly_paths),
        hostname: Some(Bytes::from(&hostname)),
        landlock,
        seccomp,
        guards: guards.into_iter().map(|guard| guard.name().to_owned()).collect(),
        allow_degraded,
    };
    let plan = RunPlan {
        confinement,
        command,
        namespaces: Namespaces {
            own: true,
            ipc: true,
            uts: true,
            cgroup: true,
            time: settings.time_namespace.unwrap_or(false),
            network,
            nested,
        },
        root,
        mounts,
        follow: settings.follow.unwrap_or(false),
        scratch: ScratchLimit {
            size_bytes: settings.scratch.size.map_or(512 << 20, |size| size.get()),
            nr_inodes: settings.scratch.inodes.map_or(65_536, |inodes| inodes.get()),
        },
        capabilities: capabilities(&settings),
        budget: settings.budget.plan()?,
        init,
        stdio: Stdio {
            stdin: settings.stdio.stdin.unwrap_or(false),
            tty: settings.stdio.tty.unwrap_or(false),
            output_limit: output_limit(&settings)?,
            relay: false,
        },
        deadlines: Deadlines {
            wall_us: settings.deadlines.timeout.and_then(Limit::bound).map(|time| time.get()),
            cpu_us: settings.deadlines.cpu_time.and_then(Limit::bound).map(|time| time.get()),
            idle_us: settings.deadlines.idle_timeout.and_then(Limit::bound).map(|time| time.get()),
            kill_after_us: settings.deadlines.kill_after.map_or(2_000_000, |time| time.get()),
        },
        egress,
        explain_denials: settings.explain_denials.unwrap_or(false),
        hash_program: settings.audit.is_some(),
        identity,
        labels: settings.labels.into_iter().map(|(name, value)| (name.0, value.0)).collect(),
        policy_sha256: String::new(),
    };
    Ok(Resolved { plan, warnings })
}

/// The longest end of a stream that is kept in memory until the stream is over.
const LONGEST_TAIL: u64 = 256 << 20;

fn output_limit(settings: &Settings) -> Result<Option<OutputLimit>> {
    let keep = settings.stdio.output_keep.unwrap_or(Keep::Head);
    match settings.stdio.output_limit.and_then(Limit::bound).map(|size| size.get()) {
        Some(bytes) if keep == Keep::Tail && bytes > LONGEST_TAIL => {
            let reason = format!("`tail` keeps output in memory, at most 256M: {bytes} bytes are too many");
            Err(Error::new(Step::Plan, "output-limit", reason).hint("use `head`, which needs no memory"))
        }
        bytes => Ok(bytes.map(|bytes| OutputLimit { bytes, keep })),
    }
}

/// Warns of binds that expose more than most callers intend.
fn wide_binds(root: &Root, mounts: &[Mount], warnings: &mut Vec<String>) {
    if matches!(root, Root::Directory(path) if path.as_path() == Path::new("/")) {
        warnings.push("the root is the host's root: the workload can read every world-readable file".into());
    }
    const SOCKETS: &str = "the sockets of this host's services; a read-only mount does not prevent connecting to them";
    const WIDE: [(&str, &str); 6] = [
        ("/", "the whole host"),
        ("/run", SOCKETS),
        ("/var/run", SOCKETS),
        ("/proc", "the host's processes"),
        ("/sys", "the host's devices and kernel"),
        ("/dev", "the host's devices; --device /dev/NAME provides a single one"),
    ];
    for mount in mounts {
        let MountKind::Bind { source } = &mount.kind else { continue };
        if let Some((_, shows)) = WIDE.iter().find(|(path, _)| source.as_path() == Path::new(path)) {
            warnings.push(format!("bind of {source} exposes {shows}"));
        }
    }
}

/// Checks a sandbox's name, which becomes a file name, a cgroup's name and an argument.
fn valid_id(id: &str) -> Result<()> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'+' | b'-');
    let valid =
        (1..=MAX_ID).contains(&id.len()) && id.bytes().all(allowed) && !id.starts_with('-') && id != "." && id != "..";
    if valid {
        return Ok(());
    }
    let shown: String = id.chars().take(MAX_ID + 1).collect();
    let reason =
        format!("{shown:?} is not a valid name: 1 to {MAX_ID} of A-Z a-z 0-9 _ . + -, not beginning with a dash");
    Err(Error::new(Step::Usage, "--name", reason))
}

fn argv(command: &[OsString]) -> Result<Vec<Bytes>> {
    let fail = |reason: String| Err(Error::new(Step::Usage, "COMMAND", reason));
    match command.first() {
        None => {
            return fail("is missing".into())
                .map_err(|error| error.hint("the program stands after the options: -- make test"));
        }
        Some(word) if word.is_empty() => return fail("is an empty string".into()),
        Some(_) => {}
    }
    if let Some((at, word)) = command.iter().enumerate().find(|(_, word)| word.len() > MAX_STRING) {
        return fail(format!("argument {at} is {} bytes long; execve accepts at most {MAX_STRING}", word.len()));
    }
    Ok(command.iter().map(Bytes::from).collect())
}

fn identity(settings: &Settings) -> Identity {
    let user = &settings.user;
    Identity {
        uid: user.uid.map_or(1000, |id| id.get()),
        gid: user.gid.map_or(1000, |id| id.get()),
        mapping: user.map.as_ref().map_or(IdMapping::Single, |map| map.0.clone()),
        user: user.name.as_ref().map_or("sandbox", |name| &name.0).to_owned(),
        home: user.home.as_ref().map_or("/home/sandbox".into(), |home| home.0.clone()),
    }
}

fn capabilities(settings: &Settings) -> Vec<Capability> {
    let mut kept: Vec<Capability> = settings.capabilities.add.iter().flat_map(|name| name.0.iter().copied()).collect();
    kept.sort();
    kept.dedup();
    kept
}

/// The mounts of the view that no request replaces, and the requested mounts; parents before children.
fn mounts(mut view: Vec<Mount>, settings: &Settings) -> Result<Vec<Mount>> {
    let mut requests = settings.mounts.clone();
    if let Some(workspace) = &settings.workspace {
        if requests.iter().any(|request| request.destination.as_ref().is_some_and(|path| path.0 == WORKSPACE.into())) {
            let reason = format!("another setting mounts {WORKSPACE} too");
            return Err(Error::new(Step::Plan, "workspace", reason));
        }
        requests.push(MountRequest {
            destination: Some(SandboxPath(WORKSPACE.into())),
            kind: RequestKind::Bind(workspace.clone()),
            read_only: false,
            noexec: false,
            optional: false,
        });
    }
    let requested: Vec<Mount> = requests.into_iter().filter_map(MountRequest::into_mount).collect();
    // A requested mount replaces the directory as a whole, so the view adds no mounts below it.
    view.retain(|part| requested.iter().all(|mount| !is_within(&part.destination, &mount.destination)));
    let holds = |place: &Bytes| requested.iter().any(|mount| is_within(&mount.destination, place));
    view.iter_mut().filter(|part| holds(&part.destination)).for_each(view::make_directory);
    view.extend(requested);
    Ok(parents_first(view))
}

/// Refuses a home that would cover other mounts of the view: it is a scratch directory.
fn home_is_free(home: &Bytes, view: &[Mount]) -> Result<()> {
    let fail = |reason: String| Error::new(Step::Plan, "user.home", reason);
    mount::allowed(home).map_err(fail)?;
    let covered =
        view.iter().find(|part| is_within(&part.destination, home) && !matches!(part.kind, MountKind::Scratch { .. }));
    match covered {
        Some(part) => Err(fail(format!("\"{home}\" would cover {}", part.destination))),
        None => Ok(()),
    }
}

/// Keeps the given order, but puts each mount after those that it lies below.
fn parents_first(mounts: Vec<Mount>) -> Vec<Mount> {
    let mut waiting: Vec<Option<Mount>> = mounts.into_iter().map(Some).collect();
    let mut sorted = Vec::with_capacity(waiting.len());
    for index in 0..waiting.len() {
        let Some(mount) = waiting[index].take() else { continue };
        let mut above: Vec<Mount> = waiting[index + 1..]
            .iter_mut()
            .filter(|later| later.as_ref().is_some_and(|later| is_within(&mount.destination, &later.destination)))
            .filter_map(Option::take)
            .collect();
        above.sort_by_key(|parent| parent.destination.as_bytes().len());
        sorted.extend(above);
        sorted.push(mount);
    }
    sorted
}
