//! The workload can neither see nor change the host: files, devices, processes, kernel settings.
//!
//! An attack that could fail for reasons of its own is first run outside, where it must succeed.

mod context;
mod crashes;
mod shares;

use std::collections::BTreeSet;
use std::fs;

use crate::common;
use crate::common::{
    Caller, Outcome, PYTHON, Run, TempDir, attack, for_each_caller, inject, is_root, outside, python_outside, skip_part,
};

const NAMESPACES: [&str; 7] = ["user", "mnt", "pid", "net", "ipc", "uts", "cgroup"];

fn own_namespace(name: &str) -> String {
    fs::read_link(format!("/proc/self/ns/{name}")).unwrap().to_string_lossy().into_owned()
}

fn namespaces_inside(caller: Caller, options: &[&str]) -> Outcome {
    Run::new(caller)
        .opts(options.iter().copied())
        .sh("for n in user mnt pid net ipc uts cgroup time; do echo $n=$(readlink /proc/self/ns/$n); done")
        .go()
        .expect(0)
}

#[test]
fn every_namespace_is_new() {
    for_each_caller(|caller| {
        let inside = namespaces_inside(caller, &[]);
        for name in NAMESPACES {
            assert_ne!(inside.value(name), own_namespace(name), "{name}");
        }
        assert_eq!(inside.value("time"), own_namespace("time"), "only on request");
    });
}

#[test]
fn the_time_namespace_is_new_on_request() {
    for_each_caller(|caller| {
        let inside = namespaces_inside(caller, &["--time-namespace"]);
        assert_ne!(inside.value("time"), own_namespace("time"));
        let uptime = Run::new(caller).opts(["--time-namespace"]).cmd(["/bin/cat", "/proc/uptime"]).go().expect(0);
        let seconds: f64 = uptime.text().split(' ').next().unwrap().parse().unwrap();
        assert!(seconds < 30.0, "the clock starts at zero: {seconds}");
    });
}

#[test]
fn only_the_network_namespace_is_shared_with_network_host() {
    for_each_caller(|caller| {
        let inside = namespaces_inside(caller, &["--network", "host"]);
        for name in NAMESPACES.into_iter().filter(|name| *name != "net") {
            assert_ne!(inside.value(name), own_namespace(name), "{name}");
        }
        assert_eq!(inside.value("net"), own_namespace("net"));
    });
}

#[test]
fn files_of_the_host_are_not_there() {
    for_each_caller(|caller| {
        let places: Vec<_> = ["/tmp", "/var/tmp", "/dev/shm"].map(|dir| TempDir::below(dir.as_ref(), caller)).into();
        let mut canaries: Vec<_> = places.iter().map(|dir| dir.file("canary", "seen")).collect();
        if is_root() {
            let run = TempDir::below("/run".as_ref(), caller);
            canaries.push(run.file("canary", "seen"));
            for canary in &canaries {
                assert_eq!(outside(caller, ["cat", common::text(canary)]), (0, "seen".into()));
            }
            drop(run);
        }
        for canary in canaries {
            let path = common::text(&canary);
            let script = format!(
                "for way in '' /proc/self/root /proc/1/root /proc/1/cwd /proc/self/cwd/../../../../.. /.. /../../..; do \
                 cat $way{path} && exit 1; done; exit 0"
            );
            Run::new(caller).sh(&script).go().expect(0);
        }
    });
}

#[test]
fn the_root_holds_what_was_planned_and_no_more() {
    for_each_caller(|caller| {
        let listing = Run::new(caller).cmd(["/bin/ls", "-A", "/"]).go().expect(0);
        let known = [
            "bin", "dev", "etc", "home", "lib", "lib32", "lib64", "libx32", "proc", "sbin", "sys", "tmp", "usr", "var",
        ];
        let strange: Vec<_> = listing.lines().into_iter().filter(|name| !known.contains(&name.as_str())).collect();
        assert!(strange.is_empty(), "{strange:?}");
        // Where the run has a cgroup, it is shown.
        let sys = Run::new(caller).sh("test -e /sys || exit 0; ls -A /sys /sys/fs").go().expect(0).text();
        assert!(["", "/sys:\nfs\n\n/sys/fs:\ncgroup\n"].contains(&sys.as_str()), "{sys}");
        let below = Run::new(caller).sh("ls -A /home /var /home/sandbox /tmp /dev/shm").go().expect(0);
        assert_eq!(below.text(), "/dev/shm:\n\n/home:\nsandbox\n\n/home/sandbox:\n\n/tmp:\n\n/var:\ntmp\n");
    });
}

