//! Cgroups: which version, where this process is, and whether a run's budget could be enforced there.

use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};
use nix::sys::stat::Mode;
use nix::sys::statfs::{CGROUP2_SUPER_MAGIC, statfs};
use nix::unistd::{geteuid, getpid};

use crate::cgroup::availability;
use crate::plan::Facility;
use crate::sys::{mountinfo, schedule};

use super::trial::{self, Setup, words};
use super::{Finding, Group, Patient, State, Subject, kernel_text};

const fn subject(name: &'static str, title: &'static str, without: &'static str) -> Subject {
    // A default run asks for no budget.
    Subject { name, group: Group::Budgets, title, required: false, without }
}

const VERSION: Subject = subject("cgroup", "cgroup v2", "no budget can be enforced: see below");
const DELEGATION: Subject =
    subject("cgroup_delegation", "a cgroup to make runs in", "no budget can be enforced: see below");
const SYSTEMD: Subject = subject("systemd", "systemd manager", "no cgroup can be asked of systemd");
const BUDGETS: [(Facility, Subject); 3] = [
    (Facility::Memory, subject("budget_memory", "memory budget", "runs with a memory budget are refused")),
    (Facility::Cpu, subject("budget_cpu", "CPU budget", "runs with a CPU budget are refused")),
    (Facility::Pids, subject("budget_pids", "process budget", "runs with a limit on processes are refused")),
];

const ROOT: &str = "/sys/fs/cgroup";

pub(super) fn examine(patient: &Patient) -> Vec<Finding> {
    let hierarchy = Hierarchy::look();
    let systemd = systemd();
    let delegation = match &hierarchy.place {
        Some(own) => delegation(own, &hierarchy, patient, systemd.state == State::Ok),
        None if hierarchy.v2.is_some() => DELEGATION.missing("this process's own cgroup is not in what is mounted"),
        None => DELEGATION.missing("there is no cgroup v2 to make one in"),
    };
    let mut findings = vec![version(&hierarchy), delegation, systemd];
    for (controller, subject) in &BUDGETS {
        let finding = budget(subject, *controller, &hierarchy, &findings[1]);
        findings.push(finding);
    }
    findings
}

/// What is mounted, by what the kernel says each mount is: directories of a tmpfs accept the same writes and enforce nothing.
#[derive(Debug)]
struct Hierarchy {
    /// Where cgroup v2 is mounted.
    v2: Option<PathBuf>,
    /// Controllers that a v1 hierarchy has taken, and v2 therefore cannot have.
    v1: Vec<String>,
    /// Where runs of this caller get their cgroups: as root below the mount, otherwise below the caller's own.
    place: Option<PathBuf>,
    /// Controllers that are available there.
    controllers: Vec<String>,
}

impl Hierarchy {
    fn look() -> Self {
        let mounts = v2_mounts(&std::fs::read(mountinfo::OWN).unwrap_or_default());
        // Without a readable mountinfo, where it usually is.
        let usual = V2Mount { at: ROOT.into(), root: "/".into() };
        let v2 = mounts.into_iter().chain([usual]).find(|mount| is_v2(&mount.at));
        let (own_path, v1) = memberships(&kernel_text("/proc/self/cgroup").unwrap_or_default());
        let place = match &v2 {
            Some(v2) if geteuid().is_root() => Some(v2.at.clone()),
            Some(v2) => own_path.map(|path| v2.below(&path)).filter(|own| is_v2(own)),
            None => None,
        };
        let v2 = v2.map(|mount| mount.at);
        let controllers = place
            .as_ref()
            .and_then(|own| kernel_text(own.join("cgroup.controllers")))
            .map(|text| text.split_ascii_whitespace().map(str::to_owned).collect())
            .unwrap_or_default();
        Self { v2, v1, place, controllers }
    }
}

fn is_v2(path: &Path) -> bool {
    statfs(path).is_ok_and(|found| found.filesystem_type() == CGROUP2_SUPER_MAGIC)
}

/// A mount of cgroup v2.
#[derive(Debug, PartialEq)]
struct V2Mount {
    at: PathBuf,
    /// The cgroup that is mounted; not `/` where a container without a cgroup namespace sees its own alone.
    root: String,
}

impl V2Mount {
    /// Where the cgroup of this path, absolute within the hierarchy, is found.
    fn below(&self, path: &str) -> PathBuf {
        let path = path.strip_prefix(self.root.trim_end_matches('/')).unwrap_or(path);
        match path.trim_start_matches('/') {
            "" => self.at.clone(),
            path => self.at.join(path),
        }
    }
}

/// All mounts of cgroup v2.
fn v2_mounts(text: &[u8]) -> Vec<V2Mount> {
    let mounts = mountinfo::parse(text).filter(|mount| mount.kind == "cgroup2");
    mounts.map(|mount| V2Mount { at: mount.point(), root: mount.root().to_string_lossy().into_owned() }).collect()
}

