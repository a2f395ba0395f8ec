//! Rewrites a plan for a run without namespaces. What cannot be had is refused.

use std::os::unix::ffi::OsStrExt as _;

use crate::confine::landlock::SCOPES;
use crate::error::{Error, Result};
use crate::plan::{Bytes, Facility, IdMapping, Landlock, MountKind, Namespaces, Network, Root, RunPlan};
use crate::rootfs::callers_root::View;

/// What a policy has if nobody asks for another.
const DEFAULT_HOSTNAME: &str = "sandbox";
const DEFAULT_ID: u32 = 1000;

/// Fails if the plan asks for something that takes namespaces. The mounts are checked where they are opened.
pub fn check(plan: &RunPlan, refuse: &dyn Fn(String, &str) -> Error) -> Result<()> {
    let refused = |what: &str, reason: &str| Err(refuse(what.to_owned(), reason));
    if let Root::Directory(path) = &plan.root {
        return Err(refuse(format!("--rootfs {path}"), "the root stays the caller's"));
    }
    if !plan.capabilities.is_empty() {
        return refused("--cap-add", "the capabilities would count on the host");
    }
    if !plan.init {
        return refused("--no-init", "only its init can end the whole tree");
    }
    if plan.namespaces.time {
        return refused("--time-namespace", "the clocks are the host's");
    }
    if plan.egress.is_some() {
        return refused("--allow-net", "its names have addresses in a network of the run's own");
    }
    if plan.namespaces.nested > 0 {
        return refused("--seccomp-allow nested", "there is nothing to nest in");
    }
    if plan.identity.mapping == IdMapping::Subordinate {
        return refused("--subuid", "there is no map for them");
    }
    let own = |id: u32, caller: u32| id == DEFAULT_ID || id == caller;
    let (uid, gid) = (plan.identity.uid, plan.identity.gid);
    if !own(uid, nix::unistd::geteuid().as_raw()) || !own(gid, nix::unistd::getegid().as_raw()) {
        return Err(refuse(format!("--user {uid}:{gid}"), "inside, the user is that of the host"));
    }
    let named = plan.confinement.hostname.as_ref().filter(|name| name.as_bytes() != DEFAULT_HOSTNAME.as_bytes());
    if let Some(name) = named.filter(|_| !plan.confinement.allow_degraded.contains(&Facility::Hostname)) {
        return Err(refuse(format!("--hostname {name}"), "the host name stays the caller's")
            .hint("leave it out; --allow-degraded hostname keeps the caller's"));
    }
    let hidden = [&plan.confinement.masked_paths, &plan.confinement.readonly_paths].into_iter().flatten();
    let apart = |path: &&Bytes| !["/proc", "/sys"].iter().any(|top| path.as_path().starts_with(top));
    match hidden.into_iter().find(apart) {
        Some(path) => Err(refuse(format!("masked or read-only path {path}"), "covering it would be a mount")),
        None => Ok(()),
    }
}

/// The plan without namespaces, on the caller's root.
pub fn rewritten(plan: &RunPlan, lists: &Landlock, view: &View) -> RunPlan {
    let mut bare = plan.clone();
    let network = if plan.namespaces.network == Network::Host { Network::Host } else { Network::None };
    bare.namespaces = Namespaces { own: false, ipc: false, uts: false, cgroup: false, time: false, network, nested: 0 };
    for mount in &mut bare.mounts {
        if let MountKind::Bind { source } = &mount.kind {
            mount.destination = source.clone(); // the workspace
        }
    }
    let confinement = &mut bare.confinement;
    (confinement.hostname, confinement.masked_paths, confinement.readonly_paths) = (None, Vec::new(), Vec::new());
    confinement.allow_degraded.retain(|facility| *facility != Facility::Landlock);
    confinement.guards.push("no-namespaces".to_owned());
    if network == Network::None {
        confinement.guards.push("no-network".to_owned());
    }
    // The view is what may be read, written and executed; each of it is allowed by its descriptor.
    let nothing = || Some(Vec::new());
    let minimum_abi = lists.minimum_abi.max(SCOPES);
    confinement.landlock =
        Some(Landlock { minimum_abi, read: nothing(), write: nothing(), execute: nothing(), ..lists.clone() });
    let command = &mut bare.command;
    command.cwd = view.translate(plan.command.cwd.as_path()).as_os_str().as_bytes().to_vec().into();
    let home = Bytes::from([b"HOME=", plan.identity.home.as_bytes()].concat());
    let own_home = variable("HOME", view, &plan.identity.home);
    command.env.iter_mut().filter(|one| **one == home).for_each(|one| *one = own_home.clone());
    if !command.env.iter().any(|one| one.as_bytes().starts_with(b"TMPDIR=")) {
        command.env.push(variable("TMPDIR", view, &"/tmp".into()));
    }
    bare
}

fn variable(name: &str, view: &View, path: &Bytes) -> Bytes {
    Bytes::from([name.as_bytes(), b"=", view.translate(path.as_path()).as_os_str().as_bytes()].concat())
}