#[test]
fn only_planned_mounts_are_left() {
    for_each_caller(|caller| {
        let plan = Run::new(caller).plain().opts(["plan", "--json", "--", "true"]).go().expect(0);
        let plan: serde_json::Value = serde_json::from_str(&plan.text()).unwrap();
        let paths = |list: &str, field: Option<&str>| -> Vec<String> {
            let items = plan[list].as_array().unwrap().iter();
            items.map(|item| field.map_or(item, |field| &item[field]).as_str().unwrap().to_owned()).collect()
        };
        let mut planned: BTreeSet<String> = paths("mounts", Some("destination")).into_iter().collect();
        planned.extend(paths("masked_paths", None));
        planned.extend(paths("readonly_paths", None));
        planned.insert("/".into());
        planned.insert("/dev/pts".into());
        for node in ["null", "zero", "full", "random", "urandom", "tty"] {
            planned.insert(format!("/dev/{node}"));
        }
        let inside = Run::new(caller).cmd(["/bin/cat", "/proc/self/mountinfo"]).go().expect(0);
        for line in inside.lines() {
            let fields: Vec<_> = line.split(' ').collect();
            let (point, options) = (fields[4], fields[5]);
            // Mounts below a bound directory of the host are bound with it.
            let below_usr =
                point.starts_with("/usr/") && fs::read_to_string("/proc/self/mountinfo").unwrap().contains(point);
            assert!(planned.contains(point) || below_usr, "not planned: {line}");
            assert!(options.contains("nosuid"), "every mount is nosuid: {line}");
            assert!(
                options.contains("nodev") || point.starts_with("/dev/"),
                "only device nodes may be devices: {line}"
            );
        }
        let one_root = inside.lines().iter().filter(|line| line.split(' ').nth(4) == Some("/")).count();
        assert_eq!(one_root, 1, "the old root is gone: {inside}");
    });
}

const CHANGES: &str = r#"
old = PLACE + "/old"
attempt("write", lambda: os.write(os.open(old, os.O_WRONLY), b"x"))
attempt("truncate", lambda: os.truncate(old, 0))
attempt("create", lambda: os.close(os.open(PLACE + "/new", os.O_WRONLY | os.O_CREAT | os.O_EXCL)))
attempt("mkdir", lambda: os.mkdir(PLACE + "/newdir"))
attempt("symlink", lambda: os.symlink("x", PLACE + "/newlink"))
attempt("mkfifo", lambda: os.mkfifo(PLACE + "/newfifo"))
attempt("link", lambda: os.link(old, PLACE + "/newname"))
attempt("chmod", lambda: os.chmod(old, 0o640))
attempt("chown", lambda: os.chown(old, os.getuid(), os.getgid()))
attempt("utime", lambda: os.utime(old, (1, 1)))
attempt("setxattr", lambda: os.setxattr(old, "user.stockade", b"x"))
attempt("rename", lambda: os.rename(old, PLACE + "/moved"))
attempt("unlink", lambda: os.unlink(PLACE + "/second"))
"#;

#[test]
fn a_read_only_bind_refuses_every_change() {
    for_each_caller(|caller| {
        let fresh = || {
            let dir = TempDir::new(caller);
            for name in ["old", "second"] {
                common::set_mode(&dir.file(name, "content"), 0o666);
            }
            common::set_mode(dir.path(), 0o777); // so that only the mount's flag forbids it
            dir
        };
        let program = |dir: &TempDir| attack(&format!("PLACE = {:?}\n{CHANGES}", common::text(dir.path())));
        let control = fresh();
        let (_, text) = python_outside(caller, &program(&control));
        assert_eq!(text.matches("=OK").count(), 13, "the changes work outside: {text}");

        let dir = fresh();
        let before = common::host::fingerprint(dir.path());
        let inside = Run::new(caller).opts(["--ro", common::text(dir.path())]).python(&program(&dir)).go().expect(0);
        assert_eq!(inside.text().matches("=EROFS").count(), 13, "{inside}");
        assert_eq!(common::host::fingerprint(dir.path()), before);
    });
}

#[test]
fn the_root_and_usr_refuse_every_change() {
    for_each_caller(|caller| {
        let program = r#"
for place, file in [("/", "/etc/passwd"), ("/usr", "/usr/bin/env"), ("/etc", "/etc/hosts"), ("/home", "/etc/group"), ("/dev", "/etc/hosts")]:
    attempt("create", lambda: os.open(place + "/new", os.O_WRONLY | os.O_CREAT))
    attempt("mkdir", lambda: os.mkdir(place + "/newdir"))
    attempt("chmod", lambda: os.chmod(place, 0o777))
    attempt("filemode", lambda: os.chmod(file, 0o777))
    attempt("owner", lambda: os.chown(file, os.getuid(), os.getgid()))
    attempt("times", lambda: os.utime(file, (1, 1)))
    attempt("attribute", lambda: os.setxattr(file, "user.stockade", b"x"))
"#;
        let inside = Run::new(caller).python(&attack(program)).go().expect(0);
        let lines = inside.lines();
        assert_eq!(lines.len(), 35);
        assert!(lines.iter().all(|line| line.ends_with("=EROFS")), "{inside}");
    });
}

#[test]
fn kernel_settings_cannot_be_written() {
    let program = attack(
        r#"
for path in ["/proc/sys/kernel/core_pattern", "/proc/sys/vm/overcommit_memory", "/proc/sys/fs/suid_dumpable",
             "/proc/sys/net/ipv4/ip_forward", "/proc/sys/kernel/modprobe", "/proc/sysrq-trigger", "/proc/sys/user/max_user_namespaces", "/proc/irq/default_smp_affinity"]:
    if os.path.exists(path):
        attempt(path, lambda: os.close(os.open(path, os.O_WRONLY)))
"#,
    );
    if is_root() {
        let (_, text) = python_outside(Caller::Root, &program);
        assert!(text.contains("core_pattern=OK"), "root outside can write it: {text}");
    }
    for_each_caller(|caller| {
        // With this capability only the mount protects the settings of the sandbox's own network.
        for options in [&["-u", "sandbox"][..], &["-u", "root"], &["-u", "root", "--cap-add", "NET_ADMIN"]] {
            let inside = Run::new(caller).opts(options.iter().copied()).python(&program).go().expect(0);
            assert!(inside.text().contains("/proc/sys/kernel/core_pattern="), "{inside}");
            assert!(!inside.text().contains("=OK"), "{inside}");
        }
    });
}

