//! `stockade doctor` is correct: its findings agree with independent checks of the host, and change when a facility is really
//! removed.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Instant;

use crate::common;
use crate::common::clock::{PATIENCE, eventually};
use serde_json::Value;

/// All facilities, in the order of the report: a new or removed name changes the interface.
const NAMES: [&str; 48] = [
    "kernel_version",
    "clone3",
    "pidfd",
    "openat2",
    "close_range",
    "user_namespace",
    "host_ids",
    "supplementary_groups",
    "newuidmap",
    "newgidmap",
    "subordinate_ids",
    "mount_namespace",
    "pid_namespace",
    "network_namespace",
    "ipc_namespace",
    "uts_namespace",
    "cgroup_namespace",
    "time_namespace",
    "loopback",
    "namespace_limits",
    "mount_api",
    "bind_mount",
    "proc_mount",
    "devpts",
    "mqueue",
    "sysfs",
    "overlay",
    "idmapped_cwd",
    "idmapped_tmp",
    "landlock",
    "seccomp",
    "seccomp_notify",
    "keyring",
    "no_new_privs",
    "bounding_set",
    "cgroup",
    "cgroup_delegation",
    "systemd",
    "budget_memory",
    "budget_cpu",
    "budget_pids",
    "proc",
    "devices",
    "programs",
    "core_pattern",
    "egress",
    "egress_descriptors",
    "name_servers",
];

/// A directory that every user can read, with a copy of the program, removed on drop.
struct Place(PathBuf);

impl Place {
    fn new(test: &str) -> Self {
        let path = std::env::temp_dir().join(format!("stockade-test-{test}-{}", std::process::id()));
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        let place = Self(path);
        place.copy(Path::new(env!("CARGO_BIN_EXE_stockade")), "stockade", 0o755);
        place
    }

    /// Copies in another process: a writable descriptor of ours would be inherited by children of concurrent tests, and a file
    /// that is open for writing cannot be executed.
    fn copy(&self, from: &Path, name: &str, mode: u32) {
        let copied = Command::new("cp").arg(from).arg(self.0.join(name)).status().unwrap();
        assert!(copied.success());
        fs::set_permissions(self.0.join(name), fs::Permissions::from_mode(mode)).unwrap();
    }

    fn path(&self) -> &Path {
        &self.0
    }

    fn program(&self) -> String {
        self.0.join("stockade").display().to_string()
    }

    fn script(&self, name: &str, text: &str, mode: u32) {
        let source = self.0.join(format!("{name}.source"));
        fs::write(&source, text).unwrap();
        self.copy(&source, name, mode);
    }

