//! What the calls of a run used: for `stockade learn`. A list of wishes that nothing refused, made from what the caller's memory said
//! before each call. A program that changes its memory meanwhile can put a wrong path on it, so whoever uses the list must allow
//! nothing by it that the run was not allowed.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use super::credentials::Credentials;
use super::view::{Node, Place, View};
use super::wish::Wish;
use crate::confine::seccomp::listen::{Aim, Look};
use crate::confine::seccomp::observe::Kind;

/// Most paths that are kept, and most bytes of them. A workload can use any number.
const MOST_PATHS: usize = 16 << 10;
const MOST_BYTES: usize = 2 << 20;

/// The bits of `O_TMPFILE` that are its own: a file without a name is made in the directory.
const UNNAMED: u64 = (libc::O_TMPFILE & !libc::O_DIRECTORY) as u64;

/// What was done with a file or directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Use {
    /// It was read; a directory was listed.
    pub read: bool,
    /// Its content was written.
    pub write: bool,
    /// Entries of this directory were made or removed.
    pub entries: bool,
    /// It was executed.
    pub execute: bool,
    /// Its mode, owner or times were changed.
    pub attributes: bool,
    /// This socket was connected to.
    pub connect: bool,
}

/// What the calls of a run used.
#[derive(Debug, Default)]
pub struct Touched {
    /// Files and directories, without symlinks. One that was only looked for has a use without anything.
    pub uses: BTreeMap<PathBuf, Use>,
    /// What the run made or replaced.
    pub made: BTreeSet<PathBuf>,
    /// Mount points of file systems in which paths are not looked up, and whether something below was changed.
    pub unclear: BTreeMap<PathBuf, bool>,
    /// Whether a socket of IPv4 or IPv6 was made.
    pub inet: bool,
    /// Whether a file in memory was made.
    pub memory_file: bool,
    /// Whether there were more paths than are kept.
    pub overflowed: bool,
    bytes: usize,
}

impl Touched {
    /// A call that nothing is known to refuse.
    pub(super) fn note(&mut self, view: &View, look: &Look<'_>, credentials: Option<&Credentials>) {
        match look.call {
            "socket" => self.inet |= [libc::AF_INET, libc::AF_INET6].contains(&(look.args[0] as i32)),
            "memfd_create" => self.memory_file = true,
            _ => look.aims.iter().for_each(|aim| self.aim(view, aim, credentials)),
        }
    }

    fn aim(&mut self, view: &View, aim: &Aim, credentials: Option<&Credentials>) {
        let wish = Wish::from(aim);
        let unnamed = matches!(aim.kind, Kind::Open(_) | Kind::OpenHow(_)) && aim.flags & UNNAMED != 0;
        let entries = Use { entries: true, ..Use::default() };
        match view.look_up(&aim.path, wish.follow, credentials) {
            None => self.unclear(view, &aim.path, wish),
            Some(Place::Closed(..)) => {}
            Some(Place::Missing(way, rest)) if wish.create && rest.components().count() == 1 => {
                self.made(way.path.join(rest), wish);
                self.add(way.path, entries);
            }
            Some(Place::Missing(way, _)) => self.add(way.path, Use::default()),
            // To link to another directory, a rule must allow moving out of this one.
            Some(Place::Found(way)) if matches!(aim.kind, Kind::Link(_)) => {
                if let Some(directory) = way.path.parent() {
                    self.add(directory.to_owned(), entries);
                }
                self.add(way.path, Use::default());
            }
            Some(Place::Found(way)) if unnamed => self.add(way.path, entries),
            Some(Place::Found(way)) if wish.new => self.add(way.path, Use::default()), // an error of its own
            Some(Place::Found(way)) if wish.entry => {
                if let Some(directory) = way.path.parent() {
                    self.add(directory.to_owned(), entries);
                }
                if wish.create {
                    self.made(way.path, wish);
                }
            }
            Some(Place::Found(way)) => {
                let kind = way.end().map_or(0, Node::kind);
                // The kernel executes files alone, and opens no directory to write to it.
                let fails =
                    (kind == libc::S_IFDIR && (wish.write || wish.create)) || (wish.execute && kind != libc::S_IFREG);
                let Wish { read, write, execute, attributes, .. } = wish;
                let connect = matches!(aim.kind, Kind::Connect) && kind == libc::S_IFSOCK;
                let one = Use { read, write, entries: false, execute, attributes, connect };
                self.add(way.path, if fails { Use::default() } else { one });
            }
        }
    }