#[test]
fn masked_files_of_proc_are_empty() {
    for_each_caller(|caller| {
        let script = "for f in kcore keys key-users kallsyms timer_list sched_debug latency_stats kmsg interrupts; do \
                      [ -e /proc/$f ] && echo $f=$(head -c 100 /proc/$f 2>/dev/null | wc -c); done; \
                      for d in acpi scsi asound; do [ -e /proc/$d ] && echo $d=$(ls -A /proc/$d | wc -l); done; true";
        if caller == Caller::Root {
            let (_, text) = outside(caller, ["sh", "-c", script.replace("kcore", "").replace("kmsg", "").as_str()]);
            assert!(text.lines().any(|line| !line.ends_with("=0")), "the files are empty outside too: {text}");
        }
        let inside = Run::new(caller).sh(script).go().expect(0);
        assert!(!inside.lines().is_empty(), "{inside}");
        assert!(inside.lines().iter().all(|line| line.ends_with("=0")), "{inside}");
    });
}

#[test]
fn there_is_no_sysfs_unless_asked_for() {
    for_each_caller(|caller| {
        Run::new(caller).sh("test ! -e /sys/kernel && test ! -e /sys/class").go().expect(0);
        let asked = Run::new(caller)
            .opts(["--sysfs"])
            .sh("test -d /sys/class && ! ls -A /sys/kernel /sys/firmware 2>/dev/null | grep -v -e : -e '^$'; \
                 touch /sys/x 2>&1; echo 1 > /sys/class/x; true")
            .go()
            .expect(0);
        assert!(asked.stderr.contains("Read-only") || asked.text().contains("Read-only"), "{asked}");
    });
}

#[test]
fn devices_are_the_harmless_ones_with_the_right_numbers() {
    for_each_caller(|caller| {
        let listing = Run::new(caller).cmd(["/bin/ls", "-A", "/dev"]).go().expect(0);
        let expected = "fd full null ptmx pts random shm stderr stdin stdout tty urandom zero";
        assert_eq!(listing.lines().join(" "), expected);
        let numbers = Run::new(caller)
            .sh("cd /dev; stat -Lc '%n %F %t:%T' full null ptmx random tty urandom zero; ls -A pts shm")
            .go()
            .expect(0);
        let node = |name: &str, number: &str| format!("{name} character special file {number}\n");
        let nodes = [
            ("full", "1:7"),
            ("null", "1:3"),
            ("ptmx", "5:2"),
            ("random", "1:8"),
            ("tty", "5:0"),
            ("urandom", "1:9"),
            ("zero", "1:5"),
        ];
        let expected: String = nodes.iter().map(|(name, number)| node(name, number)).collect();
        assert_eq!(numbers.text(), expected + "pts:\nptmx\n\nshm:\n");
        let works = Run::new(caller)
            .sh("head -c 3 /dev/zero | od -An -tx1; echo x > /dev/null; cat /dev/zero > /dev/full")
            .go();
        assert_eq!(works.text().trim(), "00 00 00");
        assert!(works.stderr.contains("No space left"), "{works}");
    });
}

#[test]
fn device_nodes_cannot_be_made() {
    let program = |place: &str| {
        attack(&format!(
            r#"
import stat
for name, kind, device in [("mem", stat.S_IFCHR, os.makedev(1, 1)), ("disk", stat.S_IFBLK, os.makedev(8, 0)), ("null", stat.S_IFCHR, os.makedev(1, 3))]:
    attempt(name, lambda: os.mknod({place:?} + "/" + name, 0o600 | kind, device))
"#
        ))
    };
    if is_root() {
        let dir = TempDir::new(Caller::Root);
        let (_, text) = python_outside(Caller::Root, &program(common::text(dir.path())));
        assert_eq!(text.matches("=OK").count(), 3, "root outside can create them: {text}");
    }
    for_each_caller(|caller| {
        for user in ["sandbox", "root"] {
            let inside = Run::new(caller).opts(["-u", user]).python(&program("/tmp")).go().expect(0);
            assert_eq!(inside.text().matches("=OK").count(), 0, "{inside}");
        }
    });
}

#[test]
fn a_setuid_program_gains_nothing() {
    if !is_root() {
        return common::skip("not root: cannot make a setuid program of another user");
    }
    let dir = TempDir::new(Caller::Root);
    let program = dir.join("id");
    fs::copy("/usr/bin/id", &program).unwrap();
    common::set_mode(&program, 0o4755);
    let (code, text) = outside(Caller::Unprivileged, [common::text(&program), "-u"]);
    assert_eq!((code, text.trim()), (0, "0"), "it works outside");
    for_each_caller(|caller| {
        let inside = Run::new(caller).opts(["--ro", common::text(dir.path())]).cmd([common::text(&program), "-u"]).go();
        assert_eq!(inside.expect(0).text().trim(), "1000");
    });
}