    /// Runs a shell command in which `$DOCTOR` is `stockade doctor --json` and `$NOBODY` changes to an unprivileged user.
    fn examine(&self, command: &str) -> Examination {
        let output = self.shell(command);
        let json = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
            panic!("{command}: {error}\n{}{}", text(&output.stdout), text(&output.stderr));
        });
        Examination { json, code: output.status.code() }
    }

    fn shell(&self, command: &str) -> Output {
        Command::new("/bin/sh")
            .args(["-c", command])
            .env("DOCTOR", format!("{} doctor --json", self.program()))
            .env("NOBODY", "setpriv --reuid 65534 --regid 65534 --clear-groups")
            .env("PLACE", &self.0)
            .current_dir("/")
            .output()
            .unwrap()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[derive(Debug)]
struct Examination {
    json: Value,
    code: Option<i32>,
}

impl Examination {
    fn finding(&self, name: &str) -> &Value {
        let findings = self.json["findings"].as_array().unwrap();
        findings.iter().find(|finding| finding["name"] == name).unwrap_or_else(|| panic!("no finding {name}"))
    }

    fn state(&self, name: &str) -> &str {
        self.finding(name)["state"].as_str().unwrap()
    }

    fn text(&self, name: &str, field: &str) -> &str {
        self.finding(name)[field].as_str().unwrap_or_default()
    }

    fn states(&self) -> BTreeMap<&str, &str> {
        NAMES.iter().map(|name| (*name, self.state(name))).collect()
    }

    #[track_caller]
    fn must_refuse(&self) {
        assert_eq!(
            (self.code, &self.json["default_run_enforceable"]),
            (Some(1), &Value::Bool(false)),
            "{:#}",
            self.json
        );
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn is_root() -> bool {
    text(&Command::new("id").arg("-u").output().unwrap().stdout).trim() == "0"
}

fn succeeds(command: &str) -> bool {
    Command::new("/bin/sh").args(["-c", command]).output().unwrap().status.success()
}

macro_rules! skip_unless {
    ($condition:expr, $reason:expr) => {
        if !$condition {
            return common::skip($reason);
        }
    };
}

/// The callers to test: the test's own user and, if that is root, an unprivileged one.
fn callers() -> &'static [&'static str] {
    if is_root() { &["", "$NOBODY"] } else { &[""] }
}

#[test]
fn the_json_is_complete_and_the_exit_code_agrees_with_it() {
    let place = Place::new("json");
    for caller in callers() {
        let seen = place.examine(&format!("{caller} $DOCTOR"));
        assert_eq!(seen.json["schema"], "stockade/doctor/v1");
        let findings = seen.json["findings"].as_array().unwrap();
        let all: Vec<_> = findings.iter().map(|finding| finding["name"].as_str().unwrap()).collect();
        assert_eq!(all, NAMES);
        let mut refused = false;
        for finding in findings {
            let state = finding["state"].as_str().unwrap();
            assert!(["ok", "degraded", "missing", "unknown"].contains(&state), "{finding}");
            assert!(!finding["title"].as_str().unwrap().is_empty() && !finding["detail"].as_str().unwrap().is_empty());
            if state == "ok" {
                assert!(finding["consequence"].is_null() && finding["remedy"].is_null(), "{finding}");
            }
            refused |= finding["required"].as_bool().unwrap() && ["missing", "unknown"].contains(&state);
        }
        assert_eq!(seen.json["default_run_enforceable"], !refused);
        assert_eq!(seen.code, Some(refused.into()));
    }
}

#[test]
fn the_table_shows_every_finding_and_fits_a_terminal() {
    let place = Place::new("table");
    let seen = place.examine("$DOCTOR");
    let table = text(&place.shell("$PLACE/stockade doctor").stdout);
    for finding in seen.json["findings"].as_array().unwrap() {
        assert!(table.contains(finding["title"].as_str().unwrap()), "{finding} is not in\n{table}");
    }
    assert!(table.lines().all(|line| line.chars().count() <= 100), "{table}");
    assert!(!table.contains('\x1b'), "colour without a terminal");
    let verdict = if seen.code == Some(0) { "can be fully enforced" } else { "can NOT be fully enforced" };
    assert!(table.lines().last().unwrap().contains(verdict) || table.contains(verdict), "{table}");
}

/// unshare(1) creates the same namespaces with other code.
#[test]
fn namespaces_agree_with_unshare() {
    let place = Place::new("unshare");
    skip_unless!(succeeds("unshare --version"), "no unshare(1)");
    for caller in callers() {
        let seen = place.examine(&format!("{caller} $DOCTOR"));
        for (name, options) in [
            ("user_namespace", "-Ur"),
            ("mount_namespace", "-Urm"),
            ("pid_namespace", "-Urpf"),
            ("network_namespace", "-Urn"),
            ("ipc_namespace", "-Uri"),
            ("uts_namespace", "-Uru"),
            ("cgroup_namespace", "-UrC"),
            ("time_namespace", "-UrT"),
            ("proc_mount", "-Urmpf --mount-proc"),
        ] {
            let other = place.shell(&format!("{caller} unshare {options} true")).status.success();
            assert_eq!(seen.state(name) == "ok", other, "{name} as {caller:?}: {}", seen.finding(name));
        }
    }
}

#[test]
fn the_cgroup_version_agrees_with_stat() {
    let place = Place::new("stat");
    let seen = place.examine("$DOCTOR");
    let magic = text(&place.shell("stat -f -c %t /sys/fs/cgroup").stdout);
    let named_v1 = fs::read_to_string("/proc/self/cgroup")
        .unwrap()
        .lines()
        .any(|line| !line.starts_with("0::") && !line.contains(":name="));
    let pure = magic.trim() == "63677270" && !named_v1;
    assert_eq!(seen.state("cgroup") == "ok", pure, "{}", seen.finding("cgroup"));
    if !pure {
        assert_ne!(seen.text("cgroup", "remedy"), "");
    }
}

#[test]
fn the_landlock_abi_agrees_with_the_system_call() {
    let place = Place::new("landlock");
    const ASK: &str = "import ctypes; print(ctypes.CDLL(None).syscall(444, None, 0, 1))";
    let asked = Command::new("/usr/bin/python3").args(["-c", ASK]).output();
    skip_unless!(asked.as_ref().is_ok_and(|output| output.status.success()), "no python3 with ctypes");
    let abi = text(&asked.unwrap().stdout).trim().to_owned();
    let seen = place.examine("$DOCTOR");
    match abi.as_str() {
        "-1" => assert_eq!(seen.state("landlock"), "missing"),
        abi => {
            assert!(seen.text("landlock", "detail").contains(&format!("ABI {abi}")), "{}", seen.finding("landlock"));
            assert_eq!(seen.state("landlock") == "ok", abi.parse::<u32>().unwrap() >= 10);
        }
    }
}

#[test]
fn no_user_namespaces_is_seen_and_named() {
    let place = Place::new("userns");
    skip_unless!(succeeds("unshare -Ur true"), "user namespaces cannot be made here");
    let limit = "echo 0 >/proc/sys/user/max_user_namespaces; exec $DOCTOR";
    for caller in callers() {
        let seen = place.examine(&format!("{caller} unshare -Ur sh -c '{limit}'"));
        seen.must_refuse();
        assert_eq!(seen.state("user_namespace"), "missing");
        assert!(seen.text("user_namespace", "detail").contains("user.max_user_namespaces is 0"), "{:#}", seen.json);
        assert!(seen.text("user_namespace", "remedy").contains("sysctl -w user.max_user_namespaces="));
        for name in ["mount_namespace", "network_namespace", "mount_api", "proc_mount", "keyring"] {
            assert_eq!(seen.state(name), "unknown", "{}", seen.finding(name));
        }
    }
}

/// Root in a user namespace with only its own id has no other id to give to a run.
#[test]
fn a_root_without_spare_ids_is_reported() {
    let place = Place::new("ids");
    skip_unless!(succeeds("unshare -Ur true"), "user namespaces cannot be made here");
    let seen = place.examine("unshare -Ur $DOCTOR");
    seen.must_refuse();
    assert_eq!(seen.state("host_ids"), "missing");
    assert_ne!(seen.text("host_ids", "remedy"), "");
    assert_eq!(seen.state("user_namespace"), "ok", "{}", seen.finding("user_namespace"));
}

#[test]
fn a_root_without_capabilities_is_reported_with_the_missing_ones() {
    let place = Place::new("setfcap");
    skip_unless!(is_root(), "only root can have less than root");
    let seen = place.examine("exec setpriv --bounding-set -all --inh-caps -all $DOCTOR");
    seen.must_refuse();
    assert_eq!(seen.json["privileged"], false);
    assert!(seen.text("user_namespace", "detail").contains("CAP_SETFCAP"), "{}", seen.finding("user_namespace"));
}

#[test]
fn groups_that_cannot_be_dropped_are_listed() {
    let place = Place::new("groups");
    skip_unless!(is_root(), "joining groups takes root");
    let seen = place.examine("exec setpriv --reuid 65534 --regid 65534 --groups 4,24 $DOCTOR");
    assert_eq!(seen.state("supplementary_groups"), "degraded");
    assert!(seen.text("supplementary_groups", "detail").contains("4, 24"), "{}", seen.finding("supplementary_groups"));
    assert_eq!(place.examine("exec $NOBODY $DOCTOR").state("supplementary_groups"), "ok");
}

#[test]
fn a_covered_proc_is_seen() {
    let place = Place::new("proc");
    skip_unless!(is_root(), "covering parts of /proc takes root");
    for caller in callers() {
        let before = place.examine(&format!("{caller} $DOCTOR"));
        skip_unless!(before.state("proc_mount") == "ok", "no fresh /proc can be mounted here");
        // Masked as by container engines: the kernel then refuses an unmasked procfs.
        let seen = place.examine(&format!("unshare -m sh -c 'mount -t tmpfs tmpfs /proc/bus; exec {caller} $DOCTOR'"));
        seen.must_refuse();
        assert_eq!(seen.state("proc_mount"), "missing", "{}", seen.finding("proc_mount"));
        assert_ne!(seen.text("proc_mount", "remedy"), "");
        assert_eq!(seen.state("mount_api"), "ok", "no other finding changes");

        let seen = place.examine(&format!("unshare -m sh -c 'mount -t tmpfs tmpfs /proc; exec {caller} $DOCTOR'"));
        seen.must_refuse();
        assert_eq!(seen.text("proc", "detail"), "is not a procfs");
        assert!(seen.text("proc", "remedy").starts_with("mount -t proc"));
    }
}

#[test]
fn wrong_devices_are_seen() {
    let place = Place::new("devices");
    skip_unless!(is_root(), "covering /dev/full takes root");
    let seen = place.examine("unshare -m sh -c 'mount --bind /dev/null /dev/full; exec $DOCTOR'");
    seen.must_refuse();
    assert!(seen.text("devices", "detail").contains("/dev/full"));
    assert!(seen.text("devices", "remedy").contains("mknod -m 666 /dev/full c 1 7"));
}

#[test]
fn a_chroot_is_named_as_the_cause() {
    let place = Place::new("chroot");
    skip_unless!(is_root(), "chroot takes root");
    // This works because the program is static.
    let seen = place.examine(
        "unshare -m sh -c 'mkdir $PLACE/proc; mount -t proc proc $PLACE/proc; exec chroot $PLACE /stockade doctor --json'",
    );
    seen.must_refuse();
    assert!(seen.text("user_namespace", "detail").contains("chroot"), "{}", seen.finding("user_namespace"));
    assert_eq!(seen.state("devices"), "missing");
    assert_eq!(seen.state("programs"), "missing");
}

/// Installs a filter as container engines do, then executes the program: `FILTER call=errno… -- program…`, all numbers.
const FILTER: &str = r#"
import ctypes, os, struct, sys
end = sys.argv.index("--")
steps = [struct.pack("HBBI", 0x20, 0, 0, 0)]
for rule in sys.argv[1:end]:
    call, errno = map(int, rule.split("="))
    steps += [struct.pack("HBBI", 0x15, 0, 1, call), struct.pack("HBBI", 6, 0, 0, 0x50000 | errno)]
steps.append(struct.pack("HBBI", 6, 0, 0, 0x7FFF0000))
program = ctypes.create_string_buffer(b"".join(steps))
fprog = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(steps), ctypes.addressof(program)))
libc = ctypes.CDLL(None)
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, fprog) == 0
os.execv(sys.argv[end + 1], sys.argv[end + 1:])
"#;

