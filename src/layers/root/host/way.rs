//! Where a path led, and why one is not followed.

use std::path::{Path, PathBuf};

use super::alias::Location;
use super::trust::Why;
use crate::error::{Error, Step};

/// The directories that a path led through, and where it took a link, a `..` or a mount.
#[derive(Debug)]
pub struct Way {
    /// The path.
    pub source: PathBuf,
    /// Where the file is to be inside.
    pub destination: PathBuf,
    /// What it led through.
    pub visited: Vec<Location>,
    /// Each with the number of directories visited before.
    pub redirections: Vec<(usize, Redirection)>,
}

/// A step that leads out of a directory.
#[derive(Debug)]
pub struct Redirection {
    /// By what.
    pub kind: Kind,
    /// Where.
    pub at: PathBuf,
}

/// What leads out of a directory.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// A symlink.
    Link,
    /// `..`.
    Up,
    /// What is mounted there.
    Mount,
}

impl Way {
    /// That it is not followed, because of what this directory is.
    pub fn refuse(&self, redirection: &Redirection, directory: &Path, why: Why) -> Error {
        let (what, way_out) = match redirection.kind {
            Kind::Link => ("is a symlink", "give the path that it leads to, if that is what you mean"),
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
            .hint(format!("{way_out}; --follow goes on, also where others decide where that leads"))
    }
}

/// That a path has no end.
pub fn loops(path: &Path) -> Error {
    Error::new(Step::Source, path.display().to_string(), "leads through a loop of links, or a link of the kernel's own")
        .hint("give the path that it leads to: links such as /proc/self/fd/3 are never followed")
}
