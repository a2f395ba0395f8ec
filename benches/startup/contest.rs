//! The contestants: the commands that each runs, and the confinement that each claims.

use std::path::{Path, PathBuf};

use super::bundle::{Work, is_root};
use super::programs::STOCKADE;

/// A command. `{}` stands for the container's number.
pub type Words = Vec<String>;

/// A contestant.
pub struct Contestant {
    /// Its name in the tables.
    pub name: &'static str,
    /// The commands that make up a start, in order. `{}` is a new number for each start.
    pub steps: Vec<Words>,
    /// The same start with a program that prints its confinement. `None` if another row has the same check.
    pub probe: Option<Words>,
    /// The same start with a program that keeps running.
    pub idle: Option<Words>,
    /// Programs to evict from the page cache before a cold start.
    pub files: Vec<PathBuf>,
    /// The claimed confinement.
    pub claim: Claim,
    /// Whether it is so slow that it gets fewer rounds.
    pub engine: bool,
    /// Why it is left out, if it is.
    pub missing: Option<String>,
}

/// A claimed confinement.
#[derive(Clone, Copy, Default)]
pub struct Claim {
    /// Namespaces, by their names in `/proc/self/ns`, that must differ from the host's.
    pub namespaces: &'static [&'static str],
    /// A seccomp filter.
    pub filter: bool,
    /// `no_new_privs`.
    pub no_new_privs: bool,
    /// An empty effective capability set.
    pub no_capabilities: bool,
    /// A read-only root.
    pub read_only_root: bool,
}

const ALL: &[&str] = &["user", "mnt", "pid", "net", "ipc", "uts", "cgroup"];
const HOST_NETWORK: &[&str] = &["user", "mnt", "pid", "ipc", "uts", "cgroup"];
const SANDBOX: Claim =
    Claim { namespaces: ALL, filter: true, no_new_privs: true, no_capabilities: true, read_only_root: true };

/// The script that prints the confinement.
pub const PROBE: &str = "cat /proc/self/status /proc/self/mountinfo; \
    for n in user mnt pid net ipc uts cgroup; do echo \"ns $(readlink /proc/self/ns/$n)\"; done";

/// The program that keeps running, and the argument by which it is recognised.
pub const IDLE: [&str; 2] = ["sleep", "61.07"];

impl Contestant {
    /// A contestant without commands.
    pub fn new(name: &'static str, program: &str) -> Self {
        Self {
            name,
            steps: Vec::new(),
            probe: None,
            idle: None,
            files: vec![program.into()],
            claim: Claim::default(),
            engine: false,
            missing: None,
        }
    }

    /// A single command before a busybox program.
    fn before(name: &'static str, prefix: &[&str], busybox: &str, claim: Claim) -> Self {
        let with = |words: &[&str]| prefix.iter().chain(words).map(|word| word.to_string()).collect::<Words>();
        let program = prefix.first().copied().unwrap_or(busybox);
        Self {
            steps: vec![with(&[busybox, "true"])],
            probe: Some(with(&[busybox, "sh", "-c", PROBE])),
            idle: Some(with(&[busybox, IDLE[0], IDLE[1]])),
            claim,
            missing: (!Path::new(program).exists()).then(|| "not installed".to_owned()),
            ..Self::new(name, program)
        }
    }

    /// A contestant that is left out, with the reason.
    pub fn without(name: &'static str, why: impl Into<String>) -> Self {
        Self { missing: Some(why.into()), ..Self::new(name, "") }
    }

    /// A contestant that is an engine.
    pub fn engine(name: &'static str, prefix: &[&str], image: &[&str], claim: Claim) -> Self {
        let prefix: Vec<&str> = prefix.iter().chain(image).copied().collect();
        Self { engine: true, ..Self::before(name, &prefix, "/bin/busybox", claim) }
    }
}