#[test]
#[cfg(target_arch = "x86_64")]
fn a_filter_of_an_enclosing_container_is_named_as_the_cause() {
    let place = Place::new("filter");
    skip_unless!(succeeds("/usr/bin/python3 -c 'import ctypes'"), "no python3 with ctypes");
    place.script("filter.py", FILTER, 0o644);
    for caller in callers() {
        let filtered =
            |rules| place.examine(&format!("exec {caller} /usr/bin/python3 $PLACE/filter.py {rules} -- $DOCTOR"));
        let seen = filtered("1000=1");
        assert_eq!(seen.code, place.examine(&format!("{caller} $DOCTOR")).code, "a filter that denies nothing");
        // Docker's profile makes clone3 fail with ENOSYS, as on an old kernel.
        let seen = filtered("435=38");
        assert_eq!(seen.state("clone3"), "degraded");
        assert!(seen.text("clone3", "detail").contains("system call filter"), "{}", seen.finding("clone3"));
        assert_eq!(seen.state("user_namespace"), "ok", "clone(2) stands in for it");
        assert_eq!(seen.code, place.examine(&format!("{caller} $DOCTOR")).code);
        // And docker's makes clone(2) with namespaces fail, here clone(2) at all.
        let seen = filtered("435=38 56=1");
        seen.must_refuse();
        assert_eq!(seen.state("openat2"), "ok");
        // keyctl, fsopen and pivot_root with EPERM, one by one.
        for (rule, name) in
            [("250=1", "keyring"), ("430=1", "mount_api"), ("155=1", "mount_api"), ("444=1", "landlock")]
        {
            let seen = filtered(rule);
            seen.must_refuse();
            assert_eq!(seen.state(name), "missing", "{rule}: {}", seen.finding(name));
            assert!(seen.text(name, "detail").contains("system call filter of this process"), "{}", seen.finding(name));
            assert_eq!(seen.state("user_namespace"), "ok", "{rule}");
        }
        // Each system call of the first group.
        for (rule, name) in [("424=38", "pidfd"), ("437=38", "openat2"), ("436=38", "close_range")] {
            let seen = filtered(rule);
            seen.must_refuse();
            assert_eq!(seen.state(name), "missing", "{rule}: {}", seen.finding(name));
        }
    }
}