/// Own path in v2, and the controllers of v1 hierarchies, `cgroups(7)`.
fn memberships(proc_cgroup: &str) -> (Option<String>, Vec<String>) {
    let (mut own, mut v1) = (None, Vec::new());
    for line in proc_cgroup.lines() {
        let mut fields = line.splitn(3, ':'); // the path may hold colons
        match (fields.next(), fields.next(), fields.next()) {
            (Some("0"), Some(""), Some(path)) => own = Some(path.to_owned()),
            (Some(_), Some(names), Some(_)) if !names.starts_with("name=") => {
                v1.extend(names.split(',').map(str::to_owned));
            }
            _ => {}
        }
    }
    (own, v1)
}

fn version(hierarchy: &Hierarchy) -> Finding {
    let list = |names: &[String]| if names.is_empty() { "none".into() } else { names.join(" ") };
    match (&hierarchy.v2, hierarchy.v1.as_slice()) {
        (Some(v2), []) => {
            VERSION.ok(format!("mounted at {}; controllers: {}", v2.display(), list(&hierarchy.controllers)))
        }
        (Some(v2), v1) => VERSION
            .degraded(
                format!(
                    "hybrid: v2 at {} with controllers: {}; v1 has {}",
                    v2.display(),
                    list(&hierarchy.controllers),
                    list(v1)
                ),
                "budgets whose controllers v1 has are enforced there, for root alone",
            )
            .remedy(UNIFY),
        (None, []) => VERSION.missing(format!("none is mounted: {ROOT} is not a cgroup file system")).remedy(MOUNT),
        (None, v1) => VERSION.missing(format!("only v1, with {}", list(v1))).remedy(UNIFY),
    }
}

const UNIFY: &str = "add systemd.unified_cgroup_hierarchy=1 cgroup_no_v1=all to the kernel's command line and reboot";
const MOUNT: &str =
    "mount -t cgroup2 cgroup2 /sys/fs/cgroup  # as root; in a container: start it with --cgroupns private";

/// Makes a cgroup below the own one, starts a process in it, and removes it.
fn delegation(own: &Path, hierarchy: &Hierarchy, patient: &Patient, systemd: bool) -> Finding {
    let shown = own.display();
    // Processes of several pid namespaces may be here, with the same pid.
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos());
    let child = own.join(format!("stockade-doctor-{}-{now:x}", getpid()));
    if let Err(error) = std::fs::create_dir(&child) {
        let errno = error.raw_os_error().map_or(Errno::EIO, Errno::from_raw);
        let finding = DELEGATION.missing(format!("mkdir in {shown}: {}", words(errno)));
        return match (errno, way_in(patient, systemd)) {
            (Errno::EROFS, _) => {
                finding.remedy("mount -o remount,rw /sys/fs/cgroup  # as root of the enclosing container")
            }
            (_, Some(command)) => finding.remedy(command),
            (_, None) => finding.remedy(delegate(hierarchy)),
        };
    }
    let made = Made(child);
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let tried = open(&made.0, flags, Mode::empty())
        .map_err(trial::Stumble::Clone)
        .and_then(|directory| trial::attempt(Setup { cgroup: Some(directory.as_fd()), ..Setup::default() }, || Ok(0)));
    let kill = made.0.join("cgroup.kill").exists();
    match tried {
        Ok(_) if kill => DELEGATION.ok(format!("made one in {shown}, started a process in it")),
        Ok(_) => DELEGATION
            .degraded(
                format!("made one in {shown}, which has no cgroup.kill"),
                "ending a run takes longer: it is killed by pid 1",
            )
            .remedy("install Linux 5.14 or later"),
        Err(stumble) => patient.stumbled(&DELEGATION, &stumble, &[]),
    }
}

/// Removes the cgroup that was made, whatever happens.
struct Made(PathBuf);

impl Drop for Made {
    fn drop(&mut self) {
        // A process that has just ended may still count for a moment.
        for _ in 0..50 {
            match std::fs::remove_dir(&self.0) {
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                    schedule::pause(std::time::Duration::from_millis(10));
                }
                _ => return,
            }
        }
    }
}

/// What root types to hand a cgroup to this user, where no systemd does it.
fn delegate(hierarchy: &Hierarchy) -> String {
    let mount = hierarchy.v2.as_deref().unwrap_or(Path::new(ROOT));
    let available = kernel_text(mount.join("cgroup.controllers")).unwrap_or_default();
    let wanted = BUDGETS.iter().map(|(controller, _)| controller.name());
    let enable: String = wanted
        .filter(|controller| available.split_ascii_whitespace().any(|name| name == *controller))
        .map(|controller| format!("+{controller} "))
        .collect();
    let (mount, uid) = (mount.display(), geteuid());
    format!(
        "cd {mount} && mkdir user-{uid} && echo {enable}>cgroup.subtree_control && chown -R {uid} user-{uid} && \
         echo PID >user-{uid}/cgroup.procs  # as root; PID is your shell's"
    )
}

