//! Explains the refusals that no filter hears: by a read-only mount, by the view, by file modes, by the sandbox's network, and by
//! Landlock where its audit records cannot be read. Each call with a path is looked at before it is made (`confine::seccomp::observe`), and what will
//! refuse it is known from the mounts, the modes and the rules. The kernel makes the call in any case: nothing is decided here.

pub mod absent;
mod credentials;
mod reach;
pub mod touched;
mod view;
mod wish;

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use self::absent::{Absence, Absences};
use self::credentials::{Credentials, EXECUTE, READ, WRITE};
use self::reach::Reach;
use self::touched::Touched;
use self::view::{Node, Place, View, Way};
use self::wish::Wish;
use crate::confine::landlock::{self, Grant};
use crate::confine::seccomp::listen::{Aim, Look};
use crate::confine::seccomp::observe::Kind;
use crate::plan::{Bytes, Mount, MountKind, Root, RunPlan};
use crate::sys::process::is_hosts_root;

/// Of a part of a writable tree that is mounted read-only.
pub const KEPT: &str = "it is kept from the command: a policy in the workspace, or an option's own read-only mount";

/// What refuses a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// `mount`, `mode`, `network` or `landlock`.
    pub layer: &'static str,
    /// The call, or Landlock's right.
    pub op: &'static str,
    pub target: PathBuf,
    /// Why.
    pub rule: String,
    /// The error of the call.
    pub errno: i32,
    /// What would allow it; for Landlock its rules tell.
    pub hint: Option<String>,
}

/// What is known about the sandbox of the observed calls.
#[derive(Debug)]
pub struct Observer {
    mounts: Vec<Mount>,
    /// Whether the root is a view of the host, so that a path can be missing in it.
    is_view: bool,
    /// Landlock's rules, if its own records are not read.
    rules: Option<Vec<Grant>>,
    /// The same with the files that they are for, when the view is known.
    granted: Vec<(Inode, Grant)>,
    view: Option<View>,
    reach: Option<Reach>,
    /// What the sandbox does not have.
    pub absences: Absences,
    /// What was used, if that is asked for.
    pub touched: Option<Rc<RefCell<Touched>>>,
}

/// Device and number of a file, by which Landlock knows it.
type Inode = (libc::dev_t, libc::ino_t);

impl Observer {
    /// For the commands of this plan. `explains_landlock`: its own records are not read.
    pub fn new(plan: &RunPlan, explains_landlock: bool) -> Self {
        let rules = plan.confinement.landlock.as_ref().filter(|_| explains_landlock);
        Self {
            mounts: plan.mounts.clone(),
            is_view: !matches!(plan.root, Root::Directory(_)),
            rules: rules.and_then(|rules| landlock::grants(rules, &plan.mounts).ok().flatten()),
            granted: Vec::new(),
            view: None,
            reach: Reach::of(plan),
            absences: Absences::default(),
            touched: None,
        }
    }

    /// What will refuse this call, as far as that can be known.
    pub fn look(&mut self, look: &Look<'_>, since_us: Option<u64>) -> Option<Refusal> {
        if let Some(peer) = look.peer {
            return self.reach.as_ref()?.refusal(peer).filter(|_| (look.is_waiting)());
        }
        if self.view.is_none() {
            let view = View::of(&look.thread.to_string()).ok();
            // Only if the caller has waited all the time, the thread of this number is the caller.
            self.open(view.filter(|_| (look.is_waiting)())?);
        }
        let credentials = Credentials::of(look.thread);
        let seen = Seen { call: look.call, credentials: credentials.as_ref() };
        let (mut refusal, mut absence) = (None, None);
        let is_moot = self.is_moot(&seen, &look.aims);
        if !is_moot {
            for aim in &look.aims {
                match self.judge(&seen, aim) {
                    Some(Finding::Refused(found)) => refusal = refusal.or(Some(found)),
                    Some(Finding::Absent(target, wish)) => absence = absence.or(Some((target, wish))),
                    None => {}
                }
            }
        }
        // A caller that does not wait any more may have been another from the start.
        let is_used = self.touched.is_some() && !is_moot && refusal.is_none();
        if refusal.is_none() && absence.is_none() && !is_used || !(look.is_waiting)() {
            return None;
        }
        if let (Some(touched), Some(view), true) = (&self.touched, &self.view, is_used) {
            touched.borrow_mut().note(view, look, credentials.as_ref());
        }
        if let (None, Some((target, wish))) = (&refusal, absence) {
            let (makes, writes) = (wish.create, wish.changes());
            let (op, thread, comm) = (look.call, look.thread, look.comm());
            self.absences.note(Absence { op, target, makes, writes, thread, comm, count: 1, first_us: since_us });
        }
        refusal
    }