#[test]
fn a_missing_newuidmap_is_reported_and_not_required() {
    let place = Place::new("path");
    let before = place.examine("$DOCTOR");
    let seen = place.examine("PATH=/nowhere $DOCTOR");
    assert_eq!((seen.state("newuidmap"), seen.state("newgidmap")), ("missing", "missing"));
    assert!(seen.text("newuidmap", "remedy").contains("apt install uidmap"));
    assert_eq!(seen.code, before.code);
}

/// A subordinate range for the user nobody, in a private mount namespace.
const WITH_RANGES: &str = "printf \"65534:300000:65536\\n\" >$PLACE/ids; \
     mount --bind $PLACE/ids /etc/subuid && mount --bind $PLACE/ids /etc/subgid";

#[test]
fn subordinate_ranges_are_mapped_for_real() {
    let place = Place::new("ranges");
    skip_unless!(is_root(), "covering /etc/subuid takes root");
    skip_unless!(succeeds("command -v newuidmap && test -e /etc/subuid && test -e /etc/subgid"), "no newuidmap here");
    let seen = place.examine(&format!("unshare -m sh -c '{WITH_RANGES}; exec $NOBODY $DOCTOR'"));
    assert_eq!(seen.state("subordinate_ids"), "ok", "{}", seen.finding("subordinate_ids"));
    assert!(seen.text("subordinate_ids", "detail").contains("65536 user ids from 300000"));
    // no_new_privs disables newuidmap's privilege.
    let seen = place.examine(&format!("unshare -m sh -c '{WITH_RANGES}; exec $NOBODY --no-new-privs $DOCTOR'"));
    assert_eq!(seen.state("no_new_privs"), "degraded");
    assert_eq!(seen.state("subordinate_ids"), "missing", "{}", seen.finding("subordinate_ids"));
}