const NEW_NAMESPACES: &str = r#"
flags = {"user": 0x10000000, "mnt": 0x20000, "pid": 0x20000000, "net": 0x40000000, "ipc": 0x8000000, "uts": 0x4000000, "cgroup": 0x2000000}
for name, flag in flags.items():
    pid = os.fork()
    if pid == 0:
        result = libc.unshare(flag)
        os._exit(0 if result == 0 else ctypes.get_errno())
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    print(f"{name}={'OK' if status == 0 else word(status)}", flush=True)
"#;

#[test]
fn nested_namespaces_are_refused() {
    let (_, text) = python_outside(*common::callers().last().unwrap(), &attack(NEW_NAMESPACES));
    assert!(text.contains("user=OK"), "every user outside can: {text}");
    for_each_caller(|caller| {
        let alone = ["-u", "root", "--cap-add", "ALL", "--seccomp", "unconfined"]; // the limits, without the filter
        for options in [&["-u", "sandbox"][..], &["-u", "root", "--cap-add", "ALL"], &alone] {
            let inside = Run::new(caller).opts(options.iter().copied()).python(&attack(NEW_NAMESPACES)).go();
            let inside = inside.expect(0);
            assert!(inside.text().contains("user=") && !inside.text().contains("=OK"), "{options:?}: {inside}");
        }
    });
}

#[test]
fn mounting_and_unmounting_are_refused() {
    for_each_caller(|caller| {
        let program = r#"
os.mkdir("/tmp/m")
none = ctypes.c_char_p(None)
def mount(name, source, target, kind, flags):
    result = libc.mount(source, target, kind, ctypes.c_ulong(flags), none)
    print(f"{name}={'OK' if result == 0 else word(ctypes.get_errno())}", flush=True)
mount("tmpfs", b"x", b"/tmp/m", b"tmpfs", 0)
mount("proc", b"x", b"/tmp/m", b"proc", 0)
mount("bind", b"/usr", b"/tmp/m", none, 4096)
mount("remount_root", none, b"/", none, 32)
mount("remount_usr", none, b"/usr", none, 32 | 4096)
mount("remount_proc_sys", none, b"/proc/sys", none, 32 | 4096)
for path in [b"/proc/sys", b"/proc/keys", b"/tmp", b"/usr", b"/"]:
    result = libc.umount2(path, 2)
    print(f"umount{path.decode()}={'OK' if result == 0 else word(ctypes.get_errno())}", flush=True)
syscall("fsopen", 430, b"tmpfs", 0)
syscall("open_tree_clone", 428, -100, b"/usr", 1)
syscall("mount_setattr", 442, -100, b"/usr", 0, (ctypes.c_ulong * 4)(0, 1, 0, 0), 32)
syscall("pivot_root", 155, b"/tmp/m", b"/tmp/m")
attempt("chroot", lambda: os.chroot("/tmp/m"))
"#;
        let inside = Run::new(caller).python(&attack(program)).go().expect(0);
        assert_eq!(inside.lines().len(), 16, "{inside}");
        assert!(!inside.text().contains("=OK"), "{inside}");
    });
}

#[test]
fn there_are_no_capabilities_and_no_way_to_get_any() {
    let program = attack(
        r#"
for line in open("/proc/self/status"):
    if line.startswith(("Cap", "NoNewPrivs")):
        print(line.replace(":\t", "=").strip(), flush=True)
print(f"securebits={libc.prctl(27, 0, 0, 0, 0):#x}", flush=True)
print(f"relax={libc.prctl(28, 0, 0, 0, 0)}", flush=True)
print(f"new_privs={libc.prctl(38, 0, 0, 0, 0)}", flush=True)
print(f"ambient={libc.prctl(47, 2, 10, 0, 0)}", flush=True)
print(f"keepcaps={libc.prctl(8, 1, 0, 0, 0)}", flush=True)
"#,
    );
    for_each_caller(|caller| {
        // Landlock and seccomp need no_new_privs too.
        let alone = ["-u", "sandbox", "--landlock", "off", "--seccomp", "unconfined"];
        for options in [&["-u", "sandbox"][..], &["-u", "root"], &alone] {
            let user = options[1];
            let inside = Run::new(caller).opts(options.iter().copied()).python(&program).go().expect(0);
            for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
                assert_eq!(inside.value(set), "0000000000000000", "{set} as {user}");
            }
            assert_eq!(inside.value("NoNewPrivs"), "1");
            // NOROOT, NO_SETUID_FIXUP and NO_CAP_AMBIENT_RAISE with their locks, and the lock of KEEP_CAPS.
            assert_eq!(inside.value("securebits"), "0xef");
            for refused in ["relax", "new_privs", "ambient", "keepcaps"] {
                assert_eq!(inside.value(refused), "-1", "{refused}");
            }
        }
    });
}