    fn unclear(&mut self, view: &View, path: &[u8], wish: Wish) {
        let path = Path::new(OsStr::from_bytes(path));
        let Some(mount) = view.mount_of(path).filter(|mount| !mount.is_local && !is_kernels(&mount.point)) else {
            return;
        };
        *self.unclear.entry(mount.point.clone()).or_default() |= wish.changes();
    }

    fn made(&mut self, path: PathBuf, wish: Wish) {
        if !self.made.contains(&path) && self.has_room(&path) {
            self.made.insert(path.clone());
        }
        let Wish { read, write, .. } = wish;
        self.add(path, Use { read, write, ..Use::default() });
    }

    fn add(&mut self, path: PathBuf, one: Use) {
        if !self.uses.contains_key(&path) && !self.has_room(&path) {
            return;
        }
        let all = self.uses.entry(path).or_default();
        all.read |= one.read;
        all.write |= one.write;
        all.entries |= one.entries;
        all.execute |= one.execute;
        all.attributes |= one.attributes;
        all.connect |= one.connect;
    }

    fn has_room(&mut self, path: &Path) -> bool {
        self.bytes += path.as_os_str().len();
        self.overflowed |= self.uses.len() >= MOST_PATHS || self.made.len() >= MOST_PATHS || self.bytes > MOST_BYTES;
        !self.overflowed
    }
}

/// What every run may use, as far as its own permissions allow.
fn is_kernels(point: &Path) -> bool {
    ["/proc", "/sys", "/dev"].iter().any(|place| point.starts_with(place))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn aim(path: &str, kind: Kind, flags: i32) -> Aim {
        Aim { kind, flags: flags as u64, path: path.as_bytes().to_vec() }
    }

    #[test]
    fn what_a_workload_uses_is_kept_in_bounded_space() {
        let mut many = Touched::default();
        (0..2 * MOST_PATHS).for_each(|at| many.add(format!("/{at}").into(), Use::default()));
        assert!(many.overflowed && many.uses.len() == MOST_PATHS);
        let mut long = Touched::default();
        (0..1000).for_each(|at| long.made(format!("/{at}{}", "x".repeat(4000)).into(), Wish::default()));
        assert!(long.overflowed && long.uses.len() * 4000 <= MOST_BYTES);
    }

    #[test]
    fn each_call_is_a_use_of_what_it_leads_to() {
        let directory = std::env::temp_dir().join(format!("stockade-touched-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::write(directory.join("file"), "").unwrap();
        std::os::unix::fs::symlink("file", directory.join("link")).unwrap();
        let base = std::fs::canonicalize(&directory).unwrap();
        let path = |name: &str| base.join(name);
        let shown = |name: &str| path(name).to_str().unwrap().to_owned();
        let (view, mut touched) = (View::of("self").unwrap(), Touched::default());
        for (name, kind, flags) in [
            ("link", Kind::Open(1), libc::O_RDONLY),
            ("../../none/x", Kind::Open(1), libc::O_RDONLY),
            ("new", Kind::Open(1), libc::O_RDWR | libc::O_CREAT),
            ("file", Kind::Make { replaces: false }, 0),
            ("file", Kind::Truncate, 0),
        ] {
            touched.aim(&view, &aim(&shown(name), kind, flags), None);
        }
        std::fs::remove_dir_all(&directory).unwrap();
        let nothing = Use::default();
        assert_eq!(touched.uses[&path("file")], Use { read: true, write: true, ..nothing });
        assert_eq!(touched.uses[&path("new")], Use { read: true, write: true, ..nothing });
        assert_eq!(touched.uses[&base], Use { entries: true, ..nothing });
        assert_eq!(touched.made.iter().collect::<Vec<_>>(), [&path("new")]);
    }
}