/// All contestants except runtimes and engines.
pub fn all(work: &Work) -> Vec<Contestant> {
    let Some(busybox) = work.busybox.as_ref().map(|path| path.display().to_string()) else {
        return vec![Contestant::without("everything", "busybox-static is not installed")];
    };
    let floor = work.floor.as_ref().map(|path| path.display().to_string());
    let filter = work.dir.join("filter").display().to_string();
    vec![
        Contestant::before("bare exec", &[], &busybox, Claim::default()),
        match &floor {
            Some(floor) if is_root() => {
                Contestant::before("floor (C)", &[floor, &filter, "1990901509"], &busybox, SANDBOX)
            }
            Some(_) => Contestant::without("floor (C)", "requires root"),
            None => Contestant::without("floor (C)", "no C compiler, or no static C library"),
        },
        Contestant::before("stockade run", &[&STOCKADE, "run", "--"], &busybox, SANDBOX),
        Contestant::before(
            "stockade run, no budget",
            &[&STOCKADE, "run", "-m", "unlimited", "--pids-limit", "-1", "--"],
            &busybox,
            SANDBOX,
        ),
        Contestant::before(
            "stockade run, host network",
            &[&STOCKADE, "run", "--network", "host", "--"],
            &busybox,
            Claim { namespaces: HOST_NETWORK, ..SANDBOX },
        ),
        bubblewrap(work, &busybox),
        nsjail(&busybox),
    ]
}

/// Bubblewrap with the same view, but without masks on /proc, a filter, Landlock, limits and a supervisor that reports.
fn bubblewrap(work: &Work, busybox: &str) -> Contestant {
    let program = find("bwrap").unwrap_or_default();
    let mut words: Vec<String> =
        [&program, "--unshare-all", "--new-session", "--die-with-parent", "--hostname", "sandbox", "--ro-bind", "/usr"]
            .map(str::to_owned)
            .to_vec();
    let view = "/usr --cap-drop ALL --proc /proc --dev /dev --tmpfs /tmp --tmpfs /home/sandbox --tmpfs /dev/shm --clearenv \
        --setenv PATH /usr/bin:/bin --chdir /home/sandbox";
    words.extend(view.split_whitespace().map(str::to_owned));
    for path in ["/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"] {
        match std::fs::read_link(path) {
            Ok(target) => words.extend(["--symlink".into(), target.display().to_string(), path.into()]),
            Err(_) if Path::new(path).exists() => words.extend(["--ro-bind".into(), path.into(), path.into()]),
            Err(_) => {}
        }
    }
    let java = "/etc/java-17-openjdk";
    for path in ["/etc/ld.so.cache", "/etc/alternatives", "/etc/ssl/certs", "/etc/ssl/openssl.cnf", java] {
        if Path::new(path).exists() {
            words.extend(["--ro-bind".into(), path.into(), path.into()]);
        }
    }
    for name in ["passwd", "group", "hostname", "nsswitch.conf", "hosts", "resolv.conf"] {
        let file = work.file(&format!("etc/{name}"), name).display().to_string();
        words.extend(["--ro-bind".into(), file, format!("/etc/{name}")]);
    }
    words.extend(["--remount-ro", "/"].map(str::to_owned));
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let claim = Claim { filter: false, ..SANDBOX };
    Contestant::before("bwrap", &words, busybox, claim)
}

fn nsjail(busybox: &str) -> Contestant {
    let Some(program) = find("nsjail") else { return Contestant::without("nsjail", "not installed") };
    let words = [&program, "-Mo", "-Q", "-R", "/usr", "-R", "/bin", "-R", "/lib", "-R", "/lib64", "-T", "/tmp", "--"];
    let claim = Claim { namespaces: ALL, no_new_privs: true, no_capabilities: true, ..Claim::default() };
    Contestant::before("nsjail", &words, busybox, claim)
}

/// Finds a program in PATH or in the directories for administrators.
pub fn find(name: &str) -> Option<String> {
    if name.starts_with('/') {
        return Some(name.to_owned());
    }
    let path = std::env::var("PATH").unwrap_or_default();
    let places = ["/usr/bin", "/usr/sbin", "/sbin"].into_iter().chain(path.split(':'));
    places.map(|place| format!("{place}/{name}")).find(|path| Path::new(path).exists())
}