#[test]
fn an_added_capability_is_the_only_one() {
    for_each_caller(|caller| {
        let inside = Run::new(caller)
            .opts(["--cap-add", "NET_BIND_SERVICE", "--network", "loopback"])
            .python(&attack(
                r#"
import socket
for line in open("/proc/self/status"):
    if line.startswith("Cap"):
        print(line.replace(":\t", "=").strip(), flush=True)
attempt("port80", lambda: socket.socket().bind(("127.0.0.1", 80)))
attempt("chown", lambda: os.chown("/tmp", 0, 0))
import time
for _ in range(200):  # it lets go of them once the workload has them
    init = [line for line in open("/proc/1/status") if line.startswith(("CapPrm", "CapEff", "CapInh", "CapAmb"))]
    if all(int(line.split()[1], 16) == 0 for line in init):
        break
    time.sleep(0.01)
for line in init:
    print("init" + line.replace(":\t", "=").strip(), flush=True)
"#,
            ))
            .go()
            .expect(0);
        for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
            assert_eq!(inside.value(set), "0000000000000400", "{set}");
        }
        for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
            assert_eq!(inside.value(&format!("init{set}")), "0000000000000000", "init has no capabilities");
        }
        assert_eq!(inside.value("port80"), "OK");
        assert_ne!(inside.value("chown"), "OK");
        let without = Run::new(caller)
            .opts(["--network", "loopback"])
            .python(&attack("import socket\nattempt('port80', lambda: socket.socket().bind(('127.0.0.1', 80)))"))
            .go();
        assert_ne!(without.expect(0).value("port80"), "OK", "it works without the capability");
    });
}

#[test]
fn keys_of_the_callers_session_are_out_of_reach() {
    // A key in a new session keyring, which programs executed from there inherit.
    let plant = "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\n\
                 if libc.syscall(250, 1, None, 0, 0, 0) == -1 and ctypes.get_errno() == 38: raise SystemExit(77)\n\
                 assert libc.syscall(248, b'user', b'stockade-canary', b'secret', 6, -3) > 0\n\
                 libc.syscall(250, 5, -3, 0x3f3f3f3f, 0, 0)";
    let look = attack(
        "syscall('search', 250, 10, -3, b'user', b'stockade-canary', 0)\nsyscall('read', 250, 6, -3, b'user', b'stockade-canary', 0)",
    );
    for_each_caller(|caller| {
        let through = format!("{plant}\nimport os, sys\nos.execv(sys.argv[1], sys.argv[1:])");
        let control = outside(caller, [PYTHON, "-I", "-c", &through, PYTHON, "-I", "-S", "-c", &look]);
        if control.0 == 77 {
            return skip_part("", "this kernel has no keyrings");
        }
        assert!(control.1.contains("search=OK"), "found outside: {}", control.1);
        // With filter and keyring, and with the keyring alone.
        for options in [&[][..], &["--seccomp", "unconfined"]] {
            let run = Run::new(caller).opts(options.iter().copied()).after_python(plant);
            let inside = run.python(&look).go().expect(0);
            assert_ne!(inside.value("search"), "OK", "{inside}");
        }
    });
}

#[test]
fn descriptors_of_the_caller_do_not_survive() {
    let leak = "import os, socket\n\
                for number, fd in [(7, os.open('/', os.O_PATH)), (8, os.open('/etc/passwd', os.O_RDONLY)), (900, socket.socket().detach())]:\n    \
                os.dup2(fd, number, inheritable=True)";
    for_each_caller(|caller| {
        let list = "import os\nprint(*sorted(int(fd) for fd in os.listdir('/proc/self/fd')))\n\
                    try: print(os.listdir('/proc/self/fd/7/root'))\nexcept OSError as error: print('refused')";
        let through = format!("{leak}\nimport sys\nos.execv(sys.argv[1], sys.argv[1:])");
        let control = outside(caller, [PYTHON, "-I", "-c", &through, PYTHON, "-I", "-S", "-c", list]);
        assert!(control.1.contains(" 7 8 ") && control.1.contains(" 900"), "they are inherited outside: {}", control.1);
        for options in [&[][..], &["--no-init"], &["-i", "--output-limit", "1M"]] {
            let inside = Run::new(caller).after_python(leak).opts(options.iter().copied()).python(list).go().expect(0);
            // The third descriptor is that of the listing itself.
            assert_eq!(inside.lines(), ["0 1 2 3", "refused"], "{options:?}: {inside}");
        }
    });
}