    /// Forgets the sandbox, which has ended.
    pub fn close(&mut self) {
        self.view = None;
    }

    fn open(&mut self, view: View) {
        let inode = |grant: Grant| match view.look_up(grant.path.as_bytes(), true, None)? {
            Place::Found(way) => way.end().map(|node| (inode(node), grant)),
            Place::Missing(..) | Place::Closed(..) => None,
        };
        self.granted = self.rules.iter().flatten().cloned().filter_map(inode).collect();
        self.view = Some(view);
    }

    /// Whether no refusal is the answer to a call with two paths: moving or linking to another mount is an error of its own, as is
    /// moving what is not there, and moving a file to itself does nothing.
    fn is_moot(&self, seen: &Seen<'_>, aims: &[Aim]) -> bool {
        let [from, to] = aims else { return false };
        let Some(view) = &self.view else { return true };
        let links = matches!(from.kind, Kind::Link(_));
        let place = |aim: &Aim| match view.look_up(&aim.path, Wish::from(aim).follow, seen.credentials)? {
            Place::Found(way) => Some((view.mount_of(way.path.parent()?)?, way.end().map(inode), false)),
            Place::Missing(way, _) => Some((view.mount_of(&way.path)?, None, true)),
            Place::Closed(..) if links => None, // which the kernel sees first
            Place::Closed(way, _) => Some((view.mount_of(&way.path)?, None, false)),
        };
        let (Some((from, old, missing)), Some((to, new, _))) = (place(from), place(to)) else { return !links };
        if links {
            // The kernel asks whether the new name can be made before it compares the mounts.
            return missing || from.point != to.point && !to.read_only;
        }
        from.point != to.point || !from.read_only && (missing || old.is_some() && old == new)
    }

    fn judge(&self, seen: &Seen<'_>, aim: &Aim) -> Option<Finding> {
        let (view, wish) = (self.view.as_ref()?, Wish::from(aim));
        match view.look_up(&aim.path, wish.follow, seen.credentials)? {
            Place::Closed(way, beyond) => seen.mode(&way, EXECUTE, Some(&way.path.join(beyond))),
            Place::Missing(way, rest) if wish.create && rest.components().count() == 1 => {
                let directory = way.end()?;
                self.change(seen, wish, &way, directory, &way.path, &way.path.join(rest))
            }
            Place::Missing(way, rest) => {
                let (target, is_last) = (way.path.join(&rest), rest.components().count() == 1);
                // The kernel asks for the mount before it looks for what is to be removed.
                let fixed = (wish.remove && is_last).then(|| self.read_only(seen, &way.path, &target)).flatten();
                if fixed.is_some() {
                    return fixed;
                }
                (self.is_view && !self.is_from_elsewhere(&target)).then_some(Finding::Absent(target, wish))
            }
            Place::Found(_) if wish.new => None, // it exists, which is an error of its own
            Place::Found(way) if wish.entry => {
                self.change(seen, wish, &way, way.directory()?, way.path.parent()?, &way.path)
            }
            Place::Found(way) => self.use_of(seen, wish, &way),
        }
    }

    /// An entry is made in or removed from its directory.
    fn change(
        &self,
        seen: &Seen<'_>,
        wish: Wish,
        way: &Way,
        directory: &Node,
        place: &Path,
        entry: &Path,
    ) -> Option<Finding> {
        let found = way.path == entry;
        let nodes = if found { &way.nodes[..way.nodes.len().saturating_sub(1)] } else { &way.nodes[..] };
        let end = way.end().filter(|_| found);
        let right = match seen.call {
            "mkdir" | "mkdirat" => "fs.make_dir",
            "symlink" | "symlinkat" => "fs.make_sym",
            "bind" => "fs.make_sock",
            _ if wish.remove && end.is_some_and(|node| node.kind() == libc::S_IFDIR) => "fs.remove_dir",
            _ if wish.remove => "fs.remove_file",
            _ => "fs.make_reg",
        };
        self.read_only(seen, place, entry)
            .or_else(|| self.landlock(right, nodes, entry))
            .or_else(|| seen.mode_of(directory, place, WRITE | EXECUTE, Some(entry)))
            .or_else(|| end.and_then(|node| seen.sticky(directory, node, entry)))
    }

