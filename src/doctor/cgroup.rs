//! Cgroups: the version, this process's cgroup, and whether limits can be enforced there.

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
use super::{Finding, Group, Probe, State, Subject, kernel_text};

const fn subject(name: &'static str, title: &'static str, without: &'static str) -> Subject {
    // A default run does not require limits.
    Subject { name, group: Group::Budgets, title, required: false, without }
}

const VERSION: Subject = subject("cgroup", "cgroup v2", "no limits can be enforced: see below");
const DELEGATION: Subject = subject("cgroup_delegation", "a cgroup for runs", "no limits can be enforced: see below");
const SYSTEMD: Subject = subject("systemd", "systemd manager", "systemd cannot be asked for a cgroup");
const BUDGETS: [(Facility, Subject); 3] = [
    (Facility::Memory, subject("budget_memory", "memory budget", "runs with a memory budget are refused")),
    (Facility::Cpu, subject("budget_cpu", "CPU budget", "runs with a CPU budget are refused")),
    (Facility::Pids, subject("budget_pids", "process budget", "runs with a limit on processes are refused")),
];

const ROOT: &str = "/sys/fs/cgroup";

pub(super) fn examine(probe: &Probe) -> Vec<Finding> {
    let hierarchy = Hierarchy::read();
    let systemd = systemd();
    let delegation = match &hierarchy.place {
        Some(own) => delegation(own, &hierarchy, probe, systemd.state == State::Ok),
        None if hierarchy.v2.is_some() => {
            DELEGATION.missing("this process's cgroup is not visible in the mounted tree")
        }
        None => DELEGATION.missing("cgroup v2 is not mounted"),
    };
    let mut findings = vec![version(&hierarchy), delegation, systemd];
    for (controller, subject) in &BUDGETS {
        let finding = budget(subject, *controller, &hierarchy, &findings[1]);
        findings.push(finding);
    }
    findings
}

/// The mounted hierarchies, by file system type: a tmpfs in their place would accept the same writes without effect.
#[derive(Debug)]
struct Hierarchy {
    /// Mount point of cgroup v2.
    v2: Option<PathBuf>,
    /// Controllers that a v1 hierarchy uses, which are therefore missing in v2.
    v1: Vec<String>,
    /// The parent of the cgroups of this caller's runs: for root the mount point, otherwise the caller's cgroup.
    place: Option<PathBuf>,
    /// Controllers that are available in `place`.
    controllers: Vec<String>,
}

impl Hierarchy {
    fn read() -> Self {
        let mounts = v2_mounts(&std::fs::read(mountinfo::OWN).unwrap_or_default());
        // The usual mount point, in case mountinfo cannot be read.
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
    /// The cgroup that is mounted; not `/` in a container without a cgroup namespace, which sees only its own cgroup.
    root: String,
}

impl V2Mount {
    /// The directory of the cgroup with this path, which is absolute within the hierarchy.
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

/// This process's path in v2, and the controllers of v1 hierarchies, `cgroups(7)`.
fn memberships(proc_cgroup: &str) -> (Option<String>, Vec<String>) {
    let (mut own, mut v1) = (None, Vec::new());
    for line in proc_cgroup.lines() {
        let mut fields = line.splitn(3, ':'); // the path may contain colons
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
                "limits of controllers on v1 are enforced only for root, and only if a run asks for them (--require-budget for the default ones)",
            )
            .remedy(UNIFY),
        (None, []) => VERSION.missing(format!("not mounted: {ROOT} is not a cgroup file system")).remedy(MOUNT),
        (None, v1) => VERSION.missing(format!("only v1, with {}", list(v1))).remedy(UNIFY),
    }
}

const UNIFY: &str = "add systemd.unified_cgroup_hierarchy=1 cgroup_no_v1=all to the kernel's command line and reboot";
const MOUNT: &str =
    "mount -t cgroup2 cgroup2 /sys/fs/cgroup  # as root; in a container: start it with --cgroupns private";

/// Creates a child cgroup, starts a process in it, and removes it.
fn delegation(own: &Path, hierarchy: &Hierarchy, probe: &Probe, systemd: bool) -> Finding {
    let shown = own.display();
    // The time makes the name unique: processes of other pid namespaces may have the same pid.
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos());
    let child = own.join(format!("stockade-doctor-{}-{now:x}", getpid()));
    if let Err(error) = std::fs::create_dir(&child) {
        let errno = error.raw_os_error().map_or(Errno::EIO, Errno::from_raw);
        let finding = DELEGATION.missing(format!("mkdir in {shown}: {}", words(errno)));
        return match (errno, delegated_start(probe, systemd)) {
            (Errno::EROFS, _) => {
                finding.remedy("mount -o remount,rw /sys/fs/cgroup  # as root of the enclosing container")
            }
            (_, Some(command)) => finding.remedy(command),
            (_, None) => finding.remedy(delegate(hierarchy)),
        };
    }
    let made = TestCgroup(child);
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let tried = open(&made.0, flags, Mode::empty())
        .map_err(trial::Failure::Clone)
        .and_then(|directory| trial::attempt(Setup { cgroup: Some(directory.as_fd()), ..Setup::default() }, || Ok(0)));
    let kill = made.0.join("cgroup.kill").exists();
    match tried {
        Ok(_) if kill => DELEGATION.ok(format!("created one in {shown}, started a process in it")),
        Ok(_) => DELEGATION
            .degraded(
                format!("created one in {shown}, which has no cgroup.kill"),
                "ending a run takes longer: its pid 1 is killed instead of its cgroup",
            )
            .remedy("install Linux 5.14 or later"),
        Err(failure) => probe.failed_finding(&DELEGATION, &failure, &[]),
    }
}

/// The test's cgroup, which is removed on drop.
struct TestCgroup(PathBuf);

impl Drop for TestCgroup {
    fn drop(&mut self) {
        // A process that has just ended keeps the cgroup busy for a moment.
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

/// The command by which root delegates a cgroup to this user, on hosts without systemd.
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

/// The command that starts stockade in a delegated cgroup.
fn delegated_start(probe: &Probe, systemd: bool) -> Option<&'static str> {
    match (systemd, probe.privileged) {
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
                    "boot without cgroup_disable={}; in a container: delegate it with the engine",
                    controller.name()
                )),
                (false, Some(_)) => finding.remedy(delegate(hierarchy)),
            }
        }
    }
}

/// Connects to the systemd manager that can create cgroups: the system's for root, otherwise the user's.
fn systemd() -> Finding {
    let uid = geteuid();
    let paths = if uid.is_root() {
        vec![PathBuf::from("/run/systemd/private")]
    } else {
        let runtime = std::env::var_os("XDG_RUNTIME_DIR")
            .filter(|path| !path.is_empty())
            .map_or_else(|| format!("/run/user/{uid}").into(), PathBuf::from);
        let bus = std::env::var("DBUS_SESSION_BUS_ADDRESS").unwrap_or_default();
        let bus = bus.strip_prefix("unix:path=").and_then(|path| path.split([',', ';']).next()).map(PathBuf::from);
        [runtime.join("systemd/private"), runtime.join("bus")].into_iter().chain(bus).collect()
    };
    let mut seen = String::new();
    for path in &paths {
        match answers(path) {
            Ok(()) => return SYSTEMD.ok(format!("{} accepts connections", path.display())),
            Err(Errno::ENOENT) => {}
            Err(errno) => seen = format!("{}: {}", path.display(), words(errno)),
        }
    }
    let finding =
        SYSTEMD.missing(if seen.is_empty() { format!("{} does not exist", paths[0].display()) } else { seen });
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
