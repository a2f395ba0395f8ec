//! From what a run used to rules for paths: which file or directory a rule must name so that the next run may do the same.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};

use super::collapse::collapsed;
use crate::cli::why::view::{Entry, Found, View};
use crate::error::{Error, Result, Step};
use crate::plan::{Bytes, Landlock, Mount, MountKind, PathRule, RunPlan};
use crate::policy::path::SandboxPath;
use crate::policy::rules::RulePath;
use crate::policy::value::Value as _;
use crate::run::{Touched, Use, missing};

/// A script may name a script as its interpreter, and so on: `BINPRM_MAX_RECURSION`, and the first.
const MOST_INTERPRETERS: usize = 5;

/// A list of Landlock's rules: the paths, and what is said about some of them.
#[derive(Debug, Default)]
pub struct List {
    /// The paths.
    pub rules: Vec<RulePath>,
    /// What is said about a path.
    pub said: BTreeMap<PathBuf, String>,
}

/// The three lists.
#[derive(Debug)]
pub struct Lists {
    /// What was read.
    pub read: List,
    /// What was written.
    pub write: List,
    /// What was executed; why there is no list, if a list would forbid what the run did.
    pub execute: std::result::Result<List, String>,
    /// The directories that stand for several files.
    pub collapsed: BTreeMap<PathBuf, usize>,
}

/// What was learned about the paths of a plan.
pub struct Lesson<'a> {
    pub plan: &'a RunPlan,
    pub view: &'a View<'a>,
    pub touched: &'a Touched,
    /// The program that was executed first, without symlinks.
    pub first: Option<PathBuf>,
}