#[test]
fn a_helper_without_privilege_or_that_hangs_does_no_harm() {
    let place = Place::new("hang");
    skip_unless!(is_root(), "covering /etc/subuid takes root");
    skip_unless!(succeeds("test -e /etc/subuid && test -e /etc/subgid"), "no /etc/subuid here");
    let run = format!("unshare -m sh -c '{WITH_RANGES}; PATH=$PLACE:$PATH; exec $NOBODY $DOCTOR'");
    for name in ["newuidmap", "newgidmap"] {
        place.script(name, "#!/bin/sh\nexec sleep 1000\n", 0o755);
    }
    let seen = place.examine(&run);
    assert!(seen.text("newuidmap", "remedy").starts_with("setcap cap_setuid=ep"), "{}", seen.finding("newuidmap"));
    for name in ["newuidmap", "newgidmap"] {
        place.script(name, "#!/bin/sh\nexec sleep 1000\n", 0o4755);
    }
    let started = Instant::now();
    let seen = place.examine(&run);
    assert!(started.elapsed() < PATIENCE);
    assert!(seen.text("subordinate_ids", "detail").contains("no answer"), "{}", seen.finding("subordinate_ids"));
}

/// The trap of hybrid hosts: a tmpfs accepts every mkdir and every write.
#[test]
fn a_tmpfs_is_not_taken_for_a_cgroup() {
    let place = Place::new("tmpfs");
    skip_unless!(is_root(), "covering /sys/fs/cgroup takes root");
    let left = place.path().join("left");
    let seen = place.examine(
        "unshare -m sh -c 'mount -t tmpfs tmpfs /sys/fs/cgroup; echo memory >/sys/fs/cgroup/cgroup.controllers; \
         : >/sys/fs/cgroup/cgroup.subtree_control; $DOCTOR; code=$?; ls -A /sys/fs/cgroup >$PLACE/left; exit $code'",
    );
    assert_eq!(seen.state("cgroup"), "missing", "{}", seen.finding("cgroup"));
    for name in ["cgroup_delegation", "budget_memory", "budget_cpu", "budget_pids"] {
        assert_eq!(seen.state(name), "missing", "{}", seen.finding(name));
        assert_eq!(seen.finding(name)["required"], false);
    }
    assert_eq!(fs::read_to_string(left).unwrap(), "cgroup.controllers\ncgroup.subtree_control\n");
}

