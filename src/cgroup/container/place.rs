//! The paths of a container's cgroups: `cgroupsPath` in the hierarchies of this host.

use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::cgroup::hierarchies;
use crate::error::{Error, Result, Step};
use crate::plan::container::ContainerCgroup;

/// The directories of a container's cgroups.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Places {
    /// One of cgroup v2, without controllers here; or one for each hierarchy of v1 that has controllers, followed by those that
    /// limit nothing: the named hierarchies, and on a hybrid host cgroup v2.
    pub directories: Vec<Place>,
    /// The topmost directory of v2.
    pub mount: PathBuf,
    /// The systemd unit of the cgroup.
    #[serde(default)]
    pub unit: Option<String>,
}

/// A directory of a container's cgroups.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// The controllers of a hierarchy of v1, or its name as `name=systemd`.
    pub controllers: Vec<String>,
    /// The path.
    pub path: PathBuf,
}

impl Places {
    /// The hierarchy of a controller alone. Cgroup v2 is one hierarchy.
    pub fn only(&self, controller: &str) -> Self {
        let has = |one: &&Place| self.is_v2() || one.controllers.iter().any(|name| name == controller);
        Self { directories: self.directories.iter().filter(has).cloned().collect(), ..self.clone() }
    }

    /// Whether it is cgroup v2 alone.
    pub fn is_v2(&self) -> bool {
        self.directories.first().is_some_and(|one| one.controllers.is_empty())
    }

    /// Goes down to this path in the hierarchies of these controllers, or in all without controllers.
    pub fn descend(&mut self, controllers: &[&str], path: &Path) -> Result<()> {
        let has = |one: &Place, name: &str| one.controllers.iter().any(|known| known == name);
        if let Some(unknown) = controllers.iter().find(|name| !self.directories.iter().any(|one| has(one, name))) {
            let reason = match self.is_v2() {
                true => "cgroup v2 has one hierarchy, without controllers to choose by",
                false => "the container has no cgroup of this controller",
            };
            return Err(Error::new(Step::Cgroup, *unknown, reason));
        }
        for one in &mut self.directories {
            if controllers.is_empty() || controllers.iter().any(|name| has(one, name)) {
                one.path.extend(path);
            }
        }
        Ok(())
    }
}

/// Determines the paths without systemd. A hybrid host has its controllers in v1, so v1 limits there.
pub fn find(planned: &ContainerCgroup, id: &str) -> Result<Places> {
    let found = hierarchies::try_look()?;
    let path = if planned.path.is_empty() { id } else { planned.path.as_str() };
    let relative = clean(path)?;
    let absolute = path.starts_with('/');
    if !found.v1.is_empty() {
        let at = |mount: &Path, own: &Path| if absolute { mount.join(&relative) } else { own.join(&relative) };
        let v1 = |of: &hierarchies::V1| Place { controllers: of.controllers.clone(), path: at(&of.mount, &of.own) };
        let v2 = |of: &hierarchies::V2| Place { controllers: Vec::new(), path: at(&of.mount, &of.own) };
        let directories = found.v1.iter().chain(&found.named).map(v1).chain(found.v2.iter().map(v2)).collect();
        return Ok(Places { directories, ..Places::default() });
    }
    let Some(v2) = found.v2 else {
        return Err(Error::new(Step::Cgroup, path, "no cgroup file system is mounted")
            .hint("mount one: mount -t cgroup2 cgroup2 /sys/fs/cgroup"));
    };
    // A sibling of this process's own cgroup: a cgroup with processes cannot enable controllers for children.
    let beside = v2.own.parent().filter(|parent| parent.starts_with(&v2.mount)).unwrap_or(&v2.mount);
    let path = if absolute { v2.mount.join(&relative) } else { beside.join(&relative) };
    Ok(Places { directories: vec![Place { controllers: Vec::new(), path }], mount: v2.mount, unit: None })
}

/// A path below a hierarchy, without components that lead elsewhere.
pub fn clean(path: &str) -> Result<PathBuf> {
    let wrong = |reason: &str| Err(Error::new(Step::Cgroup, format!("cgroupsPath {path:?}"), reason));
    if path.len() > 4096 || path.contains(['\0', '\n']) {
        return wrong("is not a valid cgroup path");
    }
    let mut relative = PathBuf::new();
    for component in Path::new(path).components() {
        match component {
            Component::Normal(name) => relative.push(name),
            Component::RootDir | Component::CurDir => {}
            _ => return wrong("leads out of itself by \"..\""),
        }
    }
    if relative.as_os_str().is_empty() { wrong("names no cgroup of its own") } else { Ok(relative) }
}
