//! The record of a resolved path, and why a path is refused.

use std::path::{Path, PathBuf};

use super::alias::Location;
use super::trust::Why;
use crate::error::{Error, Step};

/// The directories on a path, and the places where it took a link, a `..` or a mount.
#[derive(Debug)]
pub struct Way {
    /// The path.
    pub source: PathBuf,
    /// The path in the sandbox.
    pub destination: PathBuf,
    /// The directories on the path.
    pub visited: Vec<Location>,
    /// Each with the number of directories visited before it.
    pub redirections: Vec<(usize, Redirection)>,
}

/// A component that leads out of its directory.
#[derive(Debug)]
pub struct Redirection {
    /// The kind.
    pub kind: Kind,
    /// Its path.
    pub at: PathBuf,
}

/// The kind of a redirection.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// A symlink.
    Link,
    /// `..`.
    Up,
    /// A mount.
    Mount,
}

impl Way {
    /// The error for a path that is refused because of this directory.
    pub fn refuse(&self, redirection: &Redirection, directory: &Path, why: Why) -> Error {
        let (what, way_out) = match redirection.kind {
            Kind::Link => ("is a symlink", "give the target's path if you trust it"),
            Kind::Up => ("goes up by \"..\"", "give the path without \"..\""),
            Kind::Mount => ("is another mount", "mount it elsewhere"),
        };
        let why = match why {
            Why::Owner(uid) => format!("belongs to user {uid}"),
            Why::Group(gid) => format!("can be written by group {gid}"),
            Why::World => "can be written by anyone".into(),
            Why::Served => "is on a file system that a program serves (FUSE)".into(),
            Why::MountedInShared => "is mounted in a directory that others can write".into(),
            Why::Workload => "can be written by the workload of this run".into(),
        };
        let object = format!("{} (for {})", self.source.display(), self.destination.display());
        let reason = format!("{} {what} below {}, which {why}", redirection.at.display(), directory.display());
        Error::new(Step::Source, object, reason)
            .hint(format!("{way_out}; --follow follows it, even if other users control the target"))
    }
}

/// The error for a path that does not end at a file.
pub fn loops(path: &Path) -> Error {
    Error::new(Step::Source, path.display().to_string(), "leads through a loop of links or a magic link of the kernel")
        .hint("give the target's path: links such as /proc/self/fd/3 are never followed")
}