/// The program and its interpreter are files of the sandbox, also without Landlock.
#[test]
fn no_program_of_the_host_is_executed_through_proc() {
    let home = TempDir::new(Caller::Root);
    let program = home.dir("outside").join("program");
    fs::copy("/bin/busybox", &program).unwrap();
    let printed = "executed on the host";
    let path = format!("/proc/self/fd/7{}", common::text(&program));
    let scripts = home.dir("scripts");
    let script = |name: &str, interpreter: &str| {
        let script = scripts.join(name);
        fs::write(&script, format!("#!{interpreter} echo {printed}\n")).unwrap();
        common::set_mode(&script, 0o755);
    };
    script("descriptor", &path);
    script("itself", "/proc/self/exe");
    script("first", "/scripts/descriptor");
    let loader = b"/lib64/ld-linux-x86-64.so.2";
    let mut elf = fs::read("/bin/true").unwrap();
    if let Some(at) = elf.windows(loader.len()).position(|bytes| bytes == loader) {
        elf[at..at + loader.len()].copy_from_slice(b"/proc/self/exe\0-linux-64.so");
        // The kernel executes a file whatever class and byte order its header gives.
        for (name, class, order) in [("elf", 2, 1), ("elf-narrow", 1, 1), ("elf-odd", 9, 2)] {
            (elf[4], elf[5]) = (class, order);
            fs::write(scripts.join(name), &elf).unwrap();
            common::set_mode(&scripts.join(name), 0o755);
        }
    }
    common::set_mode(home.path(), 0o755);
    let leak = "import os\nos.dup2(os.open('/', os.O_PATH), 7, inheritable=True)";
    for_each_caller(|caller| {
        let through = format!("{leak}\nimport sys\nos.execv(sys.argv[1], ['busybox'] + sys.argv[2:])");
        let control = outside(caller, [PYTHON, "-I", "-c", &through, &path, "echo", printed]);
        assert!(control.1.contains(printed), "outside, the descriptor leads to the host: {}", control.1);
        let bind = format!("{}:/scripts:ro", common::text(&scripts));
        for options in [&["--landlock", "off"][..], &["--landlock", "off", "--no-init"], &[]] {
            for command in [
                vec![path.as_str(), "echo", printed],
                vec!["/scripts/descriptor"],
                vec!["/scripts/first"],
                vec!["/scripts/itself"],
                vec!["/scripts/elf"],
                vec!["/scripts/elf-narrow"],
                vec!["/scripts/elf-odd"],
                vec!["/proc/self/exe", "version"],
            ] {
                let run = Run::new(caller).after_python(leak).opts(["-v", &bind]).opts(options.iter().copied());
                let outcome = run.cmd(command.iter().copied()).go();
                assert!(matches!(outcome.code(), 126 | 127), "{options:?} {command:?}: {outcome}");
                assert!(!outcome.text().contains(printed), "{options:?} {command:?}: {outcome}");
            }
        }
        // Without a free descriptor for the verification, the workload is not executed.
        for most in ["nofile=3", "nofile=4", "nofile=5", "nofile=6"] {
            let run = Run::new(caller).opts(["-v", &bind, "--landlock", "off", "--ulimit", most]);
            let outcome = run.cmd(["/scripts/itself"]).go().expect(126);
            assert!(!outcome.stderr.contains("reading the command line"), "{most}: {outcome}");
        }
    });
}

/// A process whose root is the sandbox's has no directory or file of the host open, at any of its calls.
#[test]
fn nothing_of_the_host_is_open_in_the_root_of_a_sandbox() {
    if !is_root() {
        return common::skip("not root: the descriptors of a process that is not dumpable cannot be seen");
    }
    if !inject::may_inject() {
        return;
    }
    let leak = "import os\n\
                for number, fd in [(7, os.open('/', os.O_PATH)), (8, os.open('/etc/passwd', os.O_RDONLY))]:\n    \
                os.dup2(fd, number, inheritable=True)";
    let caller = Caller::Root;
    let home = TempDir::new(caller);
    let (seen, audit, bound) = (home.join("seen"), home.join("audit"), home.dir("bound"));
    let (audit, bind) = (common::text(&audit), format!("{}:/bound", common::text(&bound)));
    let all: [&[&str]; 7] = [
        &["--landlock", "off"],
        &["-t"],
        &["--explain-denials"],
        &["--no-init"],
        &["--time-namespace"],
        &["--network", "host", "-v", &bind],
        &["--audit", audit, "-i", "--output-limit", "1M"],
    ];
    for options in all {
        let _ = fs::remove_file(&seen);
        let look = inject::words(&[format!("LOOK={}", common::text(&seen))]);
        let run = Run::new(caller).via(look).after_python(leak).opts(options.iter().copied()).without_report();
        run.cmd(["/usr/bin/true"]).go().expect(0);
        let seen = fs::read_to_string(&seen).unwrap();
        let (looks, found) = seen.split_once('\n').unwrap();
        assert!(looks.strip_prefix("looks ").unwrap().parse::<u32>().unwrap() > 100, "{options:?}: {looks}");
        assert_eq!(found, "", "{options:?}");
    }
}

#[test]
fn signals_start_with_their_defaults() {
    let odd = "import signal\n\
               for number in range(1, 65):\n    \
               try: signal.signal(number, signal.SIG_IGN)\n    \
               except (OSError, ValueError): pass\n\
               signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))";
    for_each_caller(|caller| {
        for options in [&[][..], &["--no-init"]] {
            let inside = Run::new(caller)
                .after_python(odd)
                .opts(options.iter().copied())
                .cmd(["/bin/cat", "/proc/self/status"])
                .go()
                .expect(0);
            let zero = "0000000000000000";
            for field in ["SigBlk", "SigIgn", "SigCgt"] {
                assert!(inside.lines().contains(&format!("{field}:\t{zero}")), "{field} {options:?}: {inside}");
            }
        }
    });
}

#[test]
fn the_file_mode_mask_is_the_plans() {
    for_each_caller(|caller| {
        let run = |options: &[&str]| {
            let run = Run::new(caller).after_sh("umask 0777").opts(options.iter().copied());
            run.sh("umask; cd /tmp; touch f; stat -c %a f").go().expect(0).lines().join(" ")
        };
        assert_eq!(run(&[]), "0022 644");
        assert_eq!(run(&["--umask", "077"]), "0077 600");
    });
}