    /// A file or directory is used that exists. The order of the checks is the kernel's.
    fn use_of(&self, seen: &Seen<'_>, wish: Wish, way: &Way) -> Option<Finding> {
        let (node, path) = (way.end()?, &way.path);
        let (is_file, is_directory) = (node.kind() == libc::S_IFREG, node.kind() == libc::S_IFDIR);
        if wish.attributes {
            return self.read_only(seen, path, path).or_else(|| seen.owner(node, path));
        }
        if wish.enter {
            return is_directory.then(|| seen.mode(way, EXECUTE, None)).flatten();
        }
        // Devices, FIFOs and sockets can be written to on any mount.
        let is_used = is_file || is_directory && wish.read && !wish.write;
        if !is_used {
            return None;
        }
        let mount = self.view.as_ref()?.mount_of(path)?;
        let refused = || self.read_only(seen, path, path);
        if wish.write && (wish.truncate || mount.frozen) && mount.read_only {
            return refused();
        }
        if wish.execute && mount.noexec {
            return Some(Finding::Refused(self.no_exec(seen, &mount.point, path)));
        }
        let bits = [(wish.read, READ), (wish.write, WRITE), (wish.execute, EXECUTE)];
        let bits = bits.into_iter().filter(|(wanted, _)| *wanted).fold(0, |all, (_, bit)| all | bit);
        let by_mode = seen.mode(way, bits, None);
        let by_mount = || if wish.write { refused() } else { None };
        let read = if is_file { "fs.read_file" } else { "fs.read_dir" };
        // Landlock wants to read what is executed.
        let rights = [(wish.read || wish.execute, read), (wish.write, "fs.write_file"), (wish.execute, "fs.execute")];
        let by_rules = || {
            let mut wanted = rights.into_iter().filter(|(wanted, _)| *wanted);
            wanted.find_map(|(_, right)| self.landlock(right, &way.nodes, path))
        };
        by_mode.or_else(by_mount).or_else(by_rules)
    }

    /// What is written to is on a read-only mount.
    fn read_only(&self, seen: &Seen<'_>, written: &Path, target: &Path) -> Option<Finding> {
        let mount = self.view.as_ref()?.mount_of(written).filter(|mount| mount.read_only)?;
        Some(Finding::Refused(Refusal {
            layer: "mount",
            op: seen.call,
            target: target.to_owned(),
            rule: format!("{} is mounted read-only", shown(&mount.point)),
            errno: libc::EROFS,
            hint: Some(self.place_to_write(target)),
        }))
    }

    fn no_exec(&self, seen: &Seen<'_>, mount: &Path, target: &Path) -> Refusal {
        Refusal {
            layer: "mount",
            op: seen.call,
            target: target.to_owned(),
            rule: format!("{} is mounted noexec", shown(mount)),
            errno: libc::EACCES,
            hint: Some(match self.mount_at(target).map(|mount| &mount.kind) {
                Some(MountKind::Tmpfs { .. }) => format!("--tmpfs {}:exec would allow it", shown(mount)),
                _ => "a mount without noexec would allow it".to_owned(),
            }),
        }
    }

    /// What would make this writable.
    fn place_to_write(&self, target: &Path) -> String {
        let mount = self.mount_at(target);
        if mount.is_some_and(|mount| mount.keeps_part_of(&self.mounts)) {
            return KEPT.to_owned();
        }
        match mount.map(|mount| (&mount.kind, &mount.destination)) {
            Some((MountKind::Bind { source }, destination)) if source == destination && !is_of_system(target) => {
                format!("--rw {destination} would make it writable, on the host too")
            }
            Some((MountKind::Bind { source }, destination)) if source != destination => {
                format!("-v {source}:{destination} would make it writable, on the host too")
            }
            _ => format!("-v FILE:{} would put a file of the host there; /tmp can be written to", shown(target)),
        }
    }

