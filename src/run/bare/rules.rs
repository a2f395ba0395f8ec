//! The Landlock rules of a run without namespaces: what is shown, as far as the plan's own lists allow it.

use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use nix::errno::Errno;

use crate::confine::landlock::{PreparedLandlock, Rights};
use crate::error::{Error, Result, Step};
use crate::plan::{Landlock, PathRule};
use crate::rootfs::callers_root::{Kind, Shown, View};
use crate::sys::mount::{BENEATH, NO_MAGICLINKS, NO_SYMLINKS, open_beneath};

/// Parent half.
pub fn allow(view: &View, lists: &Landlock, landlock: &PreparedLandlock) -> Result<()> {
    let read = Rights { read: true, ..Rights::default() };
    let write = Rights { write: true, ..Rights::default() };
    let execute = Rights { execute: true, ..Rights::default() };
    for one in &view.shown {
        let (writable, executable) = match one.kind {
            Kind::Device => {
                landlock.allow(one.fd(), Rights { device: true, ..Rights::default() })?;
                continue;
            }
            Kind::Proc => {
                landlock.allow(one.fd(), read)?;
                continue;
            }
            Kind::Tree { writable, executable } => (writable, executable),
            Kind::Scratch { executable } => (true, executable),
        };
        let granted =
            [(true, &lists.read, read), (writable, &lists.write, write), (executable, &lists.execute, execute)];
        for (_, list, rights) in granted.into_iter().filter(|(granted, ..)| *granted) {
            within(view, one, list.as_deref(), rights, landlock)?;
        }
    }
    let all = [&lists.read, &lists.write, &lists.execute].into_iter().flatten().flatten();
    match all.filter(|rule| !rule.optional).find(|rule| !concerns(view, rule)) {
        Some(rule) => Err(Error::errno(Step::Landlock, rule.path.to_string(), Errno::ENOENT)),
        None => Ok(()),
    }
}

/// Whether a rule's path is in what is shown, or above it.
fn concerns(view: &View, rule: &PathRule) -> bool {
    let path = rule.path.as_path();
    view.shown.iter().any(|one| path.starts_with(&one.destination) || one.destination.starts_with(path))
}

/// Allows what is in both a tree and a list. Without a list that is the tree.
fn within(
    view: &View,
    one: &Shown,
    list: Option<&[PathRule]>,
    rights: Rights,
    landlock: &PreparedLandlock,
) -> Result<()> {
    let Some(list) = list else { return landlock.allow(one.fd(), rights) };
    for rule in list {
        let path = rule.path.as_path();
        if one.destination.starts_with(path) {
            landlock.allow(one.fd(), rights)?;
        } else if let Ok(rest) = path.strip_prefix(&one.destination)
            && view.holding(path).is_some_and(|nearest| std::ptr::eq(nearest, one))
        {
            match open_below(one, rest) {
                Err(Errno::ENOENT | Errno::ENOTDIR) if rule.optional => {}
                found => landlock.allow(found.map_err(|errno| error(rule, errno))?.as_fd(), rights)?,
            }
        }
    }
    Ok(())
}

fn open_below(one: &Shown, rest: &Path) -> std::result::Result<std::os::fd::OwnedFd, Errno> {
    let rest = std::ffi::CString::new(rest.as_os_str().as_bytes()).map_err(|_| Errno::EINVAL)?;
    open_beneath(one.fd(), &rest, libc::O_PATH, BENEATH | NO_SYMLINKS | NO_MAGICLINKS)
}

fn error(rule: &PathRule, errno: Errno) -> Error {
    Error::errno(Step::Landlock, rule.path.to_string(), errno)
}
