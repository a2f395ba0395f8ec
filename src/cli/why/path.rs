//! What may be done with a path.

use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::unistd::AccessFlags;

use super::view::{Entry, Found, Key, Node, View, What};
use super::{Answer, Verdict};
use crate::confine::landlock::Grant;
use crate::error::{Error, Result, Step};
use crate::plan::{Bytes, Capability, Mount, MountKind, Root, RunPlan};
use crate::run::{Examined, KEPT, missing};
use crate::sys::credentials;

/// The names of the answers.
pub const READ: &str = "read";
pub const WRITE: &str = "write";
pub const EXECUTE: &str = "execute";

/// As many interpreters as the kernel follows.
const MOST_INTERPRETERS: usize = 5;

/// Whether the path may be read, written and executed, and where it leads.
pub fn answers(plan: &RunPlan, examined: Examined, path: &Path) -> Result<(Option<Bytes>, Vec<Answer>)> {
    if examined.is_privileged {
        // This process ends with its answer.
        credentials::clear_groups().map_err(|errno| Error::errno(Step::Groups, "", errno))?;
    }
    let view = View::of(plan, examined)?;
    let rules = view.rules(plan)?;
    let asking = Asking { plan, view, rules };
    Ok(match asking.view.locate(path, true) {
        Found::There(way) => {
            let node = &way[way.len() - 1];
            let leads_to = (node.path != clean(path)).then(|| Bytes::from(&node.path));
            (leads_to, vec![asking.read(&way), asking.write(&way), asking.execute(&way, 0)])
        }
        Found::Missing(way, at, only_the_last) => {
            let leads_to = (at != clean(path)).then(|| Bytes::from(&at));
            let write = match only_the_last {
                true => asking.make(&way, "it does not exist, and can be made"),
                false => asking.missing(WRITE, &at),
            };
            (leads_to, vec![asking.missing(READ, &at), write, asking.missing(EXECUTE, &at)])
        }
        Found::Blocked(way, errno) => {
            let node = &way[way.len() - 1];
            let because = match errno {
                Errno::ENOTDIR => format!("{} is not a directory", shown(&node.path)),
                Errno::ELOOP => "there are too many symlinks".to_owned(),
                _ => format!("{} may not be entered: {}", shown(&node.path), asking.owner(node)),
            };
            let hint = (errno == Errno::EACCES).then(|| asking.other_user(node)).flatten();
            let overriding = asking.overriding().filter(|_| errno == Errno::EACCES);
            let no = |what| match overriding {
                Some(capability) => {
                    Answer::depends(what, format!("{because}, and {capability} may override that"), None)
                }
                None => Answer::no(what, name(errno), because.clone(), hint.clone()),
            };
            (None, [READ, WRITE, EXECUTE].map(no).into())
        }
        Found::Unknown => {
            let because = "the kernel makes it for the run: it is not known before";
            (None, [READ, WRITE, EXECUTE].map(|what| Answer::depends(what, because, None)).into())
        }
    })
}

struct Asking<'a> {
    plan: &'a RunPlan,
    view: View<'a>,
    rules: Option<Vec<(Key, Grant)>>,
}