/// Delegates a cgroup to the user nobody with the command that the doctor prints.
#[test]
fn the_named_command_delegates_a_cgroup() {
    let place = Place::new("delegate");
    let v2 = fs::read_to_string("/sys/fs/cgroup/cgroup.controllers").unwrap_or_default();
    skip_unless!(is_root() && v2.contains("memory"), "takes root and a cgroup v2 with controllers");
    skip_unless!(!Path::new("/sys/fs/cgroup/user-65534").exists(), "the cgroup /sys/fs/cgroup/user-65534 is in use");
    skip_unless!(!Path::new("/run/systemd/system").exists(), "systemd manages the cgroups here");
    let before = place.examine("$NOBODY $DOCTOR");
    assert_eq!(before.state("cgroup_delegation"), "missing");
    let remedy = before.text("cgroup_delegation", "remedy").replace("PID", "$$");
    let (command, _who) = remedy.split_once("  # ").unwrap();
    let seen = place.examine(&format!("{command}; exec $NOBODY $DOCTOR"));
    let removed = fs::remove_dir("/sys/fs/cgroup/user-65534");
    assert_eq!(seen.state("cgroup_delegation"), "ok", "{command}: {}", seen.finding("cgroup_delegation"));
    removed.expect("the doctor left nothing in the cgroup");
}

/// A run confirms every finding.
#[test]
fn runs_agree() {
    let place = Place::new("runs");
    for caller in callers() {
        let seen = place.examine(&format!("{caller} $DOCTOR"));
        let runs = |options: &str| place.shell(&format!("{caller} $PLACE/stockade run {options} -- /bin/true"));
        let default = runs("");
        assert_eq!(default.status.success(), seen.code == Some(0), "{}\n{:#}", text(&default.stderr), seen.json);
        for (name, options) in [
            ("budget_memory", "-m 64M"),
            ("budget_cpu", "--cpus 0.5"),
            ("budget_pids", "--pids-limit 50"),
            ("time_namespace", "--time-namespace"),
            ("sysfs", "--sysfs"),
            ("subordinate_ids", "--subuid"),
            ("idmapped_tmp", "--rw $PLACE"),
        ] {
            // Only root needs an idmapped mount.
            if (name, *caller) == ("idmapped_tmp", "$NOBODY") || (name == "idmapped_tmp" && !is_root()) {
                continue;
            }
            let run = runs(options);
            let (works, said) = (run.status.success(), text(&run.stderr));
            assert_eq!(works, seen.state(name) == "ok", "{options} as {caller:?}: {said}\n{}", seen.finding(name));
        }
    }
}

