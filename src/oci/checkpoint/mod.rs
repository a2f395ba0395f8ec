//! `checkpoint` and `restore`: save a container's processes to files and restore them, with criu.
//!
//! `messages` is criu's protocol, `criu` the running program, and `images` the directories. The rest of the runtime only calls
//! [`checkpoint`] and [`restore`].

mod criu;
mod images;
mod messages;
mod restore;
mod save;

pub use self::restore::restore;
pub use self::save::checkpoint;
use super::Runtime;
use crate::error::{Error, Result, Step};
use crate::plan::ContainerPlan;
use crate::plan::container::NamespaceKind;

/// The names for namespaces that criu does not save.
const OUTSIDE: [(NamespaceKind, &str, &str); 2] =
    [(NamespaceKind::Network, "net", "extRootNetNS"), (NamespaceKind::Pid, "pid", "extRootPidNS")];

/// Refuses the options that need a server of criu.
fn refuse(runtime: &Runtime) -> Result<()> {
    for name in ["lazy-pages", "page-server", "status-fd"] {
        if runtime.args.is_on(name) {
            return Err(Error::new(
                Step::Usage,
                format!("--{name}"),
                "is not supported: memory is saved and restored whole",
            )
            .hint("leave it out"));
        }
    }
    Ok(())
}

/// Refuses a container that criu cannot save completely.
fn savable(plan: &ContainerPlan) -> Result<()> {
    let wrong = |object: &str, reason: &str| Error::new(Step::Checkpoint, object, reason);
    if plan.confinement.landlock.is_some() {
        return Err(wrong("Landlock", "criu cannot save its rules, so the restored container would not have them"));
    }
    for join in &plan.joined {
        if !OUTSIDE.iter().any(|(kind, ..)| *kind == join.kind) {
            let object = format!("{} namespace {}", join.kind.name(), join.path);
            return Err(wrong(&object, "criu cannot save a container that shares it with other processes"));
        }
    }
    for mount in &plan.mounts {
        if mount.idmap {
            return Err(wrong(&mount.destination.to_string(), "criu cannot save an idmapped mount"));
        }
    }
    Ok(())
}

/// The namespaces by path: kind, the kernel's name, and criu's name for it.
fn joined(plan: &ContainerPlan) -> impl Iterator<Item = (NamespaceKind, &'static str, &'static str)> + '_ {
    OUTSIDE.into_iter().filter(|(kind, ..)| plan.joined.iter().any(|join| join.kind == *kind))
}