impl Asking<'_> {
    fn missing(&self, what: &'static str, path: &Path) -> Answer {
        let on_host = std::fs::symlink_metadata(path).is_ok();
        let (because, hint) = match (&self.plan.root, on_host) {
            (Root::Synthetic, true) => {
                let (option, place) = if what == WRITE {
                    ("--rw", "would show it, and changes would be the host's")
                } else {
                    ("--ro", "would show it")
                };
                (
                    "the host has it, and the sandbox does not".to_owned(),
                    Some(format!("{option} {} {place}", shown(path))),
                )
            }
            (Root::Synthetic, false) => ("neither the sandbox nor the host has such a file".to_owned(), None),
            (Root::Directory(root), _) => {
                let hint = format!("-v SOURCE:{}:ro would show a file of the host there", shown(path));
                (format!("the root {root} has no such file"), Some(hint))
            }
        };
        Answer::no(what, name(Errno::ENOENT), because, hint)
    }

    fn read(&self, way: &[Node]) -> Answer {
        let node = &way[way.len() - 1];
        if self.is_dead_device(node) {
            return self.dead_device(READ);
        }
        if let Some(errno) = self.view.permits(node, AccessFlags::R_OK).err() {
            return self.not_permitted(READ, node, errno);
        }
        let option = format!("--allow-read {} would allow it", shown(&node.path));
        self.ruled(READ, way, |grant| grant.read, option).unwrap_or_else(|| {
            let list = if node.is_dir() { "a directory; " } else { "" };
            Answer::yes(READ, format!("{list}{}", self.on(node)))
        })
    }

    fn write(&self, way: &[Node]) -> Answer {
        let node = &way[way.len() - 1];
        if node.is_dir() {
            return self.make(way, "a directory, in which files can be made");
        }
        if self.is_dead_device(node) {
            return self.dead_device(WRITE);
        }
        if self.view.is_read_only(node) {
            return self.read_only(node);
        }
        if let Some(errno) = self.view.permits(node, AccessFlags::W_OK).err() {
            return self.not_permitted(WRITE, node, errno);
        }
        let option = format!("--allow-write {} would allow it", shown(&node.path));
        self.ruled(WRITE, way, |grant| grant.write, option).unwrap_or_else(|| self.writable(node, ""))
    }

    /// Making a file in the last directory of the way.
    fn make(&self, way: &[Node], what: &str) -> Answer {
        let directory = &way[way.len() - 1];
        if matches!(self.view.mount(directory).what, What::Planned(Mount { kind: MountKind::Proc { .. }, .. })) {
            return Answer::no(WRITE, name(Errno::ENOENT), "nothing can be made in a procfs", None);
        }
        if self.view.is_read_only(directory) {
            return self.read_only(directory);
        }
        if let Some(errno) = self.view.permits(directory, AccessFlags::W_OK | AccessFlags::X_OK).err() {
            return self.not_permitted(WRITE, directory, errno);
        }
        let option = format!("--allow-write {} would allow it", shown(&directory.path));
        let right = |grant: &Grant| grant.make && grant.write;
        self.ruled(WRITE, way, right, option).unwrap_or_else(|| self.writable(directory, &format!("{what}; ")))
    }

    fn writable(&self, node: &Node, before: &str) -> Answer {
        let mount = self.view.mount(node);
        let hint = match mount.what {
            What::Planned(Mount { kind: MountKind::Bind { source }, .. }) => {
                let ro = if source.as_path() == mount.at {
                    format!("--ro {source}")
                } else {
                    format!("-v {source}:{}:ro", shown(&mount.at))
                };
                Some(format!("changes are the host's; {ro} would forbid them"))
            }
            _ => None,
        };
        Answer { hint, ..Answer::yes(WRITE, format!("{before}{}", self.on(node))) }
    }

    fn execute(&self, way: &[Node], depth: usize) -> Answer {
        let node = &way[way.len() - 1];
        if node.mode() & libc::S_IFMT != libc::S_IFREG {
            let what = if node.is_dir() { "it is a directory" } else { "it is a device, a socket or a pipe" };
            return Answer::no(EXECUTE, name(Errno::EACCES), what, None);
        }
        let mount = self.view.mount(node);
        if matches!(mount.what, What::Cover) || matches!(mount.what, What::Planned(mount) if mount.noexec) {
            let listed = self.plan.confinement.landlock.as_ref().is_some_and(|landlock| landlock.execute.is_some());
            let hint = match listed {
                true => "with --allow-exec, nothing on a writable mount is executed: mount it read-only",
                false => "a mount without noexec would allow it",
            };
            return Answer::no(
                EXECUTE,
                name(Errno::EACCES),
                format!("{}, noexec", self.on(node)),
                Some(hint.to_owned()),
            );
        }
        if let Some(errno) = self.view.permits(node, AccessFlags::X_OK).err() {
            return self.not_permitted(EXECUTE, node, errno);
        }
        let option = |list: &str| format!("--allow-{list} {} would allow it", shown(&node.path));
        // The kernel also reads what it executes.
        let refused = self.ruled(EXECUTE, way, |grant| grant.execute, option("exec"));
        if let Some(refused) = refused.or_else(|| self.ruled(EXECUTE, way, |grant| grant.read, option("read"))) {
            return refused;
        }
        self.by_interpreter(node, depth).unwrap_or_else(|| Answer::yes(EXECUTE, self.on(node)))
    }

    /// The answer for a program whose interpreter cannot be executed.
    fn by_interpreter(&self, node: &Node, depth: usize) -> Option<Answer> {
        let Entry::Host(file, _) = &node.entry else { return None };
        let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
        let interpreter = missing::named_interpreter(&path).filter(|path| path.is_absolute())?;
        let answer = match self.view.locate(&interpreter, true) {
            Found::There(way) if depth < MOST_INTERPRETERS => self.execute(&way, depth + 1),
            Found::Missing(_, at, _) => self.missing(EXECUTE, &at),
            _ => return None,
        };
        let because = format!("its interpreter {}: {}", shown(&interpreter), answer.because);
        (answer.allowed == Verdict::No).then_some(Answer { because, ..answer })
    }

    /// Landlock's refusal: no rule is about the file or a directory above it.
    fn ruled(&self, what: &'static str, way: &[Node], right: fn(&Grant) -> bool, option: String) -> Option<Answer> {
        let rules = self.rules.as_ref()?;
        let allows = |(key, grant): &(Key, Grant)| right(grant) && way.iter().any(|node| node.key() == *key);
        let denied = !rules.iter().any(allows);
        denied.then(|| Answer::no(what, name(Errno::EACCES), "no rule of Landlock allows it there", Some(option)))
    }

    fn read_only(&self, node: &Node) -> Answer {
        let mount = self.view.mount(node);
        let hint = match mount.what {
            What::Planned(mount) if mount.keeps_part_of(&self.plan.mounts) => KEPT.to_owned(),
            What::Planned(Mount { kind: MountKind::Bind { source }, .. }) if source.as_path() != Path::new("/usr") => {
                let rw = if source.as_path() == mount.at {
                    format!("--rw {source}")
                } else {
                    format!("-v {source}:{}", shown(&mount.at))
                };
                format!("{rw} would make it writable, on the host too")
            }
            _ => "/tmp and the home are writable; --workspace DIR, --rw DIR and --tmpfs DIR add places".to_owned(),
        };
        Answer::no(WRITE, name(Errno::EROFS), self.on(node), Some(hint))
    }

    fn not_permitted(&self, what: &'static str, node: &Node, errno: Errno) -> Answer {
        if errno == Errno::EROFS {
            return Answer::no(
                what,
                name(errno),
                format!("{}, where the host has mounted it read-only", self.on(node)),
                None,
            );
        }
        match self.overriding() {
            Some(capability) => {
                Answer::depends(what, format!("{}, and {capability} may override that", self.owner(node)), None)
            }
            None => Answer::no(what, name(errno), self.owner(node), self.other_user(node)),
        }
    }

    /// A capability that lets the command do what a mode forbids, with files whose owner the sandbox has. What that is depends on the
    /// ids that the run maps.
    fn overriding(&self) -> Option<&Capability> {
        let overrides =
            |one: &&Capability| ["CAP_DAC_OVERRIDE", "CAP_DAC_READ_SEARCH"].contains(&one.to_string().as_str());
        self.plan.capabilities.iter().find(overrides)
    }

    /// The owner and mode of a file, which refuse something.
    fn owner(&self, node: &Node) -> String {
        match &node.entry {
            Entry::Host(_, stat) => {
                format!("it belongs to {}:{} on the host, mode {:o}", stat.st_uid, stat.st_gid, stat.st_mode & 0o7777)
            }
            _ => format!("it is the sandbox's own, mode {:o}", node.mode() & 0o7777),
        }
    }

    fn other_user(&self, node: &Node) -> Option<String> {
        let Entry::Host(_, stat) = &node.entry else { return None };
        (self.view.is_privileged() && stat.st_uid != 0)
            .then(|| format!("--host-user {}:{} would run as its owner", stat.st_uid, stat.st_gid))
    }

    fn is_dead_device(&self, node: &Node) -> bool {
        let is_device = matches!(node.mode() & libc::S_IFMT, libc::S_IFCHR | libc::S_IFBLK);
        is_device && !matches!(self.view.mount(node).what, What::Planned(Mount { kind: MountKind::Dev { .. }, .. }))
    }

    fn dead_device(&self, what: &'static str) -> Answer {
        let hint = "--device PATH would provide it in /dev".to_owned();
        Answer::no(what, name(Errno::EACCES), "devices work in /dev alone", Some(hint))
    }

    /// The mount, as people know it.
    fn on(&self, node: &Node) -> String {
        let mount = self.view.mount(node);
        let at = shown(&mount.at);
        let access = if self.view.is_read_only(node) { "read-only" } else { "read-write" };
        let planned = match mount.what {
            What::Root(Root::Synthetic) => return "on the sandbox's own root, read-only".to_owned(),
            What::Root(Root::Directory(root)) => return format!("on the root, the host's {root}, read-only"),
            What::Cover => return format!("{at} is masked: it is empty, read-only"),
            What::Planned(planned) => planned,
        };
        let what = match &planned.kind {
            MountKind::Bind { source } if source.as_path() == mount.at => "the host's".to_owned(),
            MountKind::Bind { source } => format!("the host's {source}"),
            MountKind::AsHost => "as on the host".to_owned(),
            MountKind::Tmpfs { .. } | MountKind::Scratch { .. } => "the sandbox's own and empty at first".to_owned(),
            MountKind::File { .. } => "made for the sandbox".to_owned(),
            MountKind::Symlink { .. } => "a symlink".to_owned(),
            MountKind::Proc { .. } => "the sandbox's own procfs".to_owned(),
            MountKind::Sysfs => "the host's devices and kernel".to_owned(),
            MountKind::Cgroup => "the sandbox's cgroups".to_owned(),
            MountKind::Dev { .. } => "the sandbox's own devices".to_owned(),
            MountKind::Mqueue => "the sandbox's message queues".to_owned(),
        };
        format!("{at} is {what}, {access}")
    }
}

fn name(errno: Errno) -> Option<String> {
    Some(format!("{errno:?}"))
}

/// Without `.`, repeated slashes and a slash at the end.
fn clean(path: &Path) -> PathBuf {
    path.components().collect()
}

fn shown(path: &Path) -> Bytes {
    Bytes::from(path)
}
