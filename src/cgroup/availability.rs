//! Determines, for `stockade doctor` and `stockade plan`, where a budget would be enforced. Creates and moves nothing.

use std::os::unix::net::UnixStream;
use std::path::Path;

use super::files::Dir;
use super::{hierarchies, leaves, parent, systemd};
use crate::error::{Error, Step};
use crate::plan::{Budget, Facility};

/// Returns where the limits of this controller would be enforced, or why they cannot be.
pub fn of(controller: Facility) -> Result<String, String> {
    let found = hierarchies::look();
    if found.has_on_v1(controller) {
        return match leaves::available(&found).contains(&controller) {
            true => Ok("by cgroup v1, which has the controller here".to_owned()),
            false => Err(super::NOT_OURS_ON_V1.to_owned()),
        };
    }
    let Some(v2) = &found.v2 else { return Err("there is no cgroup v2".to_owned()) };
    let in_place = |path: &Path, what: &str| match offers(path, controller) {
        true => Ok(format!("in {}, {what}", path.display())),
        false => Err(format!("{}, {what}, does not have the controller", path.display())),
    };
    if let Some(path) = parent::delegated(v2) {
        return in_place(&path, "which is delegated to this user");
    }
    if UnixStream::connect(systemd::socket()).is_ok() {
        return Ok("in a scope that systemd creates and delegates".to_owned());
    }
    match parent::top(v2) {
        Some(top) => in_place(top, "the top of the hierarchy"),
        None => Err(format!("{} is not delegated to this user, and no systemd answers", v2.own.display())),
    }
}

/// Fails if a limit that is not optional could not be enforced.
pub fn examine(budget: &Budget, may_lack: &[Facility]) -> Result<(), Error> {
    let required = |one: &Facility| !may_lack.contains(one) && !budget.if_possible.contains(one);
    for controller in budget.controllers().into_iter().filter(required) {
        of(controller).map_err(|why| {
            Error::new(Step::Cgroup, format!("{} budget", controller.name()), format!("cannot be enforced: {why}"))
        })?;
    }
    Ok(())
}

/// Whether a default limit would be enforced: only where that costs next to nothing.
pub fn by_default(controller: Facility) -> bool {
    let found = hierarchies::look();
    let Some(v2) = found.v2.as_ref().filter(|_| !found.has_on_v1(controller)) else { return false };
    match parent::delegated(v2) {
        Some(path) => offers(&path, controller),
        None => parent::top(v2).is_some_and(|top| offers(top, controller)),
    }
}

fn offers(path: &Path, controller: Facility) -> bool {
    let controllers = Dir::open(path).and_then(|dir| dir.read("cgroup.controllers")).unwrap_or_default();
    parent::is_writable(path) && controllers.split_ascii_whitespace().any(|name| name == controller.name())
}