/// Every finding that makes the doctor report a default run as impossible makes the run fail.
#[test]
#[cfg(target_arch = "x86_64")]
fn every_facility_that_the_doctor_requires_is_required() {
    let place = Place::new("required");
    skip_unless!(succeeds("/usr/bin/python3 -c 'import ctypes'"), "no python3 with ctypes");
    place.script("filter.py", FILTER, 0o644);
    // keyctl, fsopen, move_mount, mount_setattr, pivot_root, openat2, close_range, sethostname,
    // landlock_create_ruleset, seccomp.
    for rule in ["250=1", "430=1", "429=1", "442=1", "155=1", "437=38", "436=38", "170=1", "444=38", "317=38"] {
        let filtered = format!("exec /usr/bin/python3 $PLACE/filter.py {rule} -- ");
        place.examine(&format!("{filtered} $DOCTOR")).must_refuse();
        let run = place.shell(&format!("{filtered} $PLACE/stockade run -- /bin/true"));
        assert!(!run.status.success(), "{rule}: {}", text(&run.stderr));
    }
    // clone(2) stands in for clone3, also for a run in a cgroup.
    let run = place.shell("exec /usr/bin/python3 $PLACE/filter.py 435=38 -- $PLACE/stockade run -- /bin/true");
    assert!(run.status.success(), "{}", text(&run.stderr));
}

/// Only in a virtual machine: the setting is global.
#[test]
fn debians_switch_is_named() {
    let place = Place::new("debian");
    const SWITCH: &str = "/proc/sys/kernel/unprivileged_userns_clone";
    let guest = fs::read_to_string("/proc/cpuinfo").is_ok_and(|text| text.contains("User Mode Linux"));
    skip_unless!(guest && is_root() && Path::new(SWITCH).exists(), "takes a guest whose kernel has the switch");
    fs::write(SWITCH, "0").unwrap();
    let (root, nobody) = (place.examine("$DOCTOR"), place.examine("$NOBODY $DOCTOR"));
    fs::write(SWITCH, "1").unwrap();
    nobody.must_refuse();
    assert!(nobody.text("user_namespace", "remedy").contains("kernel.unprivileged_userns_clone=1"));
    assert_eq!(root.state("user_namespace"), "ok", "it is not for root");
}

/// Only in a virtual machine: the setting is global.
#[test]
fn a_helper_of_core_pattern_is_named() {
    let place = Place::new("core");
    const PATTERN: &str = "/proc/sys/kernel/core_pattern";
    let guest = fs::read_to_string("/proc/cpuinfo").is_ok_and(|text| text.contains("User Mode Linux"));
    skip_unless!(guest && is_root(), "setting core_pattern takes a guest");
    let before = fs::read_to_string(PATTERN).unwrap();
    assert_eq!(place.examine("$NOBODY $DOCTOR").state("core_pattern"), "ok");
    let examined = |pattern: &str, before: &str| {
        fs::write(PATTERN, pattern).unwrap();
        let seen = place.examine(&format!("exec {before} $NOBODY $DOCTOR"));
        (seen.state("core_pattern").to_owned(), seen.text("core_pattern", "consequence").to_owned())
    };
    let helper = examined("|/bin/helper %p", "");
    let (lowered, socket) = (examined("|/bin/helper %p", "prlimit --core=0:0"), examined("@/run/core", ""));
    fs::write(PATTERN, before).unwrap();
    for ((state, consequence), says) in
        [(helper, "do not start it"), (lowered, "every crash in a sandbox starts it"), (socket, "no limit prevents")]
    {
        assert!(state == "degraded" && consequence.contains(says), "{state}: {consequence}");
    }
}

