//! Resolves the sources of a plan, for commands that only display it.

use std::path::Path;

use super::host::{Fault, Found, Last, Resolver};
use crate::error::{Error, Result, Step};
use crate::plan::{Bytes, MountKind, Root, RunPlan};

/// A source whose path leads to another path.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Resolved {
    /// The path in the plan.
    pub source: Bytes,
    /// The file's path without links.
    pub resolved: Bytes,
}

/// Every source whose path leads elsewhere. Refuses what a run would refuse. A source that cannot be opened is skipped: the run
/// reports a better error.
pub fn sources(plan: &RunPlan) -> Result<Vec<Resolved>> {
    let mut resolver = Resolver::new(plan.follow);
    let mut all = Vec::new();
    let mut resolve = |resolver: &mut Resolver, source: &Bytes, destination: &Path, last| -> Result<Option<Found>> {
        match resolver.resolve(source.as_path(), destination, last) {
            Err(Fault::Refused(error)) => Err(error),
            Err(Fault::Errno(_)) => Ok(None),
            Ok(found) => {
                let resolved = Resolved { source: source.clone(), resolved: Bytes::from(&found.path()) };
                let elsewhere = resolved.resolved.as_path() != source.as_path(); // compared by components
                if elsewhere && !all.contains(&resolved) {
                    all.push(resolved);
                }
                Ok(Some(found))
            }
        }
    };
    if let Root::Directory(path) = &plan.root {
        resolve(&mut resolver, path, Path::new("/"), Last::Followed)?;
    }
    for mount in &plan.mounts {
        let destination = mount.destination.as_path();
        match &mount.kind {
            MountKind::Bind { source } => {
                let found = resolve(&mut resolver, source, destination, Last::Followed)?;
                if let Some(found) = found.filter(|_| !mount.read_only) {
                    let failed = |errno| Error::errno(Step::Source, source.to_string(), errno);
                    resolver.is_writable(&found).map_err(failed)?;
                }
            }
            MountKind::AsHost => drop(resolve(&mut resolver, &mount.destination, destination, Last::Itself)?),
            MountKind::Dev { devices } => {
                for device in devices {
                    resolve(&mut resolver, device, device.as_path(), Last::Followed)?;
                }
            }
            _ => {}
        }
    }
    resolver.check()?;
    Ok(all)
}