#[test]
fn the_environment_is_an_allow_list() {
    for_each_caller(|caller| {
        let run = |options: &[&str]| {
            let mut run = Run::new(caller).opts(options.iter().copied());
            for name in ["SECRET", "BASH_ENV", "PYTHONPATH", "NODE_OPTIONS", "GIT_SSH_COMMAND", "LC_CTYPE", "TZ"] {
                run = run.env(name, "leaked");
            }
            let outcome = run.env("LD_LIBRARY_PATH", "leaked").cmd(["/usr/bin/env"]).go().expect(0);
            let mut names: Vec<_> =
                outcome.lines().iter().map(|line| line.split('=').next().unwrap().to_owned()).collect();
            names.sort();
            names.retain(|name| name != common::leaks::VARIABLE);
            names.join(" ")
        };
        assert_eq!(run(&[]), "HOME LANG LC_CTYPE LOGNAME PATH TERM TZ USER");
        assert_eq!(run(&["-e", "BASH_ENV", "-e", "X=1"]), "BASH_ENV HOME LANG LC_CTYPE LOGNAME PATH TERM TZ USER X");
        let kept = run(&["--keep-env"]);
        assert!(kept.contains("SECRET") && !kept.contains("LD_") && !kept.contains("PYTHONPATH"), "{kept}");
        let values = Run::new(caller).sh("echo $HOME $USER $PATH").go().expect(0);
        assert_eq!(values.text(), format!("/home/sandbox sandbox {}\n", common::PATH));
    });
}

#[test]
fn the_working_directory_is_inside() {
    for_each_caller(|caller| {
        let pwd = |options: &[&str]| Run::new(caller).opts(options.iter().copied()).cmd(["/bin/pwd", "-P"]).go();
        assert_eq!(pwd(&[]).expect(0).text(), "/home/sandbox\n");
        assert_eq!(pwd(&["-w", "/tmp"]).expect(0).text(), "/tmp\n");
        assert_eq!(pwd(&["-w", "/usr/../tmp"]).code(), 125, "a path with \"..\" is refused");
        for odd in ["/nowhere", "/etc/passwd", "/proc/self/fd/3", "/proc/1/root", "/proc/1/cwd"] {
            let outcome = pwd(&["-w", odd]).expect(125);
            assert!(outcome.stderr.contains(odd), "the error names it: {outcome}");
        }
    });
}

#[test]
fn the_host_name_is_the_sandboxes_own() {
    let own = nix::unistd::gethostname().unwrap();
    for_each_caller(|caller| {
        assert_eq!(Run::new(caller).cmd(["/bin/uname", "-n"]).go().expect(0).text(), "sandbox\n");
        let named =
            Run::new(caller).opts(["--hostname", "other"]).sh("uname -n; cat /etc/hostname; getent hosts other").go();
        assert_eq!(named.expect(0).lines()[..2], ["other", "other"]);
        let program = attack("import socket\nattempt('change', lambda: socket.sethostname('x'))");
        assert_ne!(Run::new(caller).python(&program).go().expect(0).value("change"), "OK");
    });
    assert_eq!(nix::unistd::gethostname().unwrap(), own);
}

#[test]
fn resource_limits_are_applied() {
    let asked = [
        ("cpu", "100:200", "Max cpu time"),
        ("fsize", "1048576:2097152", "Max file size"),
        ("data", "1073741824:2147483648", "Max data size"),
        ("stack", "4194304:8388608", "Max stack size"),
        ("core", "2:3", "Max core file size"),
        ("rss", "1073741824:1073741824", "Max resident set"),
        ("nproc", "300:400", "Max processes"),
        ("nofile", "100:200", "Max open files"),
        ("memlock", "4096:8192", "Max locked memory"),
        ("as", "4294967296:8589934592", "Max address space"),
        ("locks", "10:20", "Max file locks"),
        ("sigpending", "10:20", "Max pending signals"),
        ("msgqueue", "100:200", "Max msgqueue size"),
        ("nice", "0:0", "Max nice priority"),
        ("rtprio", "0:0", "Max realtime priority"),
        ("rttime", "1000000:2000000", "Max realtime timeout"),
    ];
    for_each_caller(|caller| {
        let options = asked.iter().flat_map(|(name, value, _)| ["--ulimit".to_owned(), format!("{name}={value}")]);
        let inside = Run::new(caller).opts(options).cmd(["/bin/cat", "/proc/self/limits"]).go().expect(0);
        for (name, value, title) in asked {
            let lines = inside.lines();
            let line = lines.iter().find_map(|line| line.strip_prefix(title)).unwrap();
            let columns: Vec<_> = line.split_ascii_whitespace().take(2).collect();
            assert_eq!(columns.join(":"), value, "{name}");
        }
        let raise = attack(
            "import resource\nsoft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)\n\
                            try:\n    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard + 1)); print('raise=OK')\n\
                            except (OSError, ValueError): print('raise=refused')",
        );
        assert_eq!(Run::new(caller).python(&raise).go().expect(0).value("raise"), "refused");
    });
}

#[test]
fn limits_of_a_default_run_are_bounded() {
    for_each_caller(|caller| {
        let inside = Run::new(caller).cmd(["/bin/cat", "/proc/self/limits"]).go().expect(0);
        for title in ["Max processes", "Max open files", "Max locked memory", "Max core file size", "Max msgqueue size"]
        {
            let lines = inside.lines();
            let line = lines.iter().find_map(|line| line.strip_prefix(title)).unwrap();
            assert!(!line.contains("unlimited"), "{title}: {line}");
        }
    });
}