/// The command that starts stockade in a cgroup of its own.
fn way_in(patient: &Patient, systemd: bool) -> Option<&'static str> {
    match (systemd, patient.privileged) {
        (true, true) => Some("systemd-run --scope -p Delegate=yes stockade run …"),
        (true, false) => Some("systemd-run --user --scope -p Delegate=yes stockade run …"),
        (false, _) => None,
    }
}

fn budget(subject: &Subject, controller: Facility, hierarchy: &Hierarchy, delegation: &Finding) -> Finding {
    match availability::of(controller) {
        Ok(place) => subject.ok(format!("enforced {place}")),
        Err(why) => {
            let finding = subject.missing(why);
            let on_v1 = hierarchy.v1.iter().any(|name| name == controller.name());
            let disabled = !hierarchy.controllers.iter().any(|name| name == controller.name());
            match (on_v1, &hierarchy.v2) {
                (true, _) => finding.remedy(UNIFY),
                (false, None) => finding.remedy(MOUNT),
                (false, Some(_)) if delegation.remedy.is_some() => {
                    Finding { remedy: delegation.remedy.clone(), ..finding }
                }
                (false, Some(_)) if disabled => finding.remedy(format!(
                    "boot without cgroup_disable={}; in a container: have the engine delegate it",
                    controller.name()
                )),
                (false, Some(_)) => finding.remedy(delegate(hierarchy)),
            }
        }
    }
}

/// Connects to the manager that could make cgroups: the system's for root, the user's own otherwise.
fn systemd() -> Finding {
    let uid = geteuid();
    let paths = if uid.is_root() {
        vec![PathBuf::from("/run/systemd/private")]
    } else {
        let runtime =
            std::env::var_os("XDG_RUNTIME_DIR").map_or_else(|| format!("/run/user/{uid}").into(), PathBuf::from);
        let bus = std::env::var("DBUS_SESSION_BUS_ADDRESS").unwrap_or_default();
        let bus = bus.strip_prefix("unix:path=").and_then(|path| path.split([',', ';']).next()).map(PathBuf::from);
        [runtime.join("systemd/private"), runtime.join("bus")].into_iter().chain(bus).collect()
    };
    let mut seen = String::new();
    for path in &paths {
        match answers(path) {
            Ok(()) => return SYSTEMD.ok(format!("{} takes connections", path.display())),
            Err(Errno::ENOENT) => {}
            Err(errno) => seen = format!("{}: {}", path.display(), words(errno)),
        }
    }
    let finding = SYSTEMD.missing(if seen.is_empty() { format!("{} is not there", paths[0].display()) } else { seen });
    if uid.is_root() {
        finding
    } else {
        finding.remedy(format!("loginctl enable-linger {uid}  # on a host with systemd"))
    }
}

fn answers(path: &Path) -> Result<(), Errno> {
    // A full backlog would block.
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    let address = UnixAddr::new(path.as_os_str().as_bytes())?;
    connect(std::os::fd::AsRawFd::as_raw_fd(&socket), &address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memberships_of_a_hybrid_host() {
        let (own, v1) = memberships("9:name=systemd:/\n8:pids:/\n3:cpu,cpuacct:/a\n0::/user.slice/x:y\n");
        assert_eq!(own.as_deref(), Some("/user.slice/x:y"));
        assert_eq!(v1, ["pids", "cpu", "cpuacct"]);
        assert_eq!(memberships("0::/\n"), (Some("/".into()), vec![]));
        assert_eq!(memberships(""), (None, vec![]));
    }

    #[test]
    fn mounts_are_known_by_their_type_and_paths_found_below_them() {
        let text = b"36 25 0:30 /a /sys/fs/cgroup/unified rw shared:9 - cgroup2 cgroup2 rw\n\
                    37 25 0:31 / /sys/fs/cgroup/pids rw - cgroup cgroup2 rw,pids\n\
                    38 25 0:32 / /mnt rw - tmpfs cgroup2 rw\n";
        let mounts = v2_mounts(text);
        assert_eq!(mounts, [V2Mount { at: "/sys/fs/cgroup/unified".into(), root: "/a".into() }]);
        assert_eq!(mounts[0].below("/a/b"), Path::new("/sys/fs/cgroup/unified/b"));
        assert_eq!(mounts[0].below("/a"), Path::new("/sys/fs/cgroup/unified"));
        let whole = V2Mount { at: ROOT.into(), root: "/".into() };
        assert_eq!(whole.below("/"), Path::new(ROOT));
        assert_eq!(whole.below("/user.slice/x"), Path::new("/sys/fs/cgroup/user.slice/x"));
    }
}