impl Lesson<'_> {
    /// The lists.
    pub fn lists(&self) -> Result<Lists> {
        let mut executed: BTreeSet<PathBuf> = self.of(|one| one.execute).map(Path::to_owned).collect();
        executed.extend(self.first.clone());
        for program in executed.clone() {
            self.interpreters(program, &mut executed);
        }

        let unclear = |changed: bool| {
            let mounts = self.touched.unclear.iter().filter(move |(_, changes)| **changes || !changed);
            mounts.map(|(point, _)| point.clone())
        };
        // The kernel also reads what it executes.
        let read = self.of(|one| one.read).map(Path::to_owned).chain(executed.clone()).chain(unclear(false));
        let writable = self.base(|rules| &rules.write);
        let may_connect = |path: &&Path| writable.is_some() || self.may_connect(path);
        let connected = self.of(|one| one.connect).filter(may_connect).map(Path::to_owned);
        let written = self.of(|one| one.write || one.entries).map(Path::to_owned).chain(unclear(true)).chain(connected);
        let (read, collapsed_read) = self.list(read.collect(), self.base(|rules| &rules.read), "read")?;
        let (write, _) = self.list(written.collect(), writable, "written")?;
        let programs = self.base(|rules| &rules.execute);
        // A run that had a list was held to it.
        let (execute, collapsed_execute) = match self.forbids_executing(&executed).filter(|_| programs.is_none()) {
            Some(why) => (Err(why), BTreeMap::new()),
            None => {
                let (list, collapsed) = self.list(executed, programs, "executed")?;
                (Ok(list), collapsed)
            }
        };
        let mut collapsed = collapsed_read;
        for (directory, count) in collapsed_execute {
            collapsed.entry(directory).or_insert(count);
        }
        Ok(Lists { read, write, execute, collapsed })
    }

    /// Whether Landlock may let the run connect to a socket there: from ABI 9 on, that is a right of places that can be written to.
    fn may_connect(&self, path: &Path) -> bool {
        let is_below = |mount: &Mount| !mount.read_only && path.starts_with(mount.destination.as_path());
        self.plan.mounts.iter().any(is_below)
    }

    fn of(&self, is_used: impl Fn(&Use) -> bool) -> impl Iterator<Item = &Path> {
        self.touched.uses.iter().filter(move |(_, one)| is_used(one)).map(|(path, _)| path.as_path())
    }

    /// Adds what the kernel executes for a program.
    fn interpreters(&self, mut program: PathBuf, all: &mut BTreeSet<PathBuf>) {
        for _ in 0..MOST_INTERPRETERS {
            let Found::There(way) = self.view.locate(&program, false) else { return };
            let Some(Entry::Host(file, stat)) = way.last().map(|node| &node.entry) else { return };
            if stat.st_mode & libc::S_IFMT != libc::S_IFREG {
                return; // a FIFO that took its place would be waited for
            }
            let file = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
            let Some(interpreter) = missing::named_interpreter(&file).filter(|path| path.is_absolute()) else { return };
            let Found::There(way) = self.view.locate(&interpreter, false) else { return };
            let Some(node) = way.last() else { return };
            program.clone_from(&node.path);
            all.insert(node.path.clone());
        }
    }

    /// Why a list of programs would forbid what the run did: with one, nothing on a writable mount is executed.
    fn forbids_executing(&self, executed: &BTreeSet<PathBuf>) -> Option<String> {
        let is_writable = |path: &Path| self.mount_of(path).is_some_and(|mount| !mount.read_only);
        let is_library = |path: &Path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.ends_with(".so") || name.contains(".so.") || name.ends_with(".node")
        };
        if let Some(program) = executed.iter().find(|path| is_writable(path)) {
            return Some(format!("{} was executed, on a writable mount", Bytes::from(program.as_path())));
        }
        if let Some(library) = self.of(|one| one.read).find(|path| is_library(path) && is_writable(path)) {
            return Some(format!("the library {} was read, on a writable mount", Bytes::from(library)));
        }
        self.touched.memory_file.then(|| "files in memory were made, which such a list forbids".to_owned())
    }

    fn base(&self, list: fn(&Landlock) -> &Option<Vec<PathRule>>) -> Option<Vec<PathBuf>> {
        let rules = list(self.plan.confinement.landlock.as_ref()?).as_ref()?;
        let place = |rule: &PathRule| match self.view.locate(rule.path.as_path(), false) {
            Found::There(way) => way.last().map(|node| node.path.clone()),
            _ => None,
        };
        Some(rules.iter().filter_map(place).collect())
    }

    /// A list of what the run was allowed, and the directories in it that stand for several files.
    fn list(
        &self,
        used: BTreeSet<PathBuf>,
        base: Option<Vec<PathBuf>>,
        done: &str,
    ) -> Result<(List, BTreeMap<PathBuf, usize>)> {
        let may = |path: &Path| base.as_ref().is_none_or(|base| base.iter().any(|above| path.starts_with(above)));
        let named: BTreeSet<PathBuf> =
            used.iter().filter_map(|path| self.named(path)).filter(|path| may(path)).collect();
        let (paths, collapsed) = collapsed(named, may);
        let mut list = List::default();
        for path in &paths {
            if paths.iter().any(|above| above != path && path.starts_with(above)) {
                continue;
            }
            let said = match collapsed.get(path) {
                Some(count) => Some(format!("{count} files below it were {done}")),
                None => self.said(path, &used, done),
            };
            list.said.extend(said.map(|said| (path.clone(), said)));
            let place = SandboxPath::parse(Bytes::from(path.as_path()).as_bytes());
            let place = place.map_err(|reason| Error::new(Step::Plan, path.display().to_string(), reason))?;
            list.rules.push(RulePath { path: place, optional: self.may_go(path) });
        }
        Ok((list, collapsed))
    }

    /// What a rule names: the path itself if the next run will have it at its start, else the directory that it is made in. `None`
    /// for what every run may use.
    fn named(&self, path: &Path) -> Option<PathBuf> {
        let mount = self.mount_of(path);
        match mount.map(|mount| &mount.kind) {
            Some(MountKind::Proc { .. } | MountKind::Dev { .. }) => return None,
            Some(MountKind::Tmpfs { .. } | MountKind::Scratch { .. }) => {
                return mount.map(|mount| mount.destination.as_path().to_owned());
            }
            _ => {}
        }
        let mut above: Vec<&Path> = path.ancestors().collect();
        above.reverse();
        let made = above.into_iter().find(|part| self.touched.made.contains(*part));
        Some(made.and_then(Path::parent).unwrap_or(path).to_owned())
    }

    fn said(&self, path: &Path, used: &BTreeSet<PathBuf>, done: &str) -> Option<String> {
        if let Some(MountKind::Tmpfs { .. } | MountKind::Scratch { .. }) = self.mount_of(path).map(|mount| &mount.kind)
        {
            return Some("the run's own, empty at its start".to_owned());
        }
        if self.touched.unclear.contains_key(path) {
            return Some("a file system in which single paths are not looked up".to_owned());
        }
        let one = self.touched.uses.get(path).copied().unwrap_or_default();
        let below = used.iter().filter(|other| *other != path && other.starts_with(path)).count();
        match done {
            "written" if one.connect => Some("this socket was connected to".to_owned()),
            "written" if one.entries => Some("files in it were made, replaced or removed".to_owned()),
            "read" if one.read && is_directory(self.view, path) => {
                Some("it was listed, which allows reading all below it".to_owned())
            }
            _ if !used.contains(path) && below > 0 => {
                Some(format!("{below} files that the run made below it were {done}"))
            }
            _ => None,
        }
    }

    /// Whether a later run may not find it: a run can remove it, or it is only there where the run has a cgroup.
    fn may_go(&self, path: &Path) -> bool {
        let goes = |mount: &Mount| !mount.read_only || matches!(mount.kind, MountKind::Cgroup);
        let is_socket = self.touched.uses.get(path).is_some_and(|one| one.connect); // its server may not run yet
        is_socket || self.mount_of(path).is_some_and(|mount| goes(mount) && mount.destination.as_path() != path)
    }

    fn mount_of(&self, path: &Path) -> Option<&Mount> {
        mount_of(self.plan, path)
    }
}

/// The planned mount of a path.
pub fn mount_of<'a>(plan: &'a RunPlan, path: &Path) -> Option<&'a Mount> {
    let around = plan.mounts.iter().filter(|mount| path.starts_with(mount.destination.as_path()));
    around.max_by_key(|mount| mount.destination.as_bytes().len())
}

fn is_directory(view: &View<'_>, path: &Path) -> bool {
    matches!(view.locate(path, false), Found::There(way) if way.last().is_some_and(|node| node.is_dir()))
}