#[test]
fn the_oom_score_is_the_plans() {
    for_each_caller(|caller| {
        let run = |options: &[&str]| {
            let run = Run::new(caller).opts(options.iter().copied());
            run.cmd(["/bin/cat", "/proc/self/oom_score_adj"]).go().expect(0).text().trim().to_owned()
        };
        assert_eq!(run(&["--oom-score-adj", "500"]), "500");
        let own = fs::read_to_string("/proc/self/oom_score_adj").unwrap().trim().parse::<i32>().unwrap();
        assert_eq!(run(&[]), own.max(0).to_string());
        let lower = Run::new(caller).opts(["--oom-score-adj", "-1000"]).cmd(["true"]).go().expect(125);
        assert!(lower.stderr.contains("CAP_SYS_RESOURCE"), "{lower}");
    });
}

#[test]
fn the_init_cannot_be_read_traced_or_killed() {
    for_each_caller(|caller| {
        for user in ["sandbox", "root"] {
            let program = r#"
import signal
for name in ["mem", "environ", "maps", "exe", "cwd", "root", "fd", "ns/user", "auxv", "io", "stack", "syscall"]:
    path = "/proc/1/" + name
    attempt(name, lambda: os.listdir(path) if name == "fd" else os.close(os.open(path, os.O_RDONLY)))
attempt("overwrite", lambda: os.close(os.open("/proc/1/exe", os.O_WRONLY)))
attempt("writemem", lambda: os.close(os.open("/proc/1/mem", os.O_RDWR)))
syscall("attach", 101, 16, 1, 0, 0)
syscall("seize", 101, 0x4206, 1, 0, 0)
syscall("vm_read", 310, 1, None, 0, None, 0, 0)
pidfd = syscall("pidfd", 434, 1, 0)
if pidfd >= 0: syscall("getfd", 438, pidfd, 0, 0)
for number in (signal.SIGKILL, signal.SIGSTOP, signal.SIGSEGV, signal.SIGTERM):
    try: os.kill(1, number)
    except OSError: pass
print("alive")
"#;
            let inside = Run::new(caller).opts(["-u", user]).python(&attack(program)).go();
            let text = inside.text();
            for line in text.lines().filter(|line| !line.starts_with("pidfd=")) {
                assert!(!line.ends_with("=OK") || line.starts_with("vm_read"), "as {user}: {line}\n{inside}");
            }
        }
    });
}

#[test]
fn other_processes_are_out_of_sight_and_reach() {
    let me = std::process::id();
    for_each_caller(|caller| {
        let program = format!(
            r#"
attempt("kill", lambda: os.kill({me}, 0))
attempt("pidfd", lambda: os.pidfd_open({me}))
print("pids=" + " ".join(sorted(name for name in os.listdir("/proc") if name.isdigit())))
print("all=" + str(os.getppid()))
"#
        );
        let inside = Run::new(caller).python(&attack(&program)).go().expect(0);
        assert_eq!(inside.value("kill"), "ESRCH");
        assert_ne!(inside.value("pidfd"), "OK");
        assert_eq!(inside.value("pids"), "1 2");
        let alone = Run::new(caller).opts(["--no-init"]).sh("echo $$").go().expect(0);
        assert_eq!(alone.text(), "1\n");
    });
}

#[test]
fn the_workload_is_one_unprivileged_user() {
    for_each_caller(|caller| {
        let inside =
            Run::new(caller).sh("id -u; id -g; id -G; cat /proc/self/uid_map; cat /proc/self/setgroups").go().expect(0);
        let lines = inside.lines();
        assert_eq!(lines[..2], ["1000", "1000"]);
        assert_eq!(lines[2], "1000", "no group of the caller's is left");
        let map: Vec<u32> = lines[3].split_ascii_whitespace().map(|number| number.parse().unwrap()).collect();
        assert_eq!((map[0], map[2]), (1000, 1));
        // Inside, the id is that of the parent namespace; it is never root's.
        let host_uid = inside.report()["enforced"]["host_uid"].as_u64().unwrap();
        match caller {
            Caller::Root => assert!(host_uid > 65_536, "the id belongs to no user: {host_uid}"),
            Caller::Unprivileged => assert_eq!(host_uid, u64::from(caller.ids().0)),
        }
    });
}

#[test]
fn shared_memory_and_queues_of_the_host_are_not_there() {
    let program = |create: &str| {
        attack(&format!("syscall('shm', 29, 0x57434b41, 4096, {create})\nsyscall('sem', 64, 0x57434b41, 1, {create})"))
    };
    for_each_caller(|caller| {
        let (_, text) = python_outside(caller, &program("0o1666"));
        assert!(text.contains("shm=OK"), "{text}");
        let (_, text) = python_outside(caller, &program("0"));
        assert!(text.contains("shm=OK"), "every user outside finds it: {text}");
        let inside = Run::new(caller).python(&program("0")).go().expect(0);
        outside(caller, ["sh", "-c", "ipcrm -M 0x57434b41; ipcrm -S 0x57434b41"]);
        assert!(!inside.text().contains("=OK"), "{inside}");
    });
}