    /// A path in a bind of another place of the host. What the host has at the same path is another file.
    fn is_from_elsewhere(&self, path: &Path) -> bool {
        let elsewhere = |mount: &Mount| match &mount.kind {
            MountKind::Bind { source } => *source != mount.destination,
            _ => false,
        };
        self.mount_at(path).is_some_and(elsewhere)
    }

    /// The planned mount of a path.
    fn mount_at(&self, path: &Path) -> Option<&Mount> {
        let around = self.mounts.iter().filter(|mount| path.starts_with(mount.destination.as_path()));
        around.max_by_key(|mount| mount.destination.as_bytes().len())
    }

    /// No rule of Landlock's for any of these nodes has this right.
    fn landlock(&self, right: &'static str, nodes: &[Node], target: &Path) -> Option<Finding> {
        self.rules.as_ref()?;
        let is_granted =
            |node: &Node| self.granted.iter().any(|(granted, grant)| *granted == inode(node) && allows(grant, right));
        if nodes.iter().any(is_granted) {
            return None;
        }
        let rule = "no rule allows it there".to_owned();
        let target = target.to_owned();
        Some(Finding::Refused(Refusal { layer: "landlock", op: right, target, rule, errno: libc::EACCES, hint: None }))
    }
}

/// What was found out about a path of a call.
#[derive(Debug)]
enum Finding {
    Refused(Refusal),
    Absent(PathBuf, Wish),
}

/// The call, and who makes it. Without credentials modes do not decide alone.
#[derive(Clone, Copy, Debug)]
struct Seen<'a> {
    call: &'static str,
    credentials: Option<&'a Credentials>,
}

impl Seen<'_> {
    fn mode(&self, way: &Way, wanted: u32, target: Option<&Path>) -> Option<Finding> {
        self.mode_of(way.end()?, &way.path, wanted, target)
    }

    /// The mode of a file, or of the directory in which the target is.
    fn mode_of(&self, node: &Node, path: &Path, wanted: u32, target: Option<&Path>) -> Option<Finding> {
        let refuses = node.refuses(self.credentials?, wanted);
        refuses.then(|| self.by_owner(node, path, target.unwrap_or(path), libc::EACCES))
    }

    /// Only the owner changes the mode or the owner of a file. Times can be changed by others, too.
    fn owner(&self, node: &Node, path: &Path) -> Option<Finding> {
        let is_another = self.credentials?.user != node.stat.st_uid;
        let changes = matches!(self.call, "chmod" | "fchmodat" | "fchmodat2");
        (is_another && changes).then(|| self.by_owner(node, path, path, libc::EPERM))
    }

    fn sticky(&self, directory: &Node, entry: &Node, target: &Path) -> Option<Finding> {
        let kept = self.credentials?.is_kept_from(&directory.stat, &entry.stat);
        kept.then(|| self.by_owner(entry, target, target, libc::EPERM))
    }

    fn by_owner(&self, node: &Node, path: &Path, target: &Path, errno: i32) -> Finding {
        let (mode, owner, group) = (node.stat.st_mode & 0o7777, node.stat.st_uid, node.stat.st_gid);
        let user = self.credentials.map(|credentials| credentials.user).unwrap_or_default();
        let other_user = ![0, user].contains(&owner) && group != 0 && is_hosts_root();
        let hint = match other_user {
            true => format!("--host-user {owner}:{group} would run it as the owner"),
            false => "no option overrides modes: change them on the host".to_owned(),
        };
        let path = shown(path);
        let rule =
            format!("{path} has mode {mode:o}, user {owner} and group {group}; the command is user {user} there");
        let target = target.to_owned();
        Finding::Refused(Refusal { layer: "mode", op: self.call, target, rule, errno, hint: Some(hint) })
    }
}

/// What no run should change on the host.
fn is_of_system(path: &Path) -> bool {
    ["/usr", "/etc", "/bin", "/sbin", "/lib", "/lib64", "/boot"].iter().any(|directory| path.starts_with(directory))
}

/// Whether a rule has a right, by its name in the kernel's audit records.
fn allows(grant: &Grant, right: &str) -> bool {
    match right {
        "fs.read_file" | "fs.read_dir" => grant.read,
        "fs.write_file" => grant.write,
        "fs.execute" => grant.execute,
        _ => grant.make,
    }
}

fn inode(node: &Node) -> Inode {
    (node.stat.st_dev, node.stat.st_ino)
}

fn shown(path: &Path) -> Bytes {
    Bytes::from(path.as_os_str())
}