#[test]
fn what_network_access_by_name_needs_is_tried() {
    let place = Place::new("egress");
    skip_unless!(is_root(), "only root mounts over resolv.conf");
    let examined = |servers: &str, before: &str| {
        fs::write(place.path().join("servers"), servers).unwrap();
        let mount = "mount --bind $PLACE/servers /etc/resolv.conf";
        place
            .examine(&format!("unshare -mn --propagation private sh -c 'ip link set lo up; {mount}; {before} $DOCTOR'"))
    };
    let seen = examined("nameserver 127.0.0.1\n", "");
    assert_eq!((seen.state("egress"), seen.state("name_servers")), ("ok", "ok"), "{:#}", seen.json);
    assert_eq!(examined("# none\n", "").state("name_servers"), "missing");
    let unrouted = examined("nameserver 192.0.2.1\n", "");
    assert!(unrouted.text("name_servers", "detail").contains("no route leads to 192.0.2.1:53"), "{:#}", unrouted.json);
    assert_eq!(examined("nameserver 127.0.0.1\nnameserver 192.0.2.1\n", "").state("name_servers"), "degraded");
    assert_eq!(examined("", "prlimit --nofile=500:500").state("egress_descriptors"), "degraded");
}

#[test]
fn odd_surroundings_change_nothing() {
    let place = Place::new("odd");
    for caller in callers() {
        let before = place.examine(&format!("{caller} $DOCTOR"));
        for odd in [
            format!("trap '' CHLD; exec {caller} $DOCTOR"),
            format!("exec {caller} env -i $DOCTOR"),
            format!("umask 777; exec {caller} $DOCTOR"),
            format!("exec {caller} $DOCTOR <&- 2>&-"),
        ] {
            let mut seen = place.examine(&odd);
            if odd.contains("env -i") {
                // The helpers are looked up in PATH.
                for name in ["newuidmap", "newgidmap"] {
                    let finding = before.finding(name).clone();
                    let findings = seen.json["findings"].as_array_mut().unwrap();
                    *findings.iter_mut().find(|finding| finding["name"] == name).unwrap() = finding;
                }
            }
            assert_eq!(seen.states(), before.states(), "{odd}");
        }
    }
}

#[test]
fn a_limit_on_processes_gives_a_finding_and_not_a_hang() {
    let place = Place::new("nproc");
    skip_unless!(is_root(), "a limit of one process takes another user");
    let started = Instant::now();
    let seen = place.examine("exec setpriv --reuid 65533 --regid 65533 --clear-groups prlimit --nproc=1:1 $DOCTOR");
    assert!(started.elapsed() < PATIENCE);
    seen.must_refuse();
    assert!(seen.text("clone3", "detail").contains("EAGAIN"), "{}", seen.finding("clone3"));
}

#[test]
fn nothing_is_left_behind() {
    let place = Place::new("left");
    let look = "wc -l </proc/self/mountinfo; ls -A $PLACE; cat /proc/sys/user/max_user_namespaces; hostname";
    // In a private pid namespace, so that only the doctor's processes are counted.
    let alone = if is_root() { "unshare -mpf --mount-proc" } else { "unshare -Urmpf --mount-proc" };
    skip_unless!(succeeds(&format!("{alone} true")), "no pid namespace can be made here");
    for caller in callers() {
        let before = text(&place.shell(look).stdout);
        place.examine(&format!("{caller} $DOCTOR"));
        assert_eq!(text(&place.shell(look).stdout), before);
        let processes = place
            .shell(&format!("{alone} sh -c '{caller} $DOCTOR >/dev/null; for p in /proc/[0-9]*; do echo $p; done'"));
        assert_eq!(text(&processes.stdout), "/proc/1\n", "the shell alone");
    }
    // Concurrent tests create such cgroups too: wait for a moment without any.
    let cgroups = || text(&place.shell("find /sys/fs/cgroup -name 'stockade-doctor-*' 2>/dev/null").stdout);
    assert!(eventually(|| cgroups().is_empty()), "left behind: {}", cgroups());
}
